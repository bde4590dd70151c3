"""The PostgreSQL ledger's statements about fires and their runs, outside any transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg

from engine.errors import EngineError
from engine.ledger.backfill_records import Backfill
from engine.ledger.backfilling import read_backfill
from engine.ledger.connections import Connections
from engine.ledger.data_gaps import DataGap, apart
from engine.ledger.fire_records import (
    Claim,
    Evidence,
    Fire,
    InTheWay,
    OpenRun,
    Outcome,
    Status,
    StopOrder,
)
from engine.ledger.floors import Floor, Floors
from engine.ledger.replica_records import Serving
from engine.ledger.rows import as_claim, as_fire
from engine.ledger.sql import query
from engine.schedules.decisions import QUEUE_FULL

logger = logging.getLogger("sched")

_SOON = timedelta(seconds=60)
_FEW = 10_000
"""The number in ``list_fires.sql`` by which the planner knows that few rows are wanted."""


class PostgresFires:
    """The part of ``Ledger`` that moves and reads fires; ``PostgresLedger`` is the whole."""

    _connections: Connections
    _namespace: str
    _floors: Floors
    _unseen: Floor

    async def take_over(self, serving: Serving, *, limit: int, lease: timedelta) -> list[Claim]:
        """See ``Ledger``."""
        rows = await self._run(
            "take_over", serving.project, serving.replica, limit, lease, self._floors.of(serving)[1]
        )
        claims = []
        for row in rows:
            try:
                claims.append(as_claim(row))
            except EngineError as error:
                # One that this version cannot read is left to a replica that can.
                told = f"its definition cannot be read: {error}"
                later = Outcome(row["id"], row["token"], "starting", error=told, retry_after=_SOON)
                await self.settle([later])
        return claims

    async def renew(self, claims: Sequence[Claim], lease: timedelta) -> set[int]:
        """See ``Ledger``. One statement for all of them."""
        ids, tokens = [claim.fire_id for claim in claims], [claim.token for claim in claims]
        return {row["id"] for row in await self._run("renew", ids, tokens, lease)}

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        """See ``Ledger``."""
        fields = ("fire_id", "token", "status", "timing", "run_id", "started_at", "reason",
                  "error", "retry_after", "first_run_id")  # fmt: skip
        return len(await self._write("settle", fields, outcomes))

    async def witness(self, evidence: Sequence[Evidence]) -> list[str]:
        """See ``Ledger``."""
        fields = ("workflow_id", "run_id", "started_at", "closed", "closed_at", "error", "last",
                  "not_undone", "first_run_id")  # fmt: skip
        rows = await self._write("witness", fields, evidence, self._namespace)
        return [row["workflow_id"] for row in rows]

    async def seen_open(self, workflow_ids: Sequence[str], at: datetime) -> None:
        """See ``Ledger``."""
        await self._run("seen_open", list(workflow_ids), at)

    async def lose(self, workflow_ids: Sequence[str], error: str) -> list[str]:
        """See ``Ledger``."""
        rows = await self._run("lose", list(workflow_ids), error)
        return [row["workflow_id"] for row in rows]

    async def unknown_runs(self, workflow_ids: Sequence[str]) -> set[str]:
        """See ``Ledger``."""
        rows = await self._run("unknown_runs", list(workflow_ids))
        return {row["workflow_id"] for row in rows}

    async def in_the_way(
        self, replica: str, *, alive: timedelta, orphans: bool, limit: int
    ) -> list[InTheWay]:
        """See ``Ledger``."""
        rows = await self._run("in_the_way", replica, alive, orphans, limit)
        return [InTheWay(**row) for row in rows]

    async def first_run(self, workflow_id: str) -> str | None:
        """See ``Ledger``."""
        rows = await self._run("first_run", workflow_id)
        return rows[0]["first_run_id"] if rows else None

    async def anything_ended(self) -> bool:
        """See ``Ledger``."""
        (row,) = await self._run("anything_ended")
        return bool(row["ended"])

    async def take_stops(
        self, serving: Serving, *, limit: int, lease: timedelta
    ) -> list[StopOrder]:
        """See ``Ledger``."""
        rows = await self._run("take_stops", serving.project, limit, lease)
        return [StopOrder(**row) for row in rows]

    async def stopped(self, orders: Sequence[StopOrder]) -> None:
        """See ``Ledger``."""
        asked = [(order.fire_id, order.stop, order.first_run_id) for order in orders]
        await self._run("stopped", *map(list, zip(*asked, strict=True)))

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        """See ``Ledger``."""
        begin, begun = self._unseen.begin(), time.monotonic()
        rows = await self._run("open_runs", limit, started_before, begin)
        oldest = [row["unseen_since"] for row in rows]
        # Those that were found are seen now, and all others were seen after them.
        self._unseen.learn(max(oldest) if len(rows) == limit else started_before, begun)
        return [OpenRun(row["workflow_id"], row["run_id"], row["started_at"]) for row in rows]

    async def fires(
        self, *, key: str | None = None, status: Status | None = None, limit: int = 50
    ) -> list[Fire]:
        """See ``Ledger``."""
        text = query("list_fires")
        if limit > _FEW:
            text = text.replace(f"LIMIT {_FEW}", f"LIMIT {limit}")
        rows = await self._connections.fetch(text, self._namespace, key, status, limit)
        return [as_fire(row) for row in rows]

    async def fire(self, workflow_id: str) -> Fire | None:
        """See ``Ledger``."""
        rows = await self._run("fire_of_run", workflow_id)
        return as_fire(rows[0]) if rows else None

    async def backfills(self, key: str, *, limit: int = 20) -> list[Backfill]:
        """See ``Ledger``."""
        return list(map(read_backfill, await self._run("backfills", key, False, limit)))

    async def laying(self) -> list[Backfill]:
        """See ``Ledger``."""
        return list(map(read_backfill, await self._run("laying")))

    async def check_data_gaps(self, *, rest: timedelta, limit: int) -> list[DataGap]:
        """See ``Ledger``."""
        return [DataGap.of(**row) for row in await self._run("check_data_gaps", rest, limit)]

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        """See ``Ledger``."""
        return apart([DataGap.of(**row) for row in await self._run("data_gaps", key, limit)])

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        """See ``Ledger``."""
        (row,) = await self._run("overflow", key, QUEUE_FULL)
        return row["windows"], row["last"]

    async def _write(
        self, name: str, fields: Sequence[str], values: Sequence[object], *first: object
    ) -> list[asyncpg.Record]:
        """Write all at once; when that fails one by one, so that a bad one is lost alone."""
        columns = [[storable(getattr(value, field)) for value in values] for field in fields]
        try:
            return await self._connections.fetch(query(name), *first, *columns)
        except (asyncpg.PostgresError, asyncpg.DataError, UnicodeError):
            if len(values) == 1:
                logger.exception("%s: %r could not be written", name, values[0])
                return []
        return [row for value in values for row in await self._write(name, fields, [value], *first)]

    async def _run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run ``queries/<name>.sql``; its first argument is the namespace."""
        return await self._connections.fetch(query(name), self._namespace, *arguments)


def storable(value: object) -> object:
    """Return a text without what PostgreSQL's ``text`` cannot hold; anything else as it is."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
