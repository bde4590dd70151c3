"""Lookups of runs that plans wait for, and cancellations, in background tasks.

A plan that lacks information is withheld. The lookup runs beside the ticks and outside every
transaction, and its answer makes the key due again. A lookup that fails or takes long delays only
the plans that need its answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from engine.errors import Code
from engine.ledger import Ledger
from engine.runtime.clock import backoff, boottime
from engine.runtime.events import Alert, OnEvent, Recovered, ServerName, log, words_of
from engine.runtime.runs.memo import UnreadableHere
from engine.runtime.temporal_client import degraded_by, server_of
from engine.runtime.tracking.runs import RunAuditor, RunCanceller, RunInspector
from engine.schedules.planner import LONGEST_WAIT, Plan, ScheduleState

T = TypeVar("T")

_LOOKS, _FURTHER_TRIES = 16, 4
"""Lookups in flight at once, and how many of these may be retries."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Initial and maximum backoff of a lookup, in seconds."""
_ALL, _LONGEST_OF_ALL = "", 5.0
"""Name of the query that all audits share, and its maximum backoff."""
_REPORTED = 3
"""Number of the failed try that is reported: fewer failures usually mean an absent server."""
_REMEMBERED = 10_000
_SOON, _TICK = 0.05, 1.0
_PLANS = 20
"""Maximum number of plans per second, over all keys, that find no answer yet."""
_FORGOTTEN = 60.0


