"""Compaction of old rows, and daily counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from engine.ledger.fires import OPEN, DayPart, KeyMaintenance, LongRow, OldFire
from engine.ledger.postgres.maintenance import Upkeep
from engine.runtime.clock import boottime
from engine.runtime.retention.archive import Archive, leaving
from engine.runtime.settings import Settings
from engine.schedules.model import Schedule
from engine.schedules.timing.spec import Spec
from engine.schedules.units import TICK


class Tended(Protocol):
    """A ledger that a janitor can look after."""

    def upkeep(self) -> AbstractAsyncContextManager[Upkeep]:
        """Begin a transaction of the janitor."""
        ...


# --- retention rules ---
# Which old rows may become ranges, and which may leave. Pure: time is an argument.

_FAILED = frozenset({"failed", "timed_out", "terminated", "rejected", "unvouched"})
"""What keeps its details longer, so that somebody can find out why."""


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Up to when the rows of one key are old, each a midnight of UTC.

    Attributes:
        keep: so many of the newest rows keep their details in any case.
        merge: details of what went well end here.
        settle: details of what failed end here.
        remove: rows end here.
        once: whether the key has one window only, which cannot become part of a range.
    """

    keep: int
    merge: datetime
    settle: datetime
    remove: datetime
    once: bool

    @classmethod
    def of(
        cls, chores: KeyMaintenance, settings: Settings, now: datetime, remembered: timedelta
    ) -> Cutoffs:
        """Return those of a key; ``remembered``: how long Temporal may know a closed run."""
        said = chores.schedule.retention if chores.schedule else None
        age = (said and said.age) or settings.retention_age
        failed = max(age, (said and said.failed_age) or settings.retention_failed_age)
        longest = (said and said.max_age) or settings.retention_max_age

        def old(at: timedelta) -> datetime:
            return midnight(now - max(at, remembered))

        return cls(
            keep=(said and said.keep) or settings.retention_keep,
            merge=old(min(age, longest)),
            settle=old(min(failed, longest)),
            remove=old(longest),
            once=chores.schedule is not None and chores.schedule.kind == "at",
        )

    def may_merge(self, row: OldFire, chores: KeyMaintenance, *, archived: bool) -> bool:
        """Whether a row may become part of a range."""
        if row.kind != "window" or row.status in OPEN or row.status == "unvouched" or row.missed:
            return False
        if (row.telling or row.status in _FAILED) and not archived:
            return False
        return self._rests(row, chores) and row.rested_since < self._end(row)

    def may_leave(self, row: OldFire, chores: KeyMaintenance) -> bool:
        """Whether a row may be deleted, once it is archived."""
        if row.status in OPEN or not self._rests(row, chores):
            return False
        alone = self.once or row.kind != "window"
        end = max(self._end(row), self.remove) if alone else self.remove
        return row.rested_since < end

    def _end(self, row: OldFire) -> datetime:
        return self.settle if row.status in _FAILED else self.merge

    @staticmethod
    def _rests(row: OldFire, chores: KeyMaintenance) -> bool:
        """Whether the cursor has passed it, and no backfill is still to come to it.

        Windows to come may be skipped already.
        """
        if chores.is_laying(row.fire_time, row.last_fire_time):
            return False
        return row.series < chores.series or row.last_fire_time <= chores.cursor


def midnight(at: datetime) -> datetime:
    """Return the beginning of the UTC day."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def groups(
    rows: Iterable[OldFire], may_merge: Callable[[OldFire], bool], spec_of: Callable[[int], Spec]
) -> list[list[OldFire]]:
    """Return what becomes one row each: adjacent windows of a day that share class and definition.

    Adjacent is what no window lies between, by the definition the rows were decided under. A range
    stays within one UTC day, so that its day can be counted, archived and removed exactly.

    Args:
        rows: of one key, by fire time.
        may_merge: whether a row may become part of a range.
        spec_of: the when-part of a definition version.
    """
    found: list[list[OldFire]] = []
    current: list[OldFire] = []
    for row in rows:
        if row.kind != "window":
            continue  # no window, so it lies between none
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
        row.series, row.definition_version, row.project, row.status, row.reason, row.reason_code,
        row.timing, row.workflow_type, row.task_queue,
    )  # fmt: skip


# --- size of one transaction ---
# How much one transaction of the janitor takes on: as much as lasts about a tenth of a second.

AIM = 0.1
"""Seconds that a transaction of the janitor is to last."""
_GROWTH = 1.25
_LEAST = 20


@dataclass(slots=True)
class BatchSizer:
    """So much at once, by how long it took before: less at once, more little by little.

    Attributes:
        amount: of whatever is counted: rows, windows.
        most: beyond it nothing is gained.
    """

    amount: int
    most: int

    def took(self, amount: int, seconds: float) -> None:
        """Learn from a transaction; one that had little to do says nothing of larger ones."""
        if seconds < AIM and amount * 2 < self.amount:
            return
        fair = min(amount * AIM / max(seconds, 0.001), self.amount * _GROWTH)
        self.amount = min(self.most, max(_LEAST, int(fair)))


@dataclass(frozen=True, slots=True)
class BatchSizers:
    """A janitor's knowledge of its ledger."""

    reading: BatchSizer = field(default_factory=lambda: BatchSizer(500, most=2000))
    changing: BatchSizer = field(default_factory=lambda: BatchSizer(500, most=2000))
    counting: BatchSizer = field(default_factory=lambda: BatchSizer(5000, most=50_000))
    filling: BatchSizer = field(default_factory=lambda: BatchSizer(500, most=20_000))

    @property
    def rows(self) -> int:
        """So many rows are read at once, so that what is read can be changed at once too."""
        return min(self.reading.amount, self.changing.amount)


