"""Windows that `overlap: skip` leaves out beside runs that fail, and beside sound ones.

Twelve schedules of one second on one worker; each run has three steps and takes about half a
second. In the second round each seventh run fails. A run that has failed is not open any more: it
may cost no window more than a sound one does, but for two of sixty, since it is looked at longer.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from benchmarks.arena import arena, connected, postgres
from benchmarks.children import replicas
from benchmarks.report import Measured, Row
from tests.waiting import eventually

SCHEDULES, SECONDS, SECONDS_QUICK = 12, 60, 20
_WARM_UP, _SETTLES = 10.0, 3.0
_MORE = 2 / 60
_OF_KEYS = """
SELECT count(*) AS windows, count(*) FILTER (WHERE status = 'skipped') AS skipped,
       percentile_cont(0.95) WITHIN GROUP (
           ORDER BY extract(epoch FROM started_at - fire_time)) AS late
FROM fire_history WHERE fire_time >= $1 AND fire_time < $2 GROUP BY key
"""


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes three minutes."""
    seconds = SECONDS_QUICK if quick else SECONDS
    worst, rows = list[float](), list[Row]()
    for title, fails in (("sound", "false"), ("each seventh fails", "true")):
        keys = await _round(fails, seconds)
        worst.append(max(skipped / windows for windows, skipped, _ in keys))
        rows.append(
            {
                "runs": title,
                "skipped of the worst schedule": f"{worst[-1]:.0%}",
                "skipped of all": f"{sum(key[1] for key in keys)} of {sum(key[0] for key in keys)}",
                "worst p95 ms": round(max(late for *_, late in keys) * 1000),
                "kept": "yes" if worst[-1] <= worst[0] + _MORE else "no",
            }
        )
    return Measured("skips", rows)


async def _round(fails: str, seconds: int) -> list[tuple[int, int, float]]:
    """Return the windows of each schedule, how many were skipped, and their p95 of lateness."""
    async with postgres() as server, arena(server) as place:
        file = place.folder / "schedules.yaml"
        entry = f"workflow: three-steps, input: {fails}, every: 1s, overlap: skip"
        keys = [f"  - {{key: busy-{n}, {entry}}}" for n in range(SCHEDULES)]
        file.write_text("\n".join(["schedules:", *keys]))
        async with replicas(place, 1, file), connected(place.database_url) as connection:

            async def fired() -> bool:
                there = await connection.fetchval("SELECT to_regclass('sched.fires')")
                count = "SELECT count(DISTINCT key) = $1 FROM fires WHERE run_id <> ''"
                return bool(there and await connection.fetchval(count, SCHEDULES))

            await eventually(fired, timeout=60, every=0.2)
            await asyncio.sleep(_WARM_UP)
            begin = datetime.now(UTC)
            await asyncio.sleep(seconds + _SETTLES)
            rows = await connection.fetch(_OF_KEYS, begin, begin + timedelta(seconds=seconds))
            return [(row["windows"], row["skipped"], float(row["late"])) for row in rows]
