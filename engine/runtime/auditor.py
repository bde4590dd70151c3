"""Asks Temporal which windows have run, before missed ones are made up for (rule L4).

A ledger that was away, or came back without its last commits, must not coalesce, expire or start
what has its run already. One question covers every key that is late by the same outage; only a key
whose cursor is much older is asked for by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.client import Client

from engine.ledger import Ledger
from engine.ledger.schedule_records import ScheduleState
from engine.runtime.booking import book
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.events import Listener
from engine.runtime.looking import Looker, Seen
from engine.runtime.settings import Settings
from engine.runtime.starter import evidence_of

_GOOD_FOR = 60.0
"""Seconds for which an answer is good: whoever plans later asks again."""
_TOGETHER = timedelta(hours=1)
_SKEW = timedelta(seconds=60)
"""How far Temporal's clock may be behind the ledger's."""
_LAG = timedelta(seconds=60)
"""How far visibility may trail behind: windows younger than this are described one by one."""
_YOUNG = 100
_AT_ONCE = 16
_PAGE = 500
_MOST = 20_000
"""Runs that one question may find. Where there are more, each key is asked for by itself."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What visibility has shown, and was booked: every run from ``since`` to about ``at``."""

    since: datetime
    at: datetime
    good_until: float


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
        self._shown: _Shown | None = None

    def is_audited(self, state: ScheduleState) -> bool:
        """Whether the runs of the key after its present cursor are known."""
        cursor, until = self._audited.get(state.key, (None, 0.0))
        return cursor == state.cursor and boottime() < until

    def forget(self) -> None:
        """Trust no answer of before: what was booked may be gone."""
        self._audited.clear()
        self._shown = None

    async def audit(self, states: Sequence[ScheduleState]) -> None:
        """Look up the runs of these keys from their first undecided window on, and book them.

        Raises:
            RPCError: Temporal could not be asked; nothing is decided then.
        """
        now, asked = self._clock.now(), boottime()
        since = {state.key: _first_undecided(state) - _SKEW for state in states}
        recent = [moment for moment in since.values() if moment > now - _TOGETHER]
        shown = await self._look_together(min(recent, default=now), now)
        for state in states:
            if shown is None or since[state.key] < shown.since:
                await self._book_since(since[state.key], f"sched:{state.key}:")
        await self._describe_young(states, shown.at if shown else now, now)
        until = min(asked + _GOOD_FOR, shown.good_until if shown else asked + _GOOD_FOR)
        for state in states:
            self._audited[state.key] = (state.cursor, until)
        for key in [key for key, (_, until) in self._audited.items() if until < asked]:
            del self._audited[key]

    async def _look_together(self, since: datetime, now: datetime) -> _Shown | None:
        """Look up every run since then, unless that was done just now; None: there are too many.

        One question covers every key that is late for the same reason, however many turns it
        takes to plan them all.
        """
        shown, asked = self._shown, boottime()
        if shown is None or since < shown.since or asked >= shown.good_until - _GOOD_FOR / 2:
            shown = _Shown(since, now, asked + _GOOD_FOR)
            self._shown = shown if await self._book_since(since, "sched:") else None
        return self._shown

    async def _book_since(self, since: datetime, prefix: str) -> bool:
        """Book the runs that visibility shows; False when these cannot be all."""
        query = f'WorkflowId STARTS_WITH "{prefix}" AND StartTime >= "{since.isoformat()}"'
        runs = self._client.list_workflows(
            query, page_size=_PAGE, limit=_MOST, rpc_timeout=self._settings.rpc_timeout
        )
        found: list[Seen] = []
        count = 0
        async for run in runs:
            count += 1
            info = await self._looker.fire_of(run)
            if info is not None:
                found.append((evidence_of(run), info))
        await self._book(found)
        return count < _MOST

    async def _describe_young(
        self, states: Sequence[ScheduleState], shown_at: datetime, now: datetime
    ) -> None:
        """Look one by one at windows that visibility did not have to show."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def describe(workflow_id: str) -> Seen | None:
            async with slots:
                return await self._looker.find(workflow_id)

        found = await asyncio.gather(
            *(describe(name) for state in states for name in _young(state, shown_at - _LAG, now))
        )
        await self._book([each for each in found if each is not None])

    async def _book(self, found: Sequence[Seen]) -> None:
        await book(self._ledger, found, by=self._replica, tell=self._tell)


def _first_undecided(state: ScheduleState) -> datetime:
    return state.schedule.spec.next(state.cursor) or state.cursor


def _young(state: ScheduleState, since: datetime, now: datetime) -> Iterator[str]:
    begin = max(state.cursor, since)
    for at in state.schedule.spec.latest(now, _YOUNG):
        if at > begin and not state.known.get(at):
            yield state.window(at).workflow_id(state.suffixed)
