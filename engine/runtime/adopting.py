"""Takes over schedules that older rules of time computed."""

from __future__ import annotations

from engine.ledger import Ledger
from engine.ledger.records import ScheduleState, Step
from engine.schedules.planner import wake_at
from engine.schedules.time_rules import cursor_by_new_rules

_BATCH = 1000


async def adopt(ledger: Ledger, project: str) -> int:
    """Compute again when the project's schedules fire next, where older rules have; how many.

    Nothing is decided here. What is due by our rules the poller finds at its next look; a local
    time that has fired by the older rules does not fire again.
    """
    adopted, after = 0, ""
    while True:
        async with ledger.transaction(long=True) as transaction:
            keys = await transaction.lock_outdated(project, after, _BATCH)
            states = await transaction.read(keys)
            await transaction.record([_step(state) for state in states], strict=True)
        if not keys:
            return adopted
        adopted, after = adopted + len(states), keys[-1]


def _step(state: ScheduleState) -> Step:
    cursor = cursor_by_new_rules(state.schedule, state.cursor, state.cursor_reading)
    upcoming = None if state.hold else wake_at(state.schedule, cursor)
    return Step(state, (), cursor, upcoming)
