"""From a schedule's row to the step that the ledger records: the planner, applied."""

from __future__ import annotations

import sys
from datetime import datetime

from engine.ledger.records import ScheduleState, Step
from engine.schedules.planner import MOST_ROWS, plan
from engine.schedules.time_rules import TIME_RULES, cursor_by_new_rules

_NO_LIMIT = sys.maxsize


def planned(
    state: ScheduleState,
    now: datetime,
    *,
    unable: str | None = None,
    final: bool = False,
    limit: int = 1000,
    rows: int = MOST_ROWS,
) -> Step:
    """Return what the planner decides for one schedule, ready to be recorded."""
    cursor = state.cursor
    if state.rules != TIME_RULES:  # of an edit, by a replica with older rules, too
        cursor = cursor_by_new_rules(state.schedule, cursor, state.cursor_reading)
        cursor = max(cursor, min(state.cursor, state.effective_from))
    # What newer rules owe before the cursor is owed now or never: the cursor does not go back.
    whole = cursor < state.cursor
    decided = plan(
        state.schedule,
        series=state.series,
        effective_from=state.effective_from,
        cursor=cursor,
        now=now,
        hold=state.hold,
        unable=unable,
        final=final,
        limit=_NO_LIMIT if whole else limit,
        rows=_NO_LIMIT if whole else rows,
    )
    upcoming = None if state.hold else decided.next
    return Step(state, decided.decisions, max(state.cursor, decided.cursor), upcoming)
