"""Decides what becomes of every due window. Pure: the moment is an argument.

``plan`` enumerates the windows in ``(cursor, now]``, never only the current one: polling the
current bucket loses windows whenever a tick comes late. What it returns is a value; the ledger
writes it and the starter acts on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from engine.schedules.catch_up import CatchUp
from engine.schedules.catching_up import catch_up
from engine.schedules.decisions import Decision, Hold, Known, OpenFire, Plan
from engine.schedules.due import FIRST_SIGHT, TICK, Due
from engine.schedules.instants import from_seconds
from engine.schedules.model import Schedule
from engine.schedules.overlap import Resolved, resolve

MOST_ROWS = 2000

__all__ = ["FIRST_SIGHT", "Decision", "Hold", "Plan", "first_sight", "plan", "wake_at"]


def plan(
    schedule: Schedule,
    *,
    series: int,
    effective_from: datetime,
    cursor: datetime,
    now: datetime,
    hold: Hold | None = None,
    hold_until: datetime | None = None,
    make_up: CatchUp | None = None,
    unable: str | None = None,
    final: bool = False,
    limit: int = 1000,
    known: Known | None = None,
    open_fires: Sequence[OpenFire] = (),
    suffixed: bool = False,
    audited: bool = True,
    rows: int = 2000,  # noqa: ARG001
) -> Plan:
    """Decide the windows of ``schedule`` in ``(cursor, now]``.

    Args:
        schedule: the definition in force for these windows.
        series: the key's current series.
        effective_from: when the definition took effect. A window opening right then is owed by
            first sight: while it is the current one it starts, whatever its age.
        cursor: every window at or before it is decided already.
        now: the ledger's clock.
        hold: the schedule does not fire; its windows are skipped for that reason.
        hold_until: a pause ends by itself then.
        make_up: what becomes of the windows of a hold that ends at ``now``; by default, and of
            one that ends by itself, what the schedule's ``catchUp`` says of it.
        unable: nobody can run the workflow; windows older than ``grace`` are rejected for
            that reason, and younger ones stay open for a replica that can.
        final: this definition, or its hold, ends at ``now``: no window may stay open, and nobody
            can be asked whether a run is still open.
        limit: the most runs to start at once; others stay due, or are claimed for later.
        known: windows after ``cursor`` that have a row already.
        open_fires: fires of the key whose runs are open or may still come.
        suffixed: whether run ids of the present series end in ``:s<n>``.
        audited: whether ``known`` holds every run since ``cursor``. Without that no missed window
            is decided (rule L4).

    The rule: while the oldest undecided window is younger than ``grace``, every window starts;
    beyond it the catch-up policy speaks. Then ``overlap`` speaks, of each start.
    """
    due = Due(schedule, series, effective_from, now, known or {})
    spans: list[_Span] = []
    if hold is not None:
        spans.append(_held(due, cursor, hold, hold_until, make_up))
    resumed = hold == "paused" and hold_until is not None and hold_until <= now
    if hold is None or resumed:
        begin = max(cursor, spans[-1].until) if spans else cursor
        spans.append(
            _owed(due, begin, unable=unable, final=final, limit=limit, audited=audited or final)
        )
    decided = Resolved(tuple(chain.from_iterable(span.decisions for span in spans)))
    until = spans[-1].until
    if hold is None or resumed or make_up is not None:
        decided = resolve(
            schedule.overlap,
            decided.decisions,
            open_fires,
            most_queued=schedule.max_queued,
            named=lambda decision: decision.window.workflow_id(suffixed),
            trusting=final,
        )
    if decided.undecided_from is not None:
        until = decided.undecided_from - TICK
    newest = schedule.spec.previous(until)
    cursor = max(cursor, newest) if newest is not None else cursor
    return Plan(
        _at_once(decided.decisions, limit, now),
        cursor,
        wake_at(schedule, cursor),
        moves=decided.moves,
        looks=decided.looks,
        resumed=resumed,
        audit=spans[-1].audit,
    )


class _Span(NamedTuple):
    """Decisions on every window up to ``until``; ``audit``: see ``Plan``."""

    decisions: tuple[Decision, ...]
    until: datetime
    audit: bool = False


def _held(
    due: Due, cursor: datetime, hold: Hold, hold_until: datetime | None, make_up: CatchUp | None
) -> _Span:
    """What becomes of the windows of a hold."""
    ends = min(hold_until or due.now, due.now)
    if make_up is None and ends == hold_until:
        make_up = due.schedule.catch_up.after("pause")
    if make_up is None:
        return _Span(due.settle_held(cursor, ends, hold), ends)
    return _Span(catch_up(due, make_up, cursor, ends, skipped=hold), ends)


def _owed(
    due: Due, cursor: datetime, *, unable: str | None, final: bool, limit: int, audited: bool
) -> _Span:
    """What becomes of windows that nothing holds back."""
    now, schedule = due.now, due.schedule
    edge = now - schedule.grace
    oldest = due.oldest(cursor)
    if oldest is None:
        return _Span(due.settle(cursor, now, "skipped", "excluded"), now)
    if unable is not None:
        until = now if final else max(edge - TICK, cursor)
        return _Span(due.settle(cursor, until, "rejected", unable), until)
    if oldest + schedule.delay(oldest) >= edge:
        return _started(due, cursor, None if final else limit)
    if oldest == due.effective_from and oldest == schedule.spec.previous(now):
        return _started(due, cursor, 1)
    if not audited:
        return _Span((), cursor, audit=True)
    return _Span(catch_up(due, schedule.catch_up, cursor, now), now)


def _started(due: Due, cursor: datetime, limit: int | None) -> _Span:
    decisions = due.start_all(cursor, due.now, limit)
    full = limit is not None and sum(each.verdict == "claimed" for each in decisions) >= limit
    return _Span(decisions, decisions[-1].until if full else due.now)


def _at_once(decisions: Sequence[Decision], limit: int, now: datetime) -> tuple[Decision, ...]:
    """Let starts beyond ``limit`` wait for whoever has room: they are claimed, and not sent."""
    room = limit
    found = []
    for each in decisions:
        if each.verdict == "claimed" and each.not_before is None:
            room -= 1
            if room < 0:
                each = replace(each, not_before=now)  # noqa: PLW2901 - the same one, later
        found.append(each)
    return tuple(found)


def wake_at(schedule: Schedule, cursor: datetime) -> datetime | None:
    """Return when to look at the schedule next: when its next window after ``cursor`` opens.

    Of excluded windows that is the last of the day, so that a day of them is one row.
    """
    first = schedule.spec.next(cursor)
    if first is None or schedule.exclusions is None:
        return first
    day = schedule.exclusions.day_of(first)
    return first if day.reason is None else schedule.spec.previous(from_seconds(day.end) - TICK)


def first_sight(schedule: Schedule, now: datetime) -> tuple[datetime, datetime]:
    """Return ``(effective_from, cursor)`` of a definition the ledger has never seen before ``now``.

    An interval owes its current window, a cron waits for its next fire time; ``firstFire``
    overrides both. A moment (``at``) that has passed is never owed.
    """
    at_once = schedule.first_fire == "now" or (
        schedule.first_fire is None and schedule.kind == "interval"
    )
    if not at_once or schedule.kind == "at":
        return now, now
    current = schedule.spec.previous(now)
    return (now, now) if current is None else (current, current - TICK)
