"""The planner: decisions for all due windows of one schedule."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from engine.schedules.ids import Window
from engine.schedules.model import CatchUp, Schedule
from engine.schedules.planner.decisions import (
    ALL_READ,
    Decision,
    Hold,
    Known,
    Move,
    OpenFire,
    Plan,
    StartTiming,
    Unread,
    Verdict,
)
from engine.schedules.planner.overlap import Resolved, resolve
from engine.schedules.timing.cron import EVALUATOR_VERSION
from engine.schedules.timing.cron_parser import parse
from engine.schedules.timing.zones import TZDATA_VERSION, zone
from engine.schedules.units import TICK, epoch_seconds, from_seconds

# --- due windows ---
# The due windows of one schedule, and the ways to decide a span of them.
#
# Every way answers lazily and in the order of time, so that a plan takes no more than it can hold.

FIRST_SIGHT: Final = "first sight"
"""The reason of a window that was open when its schedule was first seen."""

Stretch = tuple[datetime, datetime, str | None]
"""``after < t <= until``, and what excludes the windows in it; None is nothing."""

_NONE: Final[Known] = {}


@dataclass(frozen=True, slots=True)
class Due:
    """Due windows of one schedule at ``now``.

    Excluded windows are settled on the way, whatever becomes of those around them, and windows
    that have a row already are passed over.
    """

    schedule: Schedule
    series: int
    effective_from: datetime
    now: datetime
    known: Known = field(default_factory=lambda: _NONE)

    def oldest(self, after: datetime) -> datetime | None:
        """Return the oldest due window after ``after`` that may start."""
        oldest = self.schedule.first_start(after + TICK)
        while oldest is not None and oldest in self.known:
            oldest = self.schedule.first_start(oldest + TICK)
        return oldest if oldest is not None and oldest <= self.now else None

    def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Return the ``most`` newest windows in ``(after, until]`` that may start, newest first.

        Walks backwards: the cost is that of what is returned, not of what was missed.
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
                yield from self.settle_whole(begin, end, "skipped", excluded)
                continue
            for at in self.schedule.spec.fires(begin, end):
                # No window before the definition is owed, so only first sight has one at its start.
                yield self.start(at, timing, FIRST_SIGHT if at == self.effective_from else None)

    def settle(
        self, after: datetime, until: datetime, verdict: Verdict, reason: str
    ) -> Iterator[Decision]:
        """Decide all windows in ``(after, until]``, one row for each stretch of one reason."""
        for begin, end, excluded in self.stretches(after, until):
            if excluded is None:
                yield from self.settle_whole(begin, end, verdict, reason)
            else:
                yield from self.settle_whole(begin, end, "skipped", excluded)

    def settle_held(self, after: datetime, until: datetime, hold: str) -> Iterator[Decision]:
        """Skip all windows in ``(after, until]`` for a hold; it speaks before any exclusion."""
        for begin, end in self._unknown(after, until):
            yield from self.settle_whole(begin, end, "skipped", hold)

    def settle_whole(
        self, after: datetime, until: datetime, verdict: Verdict, reason: str
    ) -> Iterator[Decision]:
        """One decision for all windows in ``(after, until]``: however many, it is one row."""
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
        reason: str | None = None,
        *,
        missed: int = 0,
        missed_from: datetime | None = None,
    ) -> Decision:
        """Start the window that opened at ``at``, by its part of ``spread`` later."""
        moment = at + self.schedule.delay(at)
        return Decision(
            self._window(at), "claimed", reason, timing, missed=missed, missed_from=missed_from,
            not_before=moment if moment > self.now else None,
        )  # fmt: skip

    def stretches(self, after: datetime, until: datetime) -> Iterator[Stretch]:
        """Divide ``(after, until]`` by what excludes the windows in it."""
        excluded = self.schedule.exclusions
        for first, last in self._unknown(after, until):
            if excluded is None:
                yield first, last, None
                continue
            for begin, end, reason in excluded.divide(first, last):
                yield begin, end, f"excluded: {reason}" if reason else None

    def _unknown(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        """``(after, until]`` without the windows that have a row."""
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


# --- pacing of starts ---
# When the starts of one plan begin: in which order, how fast, and which of them at once.


def in_order(decisions: Sequence[Decision], policy: CatchUp) -> list[Decision]:
    """Return the decisions with what is caught up in the order that ``policy`` says, and last."""
    if policy.order == "oldest":
        return [*decisions]
    caught_up = [each for each in decisions if each.timing == "caught_up"]
    return [each for each in decisions if each.timing != "caught_up"] + caught_up[::-1]


def pace_starts(
    decisions: Iterable[Decision], policy: CatchUp, limit: int, now: datetime
) -> tuple[Decision, ...]:
    """Let starts wait for their turn by ``catchUp.rate``, and those beyond ``limit`` for room.

    Only what does start takes a turn. What waits for room is claimed and not sent: it is for
    whoever has room.
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
        found.append(replace(decision, not_before=moment))
    return tuple(found)


