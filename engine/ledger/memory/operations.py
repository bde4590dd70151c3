"""Operator actions, backfills, dead letters and follow-up runs of the in-memory ledger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engine.ledger.alerts import FailedInRow
from engine.ledger.fires import (
    DIED,
    ENDED_BADLY,
    NO_RUN_BEFORE,
    OPEN,
    PENDING,
    SURELY_NOT_RUN,
    UNSTARTED,
    Claim,
    DeadLetter,
    Ended,
    Evidence,
    Fire,
    FireIdentity,
    FollowUp,
    Kind,
    Status,
    Timing,
    as_left,
    cause_of,
    common_fields,
)
from engine.ledger.memory.tables import FireEntry, MemoryRows, ScheduleEntry, Tables, is_dead
from engine.ledger.records import (
    UNDECLARED,
    Action,
    ActionRow,
    Backfill,
    BackfillOverlap,
    NewFire,
    Serving,
    SkippedAhead,
    Start,
    ToLay,
    action_json,
)
from engine.schedules import (
    HORIZON,
    STARTS,
    Reason,
    ReasonCode,
    Rule,
    Schedule,
    Sealed,
    Stop,
    Window,
    from_seconds,
    parse_workflow_id,
)
from engine.schedules.planner import (
    FIFO,
    Dependency,
    Move,
    OpenFire,
    ParentOutcome,
    Pause,
    Piece,
    Plan,
    ScheduleState,
    is_pending,
    unmet,
)

# --- operator actions ---


class MemoryOperating(MemoryRows):
    """Actions of operators and applications."""

    async def pause(self, key: str, pause: Pause) -> None:
        row = self._tables.schedules[key]
        following = pause.until if row.state.schedule.enabled else None
        self._put(replace(row, next_fire_at=following, look_at=None), pause=pause)
        for fire in self._tables.of_key(key, "claimed"):
            if fire.yields_to_a_pause:
                self._settle(fire, "skipped", Reason("paused", "paused"))

    async def failed_in_row(self, keys: Sequence[str] | None = None) -> list[FailedInRow]:
        found = []
        for key, row in sorted(self._tables.schedules.items()):
            most = row.state.schedule.pause_after_failures
            if most is None or row.state.hold is not None or (keys is not None and key not in keys):
                continue
            ended = self._ended_by_themselves(row.state)[:most]
            if len(ended) == most and all(fire.status != "completed" for fire in ended):
                newest = ended[0]
                found.append(
                    FailedInRow(
                        key=key, project=row.state.project, failures=most,
                        newest=newest.workflow_id, error=newest.error,
                    )
                )  # fmt: skip
        return found

    def _ended_by_themselves(self, state: ScheduleState) -> list[FireEntry]:
        """Return the fires that ``failed_in_row.sql`` reads, newest first."""
        since = max(
            (
                each.at
                for each in self._tables.actions.values()
                if (each.key, each.verb) == (state.key, "resume")
            ),
            default=NO_RUN_BEFORE,
        )
        fires = self._tables.of_key(state.key, "completed", "failed", "timed_out")
        mine = (
            fire for fire in fires
            if (fire.kind, fire.series) == ("window", state.series)
            and fire.decided_at is not None and fire.decided_at > since
        )  # fmt: skip
        return sorted(mine, key=lambda fire: (fire.fire_time, fire.fire_id), reverse=True)

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        row = self._tables.schedules[key]
        following = next_fire_at if row.state.schedule.enabled else None
        self._put(replace(row, next_fire_at=following, look_at=None), pause=None)

    async def move(self, state: ScheduleState, moves: Sequence[Move]) -> None:
        for move in moves:
            fire = self._tables.fires.get(move.fire.fire_id)
            if fire is None:
                continue
            if move.to == "start" and fire.status == "queued":
                self._tables.change(
                    fire, status="claimed", lease_until=move.not_before or self.clock(),
                    reason=fire.awaits.reason if fire.awaits else fire.reason, awaits=None,
                )  # fmt: skip
            elif move.to == "release" and fire.awaits:
                self._tables.change(fire, reason=fire.awaits.reason, awaits=None)
            elif move.to == "skip" and fire.status in PENDING:
                self._settle(fire, "skipped", move.reason)
                self._return_letters(fire)
            elif move.to in {"cancel", "terminate"}:
                self._wish(fire, move.to, state.schedule.cancel_grace, move.reason or "")

    def _return_letters(self, skipped: FireEntry) -> None:
        """Make what a rerun had dealt with dead letters again."""
        if skipped.kind != "rerun" or skipped.decided_at is None:
            return
        for fire in self._tables.of_key(skipped.key):
            is_its = (fire.series, fire.bucket) == (skipped.series, skipped.bucket)
            if is_its and fire.dealt_at and fire.dealt_at >= skipped.decided_at:
                self._tables.change(fire, dealt_at=None)

    async def stop(self, fire_ids: Sequence[int], stop: Stop, *, reason: str) -> None:
        for fire_id in fire_ids:
            self._wish(self._tables.fires[fire_id], stop, None, reason)

    def _wish(self, fire: FireEntry, stop: Stop, grace: timedelta | None, reason: str) -> None:
        stronger = fire.stop is None or (fire.stop == "cancel" and stop == "terminate")
        if fire.status in {"starting", "started"} and stronger:
            self._tables.change(
                fire, stop=stop, stop_at=self.clock(), stop_grace=grace, stop_reason=reason,
                stop_asked_at=None,
            )  # fmt: skip

    async def request(self, new: NewFire) -> bool:
        if new.workflow_id in self._tables.runs:
            return False
        self._add(self._entry(new))
        return True

    async def declare_starts(self, workflow: str, *, by: str) -> None:
        key, schedule = STARTS + workflow, Start.definition_of(workflow)
        if key in self._tables.schedules:
            return
        state = ScheduleState.of(schedule, from_seconds(HORIZON), effective_from=self.clock())
        state = replace(
            state, key=key, project=STARTS, digest=schedule.digest, workflow_type=None, origin="api"
        )
        self._tables.put(self._tables.schedules, key, ScheduleEntry(state, None))
        self._tables.put(self._tables.definitions, (key, 1), schedule)

    async def started(self, workflow: str, start_id: str) -> Start | None:
        return self._tables.starts.get((workflow, start_id))

    async def start(self, new: Start, fire: NewFire) -> bool:
        place = (new.workflow, new.start_id)
        if place in self._tables.starts:
            return False
        written = replace(new, requested_at=self.clock())
        self._tables.put(self._tables.starts, place, written)
        await self.request(fire)
        return True

    async def notify(self) -> None:
        self._tables.count("notice")

    async def unskip(self, key: str, series: int, fire_time: datetime) -> bool:
        for fire in self._skipped_by_users(key):
            if (fire.series, fire.fire_time) == (series, fire_time):
                self._remove(fire)
                return True
        return False

    async def lift_skips(self, keys: Sequence[str]) -> list[SkippedAhead]:
        lifted = [fire for key in keys for fire in self._skipped_by_users(key)]
        for fire in lifted:
            self._remove(fire)
        return [SkippedAhead(**common_fields(SkippedAhead, fire)) for fire in lifted]

    async def give_up(self, workflow_ids: Sequence[str], reason: Reason) -> frozenset[str]:
        given_up = set()
        for workflow_id in workflow_ids:
            fire = self._tables.of_run(workflow_id)
            if fire and fire.status in PENDING:
                self._settle(fire, "skipped", reason)
                given_up.add(workflow_id)
        return frozenset(given_up)

    async def note_ahead(self, step: Plan) -> None:
        for decision in step.decisions:
            new = NewFire.of(step, decision, None)
            if (new.key, new.series, new.fire_time) not in self._tables.windows:
                self._add(self._entry(new))

    async def window(self, key: str, bucket: int, series: int | None) -> Fire | None:
        found = [fire for fire in self._windows(key)
                 if fire.bucket == bucket and series in {None, fire.series}]  # fmt: skip
        return max(found, key=lambda fire: fire.series, default=None)

    async def count_reruns(self, window: Window, workflow_id: str) -> int:
        before = f"{workflow_id}:rerun:"
        numbers = [
            name.removeprefix(before) for name in self._tables.runs if name.startswith(before)
        ]
        return max((int(each) for each in numbers if each.isdecimal()), default=0)

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        for each in actions:
            states = {"before": _as_noted(each.before), "after": _as_noted(each.after)}
            row = ActionRow(**{**common_fields(Action, each), **states}, at=self.clock(), by=by)
            self._tables.put(self._tables.actions, self._tables.count("action"), row)


def _as_noted(state: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a state as a database would return it."""
    text = action_json(state)
    return None if text is None else dict(json.loads(text))


