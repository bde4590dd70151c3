"""Temporal Schedules beside the engine: the runs that they started, and the end of one.

Runs are read from visibility, in which a native schedule names itself and the moment of each run
(``TemporalScheduledById``, ``TemporalScheduledStartTime``).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.client import (
    Client,
    ScheduleDescription,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WorkflowExecution,
)
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from engine.audit.comparison import NativeState, TheirRun, TheirRuns, TheirSource
from engine.audit.visibility import TemporalRuns, as_unavailable

_PAGE: Final = 1000
_PATIENCE: Final = timedelta(seconds=60)
_CALL: Final = timedelta(seconds=5)
_AGAIN: Final = 0.1
"""Seconds between looks at whether a change of a schedule has taken effect."""
_NOMINAL: Final = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
_OURS: Final = "sched:"
_UNKNOWN: Final = (
    "nothing to compare: there is no such Temporal schedule and no run of it. Name other runs by"
    " --against, or the log of the other scheduler: --against log:FILE"
)


class NativeStarts:
    """Runs of one namespace that others than the engine have started."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, source: TheirSource, since: datetime, until: datetime) -> TheirRuns:
        """Return the runs for moments in ``since <= t <= until``, by time.

        Raises:
            TemporalUnavailable: the server did not answer.
        """
        by_name = {
            "temporal_schedule": f"TemporalScheduledById = {_quoted(source.name)}",
            "workflow_type": f"WorkflowType = {_quoted(source.name)}",
            "id_prefix": f"WorkflowId STARTS_WITH {_quoted(source.name)}",
        }[source.kind]
        native = source.kind == "temporal_schedule"
        when = "TemporalScheduledStartTime" if native else "StartTime"
        query = f"{by_name} AND {when} >= '{_text(since)}' AND {when} <= '{_text(until)}'"
        found: dict[tuple[str, datetime], TheirRun] = {}
        with as_unavailable():
            async for run in self._client.list_workflows(
                query, page_size=_PAGE, rpc_timeout=_PATIENCE
            ):
                if not run.id.startswith(_OURS):
                    each = _their_run(run, native=native)
                    # What continues a run of a native schedule has its moment, too.
                    name = (each.workflow_id, each.at)
                    found[name] = min(each, found.get(name, each), key=lambda one: one.started_at)
            unknown = native and not found and not await self._exists(source)
        kept_since = await TemporalRuns(self._client).kept_since()
        runs = sorted(found.values(), key=lambda each: each.at)
        return TheirRuns(runs, kept_since, (_UNKNOWN,) if unknown else (), unknown)

    async def _exists(self, source: TheirSource) -> bool:
        try:
            await self._client.get_schedule_handle(source.name).describe(rpc_timeout=_CALL)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True


def _their_run(run: WorkflowExecution, *, native: bool) -> TheirRun:
    nominal = run.typed_search_attributes.get(_NOMINAL) if native else None
    return TheirRun(nominal or run.start_time, run.id, run.start_time, run.close_time)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


class NativeSchedules:
    """Native schedules of one namespace, as a take-over reads and ends them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def state(self, name: str) -> NativeState | None:
        """Return the state of a schedule; None if there is none of this ID.

        Raises:
            TemporalUnavailable: the server did not answer.
        """
        with as_unavailable():
            described = await self._described(name)
        if described is None:
            return None
        spec, state = described.schedule.spec, described.schedule.state
        return NativeState(
            spec.end_at,
            state.paused,
            state.note,
            bool(spec.jitter),
            state.limited_actions,
            described.info.next_action_times,
        )

    async def end(self, name: str, at: datetime, *, note: str, within: timedelta) -> bool:
        """Let a schedule start nothing for a moment after ``at``; return whether that is certain.

        It is once the schedule shows its new end, which is repeated until ``within`` has passed.
        """

        def ended(given: ScheduleUpdateInput) -> ScheduleUpdate:
            schedule = given.description.schedule
            schedule.spec.end_at, schedule.state.note = at, note
            return ScheduleUpdate(schedule)

        handle = self._client.get_schedule_handle(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                while True:
                    with suppress(RPCError):
                        await handle.update(ended, rpc_timeout=_CALL)
                        described = await self._described(name)
                        if described is not None and described.schedule.spec.end_at == at:
                            return True
                    await asyncio.sleep(_AGAIN)
        return False

    async def _described(self, name: str) -> ScheduleDescription | None:
        try:
            return await self._client.get_schedule_handle(name).describe(rpc_timeout=_CALL)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
