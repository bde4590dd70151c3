"""Asks Temporal which windows have run, before missed ones are made up for (rule L4).

A ledger that was away, or came back without its last commits, must not coalesce, expire or start
what has its run already. One question covers every key that is late by the same outage; only a key
whose cursor is much older is asked for by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from temporalio.client import Client

from engine.ledger import Ledger
from engine.ledger.records import ScheduleState
from engine.runtime.booking import book
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.events import Listener
from engine.runtime.looking import Looker, Seen
from engine.runtime.settings import Settings
from engine.runtime.starter import evidence_of

_GOOD_FOR = 60.0
"""Seconds for which an answer is good: whoever plans later asks again."""
_TOGETHER = timedelta(hours=1)
_LAG = timedelta(seconds=60)
"""How far visibility may trail behind: windows younger than this are described one by one."""
_YOUNG = 100
_AT_ONCE = 16
_PAGE = 500
_MOST = 20_000


class Auditor:
    """Books what has run of windows that the ledger has not decided."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        looker: Looker,
        clock: LedgerClock,
        settings: Settings,
        *,
        replica: str,
        tell: Listener,
    ) -> None:
        self._client, self._ledger, self._looker, self._clock = client, ledger, looker, clock
        self._settings, self._replica, self._tell = settings, replica, tell
        self._audited: dict[str, tuple[datetime, float]] = {}

    def is_audited(self, state: ScheduleState) -> bool:
        """Whether the runs of the key after its present cursor are known."""
        cursor, until = self._audited.get(state.key, (None, 0.0))
        return cursor == state.cursor and boottime() < until

    async def audit(self, states: Sequence[ScheduleState]) -> None:
        """Look up the runs of these keys from their cursors on, and book them.

        Raises:
            RPCError: Temporal could not be asked; nothing is decided then.
        """
        now = self._clock.now()
        asked = boottime()
        together = [state for state in states if state.cursor > now - _TOGETHER]
        if together:
            await self._book_since(min(state.cursor for state in together), "sched:")
        for state in states:
            if state.cursor <= now - _TOGETHER:
                await self._book_since(state.cursor, f"sched:{state.key}:")
        await self._describe_young(states, now)
        for state in states:
            self._audited[state.key] = (state.cursor, asked + _GOOD_FOR)
        for key in [key for key, (_, until) in self._audited.items() if until < asked]:
            del self._audited[key]

    async def _book_since(self, since: datetime, prefix: str) -> None:
        query = f'WorkflowId STARTS_WITH "{prefix}" AND StartTime >= "{since.isoformat()}"'
        runs = self._client.list_workflows(
            query, page_size=_PAGE, limit=_MOST, rpc_timeout=self._settings.rpc_timeout
        )
        found: list[Seen] = []
        async for run in runs:
            info = await self._looker.fire_of(run)
            if info is not None:
                found.append((evidence_of(run), info))
        await self._book(found)

    async def _describe_young(self, states: Sequence[ScheduleState], now: datetime) -> None:
        """Look one by one at windows that visibility may not show yet."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def describe(workflow_id: str) -> Seen | None:
            async with slots:
                return await self._looker.find(workflow_id)

        found = await asyncio.gather(
            *(describe(name) for state in states for name in _young(state, now))
        )
        await self._book([each for each in found if each is not None])

    async def _book(self, found: Sequence[Seen]) -> None:
        await book(self._ledger, found, by=self._replica, tell=self._tell)


def _young(state: ScheduleState, now: datetime) -> Iterator[str]:
    begin = max(state.cursor, now - _LAG)
    for at in state.schedule.spec.latest(now, _YOUNG):
        if at > begin:
            yield state.window(at).workflow_id(state.suffixed)
