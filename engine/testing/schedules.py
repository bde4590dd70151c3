"""Runs of the windows of a schedule file."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from engine.errors import ScheduleNotFound, WorkflowUnknown, did_you_mean, question
from engine.ledger import OPEN, Claim, Evidence, Fire, Serving
from engine.runtime import Poller, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.apply.source import read_file
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Starter
from engine.runtime.schedule_lock import locked
from engine.runtime.tick.lookups import RunLookups
from engine.schedules import (
    TICK,
    Schedule,
    ScheduleFile,
    load_schedules,
    nearest_name,
    resolve_type,
)
from engine.schedules.planner import Plan, ScheduleState
from engine.testing.fakes import Fakes, by_name
from engine.testing.runs import assert_replayable
from engine.testing.server import DevServer, FrozenClock, instant
from engine.testing.virtual_ledger import VirtualLedger, virtual_ledger
from engine.testing.worker import Bench, FireResult, RunResult, ServedCode, bench

# --- playing of windows ---
# Plays windows one after another with the real planner and ledger, in the test's time.

_RETENTION: Final = timedelta(days=1)
_MOST: Final = 100_000
_MOST_TURNS: Final = 1000
_TICK: Final = timedelta(seconds=1)
_WHO: Final = "test"


class _TestLookups:
    """A poller's view of Temporal in a test, where only the test starts and ends runs."""

    def __init__(self, ledger: VirtualLedger, clock: FrozenClock) -> None:
        self._ledger, self._clock = ledger, clock
        self._wanted: list[Plan] = []

    def is_audited(self, _: ScheduleState) -> bool:
        return True

    def patience(self, _: Plan) -> timedelta:
        return _TICK

    def want(self, steps: Sequence[Plan]) -> None:
        self._wanted = [step for step in steps if step.looks]

    async def settled(self) -> None:
        """Report runs that have not ended by the ledger's clock as open."""
        wanted, self._wanted = self._wanted, []
        asked = [fire.workflow_id for step in wanted for fire in step.looks]
        await self._ledger.seen_open(asked, self._clock.now())
        await self._ledger.make_due([step.state.key for step in wanted])

    def stop_due(self) -> None:
        return


class Play:
    """One call of ``run_schedule``.

    Args:
        bench: runs the runs.
        file: the declaration; its schedules have only the wanted windows.
        begin: the time of the declaration.
        end: the time by which every window is decided.
    """

    def __init__(self, bench: Bench, file: ScheduleFile, begin: datetime, end: datetime) -> None:
        self._bench, self._file, self._end = bench, file, end
        self._clock = FrozenClock(begin)
        self._open: list[tuple[datetime, Evidence]] = []
        self._turns = 0
        self._ran: dict[str, RunResult] = {}

    async def finish(self) -> list[FireResult]:
        """Play until nothing is due or open, and return the results."""
        database = await asyncio.to_thread(self._bench.server.database_url)
        async with virtual_ledger(database, self._clock) as self._ledger:
            return await self._finish()

    async def _finish(self) -> list[FireResult]:
        queues = sorted({schedule.task_queue for schedule in self._file.schedules})
        pollers = [await self._poller(queue) for queue in queues]
        await apply(self._ledger, self._file, by=_WHO)
        while moment := await self._next(pollers):
            self._count(moment)
            self._clock.move_to(max(moment, self._clock.now()))
            await self._close()
            for poller, _ in pollers:
                with self._bench.starting():
                    tick = await poller.tick()
                await asyncio.gather(*(self._run(claim) for claim in tick.claims))
        await self._decide_the_rest()
        return await self._results()

    def _count(self, moment: datetime) -> None:
        """Refuse to loop forever at one moment, where nothing else would end the loop."""
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
        dispatcher = Dispatcher(self._ledger, starter, clock, settings, on_event=lambda _: None)
        lookups = cast("RunLookups", _TestLookups(self._ledger, self._clock))
        poller = Poller(
            self._ledger,
            dispatcher,
            clock,
            serving,
            settings,
            lookups=lookups,
            on_event=lambda _: None,
        )
        return poller, serving

    async def _next(self, pollers: list[tuple[Poller, Serving]]) -> datetime | None:
        """Return the time of the next event by the ledger's clock."""
        moments = [closes for closes, _ in self._open]
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
        self._open.append((started + took, _evidence(run, started, started + took)))

    async def _close(self) -> None:
        """Report the runs that have ended by now to the ledger."""
        now = self._clock.now()
        ended = [evidence for closes, evidence in self._open if closes <= now]
        self._open = [each for each in self._open if each[0] > now]
        if ended:
            await self._ledger.record_evidence(ended)
            await self._ledger.wake()

    async def _decide_the_rest(self) -> None:
        """Decide the windows without a run, such as those on days off."""
        self._clock.move_to(max(self._clock.now(), self._end))
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
    """Yield the fire times that a row stands for."""
    if row.windows == 1:
        yield row.fire_time
        return
    yield from schedule.spec.fires(row.fire_time - TICK, row.last_fire_time)


