"""New and edited definitions, with the state that they put their schedule into (rule L3)."""

from __future__ import annotations

from datetime import datetime, timedelta

from engine.ledger.records import NewDefinition
from engine.schedules import Schedule
from engine.schedules.diff import starts_new_series
from engine.schedules.planner.decisions import Origin, Plan, ScheduleState
from engine.schedules.planner.planner import first_sight, wake_at
from engine.schedules.units import TICK

LOOK_BACK = timedelta(seconds=60)
"""How far a stateless replica, which has no cursor, looks back at its start."""


def first_definition(
    schedule: Schedule,
    now: datetime,
    *,
    project: str,
    workflow_type: str | None,
    look_back: bool = False,
    origin: Origin = "file",
    request_id: str | None = None,
) -> NewDefinition:
    """Return the definition of a key that the ledger has never seen."""
    effective_from, cursor = first_sight(schedule, now)
    if look_back:
        # The current window may have run long ago, and a stateless replica has no record of it.
        back = looked_back(schedule, now - LOOK_BACK)
        if schedule.first_fire != "now" or back < cursor:
            effective_from = cursor = back
    held = schedule.paused or not schedule.enabled
    return NewDefinition(
        schedule=schedule,
        project=project,
        version=1,
        series=1,
        suffixed=False,
        max_bucket=None,
        effective_from=effective_from,
        cursor=cursor,
        next_fire_at=None if held else wake_at(schedule, cursor),
        workflow_type=workflow_type,
        paused=schedule.paused,
        origin=origin,
        request_id=request_id,
    )


def next_definition(
    owed: Plan,
    schedule: Schedule,
    now: datetime,
    *,
    project: str,
    workflow_type: str | None,
    origin: Origin = "file",
    request_id: str | None = None,
) -> NewDefinition:
    """Return the definition of a changed or returning key; ``owed`` decided its windows to now."""
    before = owed.state
    returning = before.retired_at is not None
    renumbered = starts_new_series(before.schedule, schedule)
    # A clock that was set back may be behind the cursor, and no moment may be decided twice. Newer
    # zone rules also move the cursor of a fixed-time schedule ahead, because a local time that has
    # fired recurs. That concerns only the old windows; those of a renumbered series are new.
    ahead = before.effective_from if renumbered and owed.reading is not None else owed.cursor
    effective_from = cursor = max(now, before.effective_from, ahead)
    series, suffixed = before.series, before.suffixed
    if returning or renumbered:
        series += 1
        suffixed = _collides(schedule, cursor, owed.max_bucket)
    return NewDefinition(
        schedule=schedule,
        project=project,
        version=before.definition_version + 1,
        series=series,
        suffixed=suffixed,
        max_bucket=owed.max_bucket,
        effective_from=effective_from,
        cursor=cursor,
        next_fire_at=looked_at_next(before, schedule, cursor, now),
        workflow_type=workflow_type,
        paused=before.pause is not None,
        origin=origin,
        request_id=request_id,
    )


def looked_at_next(
    state: ScheduleState, schedule: Schedule, cursor: datetime, now: datetime
) -> datetime | None:
    """Return the next due time of a schedule that is decided up to ``cursor``.

    A pause with an end is due at its end. A schedule with queued fires is due at once: what they
    wait for may have ended, or may no longer matter under the new definition.
    """
    if not schedule.enabled:
        return None
    if state.pause is not None:
        return state.pause.until
    if any(fire.status == "queued" for fire in state.open_fires):
        return now
    return wake_at(schedule, cursor)


def looked_back(schedule: Schedule, limit: datetime) -> datetime:
    """Return the cursor after which every window starts, spread included, after ``limit``."""
    before = schedule.spec.previous(limit)
    if before is None or before + schedule.delay(before) <= limit:
        return limit
    return before - TICK  # the spread of this one window still delays it


def _collides(schedule: Schedule, after: datetime, max_bucket: int | None) -> bool:
    """Return whether ids of a new series could repeat those of an older one."""
    first = schedule.spec.next(after)
    if max_bucket is None:
        return False
    return first is None or schedule.spec.bucket(first) <= max_bucket
