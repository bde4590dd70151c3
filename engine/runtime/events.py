"""Events that a replica emits to its listeners, their log, and reports that a server is away.

Listeners are the log, the terminal of ``sched up`` and tests. Each event is one record of the
logger ``sched``, with a name and fields that stay the same from version to version: docs/logs.md.
A server that is away stops a dozen loops; that is one record, and its return another.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from engine.errors import Code
from engine.ledger import Claim, Evidence, Outcome, StopOrder
from engine.runtime.clock import boottime
from engine.schedules import (
    CHOSEN,
    Window,
    code_of,
    escaped,
    in_ms,
    iso_text,
    parse_workflow_id,
    utc_text,
)
from engine.schedules.planner import Decision, Move, Plan, ScheduleState

logger = logging.getLogger("sched")
_NAMED = 5

# --- events ---


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
class AlreadyCancelled:
    """A schedule that was cancelled again; no error, and logged by the service."""

    key: str


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of applying the schedule file; ``text`` is one sentence.

    ``refused``: a sentence for each key of the file that was not applied.
    """

    text: str
    good: bool
    refused: tuple[str, ...] = field(default=(), compare=False)


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


ServerName = Literal["ledger", "temporal"]


@dataclass(frozen=True, slots=True)
class Degraded:
    """A loop that cannot work at present, for a reason that may pass.

    ``server`` is the one that does not answer, if that is the reason, and ``detail`` what was said
    of it. Such an event is not reported by itself: see ``ServerAway``.
    """

    loop: str
    reason: str
    server: ServerName | None = field(default=None, compare=False)
    detail: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.loop} suspended: {self.reason}"


@dataclass(frozen=True, slots=True)
class Recovered:
    """A degraded loop that works again; ``server`` as it was degraded."""

    loop: str
    server: ServerName | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.loop} resumed"


@dataclass(frozen=True, slots=True)
class ServerAway:
    """A server that does not answer a replica, which waits for it."""

    server: ServerName
    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"paused: {_NOUNS[self.server]} unreachable at {self.place} (retrying): {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class ServerBack:
    """A server that answers again, after all loops that waited for it have got an answer."""

    server: ServerName
    place: str
    away: timedelta

    def __str__(self) -> str:
        seconds = f"{self.away.total_seconds():.0f} s"
        return f"resumed: {_NOUNS[self.server]} answers again at {self.place} after {seconds}"


_NOUNS: dict[ServerName, str] = {"ledger": "database", "temporal": "Temporal"}


def words_of(error: BaseException) -> str:
    """Return what an error says, or its name if it says nothing."""
    return str(error) or type(error).__name__


Event = (
    Settled
    | Decided
    | Closed
    | Stopped
    | Applied
    | Notice
    | Alert
    | Degraded
    | Recovered
    | ServerAway
    | ServerBack
    | AlreadyCancelled
)
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
            windows,
            len(keys),
            ", ".join([*sorted(keys)[:_NAMED], *more]),
        )


def _given_up(state: ScheduleState, move: Move) -> Decided:
    """Return the event of a fire that was to start, and does not."""
    window = Window(state.key, state.series, 0, move.fire.fire_time)  # its run id has the number
    decision = Decision(window, "skipped", reason=move.reason)
    return Decided(decision, move.fire.workflow_id, state.schedule.timezone)


# --- records of the log ---

LogEvent = Literal[
    "run_started",
    "start_unanswered",
    "start_rejected",
    "start_unvouched",
    "window_queued",
    "window_skipped",
    "window_expired",
    "window_unvouched",
    "run_completed",
    "run_failed",
    "run_timed_out",
    "run_cancelled",
    "run_terminated",
    "stop_requested",
    "file_applied",
    "file_refused",
    "notice",
    "alert",
    "loop_suspended",
    "loop_resumed",
    "server_away",
    "server_back",
    "already_cancelled",
]
"""The names of events in the log."""

