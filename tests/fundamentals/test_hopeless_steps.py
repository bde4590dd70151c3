"""What can never succeed ends at once, and nothing is tried for ever unless somebody says so."""

from __future__ import annotations

import asyncio
import re

import pytest
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from engine import FOREVER, Context, Retry
from engine.errors import Code
from engine.flow.failures import CompensationFailed
from engine.flow.step_calls import NOT_GIVEN, call_of, undo_of
from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.replays import CACHED
from tests.fundamentals.samples import hopeless
from tests.fundamentals.samples.hopeless import CALLS
from tests.fundamentals.shared_worker import shared_worker

worker = shared_worker("hopeless", hopeless.ALL, hopeless.STEPS, on_client=True, cached=CACHED[:1])


@pytest.fixture
def runs(served: Client) -> Runs:
    CALLS.clear()
    return Runs(served, "hopeless", hopeless)


@pytest.mark.parametrize(
    ("kind", "calls", "code"),
    [("large", 1, "PayloadsTooLarge"), ("strange", 1, Code.RESULT_INVALID),
     ("number", 0, Code.INPUT_INVALID)],
)  # fmt: skip
async def test_a_step_that_can_never_succeed_has_one_attempt(runs, kind, calls, code):
    """Although its rule is to try for ever: each attempt would repeat the effect."""
    failure = await runs.result("hopeless@1", kind)
    assert isinstance(failure, ActivityError)
    assert isinstance(failure.cause, ApplicationError)
    assert failure.cause.type == code
    assert CALLS[kind] == calls
    hints = {"strange": "use plain values, a dataclass", "number": "what its annotations say"}
    assert hints.get(kind, "") in failure.cause.message
    assert "pydantic.dev" not in failure.cause.message


async def test_an_undo_of_another_type_ends_and_is_listed(runs):
    failure = await runs.result("hopeless@1", "another undo")
    assert isinstance(failure, ApplicationError)
    assert failure.type == CompensationFailed.__name__
    assert failure.details[0]["undo"] == "hopeless-number"


async def test_an_undo_for_an_earlier_run_whose_result_is_too_large_ends_and_is_listed(runs):
    failure = await runs.result("hopeless@1", "large undo")
    assert isinstance(failure, ApplicationError)
    assert failure.type == CompensationFailed.__name__
    assert CALLS["large"] == 1


@pytest.mark.parametrize("kind", ["its result", "next input"])
async def test_a_run_whose_result_or_next_input_cannot_be_written_fails_and_is_undone(runs, kind):
    """Although its code has ended: Temporal would repeat its last task for ever."""
    async with asyncio.timeout(20):
        failure = await runs.result("hopeless@1", kind)
    assert isinstance(failure, ApplicationError)
    assert (failure.type, failure.non_retryable) == (Code.RESULT_INVALID, True)
    assert CALLS["undone"] == 1


@pytest.mark.parametrize(("kind", "attempts"), [("away", 5), ("listed", 3)])
async def test_attempts_end(runs, kind, attempts):
    assert isinstance(await runs.result("hopeless@1", kind), ActivityError)
    assert CALLS[kind] == attempts


async def test_a_deadline_ends_all_attempts(runs):
    assert isinstance(await runs.result("hopeless@1", "deadline"), ActivityError)
    assert CALLS["away"] >= 1


async def test_a_step_and_its_undo_run_on_the_task_queue_that_is_named(runs):
    steps = [hopeless.there, hopeless.back_there]
    elsewhere = Worker(runs.client, task_queue="hopeless-elsewhere", activities=steps)
    async with elsewhere:
        failure = await runs.result("hopeless@1", "elsewhere")
    assert "undo it" in str(failure)
    assert CALLS == {"hopeless-elsewhere": 2}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"timout": 3}, "ctx.child has no option 'timout'; did you mean timeout?"),
     ({"id": "sched:k:1"}, "does not begin with sched:"),
     ({"parent_close_policy": "keep"}, "one of terminate, abandon, request_cancel")],
)  # fmt: skip
async def test_a_child_with_a_wrong_option_is_refused(options, sentence):
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        await Context().child(hopeless.Hopeless, "plain", **options)


def test_a_step_without_a_rule_has_five_attempts_and_its_undo_no_limit():
    call = call_of(hopeless.plain, NOT_GIVEN, {})
    assert call.retry.to_policy() == RetryPolicy(maximum_attempts=5)
    assert undo_of(hopeless.plain, call.name, call.args).retry is FOREVER
    assert FOREVER.to_policy() == RetryPolicy()


@pytest.mark.parametrize(
    ("rule", "attempts"),
    [(Retry(), 5), (Retry(intervals=[1, 3, 3]), 4), (Retry(max_attempts=9, intervals=[1]), 9),
     (Retry(max_attempts=None, intervals=[1]), None), (Retry(max_attempts=5, intervals=[1]), 5)],
)  # fmt: skip
def test_a_list_of_waits_means_that_many_retries(rule, attempts):
    assert rule.max_attempts == attempts


@pytest.mark.parametrize("given", [1.5, True, "3"])
def test_attempts_are_a_whole_number(given):
    with pytest.raises(TypeError, match="whole number"):
        Retry(max_attempts=given)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("compensation", "compensate"), ("retries", "retry"), ("timout", "timeout"), ("zzz", None)],
)
def test_a_misspelt_option_is_refused(written, meant):
    with pytest.raises(TypeError, match=f"no option '{written}'") as refused:
        call_of(hopeless.plain, NOT_GIVEN, {written: 3})  # type: ignore[misc] # the point
    assert (f"did you mean {meant}?" in str(refused.value)) == (meant is not None)
