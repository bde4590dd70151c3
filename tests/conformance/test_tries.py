"""What a run took, how often it and its steps were tried, and why it failed, kept with its fire."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.ledger.failures import (
    Failure,
    FailureLink,
    RetryNote,
    RunCounts,
    RunDetails,
    Try,
    Uncounted,
)
from engine.ledger.fires import Evidence, Outcome
from tests.conformance.conftest import NOW, async_fixture
from tests.conformance.past import operator
from tests.ends import record_end

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000}]"
SECOND = timedelta(seconds=1)
DECLINED = Failure(
    (
        FailureLink(type="ActivityError", message="Activity task failed", step="charge", attempt=3,
                    given_up="retries_exhausted"),
        FailureLink(type="CardDeclined", message="no money", stack="in charge\n"),
    ),
    "step charge: CardDeclined: no money",
)  # fmt: skip
FAILED = {"failure": DECLINED, "error": DECLINED.error}


@async_fixture
async def run(bench) -> str:
    """The id of an open run whose workers report."""
    return await started(bench, reported=True)


async def started(bench, *, reported: bool) -> str:
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    # By the ledger's clock the start was answered a second after the run's own start.
    outcome = Outcome(
        claim.fire_id, claim.token, "started", "on_time", "run-1", NOW + SECOND,
        first_run_id="run-1", reported=reported,
    )  # fmt: skip
    assert await bench.ledger.settle([outcome]) == 1
    return str(claim.workflow_id)


def close(run: str, closed="completed", run_id="run-1", **more) -> Evidence:
    return Evidence(run, run_id, NOW, closed, NOW + 3 * SECOND, **{"first_run_id": "run-1", **more})


def read(run: str, tries: int, step_retries: int | None, run_id="run-1") -> RunCounts:
    tried = tuple(
        Try(number=number, run_id=f"run-{number}", started_at=NOW, closed_at=NOW, error="no")
        for number in range(1, tries + 1)
    )
    return RunCounts(
        workflow_id=run, run_id=run_id, tries=tries, step_retries=step_retries, tried=tried
    )


async def seen(bench, run: str) -> tuple[int | None, int | None, int | None]:
    """Duration, tries and step retries, in every answer alike."""
    fire = await bench.ledger.fire(run)
    assert await bench.ledger.fires(key="k") == [fire]
    for letter in await operator(bench).dead_letters():
        assert (letter.tries, letter.step_retries) == (fire.tries, fire.step_retries)
        assert letter.duration_ms == fire.duration_ms
        assert letter.starting_at == fire.starting_at
    return fire.duration_ms, fire.tries, fire.step_retries


async def test_an_ordinary_run_needs_no_further_look(bench, run):
    assert await seen(bench, run) == (None, None, 0)
    assert await bench.ledger.record_evidence([close(run)]) == [run]
    assert await seen(bench, run) == (3000, 1, 0)
    assert await bench.ledger.uncounted(10) == []
    assert (await bench.ledger.fire(run)).starting_at is not None


async def test_a_duration_is_never_negative(bench, run):
    early = replace(close(run, run_id="other"), closed_at=NOW)
    await bench.ledger.record_evidence([early])
    assert (await seen(bench, run))[0] == 0


async def test_workers_add_up_the_retries_that_they_see_even_after_the_close(bench, run):
    await bench.ledger.note_retries([RetryNote(run, 2), RetryNote("sched:none:1", 1)])
    assert await seen(bench, run) == (None, None, 2)
    await bench.ledger.record_evidence([close(run)])
    await bench.ledger.note_retries([RetryNote(run, 1)])
    assert await seen(bench, run) == (3000, 1, 3)


async def test_retries_that_are_reported_before_the_answer_to_the_start_are_kept(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await bench.ledger.note_retries([RetryNote(claim.workflow_id, 1)])
    outcome = Outcome(claim.fire_id, claim.token, "started", "on_time", "run-1", NOW, reported=True)
    await bench.ledger.settle([outcome])
    assert await seen(bench, claim.workflow_id) == (None, None, 1)


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_of_a_run_whose_workers_do_not_report_the_history_is_wanted(bench, elsewhere):
    run = await started(bench, reported=elsewhere)
    if elsewhere:
        await bench.ledger.note_retries([RetryNote(run, 1, elsewhere=True)])
    await bench.ledger.record_evidence([close(run)])
    assert await seen(bench, run) == (3000, 1, None)
    assert await bench.ledger.uncounted(10) == [Uncounted(run, "run-1")]
    await bench.ledger.note_counts([read(run, 1, 4)])
    assert await seen(bench, run) == (3000, 1, 4)
    assert await bench.ledger.uncounted(10) == []


async def test_a_step_elsewhere_that_is_reported_before_the_answer_to_the_start_is_read_too(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    run = claim.workflow_id
    await bench.ledger.note_retries([RetryNote(run, 0, elsewhere=True)])
    outcome = Outcome(
        claim.fire_id, claim.token, "started", "on_time", "run-1", NOW, first_run_id="run-1",
        reported=True,
    )  # fmt: skip
    await bench.ledger.settle([outcome])
    await bench.ledger.record_evidence([close(run)])
    assert await bench.ledger.uncounted(10) == [Uncounted(run, "run-1")]


async def test_a_step_elsewhere_that_is_reported_after_the_close_is_read_too(bench, run):
    await bench.ledger.record_evidence([close(run)])
    await bench.ledger.note_retries([RetryNote(run, 0, elsewhere=True)])
    assert await bench.ledger.uncounted(10) == [Uncounted(run, "run-1")]


async def test_a_later_run_of_the_chain_is_read_for_its_tries(bench, run):
    await bench.ledger.record_evidence([close(run, run_id="run-3", last=True)])
    assert await seen(bench, run) == (2000, None, None)  # from the start of the first run
    assert await bench.ledger.uncounted(10) == [Uncounted(run, "run-3")]
    await bench.ledger.note_counts([read(run, 2, 0, run_id="run-2")])
    assert await bench.ledger.uncounted(10) == [Uncounted(run, "run-3")], "of another run"
    await bench.ledger.note_counts([read(run, 3, 0, run_id="run-3")])
    assert await seen(bench, run) == (2000, 3, 0)
    details = await bench.ledger.run_details(run)
    assert [each.number for each in details.tried] == [1, 2, 3]


async def test_what_was_read_is_not_added_to_and_never_less_than_reported(bench, run):
    await bench.ledger.note_retries([RetryNote(run, 5)])
    await bench.ledger.record_evidence([close(run, run_id="run-2", last=True)])
    await bench.ledger.note_counts([read(run, 2, 3, run_id="run-2")])
    await bench.ledger.note_retries([RetryNote(run, 1)])
    assert await seen(bench, run) == (2000, 2, 5)


async def test_a_history_that_is_gone_leaves_what_is_known(bench, run):
    await bench.ledger.note_retries([RetryNote(run, 2)])
    await bench.ledger.record_evidence([close(run, run_id="run-2", last=True)])
    await bench.ledger.note_counts([RunCounts(workflow_id=run, run_id="run-2")])
    assert await seen(bench, run) == (2000, None, 2)
    assert await bench.ledger.uncounted(10) == []


async def test_a_failed_run_keeps_its_failure_with_what_was_read_at_once(bench, run):
    counts = read(run, 1, 2)
    await record_end(bench.ledger, close(run, "failed", counts=counts, **FAILED))
    assert await seen(bench, run) == (3000, 1, 2)
    assert await bench.ledger.uncounted(10) == []
    details = await bench.ledger.run_details(run)
    assert details == RunDetails(DECLINED.chain, counts.tried)
    (letter,) = await operator(bench).dead_letters()
    assert letter.cause == "retries_exhausted"


@pytest.mark.parametrize(
    ("closed", "failure", "cause"),
    [
        ("failed", replace(DECLINED, chain=DECLINED.chain[1:]), "failed"),
        ("failed", None, "failed"),
        ("timed_out", DECLINED, "timed_out"),
    ],
)
async def test_a_dead_letter_has_one_cause(bench, run, closed, failure, cause):
    await record_end(bench.ledger, close(run, closed, failure=failure))
    (letter,) = await operator(bench).dead_letters()
    assert letter.cause == cause


async def test_a_run_that_was_reset_begins_anew(bench, run):
    await record_end(bench.ledger, close(run, "failed", counts=read(run, 1, 2), **FAILED))
    later = Evidence(run, "reset", NOW + 9 * SECOND, last=True, first_run_id="run-1")
    assert await bench.ledger.record_evidence([later]) == [run]
    assert await seen(bench, run) == (None, None, None)
    assert await bench.ledger.run_details(run) == RunDetails()
    assert await bench.ledger.uncounted(10) == []
    done = Evidence(run, "reset", NOW + 9 * SECOND, "completed", NOW + 11 * SECOND)
    await bench.ledger.record_evidence([done])
    assert await bench.ledger.uncounted(10) == [Uncounted(run, "reset")]


async def test_the_newest_runs_are_read_first(bench):
    file = ", ".join(f"{{key: k{n}, workflow: noop, everyMs: 3600000}}" for n in range(4))
    await bench.declare(f"schedules: [{file}]")
    claims = sorted(await bench.claim(), key=lambda claim: claim.fire_id)
    for claim in claims:
        seen = Evidence(claim.workflow_id, "run", NOW, "completed", NOW)
        await bench.ledger.record_evidence([seen])
    found = await bench.ledger.uncounted(3)
    assert [each.workflow_id for each in found] == [
        claim.workflow_id for claim in reversed(claims[1:])
    ]


async def test_the_views_have_it_at_their_ends(bench, run):
    counts = read(run, 1, 2)
    await record_end(bench.ledger, close(run, "failed", counts=counts, **FAILED))
    columns = ["starting_at", "duration_ms", "tries", "step_retries"]
    fetch, of = bench.ledger._connections.fetch, bench.ledger.namespace
    (row,) = await fetch("SELECT * FROM fire_history WHERE namespace = $1", of)
    assert (row["duration_ms"], row["tries"], row["step_retries"]) == (3000, 1, 2)
    assert [link["type"] for link in json.loads(row["failure"])] == [
        "ActivityError",
        "CardDeclined",
    ]
    (letter,) = await fetch("SELECT * FROM dead_letters WHERE namespace = $1", of)
    assert letter["cause"] == "retries_exhausted"
    assert {name: letter[name] for name in columns} == {name: row[name] for name in columns}
