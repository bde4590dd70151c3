"""Events of a ledger in PostgreSQL: who subscribes to them, and what is delivered."""

from __future__ import annotations

import json
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final

from engine.ledger.floors import LOOK_AGAIN, again_after
from engine.ledger.outbox import (
    Attempt,
    Delivery,
    EventRow,
    EventWork,
    Subscription,
    SubscriptionOrigin,
)
from engine.ledger.postgres.connections import values
from engine.ledger.postgres.rows import InTransaction, Row, Statements, decoded_schedule, record_of
from engine.schedules import EventType, Hook, Schedule

_KEPT_DEFINITIONS: Final = 2000
_OPEN: Final = 10.0
"""Seconds from an id to the commit of its row, at most; a tick's transaction lives for 4 s."""
_LOOKED_AT: Final = 5000
"""The newest events that a search by key reads."""


class _Unplaced:
    """Lower bound of the ids of events without a position; see ``engine.ledger.floors``.

    What a longer transaction has written is found by the next search without a bound.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self._floor, self._unbounded_at, self.asked = 0, 0.0, 0

    def begin(self) -> int:
        """Return the lower bound of a search."""
        self.asked = 0 if time.monotonic() >= self._unbounded_at else self._floor
        return self.asked

    def looked(self, begun: float) -> None:
        """Record that a search ended which began then."""
        if self.asked == 0:
            ended = time.monotonic()
            self._unbounded_at = ended + again_after(ended - begun, least=LOOK_AGAIN)

    def placed(self, newest: int) -> None:
        """Record the newest event that has got a position."""
        now = time.monotonic()
        self._marks.append((now, newest))
        while self._marks[0][0] < now - _OPEN:
            self._floor = self._marks.popleft()[1]


class EventStore:
    """The events of a ledger in PostgreSQL.

    Args:
        statements: runs those of the ledger by their names.
        transaction: begins a transaction.
        listen: listens to the channel of events.
    """

    def __init__(
        self,
        statements: Statements,
        transaction: Callable[[], AbstractAsyncContextManager[Statements]],
        listen: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self.namespace = statements.namespace
        self._run, self._transaction, self._listen = statements.run, transaction, listen
        self._unplaced = _Unplaced()
        # A definition is never changed, and may be large: it is read once for all its events.
        self._definitions: OrderedDict[tuple[str, int], Schedule | None] = OrderedDict()

    # --- subscriptions ---

    async def subscribe(self, subscription: Subscription, *, lasts: timedelta, by: str) -> None:
        """Write a subscription that ends after this time, from the newest event on.

        One of this name keeps its position.
        """
        await self._run("subscribe", *values("subscribe", subscription, lasts=lasts, by=by))

    async def unsubscribe(self, name: str) -> bool:
        """Remove a subscription and its deliveries; return False if there is none."""
        return bool(await self._run("unsubscribe", name))

    async def subscriptions(self) -> list[Subscription]:
        """Return every subscription that has not ended, by name."""
        return [record_of(Subscription, row) for row in await self._run("subscriptions")]

    async def take(self, name: str, holder: str, lease: timedelta) -> Subscription | None:
        """Take or keep a subscription for a lease; return None while another one has it."""
        rows = await self._run("take_subscription", name, holder, lease)
        return record_of(Subscription, rows[0]) if rows else None

    async def give_back(self, holder: str) -> None:
        """Give back all subscriptions of a holder."""
        await self._run("give_back_subscriptions", holder)

    # --- events ---

    async def work(
        self, holder: str, listeners: Collection[str], *, project: str | None = None
    ) -> EventWork:
        """Return what there is to do for a replica that has these listeners, in one statement.

        Hooks are those of its project: others have their secrets and their allowed addresses in
        workers of their own.
        """
        begun = time.monotonic()
        (row,) = await self._run(
            "event_work", holder, list(listeners), self._unplaced.begin(), project
        )
        self._unplaced.looked(begun)
        return EventWork(row["subscribed"], row["fresh"], tuple(row["due"]))

    async def place(self, limit: int) -> int:
        """Give committed events their positions and sequences; return how many got one.

        One session at a time does it: another one places none meanwhile. Readers that listen
        (``listen``) are woken.
        """
        async with self._transaction() as transaction:
            if not await transaction.run("lock_event_head"):
                return 0
            rows = await transaction.run("place_events", limit, self._unplaced.asked)
            if rows:
                await transaction.run("hint_events")
                self._unplaced.placed(max(row["id"] for row in rows))
        return len(rows)

    async def read(self, after: int, limit: int) -> list[EventRow]:
        """Return the events behind this position, in their order."""
        return await self._events(await self._run("read_events", after, limit))

    async def newest(
        self, *, key: str | None = None, event_type: EventType | None = None, limit: int = 50
    ) -> list[EventRow]:
        """Return the newest events that have a position, newest first.

        Those of a key, or of a type, are looked for among the newest 5,000.
        """
        return await self._events(
            await self._run("newest_events", key, event_type, limit, _LOOKED_AT)
        )

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` after events got their positions; see ``Ledger.listen``."""
        await self._listen(wake)

    # --- deliveries ---

    async def due(
        self, name: str, limit: int, *, retries: int, but: Collection[str] = ()
    ) -> list[Delivery]:
        """Return deliveries of a subscription that are due, in the order of their events.

        What was put back is not due before the first retry of an earlier event of its schedule.

        Args:
            name: the subscription.
            limit: the most deliveries that later ones of their schedule wait for.
            retries: the most others, which were tried twice or more.
            but: schedules whose deliveries of the first kind are left out.
        """
        return await self._deliveries(
            await self._run("due_deliveries", name, limit, retries, list(but))
        )

    async def blocked(self, name: str) -> set[str]:
        """Return the schedules whose later events wait: one failed once, or waits itself."""
        return {row["key"] for row in await self._run("blocked_keys", name)}

    async def settle(
        self,
        name: str,
        holder: str,
        *,
        position: int,
        fresh: Sequence[Attempt],
        again: Sequence[Attempt],
        failing: str | None = None,
        rest: timedelta | None = None,
    ) -> bool:
        """Write the results of a round, all or nothing; return False if it has another holder now.

        Args:
            name: the subscription.
            holder: who has delivered.
            position: up to which its events were read.
            fresh: results of events up to there, except for those that were delivered.
            again: results of deliveries that were due.
            failing: why the last event failed, if the breaker is open.
            rest: pause until what failed is tried again; None leaves that time as it is.
        """
        async with self._transaction() as transaction:
            moved = name, holder, position, failing, rest
            if not await transaction.run("move_subscription", *moved):
                return False
            for statement, attempts in (
                ("put_back", fresh),
                ("delivered", [each for each in again if each.done]),
                ("put_off_deliveries", [each for each in again if not each.done]),
            ):
                await transaction.many(statement, attempts, name)
        return True

    async def give_up(self, name: str, error: str, *, keys: Collection[str] | None) -> int:
        """Give up deliveries that have waited for a day; return their number.

        Args:
            name: the subscription.
            error: why what they waited for has failed.
            keys: schedules that have just failed: what waits behind these; None: all deliveries.
        """
        of = None if keys is None else list(keys)
        return len(await self._run("give_up_deliveries", name, error, of))

    async def dead(self, limit: int = 50) -> list[Delivery]:
        """Return deliveries that were given up, newest first."""
        return await self._deliveries(await self._run("dead_deliveries", limit))

    async def redeliver(self, event_id: str, subscription: str | None = None) -> int:
        """Make dead deliveries of an event due again; return their number."""
        return len(await self._run("redeliver", event_id, subscription))

    async def forget(
        self, after: int, *, keep: timedelta, dead: timedelta, limit: int
    ) -> int | None:
        """Remove delivered events that are older, and dead letters; return where to continue.

        One piece at a time: events behind the number ``after``, from 0. None: it is done.
        A hook whose project has no worker keeps events for no longer than seven days.
        Subscriptions that have ended are removed too.
        """
        if after == 0:
            await self._run("end_subscriptions")
            await self._run("forget_deliveries", dead)
        (row,) = await self._run("forget_events", keep, after, limit)
        return row["last"] if row["goes_on"] else None

    # --- rows ---

    async def _events(self, rows: Sequence[Row]) -> list[EventRow]:
        await self._learn({(row["key"], row["definition_version"]) for row in rows})
        return [self._event(row) for row in rows]

    def _event(self, row: Row) -> EventRow:
        schedule = self._definitions.get((row["key"], row["definition_version"]))
        if schedule is not None and row["options"]:  # of this run alone
            schedule = Schedule.from_json({**schedule.to_json(), **json.loads(row["options"])})
        return record_of(EventRow, row, schedule=schedule)

    async def _deliveries(self, rows: Sequence[Row]) -> list[Delivery]:
        events = await self._events(rows)
        return [
            Delivery(
                event=event,
                name=row["delivery_name"],
                attempts=row["attempts"],
                first_at=row["first_at"],
                error=row["delivery_error"],
                died_at=row["dead_at"],
                subscription=row["subscription"],
            )
            for event, row in zip(events, rows, strict=True)
        ]

    async def _learn(self, wanted: Collection[tuple[str, int]]) -> None:
        """Read the definitions that are not known yet."""
        unknown = [each for each in wanted if each not in self._definitions]
        for each in wanted:
            if each in self._definitions:
                self._definitions.move_to_end(each)
        if not unknown:
            return
        keys, versions = [key for key, _ in unknown], [version for _, version in unknown]
        for row in await self._run("definitions_of", keys, versions):
            self._definitions[row["key"], row["version"]] = decoded_schedule(row["definition"])
        while len(self._definitions) > max(_KEPT_DEFINITIONS, len(wanted)):
            self._definitions.popitem(last=False)


# --- hooks ---


def _spaced(name: str) -> Callable[[Subscription], str]:
    return lambda each: " ".join(getattr(each, name))


class HookStatements(InTransaction):
    """Webhooks that files and operators declare."""

    async def hooks(self) -> list[Subscription]:
        """Return every webhook of the namespace, by name."""
        found = [record_of(Subscription, row) for row in await self.run("subscriptions")]
        return [each for each in found if each.kind == "hook"]

    async def declare_hooks(
        self,
        project: str,
        hooks: Sequence[Hook],
        *,
        origin: SubscriptionOrigin,
        by: str,
        only: bool = True,
    ) -> None:
        """Declare hooks of a project; ``only``: remove its others of this origin.

        A hook that is there already keeps its position.
        """
        named = [Subscription.of_hook(each, project, origin) for each in hooks]
        names = [each.name for each in named]
        if only:
            await self.run("drop_hooks", project, origin, names)
        # An array of arrays has no ragged ends.
        lists = {name: _spaced(name) for name in ("events", "keys", "types")}
        await self.many("declare_hooks", named, project, origin, by, **lists)

    async def remove_hook(self, name: str) -> None:
        """Remove a hook with what it has not got."""
        await self.run("unsubscribe", name)
