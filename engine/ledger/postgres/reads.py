"""Reads of a ledger for lists, overviews and the audit; none of them locks or writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from operator import attrgetter
from typing import get_args

from engine.ledger.alerts import Facts, SeenReplica
from engine.ledger.fires import AccountRow, DataGap, Fire, Status, outermost_gaps
from engine.ledger.postgres.connections import filtered_query, query
from engine.ledger.postgres.rows import (
    LedgerPart,
    as_account_row,
    as_action,
    as_backfill,
    as_fire,
    as_next_fire,
    as_schedule,
    as_standing,
    as_summary,
    as_version,
)
from engine.ledger.postgres.stored_alerts import seen_replicas, stored_facts
from engine.ledger.records import (
    ActionRow,
    Backfill,
    DefinitionVersion,
    Load,
    QueueUse,
    Serving,
    Standing,
    Totals,
)
from engine.ledger.schedule_rows import (
    SUMMARISED,
    SUMMARY_ROWS,
    NextFire,
    RunSummary,
    ScheduleFilter,
    ScheduleRow,
    as_like,
)
from engine.schedules import EARLIEST, HORIZON, STARTS, ReasonCode, from_seconds

_FIRST, _LAST = from_seconds(EARLIEST), from_seconds(HORIZON)

_FEW = 10_000
"""The number in ``list_fires.sql`` that makes the query planner expect few rows."""

_PAGE = 1000
"""The same in ``fires_page.sql``."""

_SUMMARIES_AT_ONCE = 50
"""Keys whose last runs one statement reads, so that none reads more than some thousand rows."""

_LOOKED_AT = 5000
"""The most schedules that ``upcoming`` reads to find windows that are not excluded."""


class Reads(LedgerPart):
    """Reads by commands, the API, the page and the audit."""

    async def schedules(
        self,
        project: str | None = None,
        *,
        key: str | None = None,
        wanted: ScheduleFilter | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRow]:
        """Return schedules in key order for display, including retired ones.

        With ``wanted`` only those that match it, without the rows of starts; ``after`` is a key.
        The order of keys is that of the database, and always the same.
        """
        given = {"project": project, "key": key, "after": after, "limit": limit}
        given |= {**wanted.given(), "but": STARTS} if wanted is not None else {}
        named = {name: value for name, value in given.items() if value is not None}
        text, order = filtered_query("list_schedules", frozenset(named))
        rows = await self._connections.fetch(
            text, self._namespace, *(named[each] for each in order)
        )
        return [as_schedule(row) for row in rows]

    async def count_schedules(self, project: str) -> int:
        """Return how many schedules of the project are not retired."""
        (row,) = await self._run("count_schedules", project)
        return int(row["living"])

    async def upcoming(self, project: str, limit: int) -> list[NextFire]:
        """Return the next start of each of the project's schedules, earliest first.

        Excluded and skipped windows are passed over. If more than 5,000 schedules have such windows
        before the first start of another schedule, that start may be missing.
        """
        looked_at = limit
        while True:
            rows = await self._run("upcoming", project, looked_at)
            found = sorted(
                filter(None, map(as_next_fire, rows)), key=attrgetter("fire_time", "key")
            )[:limit]
            # Schedules behind the last row start no earlier than it.
            certain = len(found) == limit and found[-1].fire_time <= rows[-1]["fire_time"]
            if certain or len(rows) < looked_at or looked_at >= _LOOKED_AT:
                return found
            looked_at = min(looked_at * 10, _LOOKED_AT)

    async def keys_of(self, key: str) -> list[str]:
        """Return all keys that a schedule has had, by any of them, the present one first."""
        return [row["key"] for row in await self._run("keys_of", key)]

    async def children(self, key: str) -> list[str]:
        """Return the schedules that wait for this one's windows, in key order."""
        return [row["key"] for row in await self._run("children", key)]

    async def fires(
        self,
        *,
        key: str | None = None,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        since: datetime = _FIRST,
        until: datetime = _LAST,
        limit: int = 50,
    ) -> list[Fire]:
        """Return fires in ``since <= fire_time <= until``, newest fire time first."""
        given: tuple[object, ...]
        if reason_code is None:
            text, given = query("list_fires"), (key, status)
            if limit > _FEW:
                text = text.replace(f"LIMIT {_FEW}", f"LIMIT {limit}")
        else:
            statuses = [status] if status else get_args(Status)
            text, given = query("fires_of_reason"), (reason_code, key, statuses)
        given = *given, limit, since, until
        rows = await self._connections.fetch(text, self._namespace, *given)
        return [as_fire(row) for row in rows]

    async def fires_page(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        after: str = "",
        limit: int,
    ) -> list[Fire]:
        """Return fires of a key in ``first <= fire_time <= last``, newest fire time first.

        Those of one fire time are in the order of their run ids; of ``last`` only the ones behind
        ``after`` are returned, so that a page continues where another one ended.
        """
        text = query("fires_page")
        if limit > _PAGE:
            text = text.replace(f"LIMIT {_PAGE}", f"LIMIT {limit}")
        given = key, first, last, status, reason_code, after, get_args(Status), limit
        rows = await self._connections.fetch(text, self._namespace, *given)
        return [as_fire(row) for row in rows]

    async def fire(self, workflow_id: str) -> Fire | None:
        """Return the fire of one run id."""
        rows = await self._run("fire_of_run", workflow_id)
        return as_fire(rows[0]) if rows else None

    async def failing(self, *, key: str | None = None, limit: int = 50) -> list[Fire]:
        """Return fires of open runs with a step that keeps failing, newest fire time first."""
        return [as_fire(row) for row in await self._run("failing_fires", key, limit)]

    async def run_summaries(self, keys: Sequence[str]) -> list[RunSummary]:
        """Return what became of the last runs of each of these keys, in the order of the keys."""
        found = {}
        for begin in range(0, len(keys), _SUMMARIES_AT_ONCE):
            some = list(keys[begin : begin + _SUMMARIES_AT_ONCE])
            for row in await self._run("run_summaries", some, SUMMARY_ROWS, SUMMARISED):
                found[row["key"]] = as_summary(row)
        return [found[key] for key in keys]

    async def count_fires(
        self, first: datetime, last: datetime, *, keys: Collection[str] = (), most: int
    ) -> Counter[Status]:
        """Count windows in ``first <= t < last`` of keys like these by status, of ``most`` rows."""
        rows = await self._run("count_fires", first, last, as_like(keys), most)
        return Counter({row["status"]: row["windows"] for row in rows})

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        """Return how many windows of the key found its queue full, and when the last opened.

        Only the newest 5,000 skipped rows of the key are read.
        """
        (row,) = await self._run("overflow", key)
        return row["windows"], row["last"]

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        """Return recorded actions, newest first."""
        return [as_action(row) for row in await self._run("list_actions", key, limit)]

    async def backfills(self, key: str, *, limit: int = 20) -> list[Backfill]:
        """Return the backfills of a key, newest first."""
        return list(map(as_backfill, await self._run("backfills", key, False, limit)))

    async def laying(self) -> list[Backfill]:
        """Return every backfill that is still to be laid, by key."""
        return list(map(as_backfill, await self._run("laying")))

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        """Return the data gaps of a key, newest first."""
        return outermost_gaps(
            [DataGap.of(**row) for row in await self._run("data_gaps", key, limit)]
        )

    async def standings(self, keys: Sequence[str]) -> list[Standing]:
        """Return the present state of these schedules, in key order; unknown keys are left out."""
        return [as_standing(row) for row in await self._run("standings", list(keys))]

    async def definition_versions(self, key: str, *, limit: int) -> list[DefinitionVersion]:
        """Return the newest versions of a schedule's definition, newest first."""
        return [as_version(row) for row in await self._run("definition_versions", key, limit)]

    async def account_rows(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        after: tuple[datetime, int] | None = None,
        limit: int,
    ) -> list[AccountRow]:
        """Return rows of windows of every series in ``first <= t <= last``, by fire time.

        Rows of one fire time are in the order of their series. Ranges that reach into the stretch
        belong to it.

        Args:
            key: the schedule's key.
            first: the start of the stretch.
            last: its end.
            after: fire time and series of the row before the first one to return; None begins.
            limit: most rows to return.
        """
        place = after or (None, None)
        rows = await self._run("account_rows", key, first, last, *place, limit)
        return [as_account_row(row) for row in rows]

    async def count_letters(self, key: str | None, *, most: int) -> int:
        """Return how many of the newest ``most`` dead letters are of a key; None is all."""
        names = None if key is None else {*await self.keys_of(key)}
        rows = await self._run("letters_by_key", most)
        return sum(row["number"] for row in rows if names is None or row["key"] in names)

    async def queue_use(self) -> list[QueueUse]:
        """Return the steps that run now in each step queue, by task queue."""
        return [QueueUse(**row) for row in await self._run("queue_use")]

    async def totals(self, serving: Serving, *, most: int) -> Totals:
        """Return how much of each kind there is in the namespace, at most ``most`` of each.

        Overdue are counted for the project and the lanes of ``serving``.
        """
        (row,) = await self._run("totals", most, serving.project, list(serving.lanes))
        return Totals(**row)

    async def load(self, *, most: int) -> Load:
        """Return what replicas hold, and since when a window is due.

        ``most`` claims are counted, and of each task queue as many due schedules are read.
        """
        held = await self._run("held_claims", most)
        (due,) = await self._run("due_since", most)
        return Load({row["owner"]: row["claims"] for row in held}, due["due_since"], due["awaits"])

    async def facts(self, *, limit: int = 200) -> Facts:
        """Return what a look for problems judges; of each kind ``limit`` at most."""
        return await stored_facts(self._run, limit)

    async def seen_replicas(self) -> list[SeenReplica]:
        """Return every replica that has not withdrawn, silent ones too."""
        return await seen_replicas(self._run)
