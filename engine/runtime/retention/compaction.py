"""Compaction of old rows into ranges, their removal, and daily counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from engine.ledger import (
    ENDED_BADLY,
    OPEN,
    SURELY_NOT_RUN,
    DayPart,
    KeyMaintenance,
    Ledger,
    OldFire,
    OldRow,
)
from engine.ledger.postgres.maintenance import Upkeep
from engine.runtime.clock import boottime
from engine.runtime.retention.archive import Archive
from engine.runtime.settings import Settings
from engine.schedules import EPOCH, TICK, Schedule, Spec

# --- retention rules ---
# Pure rules of which old rows may be merged into ranges, and which may be removed.

_FAILED = ENDED_BADLY | {"unvouched"}
"""Statuses that keep their details longer, for the search for the cause."""


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Cutoffs of one key, each a UTC midnight.

    Attributes:
        keep: the number of newest rows that always keep their details.
        merge: successful fires before it may lose their details.
        settle: failed fires before it may lose their details.
        remove: rows before it may be removed.
        once: whether the key has only one window, which cannot become part of a range.
    """

    keep: int
    merge: datetime
    settle: datetime
    remove: datetime
    once: bool

    @classmethod
    def of(
        cls, maintenance: KeyMaintenance, settings: Settings, now: datetime, remembered: timedelta
    ) -> Cutoffs:
        """Return the cutoffs of a key; ``remembered``: how long Temporal may know a closed run."""
        own = maintenance.schedule.retention if maintenance.schedule else None
        age = (own and own.age) or settings.retention_age
        failed = max(age, (own and own.failed_age) or settings.retention_failed_age)
        longest = (own and own.max_age) or settings.retention_max_age

        def old(at: timedelta) -> datetime:
            return midnight(now - max(at, remembered))

        return cls(
            keep=(own and own.keep) or settings.retention_keep,
            merge=old(min(age, longest)),
            settle=old(min(failed, longest)),
            remove=old(longest),
            once=maintenance.schedule is not None and maintenance.schedule.kind == "at",
        )

    def may_merge(self, row: OldFire, maintenance: KeyMaintenance, *, archived: bool) -> bool:
        """Return whether a row may become part of a range."""
        if row.kind != "window" or row.status in OPEN or row.status == "unvouched" or row.missed:
            return False
        if (row.has_details or row.status in _FAILED) and not archived:
            return False
        return self._rests(row, maintenance) and row.rested_since < self._end(row)

    def may_leave(self, row: OldFire, maintenance: KeyMaintenance) -> bool:
        """Return whether a row may be deleted once it is archived."""
        if row.status in OPEN or not self._rests(row, maintenance) or _is_counted(row, maintenance):
            return False
        alone = self.once or row.kind != "window"
        end = max(self._end(row), self.remove) if alone else self.remove
        return row.rested_since < end

    def _end(self, row: OldFire) -> datetime:
        return self.settle if row.status in _FAILED else self.merge

    @staticmethod
    def _rests(row: OldFire, maintenance: KeyMaintenance) -> bool:
        """Return whether the cursor has passed the row and no backfill may still lay windows there.

        Windows after the cursor have rows if they were skipped ahead.
        """
        if maintenance.is_laying(row.fire_time, row.last_fire_time):
            return False
        return row.series < maintenance.series or row.last_fire_time <= maintenance.cursor


def _is_counted(row: OldFire, maintenance: KeyMaintenance) -> bool:
    """Return whether a row counts for the ``limit`` of its schedule: see ``ScheduleState``."""
    if (
        maintenance.schedule is None
        or maintenance.schedule.limit is None
        or row.series < maintenance.series
    ):
        return False
    return row.kind == "window" and row.status not in SURELY_NOT_RUN and row.timing != "backfill"


