"""The next fires of one schedule or of many, in the order of time. Pure: ``after`` is given."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from engine.cli.output import instant
from engine.cli.times import clock, local, relative
from engine.schedules import Schedule
from engine.schedules.instants import HORIZON, from_seconds
from engine.schedules.timing import Spec

LAST = "last fire"

_END = from_seconds(HORIZON)


@dataclass(frozen=True, slots=True)
class Source:
    """What fires: a when-part, and the clock its people look at."""

    key: str
    spec: Spec
    timezone: str

    @classmethod
    def of(cls, schedule: Schedule) -> Source:
        """Return what fires by this schedule."""
        return cls(schedule.key, schedule.spec, schedule.timezone)


@dataclass(frozen=True, slots=True)
class Upcoming:
    """One window that will open."""

    source: Source
    fire_time: datetime

    @property
    def note(self) -> str:
        """What somebody should know of it; empty for an ordinary fire."""
        return "" if self.source.spec.next(self.fire_time) else LAST

    def as_json(self, *, with_key: bool) -> dict[str, object]:
        """Return it as ``sched next --json`` shows it; ``local_time`` is ISO with its offset."""
        named = {"key": self.source.key} if with_key else {}
        shown = local(self.fire_time, self.source.timezone)
        precision = "milliseconds" if shown.microsecond else "seconds"
        return {
            **named,
            "fire_time": instant(self.fire_time),
            "local_time": shown.isoformat(timespec=precision),
            "timezone": self.source.timezone,
            "bucket": self.source.spec.bucket(self.fire_time),
            "note": self.note,
        }


def table(
    rows: Sequence[Upcoming], now: datetime, *, with_key: bool
) -> tuple[list[str], list[list[str | None]]]:
    """Return the columns and cells that show these fires to people."""
    columns = ["FIRE TIME", "LOCAL TIME", "TIMEZONE", "FROM NOW"]
    cells = [
        [
            instant(row.fire_time), clock(row.fire_time, row.source.timezone),
            row.source.timezone, relative(row.fire_time, now),
        ]
        for row in rows
    ]  # fmt: skip
    if with_key:
        columns = ["KEY", *columns]
        cells = [[row.source.key, *cell] for row, cell in zip(rows, cells, strict=True)]
    notes = [row.note for row in rows]
    if any(notes):
        columns = [*columns, "NOTE"]
        cells = [[*cell, note] for cell, note in zip(cells, notes, strict=True)]
    return columns, cells


def upcoming(sources: Iterable[Source], after: datetime, count: int) -> list[Upcoming]:
    """Return the first ``count`` fires strictly after ``after``; at one instant by key.

    Lazy: of each schedule only the fires that are shown, and one more, are computed.
    """
    streams = [_stream(source, after) for source in sorted(sources, key=lambda found: found.key)]
    return list(islice(heapq.merge(*streams, key=lambda found: found.fire_time), count))


def _stream(source: Source, after: datetime) -> Iterator[Upcoming]:
    return (Upcoming(source, fire_time) for fire_time in source.spec.fires(after, _END))
