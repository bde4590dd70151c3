"""Planner values: states of schedules, dependencies, decisions and plans."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, Self

from engine.schedules.model import Schedule
from engine.schedules.terms import (
    TICK,
    Overlap,
    Reason,
    Rule,
    Stop,
    When,
    Window,
    code_of,
    epoch_seconds,
    first_of,
    from_seconds,
    instant_text,
    parse_workflow_id,
)
from engine.schedules.timing.cron_parser import parse
from engine.schedules.timing.spec import EVALUATOR_VERSION, Spec
from engine.schedules.timing.zones import TZDATA_VERSION, zone
from engine.schedules.validators import shorten

# --- dependencies of a window ---
# The ledger reports the outcome of each awaited parent window; whether it meets the rule is decided
# here. The table is in docs/chains.md.

REASON: Final = "dependency"
"""Code, and first word, of the reason of a window that waits for a parent or is skipped for one."""

ParentOutcome = Literal[
    "pending",
    "completed",
    "failed",
    "timed_out",
    "terminated",
    "cancelled",
    "rejected",
    "unvouched",
    "lost",
    "skipped",
    "expired",
    "nothing",
    "paused",
    "disabled",
    "retired",
    "absent",
]
"""Outcome of a parent's window; ``pending`` is not final."""

FAILED: Final[frozenset[ParentOutcome]] = frozenset(
    {"failed", "timed_out", "terminated", "cancelled", "rejected", "unvouched", "lost"}
)
"""Outcomes of a window that ended, or can never end, without completing."""

_SAYS_WHY: Final[frozenset[ParentOutcome]] = frozenset(
    {"skipped", "expired", "rejected", "unvouched"}
)
"""Outcomes whose reason explains why there was no run; other reasons explain why there was one."""

_WORDS: Final[dict[ParentOutcome, str]] = {
    "timed_out": "timed out",
    "terminated": "was terminated",
    "cancelled": "was cancelled",
    "rejected": "was rejected",
    "unvouched": "is unvouched",
    "lost": "was lost",
    "skipped": "was skipped",
    "nothing": "has no run then",
    "paused": "is paused",
    "disabled": "is disabled",
    "retired": "was retired",
    "absent": "is not in the ledger",
}

_NAMED: Final = 3
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies that a fire waits for before overlap is considered.

    Attributes:
        rules: its parents, and the required outcome of each.
        reason: the reason of the fire once it no longer waits.
    """

    rules: tuple[Rule, ...]
    reason: Reason | None = None

    @property
    def waiting_reason(self) -> Reason:
        """Reason of the fire while it waits."""
        names = [rule.parent for rule in self.rules]
        return Reason(REASON, f"{REASON}: waits for {first_of(names, _NAMED)}")

    def to_json(self) -> dict[str, Any]:
        """Return the dependencies as the ledger stores them."""
        return {
            "reason": self.reason,
            "code": code_of(self.reason),
            "rules": [rule.to_json() for rule in self.rules],
        }


@dataclass(frozen=True, slots=True)
class Dependency:
    """Outcome of one window that a fire waits for.

    Attributes:
        parent: the key of the schedule it belongs to.
        when: the required outcome.
        became: the outcome.
        reason: the reason of the outcome, if the ledger records one.
        since: when the close of its run was observed, if it had one.
    """

    parent: str
    when: When
    became: ParentOutcome
    reason: str | None = None
    since: datetime | None = None

    @property
    def is_met(self) -> bool:
        """Whether the outcome is the required one."""
        completed, failed = self.became == "completed", self.became in FAILED
        return {"success": completed, "failure": failed, "always": completed or failed}[self.when]

    @property
    def unmet(self) -> Reason | None:
        """Reason why it can never be met; None while it is or may be met."""
        if self.became == "pending" or self.is_met:
            return None
        why = f": {self.reason}" if self.reason and self.became in _SAYS_WHY else ""
        text = f"{self.parent} {_WORDS.get(self.became, self.became)}{why}"
        return Reason(REASON, shorten(f"{REASON}: {text}", _LONGEST))


def unmet(awaited: Sequence[Dependency]) -> Reason | None:
    """Return why a fire with these dependencies can never start; None while it may."""
    return next((why for each in awaited if (why := each.unmet)), None)


def is_pending(awaited: Sequence[Dependency]) -> bool:
    """Return whether any of the outcomes is not final."""
    return any(each.became == "pending" for each in awaited)


def ready_at(awaited: Sequence[Dependency], fire_time: datetime) -> datetime:
    """Return the moment from which a fire no longer waits."""
    return max((fire_time, *(each.since for each in awaited if each.since)))


# --- decisions ---

Verdict = Literal["claimed", "queued", "skipped", "expired", "rejected", "unvouched"]
Hold = Literal["paused", "disabled", "retired"]
StartTiming = Literal["on_time", "caught_up"]

FIFO: Final[frozenset[Overlap]] = frozenset({"queue", "queue_one"})
"""Policies that keep the order of the line: a queued fire blocks those behind it."""

READ_AHEAD: Final = 100
"""Open fires of each kind that a plan reads beyond the places of its schedule."""

Known = Mapping[datetime, bool]
"""Windows after the cursor that already have a row, by fire time; True where they have a run.

