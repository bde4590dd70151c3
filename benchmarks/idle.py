"""What waiting costs as schedules grow: the tick, the process, and coming up.

*A tick*: the statements an idle tick sends to PostgreSQL, as PostgreSQL counts them, and its time
beside that of ``SELECT 1`` over the same kind of connection.

*A process*: a real ``sched worker`` without a file, so that it runs what the ledger holds, beside
a plain Temporal worker with the same workflow and without the engine, measured in the same
seconds: temporalio polls the server by itself, and that share is not the engine's. CPU is a share
of one core, after settling: the janitor looks after every schedule once when a worker comes up.
``PostgreSQL`` is that of the worker's sessions in the server.

*Coming up*: from the start of the process to the start of the first run. One schedule of the
ledger is due by then, the others are idle.
"""

from __future__ import annotations

from benchmarks.arena import arena, connected, postgres
from benchmarks.crowd import fill
from benchmarks.idle_tick import measure_tick
from benchmarks.idle_worker import measure_worker
from benchmarks.report import Measured, Row
from engine.ledger import Ledger

COUNTS, COUNTS_QUICK = (10, 10_000, 100_000), (10, 10_000)


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes about a minute for each count."""
    rows: list[Row] = []
    for count in COUNTS_QUICK if quick else COUNTS:
        async with postgres() as server, arena(server) as place:
            ledger = await Ledger.connect(place.database_url)
            try:
                async with connected(place.database_url) as connection:
                    await fill(ledger, connection, count)
            finally:
                await ledger.close()
            worker = await measure_worker(place, quick=quick)
            tick = await measure_tick(place.database_url)
            rows.append({"schedules": f"{count:,}", **tick, **worker})
    return Measured("idle", rows)
