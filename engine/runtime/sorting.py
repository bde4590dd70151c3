"""Finds the old rows of one key, a piece at a time, and decides what becomes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from engine.ledger.old_fires import KeyChores, OldFire
from engine.ledger.upkeep import Upkeep
from engine.runtime.clock import boottime
from engine.runtime.keeping import Cutoffs, groups, midnight
from engine.runtime.pacing import Paces
from engine.runtime.repairing import Tended
from engine.runtime.tidying import Piece
from engine.schedules.instants import TICK
from engine.schedules.timing import Spec

_BEGINNING = datetime.fromtimestamp(0, UTC)


async def removals(
    ledger: Tended, paces: Paces, chores: KeyChores, cutoffs: Cutoffs
) -> AsyncIterator[tuple[Piece, bool]]:
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
                yield Piece(chores, removals=leave), full
            if not full:
                break
            since = max(since + TICK, rows[-1].fire_time)


async def merges(
    ledger: Tended, paces: Paces, chores: KeyChores, cutoffs: Cutoffs, *, archived: bool
) -> AsyncIterator[tuple[Piece, bool]]:
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
            piece = Piece(chores, groups=found)
            if name == "merged":
                piece.merged = following
            if name == "settled" or together:
                piece.settled = min(following, cutoffs.settle)
            yield piece, full or (apart and begun < cutoffs.settle)
            since, reached = following, rows[-1].fire_time if rows else until


def _behind(rows: list[OldFire], found: list[list[OldFire]], reached: datetime) -> datetime:
    """Where the next piece begins: at a range that may go on, or with the last row."""
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
    chores: KeyChores,
    cutoffs: Cutoffs,
    *,
    archived: bool,
) -> list[list[OldFire]]:
    def may_merge(row: OldFire) -> bool:
        if archived and cutoffs.may_leave(row, chores):
            return False
        return cutoffs.may_merge(row, chores, archived=archived)

    return groups(rows, may_merge, specs.__getitem__)