def _evidence(run: RunResult, started: datetime, closes: datetime) -> Evidence:
    """Return the evidence of a run that has ended, with its times by the ledger's clock."""
    closed: Any = run.status
    return Evidence(
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        started_at=started,
        closed=closed,
        closed_at=closes,
        error=None if run.error is None else str(run.error),
    )


# --- windows of a file ---

Declared: TypeAlias = "str | Path | Schedule | Sequence[Schedule] | ScheduleFile"
"""A path, the text of a file, or schedules."""

Between: TypeAlias = "tuple[datetime | str, datetime | str]"
"""A span that includes the first moment and excludes the second."""

_NEEDS_TWO_AT_ONCE: Final = ("cancel_previous", "terminate_previous")


async def run_schedule(
    schedules: Declared,
    *,
    at: datetime | str | None = None,
    between: Between | None = None,
    key: str | None = None,
    fakes: Fakes = (),
    signals: Mapping[str, Sequence[Any]] | None = None,
    workflows: Iterable[type] | None = None,
    steps: Iterable[Callable[..., Any]] | None = None,
    server: DevServer | None = None,
    time_skipping: bool = True,
    in_its_time: bool = False,
    replay: bool = True,
    patience: float = 30,
    resources: Mapping[Any, Any] | None = None,
) -> list[FireResult]:
    """Run the windows of schedules to their ends, in order, and return the outcome of each.

    Production code reads the file, plans its windows and starts the runs, with a ledger of its own
    and the ids ``sched:<key>:<bucket>``; only the time is the test's. A wait of hours takes about a
    second. Windows are played one after another, in their order; overlap rules see how long the
    runs took by their own clocks.

    Args:
        schedules: a path, the text of a file, a schedule or several.
        at: the fire time of one window (of each schedule that has one then).
        between: all windows from the first moment (inclusive) to the second (exclusive). The
            schedules count as known before: the rules of first sight do not apply.
        key: the key of the only schedule to run.
        fakes: replaced steps; see ``fake``.
        signals: values sent to each run after its start, by name.
        workflows: the classes that the worker serves; by default every one imported so far.
        steps: the steps that it serves; by default every one imported so far.
        server: a running server; by default one is started for this call.
        time_skipping: whether waits pass at once, instead of in real time.
        in_its_time: whether ``ctx.now()`` starts at the window's time if that is in the future, at
            a cost of about a second per run; otherwise it is the machine's time. Not with
            ``signals``.
        replay: whether the histories of the runs are replayed afterwards.
        patience: real seconds that one run may take.
        resources: objects to give to steps instead of opening a resource: by ``@resource``
            function, or by class. Others are opened for this call.

    Raises:
        ScheduleFileError: the file is invalid.
        ScheduleNotFound: the file has no schedule of this key.
        WorkflowUnknown: the workflow of a schedule was neither imported nor given.
        ValueError: there is no window at ``at``, or an overlap rule ends open runs, which cannot
            be played one after another.
        AssertionError: a run did not end in time, or does not replay.
    """
    begin, end = _span(at, between)
    file = declared(schedules)
    code = ServedCode.of(workflows, steps, by_name(fakes), queues=file.queues)
    chosen = _chosen(file, key, code)
    playable = [each for each in (cut(one, begin, end) for one in chosen) if each]
    if at is not None and not playable:
        raise ValueError(_no_window(chosen, begin))
    if not playable:
        return []
    async with bench(
        server,
        code,
        {schedule.task_queue for schedule in playable},
        time_skipping=time_skipping,
        in_its_time=in_its_time,
        signals=dict(signals or {}),
        patience=patience,
        resources=resources,
    ) as opened:
        play = Play(opened, replace(file, schedules=tuple(playable)), begin - TICK, end)
        found = await play.finish()
    ended = [each.run.history for each in found if each.run]
    if replay and ended:
        await assert_replayable(ended, workflows=code.workflows)
    return found


def declared(schedules: Declared) -> ScheduleFile:
    """Return the given schedules as a file.

    Raises:
        ScheduleFileError: the file is invalid; the error has every problem.
    """
    if isinstance(schedules, ScheduleFile):
        return schedules
    if isinstance(schedules, Path):
        return read_file(schedules)
    if isinstance(schedules, str):
        return load_schedules(schedules) if "\n" in schedules else read_file(Path(schedules))
    several = (schedules,) if isinstance(schedules, Schedule) else tuple(schedules)
    return ScheduleFile("default", None, several, "test", digest="test")


