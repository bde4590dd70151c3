"""What the in-memory ledger does with windows of the past: finds, carves and fills them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.ledger.backfill_records import Backfill, InLine, ToLay
from engine.ledger.data_gaps import NO_RUN_BEFORE
from engine.ledger.fire_records import SURELY_NOT_RUN, Claim, Evidence, Fire, Status, Timing
from engine.ledger.letters import Kind
from engine.ledger.memory_rows import MemoryRows
from engine.ledger.memory_tables import FireEntry, Tables
from engine.ledger.new_fire import NewFire
from engine.ledger.replica_records import Serving
from engine.ledger.schedule_records import ScheduleState
from engine.schedules.model import Schedule
from engine.schedules.ranges import Piece
from engine.schedules.reason_codes import ReasonCode
from engine.schedules.windows import Window, parse_workflow_id


class MemoryBackfilling(MemoryRows):
    """See ``engine.ledger.transactions.Transaction``."""

    async def between(self, key: str, first: datetime, last: datetime) -> list[Fire]:
        """See ``Transaction``."""
        found = [fire for fire in self._windows(key)
                 if fire.last_fire_time >= first and fire.fire_time <= last]  # fmt: skip
        return sorted(found, key=lambda fire: fire.fire_time)

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        """See ``Transaction``."""
        found = await self.between(key, fire_time, fire_time)
        return max(found, key=lambda fire: fire.series, default=None)

    async def definition(self, key: str, version: int) -> Schedule:
        """See ``Transaction``."""
        return self._tables.definitions[key, version]

    async def forgotten_until(self, key: str) -> datetime | None:
        """See ``Transaction``."""
        return self._tables.forgotten.get(key)

    async def carve(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        """See ``Transaction``."""
        number = self._tables.windows[row.key, row.series, row.fire_time]
        gone = self._tables.fires[number]
        self._remove(number)
        for piece in pieces:
            new = replace(
                gone.new,
                bucket=piece.window.bucket,
                fire_time=piece.window.fire_time,
                windows=piece.windows,
                last_fire_time=piece.last,
                workflow_id=piece.window.workflow_id(suffixed),
            )
            self._add(replace(gone, new=new))

    async def lock_laying(self, serving: Serving) -> str | None:
        """See ``Transaction``."""
        now = self._clock()
        turns = [(each.next_at, each.id, each.key)
                 for each in laying_of(self._tables, serving) if each.next_at <= now]  # fmt: skip
        return min(turns)[2] if turns else None

    async def backfills(
        self, key: str, *, laying: bool = False, limit: int = 100
    ) -> list[Backfill]:
        """See ``Transaction``."""
        found = [each for each in backfills_of(self._tables, key)
                 if not laying or each.state == "laying"]  # fmt: skip
        if laying:
            found.sort(key=lambda each: each.next_at)
        return found[:limit]

    async def request_backfill(self, new: Backfill) -> int:
        """See ``Transaction``."""
        number = self._tables.count("backfill")
        self._tables.put(self._tables.backfills, number, replace(new, id=number))
        return number

    async def move_backfill(self, to: Backfill) -> None:
        """See ``Transaction``."""
        if self._tables.backfills[to.id].state == "laying":
            self._tables.put(self._tables.backfills, to.id, to)

    async def backfill_looked_at(self, key: str, at: datetime) -> None:
        """See ``Transaction``."""
        for each in await self.backfills(key, laying=True):
            seen = max(each.looked_at or at, at)
            moved = replace(each, looked_at=seen, next_at=self._clock())
            self._tables.put(self._tables.backfills, each.id, moved)

    async def put_off_backfills(self, key: str, wait: timedelta, error: str | None = None) -> None:
        """See ``Transaction``."""
        for each in await self.backfills(key, laying=True):
            later = replace(each, next_at=self._clock() + wait, error=error)
            self._tables.put(self._tables.backfills, each.id, later)

    async def count_waiting(self, key: str, most: int) -> int:
        """See ``Transaction``."""
        return min(most, sum(not fire.awaits for _, fire in self._of(key, "queued")))

    async def count_windows(
        self, key: str, spans: Sequence[tuple[datetime, datetime]]
    ) -> list[Counter[tuple[Status, ReasonCode | None]]]:
        """See ``Transaction``."""
        rows = [fire for fire in self._windows(key) if fire.windows == 1]
        return [
            Counter(
                (fire.status, fire.reason_code) for fire in rows if after < fire.fire_time <= until
            )
            for after, until in spans
        ]

    async def ranges_between(self, key: str, after: datetime, until: datetime) -> list[Fire]:
        """See ``Transaction``."""
        rows = (fire for fire in self._windows(key) if fire.windows > 1)
        return [row for row in rows if row.fire_time <= until and row.last_fire_time > after]

    async def lay(
        self,
        state: ScheduleState,
        windows: Sequence[ToLay],
        *,
        overlap: InLine,
        owner: str,
        lease: timedelta,
    ) -> tuple[list[Claim], set[str]]:
        """See ``Transaction``."""
        claims: list[Claim] = []
        laid: set[str] = set()
        for each in windows:
            number = self._tables.runs.get(each.workflow_id)
            was = self._tables.fires[number] if number is not None else None
            if not (_may_refill(was, each) if each.again else self._is_free(each)):
                continue
            new = NewFire.backfilled(state, each.window, each.workflow_id, sent=overlap == "allow")
            entry = replace(FireEntry.of(new), overlap=overlap)
            now = self._clock()
            if new.token:
                entry = replace(entry, token=new.token, lease_until=now + lease, starting_at=now,
                                attempts=1, replica=owner)  # fmt: skip
            if number is not None and was is not None:
                history = (*was.history, was.denied)
                entry = replace(entry, history=history, decided_at=was.decided_at)
                self._write(number, entry)
            else:
                number = self._add(entry)
            laid.add(each.workflow_id)
            if new.token:
                claims.append(self._claim(new, number, now))
        if buckets := [each.window.bucket for each in windows if not each.again]:
            row = self._tables.schedules[state.key]
            used = (*buckets, *([] if row.state.max_bucket is None else [row.state.max_bucket]))
            self._put(replace(row, state=replace(row.state, max_bucket=max(used))))
        return claims, laid

    def _is_free(self, each: ToLay) -> bool:
        place = (each.window.key, each.window.series, each.window.fire_time)
        return each.workflow_id not in self._tables.runs and place not in self._tables.windows

    async def found(
        self,
        seen: Evidence,
        window: Window,
        version: int,  # noqa: ARG002 - the present one will do for as long as a process lives
        timing: Timing,
        data_from: datetime | None,
    ) -> None:
        """See ``Transaction``."""
        if seen.workflow_id in self._tables.runs:
            return
        state = self._tables.schedules[window.key].state
        entry = self._entry(state, window, seen.workflow_id, "started", timing)
        self._add(
            replace(
                entry,
                kind=_kind_of(seen.workflow_id, timing),
                run_id=seen.run_id,
                first_run_id=seen.first_run_id,
                started_at=seen.started_at,
                history=({"status": "lost"},),
                data_from=data_from or NO_RUN_BEFORE,
            )
        )


def _kind_of(workflow_id: str, timing: Timing) -> Kind:
    parsed = parse_workflow_id(workflow_id)
    if parsed and parsed.handler:
        return "handler"
    return timing if timing == "manual" or timing == "rerun" else "window"  # noqa: PLR1714 - so that mypy sees it


def backfills_of(tables: Tables, key: str) -> list[Backfill]:
    """Return the backfills of a key, newest first."""
    found = [each for each in tables.backfills.values() if each.key == key]
    return sorted(found, key=lambda each: each.id, reverse=True)


def laying_of(tables: Tables, serving: Serving) -> Iterator[Backfill]:
    """Return the backfills that this replica could lay, or has to end."""
    for each in tables.backfills.values():
        row = tables.schedules[each.key]
        goes_on = each.ends(row.state) or not each.is_halted(row.state)
        if each.state == "laying" and goes_on and row.servable(serving):
            yield each


def _may_refill(was: FireEntry | None, each: ToLay) -> bool:
    if was is None or was.run_id or was.new.windows > 1:
        return False
    return was.status in SURELY_NOT_RUN and was.new.fire_time == each.window.fire_time
