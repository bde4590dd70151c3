"""Dead letters: what ended badly stays on a list until somebody has resolved it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from engine.errors import EngineError, LetterNotFound
from engine.ledger.fires import ClosedStatus, Evidence, Outcome
from engine.schedules.planner import unresolved_workflow
from engine.schedules.planner.planner import plan
from engine.schedules.terms import Reason
from tests.conformance.conftest import SHORTLY
from tests.conformance.past import (
    HOUR,
    MINUTE,
    backfilled,
    declare_ago,
    operator,
    run_of,
    taken,
    windows,
)
from tests.ends import record_end

DAILY = "schedules: [{key: k, workflow: noop, everyMs: 86400000, input: {a: 1}}]"
LEFT = '[{"step": "reserve", "undo": "release", "error": "the stock is away"}]'
TOO_LARGE = Reason("payload_too_large", "payload too large")


async def end(
    bench, workflow_id: str, closed: ClosedStatus = "failed", run: str = "run", **told
) -> None:
    now = bench.now()
    seen = Evidence(workflow_id, run, now, closed=closed, closed_at=now, **told)
    assert await record_end(bench.ledger, seen) == [workflow_id]


async def a_failed_run(bench, text: str = DAILY, **told) -> tuple[str, int]:
    """Let the current window of ``k`` fail; returns its run's id, and its bucket."""
    await bench.declare(text)
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    await end(bench, claim.workflow_id, **told)
    return claim.workflow_id, claim.bucket


async def dead(bench) -> list[str]:
    return [letter.workflow_id for letter in await operator(bench).dead_letters()]


@pytest.mark.parametrize(
    ("closed", "is_one"),
    [("failed", True), ("timed_out", True), ("completed", False), ("cancelled", False),
     ("terminated", False)],
)  # fmt: skip
async def test_a_run_that_failed_or_took_too_long_is_a_dead_letter(bench, closed, is_one):
    name, _ = await a_failed_run(bench, closed=closed)
    assert await dead(bench) == ([name] if is_one else [])


async def test_a_letter_says_what_was_started_with_what_and_what_became_of_it(bench):
    name, bucket = await a_failed_run(bench, error="no luck", not_undone=LEFT)
    (letter,) = await operator(bench).dead_letters_of("k", bucket)
    assert (letter.workflow_id, letter.run_id, letter.workflow_type) == (name, "run", "noop@1")
    assert (letter.status, letter.error, letter.attempts) == ("failed", "no luck", 1)
    assert letter.arguments == ({"a": 1},)
    assert letter.not_undone == (
        {"step": "reserve", "undo": "release", "error": "the stock is away"},
    )
    assert abs(letter.died_at - bench.now()) < timedelta(minutes=1)


async def test_a_start_that_was_refused_is_one_too(bench):
    await bench.declare(DAILY)
    (claim,) = await bench.claim()
    refused = Outcome(claim.fire_id, claim.token, "rejected", reason=TOO_LARGE)
    await bench.ledger.settle([refused])
    (letter,) = await operator(bench).dead_letters()
    assert (letter.status, letter.reason, letter.run_id) == ("rejected", "payload too large", None)


async def test_a_rerun_deals_with_the_letter_and_one_that_fails_is_a_new_one(bench):
    name, bucket = await a_failed_run(bench)
    ops = operator(bench)
    asked = await ops.rerun_dead("k", bucket, own_input=({"a": 2},), reason="fixed")
    assert asked.fire.workflow_id == f"{name}:rerun:1"
    assert await dead(bench) == []
    (claim,) = await taken(bench)
    assert claim.arguments == ({"a": 2},)
    await run_of(bench, claim, "second")
    await end(bench, claim.workflow_id, run="second")
    assert await dead(bench) == [f"{name}:rerun:1"]
    again = await ops.rerun_dead(f"{name}:rerun:1")
    assert again.fire.workflow_id == f"{name}:rerun:2"
    (claim,) = await taken(bench)
    assert claim.arguments == ({"a": 2},), "what died is what runs again"
    assert [row.verb for row in await bench.actions()] == ["rerun", "rerun"]