class _Failures:
    """Consecutive failures of each lookup, and the time of its next try."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def put_off(self, name: str) -> bool:
        """Return whether it is too early for a retry."""
        return name in self._known and boottime() < self._known[name][1]

    def failed(self, name: str) -> int:
        """Record a failure; return the number of consecutive ones."""
        count = self._known.pop(name, (0, 0.0))[0] + 1
        longest = _LONGEST_OF_ALL if name == _ALL else _LONGEST_PAUSE
        self._known[name] = (count, boottime() + backoff(_FIRST_PAUSE, count - 1, longest))
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return count

    def worked(self, name: str) -> None:
        self._known.pop(name, None)


class RunLookups:
    """The lookups of one poller: one per run, however many plans need it, oldest first.

    A failed lookup is retried with backoff while a plan still needs it.

    Args:
        on_event: receives lookups that keep failing, and work that is degraded.

    Attributes:
        rouse: called when a key was made due.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        inspector: RunInspector,
        auditor: RunAuditor,
        canceller: RunCanceller,
        on_event: OnEvent = log,
    ) -> None:
        self._ledger, self._inspector, self._emit = ledger, inspector, on_event
        self._auditor, self._canceller = auditor, canceller
        self.rouse: Callable[[], None] = lambda: None
        self._line: deque[tuple[str, str]] = deque()
        self._asked: set[str] = set()
        self._trying: Counter[str] = Counter()
        self._news: dict[str, bool] = {}
        self._missed: dict[str, ScheduleState] = {}
        self._withheld: dict[str, tuple[float, float]] = {}
        self._failed, self._failed_audits = _Failures(), _Failures()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, ServerName | None] = {}
        self._leaving = False

    def is_audited(self, state: ScheduleState) -> bool:
        """Return whether every run of the key after its cursor is known (rule L4)."""
        return self._auditor.is_audited(state)

    def forget(self) -> None:
        """Drop all earlier answers: the ledger may have lost its last commits."""
        self._auditor.forget()

    async def look_up(self, key: str, since: datetime) -> None:
        """Book every run of a key that started since then.

        Raises:
            RPCError: Temporal could not be queried.
        """
        await self._auditor.look_up(key, since)

    def patience(self, planned: Plan) -> timedelta:
        """Return the delay after which a withheld plan is made again if no answer comes before.

        It starts short if the plan waits for the answer to a start, which does not make the key
        due; an answer to a lookup does. Its maximum grows with the number of withheld plans.
        """
        now, key = boottime(), planned.state.key
        since, _ = self._withheld.pop(key, (now, now))
        self._withheld[key] = (since, now)
        while (first := next(iter(self._withheld.items())))[1][1] < now - _FORGOTTEN:
            del self._withheld[first[0]]  # another replica has decided it
        longest = min(max(_TICK, len(self._withheld) / _PLANS), LONGEST_WAIT.total_seconds())
        asks = planned.looks or planned.audit
        return timedelta(seconds=longest if asks else min(max(now - since, _SOON), longest))

    def want(self, plans: Sequence[Plan]) -> None:
        """Begin the lookups that these steps need."""
        for planned in plans:
            if not planned.withheld:
                self._withheld.pop(planned.state.key, None)
            for fire in planned.looks:
                self._want_look(fire.workflow_id, planned.state.key)
            key, put_off = planned.state.key, self._failed_audits.put_off
            if planned.audit and not (put_off(key) or put_off(_ALL)):
                self._missed[planned.state.key] = planned.state
        self._go_on()

    def stop_due(self) -> None:
        """Begin to cancel and terminate the runs with a due stop order."""
        self._begin("stops", self._stop)

    async def settled(self) -> None:
        """Wait until all queued and running lookups have been tried."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())
            await asyncio.sleep(0)  # lets done callbacks begin the next ones

    async def drain(self) -> None:
        """Drop queued lookups, begin no more, and wait for those in flight."""
        self._leaving = True
        self._line.clear()
        self._missed.clear()
        await self.settled()

    def _want_look(self, workflow_id: str, key: str) -> None:
        if workflow_id in self._asked or self._failed.put_off(workflow_id):
            return
        if workflow_id in self._failed:
            again = sum(name in self._failed for name in self._asked)
            if again >= _FURTHER_TRIES:
                return  # a later plan retries it
        self._asked.add(workflow_id)
        self._trying[key] += 1
        self._line.append((key, workflow_id))

    def _go_on(self) -> None:
        while self._line and len(self._tasks) < _LOOKS and not self._leaving:
            key, workflow_id = self._line.popleft()
            self._begin(workflow_id, partial(self._look, key, workflow_id))
        if self._missed and not self._leaving:
            self._begin("audits", self._audit)

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the work in a task, unless one of this name is running."""
        if name not in self._tasks:
            task = self._tasks[name] = asyncio.create_task(work())
            task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        if task.cancelled():
            return
        if error := task.exception():
            self._emit(Alert(Code.LOOK_FAILED, f"{name}: {type(error).__name__}: {error}"))
        self._go_on()

    async def _guarded(self, name: str, work: Awaitable[T]) -> T | None:
        """Return the result of the work, None if it failed; report failure and recovery once."""
        try:
            answer = await work
        except Exception as error:  # noqa: BLE001 - whatever it is, it is asked for again
            if name not in self._held:
                # That a server is away is reported by the loops, which ask it again and again.
                self._held[name] = server_of(error)
                if self._held[name] is None:
                    self._emit(degraded_by(name, error))
            return None
        if self._held.pop(name, "nothing") is None:
            self._emit(Recovered(name))
        return answer

    async def _stop(self) -> None:
        await self._guarded("stops", self._canceller.stop_due())

    async def _look(self, key: str, workflow_id: str) -> None:
        try:
            changed = bool(await self._inspector.inspect([workflow_id]))
        except UnreadableHere:
            # The tracker reports it, and has the run recorded by a replica that can read it.
            self._failed.failed(workflow_id)
        except Exception as error:  # noqa: BLE001 - one bad run never stops the others
            if self._failed.failed(workflow_id) == _REPORTED:
                text = f"{workflow_id} cannot be looked at, and {key} waits for that"
                self._emit(Alert(Code.LOOK_FAILED, f"{text}: {words_of(error)}"))
        else:
            self._failed.worked(workflow_id)
            self._news[key] = self._news.get(key, False) or changed
        self._asked.discard(workflow_id)
        self._trying[key] -= 1
        if self._trying[key] <= 0:
            del self._trying[key]
            if key in self._news:
                await self._answered([key], changed=self._news.pop(key))

    async def _audit(self) -> None:
        """Audit the keys that wait for it, oldest first, a part at a time."""
        while self._missed:
            states = [*self._missed.values()]
            failed = await self._guarded("audits", self._auditor.audit(states, self._audited))
            if failed is None:  # the query for all keys failed
                self._failed_audits.failed(_ALL)
                self._missed.clear()
                return
            self._failed_audits.worked(_ALL)
            for key, error in failed.items():
                self._missed.pop(key, None)
                if self._failed_audits.failed(key) == _REPORTED:
                    text = f"{key}: which of its windows have run cannot be found out"
                    self._emit(Alert(Code.LOOK_FAILED, f"{text}: {words_of(error)}"))

    async def _audited(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._missed.pop(key, None)
            self._failed_audits.worked(key)
        await self._answered(keys)

    async def _answered(self, keys: Sequence[str], *, changed: bool = False) -> None:
        """Make these keys due now, rather than after ``patience``."""
        if changed:  # other keys may wait for this close
            await self._guarded("wake", self._ledger.wake())
        if keys:
            await self._guarded("looks", self._ledger.make_due(keys))
            self.rouse()
