"""The reader of an account: plain SQL, Temporal's own lists and histories, and the steps' notes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution

from tests.nemesis.account import SECOND, Action, Definition, Note, Row, Run, Schedule, first_key

_ROWS = """
SELECT f.id AS number, h.key, h.series, h.bucket, h.fire_time, h.windows, h.last_fire_time, h.kind,
       h.workflow_id, h.run_id, h.status, h.reason, h.timing, h.definition_version, h.decided_at,
       f.starting_at, h.started_at, h.closed_at, f.lease_until, f.overlap, h.stop, h.attempts,
       h.error, coalesce(f.second_runs, '{}') AS second_runs
FROM sched.fire_history h JOIN sched.fires f USING (namespace, workflow_id) ORDER BY f.id
"""
LATE = """
SELECT s.key FROM sched.schedules s, sched.position_of(s.namespace, s.key) p
WHERE s.retired_at IS NULL AND s.paused_at IS NULL AND s.enabled
  AND p.next_fire_at < clock_timestamp() - interval '5 s'
"""
"""Schedules that are behind."""
_SCHEDULES = """
SELECT s.key, s.definition_version, p.cursor, s.origin, s.enabled, s.paused_at, s.paused_until,
       s.retired_at, s.error
FROM sched.schedules s, sched.position_of(s.namespace, s.key) p
WHERE s.successor IS NULL ORDER BY s.key
"""
_DEFINITIONS = """
SELECT key, version, series, definition::text AS entry, effective_from, applied_at, applied_by
FROM sched.definitions ORDER BY key, version
"""
_ACTIONS = "SELECT key, verb, at, by, workflow_id FROM sched.actions ORDER BY id"
_LETTERS = "SELECT workflow_id FROM sched.dead_letters ORDER BY workflow_id"
_AT_ONCE = 12
_FAILED = re.compile(r"ERROR sched \w+ failed$|exception was never retrieved|Fatal Python error")
"""A loop that met what nobody had thought of, a task that nobody waited for, a crash."""

_ENDS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "completed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "terminated",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "timed_out",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "continued",
}


async def left(
    connection: asyncpg.Connection, query: str, within: float, *values: Any
) -> list[str]:
    """Ask until there is nothing any more; returns what there is at last."""
    deadline = time.monotonic() + within
    while (found := await connection.fetch(query, *values)) and time.monotonic() < deadline:  # noqa: ASYNC110 - the fact is in another process
        await asyncio.sleep(1)
    return [each[0] for each in found]


def _named(row: asyncpg.Record) -> dict[str, Any]:
    return {**row, "key": first_key(row["key"])}


async def rows(connection: asyncpg.Connection) -> list[Row]:
    return [Row(**_named(each)) for each in await connection.fetch(_ROWS)]


async def schedules(connection: asyncpg.Connection) -> list[Schedule]:
    return [Schedule(**_named(each)) for each in await connection.fetch(_SCHEDULES)]


async def definitions(connection: asyncpg.Connection) -> list[Definition]:
    found = await connection.fetch(_DEFINITIONS)
    return [Definition(**{**_named(each), "entry": json.loads(each["entry"])}) for each in found]


async def actions(connection: asyncpg.Connection) -> list[Action]:
    return [Action(**_named(each)) for each in await connection.fetch(_ACTIONS)]


async def letters(connection: asyncpg.Connection) -> list[str]:
    return [each["workflow_id"] for each in await connection.fetch(_LETTERS)]


async def runs(client: Client) -> list[Run]:
    """Return every run of a schedule, each by its own history."""
    query = "WorkflowId STARTS_WITH 'sched:' OR WorkflowId STARTS_WITH 'child:'"
    listed = client.list_workflows(query)
    found = [each async for each in listed if each.workflow_type != SECOND]
    turn = asyncio.Semaphore(_AT_ONCE)

    async def read(each: WorkflowExecution) -> Run:
        async with turn:
            handle = client.get_workflow_handle(each.id, run_id=each.run_id)
            return run_of(each.id, each.run_id, (await handle.fetch_history()).events)

    return list(await asyncio.gather(*(read(each) for each in found)))


def run_of(workflow_id: str, run_id: str, events: Any) -> Run:
    """Return the run that these events tell of."""
    begin = events[0].workflow_execution_started_event_attributes
    run = Run(
        workflow_id, run_id, begin.first_execution_run_id, begin.workflow_type.name, "running",
        _moment(events[0]), None,
    )  # fmt: skip
    if "sched" in begin.memo.fields:
        run.fire = json.loads(begin.memo.fields["sched"].data)
        run.fire["key"] = first_key(run.fire["key"])
    places: dict[int, str] = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            places[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            done = event.activity_task_completed_event_attributes.scheduled_event_id
            run.effects.append(places[done])
        elif event.event_type in _ENDS:
            run.status, run.close = _ENDS[event.event_type], _moment(event)
            run.next_run_id = _next(event)
    return run


def _next(event: HistoryEvent) -> str | None:
    """The run that goes on where this one ended: a new one, or a retry."""
    for name in ("continued_as_new", "failed", "timed_out", "completed"):
        attributes = getattr(event, f"workflow_execution_{name}_event_attributes")
        if attributes.new_execution_run_id:
            return str(attributes.new_execution_run_id)
    return None


def _moment(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(tzinfo=UTC)


def notes(folder: Path) -> list[Note]:
    """Return what the steps wrote down, each attempt once."""
    found: dict[tuple[int, str, str, int], Note] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            event, at = said.pop("event"), said.pop("at")
            name = (said["pid"], said["run_id"], said["place"], said["attempt"])
            if event == "begins":
                found[name] = Note(**said, began=at)
            else:
                found[name].ended = at
    return [*found.values()]


def failures(folder: Path) -> list[str]:
    """Return each error that a worker's log calls one of its own, with the line that names it."""
    found = []
    for path in sorted(folder.glob("worker-*.log")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines):
            if not _FAILED.search(line):
                continue
            after = (
                each for each in lines[number + 1 :] if re.match(r"[\w.]+(Error|Exception)", each)
            )
            found.append(f"{path.stem}: {line}: {next(after, '')}")
    return found