async def test_of_two_who_deal_with_a_letter_at_once_only_one_does(bench):
    _, bucket = await a_failed_run(bench)
    ops = operator(bench)
    attempts = [
        ops.rerun_dead("k", bucket),
        ops.rerun_dead("k", bucket),
        ops.drop_dead("k", bucket),
    ]
    found = await asyncio.gather(*attempts, return_exceptions=True)
    done = [each for each in found if not isinstance(each, LetterNotFound) and each != []]
    assert len(done) == 1, found
    assert len(await bench.actions()) == 1
    assert len([fire for fire in await bench.ledger.fires(limit=9) if fire.bucket == bucket]) <= 2


async def test_an_ordinary_rerun_deals_with_the_letter_as_well(bench):
    _, bucket = await a_failed_run(bench)
    await operator(bench).rerun("k", bucket)
    assert await dead(bench) == []


async def test_a_rerun_that_overlap_leaves_without_a_run_deals_with_nothing(bench):
    name, bucket = await a_failed_run(bench)
    ops = operator(bench)
    await ops.trigger("k")
    asked = await ops.rerun_dead("k", bucket, overlap="skip")
    assert asked.fire.status == "skipped"
    assert await dead(bench) == [name]


async def test_a_letter_is_back_when_its_rerun_is_skipped_in_the_queue(bench):
    name, bucket = await a_failed_run(bench, DAILY.replace("input", "overlap: queue, input"))
    ops = operator(bench)
    await ops.trigger("k")
    asked = await ops.rerun_dead("k", bucket)
    assert asked.fire.status == "queued"
    assert await dead(bench) == []
    await ops.trigger("k", overlap="cancel_previous")  # takes its place
    skipped = await bench.ledger.fire(asked.fire.workflow_id)
    assert skipped.status == "skipped"
    assert await dead(bench) == [name]


async def test_a_letter_that_is_dropped_is_gone_and_the_log_says_why(bench):
    name, bucket = await a_failed_run(bench, error="no luck")
    ops = operator(bench)
    assert [each.workflow_id for each in await ops.drop_dead("k", bucket, reason="old")] == [name]
    assert await dead(bench) == []
    (row,) = await bench.actions()
    assert (row.verb, row.reason, row.workflow_id) == ("drop", "old", name)
    assert row.before == {"status": "failed", "error": "no luck"}
    with pytest.raises(LetterNotFound):
        await ops.drop_dead("k", bucket)
    (fire,) = await ops.fires()
    assert fire.status == "failed", "what became of the window stays"


@pytest.mark.parametrize(
    ("name", "bucket", "told"),
    [
        ("kk", 1, r"there is no schedule kk; did you mean k\?"),
        ("k", None, "k is the key of a schedule, not a dead letter; name a window too, `k BUCKET`"),
        ("k", 1, "no dead letter of window 1 of k; `sched dead list k` shows every one, `sched l"),
        ("sched:k:1", None, "there is no dead letter of sched:k:1; `sched dead list` shows every"),
    ],
)
async def test_a_letter_that_is_not_there_is_told_with_what_to_write(bench, name, bucket, told):
    await bench.declare(DAILY)
    for ask in ("dead_letters_of", "rerun_dead", "drop_dead"):
        with pytest.raises(EngineError, match=told):
            await getattr(operator(bench), ask)(name, bucket)


async def test_all_letters_of_a_schedule_or_of_every_one_are_dropped_at_once(bench):
    await bench.declare("""schedules:
      - {key: a, workflow: noop, everyMs: 86400000}
      - {key: b, workflow: noop, everyMs: 86400000}""")
    for claim in await bench.claim():
        await run_of(bench, claim)
        await end(bench, claim.workflow_id)
    ops = operator(bench)
    assert await ops.drop_all_dead(key="a") == 1
    assert [letter.key for letter in await ops.dead_letters()] == ["b"]
    assert await ops.drop_all_dead() == 1
    assert await ops.drop_all_dead() == 0


