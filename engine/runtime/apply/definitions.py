"""New, edited and renamed definitions, and the state that each puts its schedule into (rule L3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from engine.errors import DefinitionUnreadable
from engine.ledger import NewDefinition
from engine.schedules import Schedule
from engine.schedules.diff import starts_new_series
from engine.schedules.planner import (
    Origin,
    Plan,
    ScheduleState,
    current_cursor,
    first_sight,
    wake_at,
)

if TYPE_CHECKING:
    from engine.ledger import Transaction


def first_definition(
    schedule: Schedule,
    now: datetime,
    *,
    project: str,
    workflow_type: str | None,
    origin: Origin = "file",
    request_id: str | None = None,
) -> NewDefinition:
    """Return the definition of a key that the ledger has never seen."""
    effective_from, cursor = first_sight(schedule, now)
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
        before = replace(before, started=0)
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
    if schedule.limit is not None and state.started >= schedule.limit:
        return None
    return wake_at(schedule, cursor)


def _collides(schedule: Schedule, after: datetime, max_bucket: int | None) -> bool:
    """Return whether ids of a new series could repeat those of an older one."""
    first = schedule.spec.next(after)
    if max_bucket is None:
        return False
    return first is None or schedule.spec.bucket(first) <= max_bucket


def renamed_definition(state: ScheduleState, key: str, now: datetime) -> NewDefinition:
    """Return the definition that a schedule has under another key: the same one.

    Nothing is decided: the windows after the cursor belong to the new key. The numbers of versions
    go on, so that one number names one definition, whatever the key was.
    """
    cursor = current_cursor(state)
    was = None if state.schedule.seed == key else state.schedule.seed
    schedule = state.schedule.model_copy(update={"key": key, "was": was})
    retired = state.retired_at is not None
    return NewDefinition(
        schedule=schedule,
        project=state.project,
        version=state.definition_version + 1,
        series=state.series,
        suffixed=state.suffixed,
        max_bucket=state.max_bucket,
        effective_from=cursor,
        cursor=cursor,
        next_fire_at=None if retired else looked_at_next(state, schedule, cursor, now),
        workflow_type=state.workflow_type,
        paused=False,
        origin=state.origin,
    )


async def read_all(transaction: Transaction, keys: Sequence[str]) -> list[ScheduleState]:
    """Read these locked schedules. All must be readable, to decide first what they owe.

    Raises:
        DefinitionUnreadable: a newer version wrote one of them.
    """
    states = await transaction.read(keys)
    if missing := sorted(set(keys) - {state.key for state in states}):
        raise DefinitionUnreadable(
            f"the present definitions of {', '.join(missing)} cannot be read by this version",
            hint="apply with the version that wrote them",
        )
    return states
