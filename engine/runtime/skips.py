"""What operators skipped ahead, when the definition changes under it.

A skip means a moment: it stays while a window opens then, whatever number that has now. Where none
does any more it is dropped, and somebody is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from engine.ledger import Transaction
from engine.ledger.operating_records import Action, SkippedAhead
from engine.ledger.schedule_records import ScheduleState, Step
from engine.schedules.decisions import Decision

Dropped = dict[str, tuple[str, ...]]
"""Moments whose skip was dropped, as text, by key."""


async def renew_skips(
    transaction: Transaction, lifted: Sequence[SkippedAhead], *, by: str
) -> Dropped:
    """Write skips anew under the definitions that are in force now.

    Args:
        transaction: has written the new definitions.
        lifted: what was skipped under the old ones.
        by: who edits.

    Returns:
        What could not be kept.
    """
    if not lifted:
        return {}
    keys = sorted({skip.key for skip in lifted})
    states = {state.key: state for state in await transaction.read(keys)}
    dropped: dict[str, list[datetime]] = {}
    for skip in sorted(lifted, key=lambda each: each.fire_time):
        state = states[skip.key]
        if state.schedule.spec.previous(skip.fire_time) == skip.fire_time:
            decision = Decision(state.window(skip.fire_time), "skipped", skip.reason)
            await transaction.note_ahead(Step(state, (decision,), state.cursor, None))
        else:
            dropped.setdefault(skip.key, []).append(skip.fire_time)
            await transaction.act([_forgotten(states, skip)], by=by)
    return {
        key: tuple(f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in moments)
        for key, moments in dropped.items()
    }


def _forgotten(states: Mapping[str, ScheduleState], skip: SkippedAhead) -> Action:
    before = {"status": "skipped", "fire_time": skip.fire_time, "reason": skip.reason}
    reason = "edited: no window opens then any more"
    project = states[skip.key].project
    return Action(project, skip.key, "unskip", reason, skip.workflow_id, before=before)
