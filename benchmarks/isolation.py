"""The lag of an innocent schedule of one second, alone and beside each trouble of others.

The lag is the server's start time of the run minus the fire time. Each trouble has a fleet of its
own (one ``sched worker`` as shipped, because with two the other one would hide a trouble; a
database whose commits reach the disk; a fresh Temporal server, since a used one is slower), on
which the innocent is watched alone first, then beside the trouble. The rival is itself: beside it
p95 may be twice the alone one and 50 ms more. A window without a run ten seconds after the last
one counts as if it had started then, and breaks the promise in any case.

**The troubles** (see ``benchmarks.troubles``):
*backfill*: `sched backfill --overlap allow` of three days of another schedule. It is watched while
the first windows start: all 259,200 would take a dev server half an hour. How many are laid on each
of the three days is measured by ``backfill``. Nothing executes these runs: in the worker's own
process they would compete with it for the CPU, as any runs do.
*queue*: a schedule whose run nobody executes, and 100,000 windows that wait for it.
*look*: each describe of a run that stands in the way of its next windows is lost on the link to
Temporal, so that it ends with the caller's patience.
*catch-up*: 110 schedules of one second after an outage of 75 s. The link to Temporal takes
100 ms in each direction, alone as well. The innocent was paused meanwhile and owes nothing.
*inputs*: 100 one-shots with an input of 50 KB are due at one moment, each 20 s.
*one-shots*: 10,000 one-shots are due at one moment, of another tenant; *one-shots-untold*: of the
same one, in the sense that neither names a tenant. Nobody executes their runs.
*failing*: 50 schedules of one second, all runs of which fail, watched from the second minute on.
*closes*: the same, but of the innocent's closes until they are recorded; then a second more is
allowed. *closes-far*: also that, while 1,000 runs fail at one moment, over a link of 300 ms.
*plan*: a definition in the ledger that no plan can be made of.
*hooks*: receivers that hang, answer byte by byte, with 50 MB in gzip, a redirect, 410, 429 or 500,
refuse each end of a run, or have gone. Here the lag is that of a healthy receiver: from the fire
time to the arrival of the ``arrived`` event. All ten get two events a second.
*snapshot*: an idle reader keeps a snapshot for 30 minutes, while 1,000 other schedules fire each
second; the last minute is watched. Two cores carry no server that starts so many runs, so the
two workers answer all starts but the innocent's themselves, alone as well
(``benchmarks.costless``). In half an hour the machine itself may become another: a virtual one that
has worked for long gets less of its cores. So the innocent is watched alone once more, two minutes
after the transaction has ended, and the slower one of both is compared.

PostgreSQL has the buffers and the room for its log that it has by default, and not those of a
development box as in ``sched up``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from functools import partial

from benchmarks import innocent
from benchmarks.arena import arena, connected, postgres
from benchmarks.innocent import Lags
from benchmarks.link import link
from benchmarks.receivers import HEALTHY, receiving
from benchmarks.report import Measured, Row
from benchmarks.troubles import TROUBLES, RpcFailure, Scene, runs_end
from engine.embedded import PostgresServer

SAMPLES, SAMPLES_QUICK = 60, 20
_WARM_UP = 5
_TIMES, _MORE_MS, _MORE_MS_OF_CLOSES = 2, 50, 1000
_AS_SHIPPED = {"shared_buffers": "128MB", "min_wal_size": "80MB", "max_wal_size": "1GB"}


async def run(*, quick: bool = False, only: str | None = None) -> Measured:
    """Measure; takes nearly an hour, half of it the open transaction."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    async with postgres(**_AS_SHIPPED) as server:
        for name in [only] if only else TROUBLES:
            trouble = TROUBLES[name]
            alones, beside = await _sample(server, trouble, quick=quick)
            more = _MORE_MS_OF_CLOSES if trouble.closes else _MORE_MS
            alone = max(alones, key=lambda lags: lags.spread.p95)
            rows.append(_row(trouble.title, alone, beside, more))
            print(f"{name}: {rows[-1]}", file=sys.stderr, flush=True)  # the rest takes long
            for each, when in zip(alones, ("alone", "alone again"), strict=False):
                samples[f"{name}, {when}"] = [*each.values]
            samples[f"{name}, beside"] = [*beside.values]
    return Measured("isolation", rows, samples)


async def _sample(
    server: PostgresServer, trouble: RpcFailure, *, quick: bool
) -> tuple[list[Lags], Lags]:
    count = SAMPLES_QUICK if quick else SAMPLES
    async with (
        arena(server) as place,
        link(place.address, one_way=trouble.one_way, loses=trouble.loses) as address,
        connected(place.database_url) as connection,
        receiving() as receivers,
    ):
        behind_link = dataclasses.replace(place, address=address)
        of = trouble.replicas, trouble.costless, count, quick, receivers
        scene = Scene(behind_link, connection, *of)
        lags = receivers.lags if trouble.hooked else partial(innocent.lags, place.client)
        if trouble.closes:
            lags = partial(innocent.closes, connection)
        scene.head = receivers.head([HEALTHY]) if trouble.hooked else ""
        scene.declare(*trouble.alone)
        try:
            await scene.start()
            await innocent.until_fired(place.client)
            async with runs_end(scene):
                await lags(_WARM_UP)
                alones = [await lags(count)]
                async with trouble.lasting(scene):
                    beside = await lags(count)
                if trouble.again is not None:
                    await asyncio.sleep(10 if quick else trouble.again)
                    alones.append(await lags(count))
                return alones, beside
        finally:
            await scene.stop()


def _row(title: str, alone: Lags, beside: Lags, more: float) -> Row:
    limit = _TIMES * alone.spread.p95 + more
    kept = not alone.missing and not beside.missing and beside.spread.p95 <= limit
    return {
        "beside": title,
        "alone p50 ms": round(alone.spread.p50),
        "alone p95 ms": round(alone.spread.p95),
        "beside p50 ms": round(beside.spread.p50),
        "beside p95 ms": round(beside.spread.p95),
        "without a run": beside.missing,
        "limit p95 ms": round(limit),
        "kept": "yes" if kept else "no",
    }
