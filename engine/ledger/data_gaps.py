"""Data intervals: where the data of a run begin, and what no run has.

The runs of a key share out its data: each has what came since the last window that began before it,
or is still to begin, whatever became of the windows between. It is fixed when a fire is sent
first. One that begins after a later run has had its data repeats its own share alone. When a window
that a later run has counted on does not run after all, nobody has its data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from engine.ledger.fire_records import Status

NO_RUN_BEFORE: Final = datetime.min.replace(tzinfo=UTC)
"""Where the data of a first run begin; PostgreSQL calls it ``-infinity``."""

REPEATS: Final = datetime.max.replace(tzinfo=UTC)
"""Of a run whose data a later one has had too; PostgreSQL calls it ``infinity``."""

DENIED: Final[frozenset[Status]] = frozenset({"skipped", "expired", "rejected", "unvouched"})
"""Without a run, as far as is known: somebody else has the data."""

PENDING: Final[frozenset[Status]] = frozenset({"claimed", "queued"})
"""Not begun, and expected to."""


@dataclass(frozen=True, slots=True)
class DataGap:
    """Data that no run has: a window did not run after all, and a later run had counted on it.

    Attributes:
        bucket: the number of the window, whose rerun has them.
        data_from: where they begin; None: at the beginning, since no run came before.
        data_to: where they end, the fire time of the window.
    """

    key: str
    bucket: int
    data_from: datetime | None
    data_to: datetime

    @property
    def told(self) -> str:
        """What is missing, and how to make up for it."""
        begin = "the beginning" if self.data_from is None else _text(self.data_from)
        return (
            f"no run of {self.key} has the data from {begin} to {_text(self.data_to)}: that window"
            " did not run after all, and the run of a later one had left them to it;"
            f" `sched rerun {self.key} {self.bucket}`"
        )

    @classmethod
    def of(cls, *, data_from: datetime, **rest: object) -> DataGap:
        """Return what a row says."""
        first = None if begins(data_from) == NO_RUN_BEFORE else data_from
        return cls(data_from=first, **rest)  # type: ignore[arg-type] # the other columns


def apart(gaps: Sequence[DataGap]) -> list[DataGap]:
    """Leave out gaps that are part of another one; newest first, as they are given."""
    found: list[DataGap] = []
    for gap in gaps:
        if not found or (found[-1].data_from and gap.data_to <= found[-1].data_from):
            found.append(gap)
    return found


def begins(data_from: datetime | None) -> datetime | None:
    """Return what a row says; asyncpg gives both infinities without a time zone."""
    return data_from and data_from.replace(tzinfo=UTC)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