An operator skipped them in advance, or a run that the ledger had lost was found. The planner
leaves them unchanged.
"""


@dataclass(frozen=True, slots=True)
class OpenFire:
    """Fire of the key whose run is open or may still start.

    Attributes:
        fire_id: its number in the ledger.
        workflow_id: the id of its run.
        status: its progress.
        fire_time: of its window; of a manual run or a rerun, the moment of the request.
        open_at: when its run was last proven open; None if it never was.
        overlap: its policy while it is queued; None is the schedule's. With ``skip`` it waits only
            for a look at the runs that may block it.
        stop: the stop requested of its run.
        awaited: the outcomes of the windows of other schedules that it waits for.
        timing: all other fires pass a waiting ``backfill`` fire.
    """

    fire_id: int
    workflow_id: str
    status: Literal["claimed", "queued", "starting", "started"]
    fire_time: datetime
    open_at: datetime | None = None
    overlap: Overlap | None = None
    stop: Stop | None = None
    awaited: tuple[Dependency, ...] = ()
    timing: str | None = None

    @property
    def is_of_a_window(self) -> bool:
        """Whether it is the window's own fire, as ``ScheduleState.started`` counts it."""
        parsed = parse_workflow_id(self.workflow_id)
        own = parsed is not None and parsed.bucket is not None and parsed.rerun is None
        return own and self.timing != "backfill"


class Unread(NamedTuple):
    """Open fires of a key that are only counted: a plan reads no more than it can decide.

    Attributes:
        running: claimed, starting or started, written after those that were read; counted up to
            the schedule's places.
        waiting: queued for a place, behind those that were read.
        pending: queued for windows of other schedules, behind those that were read, where each
            starts as soon as its own parents have ended.
    """

    running: int = 0
    waiting: int = 0
    pending: int = 0


ALL_READ: Final = Unread()


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on one window, or on adjacent windows that share it.

    Attributes:
        window: the window; of several, the first.
        verdict: ``claimed`` starts a run, ``queued`` may start one later, the others are final.
        reason: why; None for an ordinary start.
        timing: ``on_time`` or ``caught_up`` (the starter turns the former into ``late``).
        missed: windows a caught-up start stands for besides its own.
        missed_from: the fire time of the first of them.
        not_before: the earliest start; None starts at once.
        windows: how many windows this decision covers.
        last: the fire time of the last of them.
        awaits: the dependencies it waits for before overlap is considered.
        overlap: its policy while it is queued; None is the schedule's.
        waited_since: the moment after which it has waited for other schedules only; None of one
            that is not older than ``grace``.
    """

    window: Window
    verdict: Verdict
    reason: Reason | None = None
    timing: StartTiming | None = None
    missed: int = 0
    missed_from: datetime | None = None
    not_before: datetime | None = None
    windows: int = 1
    last: datetime | None = None
    awaits: Dependencies | None = None
    overlap: Overlap | None = None
    waited_since: datetime | None = None

    @property
    def may_start(self) -> bool:
        """Whether its window starts, now or later."""
        return self.verdict in {"claimed", "queued"}

    @property
    def excluded(self) -> bool:
        """Whether it skips windows that the schedule excludes."""
        return code_of(self.reason) == "excluded"

    @property
    def overflows(self) -> bool:
        """Whether it skips a window because the queue is full."""
        return code_of(self.reason) == "queue_full"

    @property
    def until(self) -> datetime:
        """Fire time of the last window it covers."""
        return self.last or self.window.fire_time


@dataclass(frozen=True, slots=True)
class Move:
    """Decision on a fire that is already open.

    ``start`` promotes a queued fire, not before ``not_before`` if that is set. ``skip`` gives up a
    fire whose send has not begun. ``release`` moves a fire that waited for other schedules to the
    queue of its own. ``cancel`` and ``terminate`` are requests for its run, carried out later.
    """

    fire: OpenFire
    to: Literal["start", "skip", "release", "cancel", "terminate"]
    reason: Reason | None = None
    not_before: datetime | None = None


# --- rows for many windows ---


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a range: its first window, its number of windows, and its last fire time."""

    window: Window
    windows: int
    last: datetime


