"""Tracker: closes of runs, follow-up fires, and polls of foreign task queues."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
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

from engine.errors import Code, InputsSealed
from engine.ledger import Evidence, Ledger
from engine.runtime.clock import LedgerClock, boottime, wait_for
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
from engine.runtime.runs.memo import UnreadableHere
from engine.runtime.sealing import Sealing
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import classify_rpc_error
from engine.runtime.tracking.follow_ups import follow, pause_failing
from engine.runtime.tracking.runs import (
    VISIBILITY_LAG,
    ObservedRun,
    RunInspector,
    of_other_runs,
    reconcile_runs,
)
from engine.runtime.workflow_workers import no_worker_polls

# --- long polls for closes ---
# Long polls for the closes of runs that windows wait in line for. The tracker lists closes only
# every few seconds: with ``overlap: queue`` a schedule of one second would start one run per
# listing, however short its runs are. So each replica long-polls the server for the closes of
# blocking runs that it started itself, and starts the next window at once.

_POLLS = 100
"""Maximum number of long polls in flight. Runs beyond them are described in turn."""
_DESCRIBED_LINES = 5
"""Runs that are described in a turn of a second."""
_KNOWN = 1000
_POLLS_A_SECOND = 10.0
_PATIENCE = 2.0
"""Seconds that the server holds a poll. A run whose close did not unblock its line is polled again
after as long, and a stopping worker waits as long for the answer."""
_ANSWERED_BEFORE = 1.0
"""Seconds before the call's deadline at which the server stops waiting."""
_EVERY, _GATHER = timedelta(seconds=1), timedelta(milliseconds=20)
"""Interval between looks while there are lines, and the time in which news are batched."""
_WITHOUT_LINE = frozenset({"allow", "skip"})
_CLOSE = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT


class CloseWaiter:
    """Waiter for the closes of runs that block lines, for one replica.

    Args:
        orphans: returns whether this replica also waits for runs of replicas that are gone.
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
        """Look at once when a window joined a line, or the run that blocks one was started."""
        match event:
            case Decided(decision) if decision.verdict == "queued":
                self._news.set()
            case Settled(claim) if claim.schedule.overlap not in _WITHOUT_LINE:
                self._news.set()

    def stop(self) -> None:
        """Begin no more polls. Those in flight end soon, by their timeout at the server."""
        self._leaving = True
        self._news.set()

    async def run_once(self) -> timedelta:
        """Look once for blocking runs, and wait for news; return the wait until the next look."""
        self._news.clear()
        if not self._breaker.holds:
            await self._record()
            self._wait_for(await self._look())
        every = _EVERY if self._wanted else self._settings.track
        if not self._leaving:
            await wait_for(self._news, every.total_seconds())
        return _GATHER

    async def end(self) -> None:
        """Return when no call is in flight any more."""
        if self._polls:
            await asyncio.wait([*self._polls.values()])

    async def _record(self) -> None:
        """Record the closes that were seen, and wake the windows that waited for them."""
        closed, self._closed = [*self._closed], set()
        if closed:
            with suppress(RPCError, ValueError):  # the results of the others are written
                await self._inspector.inspect(closed)
            await self._ledger.wake()
            self._go_on()

    async def _look(self) -> list[str]:
        """Return the workflow ids of blocking runs, the oldest line first."""
        runs = await self._ledger.in_the_way(
            self._replica, alive=self._settings.alive, orphans=self._orphans(), limit=_KNOWN
        )
        self._wanted = frozenset(run.workflow_id for run in runs)
        return [run.workflow_id for run in runs]

    def _wait_for(self, names: Sequence[str]) -> None:
        """Begin polls for the first of these runs; mark some of the others to be described."""
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
        """Wait until the chain of this id has closed, or no longer blocks a line."""
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
        """Seconds of one poll; many polls take longer, which bounds the rate of calls."""
        return max(_PATIENCE, len(self._polls) / _POLLS_A_SECOND)

    async def _close_event(self, workflow_id: str, wait: float) -> HistoryEvent | None:
        """Return the close event of this id's newest run; None if it stays open for ``wait`` s."""
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
    """Return whether the chain continues after this close: continued as new, or retried."""
    kind = event.WhichOneof("attributes")
    return bool(kind and getattr(getattr(event, kind), "new_execution_run_id", ""))


