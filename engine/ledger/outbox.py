"""Outbox: the events of fires and schedules, who subscribes to them, and their deliveries.

A transition is written once, in the transaction that makes it. Its event may have several names,
and each subscription gets each name that it asks for. Deliveries are tracked by subscription: up
to its position all is delivered, except for what has a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final, Literal

from engine.ledger.fires import DIED, Kind, Timing
from engine.schedules import (
    EVENT_TYPES,
    STOOD_FOR,
    EventType,
    Hook,
    ReasonCode,
    Schedule,
    place_of_url,
)

# --- events ---


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """A transition of a fire or of a schedule.

    Attributes:
        event_id: made of the run or of the change: the same transition has the same ID, even if
            the ledger has lost its first commit.
        position: its place in the order of delivery; None until it has one.
        sequence: its number among the events of its schedule, from 1 without gaps.
        at: when it was written, by the ledger's clock.
        schedule: the definition in force; None if this version cannot read it.
        own_input: the input of this run alone, as JSON; None: that of the definition.
        sealed: whether the run has an input of its own that is sealed.
    """

    event_id: str
    project: str
    key: str
    type: EventType
    at: datetime
    definition_version: int
    position: int | None = None
    sequence: int | None = None
    schedule: Schedule | None = None
    workflow_id: str | None = None
    run_id: str | None = None
    kind: Kind | None = None
    series: int | None = None
    bucket: int | None = None
    fire_time: datetime | None = None
    windows: int | None = None
    last_fire_time: datetime | None = None
    timing: Timing | None = None
    missed: int | None = None
    reason: str | None = None
    reason_code: ReasonCode | None = None
    error: str | None = None
    started_at: datetime | None = None
    closed_at: datetime | None = None
    own_input: str | None = None
    sealed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it is delivered, the plain one first."""
        return _names(self)


def _names(event: EventRow) -> tuple[str, ...]:
    found = [f"schedule.{event.type}"]
    topic = event.schedule.topic if event.schedule else None
    # A handler runs for a fire that ended badly; no window of the topic has come.
    if event.type == "arrived" and topic and event.kind != "handler":
        found.append(f"schedule.{topic}.arrived")
    if event.type == "expired" or (event.type == "skipped" and event.reason_code in STOOD_FOR):
        found.append("schedule.missed")
    if event.type in DIED:
        found.append("schedule.dead")
    return tuple(found)


# --- subscriptions ---

SubscriptionKind = Literal["hook", "listener", "reader"]
SubscriptionOrigin = Literal["file", "api", "code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One that gets events.

    Attributes:
        name: unique in the namespace, and without secrets.
        events: patterns of names of events, with ``*`` for any text; one of them has to match.
        keys: the same of keys of schedules; none are all of them.
        url: of a hook.
        secret: of a hook, the environment variable that has the secret of its signatures.
        position: every event up to here is delivered, or has a ``Delivery``.
        failing_since: when its breaker opened, if it is open: several events in a row have failed,
            and it gets one at a time.
        failing_error: why the last one failed.
        retry_at: when an event that failed is tried again, as long as the breaker is open.
        may_retry: whether that time has come.
    """

    name: str
    kind: SubscriptionKind
    events: tuple[str, ...]
    keys: tuple[str, ...] = ()
    project: str | None = None
    origin: SubscriptionOrigin = "code"
    url: str | None = None
    secret: str | None = None
    position: int = 0
    failing_since: datetime | None = None
    failing_error: str | None = None
    retry_at: datetime | None = None
    may_retry: bool = True

    @property
    def short_name(self) -> str:
        """The name of a hook in paths: its project, and the digest of its address."""
        return f"{self.project}.{self.name.rpartition('#')[2]}"

    @property
    def place(self) -> str | None:
        """Where a hook sends events, without the path of its address."""
        return place_of_url(self.url) if self.url else None

    def wanted(self, event: EventRow) -> tuple[str, ...]:
        """Return the names under which it gets an event."""
        # A file's hooks and a worker's functions are its project's.
        if self.project is not None and self.project != event.project:
            return ()
        if self.keys and not any(fnmatchcase(event.key, each) for each in self.keys):
            return ()
        return tuple(
            name for name in event.names if any(fnmatchcase(name, each) for each in self.events)
        )

    @property
    def types(self) -> tuple[EventType, ...]:
        """The transitions that its patterns may match; others need not be written for it."""
        return tuple(each for each in _TRANSITIONS if any(map(_may_match(each), self.events)))

    @classmethod
    def of_hook(cls, hook: Hook, project: str, origin: SubscriptionOrigin) -> Subscription:
        """Return the subscription of a webhook."""
        return cls(
            name=f"hook:{project}:{hook.label}",
            kind="hook",
            events=hook.events,
            keys=hook.keys,
            project=project,
            origin=origin,
            url=hook.url,
            secret=hook.secret,
        )


_TRANSITIONS: Final = tuple(each for each in EVENT_TYPES if each not in {"missed", "dead"})
_WITH: Final[dict[str, frozenset[str]]] = {
    "missed": frozenset({"expired", "skipped"}),
    "dead": DIED,
}
"""Types that come with others, each with these."""


def _may_match(kind: EventType) -> Callable[[str], bool]:
    names = [f"schedule.{kind}", *(f"schedule.{each}" for each, of in _WITH.items() if kind in of)]

    def matches(pattern: str) -> bool:
        if any(fnmatchcase(name, pattern) for name in names):
            return True
        # Of topics nothing is known here but how the names end.
        tail = pattern.rpartition("*")[2]
        return kind == "arrived" and ("arrived".endswith(tail) or tail.endswith(".arrived"))

    return matches


# --- deliveries ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event under one name that a subscription has passed without success.

    Attributes:
        attempts: 0 if it waits for an earlier event of its schedule.
        first_at: when it was first tried, or put back.
        died_at: when it was given up, if it was.
    """

    event: EventRow
    name: str
    attempts: int
    first_at: datetime
    error: str | None = None
    died_at: datetime | None = None
    subscription: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Result of an attempt to deliver an event under one name.

    Attributes:
        done: whether it was delivered. Otherwise it is tried again after ``wait``; without one it
            is a dead letter.
        attempts: number of attempts so far; 0 if it was put back untried.
    """

    position: int
    name: str
    key: str
    attempts: int
    done: bool = False
    wait: timedelta | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EventWork:
    """Work of deliverers at one moment.

    Attributes:
        subscribed: whether there is any subscription; without one no events are written.
        fresh: whether there are events without a position.
        due: the subscriptions with something to deliver, that the asking replica may take.
    """

    subscribed: bool = False
    fresh: bool = False
    due: tuple[str, ...] = ()
