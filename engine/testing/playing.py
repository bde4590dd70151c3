"""Plays windows one after the other: the real planner and ledger, in the test's time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from engine.ledger import MemoryLedger
from engine.ledger.fire_records import Claim, Evidence, Fire
from engine.ledger.replica_records import Serving
from engine.ledger.schedule_records import ScheduleState, Step
from engine.runtime.clock import LedgerClock
from engine.runtime.declare import apply
from engine.runtime.dispatcher import Dispatcher
from engine.runtime.poller import Poller
from engine.runtime.settings import Settings
from engine.runtime.sight import Sight
from engine.runtime.starter import Starter
from engine.runtime.verbs.locked import locked
from engine.schedules import Schedule, ScheduleFile
from engine.schedules.instants import TICK
from engine.testing.bench import Bench
from engine.testing.clock import FrozenClock
from engine.testing.results import FireResult, RunResult

_RETENTION: Final = timedelta(days=1)
_MOST: Final = 100_000
_MOST_TURNS: Final = 1000
_TICK: Final = timedelta(seconds=1)
_WHO: Final = "test"


class _Knowing:
    """What a poller sees of Temporal: this test alone starts runs, and tells how they end."""

    def __init__(self, ledger: MemoryLedger, clock: FrozenClock) -> None:
        self._ledger, self._clock = ledger, clock
        self._wanted: list[Step] = []

    def is_audited(self, _: ScheduleState) -> bool:
        return True

    def patience(self, _: Step) -> timedelta:
        return _TICK

    def want(self, steps: Sequence[Step]) -> None:
        self._wanted = [step for step in steps if step.looks]

    async def settled(self) -> None:
        """Runs that have not ended by the ledger's clock are open."""
        wanted, self._wanted = self._wanted, []
        asked = [fire.workflow_id for step in wanted for fire in step.looks]
        await self._ledger.seen_open(asked, self._clock.now())
        await self._ledger.make_due([step.state.key for step in wanted])

    def stop_due(self) -> None:
        return


@dataclass(frozen=True)
class _Ended:
    """A run that has ended on the server, and will have by the ledger's clock."""

    run: RunResult
    started: datetime
    closes: datetime


class Play:
    """One call of ``run_schedule``.

    Args:
        bench: where runs run.
        file: what is declared; its schedules have the windows that are wanted, and no others.
        begin: when it is declared.
        end: by then every window is decided.
    """

    def __init__(self, bench: Bench, file: ScheduleFile, begin: datetime, end: datetime) -> None:
        self._bench, self._file, self._end = bench, file, end
        self._clock = FrozenClock(begin)
        self._ledger = MemoryLedger(clock=self._clock, remembers=True)
        self._open: list[_Ended] = []
        self._turns = 0
        self._ran: dict[str, RunResult] = {}

    async def to_the_end(self) -> list[FireResult]:
        """Play until nothing is due or open any more."""
        queues = sorted({schedule.task_queue for schedule in self._file.schedules})
        pollers = [await self._poller(queue) for queue in queues]
        await apply(self._ledger, self._file, by=_WHO)
        while moment := await self._next(pollers):
            self._count(moment)
            self._clock.move_to(max(moment, self._clock.now()))
            self._ledger.travel(self._clock.now())
            await self._close()
            for poller, _ in pollers:
                with self._bench.starting():
                    tick = await poller.tick(self._clock.now())
                await asyncio.gather(*(self._run(claim) for claim in tick.claims))
        await self._decide_the_rest()
        return await self._results()

    def _count(self, moment: datetime) -> None:
        """Refuse to turn for ever on one moment: then there is nothing that could end it."""
        self._turns = self._turns + 1 if moment <= self._clock.now() else 0
        if self._turns > _MOST_TURNS:
            raise RuntimeError(
                f"nothing more happens at {moment.isoformat()}, and something is due"
            )

    async def _poller(self, queue: str) -> tuple[Poller, Serving]:
        settings, clock = Settings(), LedgerClock()
        code = self._bench.code
        serving = Serving(
            f"{_WHO}:{queue}", self._file.project, queue, code.types, rules=code.rules
        )
        await self._ledger.announce(serving, engine=_WHO, tzdata="", retention=_RETENTION)
        clock.observe(self._clock.now())
        starter = Starter(self._bench.client, clock, settings)
        starter.ledger = await self._ledger.identity()
        dispatcher = Dispatcher(self._ledger, starter, clock, settings, tell=lambda _: None)
        sight = cast("Sight", _Knowing(self._ledger, self._clock))
        poller = Poller(
            self._ledger, dispatcher, clock, serving, settings, sight=sight, tell=lambda _: None
        )
        return poller, serving

    async def _next(self, pollers: list[tuple[Poller, Serving]]) -> datetime | None:
        """The next moment at which something happens by the ledger's clock."""
        moments = [each.closes for each in self._open]
        for _, serving in pollers:
            probe = await self._ledger.probe(serving)
            moments += [moment for moment in (probe.due_at, probe.stale_at) if moment]
        return min(moments, default=None)

    async def _run(self, claim: Claim) -> None:
        fire = await self._ledger.fire(claim.workflow_id)
        if fire is None or fire.status != "started":
            return
        run, took = await self._bench.end(claim.workflow_id, claim.workflow_type)
        self._ran[claim.workflow_id] = run
        started = self._clock.now()
        self._open.append(_Ended(run, started, started + took))

    async def _close(self) -> None:
        """Tell the ledger of the runs that have ended by now."""
        now = self._clock.now()
        ended = [each for each in self._open if each.closes <= now]
        self._open = [each for each in self._open if each.closes > now]
        if ended:
            await self._ledger.witness([_evidence(each) for each in ended])
            await self._ledger.wake()

    async def _decide_the_rest(self) -> None:
        """Decide what no run stands for, such as windows on days off."""
        self._clock.move_to(max(self._clock.now(), self._end))
        self._ledger.travel(self._clock.now())
        for schedule in self._file.schedules:
            async with locked(self._ledger, schedule.key, by=_WHO) as one:
                await one.decide()

    async def _results(self) -> list[FireResult]:
        rows = await self._ledger.fires(limit=_MOST)
        schedules = {schedule.key: schedule for schedule in self._file.schedules}
        found = [
            self._result(row, schedules[row.key], moment)
            for row in rows
            for moment in windows_of(row, schedules[row.key])
        ]
        return sorted(found, key=lambda each: (each.fire_time, each.key))

    def _result(self, row: Fire, schedule: Schedule, moment: datetime) -> FireResult:
        bucket = schedule.spec.bucket(moment)
        return FireResult(
            key=row.key,
            bucket=bucket,
            fire_time=moment,
            status=row.status,
            reason=row.reason,
            timing=row.timing,
            workflow_id=f"sched:{row.key}:{bucket}",
            run=self._ran.get(row.workflow_id),
        )


def windows_of(row: Fire, schedule: Schedule) -> Iterator[datetime]:
    """The fire times that a row stands for."""
    if row.windows == 1:
        yield row.fire_time
        return
    yield from schedule.spec.fires(row.fire_time - TICK, row.last_fire_time)


def _evidence(ended: _Ended) -> Evidence:
    run = ended.run
    closed: Any = run.status
    return Evidence(
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        started_at=ended.started,
        closed=closed,
        closed_at=ended.closes,
        error=None if run.error is None else str(run.error),
    )