# --- polls of foreign task queues ---
# External workers announce nothing, so Temporal is asked whether the task queues of external
# schedules are polled. The time of the last poll counts, not the list of pollers: a stopped worker
# stays listed for minutes.

_QUEUES_AT_ONCE: Final = 10
"""Task queues described per look; if there are more, they take turns."""


class Polls:
    """Recorder of the last poll of external task queues, with alerts for unpolled ones.

    Args:
        is_current: whether windows are claimed here; elsewhere other workers poll these queues.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        settings: Settings,
        *,
        budget: Budget,
        is_current: Callable[[], bool] = lambda: True,
        on_event: OnEvent,
    ) -> None:
        self._client, self._ledger, self._settings = client, ledger, settings
        self._budget, self._emit, self._is_current = budget, on_event, is_current
        self._asked_last = ""
        self._reported: set[str] = set()
        self._had_any = True

    async def look(self) -> None:
        """Describe the next task queues and record the results.

        Raises:
            RPCError: the server is unavailable.
        """
        if not self._is_current():
            return
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
                if queue not in self._reported:
                    self._reported.add(queue)
                    text = f"whether a worker polls the task queue {queue}: {error}"
                    self._emit(Alert(Code.LOOK_FAILED, text))
        if not queues and not self._had_any:
            return
        self._had_any = bool(queues)
        for row in await self._ledger.note_polls(seen, of=queues):
            waits = row.is_left_alone and row.waiting > 0
            if waits and row.task_queue not in self._reported:
                self._emit(Alert(Code.TASK_QUEUE_UNPOLLED, no_worker_polls(row)))
            if waits:
                self._reported.add(row.task_queue)
            else:
                self._reported.discard(row.task_queue)
        self._reported.intersection_update(queues)

    async def _asked(self, queue: str) -> tuple[datetime | None, int]:
        """Return the time of the last poll of a task queue, and its backlog."""
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
# Tracking of started runs: their closes, and runs that the ledger lacks. One replica at a time
# performs this duty, so that the calls do not grow with the fleet. Two at once would do no harm,
# because evidence only ever moves a fire forward. A replica that cannot reach Temporal releases
# the duty to others.

_NEAR = timedelta(seconds=5)
"""Overlap of a listing with the time before the one before it began."""
_WATERMARK_EVERY = 10
"""Turns from one listing from the watermark to the next."""
_PART = 50
"""Runs that are booked together."""
_AT_ONCE = 8
"""Runs described concurrently and booked together. The duty is renewed between batches."""
_ENDS = 24
"""Ends of chains that one turn describes: about two seconds of the tracker's calls."""
_MOST_LATER = 5_000
"""Ends of chains that wait to be described. The oldest beyond them are found as long-open runs."""
_LEAST_PAGE = 50
"""Runs of one list call to a server that does not answer for more in time."""
_DESCRIBED = 8
"""Long-open runs that one turn describes: two seconds of the tracker's calls."""
_PUT_OFF = 5
"""Maximum number of consecutive turns that yield to starts."""
_SUSPECT_FOR = timedelta(minutes=5)
"""Minimum look-back after the ledger lost commits: the watermark may have moved on before the loss
was noticed."""
_REMEMBERED = 20_000
_ASIDE = 30.0
"""Backoff in seconds for a run that could not be inspected."""
_RESTED = timedelta(seconds=10)
"""Longer than a tick: by then a run that counts on a denied window's data has started."""
_GAPS = 100
_DUTY = "tracker"
_UNREAD_HINT = (
    "another replica tracks the runs for a while, because it may have the codec; give it to this"
    " worker too (SCHED_SETUP, or the data converter of its client)"
)
_LEFT_SEALED = (
    "handlers of fires that ended badly wait for a replica with the codec, because their inputs are"
    " sealed; give it to a worker (SCHED_SETUP, or the data converter of its client)"
)
_LEASE = timedelta(seconds=10)
"""Maximum downtime of the duty when its holder dies, or three turns; no claim depends on it."""


