"""Presence of replicas, and rejection of windows that no replica can start."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from engine import __version__
from engine.errors import (
    BoundElsewhere,
    Code,
    LedgerUnavailable,
    RetentionTooShort,
    TemporalUnavailable,
)
from engine.ledger import Ledger, Serving, TemporalNamespace, Transaction
from engine.ledger.floors import again_after
from engine.runtime.clock import boottime
from engine.runtime.dispatch.backpressure import Budget
from engine.runtime.events import (
    Alert,
    Degraded,
    Notice,
    OnEvent,
    Recovered,
    emit_decided,
    words_of,
)
from engine.runtime.measurements import temporal_call
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import classify_rpc_error, describe_namespace
from engine.runtime.workflow_workers import mixed_queues, unresolved_workflow_hint
from engine.schedules import TZDATA_VERSION, utc_text
from engine.schedules.planner import TIME_RULES, Plan, plan, unresolved_workflow

# --- presence ---
# Announces that a replica lives and what it can run; compares the namespace with the ledger's, and
# checks its retention.

_ASKS = "namespace"
_LEASES = 4
_UNVOUCHED_HINT = (
    "windows of that time may have run if this ledger was restored from a backup, and are"
    " unvouched; after an outage `sched backfill KEY --include unvouched` starts them"
)
_REMIND = 300.0
"""Seconds between two checks, and alerts, for schedules that newer rules block here."""


class Presence:
    """The periodic announcement of one replica.

    Attributes:
        living: number of living replicas of the namespace, as last read; None before.
        answered_at: when Temporal answered last (``boottime``); None before.
        on_unanswered: called when Temporal does not answer.
        on_refused: called when the ledger belongs to another namespace than the one that answers.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        serving: Serving,
        settings: Settings,
        *,
        budget: Budget | None = None,
        on_event: OnEvent,
    ) -> None:
        self._budget = budget or Budget()
        self._client, self._ledger = client, ledger
        self._serving, self._settings, self._emit = serving, settings, on_event
        self._others: list[str] = []
        self._asked = -_REMIND
        self._steady: tuple[float, float] | None = None
        self.living: int | None = None
        self.answered_at: float | None = None
        self._unanswered: str | None = None
        self._told = False
        self.on_unanswered: Callable[[], None] = lambda: None
        self.on_refused: Callable[[BoundElsewhere], None] = lambda _: None

    async def begin(self) -> None:
        """Announce for the first time.

        Raises:
            BoundElsewhere: the ledger belongs to another namespace.
            RetentionTooShort: a run could be forgotten while its start is still in doubt.
            TemporalUnavailable: the namespace cannot be described.
        """
        found = await self._described()
        if found is None:
            raise TemporalUnavailable(
                f"namespace {self._client.namespace} cannot be described",
                hint="check TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE",
            )
        if found.retention < self._settings.lease * _LEASES:
            raise RetentionTooShort(
                f"namespace {self._client.namespace} keeps closed runs for {found.retention},"
                f" less than {_LEASES} leases of {self._settings.lease}",
                hint="raise the namespace's retention, or lower SCHED_LEASE",
            )
        await self._ledger.bind(found, by=self._serving.replica)
        await self._announce(found.retention)
        await self._warn_of_others()

    async def _warn_of_others(self) -> None:
        """Warn that workers of the task queue have other workflows, as in a deploy."""
        seen = await self._ledger.seen_replicas()
        now = max(each.seen_at for each in seen)  # this replica's own announcement
        for mixed in mixed_queues(each for each in seen if not each.is_silent(now)):
            if mixed.task_queue == self._serving.task_queue:
                self._emit(Notice(f"{Code.TASK_QUEUE_MIXED}: {mixed.text}", good=False))

    async def run_once(self) -> timedelta:
        """Announce again; return the wait until the next time."""
        found = await self._described()
        self._report_temporal()
        if found is not None and await self._refusal(found) is not None:
            return self._settings.heartbeat
        await self._announce(found.retention if found else None)
        await self._compare_rules()
        self.living = await self._ledger.replicas(alive=self._settings.alive)
        self._budget.share(self.living)
        self._budget.report()
        return self._settings.heartbeat

    async def confirm(self) -> str | None:
        """Ask whether the ledger's namespace still answers; return why nothing may start, if so."""
        found = await self._described()
        if found is None:
            return self._unanswered or "the namespace cannot be described"
        try:
            return await self._refusal(found)
        except LedgerUnavailable as error:
            return words_of(error)

    async def _refusal(self, found: TemporalNamespace) -> str | None:
        """Return why this replica has to leave, and report it: another namespace has answered."""
        try:
            await self._ledger.bind(found, by=self._serving.replica)
        except BoundElsewhere as error:
            self.on_refused(error)
            return str(error)
        return None

    def _report_temporal(self) -> None:
        """Report that Temporal does not answer, or answers again.

        A replica that has nothing to start, and no duty, asks for nothing else.
        """
        why = self._unanswered
        if why is not None and not self._told:
            said = f"Temporal does not answer: {why}"
            self._emit(Degraded(_ASKS, said, "temporal", why))
        elif why is None and self._told:
            self._emit(Recovered(_ASKS, "temporal"))
        self._told = why is not None

    async def _compare_rules(self) -> None:
        """Emit an alert about other zone rules.

        Once when replicas with other rules appear, and every few minutes while schedules stand
        still here because newer rules computed them.
        """
        project = self._serving.project
        others = await self._ledger.other_rules(project, alive=self._settings.alive)
        if others and others != self._others:
            text = f"this replica computes by the zone rules {TZDATA_VERSION}, others by"
            hint = "replicas with older ones leave schedules alone; give all the same image"
            self._emit(Alert(Code.TZDATA_DIFFERS, f"{text} {', '.join(others)}; {hint}"))
        self._others = others
        if boottime() - self._asked < _REMIND:
            return
        # This reads every schedule: at 100,000 of them too much for every heartbeat.
        newer, rules = await self._ledger.newer_rules(project)
        self._asked = boottime()
        if newer:
            text = f"{newer} schedules of project {project} were computed by newer rules of time"
            hint = "replicas with older ones leave them alone: give all replicas that image"
            self._emit(Alert(Code.TZDATA_DIFFERS, f"{text} ({rules}, here {TIME_RULES}); {hint}"))

    async def end(self) -> None:
        """Withdraw the announcement of the replica."""
        await self._ledger.withdraw(self._serving)

    @property
    def steady(self) -> timedelta:
        """Time for which this replica has announced itself without a gap."""
        if self._steady is None or boottime() - self._steady[1] > self._gap:
            return timedelta(0)
        return timedelta(seconds=boottime() - self._steady[0])

    @property
    def _gap(self) -> float:
        return self._settings.heartbeat.total_seconds() * 2

    async def _announce(self, retention: timedelta | None) -> None:
        silent_since = await self._ledger.announce(
            self._serving,
            engine=__version__,
            tzdata=TZDATA_VERSION,
            retention=retention,
            heartbeat=self._settings.heartbeat,
            margin=self._settings.margin,
        )
        if silent_since is not None:
            text = f"no worker was seen since {utc_text(silent_since)}"
            text += ", longer than Temporal keeps runs"
            self._emit(Alert(Code.FIRE_UNVOUCHED, f"{text}; {_UNVOUCHED_HINT}"))
        now = boottime()
        unbroken = self._steady is not None and now - self._steady[1] <= self._gap
        self._steady = (self._steady[0] if self._steady and unbroken else now, now)

    async def _described(self) -> TemporalNamespace | None:
        """Return the namespace; None while it cannot be described."""
        try:
            with temporal_call("DescribeNamespace"):
                found = await describe_namespace(self._client, self._settings.rpc_timeout)
        except (RPCError, RuntimeError) as error:  # RuntimeError while the SDK cannot connect
            away = classify_rpc_error(error) == "unavailable"  # else it refuses, which is an answer
            self._unanswered = words_of(error) if away else None
            self.on_unanswered()
            return None
        self._unanswered = None
        self.answered_at = boottime()
        return found


