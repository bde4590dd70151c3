"""One ledger and two Temporal servers: nothing starts at one that the ledger does not belong to."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime

import asyncpg
import pytest
from temporalio.client import Client

from engine.schedules import load_schedules
from tests.acceptance.fleet import Books, Fleet, Replica, windows_between
from tests.acceptance.home import Home
from tests.links import link_to
from tests.servers import Temporal, register_namespace
from tests.waiting import eventually

FILE = """
schedules:
  - {key: tick, workflow: noop, everyMs: 1000}
  - {key: slow, workflow: sleeps, everyMs: 1000, overlap: skip}
"""
MANY = "schedules:\n" + "\n".join(
    f"  - {{key: move-{n:02}, workflow: noop, everyMs: 1000, offsetMs: {n * 20}}}"
    for n in range(10)
)
REFUSED = "SCHEDULE_BOUND_ELSEWHERE: the ledger belongs to the namespace "


@pytest.fixture
async def elsewhere(native_temporal: Temporal, namespace: str) -> Client:
    """A client of another server, which has a namespace of the same name."""
    await register_namespace(await Client.connect(native_temporal.address), namespace)
    return await Client.connect(native_temporal.address, namespace=namespace)


async def runs_of(client: Client) -> set[str]:
    return {run.id async for run in client.list_workflows('WorkflowId STARTS_WITH "sched:"')}


async def test_a_worker_of_another_cluster_is_refused_before_it_claims_anything(
    fleet: Fleet, books: Books, native_temporal: Temporal, elsewhere: Client
):
    first = await fleet.start(FILE)
    await books.until_fired(["tick", "slow"], 1, timeout=60)
    stranger = await fleet.start(FILE, TEMPORAL_ADDRESS=native_temporal.address)
    assert await stranger.gone() == 2
    assert REFUSED in stranger.log.read_text()
    assert "`sched move`" in stranger.log.read_text()
    seen = len(await books.fires())
    await eventually(lambda: first.process.returncode is None)
    await books.until_fired(["tick"], seen, timeout=60)
    assert {row["replica"] for row in await books.fires() if row["run_id"]} == {
        (await books.fires())[0]["replica"]
    }
    assert await runs_of(elsewhere) == set()


@pytest.mark.parametrize("after", ["an outage", pytest.param("no outage", marks=pytest.mark.prove)])
async def test_a_worker_whose_address_leads_to_another_cluster_stops_and_loses_no_run(
    after: str,
    fleet: Fleet,
    books: Books,
    temporal: Temporal,
    native_temporal: Temporal,
    elsewhere: Client,
):
    async with link_to(temporal.port) as link:
        worker = await fleet.start(
            FILE, TEMPORAL_ADDRESS=link.way(temporal.address), SCHED_HEARTBEAT="500ms"
        )
        await books.until_fired(["tick", "slow"], 1, timeout=60)
        with link.harmed("cut"):
            if after == "an outage":
                await eventually(lambda: "unreachable" in worker.log.read_text(), timeout=60)
            link.target = native_temporal.port
        assert await worker.gone() == 2
    assert REFUSED in worker.log.read_text()
    assert "SCHEDULE_RUN_LOST" not in worker.log.read_text()
    if after == "an outage":
        assert await runs_of(elsewhere) == set()


async def test_a_worker_goes_on_with_the_ledger_where_its_temporal_is_once_it_was_moved(
    fleet: Fleet, books: Books, native_temporal: Temporal, elsewhere: Client
):
    first = await fleet.start(FILE)
    await books.until_fired(["tick", "slow"], 1, timeout=60)
    first.send(signal.SIGKILL)
    await first.gone()
    fleet.environment["TEMPORAL_ADDRESS"] = native_temporal.address
    code, printed = await fleet.sched("move", "--old-is-gone")
    assert code == 0, printed
    assert f"cluster active at {native_temporal.address}: windows start here since" in printed
    (slow,) = [row for row in await books.fires() if row["key"] == "slow" and row["run_id"]]
    assert slow["lost_at"] is not None, "its end is unknown, and it stands in no window's way"
    before = {row["workflow_id"] for row in await books.fires()}
    await fleet.start(FILE)
    await books.until_fired(["tick", "slow"], 2, timeout=60)
    assert "started" not in {
        row["status"] for row in await books.fires() if row["workflow_id"] in before
    } - {"started"}
    assert not before & await runs_of(elsewhere), "no window runs twice"


async def killed_and_replaced(fleet: Fleet, killed: Replica, address: str) -> Replica:
    killed.send(signal.SIGKILL)
    await killed.gone()
    return await fleet.start(MANY, TEMPORAL_ADDRESS=address, SCHED_LEASE="3s")


@pytest.mark.prove
@pytest.mark.timeout(180)
async def test_a_move_under_load_runs_each_window_once_over_both_while_each_worker_is_killed(
    fleet: Fleet,
    books: Books,
    database: asyncpg.Connection,
    temporal: Temporal,
    native_temporal: Temporal,
    elsewhere: Client,
):
    keys = [schedule.key for schedule in load_schedules(MANY).schedules]
    old = await fleet.start(MANY, SCHED_LEASE="3s")
    await books.until_fired(keys, 2, timeout=90)
    fleet.environment["TEMPORAL_ADDRESS"] = native_temporal.address
    code, printed = await fleet.sched("move")
    assert code == 0, printed
    old = await killed_and_replaced(fleet, old, temporal.address)
    new = await fleet.start(MANY, SCHED_LEASE="3s")
    moved_at = datetime.now(UTC)
    await books.until_fired(keys, 1, since=moved_at, timeout=90)
    new = await killed_and_replaced(fleet, new, native_temporal.address)
    until = await books.until_owed_settled(keys)

    async def nothing_open() -> bool:
        _, moved = await fleet.sched("move", "--json")
        return all(each["open"] == 0 for each in json.loads(moved)["bindings"])

    await eventually(nothing_open, timeout=60, every=1)
    for replica in (old, new):
        replica.send(signal.SIGTERM)
        assert await replica.gone() == 0

    async def agree() -> list[asyncpg.Record]:
        there = Books(database, elsewhere)
        runs = await books.runs() + await there.runs()
        rows = await books.fires()
        assert set(runs.values()) == {1}, [each for each in runs.items() if each[1] > 1]
        assert set(runs) == {row["workflow_id"] for row in rows if row["run_id"]}
        return [row for row in rows if row["fire_time"] < until]

    rows = await eventually(agree, timeout=60, every=0.5)
    for schedule in load_schedules(MANY).schedules:
        fired = [row["fire_time"] for row in rows if row["key"] == schedule.key and row["run_id"]]
        assert fired == windows_between(schedule, fired[0], fired[-1]), schedule.key
    late = "SELECT count(*) FROM fires WHERE binding = 1 AND decided_at > $1"
    assert await database.fetchval(late, moved_at) == 0, "the old workers claim nothing more"
    assert await database.fetchval("SELECT count(*) FROM fires WHERE binding = 1") > 0
    assert fleet.logged("the ledger was moved to another Temporal namespace") >= 1


@pytest.mark.prove
async def test_sched_up_goes_on_with_a_temporal_whose_file_was_deleted(home: Home):
    await home.up()
    await home.until_fired("heartbeat", 1)
    assert await home.stop() == 0
    (home.folder / ".sched" / "temporal.db").unlink()
    await home.up()
    await eventually(lambda: "Temporal has begun anew, the ledger goes on" in home.log)
    await home.until_fired("heartbeat", 2)
    assert await home.stop() == 0
