"""A team with a codec, and a worker of others that tracks its runs without the codec."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from engine.flow import MEMO_KEY
from tests.acceptance.fleet import Books, Fleet
from tests.acceptance.test_operating import Operator
from tests.encrypted_team import MARKER, setup
from tests.waiting import eventually

pytestmark = pytest.mark.prove

TEAM = f"""
project: team
schedules:
  - {{key: open, workflow: sealed-open, taskQueue: team, everyMs: 86400000, input: {MARKER}}}
  - {{key: left, workflow: sealed-left, taskQueue: team, everyMs: 86400000, input: {MARKER},
     onDead: sealed-dead}}
  - {{key: echo, workflow: sealed-echo, taskQueue: team, everyMs: 86400000, firstFire: next,
     input: [{MARKER}]}}
"""
OTHERS = "{project: others, schedules: [{key: tick, workflow: noop, everyMs: 1000}]}"
SETUP = {"SCHED_SETUP": "tests.encrypted_team:setup"}
HOLDER = (
    "SELECT holder FROM sched.duties WHERE duty = 'tracker:1' AND expires_at > clock_timestamp()"
)


async def everything(connection: asyncpg.Connection) -> str:
    """Every column of every row of the ledger, as text."""
    names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'sched'")
    rows = [await connection.fetch(f"SELECT t::text FROM sched.{name} t") for (name,) in names]
    return str(rows)


async def requests(operator: Operator, fleet: Fleet) -> tuple[tuple[int, str, str], str]:
    """Ask for a run with an input, without the codec and with it; read what is printed of inputs.

    Returns the answer without the codec, and the id of the run.
    """
    asks = ("trigger", "echo", "--request-id", "1", "--input", json.dumps(MARKER))
    refused = await operator.sched(*asks)
    assert MARKER not in json.dumps(shown := await operator.did("show", "echo"))
    assert shown["definition"]["input"] == "sealed"
    fleet.environment |= SETUP
    assert (await operator.did("show", "echo"))["definition"]["input"] == [MARKER]
    assert MARKER in (await operator.sched("dead", "show", "left", await bucket(operator)))[1]
    run = (await operator.did(*asks))["fire"]["workflowId"]
    await operator.closed(run)
    return refused, run


async def bucket(operator: Operator) -> str:
    """The window of the dead letter."""
    return str((await operator.did("dead", "list", "left"))[0]["bucket"])


async def test_a_replica_without_the_codec_loses_no_run_and_leaves_what_it_cannot_read_to_others(
    fleet: Fleet, books: Books, client: Client, database_url: str, tmp_path: Path
):
    others = await fleet.start(OTHERS)
    connection = await asyncpg.connect(database_url)
    await books.until_fired(["tick"], 1, timeout=60)

    async def tracks() -> bool:
        return str(others.process.pid) in (await connection.fetchval(HOLDER) or "")

    await eventually(tracks, timeout=30)  # the replica without the codec has the duty
    team = {"SCHED_IMPORTS": "tests.encrypted_team", "SCHED_TASK_QUEUE": "team", **SETUP}
    await fleet.start(TEAM, **team)
    await books.until_fired(["open", "left"], 1, timeout=60)

    async def fires(key: str) -> dict[str, asyncpg.Record]:
        return {row["workflow_id"]: row for row in await books.fires() if row["key"] == key}

    (name,) = await fires("open")
    run = client.get_workflow_handle(name)

    async def has_charged() -> bool:
        return "EVENT_TYPE_ACTIVITY_TASK_COMPLETED" in (await run.fetch_history()).to_json()

    await eventually(has_charged, timeout=30)
    await run.terminate("by hand")

    async def is_undone() -> bool:
        undone = (await fires("open")).get(f"{name}:undo")
        return undone is not None and undone["status"] == "completed"

    await eventually(is_undone, timeout=90, every=0.2)

    async def left() -> str | None:
        query = "SELECT not_undone::text FROM sched.fires WHERE key = 'left' AND kind = 'window'"
        found: str | None = await connection.fetchval(query)
        return found

    await eventually(left, timeout=60, every=0.2)
    assert json.loads(await left() or "[]")[0]["step"] == "sealed-charge"
    assert fleet.logged("ERROR sched SCHEDULE_UNREADABLE_HERE") == 1, "reported once"
    assert not fleet.logged("SCHEDULE_RUN_LOST")

    async def is_told() -> bool:
        told = [row for run, row in (await fires("left")).items() if run.endswith(":dead")]
        return bool(told) and told[0]["status"] == "completed"

    await eventually(is_told, timeout=60, every=0.2)
    operator = Operator(fleet)
    (code, _, told), started = await requests(operator, fleet)
    assert (code, told.count("SCHEDULE_INPUTS_SEALED")) == (2, 1)
    reader = await Client.connect(
        client.service_client.config.target_host, namespace=client.namespace,
        **setup().client_options(),
    )  # fmt: skip
    assert await reader.get_workflow_handle(started).result() == MARKER
    dead = next(run for run in await fires("left") if run.endswith(":dead"))
    assert await reader.get_workflow_handle(dead).result() == MARKER, "the handler's input"
    assert MARKER not in await everything(connection)

    names = (name, f"{name}:undo", *await fires("left"), *await fires("echo"))
    assert len(names) == 5, "with the handler and the request"
    for each in names:
        handle = client.get_workflow_handle(each)
        assert MARKER not in (await handle.fetch_history()).to_json()
        memo = (await handle.describe()).raw_info.memo.fields[MEMO_KEY]
        assert memo.metadata["encoding"] == b"json/plain"
    out = str(tmp_path / "out")
    code, told, _ = await operator.sched(
        "history", "export", name, "--out", out, "--setup", SETUP["SCHED_SETUP"]
    )
    assert (code, told.splitlines()[-1]) == (0, f"1 run written to {out}")
    await connection.close()
