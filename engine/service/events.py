"""Operations on events: list and follow them, declare webhooks, and deliver dead ones again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from engine.errors import HookNotFound, LedgerError, OwnedByFile, ScheduleError
from engine.events.messages import ScheduleEvent
from engine.ledger import Action, Delivery, EventRow, Subscription
from engine.runtime.clock import boottime, wait_for
from engine.schedules import ALL_EVENTS, Hook, event_patterns, key_patterns, refusals
from engine.service.base import ReadOperations

if TYPE_CHECKING:
    from engine.ledger import EventStore

_AT_ONCE: Final = 200
_WATCHES_FOR: Final = timedelta(minutes=1)
"""How long events are written for a follower that is gone."""
_RENEW: Final = 20.0


class EventOperations(ReadOperations):
    """Operations on events and on those who subscribe to them."""

    @property
    def _events(self) -> EventStore:
        return self._ledger.events

    async def events(
        self, *, key: str | None = None, name: str = ALL_EVENTS, limit: int = 50
    ) -> list[ScheduleEvent]:
        """Return the newest events, newest first: of a key, with names that match a pattern.

        Events are written while there is a subscription, and stay for ``SCHED_EVENTS_KEEP``.

        Raises:
            ScheduleError: the name is no pattern, or matches no event.
        """
        its = _reader("", key=None, name=name)
        await self._place(self._actor)
        rows = await self._events.newest(key=key, limit=limit)
        return self._messages(its, rows)[:limit]

    async def follow_events(
        self,
        *,
        key: str | None = None,
        name: str = ALL_EVENTS,
        tick: timedelta = timedelta(seconds=1),
        on_begin: Callable[[], None] | None = None,
    ) -> AsyncGenerator[ScheduleEvent, None]:
        """Yield events from now on, until the caller ends it.

        Args:
            key: of one schedule, or a pattern of keys; None are all.
            name: pattern of the names.
            tick: the longest time between an event and its output.
            on_begin: is called once every event from now on is sure to come.
        """
        from engine.runtime.loop import beside  # it loads the Temporal SDK

        book, reader = self._events, f"reader:{self._actor}:{secrets.token_hex(4)}"
        its = _reader(reader, key=key, name=name)
        await book.subscribe(its, lasts=_WATCHES_FOR, by=self._actor)
        (position,) = (each.position for each in await book.subscriptions() if each.name == reader)
        if on_begin is not None:
            on_begin()
        news, renewed = asyncio.Event(), boottime()
        try:
            async with beside(_hints(book, news)):
                while True:
                    news.clear()
                    if boottime() - renewed > _RENEW:
                        await book.subscribe(its, lasts=_WATCHES_FOR, by=self._actor)
                        renewed = boottime()
                    await self._place(reader)
                    rows = await book.read(position, _AT_ONCE)
                    for message in self._messages(its, rows):
                        yield message
                    position = rows[-1].position or position if rows else position
                    if not rows:
                        await wait_for(news, tick.total_seconds())
        finally:
            await book.unsubscribe(reader)

    async def _place(self, reader: str) -> None:
        """Give new events their positions, in case no worker is there to do it."""
        if (await self._events.work(reader, ())).fresh:
            while await self._events.place(_AT_ONCE) == _AT_ONCE:
                pass

    def _messages(self, its: Subscription, rows: Sequence[EventRow]) -> list[ScheduleEvent]:
        namespace = self._events.namespace
        return [ScheduleEvent.of(row, name, namespace) for row in rows for name in its.wanted(row)]

    # --- subscriptions ---

    async def subscriptions(self) -> list[Subscription]:
        """Return the webhooks, listeners and readers, by name."""
        return await self._events.subscriptions()

    async def hooks(self) -> list[Subscription]:
        """Return the webhooks, by name."""
        return [each for each in await self.subscriptions() if each.kind == "hook"]

    async def declare_hook(
        self,
        url: str,
        *,
        secret: str,
        events: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        project: str | None = None,
        reason: str | None = None,
    ) -> Subscription:
        """Have events sent to an address, as ``hooks:`` of a file does; return the subscription.

        One with this address is changed.

        Args:
            url: http or https.
            secret: ``${env:NAME}``: the variable of its workers with the secret of signatures.
            events: patterns of names of events; None are all.
            keys: patterns of keys of schedules; None are all of the project.
            project: whose events it gets, and whose workers send them; by default the service's.
            reason: the reason, for the audit log.

        Raises:
            ScheduleError: one of them is invalid.
            OwnedByFile: a file declares the address for this project.
        """
        hook = Hook.of(url, secret=secret, events=events, keys=keys)
        project = self.project_of(project)
        new = Subscription.of_hook(hook, project, "api")
        async with self._ledger.transaction() as transaction:
            known = {each.name: each for each in await transaction.hooks()}
            if (before := known.get(new.name)) is not None:
                _require_own_hook(before)
            await transaction.declare_hooks(
                project, [hook], origin="api", by=self._actor, only=False
            )
            await transaction.act([_noted("hook", new, reason, before)], by=self._actor)
        return new

    async def change_hook(
        self, name: str, changes: Mapping[str, Any], *, reason: str | None = None
    ) -> Subscription:
        """Change ``secret``, ``events`` and ``keys`` of a webhook; None is the default of a field.

        Args:
            name: its name, or the short one.
            changes: the fields that change.
            reason: the reason, for the audit log.

        Raises:
            ScheduleError: a value is invalid, or another field is named.
            OwnedByFile: a file declares it.
            HookNotFound: there is none of this name.
        """
        now = await self._hook(name)
        wrong = sorted(changes.keys() - {"secret", "events", "keys"})
        if wrong:
            raise ScheduleError(
                f"{', '.join(wrong)[:80]} cannot be changed",
                hint="leave it out, or declare another",
            )
        values = {
            "secret": f"${{env:{now.secret}}}",
            "events": now.events,
            "keys": now.keys or None,
        }
        return await self.declare_hook(
            now.url or "", project=now.project, reason=reason, **{**values, **changes}
        )

    async def remove_hook(self, name: str, *, reason: str | None = None) -> None:
        """Remove a webhook, with what it has not got.

        Raises:
            OwnedByFile: a file declares it.
            HookNotFound: there is none of this name.
        """
        hook = await self._hook(name)
        async with self._ledger.transaction() as transaction:
            await transaction.remove_hook(hook.name)
            await transaction.act([_noted("unhook", hook, reason)], by=self._actor)

    async def _hook(self, name: str) -> Subscription:
        for each in await self.hooks():
            if name in {each.name, each.short_name}:
                _require_own_hook(each)
                return each
        raise HookNotFound(f"there is no hook {name[:80]}", hint="`sched events --subscribers`")

    async def unsubscribe(self, name: str) -> bool:
        """Remove a subscription by its name, with what it has not got; False if there is none.

        A hook of a file comes back when the file is applied again.
        """
        return await self._events.unsubscribe(name)

    # --- dead deliveries ---

    async def dead_events(self, *, limit: int = 50) -> list[Delivery]:
        """Return deliveries that were given up, newest first."""
        return await self._events.dead(limit)

    async def redeliver(self, event_id: str, *, subscription: str | None = None) -> int:
        """Have an event that was given up delivered again; return to how many subscriptions."""
        return await self._events.redeliver(event_id, subscription)


def _require_own_hook(hook: Subscription) -> None:
    if hook.origin == "file":
        raise OwnedByFile(f"{hook.name} is declared by a file", hint="change the file and apply it")


def _noted(
    verb: str, hook: Subscription, reason: str | None, before: Subscription | None = None
) -> Action:
    """Return the row of a hook for the audit log, without its address and its secret."""

    def shown(of: Subscription | None) -> dict[str, Any] | None:
        return {"events": [*of.events], "keys": [*of.keys]} if of else None

    was, becomes = (before, hook) if verb == "hook" else (hook, None)
    return Action(
        hook.project or "", hook.name, verb, reason, before=shown(was), after=shown(becomes)
    )


def _reader(reader: str, *, key: str | None, name: str) -> Subscription:
    """Return a subscription by patterns.

    Raises:
        ScheduleError: one of them is no pattern, or matches nothing.
    """
    with refusals():
        keys = key_patterns([key], "the key") if key else ()
        events = event_patterns([name], "the name")
    return Subscription(name=reader, kind="reader", events=events, keys=keys)


async def _hints(book: EventStore, news: asyncio.Event) -> None:
    """Set ``news`` when events got their positions; without hints the ticks suffice."""
    with suppress(LedgerError):
        await book.listen(news.set)
