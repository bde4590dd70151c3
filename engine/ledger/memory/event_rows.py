"""Events of the in-memory ledger, by the rules of migration 0035 and of the queries of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final, Protocol

from engine.ledger.fires import DENIED, Status, common_fields
from engine.ledger.outbox import (
    Attempt,
    Delivery,
    EventRow,
    EventWork,
    Subscription,
    SubscriptionOrigin,
    transitions_of,
)
from engine.schedules import STARTS, EventType, ReasonCode, Sealed
from engine.schedules.planner import ScheduleState

Put = Callable[[MutableMapping[Any, Any], Any, Any], None]
"""``Tables.put``: a transaction that fails takes it back."""
Drop = Callable[[MutableMapping[Any, Any], Any], None]
"""``Tables.drop``, the same."""

_KEPT: Final = 1000
"""Events kept in memory, besides those that are still to be delivered."""
_WITHOUT_WORKERS: Final = timedelta(days=7)
"""How long a hook keeps events while its project has no worker; so does a listener."""
_OF_NEW_FIRES: Final = DENIED | {"started"}

# --- rows ---


class WrittenFire(Protocol):
    """Row of a fire, as far as events are made of it."""

    @property
    def status(self) -> Status: ...
    @property
    def workflow_id(self) -> str: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def first_run_id(self) -> str | None: ...
    @property
    def history(self) -> tuple[dict[str, object], ...]: ...
    @property
    def own_input(self) -> tuple[Any, ...]: ...
    @property
    def reason_code(self) -> ReasonCode | None: ...


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    """A subscription's row."""

    what: Subscription
    holder: str | None = None
    lease_until: datetime | None = None
    expires_at: datetime | None = None

    def has_ended(self, now: datetime) -> bool:
        """Return whether it was not renewed in time."""
        return self.expires_at is not None and self.expires_at <= now

    def is_for(self, project: str | None, listeners: Collection[str]) -> bool:
        """Return whether a replica of a project that has these listeners delivers to it."""
        if self.what.kind == "hook":
            return self.what.project == project
        return self.what.kind == "listener" and self.what.name in listeners

    def is_free_for(self, holder: str, now: datetime) -> bool:
        """Return whether a replica may take it."""
        return self.holder == holder or self.lease_until is None or self.lease_until <= now


@dataclass(frozen=True, slots=True)
class DeliveryEntry:
    """A delivery's row; ``due_at`` is None of a dead letter."""

    key: str
    attempts: int
    first_at: datetime
    due_at: datetime | None
    error: str | None = None
    dead_at: datetime | None = None

    @property
    def is_in_front(self) -> bool:
        """Whether later events of its schedule wait for it."""
        return self.due_at is not None and self.attempts <= 1

    def is_due(self, now: datetime) -> bool:
        """Return whether its time has come."""
        return self.due_at is not None and self.due_at <= now


DeliveryKey = tuple[str, int, str]
"""Of a delivery: subscription, position of the event, and name."""


