"""A worker names at its start the steps that its workflows call and that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.worker import Worker

from engine.errors import Code
from engine.runtime import SchedulePlugin
from engine.runtime.events import Alert, Event
from tests.fundamentals.samples.parcels import send_parcel
from tests.fundamentals.samples.unserved import CallsUnserved, here, take_back
from tests.waiting import eventually

PLACE = "tests/fundamentals/samples/unserved.py"


@activity.defn(dynamic=True)
async def anything(_: Sequence[RawValue]) -> None: ...


@pytest.mark.parametrize(
    ("served", "missing"),
    [
        ([here], ["unserved-undo", "send_parcel"]),
        ([here, take_back, send_parcel], []),
        ([], []),  # other workers run the steps of its task queue
        ([here, anything], []),
    ],
)
async def test_a_worker_names_the_steps_that_it_lacks_and_starts(
    client: Client, served: list[Callable[..., Any]], missing: list[str]
):
    events: list[Event] = []
    plugin = SchedulePlugin(None, on_event=events.append)
    worker = Worker(
        client, task_queue="q", workflows=[CallsUnserved], activities=served, plugins=[plugin]
    )
    async with worker:
        await eventually(lambda: worker.is_running)
    alerts = [each for each in events if isinstance(each, Alert)]
    assert [each.code for each in alerts] == [Code.STEP_UNSERVED] * len(missing)
    for each, name in zip(alerts, missing, strict=True):
        assert each.text.startswith(f"CallsUnserved calls the step {name!r} ({PLACE}:")


async def test_the_line_is_that_of_the_call(client: Client):
    events: list[Event] = []
    plugin = SchedulePlugin(None, on_event=events.append)
    async with Worker(
        client, task_queue="q", workflows=[CallsUnserved], activities=[here], plugins=[plugin]
    ):
        pass
    line = CallsUnserved.run.__code__.co_firstlineno + 1
    [text] = [each.text for each in events if isinstance(each, Alert) and "undo" in each.text]
    assert f"({PLACE}:{line})" in text
