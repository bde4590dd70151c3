"""Books runs of ours that the ledger does not have as runs: rules L2 and L4.

A window inside a range that said "no run" is taken out of it; one whose commit was lost gets its
row back. Then the evidence is written as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import Code, ScheduleNotFound
from engine.flow.fire import FireInfo
from engine.ledger import Ledger
from engine.ledger.fire_records import Evidence
from engine.runtime.carving import take_out
from engine.runtime.events import Alert, Listener
from engine.runtime.looking import Seen
from engine.runtime.verbs.locked import has_window, locked
from engine.schedules.windows import Window

_ASKED_FOR = {"manual", "rerun"}


async def book(
    ledger: Ledger,
    found: Sequence[Seen],
    *,
    by: str,
    tell: Listener,
) -> list[str]:
    """Write what was seen of runs, of whichever windows; return the ids whose fires it changed.

    Args:
        ledger: the memory they belong to.
        found: runs of this ledger, and the windows of those that it may not have.
        by: who saw them.
        tell: hears of runs that the ledger had not.
    """
    if not found:
        return []
    unknown = await ledger.unknown_runs([each.workflow_id for each, _ in found])
    for each, info in found:
        if info is not None and each.workflow_id in unknown:
            try:
                said = await _make_room(ledger, each, info, by=by)
            except ScheduleNotFound:
                continue  # its schedule was lost too: nothing can be owed by it
            if said is not None:
                tell(
                    Alert(
                        Code.RUN_FOUND,
                        f"{each.workflow_id} has a run, and the ledger had it {said}",
                    )
                )
    return await ledger.witness([each for each, _ in found])


async def _make_room(ledger: Ledger, seen: Evidence, info: FireInfo, *, by: str) -> str | None:
    """See that the run's window has a row of its own; return what the ledger said of it before.

    None where it stands in a range of old runs that says the same: there is nothing to tell.
    """
    async with locked(ledger, info.key, by=by, retired=True) as schedule:
        transaction = schedule.transaction
        # A manual run and a rerun are no windows: beside them their window has a row of its own.
        row = None
        if info.timing not in _ASKED_FOR:
            row = await transaction.covering(info.key, info.fire_time)
        mine = row is not None and row.windows > 1 and row.series == info.series
        if row and mine and await has_window(transaction, row, info.fire_time):
            if row.status == seen.closed:
                return None
            await take_out(transaction, row, info.fire_time)
            return f"among {row.windows} that were {row.status}"
        window = Window(info.key, info.series, info.bucket, info.fire_time)
        await transaction.found(seen, window, info.definition_version, info.timing, info.data_from)
        return "not at all"
