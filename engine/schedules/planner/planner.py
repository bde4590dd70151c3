"""Planner: decisions on all due windows of one schedule. Pure: the moment is an argument."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, NamedTuple

from engine.schedules.model import CatchUp, Schedule
from engine.schedules.planner.decisions import (
    Decision,
    Hold,
    Known,
    Move,
    Plan,
    ScheduleState,
    ShareTurn,
    StartTiming,
    Verdict,
    current_cursor,
)
from engine.schedules.planner.overlap import Resolved, resolve
from engine.schedules.terms import EPOCH, STOOD_FOR, TICK, Reason, Window, code_of, from_seconds

# --- due windows ---
# Decisions are made lazily and in ascending order, so that a plan takes no more than it can hold.

_EXCLUDED: Final = Reason("excluded", "excluded")
FORGOTTEN: Final = Reason(
    "may_have_run",
    "may have run: no worker was seen for longer than Temporal keeps runs",
)
_SHADOW: Final = Reason("shadow", "shadow")
FIRST_SIGHT: Final = Reason("first_sight", "first sight")
"""Reason of a window that was open when its schedule was first seen."""

JudgedStretch = tuple[datetime, datetime, Reason | None]
"""``after < t <= until``, and the reason that excludes the windows in it, or None."""

_NONE: Final[Known] = {}
_IN_TIME: Final = ShareTurn()


@dataclass(frozen=True, slots=True)
class Due:
    """Due windows of one schedule at ``now``.

    Excluded windows are skipped as such, except in a hold; windows that already have a row are
    passed over. What would start is rejected if ``unable`` says why no worker can run it.
    """

    schedule: Schedule
    series: int
    effective_from: datetime
    now: datetime
    known: Known = field(default_factory=lambda: _NONE)
    unable: Reason | None = None
    turn: ShareTurn = _IN_TIME

    def oldest(self, after: datetime) -> datetime | None:
        """Return the oldest due window after ``after`` that may start."""
        oldest = self.schedule.first_start(after + TICK, but=self.known)
        return oldest if oldest is not None and oldest <= self.now else None

    def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Return the ``most`` newest windows in ``(after, until]`` that may start, newest first.

        It walks backwards: the cost depends on the windows returned, not on those missed.
        """
        found: list[datetime] = []
        reach = timedelta(days=1)
        while until > after and len(found) < most:
            begin = max(after, until - reach)
            for first, last, excluded in reversed([*self.stretches(begin, until)]):
                at = self.schedule.spec.previous(last) if excluded is None else None
                while at is not None and at > first and len(found) < most:
                    found.append(at)
                    at = self.schedule.spec.previous(at - TICK)
            until, reach = begin, 2 * reach
        return found

    def start_all(
        self, after: datetime, until: datetime, timing: StartTiming = "on_time"
    ) -> Iterator[Decision]:
        """Start every window in ``(after, until]``."""
        for begin, end, excluded in self.stretches(after, until):
            if excluded is not None:
                yield from self.decide_as_one(begin, end, "skipped", excluded)
                continue
            if self.unable is not None:
                yield from self.decide_as_one(begin, end, "rejected", self.unable)
                continue
            for at in self.schedule.spec.fires(begin, end):
                # A definition owes no earlier window; one at ``effective_from`` is of first sight.
                yield self.start(at, timing, FIRST_SIGHT if at == self.effective_from else None)

    def decide(
        self, after: datetime, until: datetime, verdict: Verdict, reason: Reason
    ) -> Iterator[Decision]:
        """Decide all windows in ``(after, until]``, with one row per stretch of one reason."""
        for begin, end, excluded in self.stretches(after, until):
            if excluded is None:
                yield from self.decide_as_one(begin, end, verdict, reason)
            else:
                yield from self.decide_as_one(begin, end, "skipped", excluded)

    def decide_held(self, after: datetime, until: datetime, hold: Reason) -> Iterator[Decision]:
        """Skip all windows in ``(after, until]`` for a hold; it overrides any exclusion."""
        for begin, end in self._unknown(after, until):
            yield from self.decide_as_one(begin, end, "skipped", hold)

    def decide_as_one(
        self, after: datetime, until: datetime, verdict: Verdict, reason: Reason
    ) -> Iterator[Decision]:
        """Yield one decision, and so one row, for all windows in ``(after, until]``."""
        spec = self.schedule.spec
        first = spec.next(after)
        last = spec.previous(until)
        if first is not None and last is not None and first <= until:
            windows = spec.count(after, until)
            yield Decision(self._window(first), verdict, reason, windows=windows, last=last)

    def start(
        self,
        at: datetime,
        timing: StartTiming,
        reason: Reason | None = None,
        *,
        missed: int = 0,
        missed_from: datetime | None = None,
    ) -> Decision:
        """Start the window that opened at ``at``, delayed by the key's share of ``spread``."""
        if self.unable is not None:
            return Decision(self._window(at), "rejected", self.unable)
        moment = at + self.schedule.delay(at)
        return Decision(
            self._window(at),
            "claimed",
            reason,
            timing,
            missed=missed,
            missed_from=missed_from,
            not_before=moment if moment > self.now else None,
            waited_since=self._waited_since(moment),
        )

    def _waited_since(self, moment: datetime) -> datetime | None:
        return self.turn.waited_since if moment < self.now - self.schedule.grace else None

    def stretches(self, after: datetime, until: datetime) -> Iterator[JudgedStretch]:
        """Divide ``(after, until]`` by the reason that excludes the windows in it."""
        for first, last in self._unknown(after, until):
            for begin, end, reason in self.schedule.stretches(first, last):
                yield begin, end, Reason("excluded", f"excluded: {reason}") if reason else None

    def _unknown(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield ``(after, until]`` without the windows that already have a row."""
        for at in sorted(self.known):
            if after < at <= until:
                if at - TICK > after:
                    yield after, at - TICK
                after = at
        if after < until:
            yield after, until

    def _window(self, fire_time: datetime) -> Window:
        return Window(
            self.schedule.key, self.series, self.schedule.spec.bucket(fire_time), fire_time
        )


# --- catch-up policies ---
# Every policy decides the whole missed span at once, in ascending order. The number of decisions
# depends on ``max`` and the days off, not on how many windows were missed. The order and rate of
# the starts are applied afterwards. The table is in docs/decisions.md.

_TOO_OLD = Reason("expired", "older than the catch-up window")
_NOT_WANTED = Reason("expired", "missed, and catchUp is none")


def catch_up(
    due: Due, policy: CatchUp, after: datetime, until: datetime, *, skipped: Reason | None = None
) -> Iterator[Decision]:
    """Decide every window in ``(after, until]`` by ``policy``.

    Args:
        due: the schedule, and the moment at which ages are measured.
        policy: the policy to apply.
        after: the start of the missed span.
        until: its end.
        skipped: the reason of windows that count as skipped already, such as a pause: those not
            caught up stay ``skipped`` and do not expire.
    """
    if policy.policy == "none":
        yield from _leave(due, after, until, skipped)
        return
    # A window that is at most ``grace`` old never expires, even with a shorter ``window``.
    edge = _edge(due, after, until, max(policy.window, due.schedule.grace))
    verdict: Verdict = "skipped" if skipped else "expired"
    yield from due.decide(after, edge, verdict, skipped or _TOO_OLD)
    if policy.policy == "latest":
        yield from _latest(due, edge, until)
        return
    chosen = due.newest(edge, until, policy.max)
    begin = chosen[-1] - TICK if chosen else until
    beyond = Reason("expired", f"beyond catchUp.max {policy.max}")
    yield from due.decide(edge, begin, verdict, skipped or beyond)
    yield from due.start_all(begin, until, "caught_up")


def _edge(due: Due, after: datetime, until: datetime, age: timedelta) -> datetime:
    """Return the point of the span after which windows are at most ``age`` old."""
    # A spread run is missed only once its own moment has passed. ``TICK``, a microsecond, keeps
    # the window at the very edge.
    oldest = due.oldest(after)
    slack = due.schedule.delay(oldest) if oldest else timedelta(0)
    return min(max(after, due.now - age - slack - TICK), until)


def _leave(
    due: Due, after: datetime, until: datetime, skipped: Reason | None
) -> Iterator[Decision]:
    """Apply ``none``: windows older than ``grace`` expire; the others are not missed and start."""
    if skipped:
        yield from due.decide_held(after, until, skipped)
        return
    edge = _edge(due, after, until, due.schedule.grace)
    yield from due.decide(after, edge, "expired", _NOT_WANTED)
    yield from due.start_all(edge, until)


def _latest(due: Due, after: datetime, until: datetime) -> Iterator[Decision]:
    """Apply ``latest``: one run, of the newest window, for all of them."""
    newest = next(iter(due.newest(after, until, 1)), None)
    if newest is None:
        yield from due.decide(after, until, "skipped", _EXCLUDED)
        return
    ran = max((at for at, run in due.known.items() if run and newest < at <= until), default=None)
    text = f"coalesced into {due.schedule.spec.bucket(ran or newest)}"
    reason = Reason("coalesced", text)
    if due.turn.overloaded:
        reason = Reason("overload", f"overload: {text}")
    if ran:  # a window newer than all missed ones already has its run
        yield from due.decide(after, until, "skipped", reason)
        return
    coalesced = [*due.decide(after, newest - TICK, "skipped", reason)]
    yield from coalesced
    mine = [each for each in coalesced if each.reason == reason]
    missed = sum(each.windows for each in mine)
    for_all = Reason("caught_up", f"caught up for {missed} missed windows")
    yield due.start(
        newest,
        "caught_up",
        for_all if missed else None,
        missed=missed,
        missed_from=mine[0].window.fire_time if mine else None,
    )
    yield from due.decide(newest, until, "skipped", _EXCLUDED)


# --- pacing of starts ---
# Applied to what the catch-up policies and the overlap policy have left.


def in_order(decisions: Sequence[Decision], policy: CatchUp) -> list[Decision]:
    """Return the decisions in start order: under ``newest`` caught-up ones come last, reversed."""
    if policy.order == "oldest":
        return [*decisions]
    caught_up = [each for each in decisions if each.timing == "caught_up"]
    return [each for each in decisions if each.timing != "caught_up"] + caught_up[::-1]


def pace_starts(
    decisions: Iterable[Decision], policy: CatchUp, limit: int, now: datetime
) -> tuple[Decision, ...]:
    """Delay caught-up starts by ``catchUp.rate``, and starts beyond ``limit`` until there is room.

    Only windows that do start count for the rate. A start beyond ``limit`` is claimed but not sent;
    any replica with room sends it.
    """
    distance = policy.rate.distance if policy.rate else timedelta(0)
    turn, room = now, limit
    found = []
    for decision in decisions:
        moment = decision.not_before
        if decision.verdict == "claimed":
            if decision.timing == "caught_up":
                moment = max(moment or now, turn)
                turn += distance
            room -= moment is None or moment <= now
            moment = moment if moment is not None and moment > now else None
            if moment is None and room < 0:
                moment = now
        same = moment == decision.not_before
        found.append(decision if same else replace(decision, not_before=moment))
    return tuple(found)


# --- limits of one plan ---

MOST_ROWS: Final = 2000
"""Most decisions of one plan: a transaction of the tick has only seconds."""
_NO_LIMIT: Final = sys.maxsize


class Span(NamedTuple):
    """Decisions on every window up to ``until``, in ascending order.

    ``limit`` is how many of them may start; later windows stay due. ``audit``: see ``Plan``.
    """

    decisions: Iterable[Decision]
    until: datetime
    limit: int | None = None
    audit: bool = False


def take(spans: Sequence[Span], most: int | None) -> tuple[list[Decision], datetime]:
    """Return at most ``most`` decisions of ``spans``, and the moment up to which they decide."""
    found: list[Decision] = []
    for span in spans:
        starts = 0
        for decision in span.decisions:
            if len(found) == most:
                found = _before_the_starts(found)
                return found, found[-1].until
            if starts == span.limit:
                return found, found[-1].until
            found.append(decision)
            starts += decision.verdict == "claimed"
    return found, spans[-1].until


def _before_the_starts(found: list[Decision]) -> list[Decision]:
    """Leave a catch-up to the next plan as a whole, to keep its number, order and rate.

    A catch-up in the first half stays, or plan after plan would leave most of the room unused.
    """
    for place, each in enumerate(found):
        if each.verdict == "claimed" or code_of(each.reason) in STOOD_FOR:
            return found[:place] if place * 2 > len(found) else found
    return found


# --- plan ---
# ``plan`` enumerates all windows in ``(cursor, now]``: polling only the current bucket would lose
# windows whenever a tick is late. The ledger writes the returned plan, and the starter executes it.


def plan(
    state: ScheduleState,
    now: datetime,
    *,
    on_resume: CatchUp | None = None,
    unable: Reason | None = None,
    final: bool = False,
    limit: int = 1000,
    audited: bool = True,
    suspect_until: datetime | None = None,
    rows: int = MOST_ROWS,
    hold: Hold | None = None,
    turn: ShareTurn | None = None,
    unvouched_until: datetime | None = None,
) -> Plan:
    """Decide the windows of a schedule in ``(cursor, now]``.

    While the oldest undecided window is at most ``grace`` old, every window starts; beyond that
    the catch-up policy applies. If the schedule has parents, each start then waits for their
    windows. Finally ``overlap`` applies to each start. The tables are in docs/decisions.md and
    docs/chains.md.

    Args:
        state: the schedule, with what is known of its fires.
        now: the ledger's clock.
        on_resume: the policy for the windows of a hold that ends at ``now``; None skips them. For a
            pause that has ended by itself the default is ``catchUp.pause``.
        unable: why no worker can run the workflow; windows older than ``grace``, and those that
            the end of a hold would start, are rejected for that reason. Younger ones stay open for
            a replica that can.
        final: this definition, or its hold, ends at ``now``: every window is decided, however many
            there are, and no run can be looked at first.
        limit: the most runs to start at once; others stay due, or are claimed for later.
        audited: whether ``state.known`` holds every run since the cursor. Otherwise no missed
            window is decided (rule L4).
        suspect_until: when a sign of lost commits was last seen. For rule L4 a window up to then
            counts as missed at any age.
        rows: the most decisions to return, unless ``final``; the rest stays due.
        hold: a hold in place of the schedule's own.
        turn: why its windows are late, if more is due than can be started.
        unvouched_until: windows up to then may have run, and Temporal has forgotten it.
    """
    cursor = current_cursor(state)
    if cursor < state.cursor:
        # Windows that newer rules owe before the cursor are decided now or never: it never moves
        # back.
        limit = rows = _NO_LIMIT
    hold = hold or state.hold
    hold_until = state.pause.until if state.pause and hold == "paused" else None
    planner = _Planner(
        state,
        cursor,
        hold=hold,
        hold_until=hold_until,
        on_resume=on_resume,
        unable=unable,
        final=final,
        limit=limit,
        audited=audited or final,
        suspect_until=suspect_until,
        rows=rows,
        turn=turn or _IN_TIME,
        unvouched_until=unvouched_until,
    )
    decided = planner.plan(now)
    proofs = [fire.open_at or cursor for fire in decided.looks]
    # At an earlier moment the pause still lasts: what it ends with would be lost.
    since = cursor if hold_until is None else max(cursor, hold_until)
    if decided.withheld and proofs and since < min(proofs) < now:
        # The oldest proof decides the windows up to it. Without this a schedule that fires faster
        # than runs are looked at would wait forever.
        return replace(planner.plan(min(proofs)), looks=decided.looks, withheld=True)
    return decided


def newest_start(schedule: Schedule, until: datetime) -> datetime | None:
    """Return the newest window at or before ``until`` that is on no day off, or None."""
    return next(iter(Due(schedule, 0, EPOCH, until).newest(EPOCH, until, 1)), None)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Planner of one schedule; ``hold_until`` is when its pause ends by itself."""

    state: ScheduleState
    cursor: datetime
    hold: Hold | None
    hold_until: datetime | None
    on_resume: CatchUp | None
    unable: Reason | None
    final: bool
    limit: int
    audited: bool
    suspect_until: datetime | None
    rows: int
    turn: ShareTurn
    unvouched_until: datetime | None

    def plan(self, now: datetime) -> Plan:
        state = self.state
        schedule, unable, turn = state.schedule, self.unable, self.turn
        due = Due(schedule, state.series, state.effective_from, now, state.known, unable, turn)
        ends = self.hold_until is not None and self.hold_until <= now
        spans = self._spans(due, ends=ends)
        policy = self.on_resume or self.state.schedule.catch_up
        decisions, until = take(spans, None if self.final else self.rows)
        resolved = Resolved(tuple(decisions))
        if ends or not self.hold or self.on_resume is not None:
            resolved = self._resolve(in_order(decisions, policy))
        if resolved.withheld:
            until = self.cursor
        newest = self.state.schedule.spec.previous(until)
        cursor = max(self.cursor, newest) if newest is not None else self.cursor
        resumed = ends and until >= spans[0].until
        following = (
            self.hold_until if self.hold and not resumed else wake_at(self.state.schedule, cursor)
        )
        if self._ends(resolved) and (resumed or not self.hold):
            following = None
        if resolved.more:
            following = now if following is None else min(following, now)
        return Plan(
            state,
            pace_starts(resolved.decisions, policy, self.limit, now),
            max(state.cursor, cursor),
            following,
            moves=tuple(self._in_time(move, now) for move in resolved.moves),
            looks=resolved.looks,
            resumed=resumed,
            audit=spans[-1].audit,
            withheld=not resolved.more
            and (resolved.withheld or resolved.unsettled or spans[-1].audit),
        )

    def _spans(self, due: Due, *, ends: bool) -> list[Span]:
        """Decide the windows of a hold, then those outside any; a limit is one for both."""
        room = self.state.room
        if not self.hold:
            return [*self._due(due, self.cursor, room)]
        held = self._held(due, self.hold)
        if room is not None:
            held = held._replace(decisions=[*_up_to_limit(held.decisions, room)])
            room -= sum(each.verdict == "claimed" for each in held.decisions)
        if not ends:
            return [held]
        return [held, *self._due(due, max(self.cursor, held.until), room)]

    def _held(self, due: Due, hold: Hold) -> Span:
        """Decide the windows of a hold."""
        until, on_resume = due.now, self.on_resume
        if self.hold_until is not None and self.hold_until <= due.now:
            until = self.hold_until - TICK
            on_resume = on_resume or self.state.schedule.catch_up.after("pause")
        why, after = Reason(hold, hold), self.cursor
        if on_resume is None or self.state.room == 0:  # what cannot start stands for no other
            return Span(due.decide_held(after, until, why), until)
        shadow_end = self.state.schedule.shadow_end
        edge = after if shadow_end is None else max(after, min(until, shadow_end - TICK))
        shadowed = due.decide_held(after, edge, why)
        return Span(chain(shadowed, catch_up(due, on_resume, edge, until, skipped=why)), until)

    def _due(self, due: Due, after: datetime, room: int | None) -> Iterator[Span]:
        """Decide the windows outside any hold: those of shadow mode, then those that are owed.

        ``room`` is how many of them may start; None is all.
        """
        shadow_end = self.state.schedule.shadow_end
        if shadow_end is not None and shadow_end > after:
            until = max(after, min(due.now, shadow_end - TICK))
            yield Span(due.decide(after, until, "skipped", _SHADOW), until)
            after = until
        if room is None:
            yield self._owed(due, after)
        elif self.final:
            owed = self._owed(due, after)
            yield owed._replace(decisions=_up_to_limit(owed.decisions, room))
        elif room > 0:
            owed = self._owed(due, after)
            yield owed._replace(limit=min(owed.limit or room, room))
        else:
            yield Span(iter(()), after)

    def _ends(self, resolved: Resolved) -> bool:
        """Return whether as many windows as ``limit`` allows have started, or wait to."""
        if (room := self.state.room) is None:
            return False
        new = sum(each.may_start for each in resolved.decisions)
        given_up = (move.fire for move in resolved.moves if move.to == "skip")
        return room + sum(fire.is_of_a_window for fire in given_up) <= new

    def _owed(self, due: Due, after: datetime) -> Span:
        """Decide the windows outside any hold and shadow mode."""
        now, schedule = due.now, self.state.schedule
        edge = now - schedule.grace
        oldest = due.oldest(after)
        if oldest is None:
            return Span(due.decide(after, now, "skipped", _EXCLUDED), now)
        if (given_up := self._given_up(due, after, oldest)) is not None:
            return given_up
        if self.suspect_until is not None and oldest <= self.suspect_until and not self.audited:
            return Span(iter(()), after, audit=True)
        first_seen = oldest == self.state.effective_from and oldest == schedule.spec.previous(now)
        if (waited_since := self.turn.waited_since) is not None:
            edge = min(edge, max(waited_since, now - schedule.catch_up.window))
        if first_seen or oldest + schedule.delay(oldest) >= edge:
            return Span(due.start_all(after, now), now, None if self.final else self.limit)
        if not self.audited:
            return Span(iter(()), after, audit=True)
        return Span(catch_up(due, schedule.catch_up, after, now), now)

    def _given_up(self, due: Due, after: datetime, oldest: datetime) -> Span | None:
        """Decide windows that may have run, or that no worker can run; None if there are none."""
        forgotten = self.unvouched_until
        if forgotten is not None and oldest <= forgotten:
            if not self.audited:  # Temporal still has runs that are open, or ended late
                return Span(iter(()), after, audit=True)
            return Span(due.decide(after, forgotten, "unvouched", FORGOTTEN), forgotten)
        if self.unable is not None:
            edge = due.now - self.state.schedule.grace
            until = due.now if self.final else max(edge - TICK, after)
            return Span(due.decide(after, until, "rejected", self.unable), until)
        return None

    def _resolve(self, decisions: Sequence[Decision]) -> Resolved:
        return resolve(
            self.state.schedule.overlap,
            decisions,
            self.state.open_fires,
            places=self.state.schedule.max_concurrent_runs,
            most_queued=self.state.schedule.max_queued,
            final=self.final,
            named=lambda each: each.window.workflow_id(self.state.suffixed),
            rules=self.state.schedule.follows,
            unread=self.state.unread,
        )

    def _in_time(self, move: Move, now: datetime) -> Move:
        """Delay a start that waited for other schedules by the key's share of ``spread``."""
        if move.to != "start" or not move.fire.awaited:
            return move
        moment = move.fire.fire_time + self.state.schedule.delay(move.fire.fire_time)
        return replace(move, not_before=moment if moment > now else None)


_LIMIT: Final = Reason("limit", "limit: it had started as many windows as it may")


def _up_to_limit(decisions: Iterable[Decision], room: int) -> Iterator[Decision]:
    """Yield the decisions, of which ``room`` may start; further windows are skipped."""
    for decision in decisions:
        if decision.verdict != "claimed":
            yield decision
        elif room > 0:
            room -= 1
            yield decision
        else:
            yield Decision(decision.window, "skipped", _LIMIT)


# --- first sight and next look ---


def wake_at(schedule: Schedule, cursor: datetime) -> datetime | None:
    """Return when to plan the schedule next: when its next window after ``cursor`` opens.

    For excluded windows that is the last one of the day, so that a day of them is one row.
    """
    first = schedule.spec.next(cursor)
    if first is None or schedule.exclusions is None:
        return first
    day = schedule.exclusions.day_of(first)
    return first if day.reason is None else schedule.spec.previous(from_seconds(day.end) - TICK)


def first_sight(schedule: Schedule, now: datetime) -> tuple[datetime, datetime]:
    """Return ``(effective_from, cursor)`` of a definition that the ledger first sees at ``now``.

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
