"""What every part of a PostgreSQL transaction is made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg

from engine.ledger.connections import Connection
from engine.ledger.data_gaps import begins
from engine.ledger.fire_records import Claim
from engine.ledger.new_fire import NewFire
from engine.ledger.sql import query
from engine.schedules.decisions import Move

_FIRE_COLUMNS = (
    "project",
    "key",
    "series",
    "bucket",
    "fire_time",
    "windows",
    "last_fire_time",
    "definition_version",
    "workflow_id",
    "workflow_type",
    "task_queue",
    "status",
    "reason",
    "timing",
    "missed",
    "missed_from",
    "not_before",
    "token",
    "awaits",
    "overlap",
)
"""The order of the arrays in ``insert_fires.sql``."""


class Statements:
    """The connection of one transaction, and what each part of it needs."""

    def __init__(self, connection: Connection, namespace: str, patience: float) -> None:
        self.connection = connection
        self._namespace, self._patience = namespace, patience

    async def now(self) -> datetime:
        """See ``Transaction``."""
        now: datetime = await self.connection.fetchval("SELECT clock_timestamp()")
        return now

    async def back_off(self, key: str, error: str) -> None:
        """See ``Transaction``."""
        await self.run("back_off", key, error)

    async def _insert(
        self, fires: Sequence[NewFire], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        if not fires:
            return []
        columns = [[_stored(fire, field) for fire in fires] for field in _FIRE_COLUMNS]
        rows = await self.run("insert_fires", owner, lease, *columns)
        return claimed(fires, rows)

    async def _move(self, moves: Sequence[tuple[timedelta, Move]]) -> None:
        """Carry out what plans decided about fires that are open already."""
        promoted = [(move.fire.fire_id, move.not_before) for _, move in moves if move.to == "start"]
        if promoted:
            await self.run("promote", *map(list, zip(*promoted, strict=True)))
        if released := [move.fire.fire_id for _, move in moves if move.to == "release"]:
            await self.run("release", released)
        if skipped := [(move.fire.fire_id, move.reason) for _, move in moves if move.to == "skip"]:
            await self.run("give_up", *map(list, zip(*skipped, strict=True)))
        wishes = [
            (move.fire.fire_id, move.to, grace, move.reason)
            for grace, move in moves
            if move.to in {"cancel", "terminate"}
        ]
        if wishes:
            await self.run("wish_stops", *map(list, zip(*wishes, strict=True)))

    async def run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run ``queries/<name>.sql``; its first argument is the namespace."""
        return await self.connection.fetch(
            query(name), self._namespace, *arguments, timeout=self._patience
        )


def _stored(fire: NewFire, field: str) -> object:
    if field == "awaits":
        return json.dumps(fire.awaits.to_json()) if fire.awaits else None
    return getattr(fire, field)


def claimed(fires: Sequence[NewFire], rows: Sequence[asyncpg.Record]) -> list[Claim]:
    """Return the orders to start those that have a token, and were written as ``rows`` say."""
    written = {row["workflow_id"]: row for row in rows}
    return [
        fire.claim(
            row["id"], row["starting_at"], data_from=begins(row["data_from"]),
            rules=row["rules"] and json.loads(row["rules"]),
        )
        for fire in fires
        if fire.token is not None and (row := written.get(fire.workflow_id))
    ]  # fmt: skip