# --- daily counts ---
# Counts what became of the windows of each day, for as long as their rows can tell.

_DAY = timedelta(days=1)
_DAYS = 366
"""Days of one statement at most."""
_ROW = 10
"""What writing the row of a day costs, in windows."""


async def count_days(
    ledger: Tended,
    pace: BatchSizer,
    chores: KeyMaintenance,
    since: datetime,
    until: datetime,
    *,
    note: bool,
) -> AsyncIterator[datetime]:
    """Count the days between two midnights, some at a time; yields how far that has come.

    With ``note`` it is written down that the days up to there have been counted.
    """
    while since < until:
        end, windows = stretch(chores.schedule, since, until, pace.amount)
        begun = boottime()
        async with ledger.upkeep() as upkeep:
            await summarise(upkeep, chores.key, since, end)
            if note:
                await upkeep.done(chores.key, summarised=end)
        pace.took(windows, boottime() - begun)
        yield end
        since = end


def stretch(
    schedule: Schedule | None, since: datetime, until: datetime, windows: int
) -> tuple[datetime, int]:
    """Return up to which midnight so many windows reach, about, and how many these are."""
    if schedule is None:
        return min(until, since + _DAY), windows
    a_day = schedule.spec.count(until - _DAY, until) + _ROW
    days = max(1, min(_DAYS, windows // a_day, (until - since) // _DAY))
    return since + _DAY * days, a_day * days


async def summarise(upkeep: Upkeep, key: str, since: datetime, until: datetime) -> None:
    """Count the days from one midnight to another."""
    parts = []
    for row in await upkeep.over_days(key, since, until):
        definition = await upkeep.definition(key, row.definition_version)
        parts += parts_of(row, definition.spec, since, until)
    await upkeep.summarise(key, since, until, parts)


def parts_of(row: LongRow, spec: Spec, since: datetime, until: datetime) -> list[DayPart]:
    """Return how many windows of a long row each day between two midnights has.

    Where the rules of time have changed since it was written, the last day takes what differs, so
    that no window is counted twice or not at all.
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
# Carries out what is decided about old rows: archived first, then merged or removed.


@dataclass(slots=True)
class Batch:
    """Work on some adjacent rows of one key, and the progress it makes."""

    chores: KeyMaintenance
    groups: list[list[OldFire]] = field(default_factory=list)
    removals: list[OldFire] = field(default_factory=list)
    merged: datetime | None = None
    settled: datetime | None = None

    @property
    def rows(self) -> list[OldFire]:
        """All rows that change or leave."""
        return [row for group in self.groups for row in group] + self.removals


@dataclass(slots=True)
class Tally:
    """Counts of a round so far."""

    merged: int = 0
    ranges: int = 0
    removed: int = 0
    files: int = 0

    def __str__(self) -> str:
        said = [f"{self.merged} rows of fires became {self.ranges}"] if self.merged else []
        said += [f"{self.removed} were removed"] if self.removed else []
        return "; ".join([*said, f"{self.files} files of archive"] if self.files else said)


class Compactor:
    """Carries out pieces, some rows in each transaction.

    Args:
        archive: keeps what leaves; without it nothing may leave.
        now: the day whose folder of the archive is written to.
    """

    def __init__(
        self, ledger: Tended, archive: Archive | None, paces: BatchSizers, now: datetime
    ) -> None:
        self._ledger, self._archive, self._paces, self._now = ledger, archive, paces, now
        self._counted: tuple[str, datetime] | None = None
        self.tally = Tally()

    async def carry_out(self, pieces: list[Batch]) -> None:
        """Archive the rows of some pieces in one file, then change the ledger, piece by piece.

        A row that somebody has written to since it was read stays as it is, with all of its group.

        Raises:
            ArchiveFailed: nothing has been changed.
        """
        if self._archive is not None:
            lines = [
                *((row, False) for piece in pieces for row in leaving(piece.groups)),
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
            self._paces.changing.took(len(piece.rows), boottime() - begun)

    async def _count(self, piece: Batch) -> None:
        """Count its days a last time, because afterwards nobody can measure a lag, or count at all.

        A row that changes after it was read does not leave, so the count has it as it leaves.
        """
        begin = midnight(min(row.fire_time for row in piece.rows))
        end = midnight(max(row.last_fire_time for row in piece.rows)) + _DAY
        if not piece.removals and self._counted == (piece.chores.key, begin + _DAY):
            begin += _DAY  # the piece before has counted the day that both have rows of
        pace = self._paces.counting
        async for _ in count_days(self._ledger, pace, piece.chores, begin, end, note=False):
            pass
        self._counted = (piece.chores.key, end)

    async def _change(self, upkeep: Upkeep, piece: Batch) -> None:
        key, rows = piece.chores.key, piece.rows
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
# Finds the old rows of one key, a piece at a time, and decides what becomes of them.

_BEGINNING = datetime.fromtimestamp(0, UTC)


async def removals(
    ledger: Tended, paces: BatchSizers, chores: KeyMaintenance, cutoffs: Cutoffs
) -> AsyncIterator[tuple[Batch, bool]]:
    """Yield pieces of rows that may leave; True when there may be more behind a piece.

    The newest row of a key stays, for as long as the key may have another.
    """
    if chores.oldest is None:
        return
    alone = max(cutoffs.merge, cutoffs.remove)
    async with ledger.upkeep() as upkeep:
        newest = await upkeep.edge_of_kept(chores.key, 1)
        kept = await upkeep.edge_of_kept(chores.key, cutoffs.keep)
    ends = [(cutoffs.remove, True), (min(alone, kept) if kept else cutoffs.remove, False)]
    if cutoffs.once:
        ends = [(alone, True)]
    for end, windows in ends:
        since = _BEGINNING
        while chores.oldest < end:
            limit, at = paces.rows, boottime()
            async with ledger.upkeep() as upkeep:
                rows = await upkeep.old_fires(chores.key, since, end, limit, windows=windows)
            paces.reading.took(len(rows), boottime() - at)
            leave = [row for row in rows if cutoffs.may_leave(row, chores)
                     and (cutoffs.once or newest is None or row.fire_time < newest)]  # fmt: skip
            full = len(rows) == limit
            if leave:
                yield Batch(chores, removals=leave), full
            if not full:
                break
            since = max(since + TICK, rows[-1].fire_time)


async def merges(
    ledger: Tended, paces: BatchSizers, chores: KeyMaintenance, cutoffs: Cutoffs, *, archived: bool
) -> AsyncIterator[tuple[Batch, bool]]:
    """Yield pieces of rows that become ranges; True when the next piece goes on behind it.

    Whoever gets True carries the piece out before asking for the next: a range goes on.
    """
    if cutoffs.once or chores.oldest is None:
        return
    begun, settled = chores.merged_until or _BEGINNING, chores.settled_until or _BEGINNING
    together = archived and begun <= settled
    apart = archived and not together
    passes = [("merged", begun, cutoffs.merge), ("settled", settled, cutoffs.settle)]
    for name, done, cut in passes if apart else passes[:1]:
        if max(done, chores.oldest) >= cut:
            continue
        async with ledger.upkeep() as upkeep:
            edge = await upkeep.edge_of_kept(chores.key, cutoffs.keep)
        if edge is None:
            return
        until = min(cut, edge)
        since = reached = midnight(done)
        while since < until:
            limit, at = paces.rows, boottime()
            async with ledger.upkeep() as upkeep:
                rows = await upkeep.old_fires(chores.key, since, until, limit)
                specs = await _specs(upkeep, chores.key, rows)
            paces.reading.took(len(rows), boottime() - at)
            found = _groups(rows, specs, chores, cutoffs, archived=archived)
            full = len(rows) == limit
            following = _behind(rows, found, reached) if full else until
            piece = Batch(chores, groups=found)
            if name == "merged":
                piece.merged = following
            if name == "settled" or together:
                piece.settled = min(following, cutoffs.settle)
            yield piece, full or (apart and begun < cutoffs.settle)
            since, reached = following, rows[-1].fire_time if rows else until


def _behind(rows: list[OldFire], found: list[list[OldFire]], reached: datetime) -> datetime:
    """Return where the next piece begins: at a range that may go on, or with the last row."""
    if rows[-1].fire_time <= reached:
        # Rows that somebody writes to are not merged: whoever came back to them would never end.
        return rows[-1].fire_time + TICK
    goes_on = found and found[-1][-1] is rows[-1]
    return found[-1][0].fire_time if goes_on else rows[-1].fire_time


async def _specs(upkeep: Upkeep, key: str, rows: list[OldFire]) -> dict[int, Spec]:
    versions = {row.definition_version for row in rows}
    return {version: (await upkeep.definition(key, version)).spec for version in versions}


def _groups(
    rows: list[OldFire],
    specs: dict[int, Spec],
    chores: KeyMaintenance,
    cutoffs: Cutoffs,
    *,
    archived: bool,
) -> list[list[OldFire]]:
    def may_merge(row: OldFire) -> bool:
        if archived and cutoffs.may_leave(row, chores):
            return False
        return cutoffs.may_merge(row, chores, archived=archived)

    return groups(rows, may_merge, specs.__getitem__)
