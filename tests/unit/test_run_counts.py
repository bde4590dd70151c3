"""Counts of runs: what workers report of retries, and what is read from histories in its place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from engine.cli import run_page
from engine.cli.target import Target
from engine.cli.temporal import InTemporal
from engine.errors import LedgerUnavailable, TemporalUnavailable
from engine.ledger import UnreadEnd
from engine.ledger.failures import RetryNote, RunCounts, RunDetails, Try, Uncounted
from engine.runtime.dispatch.backpressure import Budget
from engine.runtime.settings import Settings
from engine.runtime.steps.interceptors import RetryReports
from engine.runtime.tracking import end_reader

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
TRACK = timedelta(seconds=3)


# --- reports of workers ---


class Book:
    """A ledger that takes reports, or is away."""

    def __init__(self) -> None:
        self.away = False
        self.written: list[RetryNote] = []

    async def note_retries(self, notes: Sequence[RetryNote]) -> None:
        if self.away:
            raise LedgerUnavailable("away")
        self.written += notes


async def test_reports_of_one_run_are_added_up_and_written_once():
    reports, book = RetryReports(), Book()
    for run in ("sched:k:1", "sched:k:2", "sched:k:1", "own-id", ""):
        reports.retried(run)
    reports.elsewhere("sched:k:2")
    await reports.flush(book)  # type: ignore[arg-type] # a stand-in
    await reports.flush(book)  # type: ignore[arg-type] # as above
    assert book.written == [RetryNote("sched:k:1", 2), RetryNote("sched:k:2", 1, elsewhere=True)]


async def test_reports_that_could_not_be_written_are_written_later():
    reports, book = RetryReports(), Book()
    reports.retried("sched:k:1")
    book.away = True
    with pytest.raises(LedgerUnavailable):
        await reports.flush(book)  # type: ignore[arg-type] # as above
    reports.retried("sched:k:1")
    book.away = False
    await reports.flush(book)  # type: ignore[arg-type] # as above
    assert book.written == [RetryNote("sched:k:1", 2)]


# --- what is read ---


class Rows:
    """A ledger with closed runs whose counts are wanted."""

    def __init__(self, runs: int) -> None:
        self.wanted = [Uncounted(f"sched:k:{number}", "run") for number in range(runs)]
        self.noted: list[RunCounts] = []

    async def uncounted(self, limit: int) -> list[Uncounted]:
        return self.wanted[:limit]

    async def note_counts(self, counts: Sequence[RunCounts]) -> None:
        self.noted += counts
        names = {each.workflow_id for each in counts}
        self.wanted = [run for run in self.wanted if run.workflow_id not in names]

    async def unread_ends(self, limit: int, *, after: str) -> list[UnreadEnd]:
        return []


def counter(rows: Rows, **state: bool) -> end_reader.EndReader:
    state = {"holds": False, "is_mine": True, **state}
    breaker: Any = SimpleNamespace(holds=state["holds"])
    client: Any = None
    return end_reader.EndReader(
        client, rows, Settings(track=TRACK), budget=Budget(), breaker=breaker,  # type: ignore[arg-type] # a stand-in
        is_mine=lambda: state["is_mine"], pass_on=lambda *_: True, on_event=lambda _: None,
    )  # fmt: skip


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, RPCStatusCode]:
    """Errors that Temporal answers with, by run; the others have been tried once."""
    errors: dict[str, RPCStatusCode] = {}

    async def read(_: object, workflow_id: str, run_id: str, *__: object, **___: object) -> object:
        if workflow_id in errors:
            raise RPCError("no", errors[workflow_id], b"")
        return RunCounts(workflow_id=workflow_id, run_id=run_id, tries=1, step_retries=0)

    monkeypatch.setattr(end_reader, "read_counts", read)
    return errors


async def test_many_runs_are_read_turn_by_turn_without_a_pause(answers):
    rows = Rows(25)
    looks = counter(rows)
    assert await looks.run_once() == timedelta(0)
    assert len(rows.noted) == 20
    assert await looks.run_once() == TRACK
    assert (rows.wanted, {each.tries for each in rows.noted}) == ([], {1})


@pytest.mark.parametrize("state", [{"is_mine": False}, {"holds": True}])
async def test_only_the_replica_on_duty_reads_and_only_while_temporal_answers(answers, state):
    rows = Rows(1)
    assert await counter(rows, **state).run_once() == TRACK
    assert rows.noted == []


async def test_a_run_waits_while_temporal_is_away_and_another_error_ends_its_turn_alone(answers):
    rows = Rows(3)
    answers["sched:k:0"] = RPCStatusCode.PERMISSION_DENIED
    answers["sched:k:1"] = RPCStatusCode.UNAVAILABLE
    assert await counter(rows).run_once() == TRACK
    assert rows.noted == [RunCounts(workflow_id="sched:k:0", run_id="run")]
    del answers["sched:k:1"]
    await counter(rows).run_once()
    assert rows.wanted == []


@pytest.mark.parametrize("why", [RPCStatusCode.UNAVAILABLE, RPCStatusCode.RESOURCE_EXHAUSTED])
async def test_a_server_that_is_away_or_throttles_is_asked_again_after_a_pause(answers, why):
    rows = Rows(25)
    answers["sched:k:0"] = why
    assert await counter(rows).run_once() == TRACK
    assert (rows.noted, len(rows.wanted)) == ([], 25)


# --- what commands show ---

FIRE: Any = SimpleNamespace(
    workflow_id="sched:k:1", run_id="run", started_at=NOON, closed_at=None, tries=None, error="no"
)


def tries(*numbers: int) -> tuple[Try, ...]:
    return tuple(Try(number=n, run_id=f"run-{n}", started_at=NOON) for n in numbers)


@pytest.mark.parametrize(
    ("in_temporal", "kept", "shown"),
    [
        (tries(1, 2), (), [1, 2]),
        (None, tries(1, 2), [1, 2]),
        (tries(2), tries(1, 2), [1, 2]),
        (None, (), [1]),
    ],
)
async def test_tries_are_those_of_temporal_or_else_those_that_the_ledger_kept(
    monkeypatch: pytest.MonkeyPatch, in_temporal, kept, shown
):
    async def asked(*_: object) -> InTemporal:
        if in_temporal is None:
            raise TemporalUnavailable("away")
        return InTemporal(tuple(in_temporal))

    class Opened:
        async def run_details(self, _: str) -> RunDetails:
            return RunDetails((), kept)

    monkeypatch.setattr("engine.cli.temporal.run_in_temporal", asked)
    opened: Any = Opened()
    found = await run_page.RunReader(opened, Target("", "default")).read(FIRE)
    assert [each.number for each in found.tried] == shown
    assert bool(found.not_asked) is (in_temporal is None)
