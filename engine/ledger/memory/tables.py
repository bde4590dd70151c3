"""Tables of the in-memory ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any, TypeVar

from engine.ledger.alerts import (
    ENGINE,
    Facts,
    Letters,
    Overdue,
    Recent,
    SeenReplica,
    Watched,
    pause_text,
)
from engine.ledger.failures import Counted, FailingStep, GivenUp, as_failing
from engine.ledger.fires import (
    DENIED,
    DIED,
    IN_HAND,
    NO_RUN_BEFORE,
    OF_A_WINDOW,
    OPEN,
    PENDING,
    REPEATS,
    SURELY_NOT_RUN,
    UNSTARTED,
    Claim,
    DataGap,
    Evidence,
    Fire,
    Status,
    common_fields,
)
from engine.ledger.memory.event_rows import EventTables
from engine.ledger.records import (
    ActionRow,
    Backfill,
    DefinitionVersion,
    NewFire,
    ProjectRow,
    QueueRow,
    Serving,
    Start,
)
from engine.ledger.schedule_rows import SUMMARISED, SUMMARY_ROWS, RunSummary
from engine.schedules import Alerting, Reason, Schedule, Stop, code_of, in_ms
from engine.schedules.planner import TIME_RULES, Hold, ScheduleState

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
    look_at: datetime | None = None
    """See ``Plan.look_at``."""

    @property
    def due_at(self) -> datetime | None:
        """When it is to be planned next, as in the column of the same name."""
        due = self.next_fire_at
        return due if due is None or self.look_at is None else max(due, self.look_at)

    @property
    def lane(self) -> str:
        """The lane, as in the column of the same name."""
        return self.state.schedule.lane

    def is_due(self, now: datetime) -> bool:
        """Return whether it is to be planned."""
        return self.due_at is not None and self.due_at <= now

    def owes(self, moment: datetime) -> bool:
        """Return whether a window up to this moment may be undecided, whenever it is planned."""
        owed = self.next_fire_at is not None and self.next_fire_at <= moment
        return self.state.cursor < moment and (self.state.failures > 0 or owed)

    def due_from(self, now: datetime) -> ScheduleEntry:
        """Return the row as due at once; the window that it owes stays the same."""
        owed = now if self.next_fire_at is None else min(self.next_fire_at, now)
        return replace(self, next_fire_at=owed, look_at=None)

    def hold_at(self, moment: datetime) -> Hold | None:
        """Return why it does not fire, if so; a pause that has ended by then is no reason."""
        hold, pause = self.state.hold, self.state.pause
        over = hold == "paused" and pause and pause.until and pause.until <= moment
        return None if over else hold

    def servable(self, serving: Serving) -> bool:
        """Return whether this replica may claim it."""
        known = self.state.schedule.external or self.state.workflow_type in serving.types
        mine = self.state.project == serving.project and self.lane in serving.lanes
        return mine and known and self.state.rules <= TIME_RULES


def larger_known(one: int | None, other: int | None) -> int | None:
    """Return the larger of two numbers that may be unknown."""
    return max((number for number in (one, other) if number is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FireEntry(NewFire):
    """A fire's row: what was written first, as it has changed since."""

    fire_id: int = 0
    lease_until: datetime | None = None
    starting_at: datetime | None = None
    attempts: int = 0
    replica: str | None = None
    run_id: str | None = None
    first_run_id: str | None = None
    started_at: datetime | None = None
    closed_at: datetime | None = None
    seen_at: datetime | None = None
    error: str | None = None
    history: tuple[dict[str, object], ...] = ()
    open_at: datetime | None = None
    lost_at: datetime | None = None
    stop: Stop | None = None
    stop_at: datetime | None = None
    stop_grace: timedelta | None = None
    stop_reason: str | None = None
    stop_asked_at: datetime | None = None
    decided_at: datetime | None = None
    dealt_at: datetime | None = None
    not_undone: str | None = None
    followed: bool = False
    data_from: datetime | None = None
    failing_noted: str | None = None
    duration_ms: int | None = None
    tries: int | None = None
    retries_noted: int | None = None
    counted: Counted | None = None
    given_up: GivenUp | None = None
    failure_noted: str | None = None
    tried_noted: str | None = None

    @property
    def yields_to_a_pause(self) -> bool:
        """Whether a pause gives it up while it is unsent; see revoke.sql."""
        return self.kind == "window" and self.timing != "backfill"

    @property
    def step_retries(self) -> int | None:
        """The retries of its steps, once they are known; as in the view."""
        return self.retries_noted if self.counted in {"reported", "read"} else None

    def ended_as(self, seen: Evidence) -> FireEntry:
        """Return the row with what the evidence says of the run's end; see record_evidence.sql."""
        first, counted = self.first_run_id or seen.first_run_id, self.counted
        is_first = first is not None and seen.run_id == first
        tries = seen.tries or (1 if is_first else None)
        if seen.closed is not None and seen.step_retries is not None:
            counted = "read"
        elif seen.closed is not None and (counted != "reported" or tries is None):
            counted = "wanted"
        elif counted in {"wanted", "read"}:
            counted = None
        took = None
        if seen.closed_at is not None:
            begun = seen.started_at if is_first else (self.started_at or seen.started_at)
            took = max(in_ms(seen.closed_at - begun), 0)
        return replace(
            self,
            duration_ms=took,
            tries=None if seen.closed is None else tries,
            retries_noted=larger_known(self.retries_noted, seen.step_retries),
            counted=counted,
            given_up=seen.given_up,
            failure_noted=seen.failure_text,
            tried_noted=seen.tried_text,
        )

    @property
    def failing(self) -> tuple[FailingStep, ...]:
        """The steps that keep failing; of open runs alone, as in the view."""
        is_open = self.status == "started" and self.lost_at is None
        return as_failing(self.failing_noted) if is_open else ()

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
            "reason_code": self.reason_code,
        }  # fmt: skip

    @property
    def lag_ms(self) -> int | None:
        """How long after its window the run started, in milliseconds."""
        lag = self.started_at - self.fire_time if self.started_at else None
        return in_ms(lag) if lag is not None else None

    def as_fire(self) -> Fire:
        """Return the fire as shown to users."""
        return Fire(**common_fields(Fire, self))


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
    versions: dict[tuple[str, int], DefinitionVersion] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    seals: dict[str, str] = field(default_factory=dict)
    starts: dict[tuple[str, str], Start] = field(default_factory=dict)
    forgotten: dict[str, datetime] = field(default_factory=dict)
    actions: dict[int, ActionRow] = field(default_factory=dict)
    rules: dict[tuple[str, str], Mapping[str, Any] | None] = field(default_factory=dict)
    replicas: dict[str, tuple[Serving, datetime, timedelta]] = field(default_factory=dict)
    counters: dict[str, int] = field(
        default_factory=lambda: {"epoch": 1, "fire": 0, "action": 0, "backfill": 0, "notice": 0}
    )
    queues: dict[str, QueueRow] = field(default_factory=dict)
    backfills: dict[int, Backfill] = field(default_factory=dict)
    gaps: dict[tuple[str, datetime], tuple[datetime, int, bool]] = field(default_factory=dict)
    """Denied windows: when, their buckets, and whether that was reported as a gap."""
    outbox: EventTables = field(default_factory=EventTables)
    remembers: bool = False
    _journal: list[tuple[Any, object, object]] | None = None

    def put(self, table: MutableMapping[K, V], key: K, value: V) -> None:
        """Write one row."""
        self._note(table, key)
        table[key] = value

    def change(self, fire: FireEntry, **changes: Any) -> FireEntry:
        """Write some fields of a fire's row, and return the row."""
        changed = replace(fire, **changes)
        self.put(self.fires, fire.fire_id, changed)
        return changed

    def of_key(self, key: str, *statuses: Status) -> list[FireEntry]:
        """Return the key's fires, those of these statuses if any, in the order of writing."""
        return [
            fire for fire in self.fires.values()
            if fire.key == key and (not statuses or fire.status in statuses)
        ]  # fmt: skip

    def of_run(self, workflow_id: str) -> FireEntry | None:
        """Return the fire of one run ID."""
        return self.fires.get(self.runs.get(workflow_id, 0))

    def drop(self, table: MutableMapping[K, V], key: K) -> None:
        """Remove one row."""
        self._note(table, key)
        del table[key]

    def _note(self, table: MutableMapping[K, V], key: K) -> None:
        """Remember a row as it is, while a block may roll it back."""
        if self._journal is not None:
            self._journal.append((table, key, table.get(key, _MISSING)))

    def rules_of(self, fire: NewFire) -> Mapping[str, Any] | None:
        """Return the run options announced with the type of a fire."""
        return self.rules.get((fire.task_queue, fire.workflow_type or ""))

    def count(self, name: str) -> int:
        """Increment a counter and return it."""
        self.put(self.counters, name, self.counters[name] + 1)
        return self.counters[name]

    @contextmanager
    def undoable(self) -> Iterator[None]:
        """Roll back every change inside when the block raises."""
        journal = self._journal = []
        try:
            yield
        except BaseException:
            for table, key, before in reversed(journal):
                if before is _MISSING:
                    table.pop(key, None)
                else:
                    table[key] = before
            raise
        finally:
            self._journal = None

    def forget_closed(self, keep: int) -> None:
        """Drop the oldest closed fires beyond ``keep``. The cursor still guards their windows."""
        for fire in list(self.fires.values())[: max(len(self.fires) - keep, 0)]:
            if fire.status in OPEN:
                continue
            del self.fires[fire.fire_id]
            before = self.forgotten.get(fire.key, fire.last_fire_time)
            self.forgotten[fire.key] = max(before, fire.last_fire_time)
            self.windows.pop((fire.key, fire.series, fire.fire_time), None)
            self.runs.pop(fire.workflow_id, None)


