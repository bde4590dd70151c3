"""The tracker: closes of runs, and their follow-up runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.enums.v1 import HistoryEventFilterType, TaskQueueType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    GetWorkflowExecutionHistoryRequest,
)
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import Code
from engine.flow.definition import RunOptions
from engine.flow.saga import UNDO_TYPE
from engine.ledger import Ledger
from engine.ledger.fires import DIED, Ended, Evidence, FollowUp
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.dispatch.backpressure import PAGE, Breaker, Budget
from engine.runtime.events import (
    Alert,
    Closed,
    Decided,
    Degraded,
    Event,
    OnEvent,
    Recovered,
    Settled,
    logger,
)
from engine.runtime.planning import nobody_polls
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import classify_rpc_error
from engine.runtime.tracking.audit import reconcile_runs
from engine.runtime.tracking.runs import VISIBILITY_LAG, ObservedRun, RunInspector
from engine.schedules.ids import resolve_type

# --- follow-up runs ---
# What follows a fire that ended badly: a durable outbox, by looking at each such end once.
#
# The fires that follow and the note that somebody has looked are one transaction. They are claims
# like any other then: whichever replica is there sends them.

_FOLLOW_UPS_AT_ONCE = 200
_CUT_OFF = frozenset({"terminated", "timed_out"})
"""How a run ends that cannot undo anything itself."""


async def follow(ledger: Ledger, *, on_event: OnEvent) -> int:
    """Write what follows some of the fires that ended badly; returns how many were looked at."""
    if not await ledger.anything_ended():
        return 0
    async with ledger.transaction() as transaction:
        ended = await transaction.ended(_FOLLOW_UPS_AT_ONCE)
        announced = await transaction.announced({each.task_queue for each in ended})
        news = [
            each for fire in ended for each in follow_ups(fire, announced.get(fire.task_queue, ()))
        ]
        written = await transaction.follow([each.fire_id for each in ended], news)
    for each in news:
        if each.reason and each.workflow_id in written:
            on_event(Alert(Code.HANDLER_UNKNOWN, f"{each.workflow_id}: {each.reason}"))
    return len(ended)


def follow_ups(fire: Ended, announced: Collection[str]) -> Iterator[FollowUp]:
    """Return what follows the end of a fire.

    Args:
        fire: what ended badly.
        announced: every type that a worker of its task queue ever announced.
    """
    if fire.on_dead is not None and fire.status in DIED:
        found = resolve_type(fire.on_dead, announced)
        reason = f"no worker on task queue {fire.task_queue} knows {fire.on_dead}"
        yield FollowUp(
            fire.fire_id, f"{fire.workflow_id}:dead", found, told(fire),
            reason=None if found else reason,
        )  # fmt: skip

    undone_for_it = RunOptions.from_json(fire.rules).compensate_on_terminate
    if undone_for_it and fire.run_id and fire.status in _CUT_OFF:
        dead = {
            "workflow_id": fire.workflow_id,
            "run_id": fire.run_id,
            "workflow": fire.workflow_type,
        }
        yield FollowUp(fire.fire_id, f"{fire.workflow_id}:undo", UNDO_TYPE, dead)


def told(fire: Ended) -> dict[str, object]:
    """Return the input of a handler: what became of the fire."""
    return {
        "key": fire.key,
        "bucket": fire.bucket,
        "fire_time": fire.fire_time.isoformat().replace("+00:00", "Z"),
        "windows": fire.windows,
        "workflow_id": fire.workflow_id,
        "run_id": fire.run_id,
        "workflow": fire.workflow_type or fire.workflow,
        "status": fire.status,
        "error": fire.error,
        "attempts": fire.attempts,
        "input": fire.arguments[0] if fire.arguments else None,
        "not_undone": [dict(left) for left in fire.not_undone],
    }


# --- long polls for closes ---
# The long polls for the ends of runs that windows wait in line for.
#
# Closes are looked for every few seconds, all at once. That is too slow for a line: with ``overlap:
# queue`` a schedule of one second would start one run at each look, however short its runs are. So
# each replica waits at the server for the closes of those runs in the way that it started itself,
# and lets the next window go at once.

_POLLS = 100
"""Long polls at once. Runs beyond them are described in turn."""
_DESCRIBED_LINES = 5
"""Runs that are described in a turn of a second."""
_KNOWN = 1000
_POLLS_A_SECOND = 10.0
_PATIENCE = 2.0
"""Seconds of a poll, and until a run is waited for again whose close did not clear the way. So long
a worker that leaves waits for the answer."""
_ANSWERED_BEFORE = 1.0
"""Seconds before its deadline at which the server gives up waiting."""
_EVERY, _GATHER = timedelta(seconds=1), timedelta(milliseconds=20)
"""How often lines are looked at while there are any, and for how long news gather."""
_WITHOUT_LINE = frozenset({"allow", "skip"})
_CLOSE = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT


class CloseWaiter:
    """Waits for what stands in the way of lines, for one replica.

    Args:
        orphans: whether the runs of replicas that have gone are this one's to wait for.
        go_on: called when windows may have become due.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        inspector: RunInspector,
        settings: Settings,
        *,
        breaker: Breaker,
        replica: str,
        orphans: Callable[[], bool],
        go_on: Callable[[], None],
    ) -> None:
        self._client, self._ledger, self._inspector = client, ledger, inspector
        self._settings, self._breaker, self._replica = settings, breaker, replica
        self._orphans, self._go_on = orphans, go_on
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._closed: set[str] = set()
        self._rests: dict[str, float] = {}
        self._wanted: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        self._leaving = False

    def on_event(self, event: Event) -> None:
        """Look at once when a window came into a line, or the run before one was started."""
        match event:
            case Decided(decision) if decision.verdict == "queued":
                self._news.set()
            case Settled(claim) if claim.schedule.overlap not in _WITHOUT_LINE:
                self._news.set()

    def stop(self) -> None:
        """Begin no more polls. Those under way end by themselves: the server gives up soon."""
        self._leaving = True
        self._news.set()

    async def run_once(self) -> timedelta:
        """Look once what is in the way, and wait for news; returns the wait until the next look."""
        self._news.clear()
        if not self._breaker.holds:
            await self._book()
            self._wait_for(await self._look())
        every = _EVERY if self._wanted else self._settings.track
        if not self._leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout(every.total_seconds()):
                    await self._news.wait()
        return _GATHER

    async def end(self) -> None:
        """Return when no call is in flight any more."""
        if self._polls:
            await asyncio.wait([*self._polls.values()])

    async def _book(self) -> None:
        """Write down the closes that were seen, and let what waited for them go."""
        closed, self._closed = [*self._closed], set()
        if closed:
            with suppress(RPCError, ValueError):  # what was seen of the others is written
                await self._inspector.look(closed)
            await self._ledger.wake()
            self._go_on()

    async def _look(self) -> list[str]:
        """Return the ids of runs in the way, the oldest line first."""
        runs = await self._ledger.in_the_way(
            self._replica, alive=self._settings.alive, orphans=self._orphans(), limit=_KNOWN
        )
        self._wanted = frozenset(run.workflow_id for run in runs)
        return [run.workflow_id for run in runs]

    def _wait_for(self, names: Sequence[str]) -> None:
        """Wait for these: the first ones have a poll, of the others some are described."""
        now = boottime()
        self._rests = {name: until for name, until in self._rests.items() if until > now}
        names = [name for name in names if name not in self._polls.keys() | self._rests.keys()]
        room = 0 if self._leaving else _POLLS - len(self._polls)
        for name in names[:room]:
            self._polls[name] = asyncio.create_task(self._poll(name))
        others = names[room:]
        self._closed.update(others[:_DESCRIBED_LINES])
        self._rest(others[:_DESCRIBED_LINES], len(others) / _DESCRIBED_LINES)

    def _rest(self, names: Iterable[str], seconds: float) -> None:
        self._rests.update(dict.fromkeys(names, boottime() + seconds))

    async def _poll(self, workflow_id: str) -> None:
        """Wait until the chain of this id has closed, or is not to be waited for any more."""
        try:
            if await self._has_closed(workflow_id):
                self._closed.add(workflow_id)
                self._rest([workflow_id], _PATIENCE)
                self._news.set()
        except Exception as error:  # noqa: BLE001 - one run never hides the others
            logger.debug("%s could not be waited for: %s", workflow_id, error)
            self._rest([workflow_id], self._patience)
        finally:
            del self._polls[workflow_id]

    async def _has_closed(self, workflow_id: str) -> bool:
        while workflow_id in self._wanted and not self._leaving:
            try:
                event = await self._close_event(workflow_id, self._patience)
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return True
                raise
            if event is not None and not _goes_on(event):
                return True
        return False

    @property
    def _patience(self) -> float:
        """Seconds of one poll: longer where there are many, so that their calls stay few."""
        return max(_PATIENCE, len(self._polls) / _POLLS_A_SECOND)

    async def _close_event(self, workflow_id: str, wait: float) -> HistoryEvent | None:
        """Return how the newest run of this id closed; None: it did not within ``wait`` seconds."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=Execution(workflow_id=workflow_id),
            wait_new_event=True,
            history_event_filter_type=_CLOSE,
            skip_archival=True,
        )
        answer = await self._client.workflow_service.get_workflow_execution_history(
            request, timeout=timedelta(seconds=wait + _ANSWERED_BEFORE)
        )
        return answer.history.events[-1] if answer.history.events else None


def _goes_on(event: HistoryEvent) -> bool:
    """Whether the run has closed and its chain has not: continued as new, or retried."""
    kind = event.WhichOneof("attributes")
    return bool(kind and getattr(getattr(event, kind), "new_execution_run_id", ""))


# --- polls of foreign task queues ---
# Learns whether anybody polls the task queues on which external schedules start workflows.
#
# Their workers are none of ours and announce nothing, so Temporal is asked: for the last poll and
# not for who is listed, since a worker that was stopped stays listed for minutes.

_QUEUES_AT_ONCE: Final = 10
"""Task queues that one look asks for; of more each has its turn."""


class Polls:
    """Asks Temporal, writes what it says to the ledger, and tells of queues that nobody polls."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        settings: Settings,
        *,
        budget: Budget,
        on_event: OnEvent,
    ) -> None:
        self._client, self._ledger, self._settings = client, ledger, settings
        self._budget, self._emit = budget, on_event
        self._asked_last = ""
        self._told: set[str] = set()
        self._had_any = True

    async def look(self) -> None:
        """Ask for some task queues.

        Raises:
            RPCError: the server is away.
        """
        queues = await self._ledger.external_queues()
        later = [queue for queue in queues if queue > self._asked_last]
        turn = [*later, *(queue for queue in queues if queue not in later)][:_QUEUES_AT_ONCE]
        seen = {}
        for queue in turn:
            self._asked_last = queue
            try:
                seen[queue] = await self._asked(queue)
            except RPCError as error:
                if classify_rpc_error(error) == "unavailable":
                    raise
                if queue not in self._told:
                    self._told.add(queue)
                    text = f"whether anybody polls the task queue {queue}: {error}"
                    self._emit(Alert(Code.LOOK_FAILED, text))
        if not queues and not self._had_any:
            return
        self._had_any = bool(queues)
        for row in await self._ledger.note_polls(seen, of=queues):
            waits = row.is_left_alone and row.waiting > 0
            if waits and row.task_queue not in self._told:
                self._emit(Alert(Code.TASK_QUEUE_UNPOLLED, nobody_polls(row)))
            (self._told.add if waits else self._told.discard)(row.task_queue)
        self._told.intersection_update(queues)

    async def _asked(self, queue: str) -> tuple[datetime | None, int]:
        """Return when somebody polled a task queue last, and how many tasks wait there."""
        await self._budget.call(tracking=True)
        found = await self._client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self._client.namespace,
                task_queue=TaskQueue(name=queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
                report_stats=True,
            ),
            timeout=self._settings.rpc_timeout,
        )
        polls = [each.last_access_time.ToDatetime(UTC) for each in found.pollers]
        return max(polls, default=None), found.stats.approximate_backlog_count


