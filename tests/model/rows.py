"""What a ledger has committed, as the laws read it: one statement for each table that they know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from engine.ledger.fires import begins
from engine.ledger.postgres.rows import as_backfill
from engine.ledger.records import Backfill
from engine.schedules import Schedule
from engine.schedules.planner import Pause, ScheduleState

# Whatever became visible since a look was written by a transaction that was not over at that look.
_NEW = "xmin::text::bigint >= $2"
_FIRES = f"""
SELECT id AS fire_id, project, key, series, bucket, fire_time, kind, windows, last_fire_time,
       definition_version, workflow_id, run_id, status, reason, reason_code, timing, token,
       lease_until, attempts, decided_at, error, replica, history, overlap, lost_at, data_from
FROM fires WHERE namespace = $1 AND {_NEW} ORDER BY id
"""
_SCHEDULES = """
SELECT s.key, s.project, s.definition_version, s.digest, s.series, s.suffixed, p.max_bucket,
       s.effective_from, p.cursor, s.workflow_type, s.retired_at, s.paused_at, s.paused_reason,
       s.paused_by, s.paused_until, s.absent_since, s.failures, s.rules, p.cursor_reading, s.origin,
       s.error
FROM schedules s JOIN LATERAL position_of(s.namespace, s.key) AS p ON true
WHERE s.namespace = $1 AND (s.xmin::text::bigint >= $2 OR EXISTS (
    SELECT FROM positions n
    WHERE n.namespace = s.namespace AND n.key = s.key AND n.xmin::text::bigint >= $2))
ORDER BY s.key
"""
_BACKFILLS = f"""
SELECT id, project, key, series, definition_version, first, last, cursor, overlap, include, state,
       ended_reason, reason, requested_by, requested_at, next_at, laid_at, looked_at, ended_at,
       windows, laid, left_alone, error
FROM backfills WHERE namespace = $1 AND {_NEW} ORDER BY id
"""
_SINCE = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_THERE = "SELECT id FROM fires WHERE namespace = $1"
TABLES = frozenset({"fires", "schedules", "positions", "backfills"})


@dataclass(frozen=True, slots=True)
class FireRow:
    """A row of ``fires``."""

    fire_id: int
    project: str
    key: str
    series: int
    bucket: int
    fire_time: datetime
    kind: str
    windows: int
    last_fire_time: datetime
    definition_version: int
    workflow_id: str
    run_id: str | None
    status: str
    reason: str | None
    reason_code: str | None
    timing: str | None
    token: UUID | None
    lease_until: datetime | None
    attempts: int
    decided_at: datetime
    error: str | None
    replica: str | None
    history: Any
    overlap: str | None
    lost_at: datetime | None
    data_from: datetime | None

    @classmethod
    def of(cls, row: Any) -> FireRow:
        """Return what the table says."""
        read = {"history": json.loads(row["history"]), "data_from": begins(row["data_from"])}
        return cls(**{**row, **read})


@dataclass(frozen=True)
class Found:
    """What may have changed since a look.

    Attributes:
        there: the ids of all fires, if any may be gone.
    """

    there: frozenset[int] | None = None
    fires: Sequence[FireRow] = ()
    schedules: Sequence[Any] = ()
    backfills: Sequence[Backfill] = ()


class Reader:
    """Reads what is new since it read last."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    async def read(
        self, connection: asyncpg.Connection[Any], namespace: str, tables: AbstractSet[str]
    ) -> Found:
        """Read what may have changed in these tables, with what this transaction has written."""
        found: dict[str, Any] = {}
        if "fires" in tables:
            fires = await self._new(connection, "fires", _FIRES, namespace)
            found["fires"] = [FireRow.of(each) for each in fires]
            there = await connection.fetch(_THERE, namespace)
            found["there"] = frozenset(row["id"] for row in there)
        if tables & {"schedules", "positions"}:
            found["schedules"] = await self._new(connection, "schedules", _SCHEDULES, namespace)
        if "backfills" in tables:
            backfills = await self._new(connection, "backfills", _BACKFILLS, namespace)
            found["backfills"] = [as_backfill(each) for each in backfills]
        return Found(**found)

    async def _new(
        self, connection: asyncpg.Connection[Any], table: str, text: str, namespace: str
    ) -> list[Any]:
        since = self._since.get(table, 0)
        self._since[table] = await connection.fetchval(_SINCE)
        return await connection.fetch(text, namespace, since)


def state_of(row: Any, schedules: Mapping[str, Schedule]) -> ScheduleState:
    """Return the state of a schedule, without its fires."""
    fields = dict(row)
    del fields["error"]
    pause = [fields.pop(f"paused_{name}") for name in ("at", "reason", "by", "until")]
    return ScheduleState(
        schedule=schedules[fields["digest"]], pause=Pause(*pause) if pause[0] else None, **fields
    )