# --- catch-up policies ---
# What becomes of windows that were missed: the catch-up policies.
#
# Every policy answers for the whole span at once, in the order of time, and in a number of
# decisions that depends on ``max`` and the days off, not on how many windows were missed. In which
# order and how fast the starts among them go is the planner's to say. The table: docs/decisions.md.

TOO_OLD = "older than the catch-up window"
NOT_WANTED = "missed, and catchUp is none"
COALESCED = "coalesced into"


def catch_up(
    due: Due, policy: CatchUp, after: datetime, until: datetime, *, skipped: str | None = None
) -> Iterator[Decision]:
    """Decide every window in ``(after, until]`` by ``policy``.

    Args:
        due: the schedule, and the moment from which ages are counted.
        policy: what to do.
        after: where the missed span begins.
        until: where it ends.
        skipped: the windows were skipped for this reason already, by a pause for instance: what
            is not caught up stays ``skipped`` for it, and does not expire.
    """
    if policy.policy == "none":
        yield from _leave(due, after, until, skipped)
        return
    # What is younger than grace starts in any case, and never expires.
    edge = _edge(due, after, until, max(policy.window, due.schedule.grace))
    verdict: Verdict = "skipped" if skipped else "expired"
    yield from due.settle(after, edge, verdict, skipped or TOO_OLD)
    if policy.policy == "latest":
        yield from _latest(due, edge, until)
        return
    chosen = due.newest(edge, until, policy.max)
    begin = chosen[-1] - TICK if chosen else until
    yield from due.settle(edge, begin, verdict, skipped or f"beyond catchUp.max {policy.max}")
    yield from due.start_all(begin, until, "caught_up")


def _edge(due: Due, after: datetime, until: datetime, age: timedelta) -> datetime:
    """Return where within the span windows are not older than ``age`` any more."""
    # A run that is spread is only missed once its own moment has passed. Instants have
    # microseconds, and the window at the very edge still counts.
    oldest = due.oldest(after)
    slack = due.schedule.delay(oldest) if oldest else timedelta(0)
    return min(max(after, due.now - age - slack - TICK), until)


def _leave(due: Due, after: datetime, until: datetime, skipped: str | None) -> Iterator[Decision]:
    """``none``: what is older than ``grace`` is over; the rest is not missed, and starts."""
    if skipped:
        yield from due.settle_held(after, until, skipped)
        return
    edge = _edge(due, after, until, due.schedule.grace)
    yield from due.settle(after, edge, "expired", NOT_WANTED)
    yield from due.start_all(edge, until)


def _latest(due: Due, after: datetime, until: datetime) -> Iterator[Decision]:
    """One run for all of them: the newest window."""
    newest = next(iter(due.newest(after, until, 1)), None)
    if newest is None:
        yield from due.settle(after, until, "skipped", "excluded")
        return
    ran = max((at for at, run in due.known.items() if run and newest < at <= until), default=None)
    reason = f"{COALESCED} {due.schedule.spec.bucket(ran or newest)}"
    if ran:  # a newer window than all that was missed has its run already
        yield from due.settle(after, until, "skipped", reason)
        return
    coalesced = [*due.settle(after, newest - TICK, "skipped", reason)]
    yield from coalesced
    mine = [each for each in coalesced if each.reason == reason]
    missed = sum(each.windows for each in mine)
    yield due.start(
        newest, "caught_up", f"caught up for {missed} missed windows" if missed else None,
        missed=missed, missed_from=mine[0].window.fire_time if mine else None,
    )  # fmt: skip
    yield from due.settle(newest, until, "skipped", "excluded")