def midnight(at: datetime) -> datetime:
    """Return the beginning of the UTC day."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def groups(
    rows: Iterable[OldFire], may_merge: Callable[[OldFire], bool], spec_of: Callable[[int], Spec]
) -> list[list[OldFire]]:
    """Return groups of rows to merge: adjacent windows of a day with equal class and definition.

    Rows are adjacent if their definition has no window between them. A range stays within one UTC
    day, so that its day can be counted, archived and removed exactly.

    Args:
        rows: the rows of one key, by fire time.
        may_merge: returns whether a row may become part of a range.
        spec_of: returns the ``Spec`` of a definition version.
    """
    found: list[list[OldFire]] = []
    current: list[OldFire] = []
    for row in rows:
        if row.kind != "window":
            continue  # not a window, so it separates none
        if not may_merge(row):
            current = []
        elif current and _continues(current[-1], row, spec_of):
            current.append(row)
        else:
            current = [row]
            found.append(current)
    return [group for group in found if len(group) > 1]


def _continues(before: OldFire, row: OldFire, spec_of: Callable[[int], Spec]) -> bool:
    return (
        _class_of(before) == _class_of(row)
        and before.fire_time.date() == row.last_fire_time.date()
        and spec_of(row.definition_version).next(before.last_fire_time) == row.fire_time
    )


def _class_of(row: OldFire) -> Sequence[object]:
    return (
        row.series,
        row.definition_version,
        row.project,
        row.status,
        row.reason,
        row.reason_code,
        row.timing,
        row.workflow_type,
        row.task_queue,
    )


# --- size of one transaction ---
# Adaptive batch sizes, so that a transaction of the janitor takes about a tenth of a second.

AIM = 0.1
"""Target duration of a transaction of the janitor, in seconds."""
_GROWTH = 1.25
_LEAST = 20


@dataclass(slots=True)
class BatchSizer:
    """Batch size that follows the measured durations: shrinks at once, grows gradually.

    Attributes:
        amount: the current size, in rows or windows.
        most: the maximum; larger batches gain nothing.
    """

    amount: int
    most: int

    def took(self, amount: int, seconds: float) -> None:
        """Adjust the size after a transaction; ignore fast ones of less than half a batch."""
        if seconds < AIM and amount * 2 < self.amount:
            return
        fair = min(amount * AIM / max(seconds, 0.001), self.amount * _GROWTH)
        self.amount = min(self.most, max(_LEAST, int(fair)))


@dataclass(frozen=True, slots=True)
class BatchSizers:
    """Batch sizes of a janitor, by kind of work."""

    reading: BatchSizer = field(default_factory=lambda: BatchSizer(500, most=2000))
    changing: BatchSizer = field(default_factory=lambda: BatchSizer(500, most=2000))
    counting: BatchSizer = field(default_factory=lambda: BatchSizer(5000, most=50_000))

    @property
    def rows(self) -> int:
        """Number of rows to read at once; they can also be changed in one transaction."""
        return min(self.reading.amount, self.changing.amount)


# --- daily counts ---
# Daily counts of windows by outcome, taken while their rows still exist.

_DAY = timedelta(days=1)
_DAYS = 366
"""Maximum number of days of one statement."""
_ROW = 10
"""Cost of writing a day's row, in windows."""


async def rollup_days(
    ledger: Ledger,
    sizer: BatchSizer,
    maintenance: KeyMaintenance,
    since: datetime,
    until: datetime,
    *,
    note: bool,
) -> AsyncIterator[datetime]:
    """Count the days between two midnights in batches; yield the end of each.

    With ``note`` this progress is recorded in the ledger.
    """
    while since < until:
        end, windows = stretch(maintenance.schedule, since, until, sizer.amount)
        begun = boottime()
        async with ledger.upkeep() as upkeep:
            await rollup(upkeep, maintenance.key, since, end)
            if note:
                await upkeep.done(maintenance.key, summarised=end)
        sizer.took(windows, boottime() - begun)
        yield end
        since = end