# --- backfill ---


class MemoryBackfilling(MemoryRows):
    """Backfills, and past windows: found, split and laid."""

    async def between(self, key: str, first: datetime, last: datetime) -> list[Fire]:
        found = [fire for fire in self._windows(key)
                 if fire.last_fire_time >= first and fire.fire_time <= last]  # fmt: skip
        return sorted(found, key=lambda fire: fire.fire_time)

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        found = await self.between(key, fire_time, fire_time)
        return max(found, key=lambda fire: fire.series, default=None)

    async def definition(self, key: str, version: int) -> Schedule:
        return self._tables.definitions[key, version]

    async def forgotten_until(self, key: str) -> datetime | None:
        return self._tables.forgotten.get(key)

    async def split_range(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        number = self._tables.windows[row.key, row.series, row.fire_time]
        gone = self._tables.fires[number]
        self._remove(gone)
        for piece in pieces:
            self._add(
                replace(
                    gone,
                    bucket=piece.window.bucket,
                    fire_time=piece.window.fire_time,
                    windows=piece.windows,
                    last_fire_time=piece.last,
                    workflow_id=piece.window.workflow_id(suffixed),
                ),
                is_news=False,
            )

    async def lock_laying(self, serving: Serving) -> str | None:
        now = self.clock()
        turns = [(each.next_at, each.id, each.key)
                 for each in laying_of(self._tables, serving) if each.next_at <= now]  # fmt: skip
        return min(turns)[2] if turns else None

    async def backfills(
        self, key: str, *, laying: bool = False, limit: int = 100
    ) -> list[Backfill]:
        found = [each for each in backfills_of(self._tables, key)
                 if not laying or each.state == "laying"]  # fmt: skip
        if laying:
            found.sort(key=lambda each: each.next_at)
        return found[:limit]

    async def request_backfill(self, new: Backfill) -> int:
        number = self._tables.count("backfill")
        self._tables.put(self._tables.backfills, number, replace(new, id=number))
        return number

    async def move_backfill(self, to: Backfill) -> None:
        if self._tables.backfills[to.id].state == "laying":
            self._tables.put(self._tables.backfills, to.id, to)

    async def backfill_looked_at(self, key: str, at: datetime) -> None:
        for each in await self.backfills(key, laying=True):
            seen = max(each.looked_at or at, at)
            moved = replace(each, looked_at=seen, next_at=self.clock())
            self._tables.put(self._tables.backfills, each.id, moved)

    async def put_off_backfills(self, key: str, wait: timedelta, error: str | None = None) -> None:
        for each in await self.backfills(key, laying=True):
            later = replace(each, next_at=self.clock() + wait, error=error)
            self._tables.put(self._tables.backfills, each.id, later)

    async def count_waiting(self, key: str, most: int) -> int:
        return min(most, sum(not fire.awaits for fire in self._tables.of_key(key, "queued")))

    async def count_windows(
        self, key: str, spans: Sequence[tuple[datetime, datetime]]
    ) -> list[Counter[tuple[Status, ReasonCode | None]]]:
        rows = [fire for fire in self._windows(key) if fire.windows == 1]
        return [
            Counter(
                (fire.status, fire.reason_code) for fire in rows if after < fire.fire_time <= until
            )
            for after, until in spans
        ]

    async def ranges_between(self, key: str, after: datetime, until: datetime) -> list[Fire]:
        rows = (fire for fire in self._windows(key) if fire.windows > 1)
        return [row for row in rows if row.fire_time <= until and row.last_fire_time > after]

    async def lay(
        self,
        state: ScheduleState,
        windows: Sequence[ToLay],
        *,
        overlap: BackfillOverlap,
        owner: str,
        lease: timedelta,
    ) -> tuple[list[Claim], set[str]]:
        claims: list[Claim] = []
        laid: set[str] = set()
        for each in windows:
            was = self._tables.of_run(each.workflow_id)
            if not (_may_refill(was, each) if each.again else self._is_free(each)):
                continue
            entry = self._entry(NewFire.backfilled(state, each, overlap), owner, lease)
            if was is not None:
                history = (*was.history, was.denied)
                entry = self._write(
                    replace(entry, fire_id=was.fire_id, history=history, decided_at=was.decided_at)
                )
            else:
                entry = self._add(entry)
            laid.add(each.workflow_id)
            if entry.token:
                claims.append(self._claim(entry))
        if buckets := [each.window.bucket for each in windows if not each.again]:
            row = self._tables.schedules[state.key]
            used = (*buckets, *([] if row.state.max_bucket is None else [row.state.max_bucket]))
            self._put(row, max_bucket=max(used))
        return claims, laid

    def _is_free(self, each: ToLay) -> bool:
        place = (each.window.key, each.window.series, each.window.fire_time)
        return each.workflow_id not in self._tables.runs and place not in self._tables.windows

    async def found(
        self,
        seen: Evidence,
        window: Window,
        version: int,
        timing: Timing,
        data_from: datetime | None,
    ) -> None:
        if seen.workflow_id in self._tables.runs:
            return
        state = self._tables.schedules[window.key].state
        self._add(
            FireEntry.under(
                state,
                window,
                seen.workflow_id,
                "started",
                timing,
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
    """Yield the backfills that this replica could lay, or has to end."""
    for each in tables.backfills.values():
        row = tables.schedules[each.key]
        goes_on = each.ends(row.state) or not each.is_halted(row.state)
        if each.state == "laying" and goes_on and row.servable(serving):
            yield each


def _may_refill(was: FireEntry | None, each: ToLay) -> bool:
    if was is None or was.run_id or was.windows > 1:
        return False
    return was.status in SURELY_NOT_RUN and was.fire_time == each.window.fire_time


# --- fires that ended badly ---


class MemoryBadEnds(MemoryRows):
    """Dead letters, and follow-up runs of fires that ended badly."""

    async def dead_letters(
        self,
        key: str | None = None,
        *,
        workflow_id: str | None = None,
        bucket: int | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        found = [
            self._letter(fire)
            for fire in self._tables.fires.values()
            if is_dead(fire)
            and key in {None, fire.key}
            and workflow_id in {None, fire.workflow_id}
            and bucket in {None, fire.bucket}
        ]
        found.sort(key=lambda letter: letter.workflow_id)
        found.sort(key=lambda letter: letter.fire_time, reverse=True)
        if after is not None and workflow_id is None:
            at, behind = after
            found = [each for each in found if each.fire_time < at
                     or (each.fire_time == at and each.workflow_id > behind)]  # fmt: skip
        return found[:limit]

    async def resolve_dead_letters(self, workflow_ids: Collection[str]) -> set[str]:
        dealt = set()
        for name in workflow_ids:
            fire = self._tables.of_run(name)
            if fire and is_dead(fire):
                self._tables.change(fire, dealt_at=self.clock())
                dealt.add(name)
        return dealt

    @staticmethod
    def _letter(fire: FireEntry) -> DeadLetter:
        died_at = fire.closed_at or fire.decided_at or fire.fire_time
        not_undone = as_left(fire.not_undone)
        return DeadLetter(
            **{**common_fields(DeadLetter, fire), "died_at": died_at, "not_undone": not_undone}
        )

    async def ended(self, limit: int, *, sealed: bool) -> list[Ended]:
        found = [
            fire
            for fire in self._tables.fires.values()
            if is_to_follow(fire) and (sealed or not _has_sealed_handler(fire))
        ]
        return [self._ended(fire) for fire in found[:limit]]

    async def follow(self, looked_at: Collection[int], news: Sequence[FollowUp]) -> set[str]:
        written = set()
        for each in news:
            if each.workflow_id not in self._tables.runs:
                self._add(self._following(each))
                written.add(each.workflow_id)
        for number in looked_at:
            self._tables.change(self._tables.fires[number], followed=True)
        return written

    def _following(self, each: FollowUp) -> FireEntry:
        followed = self._tables.fires[each.fire_id]
        return FireEntry(
            **{**common_fields(FireIdentity, followed), "workflow_id": each.workflow_id},
            schedule=followed.schedule,
            definition_version=followed.definition_version,
            workflow_type=each.workflow_type,
            task_queue=followed.task_queue,
            last_fire_time=followed.fire_time,
            status="rejected" if each.reason else "claimed",
            reason=each.reason,
            timing="handler",
            kind="handler",
            own_input=(each.argument,),
            lease_until=None if each.reason else self.clock(),
            data_from=followed.data_from,
        )

    def _ended(self, fire: FireEntry) -> Ended:
        schedule = fire.schedule
        more = {"error": fire.error or fire.reason, "not_undone": as_left(fire.not_undone)}
        return Ended(
            workflow=schedule.workflow,
            on_dead=schedule.on_dead,
            rules=None if schedule.external else self._tables.rules_of(fire),
            **{**common_fields(Ended, fire), **more},
        )


def _has_sealed_handler(fire: FireEntry) -> bool:
    """Return whether a handler follows that gets a sealed input."""
    follows = fire.schedule.on_dead is not None and fire.status in DIED
    return follows and any(isinstance(given, Sealed) for given in fire.arguments)


def is_to_follow(fire: FireEntry) -> bool:
    """Return whether it ended badly and its follow-up runs are not decided yet."""
    return fire.status in ENDED_BADLY and not fire.followed and fire.kind != "handler"


# --- dependencies of windows ---
# Outcomes of the windows that fires wait for; migration 0019 has ``awaited_of`` for PostgreSQL.


def open_fire(tables: Tables, fire: FireEntry) -> OpenFire | None:
    """Return what a plan needs of a fire while its run is open or may still start."""
    if fire.lost_at is not None or fire.status not in OPEN or fire.kind == "handler":
        return None
    asked_at = fire.decided_at if fire.kind == "rerun" else None
    fields = common_fields(OpenFire, fire) | {"fire_time": asked_at or fire.fire_time}
    return OpenFire(**fields, awaited=awaited(tables, fire))


def awaited(tables: Tables, entry: FireEntry) -> tuple[Dependency, ...]:
    """Return the outcome of each window that a fire waits for."""
    rules = entry.awaits.rules if entry.awaits else ()
    return tuple(_awaited(tables, rule, entry.fire_time) for rule in rules)


def waits_for_nothing(tables: Tables, fire: FireEntry) -> bool:
    """Return whether a queued fire could go on, as far as other schedules are concerned."""
    if fire.awaits:
        found = awaited(tables, fire)
        return unmet(found) is not None or not is_pending(found)
    if tables.schedules[fire.key].state.schedule.overlap not in FIFO:
        return True
    return not any(
        other.awaits for other in tables.of_key(fire.key) if other.fire_id < fire.fire_id
    )


def _awaited(tables: Tables, rule: Rule, at: datetime) -> Dependency:
    parent = tables.schedules.get(rule.parent)
    if parent is None:
        return Dependency(rule.parent, rule.when, "absent")
    held = parent.hold_at(at)  # no fire waits for the windows of a held schedule
    undecided = parent.owes(at)
    row = _window(tables, rule, at)
    if _may_be_laid(tables, rule, parent, row, at):
        return Dependency(rule.parent, rule.when, "pending")
    if row is None or (rule.window == "latest" and held is None and undecided):
        nothing: ParentOutcome = held or ("pending" if undecided else "nothing")
        return Dependency(rule.parent, rule.when, nothing)
    learnt = row.closed_at and max(row.closed_at, row.seen_at or row.closed_at)
    return Dependency(rule.parent, rule.when, _became(row), row.reason, learnt)


def _may_be_laid(
    tables: Tables, rule: Rule, parent: ScheduleEntry, row: FireEntry | None, at: datetime
) -> bool:
    """Return whether a backfill may still lay the awaited window, or a later one."""
    state = parent.state
    for each in tables.backfills.values():
        if each.key != rule.parent or each.state != "laying" or each.cursor >= at:
            continue
        if each.ends(state) or each.is_halted(state):
            continue
        if rule.window == "same":
            cause = cause_of(row.status, row.reason_code) if row else UNDECLARED
            if each.is_pending(cause, at, at):
                return True
        elif row is None or row.last_fire_time < min(each.last, at):
            return True
    return False


def _became(row: FireEntry) -> ParentOutcome:
    if row.status in UNSTARTED:
        return "pending"
    if row.status == "started":
        return "lost" if row.lost_at else "pending"
    return row.status  # type: ignore[return-value] # the four above aside


def _window(tables: Tables, rule: Rule, at: datetime) -> FireEntry | None:
    rows = [
        row for row in tables.of_key(rule.parent) if row.kind == "window" and row.fire_time <= at
    ]
    if rule.window == "latest":
        ran = [row for row in rows if row.status not in {"skipped", "expired"}]
        return max(ran, key=lambda row: (row.fire_time, row.series), default=None)
    same = [row for row in rows if row.last_fire_time >= at]
    return max(same, key=lambda row: (row.series, row.fire_time), default=None)
