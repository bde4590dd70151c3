"""Planner values: input states, dependencies and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from engine.schedules.ids import Window
from engine.schedules.policies import Overlap, Rule, Stop, When
from engine.schedules.timing.spec import Spec
from engine.schedules.units import TICK, first_of
from engine.schedules.validators import shorten

# --- dependencies of a window ---
# The ledger reports the outcome of each awaited parent window; whether it meets the rule is decided
# here. The table is in docs/chains.md.

REASON: Final = "dependency"
"""First word of the reason of a window that waits for a parent, or is skipped for one."""

ParentOutcome = Literal[
    "pending",
    "completed", "failed", "timed_out", "terminated", "cancelled", "rejected", "unvouched", "lost",
    "skipped", "expired", "nothing", "paused", "disabled", "retired", "absent",
]  # fmt: skip
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
    reason: str | None = None

    @property
    def said(self) -> str:
        """Reason of the fire while it waits."""
        names = [rule.parent for rule in self.rules]
        return f"{REASON}: waits for {first_of(names, _NAMED)}"

    def to_json(self) -> dict[str, Any]:
        """Return the dependencies as the ledger stores them."""
        return {"reason": self.reason, "rules": [rule.to_json() for rule in self.rules]}


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
    def unmet(self) -> str | None:
        """Reason why it can never be met; None while it is or may be met."""
        if self.became == "pending" or self.is_met:
            return None
        why = f": {self.reason}" if self.reason and self.became in _SAYS_WHY else ""
        said = f"{self.parent} {_WORDS.get(self.became, self.became)}{why}"
        return shorten(f"{REASON}: {said}", _LONGEST)


def unmet(awaited: Sequence[Dependency]) -> str | None:
    """Return why a fire with these dependencies can never start; None while it may."""
    return next((why for each in awaited if (why := each.unmet)), None)


def is_pending(awaited: Sequence[Dependency]) -> bool:
    """Return whether any of the outcomes is not final."""
    return any(each.became == "pending" for each in awaited)


def ready_at(awaited: Sequence[Dependency], fire_time: datetime) -> datetime:
    """Return the moment from which a fire no longer waits."""
    return max((fire_time, *(each.since for each in awaited if each.since)))


# --- decisions ---

Verdict = Literal["claimed", "queued", "skipped", "expired", "rejected"]
Hold = Literal["paused", "disabled", "retired"]
StartTiming = Literal["on_time", "caught_up"]

QUEUE_FULL = "overlap: the queue is full"
"""Prefix of the reason of a window that found the queue of its schedule full."""

IN_LINE: Final[frozenset[Overlap]] = frozenset({"queue", "queue_one"})
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
        reason: a text whose first word is stable; None for an ordinary start.
        timing: ``on_time`` or ``caught_up`` (the starter turns the former into ``late``).
        missed: windows a caught-up start stands for besides its own.
        missed_from: the fire time of the first of them.
        not_before: the earliest start; None starts at once.
        windows: how many windows this decision covers.
        last: the fire time of the last of them.
        awaits: the dependencies it waits for before overlap is considered.
        overlap: its policy while it is queued; None is the schedule's.
    """

    window: Window
    verdict: Verdict
    reason: str | None = None
    timing: StartTiming | None = None
    missed: int = 0
    missed_from: datetime | None = None
    not_before: datetime | None = None
    windows: int = 1
    last: datetime | None = None
    awaits: Dependencies | None = None
    overlap: Overlap | None = None

    @property
    def excluded(self) -> bool:
        """Whether it skips windows that the schedule excludes."""
        return (self.reason or "").startswith("excluded")

    @property
    def overflows(self) -> bool:
        """Whether it skips a window because the queue is full."""
        return (self.reason or "").startswith(QUEUE_FULL)

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
    reason: str | None = None
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