def stretch(
    schedule: Schedule | None, since: datetime, until: datetime, windows: int
) -> tuple[datetime, int]:
    """Return the midnight that about ``windows`` windows reach, and their estimated number."""
    if schedule is None:
        return min(until, since + _DAY), windows
    a_day = schedule.spec.count(until - _DAY, until) + _ROW
    days = max(1, min(_DAYS, windows // a_day, (until - since) // _DAY))
    return since + _DAY * days, a_day * days


async def rollup(upkeep: Upkeep, key: str, since: datetime, until: datetime) -> None:
    """Count the days from one midnight to another."""
    parts = []
    for row in await upkeep.over_days(key, since, until):
        definition = await upkeep.definition(key, row.definition_version)
        parts += parts_of(row, definition.spec, since, until)
    await upkeep.rollup_days(key, since, until, parts)


def parts_of(row: OldRow, spec: Spec, since: datetime, until: datetime) -> list[DayPart]:
    """Return how many windows of a long row each day between two midnights has.

    If the time rules have changed since the row was written, the last day takes the difference, so
    that every window is counted exactly once.
    """
    parts, left, day = [], row.windows, midnight(row.fire_time)
    while day <= row.last_fire_time:
        last = day + _DAY > row.last_fire_time
        count = (
            left
            if last
            else min(left, spec.count(max(day, row.fire_time) - TICK, day + _DAY - TICK))
        )
        left -= count
        if count and since <= day < until:
            parts.append(DayPart(row.project, day, count, row.status))
        day += _DAY
    return parts


# --- compaction ---
# Old rows are archived first, then merged or removed.

_ROWS, _PIECES = 5000, 200
"""Approximate number of rows of an archive file, and most batches that wait for one."""


@dataclass(slots=True)
class Batch:
    """Merges and removals of adjacent rows of one key, and the progress that they mean."""

    maintenance: KeyMaintenance
    groups: list[list[OldFire]] = field(default_factory=list)
    removals: list[OldFire] = field(default_factory=list)
    merged: datetime | None = None
    settled: datetime | None = None

    @property
    def rows(self) -> list[OldFire]:
        """All rows that are merged or removed."""
        return [row for group in self.groups for row in group] + self.removals


@dataclass(slots=True)
class Tally:
    """Counts of the current round."""

    merged: int = 0
    ranges: int = 0
    removed: int = 0
    files: int = 0

    def __str__(self) -> str:
        counts = [f"{self.merged} rows of fires became {self.ranges}"] if self.merged else []
        counts += [f"{self.removed} were removed"] if self.removed else []
        return "; ".join([*counts, f"{self.files} files of archive"] if self.files else counts)


class Compactor:
    """Executor of batches, one transaction each.

    Args:
        archive: stores removed rows and merged details; without it no row may be removed.
        now: the day of the archive's folder.
    """

    def __init__(
        self, ledger: Ledger, archive: Archive | None, sizers: BatchSizers, now: datetime
    ) -> None:
        self._ledger, self._archive, self._sizers, self._now = ledger, archive, sizers, now
        self._pieces: list[Batch] = []
        self._rows = 0
        self._counted: tuple[str, datetime] | None = None
        self.tally = Tally()

    async def add(self, piece: Batch, *, now: bool = False) -> None:
        """Add a batch; ``now``: carry out at once, because the key's next batch continues it.

        Otherwise batches wait until there are enough rows for an archive file.
        """
        self._pieces.append(piece)
        self._rows += len(piece.rows)
        if now or self._rows >= _ROWS or len(self._pieces) >= _PIECES:
            await self.carry_out()

    async def carry_out(self) -> None:
        """Archive the rows of waiting batches in one file, then change the ledger batch by batch.

        A row that was written since it was read stays as it is, with all of its group.

        Raises:
            ArchiveFailed: the archive cannot be written; the ledger is unchanged.
        """
        pieces, self._pieces, self._rows = self._pieces, [], 0
        if self._archive is not None:
            merged = (row for piece in pieces for group in piece.groups for row in group)
            lines = [
                # Ranges that were merged before have no details to lose.
                *((row, False) for row in merged if row.merged_at is None),
                *((row, True) for piece in pieces for row in piece.removals),
            ]
            if await asyncio.to_thread(partial(self._archive.write, lines, self._now)):
                self.tally.files += 1
        elif any(piece.removals for piece in pieces):
            raise AssertionError("without an archive nothing is removed")
        for piece in pieces:
            if piece.rows:
                await self._count(piece)
            begun = boottime()
            async with self._ledger.upkeep() as upkeep:
                await self._change(upkeep, piece)
            self._sizers.changing.took(len(piece.rows), boottime() - begun)

    async def _count(self, piece: Batch) -> None:
        """Count the days a last time: merged rows lose their lags, removed ones cannot be counted.

        A row that changes after it was read is not removed, so the count matches what is removed.
        """
        begin = midnight(min(row.fire_time for row in piece.rows))
        end = midnight(max(row.last_fire_time for row in piece.rows)) + _DAY
        if not piece.removals and self._counted == (piece.maintenance.key, begin + _DAY):
            begin += _DAY  # the previous batch has counted the day that both share
        sizer = self._sizers.counting
        async for _ in rollup_days(self._ledger, sizer, piece.maintenance, begin, end, note=False):
            pass
        self._counted = (piece.maintenance.key, end)

    async def _change(self, upkeep: Upkeep, piece: Batch) -> None:
        key, rows = piece.maintenance.key, piece.rows
        same = await upkeep.unchanged(rows) if rows else set()
        groups = [group for group in piece.groups if all(row.id in same for row in group)]
        removals = [row for row in piece.removals if row.id in same]
        if groups:
            await upkeep.merge(groups)
        if removals:
            await upkeep.remove(key, removals)
        gone = [row.last_fire_time for row in removals if row.kind == "window"]
        await upkeep.done(
            key, merged=piece.merged, settled=piece.settled, forgotten=max(gone, default=None)
        )
        self.tally.merged += sum(map(len, groups))
        self.tally.ranges += len(groups)
        self.tally.removed += len(removals)


# --- selection of old rows ---
# The old rows of one key are found batch by batch, and assigned to removal or merge.


async def removals(
    ledger: Ledger, sizers: BatchSizers, maintenance: KeyMaintenance, cutoffs: Cutoffs
) -> AsyncIterator[tuple[Batch, bool]]:
    """Yield batches of rows that may be removed, each with whether more may follow.

    The newest row of a key stays, unless the key has only one window.
    """
    if maintenance.oldest is None:
        return
    alone = max(cutoffs.merge, cutoffs.remove)
    async with ledger.upkeep() as upkeep:
        newest = await upkeep.edge_of_kept(maintenance.key, 1)
        kept = await upkeep.edge_of_kept(maintenance.key, cutoffs.keep)
    ends = [(cutoffs.remove, True), (min(alone, kept) if kept else cutoffs.remove, False)]
    if cutoffs.once:
        ends = [(alone, True)]
    for end, windows in ends:
        since = EPOCH
        while maintenance.oldest < end:
            limit, at = sizers.rows, boottime()
            async with ledger.upkeep() as upkeep:
                rows = await upkeep.old_fires(maintenance.key, since, end, limit, windows=windows)
            sizers.reading.took(len(rows), boottime() - at)
            leave = [
                row
                for row in rows
                if cutoffs.may_leave(row, maintenance)
                and (cutoffs.once or newest is None or row.fire_time < newest)
            ]
            full = len(rows) == limit
            if leave:
                yield Batch(maintenance, removals=leave), full
            if not full:
                break
            since = max(since + TICK, rows[-1].fire_time)


async def merges(
    ledger: Ledger,
    sizers: BatchSizers,
    maintenance: KeyMaintenance,
    cutoffs: Cutoffs,
    *,
    archived: bool,
) -> AsyncIterator[tuple[Batch, bool]]:
    """Yield batches of rows to merge, each with whether the next one continues after it.

    If it does, the caller must carry the batch out first, because a range may continue.
    """
    if cutoffs.once or maintenance.oldest is None:
        return
    begun, settled = maintenance.merged_until or EPOCH, maintenance.settled_until or EPOCH
    together = archived and begun <= settled
    apart = archived and not together
    passes = [("merged", begun, cutoffs.merge), ("settled", settled, cutoffs.settle)]
    for name, done, cut in passes if apart else passes[:1]:
        if max(done, maintenance.oldest) >= cut:
            continue
        async with ledger.upkeep() as upkeep:
            edge = await upkeep.edge_of_kept(maintenance.key, cutoffs.keep)
        if edge is None:
            return
        until = min(cut, edge)
        since = reached = midnight(done)
        while since < until:
            limit, at = sizers.rows, boottime()
            async with ledger.upkeep() as upkeep:
                rows = await upkeep.old_fires(maintenance.key, since, until, limit)
                specs = await _specs(upkeep, maintenance.key, rows)
            sizers.reading.took(len(rows), boottime() - at)
            found = _groups(rows, specs, maintenance, cutoffs, archived=archived)
            full = len(rows) == limit
            following = _behind(rows, found, reached) if full else until
            piece = Batch(maintenance, groups=found)
            if name == "merged":
                piece.merged = following
            if name == "settled" or together:
                piece.settled = min(following, cutoffs.settle)
            yield piece, full or (apart and begun < cutoffs.settle)
            since, reached = following, rows[-1].fire_time if rows else until


def _behind(rows: list[OldFire], found: list[list[OldFire]], reached: datetime) -> datetime:
    """Return where the next batch begins: at a range that may continue, or at the last row."""
    if rows[-1].fire_time <= reached:
        # Rows that are being written are not merged; beginning at them again would never end.
        return rows[-1].fire_time + TICK
    goes_on = found and found[-1][-1] is rows[-1]
    return found[-1][0].fire_time if goes_on else rows[-1].fire_time


async def _specs(upkeep: Upkeep, key: str, rows: list[OldFire]) -> dict[int, Spec]:
    versions = {row.definition_version for row in rows}
    return {version: (await upkeep.definition(key, version)).spec for version in versions}


def _groups(
    rows: list[OldFire],
    specs: dict[int, Spec],
    maintenance: KeyMaintenance,
    cutoffs: Cutoffs,
    *,
    archived: bool,
) -> list[list[OldFire]]:
    def may_merge(row: OldFire) -> bool:
        if archived and cutoffs.may_leave(row, maintenance):
            return False
        return cutoffs.may_merge(row, maintenance, archived=archived)

    return groups(rows, may_merge, specs.__getitem__)