# --- data intervals ---
# Where the data of runs begin; migration 0022 does the same in PostgreSQL.


def write_fire(
    tables: Tables, fire: FireEntry, now: datetime, *, is_news: bool = True
) -> FireEntry:
    """Write the row of a fire; fix where its data begin, or note that it was denied.

    Its events are written too, unless it is no news.
    """
    was = tables.fires.get(fire.fire_id)
    if fire.kind in OF_A_WINDOW:
        if fire.status == "starting" and (was is None or was.status != "starting"):
            fire = replace(fire, data_from=_data_from(tables, fire))
        if fire.status in DENIED and was is not None and was.status in UNSTARTED:
            place = fire.key, fire.fire_time
            _, _, told = tables.gaps.get(place, (now, 0, False))
            tables.put(tables.gaps, place, (now, fire.bucket, told))
    tables.put(tables.fires, fire.fire_id, fire)
    if is_news:
        tables.outbox.note_fire(tables.put, was, fire, now)
    return fire


def check_gaps(tables: Tables, now: datetime, rest: timedelta, limit: int) -> list[DataGap]:
    """Return new gaps; see ``Ledger.check_data_gaps``."""
    old = [place for place, (at, _, told) in tables.gaps.items() if not told and at < now - rest]
    gaps = []
    for key, data_to in sorted(old, reverse=True)[:limit]:
        if (key, data_to) not in tables.gaps:
            continue  # part of a later gap
        gap = _gap(tables, key, data_to)
        runs = any(fire.fire_time == data_to for fire in _counted(tables, key))
        since = _window_before(tables, key, data_to) or NO_RUN_BEFORE
        later = _window_after(tables, key, data_to)
        if later is not None and later < data_to:  # no window after that is a gap
            since = max(since, later)
        told = (at for (its, at), (_, _, is_told) in tables.gaps.items() if its == key and is_told)
        is_part = gap and later and any(data_to < each <= later for each in told)
        at, bucket, _ = tables.gaps[key, data_to]
        for place in old:
            if place[0] == key and since < place[1] <= data_to:
                tables.gaps.pop(place, None)
        if gap and not runs and not is_part:
            tables.gaps[key, data_to] = (at, bucket, True)
            gaps.append(gap)
    return gaps


