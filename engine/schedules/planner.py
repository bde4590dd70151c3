"""Decides what becomes of every due window. Pure: the moment is an argument.

``plan`` enumerates the windows in ``(cursor, now]``, never only the current one: polling the
current bucket loses windows whenever a tick comes late. What it returns is a value; the ledger
writes it and the starter acts on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from engine.schedules.catch_up import CatchUp
from engine.schedules.catching_up import catch_up
from engine.schedules.decisions import ALL_READ, Decision, Hold, Known, Move, OpenFire, Plan, Unread
from engine.schedules.due import Due
from engine.schedules.instants import TICK, from_seconds
from engine.schedules.model import Schedule
from engine.schedules.overlap import Resolved, resolve
from engine.schedules.spans import MOST_ROWS, Span, take
from engine.schedules.turns import in_order, in_turn


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
    doubted_at: datetime | None = None,
    rows: int = MOST_ROWS,
    unread: Unread = ALL_READ,
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
        hold_until: a pause ends by itself then; a window that opens right then is free.
        make_up: what becomes of the windows of a hold that ends at ``now``; by default, and of
            one that ends by itself, what the schedule's ``catchUp`` says of it.
        unable: nobody can run the workflow; windows older than ``grace`` are rejected for
            that reason, and younger ones stay open for a replica that can.
        final: this definition, or its hold, ends at ``now``: no window may stay open, however
            many there are, and no run can be looked at first.
        limit: the most runs to start at once; others stay due, or are claimed for later.
        known: windows after ``cursor`` that have a row already.
        open_fires: fires of the key whose runs are open or may still come.
        suffixed: whether run ids of the present series end in ``:s<n>``.
        audited: whether ``known`` holds every run since ``cursor``. Without that no missed window
            is decided (rule L4).
        doubted_at: when a sign of lost commits was seen last. A window up to then counts as missed
            in this, however young it is.
        rows: the most decisions to return, unless ``final``; the rest stays due.
        unread: how many more are open behind ``open_fires``.

    The rule: while the oldest undecided window is younger than ``grace``, every window starts;
    beyond it the catch-up policy speaks. Where the schedule follows others each start then waits
    for these, whose windows ``open_fires`` tells of. At last ``overlap`` speaks, of each start. The
    tables are in docs/decisions.md and docs/chains.md.
    """
    asked = _Asked(
        schedule, series, effective_from, cursor, hold, hold_until if hold == "paused" else None,
        make_up, unable, final, limit, known or {}, open_fires, suffixed, audited or final,
        doubted_at, rows, unread,
    )  # fmt: skip
    decided = asked.plan(now)
    proofs = [fire.open_at or cursor for fire in decided.looks]
    if decided.withheld and proofs and cursor < min(proofs) < now:
        # What was seen open settles the windows until then. Without this a schedule that fires
        # faster than somebody looks would wait for ever.
        return replace(asked.plan(min(proofs)), looks=decided.looks, withheld=True)
    return decided


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of `plan`, except the moment."""

    schedule: Schedule
    series: int
    effective_from: datetime
    cursor: datetime
    hold: Hold | None
    hold_until: datetime | None
    make_up: CatchUp | None
    unable: str | None
    final: bool
    limit: int
    known: Known
    open_fires: Sequence[OpenFire]
    suffixed: bool
    audited: bool
    doubted_at: datetime | None
    rows: int
    unread: Unread

    def plan(self, now: datetime) -> Plan:
        due = Due(self.schedule, self.series, self.effective_from, now, self.known)
        ends = self.hold_until is not None and self.hold_until <= now
        spans = [self._held(due)] if self.hold else []
        if ends or not self.hold:
            spans.append(self._owed(due, max([self.cursor, *(span.until for span in spans)])))
        policy = self.make_up or self.schedule.catch_up
        decisions, until = take(spans, None if self.final else self.rows)
        resolved = Resolved(tuple(decisions))
        if ends or not self.hold or self.make_up is not None:
            resolved = self._resolve(in_order(decisions, policy))
        if resolved.withheld:
            until = self.cursor
        newest = self.schedule.spec.previous(until)
        cursor = max(self.cursor, newest) if newest is not None else self.cursor
        resumed = ends and until >= spans[0].until
        following = self.hold_until if self.hold and not resumed else wake_at(self.schedule, cursor)
        if resolved.more:
            following = now if following is None else min(following, now)
        return Plan(
            in_turn(resolved.decisions, policy, self.limit, now),
            cursor,
            following,
            moves=tuple(self._in_time(move, now) for move in resolved.moves),
            looks=resolved.looks,
            resumed=resumed,
            audit=spans[-1].audit,
            withheld=not resolved.more
            and (resolved.withheld or resolved.unsettled or spans[-1].audit),
        )

    def _held(self, due: Due) -> Span:
        """What becomes of the windows of a hold."""
        until, make_up = due.now, self.make_up
        if self.hold_until is not None and self.hold_until <= due.now:
            until = self.hold_until - TICK
            make_up = make_up or self.schedule.catch_up.after("pause")
        if make_up is None:
            return Span(due.settle_held(self.cursor, until, self.hold or ""), until)
        return Span(catch_up(due, make_up, self.cursor, until, skipped=self.hold), until)

    def _owed(self, due: Due, after: datetime) -> Span:
        """What becomes of windows that nothing holds back."""
        now, schedule = due.now, self.schedule
        edge = now - schedule.grace
        oldest = due.oldest(after)
        if oldest is None:
            return Span(due.settle(after, now, "skipped", "excluded"), now)
        if self.unable is not None:
            until = now if self.final else max(edge - TICK, after)
            return Span(due.settle(after, until, "rejected", self.unable), until)
        if self.doubted_at is not None and oldest <= self.doubted_at and not self.audited:
            return Span(iter(()), after, audit=True)
        first_seen = oldest == self.effective_from and oldest == schedule.spec.previous(now)
        if first_seen or oldest + schedule.delay(oldest) >= edge:
            return Span(due.start_all(after, now), now, None if self.final else self.limit)
        if not self.audited:
            return Span(iter(()), after, audit=True)
        return Span(catch_up(due, schedule.catch_up, after, now), now)

    def _resolve(self, decisions: Sequence[Decision]) -> Resolved:
        return resolve(
            self.schedule.overlap, decisions, self.open_fires,
            places=self.schedule.max_concurrent_runs,
            most_queued=self.schedule.max_queued, final=self.final,
            named=lambda each: each.window.workflow_id(self.suffixed),
            rules=self.schedule.follows, unread=self.unread,
        )  # fmt: skip

    def _in_time(self, move: Move, now: datetime) -> Move:
        """Let a start that waited for other schedules still come by its part of ``spread``."""
        if move.to != "start" or not move.fire.awaited:
            return move
        moment = move.fire.fire_time + self.schedule.delay(move.fire.fire_time)
        return replace(move, not_before=moment if moment > now else None)


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
