"""Statements about fires: reads of them, requested runs, corrections, bad ends, and backfills."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, get_args

from engine.ledger.alerts import FailedInRow
from engine.ledger.fires import (
    Claim,
    DataGap,
    DeadLetter,
    Ended,
    Evidence,
    Fire,
    FollowUp,
    Status,
    Timing,
    outermost_gaps,
)
from engine.ledger.postgres.connections import values
from engine.ledger.postgres.rows import (
    InTransaction,
    Statements,
    arrays,
    as_backfill,
    as_ended,
    as_fire,
    as_letter,
    as_summary,
    claimed,
    fire_columns,
    input_columns,
)
from engine.ledger.records import (
    Backfill,
    BackfillOverlap,
    NewFire,
    Serving,
    SkippedAhead,
    Start,
    ToLay,
)
from engine.ledger.schedule_rows import SUMMARISED, SUMMARY_ROWS, RunSummary, as_like
from engine.schedules import (
    EARLIEST,
    HORIZON,
    STARTS,
    Reason,
    ReasonCode,
    Stop,
    Window,
    code_of,
    from_seconds,
)
from engine.schedules.planner import TIME_RULES, Move, Piece, Plan, ScheduleState

# --- reads ---

_FIRST, _LAST = from_seconds(EARLIEST), from_seconds(HORIZON)
_ALL = 2**31 - 1

_SUMMARIES_AT_ONCE = 50
"""Keys whose last runs one statement reads, so that none reads more than some thousand rows."""


class FireReads(Statements):
    """Fires for lists, overviews, verbs and the audit; nothing is locked or written."""

    async def fires(
        self,
        *,
        key: str | None = None,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        since: datetime = _FIRST,
        until: datetime = _LAST,
        after: str | None = None,
        limit: int = 50,
    ) -> list[Fire]:
        """Return fires in ``since <= fire_time <= until``, newest fire time first.

        Those of one fire time are in the order of their run ids; of ``until`` only the ones behind
        ``after`` are returned, so that a page continues where another one ended.
        """
        given: dict[str, object]
        given = {"key": key, "since": since, "until": until, "after": after, "limit": limit}
        if reason_code is not None:
            statuses = [status] if status else list(get_args(Status))
            given |= {"reason_code": reason_code, "statuses": statuses}
        elif status is not None:
            is_open = status in {"claimed", "starting", "started"}
            given |= {"status" if status == "completed" else "rare": status}
            given |= {"open": status if is_open else None}
        return [as_fire(row) for row in await self.filtered("fires", given)]

    async def fire(self, workflow_id: str) -> Fire | None:
        """Return the fire of one run id."""
        rows = await self.run("fire_of_run", workflow_id)
        return as_fire(rows[0]) if rows else None

    async def between(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        after: tuple[datetime, int] | None = None,
        limit: int = _ALL,
    ) -> list[Fire]:
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
        rows = await self.run("fires_between", key, first, last, *place, limit)
        return list(map(as_fire, rows))

    async def failing(self, *, key: str | None = None, limit: int = 50) -> list[Fire]:
        """Return fires of open runs with a step that keeps failing, newest fire time first."""
        return [as_fire(row) for row in await self.run("failing_fires", key, limit)]

    async def run_summaries(self, keys: Sequence[str]) -> list[RunSummary]:
        """Return what became of the last runs of each of these keys, in the order of the keys."""
        found = {}
        for begin in range(0, len(keys), _SUMMARIES_AT_ONCE):
            some = list(keys[begin : begin + _SUMMARIES_AT_ONCE])
            for row in await self.run("run_summaries", some, SUMMARY_ROWS, SUMMARISED):
                found[row["key"]] = as_summary(row)
        return [found[key] for key in keys]

    async def count_fires(
        self, first: datetime, last: datetime, *, keys: Collection[str] = (), most: int
    ) -> Counter[Status]:
        """Count windows in ``first <= t < last`` of keys like these by status, of ``most`` rows."""
        rows = await self.run("count_fires", first, last, as_like(keys), most)
        return Counter({row["status"]: row["windows"] for row in rows})

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        """Return how many windows of the key found its queue full, and when the last opened.

        Only the newest 5,000 skipped rows of the key are read.
        """
        (row,) = await self.run("overflow", key)
        return row["windows"], row["last"]

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        """Return the data gaps of a key, newest first."""
        return outermost_gaps(
            [DataGap.of(**row) for row in await self.run("data_gaps", key, limit)]
        )

    async def dead_letters(
        self,
        key: str | None = None,
        *,
        workflow_id: str | None = None,
        bucket: int | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Return the dead letters that match every given filter, newest fire time first.

        ``after`` is the fire time and the run id of the last one of the page before.
        """
        at, behind = after or (None, None)
        given = {"key": key, "workflow_id": workflow_id, "bucket": bucket, "limit": limit}
        rows = await self.filtered("dead_letters", {**given, "at": at, "behind": behind})
        return list(map(as_letter, rows))

    async def count_letters(self, key: str | None, *, most: int) -> int:
        """Return how many of the newest ``most`` dead letters are of a key; None is all."""
        names = None if key is None else {row["key"] for row in await self.run("keys_of", key)}
        rows = await self.run("letters_by_key", most)
        return sum(row["number"] for row in rows if names is None or row["key"] in names)

    async def backfills(
        self, key: str, *, laying: bool = False, limit: int = 100
    ) -> list[Backfill]:
        """Return a key's backfills, newest first; ``laying``: only unfinished ones, by turn."""
        return list(map(as_backfill, await self.run("backfills", key, laying, limit)))

    async def laying(self) -> list[Backfill]:
        """Return every backfill that is still to be laid, by key."""
        return list(map(as_backfill, await self.run("laying")))


