"""The database's clock is set while a replica works: it holds, says so, and goes on later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest
from temporalio.worker import Worker

from engine.errors import Code
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.events import Alert, Decided, Event, Recovered, Settled
from engine.runtime.watch.watch import WatchProcess
from engine.schedules import load_schedules
from tests.sample_workflows import Noop
from tests.waiting import eventually

PULSE = "schedules: [{key: pulse, workflow: noop, everyMs: 1000}]"
AGREES_FOR = 4.0
HEARTBEAT = timedelta(seconds=1)
HOUR = timedelta(hours=1)


class Clock:
    """The clock of one database, which can be set: every database has functions of its own."""

    def __init__(self, database: asyncpg.Connection) -> None:
        self.database = database

    async def install(self) -> None:
        await self.database.execute(
            """
            SET allow_system_table_mods = on;
            CREATE TABLE public.clock AS SELECT interval '0' AS ahead;
            ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO real_clock_timestamp;
            CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz
                LANGUAGE sql VOLATILE
                RETURN pg_catalog.real_clock_timestamp() + (SELECT ahead FROM public.clock);
            """
        )

    async def step(self, by: timedelta) -> None:
        await self.database.execute("UPDATE public.clock SET ahead = ahead + $1", by)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def clock(database: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr("engine.runtime.clock._MINUTE", AGREES_FOR)
    made = Clock(database)
    await made.install()
    return made


class Watched:
    def __init__(self, database: asyncpg.Connection, ledger: Ledger) -> None:
        self.database, self.ledger = database, ledger
        self.told: list[Event] = []

    async def fired(self) -> list[asyncpg.Record]:
        return await self.database.fetch("SELECT * FROM sched.fires ORDER BY id")

    async def cursor(self) -> object:
        return await self.database.fetchval("SELECT cursor FROM sched.positions")

    async def until(self, count: int) -> None:
        async def so_many() -> bool:
            return len(await self.fired()) >= count

        await eventually(so_many, timeout=30, every=0.1)

    async def alarmed(self, times: int) -> None:
        def alarms() -> bool:
            codes: list[str] = [event.code for event in self.told if isinstance(event, Alert)]
            return codes.count("SCHEDULE_CLOCK_SKEW") == times

        await eventually(alarms)

    async def goes_on(self, times: int) -> None:
        await eventually(
            lambda: self.told.count(Recovered("clock")) == times, timeout=AGREES_FOR + 20
        )


@pytest.fixture
async def watched(client, database_url, clock, database) -> AsyncIterator[Watched]:
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    made = Watched(database, ledger)
    plugin = SchedulePlugin(
        load_schedules(PULSE), database_url=database_url, on_event=made.told.append,
        settings=Settings(heartbeat=HEARTBEAT),
    )  # fmt: skip
    async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):
        await made.until(3)
        yield made
    await ledger.close()


async def test_a_clock_set_an_hour_forward_fires_nothing_until_it_agrees(clock, watched):
    await clock.step(HOUR)
    await watched.alarmed(1)
    held = {row["bucket"] for row in await watched.fired()}
    await watched.goes_on(1)
    alarm = next(event for event in watched.told if isinstance(event, Alert))
    meanwhile = watched.told[watched.told.index(alarm) : watched.told.index(Recovered("clock"))]
    assert not [event for event in meanwhile if isinstance(event, Decided)]
    settled = {event.claim.bucket for event in meanwhile if isinstance(event, Settled)}
    assert settled <= held, "fired although the clock was wrong"
    await watched.until(len(held) + 3)
    keys = [(row["series"], row["fire_time"]) for row in await watched.fired()]
    assert len(set(keys)) == len(keys)


async def test_a_watch_names_the_clock_as_the_cause_and_takes_no_worker_for_dead(
    client, database_url, clock, watched
):
    told: list[Event] = []

    async def connected():
        return client

    alone = WatchProcess(
        database_url, Settings(heartbeat=HEARTBEAT),
        namespace=client.namespace, schema="sched", connect=connected, on_event=told.append,
    )  # fmt: skip
    looking = asyncio.create_task(alone.run())
    # Its clock has to agree for a while before a step can be seen.
    await eventually(lambda: bool(alone.looks >= 3))
    await clock.step(HOUR)

    def found() -> bool:
        alerts = [event for event in told if isinstance(event, Alert)]
        held = [each for each in alerts if "workers start nothing: the ledger's clock" in each.text]
        assert {each.code for each in alerts} <= {Code.NOT_FIRED}, alerts
        return bool(held)

    await eventually(found)
    alone.stop()
    await looking


@pytest.mark.prove
async def test_a_clock_set_an_hour_back_moves_no_cursor_back_and_fires_no_window_again(
    clock, watched
):
    await clock.step(-HOUR)
    await watched.alarmed(1)
    held, cursor = await watched.fired(), await watched.cursor()
    await watched.goes_on(1)
    assert len(await watched.fired()) == len(held)
    assert await watched.cursor() == cursor
    await clock.step(HOUR)
    await watched.alarmed(2)
    await watched.goes_on(2)
    await watched.until(len(held) + 3)
    buckets = [row["bucket"] for row in await watched.fired()]
    assert len(set(buckets)) == len(buckets)
