"""One idle tick: what it asks, and its time beside the cheapest thing one can ask."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from benchmarks.arena import connected
from benchmarks.crowd import SERVING
from benchmarks.report import Row
from benchmarks.spread import median
from engine.ledger import Ledger
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.settings import Settings
from engine.runtime.tick.poller import Poller
from tests.blind import BLIND
from tests.waiting import eventually

_TICKS, _TURN = 300, 10
_COUNTED = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"


async def measure_tick(url: str) -> Row:
    """Tick an otherwise unused ledger whose schedules are all idle."""
    at_once = await _statements(url, 1)
    many = await _statements(url, 1 + _TICKS)
    ledger = await Ledger.connect(url, connections=1)
    try:
        async with connected(url) as connection:
            floor, tick = await _microseconds(
                lambda: connection.fetchval("SELECT 1"), idle_poller(ledger).tick
            )
    finally:
        await ledger.close()
    return {
        "statements a tick": round((many - at_once) / _TICKS, 2),
        "SELECT 1 µs": round(floor),
        "tick µs": round(tick),
        "tick / SELECT 1": round(tick / floor, 2),
    }


class _NoStarter:
    """Nothing is due, so nothing is sent: no tick may look for a starter."""

    async def ask(self) -> str | None:
        raise AssertionError("an idle tick asked for the server")


def idle_poller(ledger: Ledger) -> Poller:
    """Return a poller whose ledger has nothing due."""
    clock, settings = LedgerClock(), Settings()
    dispatcher = Dispatcher(ledger, _NoStarter(), clock, settings, on_event=print)  # type: ignore[arg-type]
    return Poller(ledger, dispatcher, clock, SERVING, settings, **BLIND)


async def _statements(url: str, ticks: int) -> int:
    """Transactions that so many ticks and their connection cost; each statement is one.

    PostgreSQL's sessions report at their end at the latest, so there must be none before.
    """
    address, _, name = url.rpartition("/")
    async with connected(f"{address}/postgres") as watcher:

        async def nobody_is_left() -> bool:
            return bool(await watcher.fetchval(_SESSIONS, name) == 0)

        await eventually(nobody_is_left)
        before: int = await watcher.fetchval(_COUNTED, name)
        ledger = await Ledger.connect(url, connections=1)
        poller = idle_poller(ledger)
        for _ in range(ticks):
            tick = await poller.tick()
            assert not tick.claims, "a schedule was due"
        await ledger.close()
        await eventually(nobody_is_left)
        after: int = await watcher.fetchval(_COUNTED, name)
        return after - before


async def _microseconds(*calls: Callable[[], Awaitable[object]]) -> list[float]:
    """Return the median time of each of the calls.

    They take turns, so that a processor whose speed changes changes it for all of them, and each
    turn is long enough to find its caches filled.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(_TICKS // _TURN):
        for call, found in zip(calls, times, strict=True):
            for _ in range(_TURN):
                begin = time.perf_counter()
                await call()
                found.append(time.perf_counter() - begin)
    return [median(found) * 1e6 for found in times]