# --- tracker ---
# Learns what became of started runs: closes, and runs the ledger did not know of.
#
# One replica at a time performs this duty, so that a fleet does not multiply the calls; two at once
# would do no harm, because evidence only ever moves a fire forward. It belongs to a replica that
# gets on. One that cannot reach Temporal stops, and then says that others may take it.

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
        inspector: RunInspector,
        replica: str,
        breaker: Breaker,
        polls: Polls | None = None,
        budget: Budget | None = None,
        busy: Callable[[], bool] = lambda: False,
        doubted_at: Callable[[], datetime | None] = lambda: None,
        on_event: OnEvent,
    ) -> None:
        self._budget = budget or Budget()
        self._client, self._ledger, self._clock = client, ledger, clock
        self._settings, self._emit = settings, on_event
        self._inspector, self._replica = inspector, replica
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

    async def run_once(self) -> timedelta:
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
                if classify_rpc_error(error) != "unavailable":
                    raise
                await self._give_up(f"Temporal does not answer: {error}")
                return self._settings.track
        if self._told:
            self._told = False
            self._emit(Recovered(_DUTY))
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
        self._emit(Degraded(_DUTY, reason))
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
        await follow(self._ledger, on_event=self._emit)
        if sweep:
            await self._ledger.set_watermark(_DUTY, self._replica, now - VISIBILITY_LAG)
            for gap in await self._ledger.check_data_gaps(rest=_RESTED, limit=_GAPS):
                self._emit(Alert(Code.DATA_GAP, gap.told))
            if self._polls is not None:
                await self._polls.look()

    async def _book(self, found: Sequence[ObservedRun]) -> set[str]:
        changed = set(
            await reconcile_runs(self._ledger, found, by=self._replica, on_event=self._emit)
        )
        # Visibility answers the newest first; whoever listens hears them as they came.
        for seen in sorted((seen for seen, _ in found), key=_closed_at):
            if seen.closed and seen.workflow_id in changed:
                self._emit(Closed(seen))
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

    async def _evidence(self, page: Sequence[WorkflowExecution]) -> dict[str, ObservedRun | None]:
        """Return the news of a page by run id; None is a run that is not ours to settle.

        What is not looked at because the duty is another's by then is left out.

        Raises:
            RPCError: the server does not answer. That one run cannot be looked at is logged.
        """
        now = boottime()
        self._aside = {run_id: until for run_id, until in self._aside.items() if until > now}
        runs = [run for run in page if run.run_id not in self._seen.keys() | self._aside.keys()]
        found: dict[str, ObservedRun | None] = {}
        while runs and await self._hold() is not None:
            some, runs = runs[:_AT_ONCE], runs[_AT_ONCE:]
            looks = await asyncio.gather(
                *map(self._inspector.seen_closed, some), return_exceptions=True
            )
            for run, seen in zip(some, looks, strict=True):
                if not isinstance(seen, BaseException):
                    found[run.run_id] = seen
                    continue
                if classify_rpc_error(seen) == "unavailable" and await self._breaker.ask():
                    raise seen
                logger.warning("%s could not be looked at: %s", run.id, seen)
                self._aside[run.run_id] = now + _ASIDE
        return found

    async def _look_at_long_open(self, now: datetime) -> bool:
        """Whether some have ended, or are lost; it may be so where one could not be asked."""
        runs = await self._ledger.open_runs(_DESCRIBED, started_before=now - VISIBILITY_LAG)
        with suppress(RPCError, ValueError):  # what was seen of the others is written
            return await self._inspector.look([run.workflow_id for run in runs], tracking=True)
        return True

    def _remember(self, run_ids: Iterable[str]) -> None:
        self._seen.update(dict.fromkeys(run_ids))
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]


def _closed_at(evidence: Evidence) -> datetime:
    return evidence.closed_at or evidence.started_at
