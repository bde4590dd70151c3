"""What ``ctx.step`` costs beside the bare ``workflow.execute_activity``.

Runs of many steps, one after another and at once, on one Temporal server in memory: a plain worker
with plain activities, and a worker with the plugin with steps, taking turns. A history that is
longer would cost everybody who replays it, so its events are counted too.
"""

from __future__ import annotations

import time

from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.arena import arena, postgres
from benchmarks.report import Measured, Row
from benchmarks.spread import in_turn, median
from benchmarks.step_workflows import (
    STEPS,
    BareSteps,
    BareTogether,
    OurSteps,
    OurTogether,
    bare_nothing,
    step_nothing,
)
from engine.runtime import SchedulePlugin

SAMPLES = 30
_WARM = 3
"""Runs before the first one that counts."""
Contestant = tuple[str, str]
"""A Temporal type and a task queue."""

CONTESTANTS: dict[str, Contestant] = {
    "execute_activity": ("BareSteps", "bare"),
    "ctx.step": ("our-steps@1", "ours"),
    "execute_activity, at once": ("BareTogether", "bare"),
    "ctx.step, at once": ("our-steps-together@1", "ours"),
}


async def run(*, quick: bool = False) -> Measured:
    """Measure both in turns."""
    samples: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    events: dict[str, int] = {}
    async with (
        postgres() as server,
        arena(server) as place,
        Worker(
            place.client,
            task_queue="bare",
            workflows=[BareSteps, BareTogether],
            activities=[bare_nothing],
        ),
        Worker(
            place.client,
            task_queue="ours",
            workflows=[OurSteps, OurTogether],
            activities=[step_nothing],
            plugins=[SchedulePlugin(None, database_url=place.database_url)],
        ),
    ):
        for number in range(_WARM + (2 if quick else SAMPLES)):
            for name, contestant in in_turn(number, sorted(CONTESTANTS.items())):
                took, events[name] = await _run(place.client, contestant, f"{name} {number}")
                if number >= _WARM:
                    samples[name].append(took)
    rows: list[Row] = [
        {
            "": name,
            "ms per step": round(1000 * median(samples[name]) / STEPS, 2),
            "ratio": round(median(samples[name]) / median(samples[_bare(name)]), 3),
            "events of a run": events[name],
        }
        for name in CONTESTANTS
    ]
    return Measured("step", rows, samples)


def _bare(name: str) -> str:
    """Return the contestant with which one is compared."""
    return name.replace("ctx.step", "execute_activity")


async def _run(client: Client, contestant: Contestant, workflow_id: str) -> tuple[float, int]:
    workflow_type, task_queue = contestant
    begin = time.perf_counter()
    handle = await client.start_workflow(workflow_type, id=workflow_id, task_queue=task_queue)
    await handle.result()
    took = time.perf_counter() - begin
    return took, len((await handle.fetch_history()).events)
