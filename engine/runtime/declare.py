"""Applies a schedule file to a ledger: idempotent, in one transaction, by rule L3.

Every edit takes the schedule's row lock, reads the clock after it has it, decides the windows
up to that moment under the old definition, and only then writes the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from engine.errors import (
    DefinitionUnreadable,
    KeyForeign,
    PruneRefused,
    RevisionTooLow,
)
from engine.ledger import Ledger, Transaction
from engine.ledger.records import NewDefinition, ScheduleState, Step
from engine.runtime.planning import planned
from engine.schedules import Schedule, ScheduleFile, Window
from engine.schedules.diff import diff, starts_new_series
from engine.schedules.planner import Decision, first_sight, wake_at

PRUNE_AFTER = timedelta(seconds=30)
"""A key is retired only when it has been absent from an unchanged file for this long."""
LOOK_BACK = timedelta(seconds=60)
"""How far a stateless replica, which has no cursor, looks back when it starts."""


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What applying a file did; every field but the last two holds keys."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    project: str = "default"
    already_applied: bool = False

    def __str__(self) -> str:
        if self.already_applied:
            return f"project {self.project}: nothing changed since the last apply"
        named = ("added", "changed", "returned", "unchanged")
        counts = [f"{len(getattr(self, name))} {name}" for name in named if getattr(self, name)]
        if self.absent:
            counts.append(f"{len(self.absent)} not in the file and still firing")
        return f"project {self.project}: {', '.join(counts)}"

    @property
    def remarks(self) -> list[str]:
        """What somebody should hear of single keys, a sentence each."""
        return [
            *(f"{key}: its moment had passed, booked as expired" for key in self.expired),
            *(
                f"{key}: owed windows were rejected, no worker ever announced its workflow"
                for key in self.rejected
            ),
            *(f"{key}: no worker has announced its workflow yet" for key in self.waiting),
        ]


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What pruning did: keys that were retired, and keys that are not absent for long enough."""

    retired: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


async def apply(ledger: Ledger, file: ScheduleFile, *, by: str, force: bool = False) -> ApplyReport:
    """Make the file's schedules the newest definitions of its project. Never retires a key.

    Raises:
        KeyForeign: when another project owns a key of the file; nothing is applied then.
        RevisionTooLow: when a file with a higher ``revision`` was applied, unless forced.
    """
    async with ledger.transaction(long=True) as transaction:
        last = await transaction.lock_project(file.project)
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
        PruneRefused: when more than half of the project would go, unless forced.
    """
    async with ledger.transaction(long=True) as transaction:
        last = await transaction.lock_project(file.project)
        if last is None or last.file_digest != file.digest:
            return PruneReport()
        heads = await transaction.heads(file.project, ())
        compared = diff(file.project, file.schedules, heads)
        now = await transaction.now()
        since = await transaction.mark_absent(file.project, compared.absent, now)
        ripe = sorted(key for key, moment in since.items() if moment <= now - absent_for)
        living = sum(not head.retired for head in heads.values())
        if len(ripe) * 2 > living and not force:
            raise PruneRefused(
                f"{len(ripe)} of the {living} schedules of project {file.project} are not in"
                f" {file.name}",
                cure="put them back, or retire them with --force",
            )
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
            waiting=tuple(item.schedule.key for item in new if item.workflow_type is None),
            rejected=tuple(
                step.state.key
                for step in owed
                if any(decision.verdict == "rejected" for decision in step.decisions)
            ),
            project=file.project,
        )

    def _first(self, schedule: Schedule, now: datetime) -> NewDefinition:
        """A key the ledger has never seen."""
        effective_from, cursor = first_sight(schedule, now)
        if self._look_back and schedule.first_fire != "now":
            # Its current window may have run long ago, and nobody would know.
            effective_from = cursor = now - LOOK_BACK - schedule.spread
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
        held = before.paused_at is not None or not schedule.enabled
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
            paused=before.paused_at is not None,
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
    unable = None
    if state.workflow_type is None:
        unable = f"no worker ever announced workflow {state.schedule.workflow}"
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