def without(spec: Spec, first: Window, last: datetime, *taken: datetime) -> list[Piece]:
    """Split a range into each taken window and the pieces before, between and after them.

    Args:
        spec: when the range's windows open.
        first: its first window.
        last: the fire time of its last window.
        taken: the fire times of the windows to take out, in order.

    Raises:
        ValueError: the range has no window at one of them.
    """
    spans = []
    begin = first.fire_time
    for at in taken:
        if not begin <= at <= last or spec.previous(at) != at:
            raise ValueError(f"no window at {at} from {begin} to {last}")
        spans += [(begin, at - TICK), (at, at)]
        begin = at + TICK
    spans.append((begin, last))
    return [piece for begin, end in spans if (piece := _piece(spec, first, begin, end))]


def _piece(spec: Spec, of: Window, begin: datetime, end: datetime) -> Piece | None:
    opened, closed = spec.next(begin - TICK), spec.previous(end)
    if opened is None or closed is None or opened > end:
        return None
    window = Window(of.key, of.series, spec.bucket(opened), opened)
    return Piece(window, spec.count(begin - TICK, end), closed)


# --- versions of time rules ---
# Zone rules change several times a year, and an evaluator may be corrected. The ledger records the
# rules that each schedule was last computed by: a replica with older ones leaves it alone, one
# with newer ones takes it over. A fixed-time schedule must not fire a local time again then because
# its instant has moved (docs/time.md).

TIME_RULES: Final = f"{EVALUATOR_VERSION:04}/{TZDATA_VERSION}"
"""Versions of the evaluator and the zone rules; compared as text, newer ones are greater."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the local axis has no zone


def reading_at(schedule: Schedule, cursor: datetime) -> datetime | None:
    """Return the latest local time, naive, that a fixed-time schedule has reached at ``cursor``.

    None for schedules that do not fire once per local time: intervals, moments, and wildcard
    expressions, which fire at real readings only.
    """
    if not _is_fixed_time(schedule):
        return None
    rules, at = zone(schedule.timezone), epoch_seconds(cursor)
    piece = bisect_right(rules.starts, at) - 1
    reading = max(at + rules.offsets[piece], rules.reached[piece] - 1)
    return _EPOCH + timedelta(seconds=reading)


def cursor_by_new_rules(schedule: Schedule, cursor: datetime, reading: datetime | None) -> datetime:
    """Return the cursor, under the present rules, of a schedule that other rules computed.

    It is where the present rules show ``reading``, even if that is before ``cursor``: local times
    up to it have fired and do not fire again, later ones have not fired.

    Args:
        schedule: the schedule.
        cursor: its cursor under the other rules.
        reading: the result of `reading_at` for that cursor, under the other rules.
    """
    if reading is None or not _is_fixed_time(schedule):
        return cursor
    shown = (reading - _EPOCH) // timedelta(seconds=1)
    return from_seconds(zone(schedule.timezone).first_instant(shown))


def _is_fixed_time(schedule: Schedule) -> bool:
    return schedule.cron is not None and not parse(schedule.cron, schedule.seed).wildcard


# --- state and plan ---

Origin = Literal["file", "api"]


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a schedule; without ``until`` it lasts until an operator resumes the schedule."""

    at: datetime
    reason: str | None = None
    by: str | None = None
    until: datetime | None = None

    @property
    def lasts(self) -> str:
        """How long it lasts, to follow the words "is paused"."""
        return f"until {instant_text(self.until)}" if self.until else "until it is resumed"


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule's row, read under its lock.

    ``started`` is how many windows of its series have started or may still start, backfills left
    out; it is counted only of a schedule with a ``limit``, and up to that.
    ``rules`` are the time rules by which it was computed, ``cursor_reading`` is the local time of
    its cursor by them; see ``TIME_RULES``. ``former`` are the keys that it had before
    it was renamed, ``successor`` is the one that it has now if this row is of a former one.
    ``known``, ``open_fires`` and ``unread`` are what a plan needs of its fires.
    """

    key: str
    project: str
    schedule: Schedule
    definition_version: int
    digest: str
    series: int
    suffixed: bool
    max_bucket: int | None
    effective_from: datetime
    cursor: datetime
    workflow_type: str | None
    retired_at: datetime | None
    pause: Pause | None
    absent_since: datetime | None
    failures: int
    rules: str
    cursor_reading: datetime | None
    origin: Origin = "file"
    former: tuple[str, ...] = ()
    successor: str | None = None
    known: Known = field(default_factory=dict)
    open_fires: tuple[OpenFire, ...] = ()
    unread: Unread = ALL_READ
    line_changes: int = 0
    started: int = 0

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        cursor: datetime,
        *,
        series: int = 1,
        effective_from: datetime | None = None,
    ) -> Self:
        """Return the state of a schedule that no ledger has: decided up to ``cursor``."""
        return cls(
            key=schedule.key,
            project="",
            schedule=schedule,
            definition_version=1,
            digest="",
            series=series,
            suffixed=False,
            max_bucket=None,
            effective_from=effective_from or cursor,
            cursor=cursor,
            workflow_type=schedule.workflow,
            retired_at=None,
            pause=None,
            absent_since=None,
            failures=0,
            rules=TIME_RULES,
            cursor_reading=None,
        )

    def window(self, fire_time: datetime) -> Window:
        """Return the window of the current series that opens at ``fire_time``."""
        return Window(self.key, self.series, self.schedule.spec.bucket(fire_time), fire_time)

    @property
    def room(self) -> int | None:
        """How many more windows may start; None without a ``limit``."""
        limit = self.schedule.limit
        return None if limit is None else max(limit - self.started, 0)

    @property
    def hold(self) -> Hold | None:
        """The reason why the schedule does not fire, if so."""
        if self.retired_at is not None:
            return "retired"
        if not self.schedule.enabled:
            return "disabled"
        return "paused" if self.pause is not None else None


def current_cursor(state: ScheduleState) -> datetime:
    """Return the schedule's cursor by the current rules of time."""
    if state.rules == TIME_RULES:
        return state.cursor
    # The definition's start is a lower bound, also after an edit by a replica with older rules.
    cursor = cursor_by_new_rules(state.schedule, state.cursor, state.cursor_reading)
    return max(cursor, min(state.cursor, state.effective_from))


