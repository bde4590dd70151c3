"""A worker with the engine's plugin whose starts cost nothing: they are answered here, at once.

    python -m benchmarks.costless FILE KEY

Poller, planner, ledger, dispatcher and everything else of a replica are the real ones; only the
runs do not exist, but those of KEY, which the server starts. So a dev server and two cores carry
thousands of windows a second. TEMPORAL_ADDRESS and SCHED_DATABASE_URL name the servers. Only
public names are used here, so that this wiring stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any, cast

import asyncpg
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowHandle,
)
from temporalio.worker import Worker

from benchmarks.arena import connected
from benchmarks.workflows import Noop
from engine.runtime import SchedulePlugin

_CLOSE = """
UPDATE fires SET status = 'completed', closed_at = clock_timestamp()
WHERE id > $1 AND id <= $2 AND status = 'started' AND key <> $3
"""
_SETTLED = 5
"""Seconds after its claim by which a window has started."""


class StartsCostNothing(Interceptor):
    """Answers every start but those of one key."""

    def __init__(self, but: str) -> None:
        self._but = f"sched:{but}:"

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """See the base class."""
        return _Outbound(next, self._but)


class _Outbound(OutboundInterceptor):
    def __init__(self, following: OutboundInterceptor, but: str) -> None:
        super().__init__(following)
        self._but = but

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        if input.id.startswith(self._but):
            return await super().start_workflow(input)
        run_id = str(uuid.uuid4())
        nobody = cast("Client", None)  # the handle is asked for its ids only
        return WorkflowHandle(nobody, input.id, result_run_id=run_id, first_execution_run_id=run_id)


@contextlib.asynccontextmanager
async def closing_runs(database_url: str, but: str = "-") -> AsyncIterator[None]:
    """Let the runs that do not exist end a few seconds after their start.

    Without that every one of them would stay open for ever.
    """
    async with connected(database_url) as connection:
        closing = asyncio.create_task(_close_runs(connection, but))
        try:
            yield
        finally:
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)


async def _close_runs(connection: asyncpg.Connection, but: str) -> None:
    # By the primary key: an index of open runs costs more and more beside an old snapshot.
    newest: list[int] = []
    while True:
        newest.append(await connection.fetchval("SELECT coalesce(max(id), 0) FROM fires"))
        if len(newest) > _SETTLED:
            await connection.execute(_CLOSE, newest[0], newest[1], but)
            del newest[0]
        await asyncio.sleep(1)


async def _main(file: str, but: str) -> None:
    plugin = SchedulePlugin(file)
    client = await Client.connect(
        os.environ["TEMPORAL_ADDRESS"], interceptors=[StartsCostNothing(but)], plugins=[plugin]
    )
    worker = Worker(client, task_queue="sched", workflows=[Noop])
    leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave.set)
    running = asyncio.create_task(worker.run())
    await leave.wait()
    plugin.drain()
    await worker.shutdown()
    await running


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
    os._exit(0)  # the SDK may abort at interpreter exit
