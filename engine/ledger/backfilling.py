"""The PostgreSQL ledger's statements about backfills. None is run for each window."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg

from engine.ledger.backfill_records import Backfill, InLine, ToLay, as_backfill
from engine.ledger.fire_records import Claim, Fire, Status
from engine.ledger.new_fire import NewFire
from engine.ledger.replica_records import Serving
from engine.ledger.rows import as_fire
from engine.ledger.schedule_records import ScheduleState
from engine.ledger.statements import Statements, claimed
from engine.schedules.reason_codes import ReasonCode
from engine.schedules.time_rules import TIME_RULES


class PostgresBackfilling(Statements):
    """See ``engine.ledger.transactions.Backfilling``."""

    async def lock_laying(self, serving: Serving) -> str | None:
        """See ``Transaction``."""
        types = list(serving.types)
        rows = await self.run("lock_laying", serving.project, serving.lanes, types, TIME_RULES)
        return rows[0]["key"] if rows else None

    async def backfills(
        self, key: str, *, laying: bool = False, limit: int = 100
    ) -> list[Backfill]:
        """See ``Transaction``."""
        return list(map(read_backfill, await self.run("backfills", key, laying, limit)))

    async def request_backfill(self, new: Backfill) -> int:
        """See ``Transaction``."""
        (row,) = await self.run(
            "request_backfill", new.project, new.key, new.series, new.definition_version,
            new.first, new.last, new.cursor, new.overlap, list(new.include), new.reason,
            new.requested_by, new.requested_at, new.windows,
        )  # fmt: skip
        return int(row["id"])

    async def move_backfill(self, to: Backfill) -> None:
        """See ``Transaction``."""
        await self.run(
            "move_backfill", to.id, to.cursor, to.state, to.ended_reason, to.next_at, to.laid_at,
            to.ended_at, to.laid, json.dumps(dict(to.left_alone)), to.error,
        )  # fmt: skip

    async def backfill_looked_at(self, key: str, at: datetime) -> None:
        """See ``Transaction``."""
        await self.run("backfill_looked_at", key, at)

    async def put_off_backfills(self, key: str, wait: timedelta, error: str | None = None) -> None:
        """See ``Transaction``."""
        await self.run("put_off_backfills", key, wait, error)

    async def count_waiting(self, key: str, most: int) -> int:
        """See ``Transaction``."""
        (row,) = await self.run("count_waiting", key, most)
        return int(row["waiting"])

    async def count_windows(
        self, key: str, spans: Sequence[tuple[datetime, datetime]]
    ) -> list[Counter[tuple[Status, ReasonCode | None]]]:
        """See ``Transaction``. One statement, however many spans."""
        counts = [Counter[tuple[Status, ReasonCode | None]]() for _ in spans]
        after, until = map(list, zip(*spans, strict=True)) if spans else ([], [])
        for row in await self.run("count_windows", key, after, until):
            counts[row["number"] - 1][row["status"], row["reason_code"]] = row["windows"]
        return counts

    async def ranges_between(self, key: str, after: datetime, until: datetime) -> list[Fire]:
        """See ``Transaction``."""
        return list(map(as_fire, await self.run("ranges_between", key, after, until)))

    async def lay(
        self,
        state: ScheduleState,
        windows: Sequence[ToLay],
        *,
        overlap: InLine,
        owner: str,
        lease: timedelta,
    ) -> tuple[list[Claim], set[str]]:
        """See ``Transaction``. Two statements, however many windows."""
        claims: list[Claim] = []
        laid: set[str] = set()
        about = (state.project, state.key, state.definition_version, state.workflow_type,
                 state.schedule.task_queue)  # fmt: skip
        for name, again in (("refill", True), ("insert_backfill", False)):
            fires = [
                NewFire.backfilled(state, each.window, each.workflow_id, sent=overlap == "allow")
                for each in windows
                if each.again is again
            ]
            if not fires:
                continue
            columns = [(fire.series, fire.bucket, fire.fire_time, fire.workflow_id, fire.token)
                       for fire in fires]  # fmt: skip
            rows = await self.run(
                name, *about, overlap, owner, lease,
                *map(list, zip(*columns, strict=True)),
            )  # fmt: skip
            laid |= {row["workflow_id"] for row in rows}
            claims += claimed(fires, rows)
        new = [each.window.bucket for each in windows if not each.again]
        if new and (state.max_bucket is None or max(new) > state.max_bucket):
            await self.run("raise_max_bucket", state.key, max(new))
        return claims, laid


def read_backfill(row: asyncpg.Record) -> Backfill:
    """Return what ``backfills.sql`` and ``laying.sql`` read."""
    return as_backfill(dict(row), json.loads(row["left_alone"]))