# --- requests and corrections ---

_NO_TIME = timedelta(0)


def starting(new: Start, fire: NewFire, binding: int) -> Iterator[tuple[str, list[object]]]:
    """Yield the statements that write a start, each with its arguments after the namespace."""
    yield "start", values("start", new)
    yield "insert_fires", [None, _NO_TIME, binding, *fire_columns("insert_fires", [fire])]


class FireStatements(FireReads, InTransaction):
    """Fires: requested, skipped, given up, found and split."""

    async def lock_unsent(self, fire_ids: Collection[int]) -> set[int]:
        """Lock those of these fires whose send has not begun, and return their IDs."""
        return set(await self.column("lock_unsent", list(fire_ids)))

    async def move(self, state: ScheduleState, moves: Sequence[Move]) -> None:
        """Apply the decisions of overlap on open fires of one schedule."""
        await self._move([(state.schedule.cancel_grace, move) for move in moves])

    async def stop(self, fire_ids: Sequence[int], stop: Stop, *, reason: str) -> None:
        """Request that these runs be cancelled or terminated."""
        many = len(fire_ids)
        await self.run("wish_stops", fire_ids, [stop] * many, [None] * many, [reason] * many)

    async def request(self, new: NewFire) -> bool:
        """Write a requested run; return False if its ID exists already."""
        return bool(await self._write_fires("insert_fires", [new], None, _NO_TIME))

    async def options_of(self, workflow_id: str) -> dict[str, Any] | None:
        """Return the fields of its definition that a run has of its own; None without any."""
        options = await self.value("run_options", workflow_id)
        return json.loads(options) if options else None

    async def declare_starts(self, workflow: str, *, by: str) -> None:
        """Write the row to which the fires of a workflow's starts belong, unless it is there."""
        schedule = Start.definition_of(workflow)
        row = STARTS + workflow, json.dumps(schedule.to_json()), schedule.digest, workflow
        await self.run("declare_starts", *row, TIME_RULES, by)

    async def started(self, workflow: str, start_id: str) -> Start | None:
        """Return the start of a workflow under this ID; None if there never was one."""
        rows = await self.run("started", workflow, start_id)
        return Start(**rows[0]) if rows else None

    async def start(self, new: Start, fire: NewFire) -> bool:
        """Write a start and its fire; return False if its ID was used before.

        ``declare_starts`` comes first, in a transaction of its own: starts share no lock.
        """
        for name, arguments in starting(new, fire, self.binding):
            if not await self.run(name, *arguments):
                return False
        return True

    async def unskip(self, key: str, series: int, fire_time: datetime) -> bool:
        """Remove an operator's skip of a window to come; return False if there is none."""
        return bool(await self.run("unskip", key, series, fire_time))

    async def lift_skips(self, keys: Sequence[str]) -> list[SkippedAhead]:
        """Remove operators' skips of windows to come, and return them."""
        rows = await self.run("lift_skips", keys)
        return [SkippedAhead(**{**row, "reason": Reason("user", row["reason"])}) for row in rows]

    async def give_up(self, workflow_ids: Sequence[str], reason: Reason) -> frozenset[str]:
        """Skip those of these fires whose send has not begun, and return their IDs."""
        return frozenset(await self.column("give_up_runs", workflow_ids, reason, reason.code))

    async def note_ahead(self, step: Plan) -> None:
        """Write decisions on windows to come; cursor and next fire time stay."""
        ahead = [NewFire.of(step, each, None) for each in step.decisions]
        await self._write_fires("insert_fires", ahead, None, _NO_TIME)

    async def window(self, key: str, bucket: int, series: int | None) -> Fire | None:
        """Return the row that begins with this window, by default of the newest series."""
        rows = await self.run("window_fire", key, bucket, series)
        return as_fire(rows[0]) if rows else None

    async def count_reruns(self, window: Window, workflow_id: str) -> int:
        """Return the highest rerun number of the window; its own run has ``workflow_id``."""
        return await self.value("count_reruns", workflow_id, window.key, window.fire_time) or 0

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        """Return the row of this window, alone or in a range; of several series the newest."""
        rows = await self.between(key, fire_time, fire_time)
        return max(rows, key=attrgetter("series", "fire_time"), default=None)

    async def split_range(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        """Split a row of many windows into these pieces."""
        its = row.key, row.series, row.fire_time, row.windows, row.last_fire_time
        ids = {"workflow_id": lambda piece: piece.window.workflow_id(suffixed)}
        await self.many("split_range", pieces, *its, **ids)

    async def found(
        self,
        seen: Evidence,
        window: Window,
        version: int,
        timing: Timing,
        data_from: datetime | None,
    ) -> bool:
        """Write the row of a run that the ledger had lost, from its evidence and its memo.

        ``timing`` is how it started; ``data_from`` is where its data begin, None for a first run.
        False if the window has a row already.
        """
        its = window.key, window.series, window.bucket, window.fire_time, version, timing, data_from
        run = values("found_run", seen)
        return bool(await self.run("found_run", *its, self.binding, *run))

    async def forgotten_until(self, key: str) -> datetime | None:
        """Return up to where rows may have left the ledger; read the rows before calling this.

        Only the archive knows what a window without a row was.
        """
        return await self.value("forgotten_until", key)


# --- bad ends ---


class DeadLetterStatements(InTransaction):
    """Dead letters, failures in a row, and the runs that follow a bad end."""

    async def failed_in_row(self, keys: Sequence[str] | None = None) -> list[FailedInRow]:
        """Return the schedules that are to be paused for their failures, by default of all.

        Runs of windows that were decided before the last resume do not count, whenever they end;
        neither do runs that were cancelled or terminated.
        """
        rows = await self.run("failed_in_row", None if keys is None else list(keys))
        return [FailedInRow(**row) for row in rows]

    async def resolve_dead_letters(self, workflow_ids: Collection[str]) -> set[str]:
        """Mark these dead letters as dealt with; return the IDs of those that were dead letters."""
        return set(await self.column("resolve_dead_letters", list(workflow_ids)))

    async def ended(self, limit: int, *, sealed: bool) -> list[Ended]:
        """Lock and return fires that ended badly and whose follow-up runs are not decided yet.

        Unless ``sealed``, those with a handler and a sealed input are left out.
        """
        return [as_ended(row) for row in await self.run("ended", limit, sealed)]

    async def follow(self, looked_at: Collection[int], news: Sequence[FollowUp]) -> set[str]:
        """Write follow-up runs of these fires, each once; return the IDs of the new ones."""
        given = []
        for each in news:
            plain, sealed = input_columns(each.argument)
            others = {"input": plain, "sealed_input": sealed, "reason_code": code_of(each.reason)}
            given.append(values("follow", each, **others))
        rows = await self.run("follow", *arrays(given)) if given else []
        await self.run("followed", list(looked_at))
        return {row["workflow_id"] for row in rows}


# --- backfills ---


class BackfillStatements(InTransaction):
    """Backfills: requested, laid and counted."""

    async def lock_laying(self, serving: Serving) -> str | None:
        """Lock the schedule whose backfill has its turn, unless it is locked; return its key."""
        of = serving.project, serving.lanes, list(serving.types)
        return await self.value("lock_laying", *of, TIME_RULES, self.binding)

    async def request_backfill(self, new: Backfill) -> int:
        """Write a requested backfill and return its number."""
        return await self.value("request_backfill", *values("request_backfill", new)) or 0

    async def move_backfill(self, to: Backfill) -> None:
        """Write the progress and state of a backfill."""
        left_alone = json.dumps(dict(to.left_alone))
        moved = values("move_backfill", to, left_alone=left_alone)
        await self.run("move_backfill", to.id, *moved)

    async def backfill_looked_at(self, key: str, at: datetime) -> None:
        """Record that the key's runs were looked up for signs of lost commits up to ``at``."""
        await self.run("backfill_looked_at", key, at)

    async def put_off_backfills(self, key: str, wait: timedelta, error: str | None = None) -> None:
        """Delay the backfills of a key, because of an error or to look up its runs first."""
        await self.run("put_off_backfills", key, wait, error)

    async def count_waiting(self, key: str, most: int) -> int:
        """Return how many fires of a key wait for a place, at most ``most``."""
        return await self.value("count_waiting", key, most) or 0

    async def count_windows(
        self, key: str, spans: Sequence[tuple[datetime, datetime]]
    ) -> list[Counter[tuple[Status, ReasonCode | None]]]:
        """Count single-window rows in each ``after < t <= until`` by status and reason code."""
        counts = [Counter[tuple[Status, ReasonCode | None]]() for _ in spans]
        after, until = map(list, zip(*spans, strict=True)) if spans else ([], [])
        for row in await self.run("count_windows", key, after, until):
            counts[row["number"] - 1][row["status"], row["reason_code"]] = row["windows"]
        return counts

    async def ranges_between(self, key: str, after: datetime, until: datetime) -> list[Fire]:
        """Return the rows of ranges that reach into ``after < t <= until``."""
        return list(map(as_fire, await self.run("ranges_between", key, after, until)))

    async def lay(
        self,
        state: ScheduleState,
        windows: Sequence[ToLay],
        *,
        overlap: BackfillOverlap,
        owner: str,
        lease: timedelta,
    ) -> tuple[list[Claim], set[str]]:
        """Start windows that had no run; return the claims, and the IDs that were written.

        With ``allow`` the owner sends them, with ``queue`` they wait in line. Left out are windows
        that have a new row, one that is not ``SURELY_NOT_RUN``, or an ID that another row has.
        """
        claims: list[Claim] = []
        laid: set[str] = set()
        for name, again in (("refill", True), ("insert_fires", False)):
            made = [
                NewFire.backfilled(state, each, overlap) for each in windows if each.again is again
            ]
            rows = await self._write_fires(name, made, owner, lease)
            laid |= {row["workflow_id"] for row in rows}
            claims += claimed(made, rows)
        new = [each.window.bucket for each in windows if not each.again]
        if new and (state.max_bucket is None or max(new) > state.max_bucket):
            await self.run("raise_max_bucket", state.key, max(new))
        return claims, laid
