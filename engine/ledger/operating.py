"""The PostgreSQL ledger's statements for operators and applications."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from engine.ledger.fire_records import Evidence, Fire, Timing
from engine.ledger.follow_ups import Ended, FollowUp, as_ended
from engine.ledger.letters import DeadLetter, as_letter
from engine.ledger.new_fire import NewFire
from engine.ledger.noted import noted
from engine.ledger.operating_records import Action, NewRequest, SkippedAhead
from engine.ledger.rows import as_fire, parse_definition
from engine.ledger.schedule_records import Pause, ScheduleState, Step
from engine.ledger.statements import Statements
from engine.schedules.decisions import Move, Stop
from engine.schedules.model import Schedule
from engine.schedules.ranges import Piece
from engine.schedules.windows import Window

_NO_TIME = timedelta(0)


class PostgresOperating(Statements):
    """What operators and applications need; see ``Operating``."""

    async def pause(self, key: str, pause: Pause) -> None:
        """See ``Transaction``."""
        await self.run("pause", key, pause.at, pause.reason, pause.by, pause.until)
        await self.run("revoke", [key], "paused", False)

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        """See ``Transaction``."""
        await self.run("resume", key, next_fire_at)

    async def move(self, state: ScheduleState, moves: Sequence[Move]) -> None:
        """See ``Transaction``."""
        await self._move([(state.schedule.cancel_grace, move) for move in moves])

    async def stop(self, fire_ids: Sequence[int], stop: Stop, *, reason: str) -> None:
        """See ``Transaction``."""
        many = len(fire_ids)
        await self.run("wish_stops", fire_ids, [stop] * many, [None] * many, [reason] * many)

    async def request(self, state: ScheduleState, new: NewRequest) -> bool:
        """See ``Transaction``."""
        rows = await self.run(
            "request_fire", state.project, state.key, new.series, new.bucket, new.fire_time,
            new.kind, state.definition_version, new.workflow_id, state.workflow_type,
            state.schedule.task_queue, new.status, new.reason, new.kind, new.overlap,
            json.dumps(new.own_input[0]) if new.own_input else None,
        )  # fmt: skip
        return bool(rows)

    async def make_due(self, keys: Sequence[str]) -> None:
        """See ``Transaction``."""
        await self.run("make_due", list(keys))

    async def unskip(self, key: str, series: int, fire_time: datetime) -> bool:
        """See ``Transaction``."""
        return bool(await self.run("unskip", key, series, fire_time))

    async def lift_skips(self, keys: Sequence[str]) -> list[SkippedAhead]:
        """See ``Transaction``."""
        return [SkippedAhead(**row) for row in await self.run("lift_skips", keys)]

    async def give_up(self, workflow_ids: Sequence[str], reason: str) -> frozenset[str]:
        """See ``Transaction``."""
        rows = await self.run("give_up_runs", workflow_ids, reason)
        return frozenset(row["workflow_id"] for row in rows)

    async def note_ahead(self, step: Step) -> None:
        """See ``Transaction``."""
        await self._insert(
            [NewFire.of(step, each, None) for each in step.decisions], None, _NO_TIME
        )

    async def window(self, key: str, bucket: int, series: int | None) -> Fire | None:
        """See ``Transaction``."""
        rows = await self.run("window_fire", key, bucket, series)
        return as_fire(rows[0]) if rows else None

    async def count_reruns(self, window: Window, workflow_id: str) -> int:
        """See ``Transaction``."""
        (row,) = await self.run("count_reruns", workflow_id, window.key, window.fire_time)
        return int(row["reruns"])

    async def fire(self, workflow_id: str) -> Fire | None:
        """See ``Transaction``."""
        rows = await self.run("fire_of_run", workflow_id)
        return as_fire(rows[0]) if rows else None

    async def between(self, key: str, first: datetime, last: datetime) -> list[Fire]:
        """See ``Transaction``."""
        return [as_fire(row) for row in await self.run("fires_between", key, first, last)]

    async def definition(self, key: str, version: int) -> Schedule:
        """See ``Transaction``."""
        (row,) = await self.run("definition", key, version)
        return parse_definition(row["definition"])

    async def forgotten_until(self, key: str) -> datetime | None:
        """See ``Transaction``."""
        rows = await self.run("forgotten_until", key)
        return rows[0]["forgotten_until"] if rows else None

    async def carve(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        """See ``Transaction``."""
        columns = [
            (piece.window.bucket, piece.window.fire_time, piece.windows, piece.last,
             piece.window.workflow_id(suffixed))
            for piece in pieces
        ]  # fmt: skip
        await self.run(
            "carve", row.key, row.series, row.fire_time, *map(list, zip(*columns, strict=True)),
            row.windows, row.last_fire_time,
        )  # fmt: skip

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        """See ``Transaction``."""
        rows = await self.run("covering_fire", key, fire_time)
        return as_fire(rows[0]) if rows else None

    async def found(
        self,
        seen: Evidence,
        window: Window,
        version: int,
        timing: Timing,
        data_from: datetime | None,
    ) -> None:
        """See ``Transaction``."""
        await self.run(
            "found_run", window.key, window.series, window.bucket, window.fire_time, version,
            seen.workflow_id, timing, seen.run_id, seen.started_at, seen.first_run_id, data_from,
        )  # fmt: skip

    async def letters(
        self,
        key: str | None = None,
        *,
        workflow_id: str | None = None,
        bucket: int | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """See ``Transaction``."""
        rows = await self.run("letters", key, workflow_id, bucket, limit)
        return [as_letter(row) for row in rows]

    async def deal(self, workflow_ids: Collection[str]) -> set[str]:
        """See ``Transaction``."""
        rows = await self.run("deal", list(workflow_ids))
        return {row["workflow_id"] for row in rows}

    async def ended(self, limit: int) -> list[Ended]:
        """See ``Transaction``."""
        return [as_ended(row) for row in await self.run("ended", limit)]

    async def follow(self, looked_at: Collection[int], news: Sequence[FollowUp]) -> set[str]:
        """See ``Transaction``."""
        columns = [
            (each.fire_id, each.workflow_id, each.workflow_type, each.reason,
             json.dumps(each.argument))
            for each in news
        ]  # fmt: skip
        rows = await self.run("follow", *map(list, zip(*columns, strict=True))) if columns else []
        await self.run("followed", list(looked_at))
        return {row["workflow_id"] for row in rows}

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        """See ``Transaction``."""
        columns = [
            (each.project, each.key, each.verb, each.reason, each.workflow_id,
             noted(each.before), noted(each.after))
            for each in actions
        ]  # fmt: skip
        if columns:
            await self.run("act", by, *map(list, zip(*columns, strict=True)))
            await self.run("hint")
