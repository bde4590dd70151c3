"""The output of every command on one recorded ledger, byte for byte.

The clock of the ledger and that of the commands stand still, so that every instant is fixed.
``recorded_commands.txt`` has both outputs and the exit code of each command line below, in this
order: what one of them changes, the next ones show. After an intended change of an output, write it
anew with ``SCHED_RECORD=1 make test ARGS=tests/unit/test_recorded_commands.py`` and read the
difference.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.cli.app import MODULES, load, run
from engine.cli.target import Target, note_running
from engine.embedded import PostgresServer
from engine.errors import TemporalUnavailable
from engine.ledger import Ledger
from engine.ledger.failures import (
    FailingNote,
    FailingStep,
    Failure,
    FailureLink,
    RunCounts,
    Try,
    failing_text,
)
from engine.ledger.fires import Claim, Evidence, Outcome
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.runtime.apply.source import read_file
from engine.schedules.planner.planner import plan
from engine.schedules.timing.zones import TZDATA_VERSION
from engine.service import ScheduleService
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger, virtual_database
from tests.ends import record_end

RECORDED = Path(__file__).with_name("recorded_commands.txt")
BEGIN = datetime(2026, 11, 21, 9, 30, 30, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1", "report@2"}))
LEFT = '[{"step": "reserve", "undo": "release", "error": "the stock is away"}]'

FAILING = FailingStep(
    step="charge", place="charge/1", run_id="run-of-it", attempts=7, max_attempts=50,
    error_type="CardDeclined", error="CardDeclined: no money", since=NOW - HOUR / 6,
    next_attempt_at=NOW + HOUR / 60,
)  # fmt: skip

FAILING_CHILD = replace(
    FAILING, step="refund", place="refund/1", run_id="run-of-the-child", child="child:it:refunds:1"
)

FILE = """
project: default
calendars: {closed: [2026-12-25, 2027-01-01]}
schedules:
  - {key: hourly, workflow: noop, everyMs: 3600000, input: {a: 1}, description: each hour}
  - {key: nightly, workflow: report, cron: "0 2 * * *", timezone: America/Sao_Paulo,
     exclude: [closed], catchUp: {policy: all, max: 5}, spread: 10m, metadata: {team: data}}
  - {key: queued, workflow: noop, everyMs: 3600000, overlap: queue, maxQueued: 1, grace: 3h}
  - {key: after, workflow: noop, everyMs: 3600000, after: {schedule: hourly}, overlap: skip}
  - {key: resting, workflow: noop, everyMs: 60000, paused: true}
  - {key: off, workflow: noop, cron: "30 4 * * MON", enabled: false}
  - {key: once, workflow: noop, at: "2026-12-24T18:00:00Z"}
  - {key: over, workflow: noop, at: "2026-11-21T09:31:00Z"}
  - {key: unknown, workflow: missing, everyMs: 86400000}
  - {key: other-place, workflow: noop, everyMs: 86400000, taskQueue: mail}
"""
CHANGED = """
project: default
hooks: [{url: "https://hooks.example/secret", secret: "${env:HOOK}", events: [schedule.changed]}]
schedules:
  - {key: hourly, workflow: noop, everyMs: 1800000}
  - {key: nightly, workflow: report, cron: "0 3 * * *", timezone: America/Sao_Paulo}
  - {key: fresh, workflow: noop, every: 1m, tags: [new], searchAttributes: {Region: eu}}
  - {key: lost, workflow: nowhere, cron: "0 1 * * *"}
"""
RENAMED = """
project: default
schedules:
  - {key: hourly, workflow: noop, everyMs: 1800000}
  - {key: nightly-report, workflow: report, cron: "0 3 * * *", timezone: America/Sao_Paulo}
  - {key: newest, was: fresh, workflow: noop, every: 1m, tags: [new],
     searchAttributes: {Region: eu}}
  - {key: other, was: never, workflow: noop, every: 1h}
