"""Learns what became of started runs: closes, and runs the ledger did not know of.

One replica at a time performs this duty, so that a fleet does not multiply the calls; two at
once would do no harm, because evidence only ever moves a fire forward. It belongs to a replica that
gets on. One that cannot reach Temporal stops, and then says that others may take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from engine.errors import Code
from engine.ledger import Ledger
from engine.ledger.fire_records import Evidence
from engine.runtime.booking import book
from engine.runtime.breaker import Breaker
from engine.runtime.budget import PAGE, Budget
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.events import Alert, Closed, Held, Listener, logger
from engine.runtime.following import follow
from engine.runtime.looking import VISIBILITY_LAG, Looker, Seen
from engine.runtime.polled import Polls
from engine.runtime.settings import Settings
from engine.runtime.trouble import trouble

_NEAR = timedelta(seconds=5)
"""How much of the time before its last look a turn looks at again."""
_SWEEP_EVERY = 10
_PART = 50
"""Runs that are booked together."""
_AT_ONCE = 8
"""Of these, so many are looked at at the same time; each may be described. The duty is renewed
between."""
_DESCRIBED = 8
"""Long-open runs that one turn describes: two seconds of the tracker's calls."""
_PUT_OFF = 5
"""Turns in a row that may be left to starts."""
_DOUBTED = timedelta(minutes=5)
"""How far back it looks at least when the ledger lost commits: the watermark may have moved on
before that was noticed."""
_REMEMBERED = 20_000
_ASIDE = 30.0
"""Seconds for which a run that could not be looked at is left alone."""
_RESTED = timedelta(seconds=10)
"""Longer than a tick: whoever counted on a window that was denied has begun by then."""
_GAPS = 100
_DUTY = "tracker"
_LEASE = timedelta(seconds=10)
"""The longest for which the duty stands still when its holder dies: no claim depends on it."""


