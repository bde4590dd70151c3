"""The herd: N schedules due at one instant, and how long until the last run has started.

**Contestants.**
*engine*: N cron schedules with one fire time, and R ``sched worker`` processes as shipped.
*native*: N native Schedules with the same fire time and R bare workers. The server is as shipped:
its limit of 30 scheduled starts a second and namespace is part of what a user of them gets.
*floor*: R bare workers, each of which starts its share of N runs in a bare loop, at the best of
8, 32 and 64 calls in flight over all of them. Nobody can start runs with less: no ledger, no
window, no memo, nothing written for readers.

**What is measured.** The zero hour is the schedules' fire time; the floor's is its first call.
Both are of this machine's clock. ``all started`` is the server's start time of the last run minus
the zero hour, ``lag`` the same for each run, ``all closed`` the close time of the last one. All
are read from the server afterwards. The engine's time thus includes waking up, deciding, and
writing every decision and outcome to PostgreSQL, which writes each commit to the disk; only
coming up and declaring the schedules lie before the zero hour, for native Schedules as well.

**Fairness.** Everybody has the same number of worker processes, in which the started runs (the
same trivial workflow, the same sandbox settings) are executed meanwhile: the floor's loop shares
its process with a worker, as the engine's poller does. Each sample has a fresh in-memory Temporal
server and a fresh database, since a used server is slower. Contestants take turns, so that what
else happens on the machine meets all alike. Ratios are of medians.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.arena import arena, postgres
from benchmarks.contestants import Contestant, NotReadyError, engine, floor, native
from benchmarks.report import Measured, Row
from benchmarks.runs import Herd
from benchmarks.spread import Spread, median
from engine.embedded import PostgresServer

COUNTS, COUNTS_QUICK = (200, 1000), (200,)
WORKERS, WORKERS_QUICK = (1, 4), (1,)
SAMPLES, SAMPLES_QUICK = 5, 1
CONCURRENCIES = (8, 32, 64)
_MOST_LEAD = 4
_FLOORS: dict[str, Contestant] = {f"floor {number}": floor(number) for number in CONCURRENCIES}
_CONTESTANTS: dict[str, Contestant] = {**_FLOORS, "engine": engine, "native": native}


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes about half an hour, or about a minute when quick."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    async with postgres() as server:
        for count in COUNTS_QUICK if quick else COUNTS:
            for workers in WORKERS_QUICK if quick else WORKERS:
                found = await _rounds(server, count, workers, SAMPLES_QUICK if quick else SAMPLES)
                rows += _rows(count, workers, found)
                for name, herds in found.items():
                    samples[f"{count} runs, {workers} workers, {name}"] = [
                        round(herd.started, 3) for herd in herds
                    ]
    return Measured("herd", rows, samples)


async def _rounds(
    server: PostgresServer, count: int, workers: int, rounds: int
) -> dict[str, list[Herd]]:
    found: dict[str, list[Herd]] = {name: [] for name in _CONTESTANTS}
    for _ in range(rounds):
        for name, contestant in _CONTESTANTS.items():
            found[name].append(await _sample(server, contestant, count, workers))
    return found


async def _sample(server: PostgresServer, contestant: Contestant, count: int, workers: int) -> Herd:
    """Take one sample; when the preparing took too long, again with more time for it."""
    lead = 1.0
    while True:
        try:
            async with arena(server) as place:
                return await contestant(place, count, workers, lead)
        except NotReadyError:
            lead *= 2
            if lead > _MOST_LEAD:
                raise


def _rows(count: int, workers: int, found: dict[str, list[Herd]]) -> list[Row]:
    best = min(_FLOORS, key=lambda name: _started(found[name]))
    floor_time, native_time = _started(found[best]), _started(found["native"])
    rows: list[Row] = []
    for name in (best, "engine", "native"):
        herds = found[name]
        lags = [Spread.of(herd.lags) for herd in herds]
        started = _started(herds)
        rows.append(
            {
                "runs": count,
                "workers": workers,
                "who": {"engine": "sched-engine", "native": "native Schedules"}.get(
                    name, f"{name} calls in flight"
                ),
                "all started s": round(started, 2),
                "lag p50 s": round(median(lag.p50 for lag in lags), 2),
                "lag p95 s": round(median(lag.p95 for lag in lags), 2),
                "all closed s": round(median(herd.closed for herd in herds), 2),
                "/ floor": round(started / floor_time, 2),
                "native /": round(native_time / started, 1),
            }
        )
    return rows


def _started(herds: Sequence[Herd]) -> float:
    return median(herd.started for herd in herds)