def reported_gaps(tables: Tables, key: str) -> list[DataGap]:
    """Return the reported gaps of a key; see ``Ledger.data_gaps``."""
    told = [place for place, (_, _, told) in tables.gaps.items() if told and place[0] == key]
    found = [_gap(tables, *place) for place in sorted(told, reverse=True)]
    return [gap for gap in found if gap]


def _gap(tables: Tables, key: str, data_to: datetime) -> DataGap | None:
    """Return the gap that a denied window leaves; None if a run has its data."""
    begun = any(fire.fire_time == data_to and _has_begun(fire) for fire in _counted(tables, key))
    later = _window_after(tables, key, data_to)
    if begun or later is None or later < data_to:
        return None
    _, bucket, _ = tables.gaps[key, data_to]
    return DataGap(key, bucket, _window_before(tables, key, data_to), data_to)


def _has_begun(fire: FireEntry) -> bool:
    return fire.status not in PENDING and fire.status not in DENIED


def _data_from(tables: Tables, fire: FireEntry) -> datetime | None:
    number = tables.windows.get((fire.key, fire.series, fire.fire_time))
    if fire.kind == "rerun" and number is not None and _has_begun(tables.fires[number]):
        return tables.fires[number].data_from
    later = _window_after(tables, fire.key, fire.fire_time)
    if later is not None and later < fire.fire_time:
        return REPEATS
    unknown = fire.key in tables.forgotten or not tables.remembers
    before = _window_before(tables, fire.key, fire.fire_time)
    return before or (None if unknown else NO_RUN_BEFORE)


