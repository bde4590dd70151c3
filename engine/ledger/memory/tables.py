"""Tables of the in-memory ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from engine.ledger.fires import (
    DENIED,
    NO_RUN_BEFORE,
    OF_A_WINDOW,
    OPEN,
    PENDING,
    REPEATS,
    Claim,
    DataGap,
    Evidence,
    Fire,
    Kind,
    Status,
    Timing,
    shown_timing,
)
from engine.ledger.records import ActionRow, Backfill, NewFire, ProjectRow, QueueRow, Serving
from engine.schedules.ids import Window
from engine.schedules.model import Schedule
from engine.schedules.planner.decisions import TIME_RULES, Dependencies, OpenFire, ScheduleState
from engine.schedules.policies import Overlap, Reason, Stop, code_of

# --- tables and journal ---
# Rows of the in-memory ledger, and the journal that rolls back a failed transaction.

K = TypeVar("K")
V = TypeVar("V")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """A schedule's row."""

    state: ScheduleState
    next_fire_at: datetime | None
    error: str | None = None

    @property
    def lane(self) -> str:
        """The lane, as in the column of the same name."""
        return self.state.schedule.lane

    def servable(self, serving: Serving) -> bool:
        """Return whether this replica may claim it."""
        known = self.state.schedule.external or self.state.workflow_type in serving.types
        mine = self.state.project == serving.project and self.lane in serving.lanes
        return mine and known and self.state.rules <= TIME_RULES


@dataclass(frozen=True, slots=True)
class FireEntry:
    """A fire's row: what was written first, and its state since."""

    new: NewFire
    status: Status
    reason: Reason | None
    timing: Timing | None
    token: UUID | None
    lease_until: datetime | None
    starting_at: datetime | None
    attempts: int
    replica: str | None
    run_id: str | None = None
    started_at: datetime | None = None
    closed_at: datetime | None = None
    seen_at: datetime | None = None
    error: str | None = None
    history: tuple[dict[str, object], ...] = ()
    kind: Kind = "window"
    own_input: tuple[Any, ...] = ()
    overlap: Overlap | None = None
    open_at: datetime | None = None
    lost_at: datetime | None = None
    stop: Stop | None = None
    stop_at: datetime | None = None
    stop_grace: timedelta | None = None
    stop_reason: str | None = None
    stop_asked_at: datetime | None = None
    first_run_id: str | None = None
    decided_at: datetime | None = None
    dealt_at: datetime | None = None
    not_undone: str | None = None
    followed: bool = False
    awaits: Dependencies | None = None
    data_from: datetime | None = None

    @classmethod
    def of(cls, new: NewFire) -> FireEntry:
        """Return the row of a fire that is not being sent."""
        return cls(
            new=new, status=new.status, reason=new.reason, timing=new.timing, token=None,
            lease_until=None, starting_at=None, attempts=0, replica=None,
        )  # fmt: skip

    @property
    def window(self) -> Window:
        """The window of the fire, or the first of several."""
        return Window(self.new.key, self.new.series, self.new.bucket, self.new.fire_time)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Arguments of its run: one or none."""
        schedule = self.new.schedule
        return self.own_input or ((schedule.input,) if schedule.has_input else ())

    def in_the_way(self, number: int) -> OpenFire | None:
        """Return what a plan needs of it while its run is open or may still start."""
        if self.lost_at is not None or self.status not in OPEN or self.kind == "handler":
            return None
        return OpenFire(
            fire_id=number,
            workflow_id=self.new.workflow_id,
            status=self.status,  # type: ignore[arg-type] # one of OPEN
            fire_time=(self.kind == "rerun" and self.decided_at) or self.new.fire_time,
            open_at=self.open_at,
            overlap=self.overlap,
            stop=self.stop,
            timing=self.timing,
        )

    def is_news(self, seen: Evidence) -> bool:
        """Return whether the run is newer than the row's; see ``record_evidence.sql``."""
        if self.run_id is None or self.started_at is None:
            return True
        if self.run_id == seen.run_id:
            return self.status == "started" and seen.closed is not None
        if seen.last and self.status == "started":
            return True
        # Two clocks: see record_evidence.sql.
        skew = timedelta(seconds=5) if self.status == "started" else timedelta(0)
        return seen.started_at >= self.started_at - skew

    @property
    def denied(self) -> dict[str, object]:
        """The status for the history, used when evidence or a backfill overrules it."""
        return {
            "status": self.status, "reason": self.reason, "error": self.error,
            "reason_code": code_of(self.reason),
        }  # fmt: skip

    def as_fire(self) -> Fire:
        """Return the fire as shown to users."""
        new = self.new
        lag = self.started_at - new.fire_time if self.started_at else None
        return Fire(
            key=new.key,
            series=new.series,
            bucket=new.bucket,
            fire_time=new.fire_time,
            windows=new.windows,
            last_fire_time=new.last_fire_time,
            workflow_id=new.workflow_id,
            run_id=self.run_id,
            status=self.status,
            reason=self.reason,
            timing=shown_timing(self.kind, self.timing),
            started_at=self.started_at,
            closed_at=self.closed_at,
            lag_ms=round(lag / timedelta(milliseconds=1)) if lag is not None else None,
            error=self.error,
            replica=self.replica,
            definition_version=new.definition_version,
            project=new.project,
            history=self.history,
            reason_code=code_of(self.reason),
        )


