"""A Temporal worker without the scheduler, and a bare loop that starts runs: the floor.

    python -m benchmarks.bare_worker ADDRESS TASK_QUEUE

It says ``> ready`` when it takes work. Each line it is then given,
``PREFIX COUNT CONCURRENCY PAUSE``, makes it start that many runs as fast as the concurrency
allows; it answers with the wall-clock time of its first call. What the server refuses as too many
is called again after PAUSE ms; with 0 that is left to the SDK. It ends with its input. The
workflow, the id policy, the sandbox settings and the connection of their own that starts go
through are the engine's.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from itertools import count

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from benchmarks.workflows import TYPE, Noop
from engine.runtime.dispatch.starter import patient_client


async def start_run(client: Client, workflow_id: str, task_queue: str) -> None:
    """Start one run as the engine does, with nothing for a reader in it."""
    await client.start_workflow(
        TYPE,
        id=workflow_id,
        task_queue=task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
    )


async def _insist(client: Client, workflow_id: str, task_queue: str, pause: float) -> None:
    while True:
        try:
            await start_run(client, workflow_id, task_queue)
        except RPCError as error:
            if not pause or error.status != RPCStatusCode.RESOURCE_EXHAUSTED:
                raise
            await asyncio.sleep(pause)
        else:
            return


async def _start_runs(client: Client, task_queue: str, order: str) -> float:
    prefix, wanted, concurrency, pause = order.split()
    numbers = count()
    if int(pause):
        client = await patient_client(client)

    async def starter() -> None:
        while (number := next(numbers)) < int(wanted):
            await _insist(client, f"{prefix}{number}", task_queue, int(pause) / 1000)

    began = time.time()
    await asyncio.gather(*(starter() for _ in range(int(concurrency))))
    return began


async def _main(address: str, task_queue: str) -> None:
    restrictions = SandboxRestrictions.default.with_passthrough_modules("engine")
    starting = await Client.connect(address)
    worker = Worker(
        await Client.connect(address),
        task_queue=task_queue,
        workflows=[Noop],
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
    )
    async with worker:
        print(">", "ready", flush=True)
        while order := await asyncio.to_thread(sys.stdin.readline):
            print(">", await _start_runs(starting, task_queue, order), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
    os._exit(0)  # the SDK may abort at interpreter exit
