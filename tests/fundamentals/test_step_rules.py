"""What ``@step`` and ``Retry`` accept, what they refuse, and how they say so."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from temporalio import activity

from engine import FOREVER, Retry, step, workflow
from engine.errors import RetryPolicyInvalid
from engine.flow import registered_steps

if TYPE_CHECKING:
    from decimal import Decimal


@step
async def post(letter: str) -> int:
    return len(letter)


@step(name="count-letters", timeout=30)
def count_letters() -> int:
    return 7


@step
async def repeat(text: str = "again") -> str:
    return text


@activity.defn
async def unmarked(text: str) -> str:
    return text


async def _undecorated() -> None: ...


def test_retry_translates_into_temporals_retry_policy():
    policy = Retry(max_attempts=4, initial_interval=2, backoff=3, max_interval=60).to_policy()
    assert policy.maximum_attempts == 4
    assert policy.initial_interval == timedelta(seconds=2)
    assert policy.backoff_coefficient == 3
    assert policy.maximum_interval == timedelta(minutes=1)
    assert FOREVER.to_policy().maximum_attempts == 0  # Temporal's word for "without end"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"max_attempts": 0}, "counts the first attempt too"),
        ({"backoff": 0.5}, "backoff is at least 1"),
        ({"initial_interval": 0}, "initial_interval is longer than zero"),
        ({"initial_interval": 10, "max_interval": 5}, "not shorter than initial_interval"),
    ],
)
def test_a_retry_rule_that_temporal_would_refuse_is_refused_at_import(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        Retry(**values)


def test_steps_are_registered_under_their_activity_type():
    steps = registered_steps()
    assert steps["count-letters"].fn is count_letters
    assert steps["count-letters"].is_async is False
    assert steps["post"].requires_input
    assert not steps["repeat"].requires_input
    assert "unmarked" not in steps


def test_two_functions_cannot_share_a_step_name():
    with pytest.raises(ValueError, match=r"two steps are called 'post'.*give one of them another"):

        @step(name="post")
        async def other() -> None: ...


def test_a_step_takes_one_argument_at_most():
    with pytest.raises(TypeError, match="put several values into a dataclass"):

        @step
        async def two(year: int, month: int) -> None: ...

    with pytest.raises(TypeError, match="put several values into a dataclass"):

        @step
        async def keyword(*, year: int) -> None: ...


def test_a_type_that_only_the_type_checker_sees_is_refused():
    with pytest.raises(TypeError, match=r"'Decimal' is not defined.*not under TYPE_CHECKING"):

        @step
        async def charge(amount: Decimal) -> None: ...


def test_a_function_is_decorated_once():
    with pytest.raises(TypeError, match="already a step or an activity"):
        step(name="again")(post)
    assert "again" not in registered_steps()


@pytest.mark.parametrize("timeout", [0, -1, timedelta(0)])
def test_a_timeout_is_longer_than_zero(timeout):
    with pytest.raises(ValueError, match="timeout is longer than zero"):
        step(timeout=timeout)(_undecorated)


def test_a_timeout_is_a_span_of_time():
    with pytest.raises(TypeError, match="timeout is a timedelta or a number of seconds"):
        step(timeout="10m")(_undecorated)  # type: ignore[call-overload]


def test_the_marks_do_not_hide_that_a_step_is_async():
    assert asyncio.iscoroutinefunction(post)


@pytest.mark.parametrize(("mark", "where"), [(step, "@step"), (workflow, "@workflow")])
def test_an_option_is_refused_where_it_is_written(mark, where):
    with pytest.raises(TypeError, match=f"{where} has no option 'timout'; did you mean timeout"):
        mark(timout=3)
    with pytest.raises(RetryPolicyInvalid, match=f"{where}: retry is a rule, such as Retry.*got 3"):
        mark(retry=3)
