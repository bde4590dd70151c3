"""What a run waits for and tells: signals, time, chance and progress."""

from __future__ import annotations

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from engine.flow.context import progress_line
from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.samples import together
from tests.fundamentals.samples.together import Approval
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

# On the client the plugin brings pydantic models to both sides.
worker = shared_worker("waiting", together.ALL, together.STEPS, on_client=True)


@pytest.fixture
def runs(served: Client) -> Runs:
    return Runs(served, "waiting", together)


async def test_signals_wait_for_whoever_asks_and_come_in_order(runs: Runs):
    handle = await runs.start("approved@1", 30)
    await handle.signal("approve", Approval(by="Ana"))  # perhaps before anybody listens
    await handle.signal("approve", Approval(by="Bob"))
    await handle.signal("anything")
    assert await runs.end(handle) == ["Ana", None, "Bob"]


async def test_a_signal_that_does_not_come_in_time_is_a_timeout(runs: Runs):
    handle = await runs.start("approved@1", 0.05)
    await handle.signal("anything", {"of": ["any", "shape"]})
    await handle.signal("approve", Approval(by="Ana"))
    assert await runs.end(handle) == ["Ana", {"of": ["any", "shape"]}, "nobody"]


async def test_a_run_that_does_not_expect_the_timeout_fails_with_the_signals_name(runs: Runs):
    failure = await runs.result("impatient@1")
    while failure.__cause__ is not None:  # the innermost cause is what people are shown
        failure = failure.__cause__
    assert str(failure) == "TimeoutError: no signal approve came within 0:00:00.050000"


async def test_of_two_who_wait_for_one_name_each_gets_a_signal_of_its_own(runs: Runs):
    handle = await runs.start("twice@1")
    await handle.signal("go on", 1)

    async def one_came() -> bool:
        return (await handle.describe()).history_length > 4

    await eventually(one_came)
    await handle.signal("go on", 2)
    assert await runs.end(handle) == [1, 2]


async def test_a_signal_with_several_values_is_its_first_and_holds_nobody_up(runs: Runs):
    handle = await runs.start("twice@1")
    await handle.signal("go on", args=[{"of": "any shape"}, 2])
    await handle.signal("go on")
    assert await runs.end(handle) == [{"of": "any shape"}, None]


async def test_a_signal_that_the_class_handles_itself_cannot_be_waited_for(runs: Runs):
    failure = await runs.result("handled-twice@1")
    assert isinstance(failure, ApplicationError)
    assert "has a @workflow.signal of that name" in failure.message


async def test_time_and_chance_are_the_runs_own_and_progress_can_be_seen(runs: Runs):
    handle = await runs.start("calendar@1")

    async def seen() -> bool:
        found = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        return bool(found.current_details == "1 of 3 (33 %): one of three")

    await eventually(seen, every=0.2)
    await handle.signal("go on")
    number, name, slept = await runs.end(handle)
    assert 0 <= number < 1
    assert len(name) == 36
    assert 2 <= slept < 4


async def test_a_moment_without_a_timezone_is_refused(runs: Runs):
    failure = await runs.result("naive@1")
    assert isinstance(failure, ApplicationError)
    assert "has no timezone" in failure.message


@pytest.mark.parametrize(
    ("done", "total", "note", "line"),
    [
        (0, 0, "", "0 of 0"),
        (999, 1000, "", "999 of 1,000 (99 %)"),
        (12, None, "mails", "12: mails"),
    ],
)
def test_progress_says_all_of_it_only_when_it_is(done, total, note, line):
    assert progress_line(done, total, note) == line
