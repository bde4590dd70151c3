"""Sends claims with bounded concurrency and writes their outcomes in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from engine import faults
from engine.ledger import Ledger
from engine.ledger.records import Claim
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.events import Alert, Listener, Settled
from engine.runtime.settings import Settings
from engine.runtime.starter import Answer, Starter

_FEWEST = 100
_GATHER = 0.05
"""Seconds for which outcomes gather before they are written together."""


class Dispatcher:
    """The outbox of one replica: what was claimed is sent here and nowhere else."""

    def __init__(
        self,
        ledger: Ledger,
        starter: Starter,
        clock: LedgerClock,
        settings: Settings,
        *,
        tell: Listener,
    ) -> None:
        self._ledger, self._starter, self._clock = ledger, starter, clock
        self._settings, self._tell = settings, tell
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: list[tuple[Claim, Answer]] = []
        self._writing: asyncio.Task[None] | None = None
        self._starts: deque[float] = deque()
        self.room_made = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more claims this replica may take.

        Never more than it started in the last quarter of a lease, within [100, batch]: what it
        takes it can as a rule send before the lease ends, and the rest is left to others. Offered
        from half of that on: a claim costs ten round trips, for one window or for fifty.
        """
        since = boottime() - self._settings.lease.total_seconds() / 4
        while self._starts and self._starts[0] < since:
            self._starts.popleft()
        most = min(max(len(self._starts), _FEWEST), self._settings.batch)
        free = most - len(self._tasks)
        return free if free * 2 >= most else 0

    def send(self, claims: Sequence[Claim], lease_ends: float) -> list[asyncio.Task[None]]:
        """Begin to send; the tasks end when their outcomes are written."""
        tasks = [asyncio.create_task(self._handle(claim, lease_ends)) for claim in claims]
        for task in tasks:
            self._tasks.add(task)
            task.add_done_callback(self._finished)
        return tasks

    async def drain(self) -> None:
        """Wait until everything in flight has been answered and written."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.room:
            self.room_made.set()
        if error := task.exception():
            self._tell(Alert("SCHEDULE_SETTLE_FAILED", f"{type(error).__name__}: {error}"))

    async def _handle(self, claim: Claim, lease_ends: float) -> None:
        async with self._slots:
            answer = await self._starter.start(claim, lease_ends)
        if answer is None:  # the lease ended first: the fire is a sweeper's now
            return
        if answer.outcome.status == "started":
            self._starts.append(boottime())
        faults.reach("after_start")
        self._answers.append((claim, answer))
        await self._written()
        self._report(claim, answer)

    async def _written(self) -> None:
        """Write what has gathered. While one batch is being written the next one gathers."""
        if self._writing is not None:
            await self._writing
        if self._answers and self._writing is None:
            self._writing = asyncio.create_task(self._write())
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        try:
            if len(self._tasks) > len(self._answers):
                await asyncio.sleep(_GATHER)  # others are on their way; a window alone is not kept
            answers, self._answers = self._answers, []
            faults.reach("before_settle")
            await self._ledger.settle([answer.outcome for _, answer in answers])
            seen = [answer.seen for _, answer in answers if answer.seen]
            if seen:
                await self._ledger.witness(seen)
        except Exception as error:  # noqa: BLE001 - whatever it is, others' answers must go on
            # Not lost: the leases end, a sweeper describes each run and books it as started.
            text = f"outcomes left to the sweeper: {type(error).__name__}: {error}"
            self._tell(Alert("SCHEDULE_SETTLE_FAILED", text))
        finally:
            self._writing = None

    def _report(self, claim: Claim, answer: Answer) -> None:
        started = answer.outcome.started_at or self._clock.now()
        already = answer.seen is not None
        self._tell(Settled(claim, answer.outcome, started - claim.fire_time, already))
        if answer.alert:
            code = f"SCHEDULE_FIRE_{answer.outcome.status.upper()}"
            self._tell(Alert(code, f"{claim.workflow_id}: {answer.alert}"))
