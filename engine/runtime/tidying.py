"""Carries out what is decided about old rows: archived first, then merged or removed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from engine.ledger.old_fires import KeyChores, OldFire
from engine.ledger.upkeep import Upkeep
from engine.runtime.archive import Archive, leaving
from engine.runtime.keeping import midnight
from engine.runtime.repairing import Tended
from engine.runtime.summaries import summarise

_DAY = timedelta(days=1)


@dataclass(slots=True)
class Piece:
    """What is to be done to some adjacent rows of one key, and how far that brings it."""

    chores: KeyChores
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
    """What a round did so far."""

    merged: int = 0
    ranges: int = 0
    removed: int = 0
    files: int = 0

    def __str__(self) -> str:
        said = [f"{self.merged} rows of fires became {self.ranges}"] if self.merged else []
        said += [f"{self.removed} were removed"] if self.removed else []
        return "; ".join([*said, f"{self.files} files of archive"] if self.files else said)


async def carry_out(
    ledger: Tended, archive: Archive | None, pieces: list[Piece], now: datetime, tally: Tally
) -> None:
    """Archive the rows of some pieces in one file, and then change the ledger, piece by piece.

    A row that somebody has written to since it was read stays as it is, with all of its group.

    Raises:
        ArchiveFailed: nothing has been changed.
    """
    if archive is not None:
        lines = [
            *((row, False) for piece in pieces for row in leaving(piece.groups)),
            *((row, True) for piece in pieces for row in piece.removals),
        ]
        if await asyncio.to_thread(partial(archive.write, lines, now)):
            tally.files += 1
    elif any(piece.removals for piece in pieces):
        raise AssertionError("without an archive nothing is removed")
    for piece in pieces:
        async with ledger.upkeep() as upkeep:
            await _change(upkeep, piece, tally)


async def _change(upkeep: Upkeep, piece: Piece, tally: Tally) -> None:
    key = piece.chores.key
    rows = piece.rows
    same = await upkeep.unchanged(rows) if rows else set()
    groups = [group for group in piece.groups if all(row.id in same for row in group)]
    removals = [row for row in piece.removals if row.id in same]
    if changing := [row for group in groups for row in group] + removals:
        # Counted now, because afterwards nobody can measure a lag, or count at all.
        begin = midnight(min(row.fire_time for row in changing))
        end = midnight(max(row.last_fire_time for row in changing)) + _DAY
        await summarise(upkeep, key, begin, end)
    if groups:
        await upkeep.merge(groups)
    if removals:
        await upkeep.remove(key, removals)
    gone = [row.last_fire_time for row in removals if row.kind == "window"]
    await upkeep.done(
        key, merged=piece.merged, settled=piece.settled, forgotten=max(gone, default=None)
    )
    tally.merged += sum(map(len, groups))
    tally.ranges += len(groups)
    tally.removed += len(removals)
