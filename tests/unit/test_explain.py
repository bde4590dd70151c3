"""Whatever a ledger has decided, the planner decides the same when `explain` asks it again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.audit.evaluator import instant
from engine.audit.history import exact
from engine.audit.judge import SeenRun, SeenRuns
from engine.cli.audit import _remarks
from engine.errors import DefinitionUnreadable
from engine.ledger import Evidence, Serving, ToLay
from engine.runtime.apply.apply import apply, retire_absent
from engine.schedules import load_schedules
from engine.schedules.model import CatchUp
from engine.schedules.planner import plan
from engine.schedules.terms import Reason
from engine.service import Explanation, ScheduleService
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from engine.views import as_json

BEGIN = datetime(2026, 11, 20, 9, 30, 30, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))


class Told:
    """A ledger, and what is explained of it."""

    def __init__(self, ledger: VirtualLedger, clock: FrozenClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.service = ScheduleService(self.ledger, actor="ana")
        clock.move_to(BEGIN)

    async def declare(self, fields: str) -> None:
        await self.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        text = f"schedules: [{{key: k, workflow: noop, {fields}}}]"
        await apply(self.ledger, load_schedules(text), by="ana")

    async def tick(self, after: timedelta) -> None:
        now = self.clock.advance(after)
        async with self.ledger.transaction() as transaction:
            keys = await transaction.lock_due(SERVING, 10)
            plans = [plan(state, now) for state in await transaction.read(keys)]
            await transaction.record(plans, owner="replica-a", lease=MINUTE)

    async def every(self) -> dict[str, Explanation]:
        """Explain the first window of each row, by its status and code."""
        found = {}
        for fire in await self.ledger.fires(key="k", limit=100):
            told = await self.service.explain("k", fire.fire_time)
            found[f"{fire.status} {fire.reason_code}"] = told
        return found


@pytest.fixture
def told(virtual_ledger: VirtualLedger, clock: FrozenClock) -> Told:
    return Told(virtual_ledger, clock)


EVERY = "everyMs: 600000, firstFire: next"
AFTER_AN_OUTAGE = [
    (EVERY, {"starting caught_up", "skipped coalesced"}),
    (f"{EVERY}, catchUp: {{policy: all, max: 2}}", {"starting None", "expired expired"}),
    (f"{EVERY}, catchUp: {{policy: none}}", {"expired expired"}),
    (f"{EVERY}, catchUp: {{policy: latest, window: 2h}}",
     {"starting caught_up", "skipped coalesced", "expired expired"}),
    ('cron: "*/10 * * * *", exclude: ["2026-11-20T11:00:00Z..2026-11-20T12:00:00Z"]',
     {"starting caught_up", "skipped coalesced", "skipped excluded"}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), AFTER_AN_OUTAGE)
async def test_after_an_outage_each_window_is_decided_the_same_again(told, fields, expected):
    await told.declare(fields)
    await told.tick(10 * MINUTE)
    await told.tick(5 * HOUR)
    found = await told.every()
    assert found.keys() >= expected
    wrong = {name: each.text for name, each in found.items() if not each.replay.agrees}
    assert wrong == {}
    assert all("definition 1" in each.text for each in found.values())
    assert (await told.service.audit(timedelta(days=1))).is_clean


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("none", {"skipped paused"}), ("latest", {"skipped coalesced", "claimed caught_up"})],
)
async def test_so_is_each_window_of_a_pause(told, catch_up, expected):
    await told.declare(f"{EVERY}, catchUp: {{pause: {catch_up}}}")
    await told.tick(10 * MINUTE)
    await told.service.pause("k", reason="stocktaking")
    await told.tick(3 * HOUR)
    await told.service.resume("k")
    found = await told.every()
    assert found.keys() >= expected
    assert {name: each.text for name, each in found.items() if not each.replay.agrees} == {}
    assert (await told.service.audit(timedelta(days=1))).is_clean


async def test_a_catch_up_that_only_the_resume_named_is_not_called_a_difference(told):
    await told.declare(EVERY)
    await told.tick(10 * MINUTE)
    await told.service.pause("k", reason="stocktaking")
    await told.tick(3 * HOUR)
    await told.service.resume("k", catch_up=CatchUp(policy="latest"))
    caught_up = (await told.every())["claimed caught_up"]
    assert caught_up.replay is not None
    assert caught_up.replay.agrees is None
    assert "whether the resume of its pause named another one" in caught_up.text
    assert (await told.service.audit(timedelta(days=1))).is_clean


async def test_and_each_of_a_definition_that_was_disabled_and_of_a_key_that_was_retired(told):
    await told.declare(f"{EVERY}, enabled: false")
    await told.tick(2 * HOUR)
    await told.declare(f"{EVERY}, catchUp: {{deploy: latest}}")
    other = load_schedules("schedules: [{key: other, workflow: noop, everyMs: 86400000}]")
    await apply(told.ledger, other, by="ana")
    await retire_absent(told.ledger, other, by="ana", absent_for=timedelta(0), force=True)
    await told.tick(2 * HOUR)
    await told.declare(EVERY)
    found = await told.every()
    assert found.keys() >= {"skipped coalesced", "skipped retired"}
    assert {name: each.text for name, each in found.items() if not each.replay.agrees} == {}
    report = await told.service.audit(timedelta(days=1), key="k")
    assert report.is_clean, report.schedules


async def test_what_no_plan_decided_and_what_depends_on_open_runs_is_said(told):
    await told.declare(f"{EVERY}, overlap: queue_one")
    await told.service.skip("k", BEGIN.replace(minute=40, second=0), reason="holiday")
    for _ in range(4):
        await told.tick(10 * MINUTE)
    found = await told.every()
    skipped = found["skipped user"]
    assert skipped.replay is not None
    assert skipped.replay.agrees is None
    assert "an operator decided it" in skipped.text
    assert "an operator or application skipped" in skipped.text
    full = found["skipped queue_full"]
    assert full.replay is not None
    assert full.replay.agrees
    assert "does not keep which runs were open then" in full.text


async def test_of_a_window_that_a_run_was_in_the_way_of_it_says_what_is_known_of_that_run(told):
    await told.declare(f"{EVERY}, overlap: skip")
    await told.tick(10 * MINUTE)
    (first,) = await told.ledger.fires(key="k", limit=10)
    name, started = first.workflow_id, told.clock.now()
    await told.ledger.record_evidence([Evidence(name, "r", started)])
    await told.ledger.seen_open([name], told.clock.now() + 10 * MINUTE)
    await told.tick(10 * MINUTE)
    ran = f"By Temporal, {name} ran from {exact(instant(started))}"
    skipped = (await told.every())["skipped overlap"]
    assert f"{ran} on, and no end of it is known." in skipped.text
    closed_at = told.clock.now() + MINUTE
    await told.ledger.record_evidence(
        [Evidence(name, "r", started, closed="completed", closed_at=closed_at)]
    )
    skipped = (await told.every())["skipped overlap"]
    assert f"{ran} to {exact(instant(closed_at))} and is completed." in skipped.text
    assert skipped.replay.agrees


async def test_a_window_that_nobody_owed_is_told_as_such(told):
    await told.declare(EVERY)
    await told.tick(10 * MINUTE)
    before = await told.service.explain("k", BEGIN - HOUR)
    assert before.text.startswith("k was not declared yet at 2026-11-20T08:30:30Z")
    assert not before.is_fault
    await told.service.pause("k", reason="stocktaking")
    await told.tick(20 * MINUTE)
    held = await told.service.explain("k", BEGIN.replace(minute=50, second=0))
    assert "the schedule is paused, and its windows are when that ends" in held.text


async def test_a_backfill_beside_it_changes_nothing(told):
    await told.declare("everyMs: 600000")
    async with told.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
        window = state.window(BEGIN.replace(minute=20, second=0))
        lay = [ToLay(window, window.workflow_id(suffixed=False), again=False)]
        await transaction.lay(state, lay, overlap="allow", owner="replica-a", lease=MINUTE)
    await told.tick(timedelta(0))
    found = await told.every()
    assert found["starting first_sight"].replay.agrees, found["starting first_sight"].text


async def test_what_was_rejected_for_want_of_a_worker_is_decided_the_same_again(told):
    text = "schedules: [{key: k, workflow: nobody, everyMs: 600000, firstFire: next}]"
    await apply(told.ledger, load_schedules(text), by="ana")
    now = told.clock.advance(21 * MINUTE)
    async with told.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
        unable = Reason("unknown_workflow", "no worker on task queue sched knows nobody")
        await transaction.record([plan(state, now, unable=unable)])
    (rejected,) = (await told.every()).values()
    assert rejected.replay is not None
    assert rejected.replay.agrees, rejected.text
    assert "no living worker knew its workflow" in rejected.text


async def test_a_definition_of_a_later_version_is_named_and_never_called_complete(told):
    await told.declare(EVERY)
    await told.ledger._connections.fetch(
        """UPDATE definitions SET definition = '{"key": "k", "lunar": "full moon"}'"""
    )
    report = await told.service.audit(timedelta(days=1))
    (audit,) = report.schedules
    assert (audit.verdict, report.is_clean) == ("unreadable", False)
    assert "audit with the version that wrote it" in audit.faults[0].what
    with pytest.raises(DefinitionUnreadable, match="a definition of k: version 1"):
        await told.service.explain("k", BEGIN)


class Runs:
    """Temporal, with a run of ``k`` and two of a schedule that the ledger does not have."""

    async def read(self, *_: object) -> SeenRuns:
        at = int(BEGIN.timestamp())
        return SeenRuns({
            key: {at + n: [SeenRun(f"sched:{key}:{n}", "run", "run", BEGIN, at)] for n in range(of)}
            for key, of in (("lost", 2), ("k", 1), ("gone", 1))
        })  # fmt: skip

    async def knows(self, _: str) -> bool:
        return True


async def test_runs_of_unknown_schedules_are_counted_and_no_audit_with_them_is_clean(told):
    await told.declare("everyMs: 86400000, firstFire: next, enabled: false")
    report = await told.service.audit(timedelta(0), runs=Runs())
    assert (report.unknown, report.is_clean) == ({"gone": 1, "lost": 2}, False)
    assert as_json(report)["unknown"] == {"gone": 1, "lost": 2}
    said = "3 runs in Temporal, of schedules that the ledger does not have: gone, lost"
    assert said in [*_remarks(report, report.schedules)]
    assert (await told.service.audit(timedelta(0), key="k", runs=Runs())).unknown == {}
    assert (await told.service.audit(timedelta(0))).is_clean