async def test_pages_of_letters_have_each_letter_once(bench):
    await bench.declare("""schedules:
      - {key: a, workflow: noop, everyMs: 86400000}
      - {key: b, workflow: noop, everyMs: 86400000}
      - {key: c, workflow: noop, everyMs: 3600000}""")
    for claim in await bench.claim():
        await run_of(bench, claim)
        await end(bench, claim.workflow_id)
    ops = operator(bench)
    for key, keys in ((None, {"a", "b", "c"}), ("a", {"a"})):
        every = await ops.dead_letters(key=key)
        seen, after = [], None
        while page := await ops.dead_letters(key=key, after=after, limit=1):
            seen += page
            after = page[-1].fire_time, page[-1].workflow_id
        assert seen == every
        assert {letter.key for letter in every} == keys


async def test_a_one_shot_that_failed_is_there_too_after_its_schedule_is_done(bench):
    ops = operator(bench)
    asked = await ops.schedule_at("noop", bench.now() + SHORTLY)
    (claim,) = await bench.until(bench.claim)
    await run_of(bench, claim)
    await end(bench, claim.workflow_id)
    assert await dead(bench) == [claim.workflow_id]
    assert (await ops.dead_letters(key=asked.key))[0].status == "failed"


async def test_a_manual_run_is_dropped_by_its_id_and_has_no_window_to_run_again(bench):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 3600000, firstFire: next}]")
    ops = operator(bench)
    name = (await ops.trigger("k", request_id="one")).fire.workflow_id
    (claim,) = await taken(bench)
    await run_of(bench, claim)
    await end(bench, name)
    with pytest.raises(LetterNotFound, match="no window stands behind"):
        await ops.rerun_dead(name)
    await ops.drop_dead(name)
    assert await dead(bench) == []


async def test_a_run_that_was_reset_and_fails_once_more_is_a_new_letter(bench):
    name, bucket = await a_failed_run(bench)
    await operator(bench).drop_dead("k", bucket)
    await end(bench, name, run="reset")
    assert await dead(bench) == [name]


async def rejected_together(bench) -> None:
    """Let the windows of an hour be rejected, because no worker knows their workflow."""
    await declare_ago(bench, "everyMs: 60000, firstFire: next", HOUR)
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
        step = plan(state, await transaction.now(), unable=unresolved_workflow(state.schedule))
        await transaction.record([step])


async def test_windows_rejected_together_are_one_letter_whose_hint_is_a_backfill(bench):
    await rejected_together(bench)
    (letter,) = await operator(bench).dead_letters()
    assert letter.windows > 50
    with pytest.raises(LetterNotFound, match="sched backfill k --from"):
        await operator(bench).rerun_dead("k", letter.bucket)
    first = letter.fire_time
    await backfilled(bench, first, first + MINUTE)
    (rest,) = await operator(bench).dead_letters()
    assert rest.windows == letter.windows - 2
    assert rest.fire_time == first + 2 * MINUTE
    assert sum(fire.status == "rejected" for _, fire in await windows(bench)) == rest.windows


async def test_what_was_dropped_stays_dropped_when_a_backfill_divides_it(bench):
    await rejected_together(bench)
    (letter,) = await operator(bench).dead_letters()
    await operator(bench).drop_dead("k", letter.bucket)
    _, claims = await backfilled(bench, letter.fire_time, letter.fire_time + MINUTE)
    assert await dead(bench) == []
    fails, refused = claims
    await run_of(bench, fails)
    await end(bench, fails.workflow_id)
    await bench.ledger.settle(
        [Outcome(refused.fire_id, refused.token, "rejected", reason=TOO_LARGE)]
    )
    assert set(await dead(bench)) == {fails.workflow_id, refused.workflow_id}, "they are new"
