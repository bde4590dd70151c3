"""How late one schedule fires: the engine, a native Schedule, and the bare call.

All three share one fresh in-memory Temporal server for the whole measurement and take turns
within every second, so that none is measured in the other's shadow: the native Schedule fires at
the full second (finer it cannot), the bare call goes out a third later, the engine's window opens
two thirds after it. The engine fires
every second; it is one ``sched worker`` with its default settings beside a PostgreSQL that writes
every commit to the disk. The native Schedule fires every other second and has one bare worker: at
one a second it falls behind and its lag drifts through the whole second, which is measured apart,
on a server of its own, and not compared with. The bare call is made by this process, which does
nothing else.

The lag of a run is the server's own start time minus the fire time. The bare call's number is
its round trip, of the same request that the engine sends less what is written for readers.
The first ``_WARM_UP`` of each are left out: connections, caches and code paths are new then.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from temporalio.client import Client, WorkflowExecution
from temporalio.common import SearchAttributeKey

from benchmarks.arena import Arena, arena, postgres
from benchmarks.bare_worker import start_run
from benchmarks.children import bare_workers, replicas
from benchmarks.native import create_interval
from benchmarks.report import Measured, Row
from benchmarks.spread import Spread
from tests.waiting import eventually

SAMPLES, SAMPLES_QUICK = 60, 15
_WARM_UP = 5
_CALL_AT = 0.333
_FILE = "schedules: [{key: lag, workflow: bare, everyMs: 1000, offsetMs: 667}]"
_FIRE_TIME = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
"""Both the engine and native Schedules tell it to the run."""


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes a little more than three seconds a sample."""
    wanted = SAMPLES_QUICK if quick else SAMPLES
    async with postgres() as server:
        async with arena(server) as place:
            samples = await _together(place, wanted)
        async with arena(server) as place:
            samples["native, each second"] = await _native_each_second(place, wanted)
    spreads = {name: Spread.of(values) for name, values in samples.items()}
    engine, native, bare = (spreads[name].p50 for name in ("engine", "native", "bare call"))
    rows = [
        _row("bare start call, each second: round trip", spreads["bare call"]),
        _row("native Schedule, each second", spreads["native, each second"]),
        _row("native Schedule, every other second", spreads["native"]),
        {
            **_row("sched-engine, each second", spreads["engine"]),
            "p50 / native": round(engine / native, 2),
            "p50 / bare call": round(engine / bare, 2),
        },
    ]
    return Measured("lag", rows, samples)


def _row(who: str, lag: Spread) -> Row:
    return {
        "who": who,
        "p50 ms": round(lag.p50, 1),
        "p95 ms": round(lag.p95, 1),
        "max ms": round(lag.max, 1),
        "p50 / native": "",
        "p50 / bare call": "",
    }


async def _together(place: Arena, wanted: int) -> dict[str, list[float]]:
    """Return milliseconds by contestant."""
    file = place.folder / "schedules.yaml"
    file.write_text(_FILE)
    client = place.client
    async with bare_workers(place, 1), replicas(place, 1, file):
        await create_interval(client, "native-lag", timedelta(seconds=2), "bare")
        await _until_fired(client, "sched:lag:")
        trips = [await _round_trip(client, number) for number in range(2 * (wanted + _WARM_UP))]
        await asyncio.sleep(1)
        engine, native = [await _lags(client, name) for name in ("sched:lag:", "native-lag")]
    samples = {"engine": engine, "native": native, "bare call": trips}
    return {name: values[_WARM_UP:] for name, values in samples.items()}


async def _native_each_second(place: Arena, wanted: int) -> list[float]:
    async with bare_workers(place, 1):
        await create_interval(place.client, "native-lag", timedelta(seconds=1), "bare")
        await asyncio.sleep(wanted + _WARM_UP + 2)
        return (await _lags(place.client, "native-lag"))[_WARM_UP:]


async def _until_fired(client: Client, prefix: str) -> None:
    """Wait until the engine is up; the native schedule fires from its creation on."""
    await eventually(lambda: _runs(client, prefix), timeout=60, every=0.5)


async def _round_trip(client: Client, number: int) -> float:
    """Wait for this contestant's moment of the second, and time one call in milliseconds."""
    await asyncio.sleep((_CALL_AT - time.time()) % 1)
    begin = time.perf_counter()
    await start_run(client, f"bare-{number}", "bare")
    return (time.perf_counter() - begin) * 1000


async def _lags(client: Client, prefix: str) -> list[float]:
    """Milliseconds from the fire time to the server's start time, in order of fire times."""
    runs = await _runs(client, prefix)
    by_fire_time = {
        run.typed_search_attributes[_FIRE_TIME]: run.start_time.timestamp() for run in runs
    }
    assert len(by_fire_time) == len(runs), "a window ran twice"
    return [(by_fire_time[fire] - fire.timestamp()) * 1000 for fire in sorted(by_fire_time)]


async def _runs(client: Client, prefix: str) -> list[WorkflowExecution]:
    query = f"WorkflowId STARTS_WITH '{prefix}'"
    return [run async for run in client.list_workflows(query, page_size=1000)]
