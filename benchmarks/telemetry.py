"""Telemetry: what exporting metrics costs, in an idle tick and in a herd.

**Contestants.** The engine as shipped, with and without exporters. *With* means a meter provider
and Temporal's own metrics, and a scrape of ``/metrics`` every five seconds, three times as often as
is usual. *Without*, every measurement still takes place and goes nowhere.

**What is measured.** *idle tick*: the time of one turn of the poller on a ledger with 1,000 idle
schedules, the median of 300 turns; both contestants are in one process, and the provider is
scraped before each sample. *herd*: 500 schedules that are due at one instant and one worker, as in
``herd``: the last start after the instant, the 95th percentile of all, and the CPU time of the
worker from its own start to the last close. *lag*: one schedule of a
second, 40 windows in each round: the 95th percentile, over all rounds, of the time from the fire
time to the server's start time.

**Fairness.** Contestants take turns, and each begins every other round, so that what else happens
on the machine meets both alike. Each sample of a herd has a fresh Temporal server and a fresh
database. Ratios are of medians, that of *lag* of its percentiles. Target: at most 1.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from http.client import HTTPConnection

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.arena import Arena, arena, connected, postgres
from benchmarks.children import cpu_seconds, replicas
from benchmarks.contestants import NotReadyError, engine
from benchmarks.crowd import SERVING, fill
from benchmarks.idle_tick import idle_poller
from benchmarks.innocent import ENTRY, lags, until_fired
from benchmarks.report import Measured, Row
from benchmarks.runs import Herd
from benchmarks.spread import Spread, in_turn, kept, median
from engine.embedded import PostgresServer, free_port
from engine.ledger import Ledger
from engine.runtime.measurements import measure_statement
from engine.telemetry.instruments import use
from tests.postgres import Postgres

_IDLE, _TURNS = 1000, 300
_EVERY = 5
"""Seconds between two scrapes."""
_RUNS, _WINDOWS, _WINDOWS_QUICK = 500, 40, 3
ROUNDS, ROUNDS_QUICK = 5, 1
_WITHOUT, _WITH = "without", "with"
_LAG = "lag p95 ms"
_MOST_LEAD = 4


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes about 13 minutes, or about a minute when quick."""
    rounds = ROUNDS_QUICK if quick else ROUNDS
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with postgres() as server:
        for number in range(rounds):
            for who in in_turn(number, [_WITHOUT, _WITH]):
                for what, values in (await _sample(server, who, quick=quick)).items():
                    found[what][who] += values
        found["idle tick µs"] = await _ticks(server, rounds)
    return Measured("telemetry", [_row(what, both) for what, both in found.items()], kept(found))


def _row(what: str, both: dict[str, list[float]]) -> Row:
    summary = _p95 if what == _LAG else median
    without, with_them = summary(both[_WITHOUT]), summary(both[_WITH])
    return {
        "what": what,
        "without exporters": round(without, 3),
        "with": round(with_them, 3),
        "with / without": round(with_them / without, 2),
    }


def _p95(values: Sequence[float]) -> float:
    return Spread.of(values).p95


# --- herd and lag ---


async def _sample(server: PostgresServer, who: str, *, quick: bool) -> dict[str, Sequence[float]]:
    herd, cpu = await _herd(server, who)
    async with arena(server) as place, _exporting(who) as environment:
        late = await _lags(place, _WINDOWS_QUICK if quick else _WINDOWS, environment)
    return {
        "herd, all started s": [herd.started],
        "herd, lag p95 s": [_p95(herd.lags)],
        "herd, CPU s of the worker": [cpu],
        _LAG: late,
    }


async def _herd(server: PostgresServer, who: str) -> tuple[Herd, float]:
    """Take one sample; when the preparing took too long, again with more time for it."""
    lead, used = 1.0, [0.0]

    def at_end(processes: list[Process]) -> None:
        used[:] = [sum(cpu_seconds(each.pid) for each in processes)]

    while True:
        try:
            async with arena(server) as place, _exporting(who) as environment:
                herd = await engine(place, _RUNS, 1, lead, at_end=at_end, **environment)
                return herd, used[0]
        except NotReadyError:
            lead *= 2
            if lead > _MOST_LEAD:
                raise


async def _lags(place: Arena, windows: int, environment: dict[str, str]) -> Sequence[float]:
    file = place.folder / "schedules.yaml"
    file.write_text(f"schedules:\n  - {ENTRY}\n")
    async with replicas(place, 1, file, **environment):
        await until_fired(place.client)
        return (await lags(place.client, windows)).values


@contextlib.asynccontextmanager
async def _exporting(who: str) -> AsyncIterator[dict[str, str]]:
    """Yield the environment of the worker, and scrape it meanwhile."""
    if who == _WITHOUT:
        yield {}
        return
    port = free_port()
    scraping = asyncio.create_task(_scrape(port))
    try:
        yield {"SCHED_HTTP_PORT": str(port)}
    finally:
        scraping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await scraping


async def _scrape(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):  # it does not listen yet, or no more
            await asyncio.to_thread(_got, port)
        await asyncio.sleep(_EVERY)


def _got(port: int) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        connection.getresponse().read()
    finally:
        connection.close()


# --- ticks ---


async def _ticks(server: PostgresServer, rounds: int) -> defaultdict[str, list[float]]:
    """Return the medians of turns, in microseconds."""
    url = await Postgres(server.url_of("postgres")).create_database("telemetry_ticks")
    ledger = await Ledger.connect(url, connections=1, on_statement=measure_statement)
    found: defaultdict[str, list[float]] = defaultdict(list)
    try:
        async with connected(url) as connection:
            await fill(ledger, connection, _IDLE)
        poller = idle_poller(ledger)
        while (await ledger.probe(SERVING)).due_at is not None:  # one of them is due soon
            async with connected(url) as connection:
                await connection.execute("UPDATE positions SET due_at = NULL")
        for number in range(2 * rounds):
            for who in in_turn(number, [_WITHOUT, _WITH]):
                with _provided(who):
                    found[who].append(await _microseconds(poller.run_once))
    finally:
        await ledger.close()
    return found


@contextlib.contextmanager
def _provided(who: str) -> Iterator[None]:
    if who == _WITHOUT:
        use(None)
        yield
        return
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    provider = MeterProvider(
        [reader], exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False
    )
    use(provider)
    generate_latest(registry)
    try:
        yield
    finally:
        use(None)
        provider.shutdown()


async def _microseconds(call: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(_TURNS):
        begin = time.perf_counter()
        await call()
        times.append(time.perf_counter() - begin)
    return median(times) * 1e6
