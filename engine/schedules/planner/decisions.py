"""Planner values: input states, dependencies and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from engine.schedules.ids import Window
from engine.schedules.policies import Overlap, Rule, Stop, When
from engine.schedules.timing.spec import Spec
from engine.schedules.units import TICK
from engine.schedules.validators import shorten

# --- dependencies of a window ---
# What a window waits for, and what has become of it so far.
#
# The ledger says of each parent what became of the window that is meant; whether that is what the
# schedule asks for is decided here. The table: docs/chains.md.

REASON: Final = "dependency"
"""The first word of the reason of whatever waits for a parent, or is skipped for one."""

ParentOutcome = Literal[
    "pending",
    "completed", "failed", "timed_out", "terminated", "cancelled", "rejected", "unvouched", "lost",
    "skipped", "expired", "nothing", "paused", "disabled", "retired", "absent",
]  # fmt: skip
"""What became of a parent's window; ``pending`` may still become anything."""

FAILED: Final[frozenset[ParentOutcome]] = frozenset(
    {"failed", "timed_out", "terminated", "cancelled", "rejected", "unvouched", "lost"}
)
"""It ended, or never can, and did not complete."""

_SAYS_WHY: Final[frozenset[ParentOutcome]] = frozenset(
    {"skipped", "expired", "rejected", "unvouched"}
)
"""Of these the reason is why there was no run; of others it is why there was one."""

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
        rules: its parents, and what each has to come to.
        reason: what the fire says for itself once it does not wait any more.
    """

    rules: tuple[Rule, ...]
    reason: str | None = None

    @property
    def said(self) -> str:
        """The reason of the fire while it waits."""
        names = [rule.parent for rule in self.rules]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{REASON}: waits for {', '.join(names[:_NAMED])}{more}"

    def to_json(self) -> dict[str, Any]:
        """Return it as the ledger keeps it."""
        return {"reason": self.reason, "rules": [rule.to_json() for rule in self.rules]}


@dataclass(frozen=True, slots=True)
class Dependency:
    """Outcome of one window that a fire waits for.

    Attributes:
        parent: the key of the schedule it belongs to.
        when: what it has to come to.
        became: what it came to.
        reason: why, where the ledger says so.
        since: when it was learnt that its run had closed, if it had one.
    """

    parent: str
    when: When
    became: ParentOutcome
    reason: str | None = None
    since: datetime | None = None

    @property
    def is_met(self) -> bool:
        """Whether it is what was asked for."""
        completed, failed = self.became == "completed", self.became in FAILED
        return {"success": completed, "failure": failed, "always": completed or failed}[self.when]

    @property
    def unmet(self) -> str | None:
        """Why it never will be what was asked for; None while it may."""
        if self.became == "pending" or self.is_met:
            return None
        why = f": {self.reason}" if self.reason and self.became in _SAYS_WHY else ""
        said = f"{self.parent} {_WORDS.get(self.became, self.became)}{why}"
        return shorten(f"{REASON}: {said}", _LONGEST)


def unmet(awaited: Sequence[Dependency]) -> str | None:
    """Return why a fire that waits for all of these can never start; None while it may."""
    return next((why for each in awaited if (why := each.unmet)), None)


def is_pending(awaited: Sequence[Dependency]) -> bool:
    """Whether something may still come of one of these."""
    return any(each.became == "pending" for each in awaited)


def ready_at(awaited: Sequence[Dependency], fire_time: datetime) -> datetime:
    """Return since when a fire does not wait any more."""
    return max((fire_time, *(each.since for each in awaited if each.since)))


# --- decisions ---
# The planner's words: what it is told of a key, and what it decides.

Verdict = Literal["claimed", "queued", "skipped", "expired", "rejected"]
Hold = Literal["paused", "disabled", "retired"]
StartTiming = Literal["on_time", "caught_up"]

QUEUE_FULL = "overlap: the queue is full"
"""How the reason of a window begins that found no place in the queue of its schedule."""

IN_LINE: Final[frozenset[Overlap]] = frozenset({"queue", "queue_one"})
"""The policies with which what waits keeps its place: those behind it wait for it."""

READ_AHEAD: Final = 100
"""How many open fires of each kind a plan reads beyond the places of its schedule."""

Known = Mapping[datetime, bool]
"""Windows after the cursor that have a row already, by fire time; True where they have a run.

