"""Turns rows of PostgreSQL into records."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from engine.errors import EngineError
from engine.ledger.declaration_records import DriftRow
from engine.ledger.fire_records import Claim, Fire
from engine.ledger.operating_records import ActionRow
from engine.ledger.schedule_records import NextFire, Pause, ScheduleRow, ScheduleState
from engine.schedules.awaiting import Awaited
from engine.schedules.decisions import OpenFire
from engine.schedules.model import Schedule

Row = Any
"""An ``asyncpg.Record``: its columns are typed by the query, not by Python."""


@lru_cache(maxsize=100_000)
def parse_definition(text: str) -> Schedule:
    """Return the schedule that a ``definitions.definition`` holds; equal texts share one."""
    return Schedule.from_json(json.loads(text))


def as_state(row: Row) -> ScheduleState:
    """Return the state read by ``read_schedules.sql``."""
    fields = dict(row)
    pause = _as_pause(fields)
    known, ran = fields.pop("known") or (), fields.pop("ran") or ()
    return ScheduleState(
        schedule=parse_definition(fields.pop("definition")),
        pause=pause,
        known=dict(zip(known, ran, strict=True)),
        open_fires=tuple(map(_as_open, json.loads(fields.pop("open") or "[]"))),
        **fields,
    )


def as_drift(row: Row) -> DriftRow:
    """Return the line read by ``drift.sql``."""
    fields = dict(row)
    return DriftRow(pause=_as_pause(fields), skipped=tuple(fields.pop("skipped") or ()), **fields)


def _as_pause(fields: dict[str, Any]) -> Pause | None:
    """Take the pause out of a row's fields."""
    pause = [fields.pop(f"paused_{name}") for name in ("at", "reason", "by", "until")]
    return Pause(*pause) if pause[0] else None


def _as_open(fields: dict[str, Any]) -> OpenFire:
    moments = {
        name: datetime.fromisoformat(fields[name]).astimezone(UTC)
        for name in ("fire_time", "open_at")
        if fields[name]
    }
    awaited = tuple(map(_as_awaited, fields["awaited"] or ()))
    return OpenFire(**{**fields, **moments, "awaited": awaited})


def _as_awaited(fields: dict[str, Any]) -> Awaited:
    since = fields["since"]
    return Awaited(**{**fields, "since": since and datetime.fromisoformat(since).astimezone(UTC)})


def as_claim(row: Row) -> Claim:
    """Return the claim taken by ``take_over.sql``."""
    fields = dict(row)
    own, rules = fields.pop("input"), fields.pop("rules")
    return Claim(
        fire_id=fields.pop("id"),
        schedule=parse_definition(fields.pop("definition")),
        own_input=() if own is None else (json.loads(own),),
        rules=rules and json.loads(rules),
        **fields,
    )


def as_schedule(row: Row) -> ScheduleRow:
    """Return the line read by ``list_schedules.sql``, also of a definition nobody can read."""
    fields = dict(row)
    retired, pause = fields.pop("retired_at"), _as_pause(fields)
    skipped_at, skipped_why = fields.pop("skipped_at") or (), fields.pop("skipped_why") or ()
    skips = dict(zip(skipped_at, skipped_why, strict=True))
    schedule: Schedule | None
    try:
        schedule = parse_definition(fields.pop("definition"))
    except EngineError as error:
        schedule = None
        fields["error"] = f"its definition cannot be read: {error}"
    state: Literal["active", "paused", "disabled", "retired"]
    if retired:
        state = "retired"
    elif pause:
        state = "paused"
    else:
        state = "disabled" if schedule and not schedule.enabled else "active"
    return ScheduleRow(schedule=schedule, state=state, pause=pause, skips=skips, **fields)


def as_next_fire(row: Row) -> NextFire | None:
    """Return what ``upcoming.sql`` read; None when all to come is excluded or skipped."""
    moment = row["fire_time"]
    if row["definition"] is not None:
        with suppress(EngineError):  # of a later version: then its looks are all that is known
            definition = parse_definition(row["definition"])
            moment = definition.first_start(moment, but=row["skipped_at"] or ())
    return NextFire(row["key"], moment, row["timezone"]) if moment else None


def as_action(row: Row) -> ActionRow:
    """Return the line read by ``list_actions.sql``."""
    states = {name: json.loads(row[name]) if row[name] else None for name in ("before", "after")}
    return ActionRow(**{**dict(row), **states})


def as_fire(row: Row) -> Fire:
    """Return the fire read by ``list_fires.sql``."""
    fields = {name: row[name] for name in Fire.__dataclass_fields__}
    return Fire(**{**fields, "history": tuple(json.loads(row["history"]))})
