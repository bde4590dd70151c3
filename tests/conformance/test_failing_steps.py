"""Steps that keep failing are noted of open runs: by compare-and-set, and for every process."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from engine.ledger import Ledger
from engine.ledger.failures import FailingNote, FailingStep, failing_text
from engine.ledger.fires import Evidence
from tests.conformance.conftest import NOW, Bench, async_fixture
from tests.conformance.past import run_of

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000}]"
STEP = FailingStep(
    step="charge", place="charge/1", run_id="run", attempts=5, max_attempts=None,
    error_type="CardDeclined", error="CardDeclined: no money", since=NOW - timedelta(minutes=5),
    next_attempt_at=NOW + timedelta(minutes=1),
)  # fmt: skip
NOTE = failing_text([STEP]) or ""


@async_fixture
async def run(bench) -> str:
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    return await run_of(bench, claim)


async def noted(bench, run: str) -> str | None:
    found: dict[str, str | None] = await bench.ledger.seen_open([run, "none"], bench.now())
    assert [*found] == [run]
    return found[run]


async def test_a_note_is_read_back_by_every_reader(bench, run):
    assert await noted(bench, run) is None
    assert await bench.ledger.note_failing([FailingNote(run, None, NOTE)]) == {run}
    fire = await bench.ledger.fire(run)
    assert fire.failing == (STEP,)
    assert await bench.ledger.fires() == [fire]
    assert await bench.ledger.failing() == [fire]
    assert await bench.ledger.failing(key="k", limit=1) == [fire]
    assert await bench.ledger.failing(key="other") == []


async def test_of_notes_in_place_of_the_same_one_the_first_is_written(bench, run):
    more = failing_text([replace(STEP, attempts=6)])
    assert await bench.ledger.note_failing([FailingNote(run, None, NOTE)]) == {run}
    assert await bench.ledger.note_failing([FailingNote(run, None, more)]) == set()
    before = await noted(bench, run)
    assert await bench.ledger.note_failing([FailingNote(run, before, more)]) == {run}
    assert await bench.ledger.note_failing([FailingNote(run, before, None)]) == set()
    (fire,) = await bench.ledger.failing()
    assert fire.failing[0].attempts == 6
    assert await bench.ledger.note_failing([FailingNote(run, await noted(bench, run), None)])
    assert await noted(bench, run) is None
    assert await bench.ledger.failing() == []


async def test_what_a_later_version_notes_beside_it_is_compared_and_not_read(bench, run):
    later = NOTE.replace('"step":', '"colour": "red", "step":')
    await bench.ledger.note_failing([FailingNote(run, None, later)])
    assert (await bench.ledger.fire(run)).failing == (STEP,)
    note = FailingNote(run, await noted(bench, run), None)
    assert await bench.ledger.note_failing([note]) == {run}


@pytest.mark.parametrize("end", ["closed", "lost", "another run"])
async def test_the_end_of_its_run_clears_it(bench, run, end):
    await bench.ledger.note_failing([FailingNote(run, None, NOTE)])
    now = bench.now()
    if end == "lost":
        assert await bench.ledger.lose([run], "gone") == [run]
    else:
        seen = Evidence(run, "run", now, "failed", now)
        if end == "another run":
            seen = Evidence(run, "later", now, last=True)
        assert await bench.ledger.record_evidence([seen]) == [run]
    assert (await bench.ledger.fire(run)).failing == ()
    assert await bench.ledger.failing() == []
    if end != "another run":
        assert await bench.ledger.note_failing([FailingNote(run, None, NOTE)]) == set()
    if end != "closed":
        assert await noted(bench, run) is None, "it is seen open again, and nothing is noted of it"


@pytest.mark.parametrize("end", ["status = 'completed', closed_at = now()", "lost_at = now()"])
async def test_what_older_code_leaves_of_an_ended_run_in_postgres_is_not_shown(database_url, end):
    ledger = await Ledger.connect(database_url, namespace="test")
    bench = Bench(ledger)
    await bench.announce()
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    run = await run_of(bench, claim)
    assert await ledger.note_failing([FailingNote(run, None, NOTE)]) == {run}
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"UPDATE sched.fires SET {end}")
    await connection.close()
    fire = await ledger.fire(run)
    assert fire is not None
    assert fire.failing == ()
    assert await ledger.failing() == []
    await ledger.close()
