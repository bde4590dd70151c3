"""What became of the windows that fires wait for, in the in-memory ledger: see ``awaited``."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from engine.ledger.backfill_records import UNDECLARED
from engine.ledger.fire_records import cause_of
from engine.ledger.memory_tables import FireEntry, ScheduleEntry, Tables
from engine.schedules.awaiting import Awaited, Became, Rule, is_pending, unmet
from engine.schedules.decisions import IN_LINE, Hold, OpenFire
from engine.schedules.reason_codes import reason_code

_UNSENT = {"claimed", "queued", "starting"}


def with_awaited(tables: Tables, entry: FireEntry, fire: OpenFire) -> OpenFire:
    """Return an open fire with what became of everything that it waits for."""
    return replace(fire, awaited=awaited(tables, entry)) if entry.awaits else fire


def awaited(tables: Tables, entry: FireEntry) -> tuple[Awaited, ...]:
    """Return what became of each window that a fire waits for."""
    rules = entry.awaits.rules if entry.awaits else ()
    return tuple(_awaited(tables, rule, entry.new.fire_time) for rule in rules)


def waits_for_nothing(tables: Tables, number: int, fire: FireEntry) -> bool:
    """Whether what waits in a queue could go on, as far as other schedules are concerned."""
    if fire.awaits:
        found = awaited(tables, fire)
        return unmet(found) is not None or not is_pending(found)
    if tables.schedules[fire.new.key].state.schedule.overlap not in IN_LINE:
        return True
    return not any(tables.fires[n].awaits for n in tables.of_key(fire.new.key) if n < number)


def _awaited(tables: Tables, rule: Rule, at: datetime) -> Awaited:
    parent = tables.schedules.get(rule.parent)
    if parent is None:
        return Awaited(rule.parent, rule.when, "absent")
    held = _held(parent, at)
    state = parent.state
    due = parent.next_fire_at is not None and parent.next_fire_at <= at
    undecided = state.cursor < at and (state.failures > 0 or due)
    row = _window(tables, rule, at)
    if _may_be_laid(tables, rule, parent, row, at):
        return Awaited(rule.parent, rule.when, "pending")
    if row is None or (rule.window == "latest" and held is None and undecided):
        nothing: Became = held or ("pending" if undecided else "nothing")
        return Awaited(rule.parent, rule.when, nothing)
    learnt = row.closed_at and max(row.closed_at, row.seen_at or row.closed_at)
    return Awaited(rule.parent, rule.when, _became(row), row.reason, learnt)


def _may_be_laid(
    tables: Tables, rule: Rule, parent: ScheduleEntry, row: FireEntry | None, at: datetime
) -> bool:
    """Whether a backfill may still become the window that is meant, or one behind it."""
    state = parent.state
    for each in tables.backfills.values():
        if each.key != rule.parent or each.state != "laying" or each.cursor >= at:
            continue
        if each.ends(state) or each.is_halted(state):
            continue
        if rule.window == "same":
            cause = cause_of(row.status, reason_code(row.reason)) if row else UNDECLARED
            if each.is_pending(cause, at, at):
                return True
        elif row is None or row.new.last_fire_time < min(each.last, at):
            return True
    return False


def _became(row: FireEntry) -> Became:
    if row.status in _UNSENT:
        return "pending"
    if row.status == "started":
        return "lost" if row.lost_at else "pending"
    return row.status  # type: ignore[return-value] # the four above aside


def _held(parent: ScheduleEntry, at: datetime) -> Hold | None:
    """Why nobody is to wait for it: a schedule that is held decides when it goes on."""
    pause = parent.state.pause
    if parent.state.hold == "paused" and pause and pause.until and pause.until <= at:
        return None
    return parent.state.hold


def _window(tables: Tables, rule: Rule, at: datetime) -> FireEntry | None:
    rows = [
        row
        for row in map(tables.fires.__getitem__, tables.of_key(rule.parent))
        if row.kind == "window" and row.new.fire_time <= at
    ]
    if rule.window == "latest":
        ran = [row for row in rows if row.status not in {"skipped", "expired"}]
        return max(ran, key=lambda row: (row.new.fire_time, row.new.series), default=None)
    same = [row for row in rows if row.new.last_fire_time >= at]
    return max(same, key=lambda row: (row.new.series, row.new.fire_time), default=None)