class Tracker:
    """Settles closed runs behind a watermark, and looks at long-open ones in turn.

    Args:
        breaker: knows whether Temporal is away from here, so that the duty is somebody else's.
        polls: looks at the task queues of external schedules.
        busy: whether windows wait to be started. They come first: a close that is learned a few
            seconds later hurts nobody.
        doubted_at: when a sign was seen that the ledger lost commits. What was booked before has to
            be booked again.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        clock: LedgerClock,
        settings: Settings,
        *,
        looker: Looker,
        replica: str,
        breaker: Breaker,
        polls: Polls | None = None,
        budget: Budget | None = None,
        busy: Callable[[], bool] = lambda: False,
        doubted_at: Callable[[], datetime | None] = lambda: None,
        tell: Listener,
    ) -> None:
        self._budget = budget or Budget()
        self._client, self._ledger, self._clock = client, ledger, clock
        self._settings, self._tell = settings, tell
        self._looker, self._replica = looker, replica
        self._breaker, self._polls = breaker, polls
        self._lease = max(min(settings.lease, _LEASE), settings.track * 3)
        self._seen: dict[str, None] = {}
        self._aside: dict[str, float] = {}
        self._turns = 0
        self._busy, self._put_off = busy, 0
        self._doubted_at, self._knows_of = doubted_at, doubted_at()
        self._rests_until, self._told = 0.0, False
        self._held_until = 0.0

    @property
    def on_duty(self) -> bool:
        """Whether the duty is this replica's; no longer than another may take it for free."""
        return boottime() < self._held_until

    async def turn(self) -> timedelta:
        """Look once; returns the wait until the next look."""
        if self._breaker.is_open:
            await self._give_up("Temporal is away")
        if self._busy() and self._put_off < _PUT_OFF:
            self._put_off += 1
            return self._settings.track
        if boottime() < self._rests_until or (self._breaker.holds and not self.on_duty):
            return self._settings.track
        was_on_duty, watermark = self.on_duty, await self._hold()
        if watermark is not None:
            try:
                await self._perform(watermark, whole=not was_on_duty)
            except Exception as error:
                if trouble(error) != "away":
                    raise
                await self._give_up(f"Temporal does not answer: {error}")
                return self._settings.track
        if self._told:
            self._told = False
            self._tell(Held(_DUTY, None))
        return self._settings.track

    async def release(self) -> None:
        """Let another replica have the duty: nothing more is done here."""
        if self._held_until:
            self._held_until = 0.0
            await self._ledger.release_duty(_DUTY, self._replica)

    async def _hold(self) -> datetime | None:
        """Take the duty, or keep it for another lease; returns its watermark."""
        asked = boottime()
        watermark = await self._ledger.hold_duty(_DUTY, self._replica, self._lease)
        held = watermark is not None
        self._held_until = asked + self._lease.total_seconds() if held else 0.0
        return watermark

    async def _give_up(self, reason: str) -> None:
        """Leave the duty to others for a lease: one of them may reach the server."""
        if not self._held_until:
            return
        # Even if its lease has ended meanwhile, or it would be the first to take it again.
        self._rests_until = boottime() + self._lease.total_seconds()
        self._told = True
        self._tell(Held(_DUTY, reason))
        await self.release()

    async def _perform(self, watermark: datetime, *, whole: bool) -> None:
        """Look for closes and at long-open runs; ``whole``: from the watermark on."""
        near = _NEAR + self._settings.track * (self._put_off + 1)
        self._put_off = 0
        if doubts := (doubted_at := self._doubted_at()) != self._knows_of:
            self._seen.clear()
            near = max(near, _DOUBTED)
        now = self._clock.now()
        if watermark == datetime.fromtimestamp(0, UTC):
            watermark = now - VISIBILITY_LAG
        # The near past at every turn, all that visibility may still owe us now and then.
        sweep = doubts or whole or self._turns % _SWEEP_EVERY == 0
        self._turns += 1
        changed = False
        async for page in self._pages((min if sweep else max)(watermark, now - near)):
            closed = await self._evidence(page)
            changed |= bool(await self._book([*filter(None, closed.values())]))
            # Only now: what could not be written must be found again.
            self._remember(closed)
            if await self._hold() is None:
                return  # somebody else's by now
        if changed or sweep:
            await self._ledger.wake()  # a close may be what the next in a queue has waited for
        if await self._look_at_long_open(now):
            await self._ledger.wake()
        self._knows_of = doubted_at
        await follow(self._ledger, tell=self._tell)
        if sweep:
            await self._ledger.set_watermark(_DUTY, self._replica, now - VISIBILITY_LAG)
            for gap in await self._ledger.check_data_gaps(rest=_RESTED, limit=_GAPS):
                self._tell(Alert(Code.DATA_GAP, gap.told))
            if self._polls is not None:
                await self._polls.look()

    async def _book(self, found: Sequence[Seen]) -> set[str]:
        changed = set(await book(self._ledger, found, by=self._replica, tell=self._tell))
        # Visibility answers the newest first; whoever listens hears them as they came.
        for seen in sorted((seen for seen, _ in found), key=_closed_at):
            if seen.closed and seen.workflow_id in changed:
                self._tell(Closed(seen))
        return changed

    async def _pages(self, since: datetime) -> AsyncIterator[list[WorkflowExecution]]:
        """Runs that have closed since then, in parts; at least one, which may be empty."""
        query = f'WorkflowId STARTS_WITH "sched:" AND CloseTime >= "{since.isoformat()}"'
        runs = self._client.list_workflows(
            query, page_size=PAGE, rpc_timeout=self._settings.rpc_timeout
        )
        page = []
        async for run in self._budget.tracked(runs):
            page.append(run)
            if len(page) == _PART:
                yield page
                page = []
        yield page

    async def _evidence(self, page: Sequence[WorkflowExecution]) -> dict[str, Seen | None]:
        """What a page tells that is new, by run id; None is a run that is not ours to settle.

        What is not looked at because the duty is another's by then is left out.

        Raises:
            RPCError: the server does not answer. That one run cannot be looked at is logged.
        """
        now = boottime()
        self._aside = {run_id: until for run_id, until in self._aside.items() if until > now}
        runs = [run for run in page if run.run_id not in self._seen.keys() | self._aside.keys()]
        found: dict[str, Seen | None] = {}
        while runs and await self._hold() is not None:
            some, runs = runs[:_AT_ONCE], runs[_AT_ONCE:]
            looks = await asyncio.gather(
                *map(self._looker.seen_closed, some), return_exceptions=True
            )
            for run, seen in zip(some, looks, strict=True):
                if not isinstance(seen, BaseException):
                    found[run.run_id] = seen
                    continue
                if trouble(seen) == "away" and await self._breaker.ask():
                    raise seen
                logger.warning("%s could not be looked at: %s", run.id, seen)
                self._aside[run.run_id] = now + _ASIDE
        return found

    async def _look_at_long_open(self, now: datetime) -> bool:
        """Whether some have ended, or are lost; it may be so where one could not be asked."""
        runs = await self._ledger.open_runs(_DESCRIBED, started_before=now - VISIBILITY_LAG)
        with suppress(RPCError, ValueError):  # what was seen of the others is written
            return await self._looker.look([run.workflow_id for run in runs], tracking=True)
        return True

    def _remember(self, run_ids: Iterable[str]) -> None:
        self._seen.update(dict.fromkeys(run_ids))
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]


def _closed_at(evidence: Evidence) -> datetime:
    return evidence.closed_at or evidence.started_at