def _window_before(tables: Tables, key: str, moment: datetime) -> datetime | None:
    """Return the end of the last window before it that has begun or is still to begin.

    One of shadow mode has begun elsewhere.
    """
    before = [fire for fire in _counted(tables, key) if fire.fire_time < moment]
    before += [
        fire
        for fire in tables.of_key(key, "skipped")
        if code_of(fire.reason) == "shadow" and fire.fire_time < moment
    ]
    return min(max(before, key=_in_order).last_fire_time, moment) if before else None


def _window_after(tables: Tables, key: str, moment: datetime) -> datetime | None:
    """Return where the data of the first window after it begin; None if that is pending."""
    after = [
        fire
        for fire in _counted(tables, key)
        if fire.fire_time > moment
        and not (fire.status in PENDING and (fire.kind == "rerun" or fire.timing == "backfill"))
    ]
    first = min(after, key=_in_order, default=None)
    return first.data_from if first and _has_begun(first) else None


def _in_order(fire: FireEntry) -> tuple[datetime, int]:
    return fire.fire_time, fire.fire_id


def _counted(tables: Tables, key: str) -> Iterator[FireEntry]:
    for fire in tables.fires.values():
        counts = fire.kind in OF_A_WINDOW and fire.data_from != REPEATS
        if fire.key == key and counts and fire.status not in DENIED:
            yield fire


# --- rows ---


