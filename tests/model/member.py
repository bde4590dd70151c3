"""One replica of the real code, on a line to the ledger and a client of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from datetime import timedelta
from typing import Any, cast

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from engine.errors import EngineError, LedgerUnavailable, TemporalUnavailable
from engine.ledger.records import Serving
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.backpressure import Budget
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Starter
from engine.runtime.events import Event
from engine.runtime.presence import Presence, Watchdog
from engine.runtime.settings import Settings
from engine.runtime.tick.lookups import RunLookups
from engine.runtime.tick.poller import Poller
from engine.runtime.tracking.end_reader import EndReader
from engine.runtime.tracking.runs import RunAuditor, RunCanceller, RunInspector
from engine.runtime.tracking.tracker import Tracker
from tests.model.loop import WHOSE, Loop, Mortal
from tests.model.server import Server
from tests.model.temporal import Client
from tests.model.wire import Wire

PROJECT, QUEUE = "default", "sched"
TYPES = frozenset({"noop@1"})
SETTINGS = Settings(lease=timedelta(seconds=30), concurrency=4)


class Member(Mortal):
    """A replica whose loops turn when somebody says so."""

    def __init__(self, name: str, loop: Loop, server: Server, wire: Wire, identity: str,
                 on_event: Callable[[Event], None]) -> None:  # fmt: skip
        super().__init__(name)
        self._loop = loop
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._rests: dict[str, float] = {}
        ledger, client = wire, cast("TemporalClient", Client(server))
        serving = Serving(name, PROJECT, QUEUE, TYPES)
        clock = LedgerClock()
        starter = Starter(client, clock, SETTINGS)
        self.dispatcher = Dispatcher(ledger, starter, clock, SETTINGS, on_event=on_event)
        starter.ledger = identity
        inspector = RunInspector(
            client, ledger, clock, SETTINGS, ledger_id=identity, on_event=on_event
        )
        canceller = RunCanceller(client, ledger, inspector, serving, SETTINGS, on_event=on_event)
        auditor = RunAuditor(client, ledger, inspector, clock, SETTINGS,
                          replica=name, on_event=on_event)  # fmt: skip
        lookups = RunLookups(ledger, inspector=inspector, auditor=auditor, canceller=canceller)
        self.poller = Poller(ledger, self.dispatcher, clock, serving, SETTINGS,
                             lookups=lookups, on_event=on_event)  # fmt: skip
        tracker = Tracker(
            client, ledger, clock, SETTINGS, inspector=inspector, replica=name,
            breaker=self.dispatcher.breaker, busy=lambda: not self.dispatcher.room,
            on_event=on_event,
        )  # fmt: skip

        reader = EndReader(
            client, ledger, SETTINGS, budget=Budget(), breaker=self.dispatcher.breaker,
            is_mine=lambda: tracker.stays, pass_on=tracker.pass_on, on_event=on_event,
        )  # fmt: skip
        presence = Presence(client, ledger, serving, SETTINGS, on_event=on_event)
        watchdog = Watchdog(ledger, presence, serving, SETTINGS,
                            distrusts=lambda: self.poller.distrusts_clock,
                            on_event=on_event)  # fmt: skip

        async def begin() -> None:
            await presence.begin()
            clock.observe((await ledger.probe(serving)).now)

        self.wire, self.auditor = wire, auditor
        self.trusted: list[tuple[float, float]] = []
        self._begin, self._begun = begin, False
        self._loops: dict[str, Callable[[], Awaitable[Any]]] = {
            "poller": self.poller.run_once,
            "tracker": tracker.run_once,
            "ends": reader.run_once,
            "leases": self.dispatcher.leases.run_once,
            "starts": self.dispatcher.breaker.run_once,
            "presence": presence.run_once,
            "watchdog": watchdog.run_once,
        }

    @property
    def loops(self) -> list[str]:
        return [*self._loops] if self._begun else ["begin"]

    def turn(self, name: str) -> None:
        """Begin one turn of a loop, unless the one before has not ended."""
        if self.dead or ((task := self._tasks.get(name)) and not task.done()):
            return
        context = copy_context()
        context.run(WHOSE.set, self)
        turn = self._first if name == "begin" else self._loops[name]
        self._tasks[name] = self._loop.create_task(self._guarded(name, turn), context=context)

    def live(self) -> None:
        """Begin a turn of every loop that has rested as long as it wanted to."""
        for name in self.loops:
            if self._loop.time() >= self._rests.get(name, 0.0):
                self.turn(name)

    async def _first(self) -> None:
        await self._begin()
        self._begun = True

    async def _guarded(self, name: str, turn: Callable[[], Awaitable[Any]]) -> None:
        try:
            rest = await turn()
            self._rests[name] = self._loop.time() + (rest.total_seconds() if rest else 0.0)
        except (EngineError, RPCError) as error:
            if not _is_weather(error):
                self._loop.troubles.append(f"{name}: {error!r}")

    def die(self) -> None:
        """Never do anything again; what a transaction had written is undone."""
        self.dead = True
        self._loop.kill(self)


def _is_weather(error: Exception) -> bool:
    """Whether a fault that was made explains it."""
    return isinstance(error, LedgerUnavailable | TemporalUnavailable | RPCError)
