"""A Temporal client in memory, as far as the engine calls one.

Its answers get lost, visibility lags up to a minute, and what the server was asked it may do later
than the asker waits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextvars import Context
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecutionStatus as Status
from temporalio.converter import DataConverter
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from engine.flow.fire import MEMO_KEY, FireInfo
from tests.model.server import SECOND, Run, Server

PATIENCE = 5.0


class Client:
    """The calls that the engine makes of ``temporalio.client.Client``."""

    namespace = "default"
    data_converter = DataConverter.default

    def __init__(self, server: Server) -> None:
        self._server = server
        self.workflow_service = self
        self.service_client = SimpleNamespace(config=SimpleNamespace(target_host="model:7233"))

    async def describe_workflow_execution(self, _: Any, *, timeout: timedelta) -> None:  # noqa: ASYNC109 - the SDK's
        await self._there()
        await self._back()

    async def describe_namespace(self, _: Any, *, timeout: timedelta) -> Any:  # noqa: ASYNC109 - the SDK's
        await self._there()
        kept = SimpleNamespace(seconds=self._server.retention // SECOND, nanos=0)
        await self._back()
        return SimpleNamespace(
            config=SimpleNamespace(workflow_execution_retention_ttl=kept),
            namespace_info=SimpleNamespace(id="model"),
            replication_config=SimpleNamespace(active_cluster_name="active"),
        )

    async def start_workflow(self, workflow: str, **given: Any) -> Handle:
        server = self._server
        server.sent(FireInfo.from_memo(given["memo"][MEMO_KEY]))
        await self._there()
        if server.chance.random() < server.faults.busy:
            raise RPCError("too many", RPCStatusCode.RESOURCE_EXHAUSTED, b"")
        if any(f":{key}:" in given["id"] for key in server.refuses):
            raise RPCError("broken", RPCStatusCode.INTERNAL, b"")
        if server.chance.random() < server.faults.late:
            self._later(workflow, given)
            await asyncio.sleep(PATIENCE)
            raise _timed_out()
        run = server.start(given["id"], workflow, given)
        await self._back()
        return Handle(self, server, run.id, None, run.run_id)

    def get_workflow_handle(
        self,
        workflow_id: str,
        *,
        run_id: str | None = None,
        first_execution_run_id: str | None = None,
    ) -> Handle:
        return Handle(self, self._server, workflow_id, run_id, first_execution_run_id or "")

    def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Run]:
        return self._listed(query)

    async def _listed(self, query: str) -> AsyncIterator[Run]:
        await self._there()
        prefixes = tuple(re.findall('STARTS_WITH "(.*?)"', query))
        (column, text), *_ = re.findall('(StartTime|CloseTime) >= "(.*?)"', query)
        if column == "StartTime" and "ExecutionStatus" not in query:
            self._server.audited_at = self._server.clock()
        since, now = datetime.fromisoformat(text), self._server.clock()
        found = [
            run
            for workflow_id in [*self._server.runs]
            if workflow_id.startswith(prefixes) and self._server.newest(workflow_id)
            for run in self._server.runs[workflow_id]
            if _seen(run, column, now, since)
        ]
        await self._back()
        for run in found:
            yield run

    def _later(self, workflow: str, given: dict[str, Any]) -> None:
        life = self._server.lives

        def arrive() -> None:
            if self._server.lives != life:
                return  # a server that is restored from a backup has no calls of the old one
            try:
                self._server.start(given["id"], workflow, given)
            except WorkflowAlreadyStartedError:
                return

        delay = self._server.chance.choice([1.0, 6.0, 40.0])
        asyncio.get_running_loop().call_later(delay, arrive, context=Context())

    async def _there(self) -> None:
        """The way to the server."""
        await self._way()
        if self._server.faults.away:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")

    async def _back(self) -> None:
        """The way back: the answer may not arrive."""
        await self._way()
        if self._server.chance.random() < self._server.faults.lost:
            raise _timed_out()

    async def _way(self) -> None:
        slow = self._server.chance.random() < self._server.faults.slow
        await asyncio.sleep(self._server.chance.choice([0.2, 1, 3]) if slow else 0)


class Handle:
    """The calls that the engine makes of one run."""

    def __init__(
        self, client: Client, server: Server, workflow_id: str, run_id: str | None, first: str = ""
    ) -> None:
        self._client, self._server = client, server
        self._id, self._run_id, self.first_execution_run_id = workflow_id, run_id, first

    async def describe(self, **_: Any) -> Run:
        return await self._find()

    async def cancel(self, **_: Any) -> None:
        run, chance = await self._open(), self._server.chance
        run.cancel_requested = True
        if chance.random() < 0.8:  # some runs do not listen
            ends = [Status.CANCELED] * 4 + [Status.CONTINUED_AS_NEW]
            self._server.stop(run, chance.choice(ends), chance.choice([0, 2, 40]) * SECOND)

    async def terminate(self, **_: Any) -> None:
        self._server.close(await self._open(), Status.TERMINATED)

    async def fetch_history_events(self, **_: Any) -> AsyncIterator[HistoryEvent]:
        run, last = await self._find(), HistoryEvent()
        if run.status not in {Status.COMPLETED, Status.RUNNING}:
            last.workflow_execution_failed_event_attributes.failure.message = "it failed"
        yield last

    async def _open(self) -> Run:
        run = await self._find()
        first = (run.first or run).run_id
        if run.close_time is not None or self.first_execution_run_id not in {"", first}:
            raise RPCError("it has closed", RPCStatusCode.NOT_FOUND, b"")
        return run

    async def _find(self) -> Run:
        await self._client._there()
        run = self._server.newest(self._id)
        if run is not None and self._run_id:
            run = self._server.one(self._id, self._run_id)
        if run is None:
            raise RPCError("not found", RPCStatusCode.NOT_FOUND, b"")
        await self._client._back()
        return run


def _seen(run: Run, column: str, now: datetime, since: datetime) -> bool:
    if column == "StartTime":
        return run.shown_at <= now and run.start_time >= since
    shown = run.closed_shown_at is not None and run.closed_shown_at <= now
    return shown and run.close_time is not None and run.close_time >= since


def _timed_out() -> RPCError:
    return RPCError("Timeout expired", RPCStatusCode.CANCELLED, b"")