class MemoryRows:
    """Access to rows, the base of the ledger and of its transactions."""

    clock: Callable[[], datetime]
    _tables: Tables

    async def fire(self, workflow_id: str) -> Fire | None:
        found = self._tables.of_run(workflow_id)
        return found.as_fire() if found else None

    async def make_due(self, keys: Sequence[str]) -> None:
        now = self.clock()
        for key in keys:
            row = self._tables.schedules.get(key)
            if row and not row.is_due(now) and row.hold_at(now) is None:
                self._put(row.due_from(now))

    def _windows(self, key: str) -> Iterator[Fire]:
        for fire in self._tables.of_key(key):
            if fire.kind == "window":
                yield fire.as_fire()

    def _skipped_ahead(self, key: str) -> list[FireEntry]:
        """Return the windows to come of the current series that were skipped."""
        state = self._tables.schedules[key].state
        return [
            fire
            for fire in self._tables.of_key(key, "skipped")
            if fire.kind == "window" and fire.series == state.series
            and fire.fire_time > state.cursor
        ]  # fmt: skip

    def _skipped_by_users(self, key: str) -> list[FireEntry]:
        return [fire for fire in self._skipped_ahead(key) if fire.reason_code == "user"]

    def _entry(
        self, new: NewFire, owner: str | None = None, lease: timedelta = timedelta()
    ) -> FireEntry:
        """Return the row of a new fire: sent by its owner at once, or due when it may be sent."""
        core, now = common_fields(NewFire, new), self.clock()
        if new.token:
            return FireEntry(
                **core, lease_until=now + lease, starting_at=now, attempts=1, replica=owner
            )
        due = new.not_before or now
        return FireEntry(**core, lease_until=due if new.status == "claimed" else None)

    def _settle(self, fire: FireEntry, status: Status, reason: Reason | None) -> None:
        self._write(
            replace(fire, status=status, reason=reason, token=None, lease_until=None, awaits=None)
        )

    def _add(self, fire: FireEntry, *, is_news: bool = True) -> FireEntry:
        """Write a new row and index it; one that is split off another one is no news."""
        number = self._tables.count("fire")
        fire = replace(fire, fire_id=number, decided_at=self.clock())
        fire = write_fire(self._tables, fire, self.clock(), is_news=is_news)
        if fire.kind == "window":
            place = (fire.key, fire.series, fire.fire_time)
            self._tables.put(self._tables.windows, place, number)
        self._tables.put(self._tables.runs, fire.workflow_id, number)
        return fire

    def _write(self, fire: FireEntry) -> FireEntry:
        return write_fire(self._tables, fire, self.clock())

    def _claim(self, fire: FireEntry, **others: Any) -> Claim:
        return fire.claim(rules=self._tables.rules_of(fire), **others)

    def _remove(self, fire: FireEntry) -> None:
        self._tables.drop(self._tables.fires, fire.fire_id)
        self._tables.drop(self._tables.windows, (fire.key, fire.series, fire.fire_time))
        self._tables.drop(self._tables.runs, fire.workflow_id)

    def _put(self, row: ScheduleEntry, **state: Any) -> None:
        """Write the row of a schedule, with these fields of its state."""
        if state:
            row = replace(row, state=replace(row.state, **state))
        tables = self._tables
        was = tables.schedules.get(row.state.key)
        tables.put(tables.schedules, row.state.key, row)
        tables.outbox.note_schedule(tables.put, was.state if was else None, row.state, self.clock())

    def living(self, alive: timedelta) -> list[Serving]:
        """Return the replicas that announced within ``alive``, or three of their heartbeats."""
        now, replicas = self.clock(), self._tables.replicas.values()
        return [
            other for other, seen, heartbeat in replicas if seen > now - max(alive, heartbeat * 3)
        ]

    def _announced(self, task_queue: str) -> list[str]:
        return [name for queue, name in self._tables.rules if queue == task_queue]


# --- facts ---
# The facts of ``engine.ledger.alerts``. One process has this ledger, so its only replica is there.

_RECENT = 100


def facts_of(tables: Tables, now: datetime, limit: int) -> Facts:
    """Return what a look for problems judges."""
    overdue = sorted(_overdue(tables, now), key=lambda each: each.fire_time)
    watched = [
        _watched(tables, row, now)
        for key, row in sorted(tables.schedules.items())
        if row.state.hold in {None, "paused"} and _is_watched(row.state.schedule)
    ]
    dead: dict[str, list[FireEntry]] = {}
    for fire in tables.fires.values():
        if is_dead(fire):
            dead.setdefault(fire.key, []).append(fire)
    letters = [
        Letters(
            key=key, project=newest.project, number=len(fires), newest=newest.workflow_id,
            died_at=max(fire.closed_at or fire.decided_at or now for fire in fires),
            error=newest.error or newest.reason,
        )
        for key, fires in sorted(dead.items())
        for newest in [max(fires, key=lambda fire: fire.fire_time)]
    ]  # fmt: skip
    replicas = [
        SeenReplica(
            replica=name, project=serving.project, task_queue=serving.task_queue,
            types=serving.types, engine="", tzdata="", started_at=seen, seen_at=seen,
            heartbeat=heartbeat,
        )
        for name, (serving, seen, heartbeat) in sorted(tables.replicas.items())
    ]  # fmt: skip
    return Facts(
        now=now, overdue=overdue[:limit], watched=watched[:limit], letters=letters,
        replicas=replicas,
    )  # fmt: skip