@dataclass
class EventTables:
    """The tables of events; a part of ``Tables``, whose journal covers them."""

    events: dict[int, EventRow] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionEntry] = field(default_factory=dict)
    deliveries: dict[DeliveryKey, DeliveryEntry] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=lambda: {"event": 0, "position": 0})
    sequences: dict[str, int] = field(default_factory=dict)

    def note_fire(
        self, put: Put, was: WrittenFire | None, fire: WrittenFire, now: datetime
    ) -> None:
        """Write the events of a fire's row that is written."""
        wanted = self._wanted(now)
        if not wanted or (was is None and fire.status not in _OF_NEW_FIRES):
            return
        before, run = (was.status, was.run_id) if was else (None, None)
        for kind in transitions_of(before, run, fire.status, fire.run_id):
            if kind not in wanted:
                continue
            mark = fire.run_id or (str(len(fire.history)) if fire.history and was else None)
            if kind == "arrived":
                mark = fire.first_run_id or fire.run_id
            self._add(put, EventRow(
                **{**common_fields(EventRow, fire), **_input_of(fire)},
                event_id=":".join(filter(None, (fire.workflow_id, kind, mark))),
                type=kind, at=now,
            ))  # fmt: skip

    def note_schedule(
        self, put: Put, was: ScheduleState | None, state: ScheduleState, now: datetime
    ) -> None:
        """Write the events of a schedule's row that is written."""
        wanted = self._wanted(now)
        if wanted and not state.key.startswith(STARTS):
            for kind, mark, reason in _changes(was, state):
                if kind not in wanted:
                    continue
                self._add(put, EventRow(
                    event_id=f"{state.key}:{kind}:{mark}", project=state.project, key=state.key,
                    type=kind, at=now, definition_version=state.definition_version,
                    schedule=state.schedule, reason=reason,
                ))  # fmt: skip

    def _wanted(self, now: datetime) -> frozenset[EventType]:
        rows = self.subscriptions.values()
        return frozenset(kind for row in rows if not row.has_ended(now) for kind in row.what.types)

    def _add(self, put: Put, event: EventRow) -> None:
        number = self.counters["event"] + 1
        put(self.counters, "event", number)
        put(self.events, number, event)

    def drop_hooks(
        self, drop: Drop, project: str, origin: SubscriptionOrigin, but: Collection[str]
    ) -> None:
        """Remove the other hooks of a project and an origin."""
        for name, row in list(self.subscriptions.items()):
            its = row.what
            mine = its.kind == "hook" and (its.project, its.origin) == (project, origin)
            if mine and name not in but:
                self.remove(drop, name)

    def put_hooks(self, put: Put, hooks: Sequence[Subscription]) -> None:
        """Write hooks; one that is there keeps its position."""
        for hook in hooks:
            known = self.subscriptions.get(hook.name)
            position = known.what.position if known else self.counters["position"]
            row = known or SubscriptionEntry(hook)
            put(self.subscriptions, hook.name, replace(row, what=replace(hook, position=position)))

    def remove(self, drop: Drop, name: str) -> None:
        """Remove a subscription and its deliveries."""
        drop(self.subscriptions, name)
        for place in [place for place in self.deliveries if place[0] == name]:
            drop(self.deliveries, place)

    def placed(self) -> Iterator[EventRow]:
        """Yield the events that have a position, in its order."""
        yield from (event for event in self.events.values() if event.position is not None)

    def at(self, position: int) -> EventRow:
        """Return the event at a position."""
        return next(event for event in self.placed() if event.position == position)


def _input_of(fire: WrittenFire) -> dict[str, Any]:
    """Return the input of this run alone, if it has one."""
    if not fire.own_input:
        return {"own_input": None}
    (own,) = fire.own_input
    sealed = isinstance(own, Sealed)
    return {"own_input": None if sealed else json.dumps(own), "sealed": sealed}


def _changes(
    was: ScheduleState | None, now: ScheduleState
) -> Iterator[tuple[EventType, str, str | None]]:
    if was is None or (was.retired_at is not None and now.retired_at is None):
        yield "created", str(now.definition_version), None
        return
    if was.definition_version != now.definition_version:
        yield "changed", str(now.definition_version), None
    if was.pause is None and now.pause is not None:
        yield "paused", _mark(now.pause.at), now.pause.reason
    if was.pause is not None and now.pause is None:
        yield "resumed", _mark(was.pause.at), None
    if was.retired_at is None and now.retired_at is not None:
        yield "retired", _mark(now.retired_at), None


def _mark(at: datetime) -> str:
    return f"{at.timestamp():.6f}"


# --- book ---