def unresolved_workflow(schedule: Schedule) -> Reason:
    """Return the reason that the ledger records for windows of an unknown workflow."""
    text = f"no worker on task queue {schedule.task_queue} knows {schedule.workflow}"
    return Reason("unknown_workflow", text)


@dataclass(frozen=True, slots=True)
class ShareTurn:
    """Why the windows of a schedule are late, while more is due than can be started.

    Attributes:
        waited_since: later windows have waited for other schedules only, and are not missed unless
            they are older than ``catchUp.window``.
        overloaded: more is due of its own share than can be started.
    """

    waited_since: datetime | None = None
    overloaded: bool = False


LONGEST_WAIT: Final = timedelta(seconds=30)
"""The longest time until a plan that waits for an answer is made again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions on every window up to ``cursor``.

    Attributes:
        state: the schedule as the plan found it.
        decisions: on undecided windows; the starts are in start order.
        cursor: everything up to here is now decided. It is before ``now``, and ``next_fire_at`` at
            once, if one plan cannot hold every decision or runs have to be looked at first.
        next_fire_at: when to plan again; None if nothing becomes due by itself. Of a withheld plan
            it is not later than the oldest window that is undecided.
        moves: decisions on fires that are already open.
        looks: runs to look at before the key is planned again; the decisions made here stand.
        resumed: the pause has ended by itself, and its windows are decided.
        audit: windows were missed; which of them have run has to be looked up first.
        withheld: a decision depends on the answer to a look, an audit or a send, so planning again
            at once is useless.
        look_at: when to plan again, if that is later than ``next_fire_at``.
    """

    state: ScheduleState
    decisions: tuple[Decision, ...]
    cursor: datetime
    next_fire_at: datetime | None
    moves: tuple[Move, ...] = ()
    looks: tuple[OpenFire, ...] = ()
    resumed: bool = False
    audit: bool = False
    withheld: bool = False
    look_at: datetime | None = None

    def put_off(self, now: datetime, again: datetime) -> Plan:
        """Return the plan of a schedule that waits for an answer until ``again``.

        Its next fire time stays that of the window which is withheld, or else its children would
        find that the schedule has no window then.
        """
        due = self.next_fire_at
        if due is not None and now < due < again:
            return self
        return replace(self, next_fire_at=min(due or again, again), look_at=again)

    @property
    def waits(self) -> bool:
        """Whether it puts windows into the line of their key."""
        return any(decision.verdict == "queued" for decision in self.decisions)

    @property
    def concerns_others(self) -> bool:
        """Whether windows of other schedules may wait for it, or it for them."""
        without_run = any(decision.verdict != "claimed" for decision in self.decisions)
        return without_run or any(move.to == "skip" for move in self.moves)

    @property
    def plain(self) -> bool:
        """Whether only the position of the schedule changes, and nothing in its own row."""
        state = self.state
        return not (self.resumed or state.failures or state.rules != TIME_RULES)

    @property
    def reading(self) -> datetime | None:
        """The local time of the cursor, needed when zone rules change."""
        return reading_at(self.state.schedule, self.cursor)

    @property
    def max_bucket(self) -> int | None:
        """The highest bucket of the key once this plan is recorded."""
        spec = self.state.schedule.spec
        used = [
            spec.bucket(decision.last or decision.window.fire_time) for decision in self.decisions
        ]
        # A window that was skipped ahead has a row already and is passed over.
        used += [spec.bucket(at) for at in self.state.known if at <= self.cursor]
        return max(
            (*used, *(() if self.state.max_bucket is None else (self.state.max_bucket,))),
            default=None,
        )