"""
BROKEN = """
schedules:
  - {key: a, workflow: w, everyMs: 10}
  - {key: a, workflow: w, cron: "61 * * * *", colour: red}
"""
EXPECTING = """
schedules:
  - {key: a, workflow: w, cron: "0 5 * * *",
     expect: [{on: 2026-11-21, fires: ["06:00"]}]}
"""

COMMANDS = """
check
check --json
check broken.yaml
check broken.yaml --json
check expecting.yaml --json
check nowhere.yaml
status
status --json
workers
workers --json
queues
queues --json
list
list --json
list --wide
list --wide --json
list --kind cron --status pending
list --kind one_shot --json
list --request-id inv-12
list --correlation nobody --json
list --project nobody
list --project defalt --json
show hourly
show hourly --json
show nightly
show nightly --json
show queued --json
show after
show after --json
show resting --json
show off
show over
show once --json
show huorly
show hourly --at 2026-11-21T10:00:00Z
show hourly --at 2026-11-21T10:00:00Z --json
show hourly --at 2026-11-21T09:00:00Z
show over --at 2026-11-21T09:30:00Z
show hourly --at 2026-11-21T10:30:00Z
show hourly --at noon
fires
fires --json
fires hourly --json
fires hourly --status failed --json
fires --since 1h
fires hourly --since 2026-11-21T10:00:00Z --until 2026-11-21T11:00:00Z --json
fires hourly --since 1h --until 2h
fires --until 1d
fires queued
fires once
fires nobody
log
log --json
log hourly
audit
audit --json
audit hourly --since 2026-11-21T10:00:00Z
audit hourly --against temporal
audit huorly --json
audit --since 2026-11-22T00:00:00Z
audit --since nonsense
explain hourly 2026-11-21T10:00:00Z
explain hourly 2026-11-21T10:00:00Z --json
explain hourly 2026-11-21T10:30:00Z
explain over 2026-11-21T09:31:00Z
explain resting 2026-11-21T10:00:00Z
explain once 2026-12-24T18:00:00Z --json
explain huorly 2026-12-24T18:00:00Z
next
next --json
next hourly -n 3 --json
next nightly -n 2
next --schedules changed.yaml --json
next huorly --schedules changed.yaml
next --cron "30 2 * * *" --timezone Europe/Berlin --from 2027-03-27 -n 3
next --cron "30 2 * * *" --timezone Europe/Berlin --from 2027-03-27 -n 3 --json
next --cron "0 0 30 2 *" --json
plan
plan --json
plan changed.yaml
plan changed.yaml --json
plan changed.yaml --prune --json
dead list
dead list -n 1
dead list hourly -n 1
dead list --json
dead list --failing
dead list --failing --json
dead list hourly --failing
dead list nobody --failing
dead list nobody
dead show hourly {failed}
dead show hourly {failed} --json
dead show sched:hourly:1 --json
history export hourly
history export hourly --json
pause hourly --reason "the warehouse moves"
pause hourly --reason again --until 2026-11-22T06:00:00Z --json
show hourly
log hourly --json
resume hourly --json
resume hourly
resume after --catch-up all --max 5 --rate 5/1s --order newest
pause queued --reason deploy --json
resume queued --catch-up latest --json
skip hourly --at 2026-11-21T15:00:00Z --reason holiday
skip hourly --at 2026-11-21T15:00:00Z --json
next hourly -n 3 --json
next hourly -n 3
show hourly --json
unskip hourly --at 2026-11-21T15:00:00Z --json
unskip hourly --at 2026-11-21T15:00:00Z
unskip hourly --at 2026-11-21T15:01:00Z --json
skip hourly --reason next
unskip hourly
skip over
explain hourly 11:00
trigger other-place
trigger other-place --json
trigger nightly --request-id ticket-4711 --input '{"format": "pdf"}'
trigger nightly --request-id ticket-4711 --overlap queue --json
trigger resting --input '{"a": 1}' --import tests.sample_noop
trigger resting --input '{"a": 1}' --import tests.nowhere
trigger nobody --json
trigger resting --reason soon --json
rerun hourly {started} --json
rerun hourly {failed} --overlap skip --json
rerun hourly 1 --json
dead rerun hourly {failed} --input '{"a": 2}' --overlap allow --json
dead list --json
dead drop over {refused} --reason gone --json
dead drop --all hourly
dead drop --all --json
dead drop --all nobody --json
backfill hourly --from 2026-11-21T06:00Z --to 2026-11-21T12:00Z --dry-run
backfill hourly --from 2026-11-21T06:00Z --to 2026-11-21T12:00Z --dry-run --json
backfill hourly --from 2026-11-21T09:00Z --to 2026-11-21T09:00Z --json
backfill queued --from 2026-11-20 --to 2026-11-21T08:00Z --overlap queue --include excluded
backfill queued --from 2026-11-20 --to 2026-11-21T08:00Z --overlap queue --include excluded --yes
backfill queued --from 2026-11-20 --to 2026-11-21T08:00Z --json
show queued
show queued --json
at 2026-12-24T18:00 noop --timezone Europe/Berlin --key wishes --request-id inv-12 --json
at 2026-12-24T18:00 noop --timezone Europe/Berlin --key wishes --request-id inv-12
at 2026-12-25T18:00Z noop --key wishes --input '[12]' --external
at 2026-11-25T18:00Z noop --key second --task-queue mail --project default
reschedule wishes 2026-12-24T17:00Z --json
reschedule wishes --every 1h
reschedule wishes --cron "0 8 * * *" --timezone Europe/Berlin --json
reschedule hourly --every 1h --json
show wishes
show wishes --json
list --request-id inv-12
list --json
cancel wishes
cancel wishes --json
cancel after --json
cancel {running} --terminate --reason stuck --json
cancel {running} --terminate
cancel hourly --json
cancel queued
cancel sched:hourly:1 --json
apply changed.yaml
apply changed.yaml
apply changed.yaml --json
apply broken.yaml --json
apply changed.yaml --take-from nobody --json
list --tag new
plan changed.yaml --json
plan --prune --force
list
list --json
fires --json -n 100
fires -n 100
log --json -n 100
log -n 100
audit
explain resting 2026-11-21T11:00:00Z
start noop order:7 --input '{"item": "a book"}'
start noop order:7 --input '{"item": "a book"}' --json
start noop order:7 --input '{"item": "a pen"}'
start noop order:undo
start nobody 7 --json
events
events --json -n 2
events hourly --name schedule.changed
events --subscribers
events --subscribers --json
events --dead
events --dead --json
events --redeliver nothing
events --name schedule.nothing
start noop@1 8 --wait 10ms
fires @noop
show @noop
pause @noop --reason late
token list
token create bot --scope operate --keys 'billing.*' --keys nightly --expires 90d
token create bot
token create reader --json
token create wrong --keys 'A b'
token create wrong --scope root
token create wrong --expires 2020-01-01
token list
token list --json
token revoke bot
token revoke bot
migrate
migrate --json
worker --import tests.sample_workflows --data-dir elsewhere
simulate --from 2026-11-21 --to 2026-11-23 --json
simulate --from 2026-11-21 --to 2026-11-23 --new --duration hourly=90m --duration after=2h
check --no-import
fires sched:hourly:{failed}
show sched:hourly:{failed}
explain sched:hourly:{failed}
rerun sched:hourly:{failed} --json
rerun hourly --at 2026-11-21T10:30:00Z --json
rerun hourly
dead show hourly --at 2026-11-21T11:00:00Z
skip sched:hourly:498690 --reason by-id
unskip hourly --at +1h --json
trigger fresh --wait --timeout 10ms --reason waits
trigger fresh --wait --timeout 10ms --json
trigger fresh --timeout 1s
pause 'ho*' fresh --reason incident --dry-run
pause 'ho*' fresh --reason incident --json
pause 'ho*' fresh --reason incident --yes --json
pause --project default --reason incident --yes
pause 'hu*' --reason incident --yes --json
pause --tag money --reason incident --yes
pause --all fresh --reason incident --yes
pause --reason incident
pause hourly --dry-run --reason incident
resume --all --yes
resume --all --yes --json
retire hourly --reason over
retire second --json
retire second fresh --yes
retire fresh --forget
retire --project default --dry-run
retire --project default --yes --json
retire --project default --force --forget --yes
list
retire --project default --yes
apply changed.yaml
plan renamed.yaml
plan renamed.yaml --json
apply renamed.yaml
plan changed.yaml
show newest
show fresh
pause fresh --reason late
log newest -n 3
log hourly -n 1
"""


def masked(text: str) -> str:
    """Replace what is random, and the version of the zone rules."""
    text = re.sub(r"manual:[0-9a-f]{32}", "manual:RANDOM", text)
    text = re.sub(r"sched_[0-9a-f]{16}_[\w-]{43}", "SECRET", text)
    text = re.sub(r'"id": "[0-9a-f]{16}"', '"id": "RANDOM"', text)
    return text.replace(TZDATA_VERSION, "TZDATA")


class _Datetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


class Frozen(datetime, metaclass=_Datetime):
    """The clock of the commands."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return NOW.astimezone(tz)


