"""``onDead``: a workflow that is told of each fire that ended badly, once."""

from __future__ import annotations

import pytest

from engine.errors import LetterNotFound
from engine.ledger.fires import ClosedStatus
from engine.ledger.records import Serving
from engine.runtime.events import Alert, Event
from engine.runtime.sealing import Sealing
from engine.runtime.tracking.follow_ups import follow
from tests.conformance.past import operator, run_of, taken
from tests.conformance.test_dead_letters import LEFT, end

TELLING = """
defaults: {onDead: alert}
schedules: [{key: k, workflow: noop, everyMs: 86400000, input: {a: 1}, overlap: skip}]
"""
SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1", "alert@1"}))


async def followed(bench) -> list[Event]:
    told: list[Event] = []
    await follow(bench.ledger, Sealing(bench.ledger), on_event=told.append)
    return told


async def a_bad_end(bench, closed: ClosedStatus = "failed", text: str = TELLING, **told):
    await bench.announce(SERVING)
    await bench.declare(text)
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    await end(bench, claim.workflow_id, closed, **told)
    return claim


@pytest.mark.parametrize(
    ("closed", "told"),
    [("failed", True), ("timed_out", True), ("terminated", False), ("cancelled", False),
     ("completed", False)],
)  # fmt: skip
async def test_a_handler_runs_after_a_run_that_failed_or_took_too_long(bench, closed, told):
    claim = await a_bad_end(bench, closed)
    await followed(bench)
    handlers = await taken(bench)
    assert [each.workflow_id for each in handlers] == (
        [f"{claim.workflow_id}:dead"] if told else []
    )


async def test_nobody_triggered_it_and_its_timing_says_so(bench):
    await a_bad_end(bench, error="no luck", not_undone=LEFT)
    await followed(bench)
    (handler,) = await taken(bench)
    fire = await operator(bench).fire(handler.workflow_id)
    assert (fire.timing, handler.timing) == ("handler", "handler")


async def test_it_is_given_what_became_of_the_fire(bench):
    claim = await a_bad_end(bench, error="no luck", not_undone=LEFT)
    await followed(bench)
    (handler,) = await taken(bench)
    assert (handler.workflow_type, handler.timing, handler.kind) == (
        "alert@1",
        "handler",
        "handler",
    )
    assert (handler.key, handler.series, handler.bucket, handler.fire_time) == (
        claim.key, claim.series, claim.bucket, claim.fire_time,
    )  # fmt: skip
    assert list(handler.arguments) == [
        {
            "key": "k",
            "bucket": claim.bucket,
            "fire_time": claim.fire_time.isoformat().replace("+00:00", "Z"),
            "windows": 1,
            "workflow_id": claim.workflow_id,
            "run_id": "run",
            "workflow": "noop@1",
            "status": "failed",
            "error": "no luck",
            "attempts": 1,
            "input": {"a": 1},
            "not_undone": [{"step": "reserve", "undo": "release", "error": "the stock is away"}],
        }
    ]


async def test_each_end_is_looked_at_once_however_many_look(bench):
    await a_bad_end(bench)
    for _ in range(3):
        await followed(bench)
    assert len(await taken(bench)) == 1
    assert not await bench.ledger.anything_ended()


async def test_a_handler_that_fails_has_no_handler_and_is_a_dead_letter(bench):
    claim = await a_bad_end(bench)
    await followed(bench)
    (handler,) = await taken(bench)
    await run_of(bench, handler, "handler-run")
    await end(bench, handler.workflow_id, run="handler-run")
    await followed(bench)
    assert await taken(bench) == []
    letters = await operator(bench).dead_letters_of("k", claim.bucket)
    assert {letter.kind for letter in letters} == {"window", "handler"}
    with pytest.raises(LetterNotFound, match="reset its run in Temporal to run it again"):
        await operator(bench).rerun_dead(handler.workflow_id)


async def test_a_handler_that_no_worker_knows_is_rejected_and_told(bench):
    claim = await a_bad_end(bench, text=TELLING.replace("alert", "alrt"))
    (alert,) = await followed(bench)
    assert isinstance(alert, Alert)
    assert (alert.code, alert.text) == (
        "SCHEDULE_HANDLER_UNKNOWN",
        f"{claim.workflow_id}:dead: no worker on task queue sched knows alrt",
    )
    handler = await bench.ledger.fire(f"{claim.workflow_id}:dead")
    assert handler is not None
    assert (handler.status, handler.reason) == (
        "rejected", "no worker on task queue sched knows alrt",
    )  # fmt: skip


async def test_a_handler_stands_in_nobodys_way_and_is_not_the_last_fire(bench):
    await a_bad_end(bench)
    await followed(bench)
    asked = await operator(bench).trigger("k")
    assert asked.fire.status == "claimed", "overlap: skip looks at runs of the schedule only"
    row = await operator(bench).schedule("k")
    assert row.last_status != "handler"
    handler, manual = sorted(await taken(bench), key=lambda each: each.kind)
    assert (handler.kind, manual.kind) == ("handler", "manual")


async def test_what_is_queued_does_not_wait_for_a_handler(bench):
    await bench.announce(SERVING)
    await bench.declare(TELLING.replace("overlap: skip", "overlap: queue"))
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    waiting = (await operator(bench).trigger("k")).fire
    assert waiting.status == "queued"
    await end(bench, claim.workflow_id)
    await followed(bench)
    assert await bench.ledger.wake() == ["k"]
    await bench.claim()
    assert waiting.workflow_id in {each.workflow_id for each in await taken(bench)}


async def test_the_last_fire_of_a_schedule_is_its_own(bench):
    await a_bad_end(bench)
    await followed(bench)
    assert (await operator(bench).schedule("k")).last_status == "failed"


async def test_a_handler_runs_though_its_schedule_was_paused_or_retired_meanwhile(bench):
    claim = await a_bad_end(bench)
    await followed(bench)
    async with bench.ledger.transaction() as transaction:
        await transaction.retire(["k"], bench.now())
    (handler,) = await taken(bench)
    assert handler.workflow_id == f"{claim.workflow_id}:dead"


async def test_a_rerun_that_fails_has_a_handler_of_its_own(bench):
    claim = await a_bad_end(bench)
    await operator(bench).rerun("k", claim.bucket)
    (rerun,) = await taken(bench)
    await run_of(bench, rerun, "again")
    await end(bench, rerun.workflow_id, run="again")
    await followed(bench)
    names = {handler.workflow_id for handler in await taken(bench)}
    assert names == {f"{claim.workflow_id}:dead", f"{claim.workflow_id}:rerun:1:dead"}
    again = await operator(bench).rerun("k", claim.bucket)
    assert again.fire.workflow_id == f"{claim.workflow_id}:rerun:2"
