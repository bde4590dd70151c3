"""Maintenance statements of the ledger: what the janitor removes, fills and repairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta

from engine.ledger.fires import DayPart, KeyMaintenance, OldFire, OldRow, OldSnapshot
from engine.ledger.postgres.connections import columns, query
from engine.ledger.postgres.rows import arrays, decoded_schedule
from engine.ledger.postgres.schedule_statements import TickStatements
from engine.schedules.planner import TIME_RULES


class Upkeep(TickStatements):
    """The janitor's statements of one transaction. Their limits keep each to milliseconds."""

    async def remembered_for(self) -> timedelta | None:
        """Return how long Temporal may still remember a closed run; None if not announced."""
        return await self.value("remembered_for")

    async def keys(self, after: str, limit: int) -> list[KeyMaintenance]:
        """Return keys in order after ``after``, including retired ones."""
        rows = [dict(row) for row in await self.run("maintenance_of_keys", after, limit)]
        return [
            KeyMaintenance(schedule=decoded_schedule(row.pop("definition")), **row) for row in rows
        ]

    async def edge_of_kept(self, key: str, keep: int) -> datetime | None:
        """Return the fire time of the ``keep``-th newest row; None when there are fewer."""
        return await self.value("edge_of_kept", key, keep)

    async def old_fires(
        self, key: str, since: datetime, until: datetime, limit: int, *, windows: bool = True
    ) -> list[OldFire]:
        """Return rows of ``since <= fire_time < until``; without ``windows`` only other kinds."""
        given = {"key": key, "since": since, "until": until, "limit": limit}
        rows = await self.filtered("old_fires", {**given, "asked_for": None if windows else True})
        return [OldFire(**row) for row in rows]

    async def over_days(self, key: str, since: datetime, until: datetime) -> list[OldRow]:
        """Return the rows whose windows span several days and reach into ``since <= t < until``."""
        return [OldRow(**row) for row in await self.run("over_days", key, since, until)]

    async def rollup_days(
        self, key: str, since: datetime, until: datetime, parts: Sequence[DayPart]
    ) -> None:
        """Recount the days between two midnights; ``parts``: what long rows add to them."""
        added = columns("rollup_days", parts, utc_day=lambda part: part.day.date())
        await self.run("rollup_days", key, since, until, *added)

    async def open_days(self, after: tuple[str, date], limit: int) -> list[tuple[str, date]]:
        """Return days with runs that were open when they were counted, in order."""
        rows = await self.run("open_days", *after, limit)
        return [(row["key"], row["day"]) for row in rows]

    async def unchanged(self, rows: Sequence[OldFire]) -> set[int]:
        """Lock those of these rows that are not locked; return the IDs of unchanged ones."""
        versions = {row.id: row.version for row in rows}
        found = await self.run("lock_old", [*versions])
        return {row["id"] for row in found if versions[row["id"]] == row["version"]}

    async def merge(self, groups: Sequence[Sequence[OldFire]]) -> None:
        """Merge each group into its first row."""
        ranges = [
            (
                group[0].id,
                sum(row.windows for row in group),
                group[-1].last_fire_time,
                max(row.rested_since for row in group),
            )
            for group in groups
        ]
        gone = [row.id for group in groups for row in group[1:]]
        await self.run("merge_fires", gone, *arrays(ranges))

    async def remove(self, key: str, rows: Sequence[OldFire]) -> None:
        """Delete rows; the days they counted to are never counted again."""
        days = {row.fire_time.date() for row in rows} | {row.last_fire_time.date() for row in rows}
        await self.run("freeze_days", key, sorted(days))
        await self.run("remove_fires", [row.id for row in rows])

    async def done(
        self,
        key: str,
        *,
        summarised: datetime | None = None,
        merged: datetime | None = None,
        settled: datetime | None = None,
        forgotten: datetime | None = None,
    ) -> None:
        """Record the janitor's progress, which never goes back."""
        await self.run("maintenance_done", key, summarised, merged, settled, forgotten)

    async def old_snapshots(self, age: timedelta, rows: int) -> list[OldSnapshot]:
        """Return what has kept at least ``rows`` dead rows from removal for longer than ``age``."""
        found = await self.connection.fetch(query("old_snapshots"), age, rows)
        return [OldSnapshot(**row) for row in found]

    async def next_fires(
        self, project: str, after: str, limit: int
    ) -> Mapping[str, datetime | None]:
        """Return the cached next fire time of schedules that do not back off, in key order."""
        rows = await self.run("next_fires", project, after, TIME_RULES, limit)
        return {row["key"]: row["next_fire_at"] for row in rows}

    async def lock_free(self, keys: Sequence[str]) -> Mapping[str, datetime | None]:
        """Lock the schedules that are not locked; return their cached next fire times."""
        rows = await self.run("lock_free", keys)
        return {row["key"]: row["next_fire_at"] for row in rows}

    async def correct_next(self, key: str, next_fire_at: datetime) -> None:
        """Write the next fire time of a locked schedule."""
        await self.run("correct_next", key, next_fire_at)
