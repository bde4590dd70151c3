"""Commands that only read, while a server is stopped: how long they wait, and what they print.

The servers hang for real (SIGSTOP). The deadlines that commands set are recorded, and those for the
silent server then shortened, so that no test waits for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg.compat
import pytest

from engine.cli.app import GROUPS, run
from engine.cli.target import ANSWERS_WITHIN
from engine.embedded import PostgresServer, TemporalServer
from engine.service import ScheduleService
from engine.testing import FrozenClock
from engine.testing.server import run_apart, shared_folder
from tests.unit.test_recorded_commands import FILE, Recorder, virtual_url

__all__ = ["virtual_url"]

READING = """
status
doctor
queues
workers
list
list --wide
show hourly
show hourly --at 2026-11-21T11:00:00Z
next hourly
fires
fires --follow
log
events
events --follow
audit
explain hourly 2026-11-21T11:00:00Z
compare
dead list
dead show hourly --at 2026-11-21T11:00:00Z
history export hourly
versions
plan
token list
"""
ASKING_TEMPORAL = {
    "status": 1,
    "doctor": 1,
    "show hourly --at 2026-11-21T11:00:00Z": 0,
    "dead show hourly --at 2026-11-21T11:00:00Z": 0,
    "versions": 0,
    "audit --since 2026-11-21T10:00Z --against temporal": 1,
    "compare hourly --since 2026-11-21T10:00Z --against type:noop": 2,
    "history export hourly": 2,
    "import temporal-schedules": 2,
}
"""Commands, and their exit codes while Temporal is silent."""


class Deadlines:
    """The deadlines that modules with this prefix set, in seconds; each ends soon."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
        self.set: list[float] = []
        timeout = asyncio.timeout

        def recorded(delay: float | None) -> asyncio.Timeout:
            if not delay or not sys._getframe(1).f_globals["__name__"].startswith(of):
                return timeout(delay)
            self.set.append(delay)
            return timeout(0.02)

        monkeypatch.setattr(asyncio, "timeout", recorded)
        monkeypatch.setattr(asyncpg.compat, "timeout", recorded)


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as made:
        yield made


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith(("SCHED_", "TEMPORAL_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    Path("schedules.yaml").write_text(FILE, encoding="utf-8")


def stopped(server: PostgresServer | TemporalServer) -> Iterator[None]:
    """Start a server, stop its process while the fixture lasts, and end it."""
    run_apart(server.start())
    os.kill(server.pid, signal.SIGSTOP)
    yield
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGCONT)
    run_apart(server.stop())


@pytest.fixture
def _silent_postgres(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = PostgresServer(folder / "pg", durable=False)
    for _ in stopped(server):
        monkeypatch.setenv("SCHED_DATABASE_URL", server.url)
        monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
        yield


@pytest.fixture
def _silent_temporal(
    folder: Path, virtual_url: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    made = Recorder(virtual_url, clock)
    asyncio.run(made.live())

    @asynccontextmanager
    async def connect(*_: Any, **__: Any) -> AsyncIterator[ScheduleService]:
        async with made.opened() as ledger:
            yield ScheduleService(ledger, actor="ops@host")

    monkeypatch.setattr(ScheduleService, "connect", connect)
    server = TemporalServer(folder / "temporal", in_memory=True)
    for _ in stopped(server):
        monkeypatch.setenv("SCHED_DATABASE_URL", virtual_url)
        monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
        yield


def test_every_command_that_looks_is_tried_here():
    looked_at = {line.split()[0] for line in READING.strip().splitlines()}
    assert set(GROUPS["Look"]) <= looked_at


@pytest.mark.usefixtures("_silent_postgres")
def test_a_reading_command_waits_two_seconds_for_a_silent_ledger_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    waited = Deadlines(monkeypatch, "asyncpg")
    found: dict[str, Any] = {}
    for line in READING.strip().splitlines():
        waited.set.clear()
        code = run(shlex.split(line))
        printed = capsys.readouterr()
        said = "gave no answer in time" in printed.out + printed.err
        found[line] = (code, said, max(waited.set))
    codes = {line: 1 if line in {"status", "doctor"} else 2 for line in found}
    assert found == {line: (codes[line], True, ANSWERS_WITHIN) for line in found}
    assert ANSWERS_WITHIN == 2.0


@pytest.mark.usefixtures("_silent_temporal")
def test_while_temporal_is_silent_what_the_ledger_has_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    waited = Deadlines(monkeypatch, "engine.cli.temporal")
    printed: dict[str, str] = {}
    for line, code in ASKING_TEMPORAL.items():
        waited.set.clear()
        assert run(shlex.split(line)) == code, line
        both = capsys.readouterr()
        printed[line] = both.out
        assert "gave no answer within 2 s" in both.out + both.err, line
        assert max(waited.set) == ANSWERS_WITHIN, line
    status, _, show, dead, versions, audit, *_ = printed.values()
    assert "ledger" in status
    assert "dead letters" in status
    assert status.index("dead letters") < status.index("Temporal"), "the ledger's part comes first"
    assert show.startswith("sched:hourly:498683: timed_out")
    assert dead.startswith("sched:hourly:498683: timed_out")
    assert dead.splitlines()[-1].startswith("not asked  the Temporal server at ")
    assert "noop@1  newest  open runs unknown" in versions
    assert "hourly" in audit
    run(["dead", "show", "hourly", "--at", "2026-11-21T11:00:00Z", "--json"])
    (letter,) = json.loads(capsys.readouterr().out)
    assert letter["notAsked"].startswith("the Temporal server at ")