def how_it_failed(workflow_id: str, at: datetime) -> dict[str, Any]:
    """Evidence of a run that failed at its second try, in the third attempt of a step."""
    chain = (
        FailureLink(type="ActivityError", message="Activity task failed", step="charge", attempt=3,
                    given_up="retries_exhausted"),
        FailureLink(type="CardDeclined", message="no luck",
                    stack='  File "steps.py", line 7, in charge\n'),
    )  # fmt: skip
    tried = tuple(
        Try(number=number, run_id=f"try-{number}", started_at=at + number * HOUR / 12,
            closed_at=at + number * HOUR / 8, error="step charge: CardDeclined: no luck")
        for number in (1, 2)
    )  # fmt: skip
    counts = RunCounts(
        workflow_id=workflow_id, run_id="try-2", tries=2, step_retries=4, tried=tried
    )
    failure = Failure(chain, "no luck", LEFT)
    return {"failure": failure, "error": "no luck", "not_undone": LEFT, "counts": counts}


class Recorder:
    """A ledger with a morning behind it, and the commands that are run on it."""

    ledger: Ledger
    """It is opened anew for each command, in the event loop of that."""

    def __init__(self, url: str, clock: FrozenClock) -> None:
        self.url, self.clock = url, clock
        self.writes = bool(os.environ.get("SCHED_RECORD"))
        self.names: dict[str, object] = {}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Ledger]:
        self.ledger = await VirtualLedger.open(self.url, self.clock)
        try:
            yield self.ledger
        finally:
            await self.ledger.close()

    async def tick(self) -> list[Claim]:
        async with self.ledger.transaction() as transaction:
            keys = await transaction.lock_due(SERVING, 100)
            now = await transaction.now()
            plans = [plan(state, now) for state in await transaction.read(keys)]
            return await transaction.record(
                plans, owner=SERVING.replica, lease=timedelta(seconds=30)
            )

    async def start(self, claim: Claim, at: datetime) -> None:
        lag = timedelta(milliseconds=1234)
        run_id = f"run-of-{claim.workflow_id.replace(':', '-')}"
        done = Outcome(
            claim.fire_id, claim.token, "started", "on_time", run_id, at + lag,
            first_run_id=run_id, reported=True,
        )  # fmt: skip
        assert await self.ledger.settle([done]) == 1

    async def end(self, name: str, at: datetime, closed: Any, **fields: Any) -> None:
        fire = await self.ledger.fire(name)
        assert fire is not None
        assert fire.run_id is not None
        assert fire.started_at is not None
        seen = Evidence(name, fire.run_id, fire.started_at, closed, at, **fields)
        await record_end(self.ledger, seen)

    async def live(self) -> None:
        """Three hours: runs that end well, badly or not at all, a start that is refused."""
        async with self.opened():
            await self._live()

    async def _live(self) -> None:
        self.clock.move_to(BEGIN)
        await self.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        await apply(self.ledger, read_file(Path("schedules.yaml")), by="test")
        at, ends = BEGIN, ["completed", "failed", "timed_out"]
        while at < NOW:
            self.clock.move_to(at)
            for claim in await self.tick():
                if claim.key == "over":
                    refused = Outcome(claim.fire_id, claim.token, "rejected", error="no paper")
                    await self.ledger.settle([refused])
                    self.names["refused"] = claim.bucket
                    continue
                await self.start(claim, at)
                if claim.key == "hourly" and ends:
                    end, self.names["started"] = ends.pop(0), claim.bucket
                    told = how_it_failed(claim.workflow_id, at) if end == "failed" else {}
                    await self.end(claim.workflow_id, at + HOUR / 4, end, **told)
                    if end == "failed":
                        self.names["failed"] = claim.bucket
                elif claim.key == "queued":
                    self.names["running"] = claim.workflow_id
            await self.ledger.wake()
            at += HOUR / 2
        self.clock.move_to(NOW)
        await self.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        note = FailingNote(str(self.names["running"]), None, failing_text([FAILING, FAILING_CHILD]))
        assert await self.ledger.note_failing([note])


