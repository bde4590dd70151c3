"""Planner: decisions on due windows. Pure."""

from engine.schedules.planner.decisions import (
    ALL_READ as ALL_READ,
    FAILED as FAILED,
    LONGEST_WAIT as LONGEST_WAIT,
    READ_AHEAD as READ_AHEAD,
    TIME_RULES as TIME_RULES,
    Decision as Decision,
    Dependencies as Dependencies,
    Dependency as Dependency,
    Hold as Hold,
    Move as Move,
    OpenFire as OpenFire,
    Origin as Origin,
    Pause as Pause,
    Piece as Piece,
    Plan as Plan,
    ScheduleState as ScheduleState,
    ShareTurn as ShareTurn,
    Verdict as Verdict,
    current_cursor as current_cursor,
    reading_at as reading_at,
    unresolved_workflow as unresolved_workflow,
    without as without,
)
from engine.schedules.planner.overlap import (
    Resolved as Resolved,
    ahead as ahead,
    blocked_by as blocked_by,
    resolve as resolve,
)
from engine.schedules.planner.planner import (
    FIRST_SIGHT as FIRST_SIGHT,
    MOST_ROWS as MOST_ROWS,
    first_sight as first_sight,
    newest_start as newest_start,
    plan as plan,
    wake_at as wake_at,
)