@dataclass(slots=True)
class _Whole:
    """A listing of all that visibility may still lack, which goes on over several turns.

    ``begun`` and ``suspect_until``, the sign of lost commits that it answers, are by the ledger's
    clock; ``parts`` goes on with it.
    """

    begun: datetime
    suspect_until: datetime | None
    parts: AsyncIterator[int]
    has_ended: bool = False


def _in_turns(runs: Iterable[WorkflowExecution]) -> list[WorkflowExecution]:
    """Return runs, the newest close of each key first: many of one key delay no other."""
    by_key: defaultdict[str, list[WorkflowExecution]] = defaultdict(list)
    newest = sorted(runs, key=lambda run: run.close_time or run.start_time, reverse=True)
    for run in newest:
        by_key[run.id.split(":")[1]].append(run)  # they begin with "sched:" and the key
    turns = zip_longest(*by_key.values())
    return [run for turn in turns for run in turn if run is not None]


class Tracker:
    """Recorder of closed runs behind a watermark; also describes long-open runs in turn.

    Args:
        breaker: knows whether this replica can reach Temporal; if not, it releases the duty.
        polls: checks the task queues of external schedules.
        busy: returns whether windows wait to be started. They come first: a close may be recorded
            a few seconds late without harm.
        suspect_until: returns the time of the last sign that the ledger lost commits. Runs booked
            before are booked again.
        sealing: opens sealed inputs for handlers; without it there is no codec.

    Attributes:
        on_unread: called with bad ends that were recorded, and whose reason is to be read.
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
        suspect_until: Callable[[], datetime | None] = lambda: None,
        sealing: Sealing | None = None,
        on_event: OnEvent,
    ) -> None:
        self._budget = budget or Budget()
        self._sealing = sealing or Sealing(ledger)
        self._client, self._ledger, self._clock = client, ledger, clock
        self._settings, self._emit = settings, on_event
        self._inspector, self._replica = inspector, replica
        self._breaker, self._polls = breaker, polls
        self._lease = max(min(settings.lease, _LEASE), settings.track * 3)
        self.on_unread: Callable[[Sequence[Evidence]], None] = lambda _: None
        self._duty = f"{_DUTY}:{ledger.binding}"  # of the runs of one Temporal
        self._seen: dict[str, None] = {}
        self._aside: dict[str, float] = {}
        self._later: dict[str, WorkflowExecution] = {}
        self._page, self._listed_at = PAGE, boottime()
        self._turns = 0
        self._whole: _Whole | None = None
        self._busy, self._put_off = busy, 0
        self._suspect_until, self._knows_of = suspect_until, suspect_until()
        self._rests_until = 0.0
        self._given_up: Degraded | None = None
        self._held_until = 0.0
        self._passed_on: dict[str, None] = {}
        self._unread = self._told_unread = self._told_sealed = False
        self._left_since: float | None = None

    @property
    def on_duty(self) -> bool:
        """Whether this replica holds the duty; false once another replica may take it."""
        return boottime() < self._held_until

    @property
    def stays(self) -> bool:
        """Whether this replica holds the duty, and is not about to leave it to another."""
        return self.on_duty and not self._unread

    @property
    def lag(self) -> float | None:
        """Seconds of which no close may be recorded yet; None of a replica without the duty."""
        if not self.on_duty:
            return None
        waits = (self._clock.about() - self._oldest_later).total_seconds() if self._later else 0.0
        return max(boottime() - self._listed_at, waits)

    @property
    def _oldest_later(self) -> datetime:
        return min(run.close_time or run.start_time for run in self._later.values())

    async def run_once(self) -> timedelta:
        """Run one turn; return the wait until the next."""
        if self._breaker.is_open:
            await self._give_up("Temporal is away")
        if self._busy() and self._put_off < _PUT_OFF:
            self._put_off += 1
            return self._settings.track
        self._put_off = 0
        await self._ask_again()
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
        elif self._sealing.has_codec:
            # The replica on duty may lack the codec.
            with suppress(InputsSealed):  # the replica on duty reports what is left
                await follow(self._ledger, self._sealing, on_event=self._emit)
        return self._settings.track

    async def release(self) -> None:
        """Release the duty to other replicas."""
        if self._held_until:
            self._held_until = 0.0
            await self._ledger.release_duty(self._duty, self._replica)

    async def _hold(self) -> datetime | None:
        """Take or renew the duty; return its watermark, or None if another replica holds it."""
        asked = boottime()
        watermark = await self._ledger.hold_duty(self._duty, self._replica, self._lease)
        held = watermark is not None
        self._held_until = asked + self._lease.total_seconds() if held else 0.0
        return watermark

    async def _give_up(self, reason: str) -> None:
        """Leave the duty to other replicas for a lease: one of them may reach the server."""
        if not self._held_until:
            return
        # Even if the lease has ended: otherwise this replica might be the first to take it again.
        self._rests_until = boottime() + self._lease.total_seconds()
        away = self._breaker.is_open or await self._breaker.ask() is not None  # or one call is slow
        before, self._given_up = (
            self._given_up,
            Degraded(_DUTY, reason, "temporal" if away else None),
        )
        if before is not None and before.server != self._given_up.server:
            self._emit(Recovered(_DUTY, before.server))
        self._emit(self._given_up)
        await self.release()

    async def _ask_again(self) -> None:
        """Report that Temporal answers again, even if another replica has the duty by now."""
        if self._given_up and not self._breaker.is_open and await self._breaker.ask() is None:
            self._emit(Recovered(_DUTY, self._given_up.server))
            self._given_up = None

    async def _perform(self, watermark: datetime, *, whole: bool) -> None:
        """List closes and describe long-open runs; ``whole``: list from the watermark on."""
        now = self._clock.now()
        if watermark == datetime.fromtimestamp(0, UTC):
            watermark = now - VISIBILITY_LAG
        since = now - _NEAR - timedelta(seconds=boottime() - self._listed_at)
        if self._begin_whole(now, min(watermark, since), anew=whole):
            changed: bool | None = False  # it begins with what is near
        else:
            changed = await self._record_closed(max(watermark, since))
        if changed is None or not await self._go_on_whole():
            return
        ends = await self._describe_ends()
        if ends is None or await self._hands_over():
            return
        if changed or ends or self._whole:
            await self._ledger.wake()  # queued fires may wait for a close
        if await self._look_at_long_open(now):
            await self._ledger.wake()
        if await self._hands_over():
            return
        await self._follow(whole=whole)
        await self._end_whole()

    # List the near past at every turn, and now and then all that visibility may still lack. That
    # may be many pages, so each turn reads one of them: the newest closes wait for no other.

    def _begin_whole(self, now: datetime, since: datetime, *, anew: bool) -> bool:
        """Begin a whole listing if it is time for one; return whether it was."""
        suspect_until = self._suspect_until()
        heeded = self._whole.suspect_until if self._whole else self._knows_of
        is_suspect = suspect_until != heeded
        is_due = self._whole is None and self._turns % _WATERMARK_EVERY == 0
        self._turns += 1
        if not (anew or is_suspect or is_due):
            return False
        if suspect_until != self._knows_of:
            self._seen.clear()
            self._later.clear()
            since = min(since, now - _SUSPECT_FOR)
        self._whole = _Whole(now, suspect_until, self._listed_whole(since))
        return True

    async def _listed_whole(self, since: datetime) -> AsyncIterator[int]:
        """Record the runs that have closed since then, and second runs; yield their numbers."""
        begun = boottime()
        async for page in self._closed_since(since):
            await self._record_listed(page)
            yield len(page)
        self._listed_at = max(self._listed_at, begun)
        began = f'ExecutionStatus = "Running" AND StartTime >= "{since.isoformat()}"'
        async for page in self._pages(began):
            known = await self._ledger.known_runs([run.id for run in page])
            await self._record(of_other_runs(page, known))
            yield len(page)

    async def _go_on_whole(self) -> bool:
        """Read a page of the whole listing, if there is one; return whether the duty is kept."""
        if self._whole is None:
            return True
        read = 0
        try:
            async for count in self._whole.parts:
                if await self._hold() is None:
                    return False  # another replica has the duty
                read += count
                if read >= self._page:
                    return True
        except BaseException:
            self._whole = None
            raise
        self._whole.has_ended = True
        return True

    async def _end_whole(self) -> None:
        """Move the watermark once everything behind it was listed, and look at what takes long."""
        if self._whole is None or not self._whole.has_ended:
            return
        done = self._whole.begun - VISIBILITY_LAG
        done = min(done, self._oldest_later) if self._later else done
        await self._ledger.set_watermark(self._duty, self._replica, done)
        self._knows_of, self._whole = self._whole.suspect_until, None
        for gap in await self._ledger.check_data_gaps(rest=_RESTED, limit=_GAPS):
            self._emit(Alert(Code.DATA_GAP, gap.description))
        if self._polls is not None:
            await self._polls.look()

    async def _follow(self, *, whole: bool) -> None:
        """Write follow-ups; report once if some are left to a replica with the codec."""
        if whole:  # a replica may have died between the last end and its pause
            await pause_failing(self._ledger, on_event=self._emit)
        done: int | None = 0
        text = None if self._sealing.has_codec else _LEFT_SEALED
        try:
            done = await follow(self._ledger, self._sealing, on_event=self._emit)
        except InputsSealed as error:
            text = f"{_LEFT_SEALED}; the codec of this worker does not read them: {error}"
        if done != 0 or text is None:
            self._left_since = None
        elif self._left_since is None:
            self._left_since = boottime()
        elif boottime() - self._left_since > self._lease.total_seconds() and not self._told_sealed:
            self._told_sealed = True
            self._emit(Alert(Code.UNREADABLE_HERE, text))

    async def _record_closed(self, since: datetime) -> bool | None:
        """Record the runs that have closed since then; return whether that changed any fire.

        None if this replica has lost the duty.
        """
        changed, begun = False, boottime()
        async for page in self._closed_since(since):
            changed |= await self._record_listed(page)
            if await self._hold() is None:
                return None  # another replica has the duty
        self._listed_at = begun
        return changed

    async def _record_listed(self, page: Sequence[WorkflowExecution]) -> bool:
        """Record the runs that their listing settles; keep the others to be described."""
        known = self._seen.keys() | self._later.keys()
        settled: dict[str, ObservedRun | None] = {}
        for run in page:
            if run.run_id not in known:
                listed = await self._inspector.listed(run)
                if listed.certain:
                    settled[run.run_id] = listed.found
                else:
                    self._later[run.run_id] = run
        while len(self._later) > _MOST_LATER:
            del self._later[next(iter(self._later))]
        changed = await self._record([*filter(None, settled.values())])
        # Only now: runs that could not be written must be found again.
        self._remember(settled)
        return bool(changed)

    async def _describe_ends(self) -> bool | None:
        """Describe some of the chains whose end is not certain, and record them batch by batch.

        Return whether that changed any fire; None if this replica has lost the duty.
        """
        now, changed = boottime(), False
        self._aside = {run_id: until for run_id, until in self._aside.items() if until > now}
        await self._drop_recorded()
        runs = _in_turns(run for run in self._later.values() if run.run_id not in self._aside)
        for begin in range(0, min(len(runs), _ENDS), _AT_ONCE):
            some = runs[begin : min(begin + _AT_ONCE, _ENDS)]
            found = await self._evidence(some)
            changed |= bool(await self._record([*filter(None, found.values())]))
            self._remember(found)
            for run_id in found:
                self._later.pop(run_id, None)
            if await self._hold() is None:
                return None
        return changed

    async def _drop_recorded(self) -> None:
        """Drop the ends that another replica had recorded before it gave up the duty."""
        if not self._later:
            return
        known = await self._ledger.known_runs([run.id for run in self._later.values()])
        done = [
            run.run_id
            for run in self._later.values()
            if (row := known.get(run.id)) is not None and row.closed and row.run_id == run.run_id
        ]
        self._remember(done)
        for run_id in done:
            del self._later[run_id]

    async def _record(self, found: Sequence[ObservedRun]) -> set[str]:
        if not found:
            return set()
        changed = set(
            await reconcile_runs(
                self._ledger,
                found,
                by=self._replica,
                on_event=self._emit,
                chain_of=self._inspector.chain_of,
            )
        )
        # Visibility returns the newest first; events are emitted in order of the closes.
        ends = sorted(
            (seen for seen, _ in found if seen.closed and seen.workflow_id in changed),
            key=lambda seen: seen.closed_at or seen.started_at,
        )
        for seen in ends:
            if not seen.unread:
                self._emit(Closed(seen))
        if unread := [seen for seen in ends if seen.unread]:
            self.on_unread(unread)
        return changed

    def _closed_since(self, since: datetime) -> AsyncIterator[list[WorkflowExecution]]:
        return self._pages(f'CloseTime >= "{since.isoformat()}"')

    async def _pages(self, which: str) -> AsyncIterator[list[WorkflowExecution]]:
        """Yield the runs that visibility finds, in parts: at least one, perhaps empty."""
        query = f'WorkflowId STARTS_WITH "sched:" AND {which}'
        runs = self._client.list_workflows(
            query, page_size=self._page, rpc_timeout=self._settings.rpc_timeout * 2
        )
        page = []
        try:
            async for run in self._budget.tracked(runs, self._page):
                page.append(run)
                if len(page) == _PART:
                    yield page
                    page = []
        except RPCError:
            self._page = max(self._page // 2, _LEAST_PAGE)
            raise
        self._page = min(self._page * 2, PAGE)
        yield page

    async def _evidence(self, runs: Sequence[WorkflowExecution]) -> dict[str, ObservedRun | None]:
        """Describe runs; return their evidence by run id, None of one that settles no fire.

        Raises:
            RPCError: the server does not answer. The failure of a single run is only logged.
        """
        found: dict[str, ObservedRun | None] = {}
        looks = await asyncio.gather(
            *map(self._inspector.seen_closed, runs), return_exceptions=True
        )
        for run, seen in zip(runs, looks, strict=True):
            if not isinstance(seen, BaseException):
                found[run.run_id] = seen
                continue
            if isinstance(seen, UnreadableHere):
                self.pass_on(run.id, seen)
            if classify_rpc_error(seen) == "unavailable" and await self._breaker.ask():
                raise seen
            logger.warning("%s could not be looked at: %s", run.id, seen)
            self._aside[run.run_id] = boottime() + _ASIDE
        return found

    def pass_on(self, workflow_id: str, why: UnreadableHere) -> bool:
        """Return whether a run is left to a replica with the codec: each is, once."""
        if why.run_id in self._passed_on:
            return False
        self._passed_on[why.run_id] = None
        if len(self._passed_on) > _REMEMBERED:
            del self._passed_on[next(iter(self._passed_on))]
        self._unread = True
        if not self._told_unread:
            self._told_unread = True
            self._emit(Alert(Code.UNREADABLE_HERE, f"{workflow_id}: {why}; {_UNREAD_HINT}"))
        return True

    async def _hands_over(self) -> bool:
        """Leave the duty to another replica for a lease if that may read what this one cannot."""
        if not self._unread:
            return False
        self._unread = False
        self._rests_until = boottime() + self._lease.total_seconds()
        await self.release()
        return True

    async def _look_at_long_open(self, now: datetime) -> bool:
        """Return whether some have ended or are lost; also True if one could not be described."""
        runs = await self._ledger.open_runs(_DESCRIBED, started_before=now - VISIBILITY_LAG)
        with suppress(RPCError, ValueError):  # the results of the others are written
            names = [run.workflow_id for run in runs]
            return await self._inspector.inspect(names, tracking=True)
        return True

    def _remember(self, run_ids: Iterable[str]) -> None:
        self._seen.update(dict.fromkeys(run_ids))
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
