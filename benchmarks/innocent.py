"""The innocent schedule of one second, whose lag tells whether others' trouble reaches it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from benchmarks.spread import Spread
from tests.waiting import eventually

KEY = "innocent"
OFFSET = 0.5
"""The innocent's part of a second. The fires of others sweep over it or come at the full one."""
ENTRY = f"{{key: {KEY}, workflow: bare, everyMs: 1000, offsetMs: {OFFSET * 1000:.0f}}}"
_PATIENCE = 10.0
"""Seconds after the last window until one that has not started counts as if it did just then."""
_CLOSES = """
SELECT extract(epoch FROM seen_at - closed_at) * 1000 AS ms FROM fires
WHERE key = $1 AND kind = 'window' AND fire_time = ANY ($2::timestamptz[]) AND closed_at IS NOT NULL
"""
_FIRE_TIME = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")


@dataclass(frozen=True, slots=True)
class Lags:
    """Milliseconds from each fire time to the server's start time of the run.

    ``missing`` windows had no run of their own by the end of all patience; they count with the
    time until then.
    """

    values: Sequence[float]
    missing: int

    @property
    def spread(self) -> Spread:
        """Their spread, the missing ones included."""
        return Spread.of(self.values)


async def until_fired(client: Client) -> None:
    """Wait until the innocent schedule has its first run."""

    async def fired() -> bool:
        return bool(await _starts(client))

    await eventually(fired, timeout=120, every=0.5)


async def lags(client: Client, count: int) -> Lags:
    """Watch the innocent's next windows; takes a little longer than a second for each."""
    first = math.ceil(time.time()) + OFFSET
    wanted = [first + number for number in range(count)]
    await asyncio.sleep(wanted[-1] - time.time() + 1)
    deadline = time.time() + _PATIENCE
    while True:
        starts = await _starts(client)
        now = time.time()
        missing = [at for at in wanted if at not in starts]
        if not missing or now > deadline:
            values = [(starts.get(at, now) - at) * 1000 for at in wanted]
            return Lags([round(value, 1) for value in values], len(missing))
        await asyncio.sleep(0.5)


async def closes(connection: asyncpg.Connection, count: int) -> Lags:
    """Watch the closes of its next runs: the time from each, by Temporal, until it is recorded."""
    first = math.ceil(time.time()) + OFFSET
    await asyncio.sleep(first + count - time.time())
    deadline = time.time() + _PATIENCE
    moments = [datetime.fromtimestamp(first + number, UTC) for number in range(count)]
    while True:
        rows = await connection.fetch(_CLOSES, KEY, moments)
        missing = count - len(rows)
        if not missing or time.time() > deadline:
            late = [_PATIENCE * 1000.0] * missing
            return Lags([*(max(float(row["ms"]), 0.0) for row in rows), *late], missing)
        await asyncio.sleep(0.5)


async def _starts(client: Client) -> Mapping[float, float]:
    """The server's start times by fire time, of the newest runs."""
    query = f"WorkflowId STARTS_WITH 'sched:{KEY}:'"
    return {
        run.typed_search_attributes[_FIRE_TIME].timestamp(): run.start_time.timestamp()
        async for run in client.list_workflows(query, page_size=500, limit=500)
    }


def next_full_second(ahead: float) -> datetime:
    """Return the first full second that is at least so many seconds ahead."""
    return datetime.fromtimestamp(math.ceil(time.time() + ahead), UTC)
