"""An async step that blocks the worker's event loop is named, with the line where it is."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine import Context, step, workflow
from engine.errors import Code
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.events import Alert, Event
from tests.waiting import eventually

BLOCKED = 0.7
HERE = "tests/fundamentals/test_blocked_loop.py"
IN_DEEP = "in deep():"


def deep() -> None:
    time.sleep(BLOCKED)


@step(name="blocks-the-loop")
async def block() -> None:
    deep()


@step(name="blocks-a-thread")
def block_a_thread() -> None:
    time.sleep(BLOCKED)


@step(name="waits-properly")
async def wait() -> None:
    await asyncio.sleep(BLOCKED)


@workflow(name="blocking", version="1")
class Blocking:
    async def run(self, ctx: Context) -> None:
        await ctx.step(block_a_thread)
        await ctx.step(wait)
        await ctx.step(block)
        await ctx.step(block)


def of_this_file(events: list[Event]) -> list[Alert]:
    """Return the alerts of the blocking steps: a busy machine may block the loop as well."""
    return [each for each in events if isinstance(each, Alert) and IN_DEEP in each.text]


async def test_an_async_step_that_blocks_the_loop_is_named_once_each_time(
    client: Client, caplog: pytest.LogCaptureFixture
):
    events: list[Event] = []
    settings = Settings(loop_lag=timedelta(milliseconds=300))
    plugin = SchedulePlugin(None, settings=settings, on_event=events.append)
    with caplog.at_level(logging.ERROR, "sched"):
        async with Worker(
            client, task_queue="q", workflows=[Blocking],
            activities=[block, block_a_thread, wait], plugins=[plugin],
        ):  # fmt: skip
            await client.execute_workflow("blocking@1", id="blocking", task_queue="q")

            await eventually(lambda: len(of_this_file(events)) >= 2)
    alerts = of_this_file(events)
    texts = [each.getMessage() for each in caplog.records]
    logged = [text for text in texts if "BLOCKED" in text and IN_DEEP in text]
    assert [each.code for each in alerts] == [Code.LOOP_BLOCKED] * 2
    assert logged == [f"{each.code}: {each.text}" for each in alerts]
    line = deep.__code__.co_firstlineno + 1
    for each in alerts:
        assert each.text.startswith("the step 'blocks-the-loop' has blocked the event loop")
        assert f"s, at {HERE}:{line} {IN_DEEP}" in each.text
