"""A Temporal server in memory, as far as the engine calls one.

It keeps ids apart by REJECT_DUPLICATE for as long as it remembers a closed run. Its visibility lags
up to a minute, its answers get lost, and what it was asked it may do later than the asker waits.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from temporalio.client import WorkflowExecutionStatus as Status
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

SECOND = timedelta(seconds=1)
PATIENCE = 5.0


@dataclass
class Run:
    """One execution; ``shown_at`` and ``closed_shown_at`` are when visibility has it."""

    id: str
    run_id: str
    workflow_type: str
    start_time: datetime
    kept: dict[str, Any]
    shown_at: datetime
    lasts: timedelta
    ends_as: Status
    status: Status = Status.RUNNING
    close_time: datetime | None = None
    closed_shown_at: datetime | None = None

    async def memo(self) -> dict[str, Any]:
        return self.kept


@dataclass
class Faults:
    """What is wrong with the server at present; parts of 1."""

    away: bool = False
    lost: float = 0.0
    late: float = 0.0
    busy: float = 0.0
    slow: float = 0.0


@dataclass
class Server:
    """The state behind the client. ``started`` hears of every run when it begins to exist."""

    clock: Callable[[], datetime]
    chance: Random
    retention: timedelta
    started: Callable[[Run], None]
    faults: Faults = field(default_factory=Faults)
    runs: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    ever: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    durations: tuple[float, ...] = (0, 0.5, 3, 20, 90)
    refuses: frozenset[str] = frozenset()
    number: int = 0

    def newest(self, workflow_id: str) -> Run | None:
        """Return the run of this id as it is now, unless it was forgotten."""
        runs = self.runs.get(workflow_id)
        if not runs:
            return None
        run = runs[-1]
        if run.close_time is not None and run.close_time + self.retention <= self.clock():
            del self.runs[workflow_id]
            return None
        return run

    def start(self, workflow_id: str, workflow_type: str, memo: dict[str, Any]) -> Run:
        """Begin a run, unless the id is taken."""
        known = self.newest(workflow_id)
        if known is not None:
            raise WorkflowAlreadyStartedError(workflow_id, workflow_type, run_id=known.run_id)
        run = self._begin(workflow_id, workflow_type, memo)
        self.ever[workflow_id].append(run.run_id)
        self.started(run)
        return run

    def _begin(self, workflow_id: str, workflow_type: str, memo: dict[str, Any]) -> Run:
        self.number += 1
        now = self.clock()
        ends = [Status.COMPLETED] * 5 + [Status.FAILED, Status.TIMED_OUT, Status.CONTINUED_AS_NEW]
        run = Run(
            workflow_id, f"run-{self.number}", workflow_type, now, memo, now + self._lag(),
            timedelta(seconds=self.chance.choice(self.durations)), self.chance.choice(ends),
        )  # fmt: skip
        self.runs[workflow_id].append(run)
        return run

    def go_on(self) -> None:
        """Close the runs whose time has come; a continued one goes on under the same id."""
        now = self.clock()
        for run in self.open():
            if run.start_time + run.lasts <= now:
                self.close(run, run.ends_as, max(run.start_time, run.start_time + run.lasts))
                if run.ends_as is Status.CONTINUED_AS_NEW:
                    self._begin(run.id, run.workflow_type, run.kept)

    def close(self, run: Run, status: Status, at: datetime | None = None) -> None:
        run.status, run.close_time = status, at or self.clock()
        run.closed_shown_at = self.clock() + self._lag()

    def stop(self, run: Run, status: Status, after: timedelta) -> None:
        """Let a run end so, a while from now."""
        run.lasts = min(run.lasts, self.clock() - run.start_time + after)
        run.ends_as = status

    def open(self) -> list[Run]:
        return [runs[-1] for runs in self.runs.values() if runs and runs[-1].close_time is None]

    def restored_empty(self) -> None:
        self.runs.clear()

    def _lag(self) -> timedelta:
        return self.chance.choice([0, 0, 1, 5, 30, 60]) * SECOND


class Client:
    """The calls that the engine makes of ``temporalio.client.Client``."""

    namespace = "default"

    def __init__(self, server: Server) -> None:
        self._server = server
        self.workflow_service = self

    async def describe_workflow_execution(self, _: Any, *, timeout: timedelta) -> None:  # noqa: ASYNC109 - the SDK's
        await self._there()
        await self._back()

    async def start_workflow(self, workflow: str, **given: Any) -> Handle:
        await self._there()
        server = self._server
        if server.chance.random() < server.faults.busy:
            raise RPCError("too many", RPCStatusCode.RESOURCE_EXHAUSTED, b"")
        if any(f":{key}:" in given["id"] for key in server.refuses):
            raise RPCError("broken", RPCStatusCode.INTERNAL, b"")
        if server.chance.random() < server.faults.late:
            self._later(workflow, given)
            await asyncio.sleep(PATIENCE)
            raise _timed_out()
        run = server.start(given["id"], workflow, given["memo"])
        await self._back()
        return Handle(self, server, run.id, None, run.run_id)

    def get_workflow_handle(self, workflow_id: str, *, run_id: str | None = None) -> Handle:
        return Handle(self, self._server, workflow_id, run_id)

    def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Run]:
        return self._listed(query)

    async def _listed(self, query: str) -> AsyncIterator[Run]:
        await self._there()
        prefix, _, rest = query.removeprefix('WorkflowId STARTS_WITH "').partition('" AND ')
        column, _, text = rest.partition(" >= ")
        since, now = datetime.fromisoformat(text.strip('"')), self._server.clock()
        found = [
            run
            for workflow_id in [*self._server.runs]
            if workflow_id.startswith(prefix) and self._server.newest(workflow_id)
            for run in self._server.runs[workflow_id]
            if _seen(run, column, now, since)
        ]
        await self._back()
        for run in found:
            yield run

    def _later(self, workflow: str, given: dict[str, Any]) -> None:
        def arrive() -> None:
            try:
                self._server.start(given["id"], workflow, given["memo"])
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
        run = await self._open()
        if self._server.chance.random() < 0.8:  # some runs do not listen
            after = self._server.chance.choice([0, 2, 40]) * SECOND
            self._server.stop(run, Status.CANCELED, after)

    async def terminate(self, **_: Any) -> None:
        self._server.close(await self._open(), Status.TERMINATED)

    async def result(self, **_: Any) -> None:
        run = await self._find()
        if run.status not in {Status.COMPLETED, Status.RUNNING}:
            raise WorkflowFailureError(cause=ApplicationError("it failed"))

    async def _open(self) -> Run:
        run = await self._find()
        if run.close_time is not None:
            raise RPCError("it has closed", RPCStatusCode.NOT_FOUND, b"")
        return run

    async def _find(self) -> Run:
        await self._client._there()
        run = self._server.newest(self._id)
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