class EventsInMemory:
    """The events of a ledger in memory; see ``EventBook``.

    Args:
        tables: those of events.
        lock: that of its transactions.
        clock: its clock.
        projects: returns those that have a worker.
    """

    def __init__(
        self,
        tables: EventTables,
        lock: asyncio.Lock,
        clock: Callable[[], datetime],
        projects: Callable[[], Collection[str]],
    ) -> None:
        self._of, self._lock, self._clock, self._projects = tables, lock, clock, projects
        self.namespace = "default"
        self._listening: list[Callable[[], None]] = []

    async def subscribe(self, subscription: Subscription, *, lasts: timedelta, by: str) -> None:
        async with self._lock:
            known = self._of.subscriptions.get(subscription.name)
            position = known.what.position if known else self._of.counters["position"]
            self._of.subscriptions[subscription.name] = replace(
                known or SubscriptionEntry(subscription),
                what=replace(subscription, position=position),
                expires_at=self._clock() + lasts,
            )

    async def unsubscribe(self, name: str) -> bool:
        async with self._lock:
            if name not in self._of.subscriptions:
                return False
            self._of.remove(MutableMapping.pop, name)
            return True

    async def subscriptions(self) -> list[Subscription]:
        now = self._clock()
        rows = sorted(self._of.subscriptions.items())
        return [row.what for _, row in rows if not row.has_ended(now)]

    async def work(
        self, holder: str, listeners: Collection[str], *, project: str | None = None
    ) -> EventWork:
        now, head = self._clock(), self._of.counters["position"]
        late = {place[0] for place, row in self._of.deliveries.items() if row.is_due(now)}
        due = [
            name
            for name, row in sorted(self._of.subscriptions.items())
            if row.is_for(project, listeners)
            and row.is_free_for(holder, now)
            and (row.what.position < head or name in late)
        ]
        fresh = any(event.position is None for event in self._of.events.values())
        return EventWork(bool(await self.subscriptions()), fresh, tuple(due))

    async def place(self, limit: int) -> int:
        placed = 0
        async with self._lock:
            of = self._of
            for number, event in list(of.events.items()):
                if event.position is not None or placed == limit:
                    continue
                of.counters["position"] += 1
                sequence = of.sequences[event.key] = of.sequences.get(event.key, 0) + 1
                position = of.counters["position"]
                of.events[number] = replace(event, position=position, sequence=sequence)
                placed += 1
            self._forget_delivered()
        for wake in self._listening if placed else ():
            wake()
        return placed

    def _forget_delivered(self) -> None:
        """Keep as many of the newest; the others leave once every subscription has passed them."""
        positions = [row.what.position for row in self._of.subscriptions.values()]
        waiting = {position for _, position, _ in self._of.deliveries}
        for number, event in list(self._of.events.items())[:-_KEPT]:
            at = event.position
            if at is not None and at <= min(positions, default=at) and at not in waiting:
                del self._of.events[number]

    async def take(self, name: str, holder: str, lease: timedelta) -> Subscription | None:
        now, row = self._clock(), self._of.subscriptions.get(name)
        if row is None or not row.is_free_for(holder, now):
            return None
        self._of.subscriptions[name] = replace(row, holder=holder, lease_until=now + lease)
        return row.what

    async def give_back(self, holder: str) -> None:
        for name, row in self._of.subscriptions.items():
            if row.holder == holder:
                self._of.subscriptions[name] = replace(row, holder=None, lease_until=None)

    async def read(self, after: int, limit: int) -> list[EventRow]:
        return [event for event in self._of.placed() if (event.position or 0) > after][:limit]

    async def due(self, name: str, limit: int) -> list[Delivery]:
        chosen = sorted(self._due(name), key=lambda each: (each[1].due_at, each[0]))[:limit]
        return [self._delivery(place, row) for place, row in sorted(chosen, key=itemgetter(0))]

    def _due(self, name: str) -> Iterator[tuple[DeliveryKey, DeliveryEntry]]:
        """Yield what is due, without what was put back behind one that has failed once."""
        now = self._clock()
        rows = [(place, row) for place, row in self._of.deliveries.items() if place[0] == name]
        failed: dict[str, DeliveryKey] = {}
        for place, row in rows:
            if row.attempts == 1 and row.due_at is not None:
                failed[row.key] = min(place, failed.get(row.key, place))
        for place, row in rows:
            waits = row.attempts == 0 and failed.get(row.key, place) < place
            if row.is_due(now) and not waits:
                yield place, row

    def _delivery(self, place: DeliveryKey, row: DeliveryEntry) -> Delivery:
        subscription, position, name = place
        return Delivery(
            event=self._of.at(position), name=name, attempts=row.attempts, first_at=row.first_at,
            error=row.error, died_at=row.dead_at, subscription=subscription,
        )  # fmt: skip

    async def blocked(self, name: str) -> set[str]:
        rows = self._of.deliveries.items()
        return {row.key for place, row in rows if place[0] == name and row.is_in_front}

    async def settle(
        self,
        name: str,
        holder: str,
        *,
        position: int,
        fresh: Sequence[Attempt],
        again: Sequence[Attempt],
    ) -> bool:
        async with self._lock:
            row = self._of.subscriptions.get(name)
            if row is None or row.holder != holder:
                return False
            moved = replace(row.what, position=max(row.what.position, position))
            self._of.subscriptions[name] = replace(row, what=moved)
            for each in (*fresh, *again):
                place = (name, each.position, each.name)
                if each.done:
                    self._of.deliveries.pop(place, None)
                else:
                    self._of.deliveries[place] = self._missed(each, self._of.deliveries.get(place))
            return True

    def _missed(self, each: Attempt, known: DeliveryEntry | None) -> DeliveryEntry:
        now = self._clock()
        dead = each.wait is None
        return DeliveryEntry(
            each.key, each.attempts, known.first_at if known and known.attempts else now,
            None if each.wait is None else now + each.wait, each.error, now if dead else None,
        )  # fmt: skip

    async def newest(
        self, *, key: str | None = None, event_type: EventType | None = None, limit: int = 50
    ) -> list[EventRow]:
        found = [event for event in self._of.placed()
                 if key in {None, event.key} and event_type in {None, event.type}]  # fmt: skip
        return found[::-1][:limit]

    async def dead(self, limit: int = 50) -> list[Delivery]:
        dead = [(row.dead_at, place, row) for place, row in self._of.deliveries.items()
                if row.dead_at is not None]  # fmt: skip
        dead.sort(key=lambda each: each[:2], reverse=True)
        return [self._delivery(place, row) for _, place, row in dead[:limit]]

    async def redeliver(self, event_id: str, subscription: str | None = None) -> int:
        number = 0
        async with self._lock:
            for place, row in list(self._of.deliveries.items()):
                its = self._of.at(place[1])
                if row.dead_at is None or its.event_id != event_id:
                    continue
                if subscription in {None, place[0]}:
                    now = self._clock()
                    self._of.deliveries[place] = replace(
                        row, dead_at=None, due_at=now, first_at=now, attempts=2
                    )
                    number += 1
        return number

    async def forget(
        self, after: int, *, keep: timedelta, dead: timedelta, limit: int
    ) -> int | None:
        async with self._lock:
            now, of = self._clock(), self._of
            for name, row in list(of.subscriptions.items()):
                if row.has_ended(now):
                    self._of.remove(MutableMapping.pop, name)
            for place, letter in list(of.deliveries.items()):
                if letter.dead_at is not None and letter.dead_at < now - dead:
                    del of.deliveries[place]
            staying = [row.what for row in of.subscriptions.values() if row.what.kind != "reader"]
            projects = self._projects()
            served = [each for each in staying if each.kind != "hook" or each.project in projects]
            waiting = {position for _, position, _ in of.deliveries}
            for number, event in list(of.events.items()):
                older = event.at < now - max(keep, _WITHOUT_WORKERS)
                passed = event.position is not None and event.position not in waiting and all(
                    each.position >= event.position for each in (served if older else staying)
                )  # fmt: skip
                if event.at < now - keep and (passed or not staying):
                    del of.events[number]
        return None

    async def listen(self, wake: Callable[[], None]) -> None:
        self._listening.append(wake)
        try:
            wake()
            await asyncio.Event().wait()
        finally:
            self._listening.remove(wake)