An operator skips a window before it comes, a run is found that the ledger had lost: the planner
leaves such windows as they are.
"""


@dataclass(frozen=True, slots=True)
class OpenFire:
    """A fire of the key whose run is open, or may still come.

    Attributes:
        fire_id: the ledger's number of it.
        workflow_id: the id of its run.
        status: how far it is.
        fire_time: of its window; of a manual run, and of a rerun, the moment of the request.
        open_at: when its run was last proven to be open; None when it never was.
        overlap: what it keeps to while it is queued; None is the schedule's own. With ``skip`` it
            waits for nothing but a look at what may be in its way.
        stop: what its run has been asked to do.
        awaited: of one that waits for windows of other schedules, what became of each.
        timing: ``backfill`` is overtaken by all others while it waits.
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
    """Open fires of a key that are only counted: a plan reads no more than it can decide on.

    Attributes:
        running: claimed, starting or started, written after those that were read; counted no
            further than the schedule's places.
        waiting: queued behind those that were read, for a place.
        pending: queued behind those that were read, for windows of other schedules, where each of
            them starts as soon as its own have ended.
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
        verdict: ``claimed`` starts a run, ``queued`` will, everything else is final.
        reason: why, in words of which the first is stable; None for an ordinary start.
        timing: ``on_time`` or ``caught_up`` (the starter turns the former into ``late``).
        missed: windows a caught-up start stands for besides its own.
        missed_from: the fire time of the first of them.
        not_before: the start waits until then; None starts at once.
        windows: how many windows this decision covers.
        last: the fire time of the last of them.
        awaits: what it waits for, before overlap is asked.
        overlap: what it keeps to while it is queued; None is the schedule's own.
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
        """Whether it says no to windows that the schedule itself leaves out."""
        return (self.reason or "").startswith("excluded")

    @property
    def overflows(self) -> bool:
        """Whether it says no because the queue is full."""
        return (self.reason or "").startswith(QUEUE_FULL)

    @property
    def until(self) -> datetime:
        """The fire time of the last window it covers."""
        return self.last or self.window.fire_time


@dataclass(frozen=True, slots=True)
class Move:
    """Decision on a fire that is open already.

    ``start`` promotes a queued fire (not before a moment, where there is one), ``skip`` gives up
    one that nobody has begun to send, ``release`` lets one that waited for other schedules go on
    waiting in the queue of its own, and ``cancel`` and ``terminate`` are wishes about its run,
    which somebody carries out later.
    """

    fire: OpenFire
    to: Literal["start", "skip", "release", "cancel", "terminate"]
    reason: str | None = None
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions on every window up to ``cursor``.

    Attributes:
        decisions: on windows that had none; the starts in the order in which they are to be.
        cursor: everything up to here is decided now. Where one plan cannot hold it all, or runs
            have to be looked at first, that is before ``now``, and ``next`` is due at once.
        next: when to plan again; None is never, by itself.
        moves: what becomes of fires that are open already.
        looks: runs to be looked at, after which the key is planned again; what is decided here
            stands.
        resumed: the pause has ended by itself, and its windows are decided.
        audit: windows were missed; which of them have run is to be found out first.
        withheld: something is not decided before an answer has come, of a look, an audit or a send:
            it is no use to plan again at once.
    """

    decisions: tuple[Decision, ...]
    cursor: datetime
    next: datetime | None
    moves: tuple[Move, ...] = ()
    looks: tuple[OpenFire, ...] = ()
    resumed: bool = False
    audit: bool = False
    withheld: bool = False


# --- rows for many windows ---
# Rows that stand for many windows: how some windows are taken out of them. Pure.


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a range: its first window, how many windows it has, and the last's fire time."""

    window: Window
    windows: int
    last: datetime


def without(spec: Spec, first: Window, last: datetime, *taken: datetime) -> list[Piece]:
    """Divide a range into each taken window alone, and what is before, between and after them.

    Args:
        spec: when the range's windows open.
        first: its first window.
        last: the fire time of its last.
        taken: the fire times of those to be taken out, in order.

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
