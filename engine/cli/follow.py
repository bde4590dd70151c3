"""Follow mode of ``sched fires``: status changes of fires and progress of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client
from temporalio.service import RPCError

from engine.cli.target import Target, open_service
from engine.cli.temporal import connected
from engine.errors import TemporalUnavailable
from engine.service import Fire, ScheduleService, Status

_EVERY = 1.0
_LOOKED_AT = 200
_ASKED = 20
"""Number of open runs whose progress is queried in one round, the newest first."""
_PATIENCE = timedelta(seconds=2)
_DETAILS = "__temporal_workflow_metadata"
"""A query that the SDK answers for every workflow."""

Show = Callable[[Fire, str], None]
"""Callback with a fire that is new or has changed, and its run's reported progress."""


class Follower:
    """Follower of fires: reports each status and each progress once, the oldest fire first.

    Args:
        key, status: filters; None is all.
        limit: how many existing fires to report at the start.
        show: called for each report.
    """

    def __init__(self, key: str | None, status: Status | None, limit: int, *, show: Show) -> None:
        self._key, self._status, self._limit, self._show = key, status, limit, show
        self._reported: dict[str, tuple[str, str]] = {}

    async def run(self, of: Target, *, warn: Callable[[str], None]) -> None:
        """Follow until cancelled.

        Raises:
            EngineError: the ledger cannot be read, or has no such schedule.
        """
        try:
            client: Client | None = await connected(of)
        except TemporalUnavailable as error:
            warn(f"progress of runs is not shown: {error}")
            client = None
        async with open_service(of) as service:
            if self._key:
                await service.schedule(self._key)
            self.begin(await self._fires(service))
            while True:
                if client is not None:
                    await self._ask(service, client)
                await asyncio.sleep(_EVERY)
                self.report(await self._fires(service), {})

    def begin(self, fires: Sequence[Fire]) -> None:
        """Report the newest existing fires; of the others, only later changes are reported."""
        self._reported = {fire.workflow_id: (fire.status, "") for fire in fires[self._limit :]}
        self.report(fires[: self._limit], {})

    def report(self, fires: Iterable[Fire], progress: dict[str, str]) -> None:
        """Report changes in these fires, which are ordered newest first."""
        for fire in reversed([*fires]):
            before = self._reported.get(fire.workflow_id, ("", ""))
            now = (fire.status, progress.get(fire.workflow_id, before[1]))
            if now != before:
                self._reported[fire.workflow_id] = now
                self._show(fire, now[1] if fire.status == "started" else "")

    async def _fires(self, service: ScheduleService) -> list[Fire]:
        limit = max(_LOOKED_AT, self._limit)
        return await service.fires(key=self._key, status=self._status, limit=limit)

    async def _ask(self, service: ScheduleService, client: Client) -> None:
        if self._status not in {None, "started"}:
            return
        fires = await service.fires(key=self._key, status="started", limit=_ASKED)
        texts = await asyncio.gather(*(_progress(client, fire.workflow_id) for fire in fires))
        progress = {fire.workflow_id: text for fire, text in zip(fires, texts, strict=True) if text}
        self.report([fire for fire in fires if fire.workflow_id in progress], progress)


async def _progress(client: Client, workflow_id: str) -> str | None:
    """Return the progress that a run reports; None if no worker answers the query."""
    handle = client.get_workflow_handle(workflow_id)
    try:
        found = await handle.query(_DETAILS, result_type=WorkflowMetadata, rpc_timeout=_PATIENCE)
    except (RPCError, RuntimeError):
        return None
    return str(found.current_details) or None