def cut(schedule: Schedule, begin: datetime, end: datetime) -> Schedule | None:
    """Return the schedule with its windows in ``[begin, end)`` only; None if it has none."""
    last = schedule.spec.previous(end - TICK)
    if last is None or last < begin:
        return None
    if schedule.kind == "at":
        return schedule
    return schedule.model_copy(update={"first_fire": "next", "end": last.isoformat()})


def _span(at: datetime | str | None, between: Between | None) -> tuple[datetime, datetime]:
    if (at is None) == (between is None):
        raise ValueError("say at= or between=, one of them")
    if at is not None:
        return instant(at), instant(at) + TICK
    assert between is not None  # noqa: S101 - as was checked
    begin, end = instant(between[0]), instant(between[1])
    if begin >= end:
        raise ValueError(f"between= ends at {end.isoformat()}, before it begins")
    return begin, end


def _chosen(file: ScheduleFile, key: str | None, code: ServedCode) -> list[Schedule]:
    found = [each for each in file.schedules if key in {None, each.key}]
    if not found:
        hint = did_you_mean(key or "", [each.key for each in file.schedules])
        raise ScheduleNotFound(key or "", hint=hint or None)
    _check(found, code)
    return found


def _check(schedules: Sequence[Schedule], code: ServedCode) -> None:
    """Refuse schedules that the test's workers cannot run, or that cannot be played faithfully."""
    for each in schedules:
        known = each.workflow in code.types
        if not known and (each.external or resolve_type(each.workflow, code.types) is None):
            near = nearest_name(each.workflow, code.types)
            hint = question(near, otherwise="import it, or name it in workflows=")
            raise WorkflowUnknown(f"{each.key}: there is no workflow {each.workflow}", hint=hint)
        if each.overlap in _NEEDS_TWO_AT_ONCE:
            raise ValueError(f"{each.key}: overlap {each.overlap} cannot be played in a test")


def _no_window(schedules: Sequence[Schedule], at: datetime) -> str:
    near = []
    for each in schedules[:3]:
        moments = (each.spec.previous(at), each.spec.next(at))
        times = " and ".join(moment.isoformat() for moment in moments if moment)
        near.append(f"{each.key} has windows at {times}" if times else f"{each.key} has none")
    return f"no window opens at {at.isoformat()}: {'; '.join(near)}"


# --- accounting of windows ---

_NAMED: Final = 20
_BESIDE: Final = {"manual", "rerun", "handler"}
"""Timings of runs that settle no window."""


def assert_windows_settled(
    fires: Iterable[FireResult | Fire], schedules: Declared, *, between: Between
) -> None:
    """Assert that every window of a span has exactly one class.

    A class is final: ``completed``, ``failed``, ``cancelled``, ``terminated``, ``timed_out``,
    ``skipped``, ``expired``, ``rejected`` or ``unvouched``.

    Args:
        fires: the result of ``run_schedule``, or rows of a ledger (``ScheduleService.fires``).
        schedules: as in ``run_schedule``; fires of other schedules are ignored.
        between: the first moment (inclusive) and the second (exclusive).

    Raises:
        AssertionError: windows have no class, no final one or several; the message lists them.
        ValueError: a moment has no timezone.
    """
    begin, end = instant(between[0]), instant(between[1])
    found: defaultdict[tuple[str, datetime], list[str]] = defaultdict(list)
    file = declared(schedules)
    by_key = {schedule.key: schedule for schedule in file.schedules}
    for each in fires:
        schedule = by_key.get(each.key)
        if schedule is None or each.timing in _BESIDE:
            continue
        moments = [each.fire_time] if isinstance(each, FireResult) else windows_of(each, schedule)
        for moment in moments:
            found[each.key, moment].append(each.status)
    wrong = []
    for schedule in file.schedules:
        for moment in schedule.spec.fires(begin - TICK, end - TICK):
            statuses = found.get((schedule.key, moment), [])
            if len(statuses) != 1 or statuses[0] in OPEN or statuses[0] == "starting":
                what = " and ".join(statuses) if statuses else "nothing decided"
                wrong.append(f"  {schedule.key} {moment.isoformat()}: {what}")
    if wrong:
        more = [f"  and {len(wrong) - _NAMED} more"] if len(wrong) > _NAMED else []
        listed = "\n".join([*wrong[:_NAMED], *more])
        raise AssertionError(f"{len(wrong)} windows have not exactly one class:\n{listed}")
