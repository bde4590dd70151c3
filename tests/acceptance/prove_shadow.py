"""``make prove-shadow``: five minutes in shadow mode beside native Temporal Schedules.

Twenty native schedules of a second and the same in shadow mode run on a real PostgreSQL and
Temporal; two workers share the work, and each is stopped and started again in turn. At the end of
the time they have to compare equal; then a run is deleted and another one added by hand, and both
have to be found. At last every schedule is taken over while all of this goes on, and each window
has to have run once, by one of the two. It is no part of the test suite.
"""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.embedded import PostgresServer, TemporalServer
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.schedules import load_schedules
from tests.postgres import Postgres
from tests.sample_workflows import Plain
from tests.servers import FAST_AND_FORGETFUL, register_namespace
from tests.shadowed import QUEUE, SECOND, Beside, assert_each_window_ran_once
from tests.waiting import eventually

KEYS = tuple(f"beat{number:02}" for number in range(20))
NAMESPACE = "prove-shadow"
RESTART_EVERY = 20.0
AFTER = 20 * SECOND
"""How long it goes on after the hand-over."""


async def restarted(beside: Beside, database_url: str, first: float) -> None:
    """Run a worker that stops and starts again, for ever; ``first``: seconds to its first stop."""
    lasts = first
    while True:
        plugin = SchedulePlugin(load_schedules(beside.text), database_url=database_url)
        worker = Worker(beside.client, task_queue=QUEUE, workflows=[Plain], plugins=[plugin])
        async with worker:
            await asyncio.sleep(lasts)
        lasts = RESTART_EVERY


async def ended(workers: list[asyncio.Task[None]]) -> None:
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def is_equal(beside: Beside, least: int) -> bool:
    found = await beside.compared(lag=5 * SECOND)
    for each in found.values():
        assert not each.differences, f"{each.key}: {each.differences[:3]}"
        assert each.equal >= least, f"{each.key}: only {each.equal} windows were compared"
    return len(found) == len(KEYS)


async def injected(beside: Beside) -> None:
    """Delete one run and add one; both have to be found, and nothing else."""
    key = KEYS[0]
    runs = await beside.runs()
    moment = sorted(runs[key])[len(runs[key]) // 2]
    (gone,) = runs[key][moment]
    await beside.client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=NAMESPACE, workflow_execution=WorkflowExecution(workflow_id=gone)
        )
    )
    await beside.client.get_schedule_handle(KEYS[1]).trigger()

    async def found() -> bool:
        seen = await beside.compared(lag=5 * SECOND)
        kinds = {
            each.key: [one.kind for one in each.differences]
            for each in seen.values()
            if each.differences
        }
        assert kinds == {KEYS[0]: ["only_ours"], KEYS[1]: ["doubled"]}, kinds
        (lost,) = seen[key].differences
        return lost.at == moment

    await eventually(found, timeout=60, every=1)


async def proved(client: Client, database_url: str, minutes: float) -> None:
    ledger = await Ledger.connect(database_url, namespace=NAMESPACE)
    beside = Beside(client, ledger, KEYS)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(ledger.close)
        workers = [
            asyncio.create_task(restarted(beside, database_url, first))
            for first in (RESTART_EVERY, RESTART_EVERY / 2)
        ]
        stack.push_async_callback(ended, workers)
        await beside.start_native()
        beside.begun = datetime.now(UTC)
        until = beside.begun + timedelta(minutes=minutes)
        print(f"{len(KEYS)} schedules of a second in shadow mode until {until:%H:%M:%S}Z")
        await beside.passed(until)
        least = int(minutes * 60) - 10
        await eventually(lambda: is_equal(beside, least), timeout=60, every=1)
        print(f"equal: at least {least} windows of each")
        at = await beside.hand_over(60 * SECOND)
        print(f"taken over at {at:%H:%M:%S}Z")
        await beside.passed(at + AFTER)
        first = beside.begun.replace(microsecond=0) + 2 * SECOND

        async def once() -> bool:
            await assert_each_window_ran_once(beside, first, at, at + AFTER - SECOND)
            return True

        await eventually(once, timeout=60, every=1)
        windows = len(KEYS) * (1 + (at + AFTER - SECOND - first) // SECOND)
        print(f"each of {windows:,} windows ran once, by one of the two")
        await eventually(lambda: is_equal(beside, least), timeout=60, every=1)
        await injected(beside)
        print("a deleted run and a run by hand were found")


async def main(minutes: float) -> None:
    with tempfile.TemporaryDirectory(prefix="prove-shadow-") as folder:
        postgres = PostgresServer(Path(folder) / "pg", durable=False)
        temporal = TemporalServer(
            Path(folder) / "temporal", dynamic_config=FAST_AND_FORGETFUL, in_memory=True
        )
        try:
            await asyncio.gather(postgres.start(), temporal.start())
            await register_namespace(await Client.connect(temporal.address), NAMESPACE)
            client = await Client.connect(temporal.address, namespace=NAMESPACE)
            await proved(
                client,
                await Postgres(postgres.url_of("postgres")).create_database("proof"),
                minutes,
            )
        finally:
            await asyncio.gather(postgres.stop(), temporal.stop())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    try:
        asyncio.run(main(parser.parse_args().minutes))
    except AssertionError as error:
        print(f"NOT PROVED: {error}")
        sys.exit(1)
