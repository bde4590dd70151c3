"""Events that a replica emits to its listeners: the terminal of ``sched up``, a test, a log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from engine.errors import Code
from engine.ledger import Claim, Evidence, Outcome, StopOrder
from engine.schedules.planner import Decision, Move, Plan, ScheduleState
from engine.schedules.terms import Window, utc_text

logger = logging.getLogger("sched")
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Settled:
    """A claim that came to an end. ``already``: the run existed before this send."""

    claim: Claim
    outcome: Outcome
    lag: timedelta
    already: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """Windows without a claim: skipped, expired, rejected or queued. One row of the ledger."""

    decision: Decision
    workflow_id: str
    timezone: str
    one_shot: bool = False

    def __str__(self) -> str:
        count, last = self.decision.windows, self.decision.last
        noun = "1 window" if count == 1 else f"{count} windows"
        until = f" up to {utc_text(last)}" if last and count > 1 else ""
        why = self.decision.reason or "it waits for its turn"  # only queued windows lack one
        return f"{noun}{until} {self.decision.verdict}: {why}"


@dataclass(frozen=True, slots=True)
class Closed:
    """A run of ours that was seen closed."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Stopped:
    """A run that was cancelled or terminated."""

    order: StopOrder


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of applying the schedule file; ``text`` is one sentence."""

    text: str
    good: bool


@dataclass(frozen=True, slots=True)
class Notice:
    """Operational information; ``good`` when nothing is wrong. ``quiet``: as of an alert."""

    text: str
    good: bool
    quiet: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that needs attention: a stable ``code`` and a sentence.

    ``quiet``: it follows from the absence of a server, which is reported by itself. It is counted,
    and neither logged nor printed.
    """

    code: Code
    text: str
    quiet: bool = field(default=False, compare=False)


Server = Literal["ledger", "temporal"]


@dataclass(frozen=True, slots=True)
class Degraded:
    """A loop that cannot work at present, for a reason that may pass.

    ``server`` is the one that does not answer, if that is the reason, and ``detail`` what was said
    of it. Such an event is not reported by itself: see ``ServerAway``.
    """

    loop: str
    reason: str
    server: Server | None = field(default=None, compare=False)
    detail: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.loop} suspended: {self.reason}"


@dataclass(frozen=True, slots=True)
class Recovered:
    """A degraded loop that works again; ``server`` as it was degraded."""

    loop: str
    server: Server | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.loop} resumed"


@dataclass(frozen=True, slots=True)
class ServerAway:
    """A server that does not answer a replica, which waits for it."""

    server: Server
    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"paused: {_NOUNS[self.server]} unreachable at {self.place} (retrying): {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class ServerBack:
    """A server that answers again, after all loops that waited for it have got an answer."""

    server: Server
    place: str
    away: timedelta

    def __str__(self) -> str:
        seconds = f"{self.away.total_seconds():.0f} s"
        return f"goes on: {_NOUNS[self.server]} answers again at {self.place} after {seconds}"


_NOUNS: dict[Server, str] = {"ledger": "database", "temporal": "Temporal"}


def words_of(error: BaseException) -> str:
    """Return what an error says, or its name if it says nothing."""
    return str(error) or type(error).__name__


Event = (
    Settled | Decided | Closed | Stopped | Applied | Notice | Alert | Degraded | Recovered
    | ServerAway | ServerBack
)  # fmt: skip
OnEvent = Callable[[Event], None]


def emit_decided(plans: Iterable[Plan], on_event: OnEvent) -> None:
    """Emit each decision that is not a claim; log all excluded windows together in one line."""
    plans = list(plans)
    for planned in plans:
        for move in planned.moves:
            if move.to == "skip":
                on_event(_given_up(planned.state, move))
    decided = [
        Decided(
            decision,
            decision.window.workflow_id(planned.state.suffixed),
            planned.state.schedule.timezone,
            one_shot=planned.state.schedule.kind == "at",
        )
        for planned in plans
        for decision in planned.decisions
        if decision.verdict != "claimed"
    ]
    for event in decided:
        on_event(event)
    if off := [event.decision for event in decided if event.decision.excluded]:
        windows, keys = sum(each.windows for each in off), {each.window.key for each in off}
        more = ["…"] if len(keys) > _NAMED else []
        logger.info(
            "%d windows of %d schedules skipped, as excluded: %s",
            windows, len(keys), ", ".join([*sorted(keys)[:_NAMED], *more]),
        )  # fmt: skip


def _given_up(state: ScheduleState, move: Move) -> Decided:
    """Return the event of a fire that was to start, and does not."""
    window = Window(state.key, state.series, 0, move.fire.fire_time)  # its run id has the number
    decision = Decision(window, "skipped", reason=move.reason)
    return Decided(decision, move.fire.workflow_id, state.schedule.timezone)