@pytest.fixture
def virtual_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty ledger, for event loops that the test does not run in."""
    made = virtual_database(postgres.url_of("postgres"))
    with asyncio.Runner() as runner:
        yield runner.run(made.__aenter__())
        runner.run(made.__aexit__(None, None, None))


@pytest.fixture
def recorder(
    virtual_url: str, clock: FrozenClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Recorder:
    """A recorder whose ledger every command finds behind the ``sched up`` of its folder."""
    made = Recorder(virtual_url, clock)

    @asynccontextmanager
    async def connect(*_: Any, **__: Any) -> Any:
        async with made.opened() as ledger:
            yield ScheduleService(ledger, actor="ops@host")

    async def nobody(*_: Any, **__: Any) -> Any:
        raise TemporalUnavailable("no server here", hint="start it")

    for name in MODULES:
        load(name)
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith(("SCHED_", "TEMPORAL_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(ScheduleService, "connect", connect)
    monkeypatch.setattr("engine.cli.temporal.connected", nobody)
    for name, module in [*sys.modules.items()]:
        if name.startswith("engine.cli.") and getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", Frozen)
    texts = {"schedules": FILE, "changed": CHANGED, "broken": BROKEN, "expecting": EXPECTING}
    texts |= {"renamed": RENAMED}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / ".sched").mkdir()
    note_running(tmp_path / ".sched", Target("memory://here", "default", "http://ui", "t", None))
    asyncio.run(made.live())
    return made


def test_every_command_prints_what_it_printed_when_it_was_recorded(recorder, capsys):
    found = []
    for line in COMMANDS.strip().splitlines():
        for name, value in recorder.names.items():
            line = line.replace(f"{{{name}}}", str(value))  # noqa: PLW2901 - a name becomes its value
        code = run(shlex.split(line))
        printed = capsys.readouterr()
        errors = "".join(f"! {each}\n" for each in printed.err.splitlines())
        found.append(masked(f"$ sched {line}\n{printed.out}{errors}= {code}\n"))
    if recorder.writes:
        RECORDED.write_text("\n".join(found), encoding="utf-8")
    recorded = RECORDED.read_text(encoding="utf-8")
    for each in found:
        assert each in recorded
    assert "\n".join(found) == recorded
