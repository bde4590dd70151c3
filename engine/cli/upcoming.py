"""The next fires of one schedule, or the next one of each. Pure: ``after`` is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from types import MappingProxyType

from engine.cli.output import instant
from engine.cli.times import clock, local, relative
from engine.schedules import Schedule, clock_notes
from engine.schedules.aloud import read_aloud
from engine.schedules.instants import HORIZON, from_seconds
from engine.schedules.timing import Spec

LAST = "last fire"
SPARE = ("TIMEZONE", "LOCAL TIME", "FROM NOW")
"""The table's columns that a narrow terminal can do without; the least important first."""

_NONE: Mapping[datetime, str] = MappingProxyType({})
_END = from_seconds(HORIZON)


@dataclass(frozen=True, slots=True)
class Source:
    """What fires: a when-part, and the clock its people look at."""

    key: str
    spec: Spec
    timezone: str
    schedule: Schedule | None = None
    skips: Mapping[datetime, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schedule: Schedule, skips: Mapping[datetime, str] = _NONE) -> Source:
        """Return what fires by this schedule, but for windows that somebody skipped."""
        return cls(schedule.key, schedule.spec, schedule.timezone, schedule, skips)

    def starts(self, after: datetime) -> Iterator[datetime]:
        """Return the windows after ``after`` that start a run: none excluded, none skipped."""
        when = self.spec.fires if self.schedule is None else self.schedule.starts
        return (fire for fire in when(after, _END) if fire not in self.skips)

    def skipped(self, after: datetime, until: datetime) -> str:
        """Say which windows in between would start, had nobody skipped them; empty for none."""
        between = (at for at in sorted(self.skips) if after < at < until)
        return "; ".join(f"{instant(at)} is skipped ({self.skips[at]})" for at in between)

    def aloud(self, now: datetime) -> str:
        """Return when it fires, in a sentence."""
        return read_aloud(self.spec if self.schedule is None else self.schedule, now=now)


@dataclass(frozen=True, slots=True)
class Upcoming:
    """One window that will open; ``remark`` is what was decided of it ahead."""

    source: Source
    fire_time: datetime
    remark: str = ""

    @property
    def note(self) -> str:
        """What somebody should know of it; empty for an ordinary fire."""
        last = "" if next(self.source.starts(self.fire_time), None) else LAST
        clocks = clock_notes.note(self.source.spec, self.fire_time)
        return "; ".join(filter(None, (self.remark, clocks, last)))

    def as_json(self) -> dict[str, object]:
        """Return it as ``sched next --json`` shows it; ``local_time`` is ISO with its offset.

        ``key`` is null where a cron expression was given.
        """
        shown = local(self.fire_time, self.source.timezone)
        precision = "milliseconds" if shown.microsecond else "seconds"
        return {
            "key": self.source.key or None,
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


def upcoming(source: Source, after: datetime, count: int) -> list[Upcoming]:
    """Return the first ``count`` fires strictly after ``after``."""
    times = [*islice(source.starts(after), count)]
    between = zip([after, *times], times, strict=False)
    return [Upcoming(source, time, source.skipped(before, time)) for before, time in between]


def missing(rows: Sequence[Upcoming], after: datetime) -> list[str]:
    """Return what does not happen between ``after`` and the last of these fires of one source."""
    if not rows:
        return []
    return [gap.note for gap in clock_notes.missing(rows[0].source.spec, after, rows[-1].fire_time)]


def one_of_each(sources: Iterable[Source], after: datetime) -> list[Upcoming]:
    """Return the next fire of each, the earliest first, at one instant by key.

    A schedule that fires every second does not hide the others. What never fires again is left
    out.
    """
    found = [fire for one in sources for fire in upcoming(one, after, 1)]
    return sorted(found, key=lambda each: (each.fire_time, each.source.key))