# --- watchdog ---
# Rejection of windows that no living replica can start.

_BATCH = 100
_ROWS = 50
"""Limit on rows of one schedule, for a transaction of seconds; the next look continues."""


class Watchdog:
    """Rejection of windows older than ``grace`` whose workflow no worker on the queue knows.

    A task queue without any living replica is an outage, not a mistake: its windows wait, and
    the catch-up policy decides when a worker returns.

    Args:
        distrusts: whether the ledger's clock is wrong. By a clock that was set forward, every
            other replica would seem dead, and every window old.
    """

    def __init__(
        self,
        ledger: Ledger,
        presence: Presence,
        serving: Serving,
        settings: Settings,
        *,
        distrusts: Callable[[], bool] = lambda: False,
        on_event: OnEvent,
    ) -> None:
        self._ledger, self._presence, self._serving = ledger, presence, serving
        self._settings, self._emit, self._distrusts = settings, on_event, distrusts

    async def run_once(self) -> timedelta:
        """Look once; return the wait until the next look."""
        if self._distrusts():
            return self._settings.heartbeat
        async with self._ledger.transaction() as transaction:
            begun = boottime()
            keys = await self._unservable(transaction)
            took = boottime() - begun
            if keys:
                await transaction.lock(keys)
                # A replica that can may have announced itself during the wait for the lock.
                keys = await self._unservable(transaction)
            plans = await self._rejected(transaction, keys) if keys else []
            queue = self._serving.task_queue
            announced = await transaction.announced([queue]) if plans else {}
        for planned in plans:
            windows = sum(each.windows for each in planned.decisions if each.verdict == "rejected")
            if windows:
                noun = "window" if windows == 1 else "windows"
                why = unresolved_workflow_hint(planned.state.schedule, announced)
                text = f"{planned.state.key}: {windows} {noun} rejected, {why}"
                self._emit(Alert(Code.WORKFLOW_UNKNOWN, text))
        emit_decided(plans, self._emit)
        if any(each.concerns_others for each in plans):
            await self._ledger.wake()
        wait = again_after(took, least=self._settings.heartbeat.total_seconds())
        return timedelta(seconds=wait)

    async def _unservable(self, transaction: Transaction) -> list[str]:
        return await transaction.unservable(
            self._serving,
            alive=self._settings.alive,
            steady=self._presence.steady,
            limit=_BATCH,
        )

    async def _rejected(self, transaction: Transaction, keys: list[str]) -> list[Plan]:
        states = await transaction.read(keys)
        now = await transaction.now()
        plans = [
            plan(state, now, rows=_ROWS, unable=unresolved_workflow(state.schedule))
            for state in states
        ]
        await transaction.record(plans)
        return plans
