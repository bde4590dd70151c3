"""Carries out what is decided about old rows: archived first, then merged or removed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from engine.ledger.old_fires import KeyChores, OldFire
from engine.ledger.upkeep import Upkeep
from engine.runtime.archive import Archive, leaving
from engine.runtime.clock import boottime
from engine.runtime.keeping import midnight
from engine.runtime.pacing import Paces
from engine.runtime.repairing import Tended
from engine.runtime.summaries import count_days

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


class Tidying:
    """Carries out pieces, some rows in each transaction.

    Args:
        archive: keeps what leaves; without it nothing may leave.
        now: the day whose folder of the archive is written to.
    """

    def __init__(
        self, ledger: Tended, archive: Archive | None, paces: Paces, now: datetime
    ) -> None:
        self._ledger, self._archive, self._paces, self._now = ledger, archive, paces, now
        self._counted: tuple[str, datetime] | None = None
        self.tally = Tally()

    async def carry_out(self, pieces: list[Piece]) -> None:
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

    async def _count(self, piece: Piece) -> None:
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

    async def _change(self, upkeep: Upkeep, piece: Piece) -> None:
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
