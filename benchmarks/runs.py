"""Reads from Temporal when runs started and closed: the server's own times, for everybody."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.client import Client

from benchmarks.workflows import TYPE
from tests.waiting import eventually

_EVERY = 0.5
_PATIENCE = 240.0


@dataclass(frozen=True, slots=True)
class Herd:
    """One sample: seconds from the zero hour, per run to its start, and to the last close."""

    lags: tuple[float, ...]
    closed: float

    @property
    def started(self) -> float:
        """Seconds until the last run had started."""
        return max(self.lags)


async def read_herd(client: Client, count: int, zero: float, *, closed: bool = True) -> Herd:
    """Wait until so many runs have closed, or only started.

    ``zero`` is the wall-clock time they count from.
    """
    query = f"WorkflowType = '{TYPE}'" + " AND ExecutionStatus = 'Completed'" * closed

    async def all_there() -> bool:
        return (await client.count_workflows(query)).count >= count

    await eventually(all_there, timeout=_PATIENCE, every=_EVERY)
    starts, ends = [], []
    async for run in client.list_workflows(f"WorkflowType = '{TYPE}'", page_size=1000):
        starts.append(run.start_time.timestamp() - zero)
        ends.append(run.close_time.timestamp() - zero if run.close_time else 0)
    assert len(starts) == count, f"{len(starts)} runs instead of {count}"
    return Herd(tuple(starts), max(ends))