_SETTLED: Final[Mapping[str, LogEvent]] = {
    "started": "run_started",
    "starting": "start_unanswered",
    "rejected": "start_rejected",
    "unvouched": "start_unvouched",
}
_DECIDED: Final[Mapping[str, LogEvent]] = {
    "queued": "window_queued",
    "skipped": "window_skipped",
    "expired": "window_expired",
    "unvouched": "window_unvouched",
}
_CLOSED: Final[Mapping[str, LogEvent]] = {
    "completed": "run_completed",
    "failed": "run_failed",
    "timed_out": "run_timed_out",
    "cancelled": "run_cancelled",
    "terminated": "run_terminated",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as it is logged: its severity, its name, a sentence and its fields."""

    level: int
    event: LogEvent
    text: str
    fields: Mapping[str, object] = field(default_factory=dict)


def entry_of(event: Event) -> Entry | None:
    """Return the entry of an event; None if another event or record reports it."""
    match event:
        case Settled():
            return _settled(event)
        case Decided():
            return _decided(event)
        case Closed(evidence):
            return _closed(evidence)
        case Degraded() | Recovered() | ServerAway() | ServerBack():
            return _interrupted(event)
    return _entry_of_notice(event)


def _entry_of_notice(
    event: Stopped | Applied | Notice | Alert | AlreadyCancelled,
) -> Entry | None:
    entry = None
    match event:
        case Stopped(order):
            asked = "cancelled" if order.stop == "cancel" else "terminated"
            text = f"{order.workflow_id} is {asked}: {order.stop_reason}"
            entry = Entry(logging.INFO, "stop_requested", text, _of_run(order.workflow_id))
        case AlreadyCancelled(key):
            code = str(Code.JOB_ALREADY_CANCELLED)
            fields = {"schedule": key, "code": code}
            entry = Entry(
                logging.INFO, "already_cancelled", f"{code}: {key} was cancelled before", fields
            )
        case Applied(text, good):
            level = logging.INFO if good else logging.ERROR
            entry = Entry(level, "file_applied" if good else "file_refused", text)
        case Notice(text, good, quiet=False):
            entry = Entry(logging.INFO if good else logging.ERROR, "notice", text)
        case Alert(code, text, quiet=False):
            entry = Entry(logging.ERROR, "alert", f"{code}: {text}", {"code": str(code)})
    return entry


def _settled(event: Settled) -> Entry:
    claim, outcome = event.claim, event.outcome
    level = logging.INFO if outcome.status == "started" else logging.WARNING
    detail = outcome.reason or outcome.error or f"lag {event.lag.total_seconds():.3f} s"
    status = "already started" if event.already else outcome.status
    return Entry(
        level,
        _SETTLED[outcome.status],
        f"{claim.workflow_id} {status}: {detail}",
        {
            **_of_run(claim.workflow_id, outcome.run_id),
            "window": iso_text(claim.fire_time),
            "bucket": claim.bucket,
            "workflow": claim.workflow_type,
            "reason_code": outcome.reason_code or claim.reason_code,
            "timing": outcome.timing or claim.timing,
            "lag_ms": in_ms(event.lag),
            "error": outcome.error,
        },
    )


def _decided(event: Decided) -> Entry | None:
    decision, code = event.decision, code_of(event.decision.reason)
    if decision.verdict not in _DECIDED:  # an alert reports rejected windows
        return None
    level = logging.WARNING
    if decision.excluded:
        level = logging.DEBUG  # all of a tick are one line
    elif decision.verdict == "queued" or code in CHOSEN or event.one_shot:
        level = logging.INFO
    return Entry(
        level,
        _DECIDED[decision.verdict],
        f"{event.workflow_id} {event}",
        {
            **_of_run(event.workflow_id),
            "window": iso_text(decision.window.fire_time),
            "windows": decision.windows,
            "reason_code": code,
        },
    )


def _closed(run: Evidence) -> Entry | None:
    if run.closed is None:
        return None
    bad = run.closed not in {"completed", "cancelled"}
    took = run.closed_at - run.started_at if run.closed_at else None
    why = f": {run.error}" if bad and run.error else ""
    text = f"{run.workflow_id} {run.closed.replace('_', ' ')}{why}"
    return Entry(
        logging.WARNING if bad else logging.INFO,
        _CLOSED[run.closed],
        text,
        {
            **_of_run(run.workflow_id, run.run_id),
            "workflow": run.workflow_type,
            "duration_ms": took and in_ms(took),
            "error": run.error,
            "error_type": run.failure and run.failure.error_type,
        },
    )


def _interrupted(event: Degraded | Recovered | ServerAway | ServerBack) -> Entry | None:
    match event:
        case Degraded(loop, reason, server=None):
            fields = {"loop": loop, "error": reason}
            return Entry(logging.WARNING, "loop_suspended", str(event), fields)
        case Recovered(loop, server=None):
            return Entry(logging.INFO, "loop_resumed", str(event), {"loop": loop})
        case ServerAway(server, place, reason):
            fields = {"server": server, "place": place, "error": reason}
            return Entry(logging.WARNING, "server_away", str(event), fields)
        case ServerBack(server, place, away):
            took = in_ms(away)
            back = {"server": server, "place": place, "duration_ms": took}
            return Entry(logging.INFO, "server_back", str(event), back)
    return None


def _of_run(workflow_id: str, run_id: str | None = None) -> dict[str, object]:
    parsed = parse_workflow_id(workflow_id)
    named = {"schedule": parsed.key, "bucket": parsed.bucket} if parsed else {}
    return {**named, "workflow_id": workflow_id, "run_id": run_id}


def log(event: Event, *, replica: str | None = None) -> None:
    """Write an event to the log."""
    entry = entry_of(event)
    if entry is not None and logger.isEnabledFor(entry.level):
        extra: dict[str, Any] = {**entry.fields, "event": entry.event, "replica": replica}
        logger.log(entry.level, "%s", escaped(entry.text), extra=extra)


# --- servers that are away ---


class Outages:
    """Servers that do not answer one replica, from the reports of its loops.

    A server is away as soon as a loop waits for it. It is back when none does, and its absence
    ended with the first answer after the last failure.

    Args:
        places: where each server is, as ``host:port``.
    """

    def __init__(self, places: Mapping[ServerName, str]) -> None:
        self._places = places
        self._waiting: set[tuple[str, ServerName]] = set()
        self._since: dict[ServerName, float] = {}
        self._answered: dict[ServerName, float] = {}

    def of(self, event: Degraded | Recovered) -> Event | None:
        """Take a report; return the news of a server that follows from it."""
        server, now = event.server, boottime()
        if server is None:
            return None
        place = self._places.get(server, "an unknown address")
        if isinstance(event, Degraded):
            self._waiting.add((event.loop, server))
            self._answered.pop(server, None)
            if server in self._since:
                return None
            self._since[server] = now
            return ServerAway(server, place, event.detail or event.reason)
        self._waiting.discard((event.loop, server))
        self._answered.setdefault(server, now)
        if server not in self._since or any(server == other for _, other in self._waiting):
            return None
        away = self._answered.pop(server) - self._since.pop(server)
        return ServerBack(server, place, timedelta(seconds=away))


def process_name() -> str:
    """Return a new name for what events and duties are of: host, process, and a random part."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class EventLog:
    """Listener of one replica that logs each event and passes it on, with the news of servers.

    Args:
        replica: the name of the replica.
        places: see ``Outages``.
        then: receives every event after the log.
    """

    def __init__(self, replica: str, places: Mapping[ServerName, str], *, then: OnEvent) -> None:
        self._replica, self._then = replica, then
        self._outages = Outages(places)

    def __call__(self, event: Event) -> None:
        """Log an event, and what it says of a server."""
        self._log(event)
        if isinstance(event, Degraded | Recovered) and (news := self._outages.of(event)):
            self._log(news)

    def _log(self, event: Event) -> None:
        log(event, replica=self._replica)
        self._then(event)
