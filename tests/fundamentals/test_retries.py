"""Retries: ``Retry`` says when a failing step is tried again, and what is not tried again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from engine import Retry
from engine.flow.steps import StepNote
from engine.runtime.steps import interceptors
from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.replays import replay
from tests.fundamentals.samples import retries
from tests.fundamentals.samples.retries import SEEN, AccountClosed, NoSuchAccount, Rules
from tests.fundamentals.shared_worker import shared_worker

worker = shared_worker("retries", retries.ALL, retries.STEPS)


@pytest.fixture
def runs(served: Client) -> Runs:
    SEEN.began.clear()
    return Runs(served, "retries", retries)


async def run_of(runs: Runs, rules: Rules) -> object:
    """Run a charge by these rules to its end, and replay it."""
    handle = await runs.start("charging@1", rules)
    try:
        return await handle.result()
    finally:
        await replay(runs.client, handle, retries)


def wait_after(note: StepNote, attempt: int) -> float:
    wait = interceptors.wait_after(note, attempt)
    assert wait is not None
    return wait.total_seconds()


def waits() -> list[float]:
    moments = [each.timestamp() for each in SEEN.began]
    return [after - before for before, after in pairwise(moments)]


@pytest.mark.slow
async def test_the_waits_are_those_of_intervals_and_the_last_one_repeats(runs: Runs):
    rules = Rules("always", intervals=[1, 3], max_attempts=4)
    with pytest.raises(WorkflowFailureError):
        await run_of(runs, rules)
    assert waits() == pytest.approx([1, 3, 3], abs=0.3)


async def test_max_attempts_counts_the_first_attempt_and_the_last_error_is_the_steps(runs: Runs):
    rules = Rules("always", intervals=[0.01], max_attempts=2)
    with pytest.raises(WorkflowFailureError) as failure:
        await run_of(runs, rules)
    assert len(SEEN.began) == 2
    cause = failure.value.cause.__cause__
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.message) == ("ConnectionError", "attempt 2")


async def test_a_step_that_succeeds_in_the_end_returns_its_result(runs: Runs):
    assert await run_of(runs, Rules("twice", intervals=[0.01])) == 3


@pytest.mark.parametrize("given_up", [AccountClosed, NoSuchAccount, "NoSuchAccount"])
async def test_what_is_given_up_on_is_not_tried_again_nor_are_its_subclasses(
    runs: Runs, given_up: Any
):
    names = [str(each) for each in Retry(give_up_on=[given_up]).give_up_on]
    with pytest.raises(WorkflowFailureError) as failure:
        await run_of(runs, Rules("AccountClosed", give_up_on=names))
    assert len(SEEN.began) == 1
    cause = failure.value.cause.__cause__
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.message) == ("AccountClosed", "closed in 2019")


@pytest.mark.parametrize(
    ("raises", "kinds"),
    [
        ("AccountClosed", "NoSuchAccount AccountClosed"),
        ("CardStolen", "FatalError"),
        ("always", "OSError"),  # a ConnectionError
    ],
)
async def test_a_run_asks_for_the_class_of_what_failed_wherever_that_was(
    runs: Runs, raises: str, kinds: str
):
    assert await runs.result("catching@1", raises) == [kinds, kinds, kinds]


async def test_a_fatal_error_is_never_tried_again_and_keeps_its_details(runs: Runs):
    with pytest.raises(WorkflowFailureError) as failure:
        await run_of(runs, Rules("CardStolen", intervals=[0.01]))
    assert len(SEEN.began) == 1
    cause = failure.value.cause.__cause__
    assert isinstance(cause, ApplicationError)
    assert (cause.type, list(cause.details)) == ("CardStolen", [{"card": 4}])


async def test_a_step_may_say_itself_how_long_to_wait(runs: Runs):
    rules = Rules("own word", intervals=[3600])
    assert await run_of(runs, rules) == 2


def test_what_a_step_says_of_its_failure_is_kept_when_the_next_wait_is_added():
    said = ApplicationError("later", 7, type="Busy", category=ApplicationErrorCategory.BENIGN)
    answer = interceptors.answer_to(said, StepNote(intervals=(2.0,)), attempt=1)
    assert answer is not None
    assert (answer.message, answer.details, answer.type) == ("later", (7,), "Busy")
    assert answer.category == ApplicationErrorCategory.BENIGN


def test_no_wait_is_longer_than_the_longest_however_many_attempts_there_were():
    note = StepNote(**Retry(jitter=0.5, max_interval=60).for_worker())
    assert wait_after(note, 100_000) <= 90


@given(
    intervals=st.lists(st.floats(0.001, 10_000), min_size=1, max_size=5),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 50),
)
def test_a_wait_is_its_interval_give_or_take_the_jitter(intervals, jitter, attempt):
    retry = Retry(intervals=intervals, jitter=jitter)
    meant = intervals[-1] if attempt > len(intervals) else intervals[attempt - 1]
    # What the worker reads has been JSON in between.
    wait = wait_after(StepNote.from_json(StepNote(**retry.for_worker()).to_json()), attempt)
    assert abs(wait - meant) <= meant * jitter + 1e-5


@given(jitter=st.floats(0.01, 1), attempt=st.integers(1, 200))
def test_jitter_goes_with_a_growing_wait_too(jitter, attempt):
    retry = Retry(initial_interval=2, backoff=3, max_interval=500, jitter=jitter)
    wait = wait_after(StepNote(**retry.for_worker()), attempt)
    meant = min(2 * 3 ** (attempt - 1), 500)
    assert abs(wait - meant) <= meant * jitter + 1e-5


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"intervals": [1, 0]}, "each of intervals is longer than zero"),
        ({"intervals": [1], "backoff": 3}, "intervals gives every wait"),
        ({"jitter": 1.5}, "a part of the wait, from 0 to 1"),
    ],
)
def test_a_rule_that_says_two_things_or_nothing_is_refused_at_import(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        Retry(**values)


@pytest.mark.parametrize(
    "values", [{"give_up_on": ValueError}, {"give_up_on": [3]}, {"intervals": "60"}]
)
def test_a_rule_of_the_wrong_type_is_refused_at_import(values):
    with pytest.raises(TypeError, match="list"):
        Retry(**values)
