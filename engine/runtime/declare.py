"""Applies a schedule file to a ledger: idempotent, in one transaction, by rule L3.

Every edit takes the schedule's row lock, reads the clock after it has it, decides the windows
up to that moment under the old definition, and only then writes the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.errors import (
    DefinitionUnreadable,
    KeyForeign,
    PruneRefused,
    RevisionTooLow,
)
from engine.ledger import Ledger, Transaction
from engine.ledger.records import NewDefinition, ScheduleState, Step
from engine.runtime import unknown
from engine.runtime.planning import planned
from engine.runtime.reports import ApplyReport, PruneReport
from engine.schedules import Schedule, ScheduleFile, Window
from engine.schedules.diff import diff, edits, starts_new_series
from engine.schedules.planner import Decision, first_sight, wake_at

PRUNE_AFTER = timedelta(seconds=30)
"""A key is retired only when it has been absent from an unchanged file for this long."""
LOOK_BACK = timedelta(seconds=60)
"""How far a stateless replica, which has no cursor, looks back when it starts."""
_NAMED = 5


async def apply(
    ledger: Ledger, file: ScheduleFile, *, by: str, force: bool = False, prune: bool = False
) -> ApplyReport:
    """Make the file's schedules the newest definitions of its project. Never retires a key.

    Args:
        ledger: where to.
        file: what is to be applied.
        by: who applies it, for the ledger's records.
        force: whatever its revision, and however many keys it lacks.
        prune: ``retire_absent`` is to follow; what it would refuse is refused here.

    Raises:
        KeyForeign: when another project owns a key of the file; nothing is applied then.
        RevisionTooLow: when a file with a higher ``revision`` was applied, unless forced.
        PruneRefused: when ``prune`` would retire more than half of the project, unless forced.
    """
    async with ledger.transaction(long=True) as transaction:
        last = await transaction.lock_project(file.project)
        if prune and not force:
            # Before anything is written or waited for: whoever is refused has changed nothing.
            heads = await transaction.heads(file.project, ())
            _require_half(file, diff(file.project, file.schedules, heads).absent)
        if last and last.file_digest == file.digest and not force:
            keys = tuple(schedule.key for schedule in file.schedules)
            return ApplyReport(unchanged=keys, project=file.project, already_applied=True)
        newest = last.revision if last else None
        if not force and None not in {newest, file.revision} and file.revision < newest:  # type: ignore[operator] # neither is None
            raise RevisionTooLow(
                f"{file.name} has revision {file.revision}, revision {newest} was applied before",
                cure="apply the newer file, or force this one",
            )
        edit = _Edit(transaction, file, by=by, look_back=not ledger.remembers)
        return await edit.write()


async def already_applied(ledger: Ledger, project: str, digest: str) -> bool:
    """Whether the file with this digest is what the project was applied from last."""
    async with ledger.transaction(long=True) as transaction:
        last = await transaction.lock_project(project)
        return last is not None and last.file_digest == digest


async def retire_absent(
    ledger: Ledger,
    file: ScheduleFile,
    *,
    by: str,
    absent_for: timedelta = PRUNE_AFTER,
    force: bool = False,
) -> PruneReport:
    """Retire the project's keys that the file, unchanged since, has lacked for long enough.

    Nothing is retired when a different file has been applied in between.

    Raises:
        PruneRefused: when the file lacks more than half of the project, unless forced.
    """
    async with ledger.transaction(long=True) as transaction:
        last = await transaction.lock_project(file.project)
        if last is None or last.file_digest != file.digest:
            return PruneReport()
        heads = await transaction.heads(file.project, ())
        compared = diff(file.project, file.schedules, heads)
        now = await transaction.now()
        if not force:
            # All of them, also those that have not been absent for long: nobody is to be told
            # that a key will be retired, and later that it will not.
            _require_half(file, compared.absent)
        since = await transaction.mark_absent(file.project, compared.absent, now)
        ripe = sorted(key for key, moment in since.items() if moment <= now - absent_for)
        if ripe:
            states = await _locked(transaction, ripe)
            now = await transaction.now()
            owed = [_final(state, now) for state in states]
            await transaction.record(owed, strict=True)
            await transaction.retire(ripe, now)
            await transaction.save_project(
                file.project, revision=file.revision, name=file.name, digest=file.digest, by=by
            )
        return PruneReport(tuple(ripe), tuple(sorted(set(compared.absent) - set(ripe))))


def _require_half(file: ScheduleFile, absent: Sequence[str]) -> None:
    """Refuse a file that lacks more than half of what its project has once it is applied."""
    if len(absent) <= len(file.schedules):
        return
    more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
    raise PruneRefused(
        f"{len(absent)} of the {len(file.schedules) + len(absent)} schedules of project"
        f" {file.project} are not in {file.name}: {', '.join(absent[:_NAMED])}{more}; that is more"
        " than half, so none of them is retired, and they go on firing",
        cure=f"put them back, or retire them with `sched apply {file.name} --prune --force`",
    )


class _Edit:
    """One apply, inside its transaction."""

    def __init__(
        self, transaction: Transaction, file: ScheduleFile, *, by: str, look_back: bool
    ) -> None:
        self._transaction, self._file, self._by = transaction, file, by
        self._look_back = look_back
        self._types: Mapping[tuple[str, str], str | None] = {}

    async def write(self) -> ApplyReport:
        transaction, file = self._transaction, self._file
        schedules = {schedule.key: schedule for schedule in file.schedules}
        heads = await transaction.heads(file.project, list(schedules))
        compared = diff(file.project, file.schedules, heads)
        if compared.foreign:
            owners = {key: heads[key].project for key in compared.foreign}
            named = ", ".join(f"{key} (of project {owner})" for key, owner in owners.items())
            raise KeyForeign(
                f"{file.name} declares keys of other projects: {named}",
                cure="rename them, or retire them in the project that has them",
            )
        self._types = await transaction.resolve(
            (schedule.task_queue, schedule.workflow)
            for schedule in file.schedules
            if not schedule.external
        )
        edited = [*compared.changed, *compared.returned]
        states = await _locked(transaction, edited)
        now = await transaction.now()
        owed = [_final(state, now) for state in states]
        await transaction.record(owed, strict=True)
        new = [self._first(schedules[key], now) for key in compared.added]
        new += [self._next(step, schedules[step.state.key], now) for step in owed]
        await transaction.define(new, by=self._by)
        before = {state.key: state for state in states}
        expired = await self._book_past_moments(new, before, now)
        await transaction.mark_absent(file.project, compared.absent, now)
        await transaction.save_project(
            file.project, revision=file.revision, name=file.name, digest=file.digest, by=self._by
        )
        return ApplyReport(
            added=compared.added,
            changed=compared.changed,
            returned=compared.returned,
            unchanged=compared.unchanged,
            absent=compared.absent,
            expired=expired,
            edits={key: edits(before[key].schedule, schedules[key]) for key in compared.changed},
            waiting=await self._waiting(new),
            rejected=tuple(
                step.state.key
                for step in owed
                if any(decision.verdict == "rejected" for decision in step.decisions)
            ),
            project=file.project,
        )

    async def _waiting(self, new: Sequence[NewDefinition]) -> dict[str, str]:
        """What is known of the workflows that nobody can run."""
        waiting = [item.schedule for item in new if item.workflow_type is None]
        queues = {schedule.task_queue for schedule in waiting}
        announced = await self._transaction.announced(queues) if queues else {}
        return {
            schedule.key: unknown.explained(schedule, announced.get(schedule.task_queue, ()))
            for schedule in waiting
        }

    def _first(self, schedule: Schedule, now: datetime) -> NewDefinition:
        """A key the ledger has never seen."""
        effective_from, cursor = first_sight(schedule, now)
        if self._look_back and schedule.first_fire != "now":
            # Its current window may have run long ago, and nobody would know.
            effective_from = cursor = _looked_back(schedule, now - LOOK_BACK)
        held = schedule.paused or not schedule.enabled
        return NewDefinition(
            schedule=schedule,
            project=self._file.project,
            version=1,
            series=1,
            suffixed=False,
            max_bucket=None,
            effective_from=effective_from,
            cursor=cursor,
            next_fire_at=None if held else wake_at(schedule, cursor),
            workflow_type=self._type(schedule),
            paused=schedule.paused,
        )

    def _next(self, owed: Step, schedule: Schedule, now: datetime) -> NewDefinition:
        """A key that changes or returns; everything it owed until ``now`` is decided."""
        before = owed.state
        returning = before.retired_at is not None
        effective_from = cursor = max(now, owed.cursor)
        series, suffixed = before.series, before.suffixed
        if returning or starts_new_series(before.schedule, schedule):
            series += 1
            suffixed = _collides(schedule, cursor, owed.max_bucket)
        held = before.pause is not None or not schedule.enabled
        return NewDefinition(
            schedule=schedule,
            project=self._file.project,
            version=before.definition_version + 1,
            series=series,
            suffixed=suffixed,
            max_bucket=owed.max_bucket,
            effective_from=effective_from,
            cursor=cursor,
            next_fire_at=None if held else wake_at(schedule, cursor),
            workflow_type=self._type(schedule),
            paused=before.pause is not None,
        )

    async def _book_past_moments(
        self,
        definitions: list[NewDefinition],
        before: Mapping[str, ScheduleState],
        now: datetime,
    ) -> tuple[str, ...]:
        """An ``at`` that had passed when it was declared never runs, and the ledger says so."""
        past = {}
        for new in definitions:
            schedule = new.schedule
            moment = schedule.spec.previous(now) if schedule.kind == "at" else None
            if moment is None or moment > new.cursor:
                continue
            if not _decided(before.get(schedule.key), moment):
                past[schedule.key] = moment
        steps = []
        for state in await self._transaction.read(list(past)):
            moment = past[state.key]
            window = Window(state.key, state.series, state.schedule.spec.bucket(moment), moment)
            decision = Decision(window, "expired", "had passed when it was declared")
            steps.append(Step(state, (decision,), state.cursor, None))
        await self._transaction.record(steps, strict=True)
        return tuple(past)

    def _type(self, schedule: Schedule) -> str | None:
        if schedule.external:
            return schedule.workflow
        return self._types[schedule.task_queue, schedule.workflow]


def _looked_back(schedule: Schedule, limit: datetime) -> datetime:
    """Return the cursor after which every run's moment, spread included, is after ``limit``."""
    before = schedule.spec.previous(limit)
    if before is None or before + schedule.delay(before) <= limit:
        return limit
    return before - timedelta(microseconds=1)  # the one window that still waits


