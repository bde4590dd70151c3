"""Steps: ordinary functions that a workflow calls with ``ctx.step`` and that are retried."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import temporalio.workflow
from temporalio import activity
from temporalio.workflow import unsafe

from engine import Context, Retry, step, workflow
from engine.flow import registered_steps

with unsafe.imports_passed_through():
    import pytest
    from temporalio.api.enums.v1 import EventType
    from temporalio.client import Client, WorkflowFailureError
    from temporalio.exceptions import ActivityError
    from temporalio.testing import ActivityEnvironment
    from temporalio.worker import Replayer, Worker

if TYPE_CHECKING:
    from decimal import Decimal

QUEUE = "steps"
ATTEMPTS: list[int] = []


@dataclass
class Mail:
    to: str
    copies: int = 1


@step
async def send(mail: Mail) -> int:
    return mail.copies


@step(name="count-rows", timeout=30)
def count_rows() -> int:
    return 7


@step(timeout=timedelta(minutes=2), retry=Retry(max_attempts=3, initial_interval=0.01))
async def unreliable(successful_attempt: int) -> int:
    attempt = activity.info().attempt
    ATTEMPTS.append(attempt)
    if attempt < successful_attempt:
        raise ConnectionError(f"attempt {attempt}")
    return attempt


@step
async def echo(text: str | None = "nothing") -> str | None:
    return text


@activity.defn
async def plain_activity(text: str) -> str:
    return text.upper()


@workflow(name="uses-steps")
class UsesSteps:
    async def run(self, ctx: Context) -> list[object]:
        return [
            await ctx.step(send, Mail("a@example.org", copies=2)),
            await ctx.step(count_rows),
            await ctx.step(plain_activity, "plain", timeout=5),
            await ctx.step(echo),
            await ctx.step(echo, None),
        ]


@workflow(name="tries")
class Tries:
    async def run(self, ctx: Context, successful_attempt: int) -> int:
        return await ctx.step(unreliable, successful_attempt)


@workflow(name="tries-once")
class TriesOnce:
    async def run(self, ctx: Context) -> str:
        try:
            await ctx.step(unreliable, 2, retry=Retry(max_attempts=1), timeout=0.5)
        except ActivityError as error:
            return str(error.cause)
        return "no error"


@workflow(name="misuses-steps")
class MisusesSteps:
    async def run(self, ctx: Context, way: str) -> None:
        match way:
            case "not a step":
                await ctx.step(_undecorated)
            case "no input":
                await ctx.step(send)  # type: ignore[arg-type]
            case "an input too many":
                await ctx.step(count_rows, 3)  # type: ignore[arg-type]


async def _undecorated() -> None: ...


WORKFLOWS = [UsesSteps, Tries, TriesOnce, MisusesSteps]


def worker(client: Client) -> Worker:
    """Return a plain worker; the executor is for sync steps."""
    return Worker(
        client,
        task_queue=QUEUE,
        workflows=WORKFLOWS,
        activities=[send, count_rows, unreliable, echo, plain_activity],
        activity_executor=ThreadPoolExecutor(4),
    )


async def run(client: Client, workflow_type: str, *args: object):
    async with worker(client):
        handle = await client.start_workflow(workflow_type, args=args, id="run", task_queue=QUEUE)
        return await handle.result(), await handle.fetch_history()


async def test_a_step_stays_a_function_that_a_unit_test_calls_directly():
    assert await send(Mail("a@example.org", copies=3)) == 3
    assert count_rows() == 7
    assert await ActivityEnvironment().run(unreliable, 1) == 1


async def test_async_steps_sync_steps_and_plain_activities_run_alike(client: Client):
    result, _ = await run(client, "uses-steps@1")
    assert result == [2, 7, "PLAIN", "nothing", None]


async def test_each_attempt_has_a_timeout_of_ten_minutes_unless_somebody_says_otherwise(client):
    _, history = await run(client, "uses-steps@1")
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    assert [
        (each.activity_type.name, each.start_to_close_timeout.ToSeconds()) for each in scheduled
    ] == [
        ("send", 600),
        ("count-rows", 30),
        ("plain_activity", 5),
        ("echo", 600),
        ("echo", 600),
    ]


async def test_a_failing_step_is_tried_again_as_its_retry_rule_says(client: Client):
    ATTEMPTS.clear()
    result, _ = await run(client, "tries@1", 3)
    assert result == 3
    assert ATTEMPTS == [1, 2, 3]


async def test_a_step_that_keeps_failing_fails_the_run_after_the_last_attempt(client: Client):
    ATTEMPTS.clear()
    with pytest.raises(WorkflowFailureError) as failure:
        await run(client, "tries@1", 99)
    assert ATTEMPTS == [1, 2, 3]
    assert "attempt 3" in str(failure.value.cause.__cause__)


async def test_a_call_may_bring_its_own_retry_rule_and_catch_the_failure(client: Client):
    ATTEMPTS.clear()
    result, _ = await run(client, "tries-once@1")
    assert result == "ConnectionError: attempt 1"
    assert ATTEMPTS == [1]


async def test_a_run_with_steps_replays_from_its_stored_history(client: Client):
    _, history = await run(client, "uses-steps@1")
    result = await Replayer(workflows=WORKFLOWS).replay_workflow(history)
    assert result.replay_failure is None


@temporalio.workflow.defn(name="uses-steps@1")
class UsesOtherSteps:
    """What ``uses-steps`` would be after an edit that needed a new version."""

    @temporalio.workflow.run
    async def run(self) -> None:
        await Context().step(count_rows)


async def test_a_history_of_other_code_does_not_replay(client: Client):
    _, history = await run(client, "uses-steps@1")
    with pytest.raises(temporalio.workflow.NondeterminismError):
        await Replayer(workflows=[UsesOtherSteps]).replay_workflow(history)


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("not a step", "ctx.step needs a function marked with @step"),
        ("no input", "the step 'send' needs an input"),
        ("an input too many", "the step 'count-rows' takes no input"),
    ],
)
async def test_a_wrong_call_fails_the_run_with_a_sentence(client: Client, way: str, sentence: str):
    with pytest.raises(WorkflowFailureError) as failure:
        await run(client, "misuses-steps@1", way)
    assert sentence in str(failure.value.cause)


def test_retry_translates_into_temporals_retry_policy():
    policy = Retry(max_attempts=4, initial_interval=2, backoff=3, max_interval=60).to_policy()
    assert policy.maximum_attempts == 4
    assert policy.initial_interval == timedelta(seconds=2)
    assert policy.backoff_coefficient == 3
    assert policy.maximum_interval == timedelta(minutes=1)
    assert Retry().to_policy().maximum_attempts == 0  # Temporal's word for "without end"


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
    assert steps["count-rows"].fn is count_rows
    assert steps["count-rows"].is_async is False
    assert steps["send"].requires_input
    assert not steps["echo"].requires_input
    assert "plain_activity" not in steps


def test_two_functions_cannot_share_a_step_name():
    with pytest.raises(ValueError, match=r"two steps are called 'send'.*give one of them another"):

        @step(name="send")
        async def other() -> None: ...


def test_a_step_takes_one_argument_at_most():
    with pytest.raises(TypeError, match="put several values into a dataclass"):

        @step
        async def two(year: int, month: int) -> None: ...

    with pytest.raises(TypeError, match="put several values into a dataclass"):

        @step
        async def keyword(*, year: int) -> None: ...


def test_a_method_is_not_a_step():
    with pytest.raises(TypeError, match="a step is a plain function"):

        class Mailer:
            @step
            async def deliver(self) -> None: ...


def test_a_type_that_only_the_type_checker_sees_is_refused():
    with pytest.raises(TypeError, match=r"'Decimal' is not defined.*not under TYPE_CHECKING"):

        @step
        async def charge(amount: Decimal) -> None: ...


def test_a_function_is_decorated_once():
    with pytest.raises(TypeError, match="already a step or an activity"):
        step(name="again")(send)
    assert "again" not in registered_steps()


@pytest.mark.parametrize("timeout", [0, -1, timedelta(0)])
def test_a_timeout_is_longer_than_zero(timeout):
    with pytest.raises(ValueError, match="timeout is longer than zero"):
        step(timeout=timeout)(_undecorated)


def test_a_timeout_is_a_span_of_time():
    with pytest.raises(TypeError, match="timeout is a timedelta or a number of seconds"):
        step(timeout="10m")(_undecorated)  # type: ignore[call-overload]


def test_the_marks_do_not_hide_that_a_step_is_async():
    assert asyncio.iscoroutinefunction(send)
