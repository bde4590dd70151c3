"""One replica: the wiring of everything that runs inside a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from temporalio.client import Client
from temporalio.worker import Worker

from engine.errors import (
    BoundElsewhere,
    Code,
    EngineError,
    LedgerUnavailable,
    RevisionTooLow,
    ScheduleFileError,
    TemporalUnavailable,
    extra_missing,
)
from engine.events.addresses import Allowed
from engine.events.delivery import Deliverer, DeliveryContext
from engine.events.listeners import Listener
from engine.ledger import Ledger, Serving, Wanted
from engine.runtime.apply.apply import applied_digest, apply
from engine.runtime.apply.attempts import REFUSALS, apply_source
from engine.runtime.apply.edits import ApplyReport, recompute_outdated
from engine.runtime.apply.source import Source, read_unless
from engine.runtime.clock import LedgerClock, age_of, boottime, jittered, wait_for
from engine.runtime.dispatch.backpressure import Breaker, Budget
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Starter, patient_client
from engine.runtime.events import (
    Alert,
    Applied,
    Closed,
    Decided,
    Degraded,
    Event,
    Notice,
    OnEvent,
    Recovered,
    Settled,
    logger,
)
from engine.runtime.loop import Loop, beside
from engine.runtime.measurements import TotalsReader, gauge
from engine.runtime.presence import Presence, Watchdog
from engine.runtime.retention.archive import Archive
from engine.runtime.retention.janitor import Janitor
from engine.runtime.sealing import Sealing
from engine.runtime.settings import Settings
from engine.runtime.steps.interceptors import RetryReports
from engine.runtime.steps.queues import QueueManager, SeenQueues, SlotPool
from engine.runtime.temporal_client import degraded_by
from engine.runtime.tick.lookups import RunLookups
from engine.runtime.tick.poller import Poller
from engine.runtime.tracking.end_reader import EndReader
from engine.runtime.tracking.failing_steps import ChildSteps, FailingSteps
from engine.runtime.tracking.replay import StuckRuns
from engine.runtime.tracking.runs import RunAuditor, RunCanceller, RunInspector
from engine.runtime.tracking.tracker import CloseWaiter, Polls, Tracker
from engine.runtime.watch.watch import Watch
from engine.schedules import TZDATA_VERSION, ScheduleFile
from engine.telemetry import instruments
from engine.telemetry.health import Health, ReplicaHealth

if TYPE_CHECKING:  # it loads OpenTelemetry
    from engine.runtime.tracing import ReplicaTraces

# --- notifications ---
# Hints that end a loop's wait early when the ledger has news. A lost hint (broken connection, a
# pooler that forwards no notifications) costs the rest of one tick: then the loop looks by itself.

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=1)


async def notify(ledger: Ledger, wake: Callable[[], None]) -> None:
    """Call ``wake`` whenever the ledger has news, until cancelled."""
    pause = _FIRST_PAUSE
    while True:
        begun = asyncio.get_running_loop().time()
        try:
            await ledger.listen(wake)
        except Exception as error:  # noqa: BLE001 - the ticks continue without hints
            logger.debug("no hints: %s", error)
        lasted = timedelta(seconds=asyncio.get_running_loop().time() - begun)
        pause = _FIRST_PAUSE if lasted > _LONGEST_PAUSE else min(pause * 2, _LONGEST_PAUSE)
        await asyncio.sleep(jittered(pause.total_seconds()))


# --- index builds ---
# The background task that builds the indexes that migrations have left for later. It is no loop: a
# build waits for other sessions, perhaps for hours, and a worker that drains cancels it at once.

_PAUSE = 60.0
"""Seconds between two attempts, while another process builds them or the ledger is away."""


async def build_indexes(ledger: Ledger) -> None:
    """Build missing indexes, with further attempts until none is missing."""
    while True:
        try:
            if not await ledger.build_indexes():
                return
        except LedgerUnavailable as error:
            logger.debug("indexes are built later: %s", error)
        except Exception as error:  # noqa: BLE001 - nothing depends on the indexes
            logger.warning("indexes are missing, `sched migrate` builds them: %s", error)
            return
        await asyncio.sleep(jittered(_PAUSE))


# --- replica ---

T = TypeVar("T")

_SOON = 0.2
"""Seconds in which news are gathered before the delivery of events looks for them."""
_PATIENCE = 2.0
"""Seconds between two attempts to begin while a server is away."""


class Replica:
    """One replica: it claims and starts due windows of one project on one task queue.

    Args:
        client: the user's client; starts use a separate connection with the same configuration.
        open_ledger: connects to the ledger; called again until it succeeds.
        source: the schedule files, or None to use the ledger's definitions as they are.
        serving: what this replica may claim.
        seen: the queues that the steps of runs name.
        worker: the worker whose steps may wait in queues; without one no queue is served.
        health: judges this replica while it serves.
        on_event: receives every event.
        listeners: functions of its worker that get events.
        traces: makes the spans of this replica; None where nothing is traced.
        reports: what its worker reports of steps; None of a worker without the plugin's steps.
    """

    def __init__(
        self,
        client: Client,
        open_ledger: Callable[[], Awaitable[Ledger]],
        *,
        source: Source | ScheduleFile | None,
        serving: Serving,
        settings: Settings,
        on_event: OnEvent,
        seen: SeenQueues | None = None,
        worker: Worker | None = None,
        health: Health | None = None,
        traces: ReplicaTraces | None = None,
        reports: RetryReports | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._listeners = listeners
        self._deliverer: Deliverer | None = None
        self._delivering: Loop | None = None
        self._reports = reports or RetryReports()
        self._health, self._traces = health or Health(), traces
        self._seen, self._worker = seen or SeenQueues(), worker
        self._queue_manager: QueueManager | None = None
        self._waiter: CloseWaiter | None = None
        self._failing: FailingSteps | None = None
        self._client, self._open_ledger, self._source = client, open_ledger, source
        self._serving, self._settings, self._emit = serving, settings, on_event
        self._stopping = asyncio.Event()
        self._refused: EngineError | None = None
        self._not_applied: str | None = None
        self._loops: list[Loop] = []

    def stop(self) -> None:
        """Stop claiming; ``run`` ends when everything in flight is settled."""
        self._stopping.set()
        for loop in self._loops:
            loop.stop()
        if self._queue_manager:
            self._queue_manager.wake()
        if self._waiter:
            self._waiter.stop()

    async def run(self) -> None:
        """Run until stopped.

        Raises:
            BoundElsewhere: the ledger belongs to another namespace than the one that answers.
            RetentionTooShort: the namespace forgets runs too fast for the lease.
            ScheduleFileError: a required file is lost or broken, and the ledger has no schedule.
            LedgerTooNew: the ledger belongs to a newer version.
            ExtraMissing: webhooks or alerts are to be sent, which needs an extra.
        """
        ledger = await self._patiently("ledger", self._open_ledger)
        if ledger is None:
            return
        try:
            await self._serve(ledger)
        finally:
            await ledger.close()

    async def _serve(self, ledger: Ledger) -> None:
        client = await self._patiently("temporal", self._own_client)
        if client is None:
            return
        budget = self._budget = Budget()
        presence = Presence(
            client, ledger, self._serving, self._settings, budget=budget, on_event=self._emit
        )
        clock, settings, on_event = LedgerClock(), self._settings, self._on_event
        self._sealing = Sealing(ledger, client.data_converter, by=self._serving.replica)
        starter = Starter(client, clock, settings, on_event)
        dispatcher = Dispatcher(ledger, starter, clock, settings, on_event=on_event)
        starter.confirm, presence.on_unanswered = presence.confirm, starter.doubt
        presence.on_refused = partial(self._refuse, dispatcher.breaker)

        async def begin() -> str:
            await asyncio.gather(presence.begin(), starter.attributes.read())
            await self._recompute_outdated(ledger)
            await self._apply(ledger)
            await self._require_extra(ledger)
            asked = boottime()
            clock.observe((await ledger.probe(self._serving)).now, asked=asked)
            return await ledger.identity()

        identity = await self._patiently("replica", begin)
        if identity is None:
            return
        starter.ledger = identity
        if self._traces:
            self._traces.begin(f"{identity}/{client.namespace}")
        self._loops = self._wire(client, ledger, identity, presence, clock, dispatcher)
        polling = self._loops[0]
        self._poller.rouse = self._lookups.rouse = polling.wake
        if self._stopping.is_set():
            self.stop()
        with self._observed(presence, dispatcher):
            async with beside(notify(ledger, polling.wake)), beside(build_indexes(ledger)):
                await asyncio.gather(*(loop.run() for loop in self._loops))
        await self._leave(presence)

    async def _leave(self, presence: Presence) -> None:
        others = [keeper.end()] if (keeper := self._queue_manager) else []
        await asyncio.gather(self._poller.drain(), *others)
        try:
            await presence.end()
        except LedgerUnavailable as error:
            self._on_event(degraded_by("presence", error))
        if self._refused is not None:
            raise self._refused

    def _refuse(self, breaker: Breaker, error: BoundElsewhere) -> None:
        """Send nothing more, and stop: the server that answers is not the ledger's."""
        breaker.shut()
        if self._refused is None:
            self._refused = error
            self._emit(Alert(error.code, str(error)))
        self.stop()

    async def _own_client(self) -> Client:
        return await patient_client(self._client, *([self._traces] if self._traces else ()))

    def _wire(
        self,
        client: Client,
        ledger: Ledger,
        identity: str,
        presence: Presence,
        clock: LedgerClock,
        dispatcher: Dispatcher,
    ) -> list[Loop]:
        """Return all loops, the poller first, wired to each other."""
        settings, on_event = self._settings, self._on_event
        inspector, lookups = self._run_lookups(client, ledger, identity, clock, presence)
        self._lookups = lookups
        poller = self._poller = Poller(
            ledger, dispatcher, clock, self._serving, settings, lookups=lookups, on_event=on_event
        )
        tracker = self._tracking = self._tracker(client, ledger, clock, inspector, dispatcher)
        watch = self._watch(ledger, poller, dispatcher)
        if self._traces:
            poller.on_tick = self._traces.on_tick
        polling = Loop("poller", poller.run_once, on_event=on_event, asks=True)
        waiter = self._waiter = self._close_waiter(
            client, ledger, inspector, dispatcher, tracker, polling
        )
        janitor = self._janitor = self._make_janitor(ledger, identity)
        totals = self._totals = TotalsReader(ledger, self._serving, settings.heartbeat)
        keeper = self._queue_manager = self._make_queue_manager(client, ledger, poller)
        loop = partial(Loop, on_event=on_event)
        # Many closes, a large archive and steps that drain take long; "lines" waits for news.
        unhurried = partial(loop, patience=None)
        return [
            polling,
            self._trials(dispatcher),
            loop("leases", dispatcher.leases.run_once),
            unhurried("tracker", tracker.run_once, end=tracker.release),
            unhurried("lines", waiter.run_once, end=waiter.end),
            self._reading(client, ledger, tracker, dispatcher),
            self._reporting(ledger),
            loop("watchdog", self._watchdog(ledger, presence, poller).run_once),
            loop("presence", presence.run_once, asks=True),
            unhurried("watch", watch.run_once, end=watch.end, asks=True),
            loop("totals", totals.run_once),
            self._delivery(ledger, dispatcher, poller),
            *([unhurried("janitor", janitor.run_once)] if janitor else ()),
            *([unhurried("queues", keeper.run_once)] if keeper else ()),
            *([loop("slots", keeper.watch)] if keeper else ()),
        ]

    def _close_waiter(
        self,
        client: Client,
        ledger: Ledger,
        inspector: RunInspector,
        dispatcher: Dispatcher,
        tracker: Tracker,
        polling: Loop,
    ) -> CloseWaiter:
        return CloseWaiter(
            client,
            ledger,
            inspector,
            self._settings,
            breaker=dispatcher.breaker,
            replica=self._serving.replica,
            orphans=lambda: tracker.on_duty,  # on duty it also waits for runs of dead replicas
            go_on=polling.wake,
        )

    def _trials(self, dispatcher: Dispatcher) -> Loop:
        """Return the loop of the breaker, which a suspicion rouses."""
        breaker = dispatcher.breaker
        loop = Loop("starts", breaker.run_once, on_event=self._on_event)
        breaker.rouse = loop.wake
        return loop

    def _tracker(
        self,
        client: Client,
        ledger: Ledger,
        clock: LedgerClock,
        inspector: RunInspector,
        dispatcher: Dispatcher,
    ) -> Tracker:
        settings, on_event, budget = self._settings, self._on_event, self._budget
        return Tracker(
            client,
            ledger,
            clock,
            settings,
            inspector=inspector,
            replica=self._serving.replica,
            budget=budget,
            on_event=on_event,
            breaker=dispatcher.breaker,
            polls=Polls(
                client,
                ledger,
                settings,
                budget=budget,
                is_current=lambda: self._poller.is_current,
                on_event=on_event,
            ),
            busy=lambda: not dispatcher.room,
            suspect_until=lambda: self._poller.suspect_until,
            sealing=self._sealing,
        )

    def _reporting(self, ledger: Ledger) -> Loop:
        reports = self._reports
        return Loop(
            "retries",
            partial(reports.run_once, ledger),
            end=partial(reports.flush, ledger),
            on_event=self._on_event,
        )

    def _reading(
        self, client: Client, ledger: Ledger, tracker: Tracker, dispatcher: Dispatcher
    ) -> Loop:
        """Return the loop that reads ends of runs, which the tracker rouses."""
        reader = EndReader(
            client,
            ledger,
            self._settings,
            budget=self._budget,
            breaker=dispatcher.breaker,
            is_mine=lambda: tracker.stays,
            pass_on=tracker.pass_on,
            on_event=self._on_event,
        )
        tracker.on_unread = reader.on_unread
        # A long history, and many of them, take long.
        loop = Loop("ends", reader.run_once, on_event=self._on_event, patience=None)
        reader.rouse = loop.wake
        return loop

    @contextmanager
    def _observed(self, presence: Presence, dispatcher: Dispatcher) -> Iterator[None]:
        """Export the gauges of this replica, and judge its health, while the block lasts."""
        poller, polling, measured = self._poller, self._loops[0], instruments.measures()
        janitor, settings = self._janitor, self._settings
        gauges = {
            **self._totals.gauges(),
            instruments.POLLER_AGE: gauge(lambda: age_of(polling.turned_at)),
            instruments.BREAKER_OPEN: gauge(lambda: float(dispatcher.breaker.is_open)),
            instruments.CLOCK_HOLDS: gauge(lambda: float(poller.distrusts_clock)),
            instruments.CLOCK_SKEW: gauge(lambda: poller.skew),
            instruments.REPLICAS: gauge(lambda: presence.living),
            instruments.TRACKER_LAG: gauge(lambda: self._tracking.lag),
            instruments.JANITOR_LAG: gauge(lambda: age_of(janitor.rested_at) if janitor else None),
            instruments.SLOTS_HELD: lambda: self._of_slots(lambda pool: pool.held),
            instruments.SLOTS_RUNNING: lambda: self._of_slots(lambda pool: pool.running),
            instruments.SLOTS_WAITING: lambda: self._of_slots(lambda pool: pool.waiting),
        }
        pulse = ReplicaHealth(
            self._loops,
            ledger=lambda: age_of(poller.probed_at),
            temporal=lambda: age_of(presence.answered_at),
            answers_within=max(settings.heartbeat, settings.tick).total_seconds() * 3,
            stopping=self._stopping.is_set,
            not_applied=self._not_applied,
        )
        measured.begin()
        with measured.observing(gauges), self._health.watching(pulse):
            yield

    def _of_slots(self, number: Callable[[SlotPool], int]) -> list[tuple[float, dict[str, str]]]:
        pools = self._queue_manager.pools if self._queue_manager else []
        return [(number(pool), {"queue": pool.queue}) for pool in pools]

    def _run_lookups(
        self,
        client: Client,
        ledger: Ledger,
        identity: str,
        clock: LedgerClock,
        presence: Presence,
    ) -> tuple[RunInspector, RunLookups]:
        settings, serving, on_event = self._settings, self._serving, self._on_event
        budget = self._budget
        stuck = StuckRuns(client, settings, budget=budget)
        failing = self._failing = FailingSteps(
            ledger,
            settings,
            ChildSteps(client, settings, budget=budget),
            now=clock.now,
            task_of=stuck.task_of,
            on_event=self._emit,
        )
        inspector = RunInspector(
            client,
            ledger,
            clock,
            settings,
            ledger_id=identity,
            confirm=presence.confirm,
            notices=(failing.notice,),
            on_open=failing.compare,
            budget=budget,
            on_event=on_event,
        )
        auditor = RunAuditor(
            client,
            ledger,
            inspector,
            clock,
            settings,
            replica=serving.replica,
            budget=budget,
            on_event=on_event,
        )
        canceller = RunCanceller(client, ledger, inspector, serving, settings, on_event=on_event)
        lookups = RunLookups(
            ledger, inspector=inspector, auditor=auditor, canceller=canceller, on_event=on_event
        )
        return inspector, lookups

    def _on_event(self, event: Event) -> None:
        self._emit(event)
        if self._traces:
            self._traces.on_event(event)
        if self._waiter:
            self._waiter.on_event(event)
        if self._failing:
            self._failing.on_event(event)
        self._hint_at_events(event)

    def _hint_at_events(self, event: Event) -> None:
        """Wake the delivery of what this replica has just written, a moment later for all of it."""
        if self._deliverer and isinstance(event, Settled):
            claim, status = event.claim, event.outcome.status
            if claim.kind != "handler" and status == "started":
                self._deliverer.note_start(claim.schedule)
        news = isinstance(event, Settled | Decided | Closed)
        if news and self._delivering and self._deliverer and self._deliverer.has_subscriptions:
            self._delivering.wake_within(_SOON)

    def _delivery(self, ledger: Ledger, dispatcher: Dispatcher, poller: Poller) -> Loop:
        settings = self._settings

        def report(text: str, good: bool) -> None:  # noqa: FBT001 - a callback
            self._emit(Notice(text, good=good))

        around = DeliveryContext(
            holder=self._serving.replica,
            namespace=self._client.namespace,
            project=self._serving.project,
            tick=settings.tick,
            idle=settings.heartbeat,
            report=report,
            allowed=Allowed.parse(settings.hooks_allow or ""),
            is_busy=lambda: poller.is_behind or not dispatcher.room,
        )
        deliverer = self._deliverer = Deliverer(ledger.events, around, self._listeners)
        delivering = self._delivering = Loop(
            "events", deliverer.run_once, end=deliverer.end, on_event=self._on_event
        )
        return delivering

    def _watchdog(self, ledger: Ledger, presence: Presence, poller: Poller) -> Watchdog:
        return Watchdog(
            ledger,
            presence,
            self._serving,
            self._settings,
            distrusts=lambda: poller.distrusts_clock,
            on_event=self._on_event,
        )

    def _make_queue_manager(
        self, client: Client, ledger: Ledger, poller: Poller
    ) -> QueueManager | None:
        """Return the queue manager; None for a worker without steps, which serves no queue."""
        if self._worker is None:
            return None
        config = self._worker.config(active_config=True)
        if config.get("no_remote_activities") or not config.get("activities"):
            return None
        return QueueManager(
            self._worker,
            client,
            ledger,
            self._serving,
            self._settings,
            epoch=lambda: poller.epoch,
            seen=self._seen,
            on_event=self._emit,
        )

    def _watch(self, ledger: Ledger, poller: Poller, dispatcher: Dispatcher) -> Watch:
        async def temporal() -> str | None:
            return "starts get no answer" if dispatcher.breaker.is_open else None

        def clock(_: datetime, __: float) -> str | None:
            return "the ledger's clock has jumped" if poller.distrusts_clock else None

        async def opened() -> Ledger:
            return ledger

        return Watch(
            opened,
            self._settings,
            holder=self._serving.replica,
            temporal=temporal,
            clock=clock,
            namespace=self._client.namespace,
            on_event=self._on_event,
        )

    def _make_janitor(self, ledger: Ledger, identity: str) -> Janitor | None:
        """Return the janitor, unless it is off."""
        settings = self._settings
        if settings.janitor is None:
            return None
        archive = None
        if settings.archive is not None:
            namespace = self._client.namespace
            archive = Archive(settings.archive, ledger_id=identity, namespace=namespace)
        return Janitor(ledger, archive, self._serving, settings, on_event=self._emit)

    async def _recompute_outdated(self, ledger: Ledger) -> None:
        """Recompute by this replica's rules of time what older rules computed."""
        recomputed = await recompute_outdated(ledger, self._serving)
        if recomputed:
            text = f"{recomputed} schedules were computed again by the zone rules {TZDATA_VERSION}"
            self._emit(Notice(text, good=True))

    async def _apply(self, ledger: Ledger) -> None:
        """Apply the file; if that fails, the last good definitions stay in force."""
        if self._source is None:
            return
        try:
            project = self._serving.project
            last = await applied_digest(ledger, project)
            looks = await self._looks(self._source)
            if last and looks and last == await self._sealing.file_digest(project, looks):
                report = ApplyReport(project=project, already_applied=True)
                self._emit(Applied(str(report), good=True))
                self._mention_other_queues(await ledger.wanted(self._serving.project))
                return
            file = await self._read(self._source)
            if file is None:
                return
            await apply_source(
                file,
                partial(
                    apply,
                    ledger,
                    by=self._serving.replica,
                    only_newer=True,
                    last=last,
                    sealing=self._sealing,
                ),
                lambda _, report: self._emit(
                    Applied(str(report), good=True, refused=report.refusals)
                ),
                project=project,
                source=self._source,
                types=self._serving.types,
                on_event=self._emit,
            )
        except REFUSALS as error:
            await self._go_on_without(ledger, error)
        else:
            self._mention_other_queues(await ledger.wanted(self._serving.project))

    async def _require_extra(self, ledger: Ledger) -> None:
        """Stop if webhooks or alerts are to be sent, and what sends them is not installed."""
        missing = extra_missing("webhooks", self._settings.calls or "a webhook")
        if missing is None:
            return
        mine = self._serving.project
        found = await ledger.events.subscriptions()
        if self._settings.calls or any(e.kind == "hook" and e.project == mine for e in found):
            self._refused = missing
            self._stopping.set()

    async def _go_on_without(self, ledger: Ledger, error: EngineError) -> None:
        """Report why the file is not applied, and how many schedules stay as they are.

        Without a file that is required, and without any schedule, the replica stops. It also stops
        if the file needs an extra that is not installed here: its days off may differ from those
        of other workers.
        """
        source, project = self._source, self._serving.project
        living = await ledger.count_schedules(project)
        goes_on = f"the last good definitions stay in force ({living} schedules)"
        if isinstance(error, RevisionTooLow):
            self._emit(Alert(error.code, str(error)))
        elif isinstance(error, ScheduleFileError) and isinstance(source, Source):
            needs_extra = any(each.code == Code.EXTRA_MISSING for each in error.problems)
            if needs_extra or (source.required and not living):
                self._refused = error
                self._stopping.set()
                return
            if source.required:
                self._not_applied = f"{source.name} is not applied to project {project}: {goes_on}"
                self._emit(Applied(str(error), good=False))
                self._emit(Alert(error.code, self._not_applied))
                return
            if not source.is_there():
                text = f"no {source.name} here: project {project} has {living} schedules"
                self._emit(Notice(f"{text} in the ledger", good=True))
                return
        self._emit(Applied(str(error), good=False))
        self._emit(Notice(goes_on, good=False))

    async def _read(self, source: Source | ScheduleFile) -> ScheduleFile | None:
        if isinstance(source, ScheduleFile):
            return source
        return await read_unless(self._stopping, source)

    async def _looks(self, source: Source | ScheduleFile) -> str | None:
        """Return the digest of the files' texts, which are hashed and not parsed."""
        if isinstance(source, ScheduleFile):
            return None  # it has been parsed, so its warnings are reported
        look = await asyncio.to_thread(source.look)
        return await asyncio.to_thread(look.digest)

    def _mention_other_queues(self, wanted: Sequence[Wanted]) -> None:
        mine = self._serving.task_queue
        others = [each for each in wanted if each.lane not in {"", mine}]
        if others:
            named = ", ".join(sorted({each.lane for each in others}))
            every, theirs = (sum(each.schedules for each in of) for of in (wanted, others))
            are = "is" if theirs == 1 else "are"
            text = f"{theirs} of {every} schedules {are} for other task queues ({named})"
            self._emit(Notice(f"{text}, this worker serves {mine}", good=True))

    async def _patiently(self, name: str, begin: Callable[[], Awaitable[T]]) -> T | None:
        """Retry ``begin`` while a server is away; return None if stopped meanwhile."""
        waits: Degraded | None = None
        while not self._stopping.is_set():
            try:
                begun = await begin()
            except (LedgerUnavailable, TemporalUnavailable) as error:
                before, waits = waits, degraded_by(name, error)
                if before is None or before.server != waits.server:
                    if before is not None:
                        self._emit(Recovered(name, before.server))
                    self._emit(waits)
            else:
                if waits is not None:
                    self._emit(Recovered(name, waits.server))
                return begun
            await wait_for(self._stopping, _PATIENCE)
        return None