async def _locked(transaction: Transaction, keys: Sequence[str]) -> list[ScheduleState]:
    """Lock these schedules and read them, every one: what one owes must be decided first."""
    await transaction.lock(keys)
    states = await transaction.read(keys)
    if missing := sorted(set(keys) - {state.key for state in states}):
        raise DefinitionUnreadable(
            f"the present definitions of {', '.join(missing)} cannot be read by this version",
            cure="apply with the version that wrote them",
        )
    return states


def _final(state: ScheduleState, now: datetime) -> Step:
    """Decide everything the present definition still owes."""
    unable = unknown.reason(state.schedule) if state.workflow_type is None else None
    return replace(planned(state, now, unable=unable, final=True), next_fire_at=None)


def _decided(before: ScheduleState | None, moment: datetime) -> bool:
    """Whether an earlier definition had this very moment and came to it."""
    if before is None or before.schedule.kind != "at":
        return False
    same = before.schedule.spec.previous(moment) == moment
    return same and (before.retired_at is None or before.cursor >= moment)


def _collides(schedule: Schedule, after: datetime, max_bucket: int | None) -> bool:
    """Whether ids of a new series could repeat those of an older one."""
    first = schedule.spec.next(after)
    if max_bucket is None:
        return False
    return first is None or schedule.spec.bucket(first) <= max_bucket
