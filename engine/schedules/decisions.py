"""The planner's words: what it is told of a key, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

from engine.schedules.awaiting import Awaited, Awaits
from engine.schedules.windows import Window

Verdict = Literal["claimed", "queued", "skipped", "expired", "rejected"]
Hold = Literal["paused", "disabled", "retired"]
Overlap = Literal["allow", "skip", "queue", "queue_one", "cancel_previous", "terminate_previous"]
Stop = Literal["cancel", "terminate"]
StartTiming = Literal["on_time", "caught_up"]

STOPS: Final[Mapping[Overlap, Stop]] = {
    "cancel_previous": "cancel",
    "terminate_previous": "terminate",
}
"""The policies with which a window takes the place of a run, and what that run is asked to do."""

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
    awaited: tuple[Awaited, ...] = ()
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
    """What is to become of one window, or of a run of boring ones.

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
    awaits: Awaits | None = None
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
    """What is to become of a fire that is open already.

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
    """What becomes of every window up to ``cursor``.

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
