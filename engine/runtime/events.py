"""Events that a replica emits to its listeners: the terminal of ``sched up``, a test, a log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

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
    """Operational information; ``good`` when nothing is wrong."""

    text: str
    good: bool


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that needs attention: a stable ``code`` and a sentence."""

    code: Code
    text: str


@dataclass(frozen=True, slots=True)
class Degraded:
    """A loop that cannot work at present, for a reason that may pass."""

    loop: str
    reason: str

    def __str__(self) -> str:
        return f"{self.loop} suspended: {self.reason}"


@dataclass(frozen=True, slots=True)
class Recovered:
    """A degraded loop that works again."""

    loop: str

    def __str__(self) -> str:
        return f"{self.loop} resumed"


def words_of(error: BaseException) -> str:
    """Return what an error says, or its name if it says nothing."""
    return str(error) or type(error).__name__


Event = Settled | Decided | Closed | Stopped | Applied | Notice | Alert | Degraded | Recovered
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


def log(event: Event) -> None:
    """Write an event to the log."""
    match event:
        case Settled(claim, outcome, lag, already):
            level = logging.INFO if outcome.status == "started" else logging.WARNING
            detail = outcome.reason or outcome.error or f"lag {lag.total_seconds():.3f} s"
            status = "already started" if already else outcome.status
            logger.log(level, "%s %s: %s", claim.workflow_id, status, detail)
        case Decided(decision, workflow_id):
            if decision.verdict != "rejected":  # an alert reports it already
                level = logging.DEBUG if decision.excluded else logging.WARNING
                logger.log(level, "%s %s", workflow_id, event)
        case Closed(evidence):
            logger.info("%s %s", evidence.workflow_id, evidence.closed)
        case Stopped(order):
            asked = "cancelled" if order.stop == "cancel" else "terminated"
            logger.info("%s is %s: %s", order.workflow_id, asked, order.stop_reason)
        case Applied(text, good) | Notice(text, good):
            logger.log(logging.INFO if good else logging.ERROR, "%s", text)
        case Alert(code, text):
            logger.error("%s: %s", code, text, extra={"code": str(code)})
        case Recovered():
            logger.info("%s", event)
        case Degraded():
            logger.warning("%s", event)
