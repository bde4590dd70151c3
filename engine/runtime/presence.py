"""Says that a replica lives and what it can run, and watches the namespace's retention."""

from __future__ import annotations

from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from engine import __version__
from engine.errors import Code, RetentionTooShort, TemporalUnavailable
from engine.ledger import Ledger
from engine.ledger.replica_records import Serving
from engine.runtime.budget import Budget
from engine.runtime.clock import boottime
from engine.runtime.events import Alert, Listener
from engine.runtime.settings import Settings
from engine.schedules.time_rules import TIME_RULES
from engine.schedules.zones import TZDATA_VERSION

_LEASES = 4
_REMIND = 300.0
"""Seconds between two looks, and reminders, whether schedules stand still here."""


class Presence:
    """Announces one replica, again and again."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        serving: Serving,
        settings: Settings,
        *,
        budget: Budget | None = None,
        tell: Listener,
    ) -> None:
        self._budget = budget or Budget()
        self._client, self._ledger = client, ledger
        self._serving, self._settings, self._tell = serving, settings, tell
        self._others: list[str] = []
        self._asked = -_REMIND
        self._steady: tuple[float, float] | None = None

    async def begin(self) -> None:
        """Announce for the first time.

        Raises:
            RetentionTooShort: when a run could be forgotten while its start is still in doubt.
            TemporalUnavailable: when the namespace cannot be described.
        """
        retention = await self._retention()
        if retention is None:
            raise TemporalUnavailable(
                f"namespace {self._client.namespace} cannot be described",
                cure="check TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE",
            )
        if retention < self._settings.lease * _LEASES:
            raise RetentionTooShort(
                f"namespace {self._client.namespace} keeps closed runs for {retention},"
                f" less than {_LEASES} leases of {self._settings.lease}",
                cure="raise the namespace's retention, or lower SCHED_LEASE",
            )
        await self._announce(retention)

    async def turn(self) -> timedelta:
        """Announce again; returns the wait until the next time."""
        await self._announce(await self._retention())
        await self._compare_rules()
        self._budget.share(await self._ledger.replicas(alive=self._settings.alive))
        self._budget.report()
        return self._settings.heartbeat

    async def _compare_rules(self) -> None:
        """Say that other zone rules are at work.

        Once when replicas with others come, and every few minutes while schedules stand still
        here because newer ones computed them.
        """
        project = self._serving.project
        others = await self._ledger.other_rules(project, alive=self._settings.alive)
        if others and others != self._others:
            text = f"this replica computes by the zone rules {TZDATA_VERSION}, others by"
            cure = "replicas with older ones leave schedules alone; give all the same image"
            self._tell(Alert(Code.TZDATA_DIFFERS, f"{text} {', '.join(others)}; {cure}"))
        self._others = others
        if boottime() - self._asked < _REMIND:
            return
        # Counted among all schedules: at 100,000 of them too much for every heartbeat.
        newer, rules = await self._ledger.newer_rules(project)
        self._asked = boottime()
        if newer:
            text = f"{newer} schedules of project {project} were computed by newer rules of time"
            cure = "replicas with older ones leave them alone: give all replicas that image"
            self._tell(Alert(Code.TZDATA_DIFFERS, f"{text} ({rules}, here {TIME_RULES}); {cure}"))

    async def end(self) -> None:
        """Say that the replica has gone."""
        await self._ledger.withdraw(self._serving)

    @property
    def steady(self) -> timedelta:
        """How long this replica has announced itself without a gap."""
        if self._steady is None or boottime() - self._steady[1] > self._gap:
            return timedelta(0)
        return timedelta(seconds=boottime() - self._steady[0])

    @property
    def _gap(self) -> float:
        return self._settings.heartbeat.total_seconds() * 2

    async def _announce(self, retention: timedelta | None) -> None:
        await self._ledger.announce(
            self._serving,
            engine=__version__,
            tzdata=TZDATA_VERSION,
            retention=retention,
        )
        now = boottime()
        unbroken = self._steady is not None and now - self._steady[1] <= self._gap
        self._steady = (self._steady[0] if self._steady and unbroken else now, now)

    async def _retention(self) -> timedelta | None:
        """How long the namespace remembers closed runs; None while it cannot be asked."""
        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        try:
            answer = await self._client.workflow_service.describe_namespace(
                request, timeout=self._settings.rpc_timeout
            )
        except (RPCError, RuntimeError):  # the SDK says RuntimeError while it cannot connect
            return None
        ttl = answer.config.workflow_execution_retention_ttl
        return timedelta(seconds=ttl.seconds, microseconds=ttl.nanos // 1000)
