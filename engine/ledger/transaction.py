"""One transaction of the PostgreSQL ledger: what a tick needs, on top of the other parts."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from datetime import timedelta

import asyncpg

from engine.errors import EngineError
from engine.ledger.backfilling import PostgresBackfilling
from engine.ledger.connections import Connection
from engine.ledger.declaring import PostgresDeclaring
from engine.ledger.fire_records import Claim
from engine.ledger.floors import Floors
from engine.ledger.new_fire import NewFire
from engine.ledger.operating import PostgresOperating
from engine.ledger.replica_records import Serving
from engine.ledger.rows import as_state, is_parsed
from engine.ledger.schedule_records import ScheduleState, Step
from engine.schedules.decisions import READ_AHEAD
from engine.schedules.time_rules import TIME_RULES

_FOLDED = 20
"""Changes of a line from which on they are folded into one."""
_PARSED_AT_ONCE = 100_000
"""Characters of definitions that a tick parses in its transaction: some tens of milliseconds."""


class PostgresTransaction(PostgresDeclaring, PostgresOperating, PostgresBackfilling):
    """See ``engine.ledger.transactions.Transaction``.

    Args:
        floors: from when on to look for what is due.
        older: whether replicas live that read ``schedules`` and not ``positions``.
        unparsed: takes in definitions that ``read`` has left out.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        patience: float,
        *,
        floors: Floors,
        older: bool,
        unparsed: set[str],
    ) -> None:
        super().__init__(connection, namespace, patience)
        self._floors, self._older, self._unparsed = floors, older, unparsed

    async def lock_due(
        self,
        serving: Serving,
        limit: int,
        *,
        but: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[str]:
        """See ``Transaction``."""
        types, (due, *_) = list(serving.types), self._floors.of(serving)
        rows = await self.run(
            "lock_due", serving.project, serving.lanes, types, TIME_RULES, limit, due,
            list(but), None if only is None else list(only),
        )  # fmt: skip
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

    async def lock_unsent(self, fire_ids: Collection[int]) -> set[int]:
        """See ``Transaction``."""
        return {row["id"] for row in await self.run("lock_unsent", list(fire_ids))}

    async def read(
        self, keys: Sequence[str], *, all_open: bool = False, at_once: bool = False
    ) -> list[ScheduleState]:
        """See ``Transaction``."""
        states, unparsed = [], 0
        for row in await self.run("read_schedules", keys, all_open, READ_AHEAD, random.random()):
            text = row["definition"]
            if at_once and not is_parsed(text):
                unparsed += len(text)
                if unparsed > _PARSED_AT_ONCE:
                    self._unparsed.add(text)
                    continue
            try:
                states.append(as_state(row, all_open=all_open))
            except (EngineError, ValueError) as error:
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
            (s.state.key, s.cursor, s.next_fire_at, s.max_bucket, s.reading, s.resumed,
             owner is None or self._older or not s.plain)
            for s in steps
        ]  # fmt: skip
        await self.run("move_cursors", TIME_RULES, *map(list, zip(*moved, strict=True)))
        if long := [s.state.key for s in steps if s.state.line_changes > _FOLDED]:
            await self.run("fold_lines", long)
        return claims