@dataclass
class Tables:
    """All tables of the in-memory ledger.

    Rows are frozen; every change goes through ``put`` or ``drop``, which a failing ``undoable``
    block rolls back.
    """

    schedules: dict[str, ScheduleEntry] = field(default_factory=dict)
    fires: dict[int, FireEntry] = field(default_factory=dict)
    windows: dict[tuple[str, int, datetime], int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    projects: dict[str, ProjectRow] = field(default_factory=dict)
    definitions: dict[tuple[str, int], Schedule] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    forgotten: dict[str, datetime] = field(default_factory=dict)
    actions: dict[int, ActionRow] = field(default_factory=dict)
    rules: dict[tuple[str, str], Mapping[str, Any] | None] = field(default_factory=dict)
    counters: dict[str, int] = field(
        default_factory=lambda: {"epoch": 1, "fire": 0, "action": 0, "backfill": 0}
    )
    queues: dict[str, QueueRow] = field(default_factory=dict)
    backfills: dict[int, Backfill] = field(default_factory=dict)
    gaps: dict[tuple[str, datetime], tuple[datetime, int, bool]] = field(default_factory=dict)
    """Denied windows: when, their buckets, and whether that was reported as a gap."""
    remembers: bool = False
    _journal: list[tuple[MutableMapping[object, object], object, object]] = field(
        default_factory=list
    )

    def put(self, table: MutableMapping[K, V], key: K, value: V) -> None:
        """Write one row."""
        self._journal.append((table, key, table.get(key, _MISSING)))  # type: ignore[arg-type] # any table will do
        table[key] = value

    def of_key(self, key: str) -> list[int]:
        """Return the numbers of the key's fires, in the order of writing."""
        return [number for number, fire in self.fires.items() if fire.new.key == key]

    def drop(self, table: MutableMapping[K, V], key: K) -> None:
        """Remove one row."""
        self._journal.append((table, key, table.pop(key)))  # type: ignore[arg-type] # any table will do

    def rules_of(self, new: NewFire) -> Mapping[str, Any] | None:
        """Return the run options announced with the type of a fire."""
        return self.rules.get((new.task_queue, new.workflow_type or ""))

    def due_now(self, key: str, now: datetime) -> ScheduleEntry | None:
        """Return a schedule's row, due now; None if it is due already or is held."""
        row = self.schedules.get(key)
        if row is None or not (row.next_fire_at is None or row.next_fire_at > now):
            return None
        hold, pause = row.state.hold, row.state.pause
        ends = hold == "paused" and pause and pause.until and pause.until <= now
        return replace(row, next_fire_at=now) if hold is None or ends else None

    def count(self, name: str) -> int:
        """Increment a counter and return it."""
        self.put(self.counters, name, self.counters[name] + 1)
        return self.counters[name]

    @contextmanager
    def undoable(self) -> Iterator[None]:
        """Roll back every change inside when the block raises."""
        self._journal.clear()
        try:
            yield
        except BaseException:
            for table, key, before in reversed(self._journal):
                if before is _MISSING:
                    table.pop(key, None)
                else:
                    table[key] = before
            raise
        finally:
            self._journal.clear()

    def forget_closed(self, keep: int) -> None:
        """Drop the oldest closed fires beyond ``keep``. The cursor still guards their windows."""
        for number in list(self.fires)[: max(len(self.fires) - keep, 0)]:
            new = self.fires[number].new
            if self.fires[number].status in OPEN:
                continue
            del self.fires[number]
            before = self.forgotten.get(new.key, new.last_fire_time)
            self.forgotten[new.key] = max(before, new.last_fire_time)
            self.windows.pop((new.key, new.series, new.fire_time), None)
            self.runs.pop(new.workflow_id, None)


# --- data intervals ---
# Where the data of runs begin; migration 0022 does the same in PostgreSQL.


def write_fire(tables: Tables, number: int, fire: FireEntry, now: datetime) -> None:
    """Write the row of a fire; fix where its data begin, or note that it was denied."""
    was = tables.fires.get(number)
    if fire.kind in OF_A_WINDOW:
        if fire.status == "starting" and (was is None or was.status != "starting"):
            fire = replace(fire, data_from=_data_from(tables, fire))
        if fire.status in DENIED and was is not None and was.status in {*PENDING, "starting"}:
            place = (fire.new.key, fire.new.fire_time)
            tables.put(tables.gaps, place, (now, fire.new.bucket, False))
    tables.put(tables.fires, number, fire)


def check_gaps(tables: Tables, now: datetime, rest: timedelta, limit: int) -> list[DataGap]:
    """Return new gaps; see ``Ledger.check_data_gaps``."""
    old = [place for place, (at, _, told) in tables.gaps.items() if not told and at < now - rest]
    gaps = []
    for key, data_to in sorted(old, reverse=True)[:limit]:
        if (key, data_to) not in tables.gaps:
            continue  # part of a later gap
        gap = _gap(tables, key, data_to)
        runs = any(fire.new.fire_time == data_to for _, fire in _counted(tables, key))
        since = _window_before(tables, key, data_to) or NO_RUN_BEFORE
        later = _window_after(tables, key, data_to)
        if later is not None and later < data_to:  # no window after that is a gap
            since = max(since, later)
        at, bucket, _ = tables.gaps[key, data_to]
        for place in old:
            if place[0] == key and since < place[1] <= data_to:
                tables.gaps.pop(place, None)
        if gap and not runs:
            tables.gaps[key, data_to] = (at, bucket, True)
            gaps.append(gap)
    return gaps


def told_gaps(tables: Tables, key: str) -> list[DataGap]:
    """Return the reported gaps of a key; see ``Ledger.data_gaps``."""
    told = [place for place, (_, _, told) in tables.gaps.items() if told and place[0] == key]
    found = [_gap(tables, *place) for place in sorted(told, reverse=True)]
    return [gap for gap in found if gap]


def _gap(tables: Tables, key: str, data_to: datetime) -> DataGap | None:
    """Return the gap that a denied window leaves; None if a run has its data."""
    begun = any(
        fire.new.fire_time == data_to and _has_begun(fire) for _, fire in _counted(tables, key)
    )
    later = _window_after(tables, key, data_to)
    if begun or later is None or later < data_to:
        return None
    _, bucket, _ = tables.gaps[key, data_to]
    return DataGap(key, bucket, _window_before(tables, key, data_to), data_to)


def _has_begun(fire: FireEntry) -> bool:
    return fire.status not in PENDING and fire.status not in DENIED


def _data_from(tables: Tables, fire: FireEntry) -> datetime | None:
    new = fire.new
    number = tables.windows.get((new.key, new.series, new.fire_time))
    if fire.kind == "rerun" and number is not None and _has_begun(tables.fires[number]):
        return tables.fires[number].data_from
    later = _window_after(tables, new.key, new.fire_time)
    if later is not None and later < new.fire_time:
        return REPEATS
    unknown = new.key in tables.forgotten or not tables.remembers
    before = _window_before(tables, new.key, new.fire_time)
    return before or (None if unknown else NO_RUN_BEFORE)


def _window_before(tables: Tables, key: str, moment: datetime) -> datetime | None:
    """Return the end of the last window before it that has begun or is still to begin."""
    before = [
        (fire.new.fire_time, number, fire.new.last_fire_time)
        for number, fire in _counted(tables, key)
        if fire.new.fire_time < moment
    ]
    return min(max(before)[2], moment) if before else None


def _window_after(tables: Tables, key: str, moment: datetime) -> datetime | None:
    """Return where the data of the first window after it begin; None if that is pending."""
    after = [
        (fire.new.fire_time, number)
        for number, fire in _counted(tables, key)
        if fire.new.fire_time > moment
        and not (fire.status in PENDING and (fire.kind == "rerun" or fire.timing == "backfill"))
    ]
    first = tables.fires[min(after)[1]] if after else None
    return first.data_from if first and _has_begun(first) else None


def _counted(tables: Tables, key: str) -> Iterator[tuple[int, FireEntry]]:
    for number, fire in tables.fires.items():
        counts = fire.kind in OF_A_WINDOW and fire.data_from != REPEATS
        if fire.new.key == key and counts and fire.status not in DENIED:
            yield number, fire


# --- rows ---


class MemoryRows:
    """Access to rows, the base of all parts of a transaction."""

    _tables: Tables
    _clock: Callable[[], datetime]

    def _entry(
        self,
        state: ScheduleState,
        window: Window,
        workflow_id: str,
        status: Status,
        timing: Timing,
    ) -> FireEntry:
        """Return the row of a requested fire."""
        new = NewFire.asked_for(state, window, workflow_id, status, timing)
        lease = self._clock() if status == "claimed" else None
        return replace(FireEntry.of(new), lease_until=lease)

    def _windows(self, key: str) -> Iterator[Fire]:
        for fire in self._tables.fires.values():
            if fire.new.key == key and fire.kind == "window":
                yield fire.as_fire()

    def _of(self, key: str, status: Status) -> list[tuple[int, FireEntry]]:
        fires = self._tables.fires.items()
        return [(n, fire) for n, fire in fires if fire.new.key == key and fire.status == status]

    def _skipped_ahead(self, fire: FireEntry) -> bool:
        """Return whether an operator skipped it before its fire time."""
        mine = fire.status == "skipped" and code_of(fire.reason) == "user"
        ahead = fire.new.fire_time > self._tables.schedules[fire.new.key].state.cursor
        return mine and ahead and fire.kind == "window"

    def _settle(self, number: int, status: Status, reason: Reason | None) -> None:
        fire = replace(
            self._tables.fires[number], status=status, reason=reason, token=None, lease_until=None,
            awaits=None,
        )  # fmt: skip
        self._write(number, fire)

    def _add(self, fire: FireEntry) -> int:
        """Write a new row and index it."""
        number = self._tables.count("fire")
        self._write(number, replace(fire, decided_at=self._clock()))
        if fire.kind == "window":
            place = (fire.new.key, fire.new.series, fire.new.fire_time)
            self._tables.put(self._tables.windows, place, number)
        self._tables.put(self._tables.runs, fire.new.workflow_id, number)
        return number

    def _write(self, number: int, fire: FireEntry) -> None:
        write_fire(self._tables, number, fire, self._clock())

    def _claim(self, new: NewFire, number: int, now: datetime) -> Claim:
        data_from, rules = self._tables.fires[number].data_from, self._tables.rules_of(new)
        return new.claim(number, now, data_from=data_from, rules=rules)

    def _remove(self, number: int) -> None:
        new = self._tables.fires[number].new
        self._tables.drop(self._tables.fires, number)
        self._tables.drop(self._tables.windows, (new.key, new.series, new.fire_time))
        self._tables.drop(self._tables.runs, new.workflow_id)

    def _put(self, entry: ScheduleEntry) -> None:
        self._tables.put(self._tables.schedules, entry.state.key, entry)
