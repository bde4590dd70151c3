"""`sched watch` tells a receiver what the fleet does not do, and when it does it again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.client import Client

from engine.ledger import Ledger
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from tests.acceptance.fleet import SCHED, Fleet
from tests.links import link_to
from tests.postgres import Postgres
from tests.receiver import Receiver
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEARTBEAT = 2.0
PAY = "{key: pay, workflow: noop, everyMs: 1000, grace: 1s}"
LONE = "{key: lone, workflow: noop, everyMs: 1000, grace: 1s, taskQueue: nowhere}"


@asynccontextmanager
async def watching(fleet: Fleet, **environment: str) -> AsyncIterator[Path]:
    """Run `sched watch` beside the fleet; yields the file that it prints to."""
    printed = fleet.folder / "watch.log"
    with printed.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            str(SCHED), "watch", cwd=fleet.folder, env={**fleet.environment, **environment},
            stdout=out, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield printed
    finally:
        process.send_signal(signal.SIGTERM)
        code = await process.wait()
    assert code == 0


async def declare(database_url: str, client: Client, *schedules: str) -> None:
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    await apply(ledger, load_schedules(f"schedules: [{', '.join(schedules)}]"), by="test")
    await ledger.close()


@pytest.mark.prove
async def test_a_fleet_that_is_gone_is_told_of_from_outside_and_so_is_its_return(
    fleet: Fleet, client: Client, database_url: str, postgres: Postgres
):
    receiver = Receiver()
    async with receiver.listening() as url, link_to(postgres.port) as link:
        settings = {
            "SCHED_HEARTBEAT": f"{HEARTBEAT:g}s",
            "SCHED_ALERT_URL": f"{url}/alerts",
            "SCHED_HEARTBEAT_URL": f"{url}/well",
            "SCHED_DATABASE_URL": link.way(database_url),
        }
        quiet = dict.fromkeys(("SCHED_ALERT_URL", "SCHED_HEARTBEAT_URL"), "")
        await declare(database_url, client, PAY, LONE)
        async with watching(fleet, **settings) as log:
            # The first message is refused, and sent again.
            message = await receiver.heard("open", "NOT_FIRED", cause="no_replica")
            assert receiver.refused[0]["dedupKey"] == message["dedupKey"]
            assert "2 schedules of project default have not fired (lone, pay)" in message["summary"]
            before = receiver.pings  # the first look may have been within the grace

            worker = await fleet.start(
                f"schedules: [{PAY}, {LONE}]", SCHED_HEARTBEAT=f"{HEARTBEAT:g}s", **quiet
            )
            over = await receiver.heard("resolved", "NOT_FIRED", cause="no_replica")
            assert over["dedupKey"] == message["dedupKey"]
            message = await receiver.heard("open", "NOT_FIRED", cause="task_queue_unserved")
            assert "lone has not fired" in message["summary"]
            assert receiver.pings == before

            await declare(database_url, client, PAY, LONE.replace("grace: 1s", "grace: 10h"))
            await receiver.heard("resolved", "NOT_FIRED", cause="task_queue_unserved")
            await eventually(lambda: receiver.pings > before, timeout=60)

            os.kill(worker.process.pid, signal.SIGKILL)
            await receiver.heard("open", "REPLICA_VANISHED")
            # The first one may have been sent twice, of both schedules.
            await receiver.heard("open", "NOT_FIRED", cause="no_replica", key="pay")
        printed = log.read_text()
        assert "SCHEDULE_REPLICA_VANISHED: replica" in printed
        assert "resolved: lone has not fired" in printed
        assert "SCHED_ALERT_URL: 127.0.0.1 answers 503; it is tried again" in printed
