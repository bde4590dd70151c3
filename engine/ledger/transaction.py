"""One transaction of the PostgreSQL ledger: what a tick needs, on top of the other parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import asyncpg

from engine.errors import EngineError
from engine.ledger.declaring import PostgresDeclaring
from engine.ledger.fire_records import Claim
from engine.ledger.new_fire import NewFire
from engine.ledger.operating import PostgresOperating
from engine.ledger.replica_records import Serving
from engine.ledger.rows import as_state
from engine.ledger.schedule_records import ScheduleState, Step
from engine.schedules.time_rules import TIME_RULES


class PostgresTransaction(PostgresDeclaring, PostgresOperating):
    """See ``engine.ledger.transactions.Transaction``."""

    async def lock_due(self, serving: Serving, limit: int) -> list[str]:
        """See ``Transaction``."""
        rows = await self.run(
            "lock_due", serving.project, serving.lanes, list(serving.types), TIME_RULES, limit
        )
        return [row["key"] for row in rows]

    async def lock(self, keys: Sequence[str]) -> None:
        """See ``Transaction``."""
        await self.run("lock", keys)

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        """See ``Transaction``."""
        rows = await self.run(
            "lock_outdated", serving.project, TIME_RULES, after, serving.lanes, limit
        )
        return [row["key"] for row in rows]

    async def read(self, keys: Sequence[str], *, all_open: bool = False) -> list[ScheduleState]:
        """See ``Transaction``."""
        states = []
        for row in await self.run("read_schedules", keys, all_open):
            try:
                states.append(as_state(row))
            except EngineError as error:
                await self.back_off(row["key"], f"its definition cannot be read: {error}")
        return states

    async def record(
        self,
        steps: Sequence[Step],
        *,
        owner: str | None = None,
        lease: timedelta = timedelta(0),
        strict: bool = False,
    ) -> list[Claim]:
        """See ``Transaction``. All steps at once; when that fails, one by one."""
        if not steps:
            return []
        try:
            async with self.connection.transaction():
                return await self._record(steps, owner, lease)
        except asyncpg.PostgresError as error:
            if strict or self.connection.is_closed():
                raise
            if len(steps) == 1:
                await self.back_off(steps[0].state.key, str(error))
                return []
        claims = []
        for step in steps:
            claims += await self.record([step], owner=owner, lease=lease)
        return claims

    async def unservable(
        self, serving: Serving, *, alive: timedelta, steady: timedelta, limit: int
    ) -> list[str]:
        """See ``Transaction``."""
        types = list(serving.types)
        rows = await self.run(
            "unservable",
            serving.project,
            serving.task_queue,
            alive,
            types,
            steady,
            limit,
            TIME_RULES,
        )
        return [row["key"] for row in rows]

    async def _record(
        self, steps: Sequence[Step], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        fires = [NewFire.of(step, decision, owner) for step in steps for decision in step.decisions]
        claims = await self._insert(fires, owner, lease)
        await self._move([(step.state.schedule.cancel_grace, move)
                          for step in steps for move in step.moves])  # fmt: skip
        moved = [
            (s.state.key, s.cursor, s.next_fire_at, s.max_bucket, s.reading, s.resumed)
            for s in steps
        ]
        await self.run("move_cursors", TIME_RULES, *map(list, zip(*moved, strict=True)))
        return claims