def is_dead(fire: FireEntry) -> bool:
    """Return whether it is a dead letter."""
    return fire.status in DIED and fire.dealt_at is None


def _overdue(tables: Tables, now: datetime) -> Iterator[Overdue]:
    for row in tables.schedules.values():
        state, schedule = row.state, row.state.schedule
        if state.hold is not None or row.next_fire_at is None:
            continue
        if not state.failures and not row.is_due(now):
            continue  # it waits for an answer
        due = schedule.spec.next(state.cursor) if state.failures else row.next_fire_at
        if due is not None and due < now - schedule.grace:
            yield _as_overdue(row, due)
    for fire in tables.fires.values():
        row = tables.schedules[fire.key]
        pending = fire.status in IN_HAND and fire.kind != "handler"
        since = fire.starting_at if fire.status == "starting" else fire.lease_until
        late = since is not None and since < now - row.state.schedule.grace
        if pending and late and fire.timing != "backfill":
            yield replace(
                _as_overdue(row, fire.fire_time),
                status=fire.status, owner=fire.replica, answer=fire.error,
            )  # fmt: skip


def _as_overdue(row: ScheduleEntry, due: datetime) -> Overdue:
    state, schedule = row.state, row.state.schedule
    return Overdue(
        key=state.key, project=state.project, task_queue=schedule.task_queue,
        workflow=schedule.workflow, workflow_type=state.workflow_type, external=schedule.external,
        fire_time=due, error=row.error, rules=state.rules,
    )  # fmt: skip


def _is_watched(schedule: Schedule) -> bool:
    return schedule.alert != Alerting() or schedule.pause_after_failures is not None


def _watched(tables: Tables, row: ScheduleEntry, now: datetime) -> Watched:
    state, pause = row.state, row.state.pause
    fires = sorted(
        (
            fire
            for fire in tables.of_key(state.key)
            if fire.kind == "window" and fire.series == state.series and fire.fire_time <= now
        ),
        key=lambda fire: (fire.fire_time, fire.fire_id),
        reverse=True,
    )
    following = state.schedule.spec.next(state.cursor)
    return Watched(
        key=state.key, project=state.project, alert=state.schedule.alert,
        undecided=following if following and following < now else None,
        paused=pause_text(pause.at, pause.by, pause.reason) if pause else None,
        recent=[Recent(**common_fields(Recent, fire)) for fire in fires[:_RECENT]],
        stopped_at=pause.at if pause and pause.by == ENGINE else None,
    )  # fmt: skip


def started_windows(state: ScheduleState, fires: Iterable[FireEntry]) -> int | None:
    """Count windows that a limit counts, as in read_schedules.sql; None without a limit."""
    if state.schedule.limit is None:
        return None
    return sum(
        fire.windows
        for fire in fires
        if (fire.kind, fire.series) == ("window", state.series)
        and fire.status not in SURELY_NOT_RUN
        and fire.timing != "backfill"
    )


def summary_of(key: str, fires: Iterable[FireEntry], now: datetime) -> RunSummary:
    """Return what became of the last runs of a key; see run_summaries.sql."""
    newest = sorted(fires, key=lambda fire: (fire.fire_time, fire.fire_id), reverse=True)
    ended = [
        fire
        for fire in newest[:SUMMARY_ROWS]
        if fire.status in {"completed", "failed", "timed_out"} and fire.kind != "handler"
    ][:SUMMARISED]
    took = [fire.duration_ms for fire in ended
            if fire.status == "completed" and fire.duration_ms is not None]  # fmt: skip
    failed = next((fire for fire in newest if fire.status in DIED), None)
    opened = [fire for fire in newest if fire.fire_time <= now][:SUMMARY_ROWS]
    return RunSummary(
        key=key,
        runs=len(ended),
        completed=sum(fire.status == "completed" for fire in ended),
        median_duration_ms=round(median(took)) if took else None,
        last_failure_at=(failed.closed_at or failed.decided_at) if failed else None,
        last_failure=failed.status if failed else None,  # type: ignore[arg-type] # one of DIED
        error=(failed.error or failed.reason) if failed else None,
        recent=tuple([fire.status for fire in opened if fire.kind == "window"][:SUMMARISED]),
    )