# --- limits of one plan ---
# How much one plan decides: at most so many rows, and at most so many starts.

MOST_ROWS: Final = 2000
"""The most decisions of one plan: a transaction of the tick has seconds."""


class Span(NamedTuple):
    """Decisions on every window up to ``until``, in the order of time.

    ``limit`` is how many of them may start; the windows from there on stay due. ``audit``:
    see ``Plan``.
    """

    decisions: Iterable[Decision]
    until: datetime
    limit: int | None = None
    audit: bool = False


def take(spans: Sequence[Span], most: int | None) -> tuple[list[Decision], datetime]:
    """Return the decisions of ``spans``, at most ``most``, and up to where they decide."""
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
    """Leave what is caught up to the next plan as a whole: its number, its order and its rate.

    Unless that would leave most of the room unused, plan after plan.
    """
    for place, each in enumerate(found):
        if each.verdict == "claimed" or (each.reason or "").startswith(COALESCED):
            return found[:place] if place * 2 > len(found) else found
    return found


# --- plan ---
# Decides what becomes of every due window. Pure: the moment is an argument.
#
# ``plan`` enumerates the windows in ``(cursor, now]``, never only the current one: polling the
# current bucket loses windows whenever a tick comes late. What it returns is a value; the ledger
# writes it and the starter acts on it.


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
            pace_starts(resolved.decisions, policy, self.limit, now),
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
        """Decide the windows of a hold."""
        until, make_up = due.now, self.make_up
        if self.hold_until is not None and self.hold_until <= due.now:
            until = self.hold_until - TICK
            make_up = make_up or self.schedule.catch_up.after("pause")
        if make_up is None:
            return Span(due.settle_held(self.cursor, until, self.hold or ""), until)
        return Span(catch_up(due, make_up, self.cursor, until, skipped=self.hold), until)

    def _owed(self, due: Due, after: datetime) -> Span:
        """Decide the windows outside any hold."""
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


# --- versions of time rules ---
# By which rules of time a replica computes, and what newer ones mean for a schedule.
#
# Zone rules change several times a year, and an evaluator may be corrected. The ledger keeps the
# rules that each schedule was last computed by: a replica with older ones leaves it alone, one
# with newer ones takes it over. What must not happen then is that a fixed-time schedule fires a
# local time again because its instant has moved (DESIGN §5).

TIME_RULES: Final = f"{EVALUATOR_VERSION:04}/{TZDATA_VERSION}"
"""The evaluator's version and that of the zone rules; compared as text, newer ones are greater."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the local axis has no zone


def reading_at(schedule: Schedule, cursor: datetime) -> datetime | None:
    """Return the latest local time that a fixed-time schedule has come to at ``cursor``.

    Naive, as the local clock shows it. None where no local time can come twice: for intervals,
    moments, and wildcard expressions, which fire at real readings only.
    """
    if not _is_fixed_time(schedule):
        return None
    rules, at = zone(schedule.timezone), epoch_seconds(cursor)
    piece = bisect_right(rules.starts, at) - 1
    reading = max(at + rules.offsets[piece], rules.reached[piece] - 1)
    return _EPOCH + timedelta(seconds=reading)


def cursor_by_new_rules(schedule: Schedule, cursor: datetime, reading: datetime | None) -> datetime:
    """Return from where windows are to be decided, of a schedule that other rules computed.

    Args:
        schedule: the schedule.
        cursor: as the other rules left it.
        reading: what `reading_at` said of it then.

    That is where our rules show ``reading``: the local times up to it have fired and do not
    fire again, those behind it have not, even where that lies before ``cursor``.
    """
    if reading is None or not _is_fixed_time(schedule):
        return cursor
    shown = (reading - _EPOCH) // timedelta(seconds=1)
    return from_seconds(zone(schedule.timezone).first_instant(shown))


def _is_fixed_time(schedule: Schedule) -> bool:
    return schedule.cron is not None and not parse(schedule.cron, schedule.key).wildcard
