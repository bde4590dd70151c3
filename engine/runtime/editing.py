"""What one apply writes: first sights, edits and returns, in its transaction (rule L3)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from engine.errors import DefinitionUnreadable, KeyForeign
from engine.ledger import Transaction
from engine.ledger.declaration_records import NewDefinition
from engine.ledger.schedule_records import ScheduleState, Step
from engine.runtime import unknown
from engine.runtime.definitions import first_definition, next_definition
from engine.runtime.ending import end
from engine.runtime.planning import decided_to_the_end, owes_many
from engine.runtime.queue_edits import write_queues
from engine.runtime.refusing import refused
from engine.runtime.reports import ApplyReport
from engine.runtime.skips import Dropped, renew_skips
from engine.schedules import Schedule, ScheduleFile, Window
from engine.schedules.decisions import Decision
from engine.schedules.diff import Diff, diff, edits

_PART = 100


class OwesManyError(Exception):
    """Of these keys more is to be decided first than the transaction of an edit should hold."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(keys)
        self.keys = keys


class Edit:
    """One apply, inside its transaction.

    ``ahead`` are keys of which so much as can be was decided before it.
    """

    def __init__(
        self,
        transaction: Transaction,
        file: ScheduleFile,
        *,
        by: str,
        look_back: bool,
        ahead: Collection[str] = (),
    ) -> None:
        self._transaction, self._file, self._by = transaction, file, by
        self._look_back, self._ahead = look_back, ahead
        self._types: Mapping[tuple[str, str], str | None] = {}
        self._expired: list[str] = []
        self._rejected: list[str] = []
        self._edits: dict[str, tuple[str, ...]] = {}
        self._unknown: dict[str, str] = {}
        self._dropped: Dropped = {}

    async def write(self) -> ApplyReport:
        """Write it all.

        Raises:
            OwesManyError: what keys owe is to be decided ahead; nothing is written then.
            KeyForeign: when another project owns a key of the file; nothing is written then.
            DefinitionUnreadable: when a key that changes was written by a newer version.
        """
        transaction, file = self._transaction, self._file
        schedules = {schedule.key: schedule for schedule in file.schedules}
        heads = await transaction.heads(file.project, list(schedules))
        compared = diff(file.project, file.schedules, heads)
        if compared.foreign:
            raise _foreign(file, {key: heads[key].owner for key in compared.foreign})
        queues = await write_queues(transaction, file, by=self._by)
        self._types = await transaction.resolve(
            (schedule.task_queue, schedule.workflow)
            for schedule in file.schedules
            if not schedule.external
        )
        refusals = await refused(transaction, file.schedules, compared, self._types)
        compared = compared.without(refusals)
        edited = [*compared.changed, *compared.returned]
        await transaction.lock_edited(file.project, [*edited, *compared.absent])
        now = await transaction.now()
        for part in parts(compared.added):
            await self._define([self._first(schedules[key], now) for key in part], {}, now)
        for part in parts(edited):
            await self._edit(part, schedules, now)
        await transaction.mark_absent(file.project, compared.absent, now)
        await transaction.save_project(file, by=self._by, refused=refusals)
        return self._report(compared, refusals, queues)

    def _report(
        self, compared: Diff, refusals: Mapping[str, str], queues: tuple[str, ...]
    ) -> ApplyReport:
        return ApplyReport(
            added=compared.added,
            changed=compared.changed,
            returned=compared.returned,
            unchanged=compared.unchanged,
            absent=compared.absent,
            expired=tuple(self._expired),
            edits={key: self._edits[key] for key in compared.changed},
            refused=refusals,
            waiting=self._unknown,
            queues=queues,
            unskipped=self._dropped,
            rejected=tuple(self._rejected),
            project=self._file.project,
        )

    async def _edit(
        self, keys: Sequence[str], schedules: Mapping[str, Schedule], now: datetime
    ) -> None:
        """Decide what these keys owe under their old definitions, and write the new ones."""
        states = await readable(self._transaction, keys)
        if behind := [s.key for s in states if s.key not in self._ahead and owes_many(s, now)]:
            raise OwesManyError(behind)
        owed = await end(
            self._transaction, states, lambda state: _owed(state, schedules[state.key], now)
        )
        before = {state.key: state for state in states}
        self._edits |= {key: edits(before[key].schedule, schedules[key]) for key in keys}
        self._rejected += [
            step.state.key
            for step in owed
            if any(decision.verdict == "rejected" for decision in step.decisions)
        ]
        new = [self._next(step, schedules[step.state.key], now) for step in owed]
        lifted = await self._transaction.lift_skips(keys)
        await self._define(new, before, now)
        self._dropped |= await renew_skips(self._transaction, lifted, by=self._by)

    async def _define(
        self, new: list[NewDefinition], before: Mapping[str, ScheduleState], now: datetime
    ) -> None:
        await self._transaction.define(new, by=self._by)
        self._expired += await self._book_past_moments(new, before, now)
        self._unknown |= await self._waiting(new)
        await asyncio.sleep(0)  # the loop's other tasks are due

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
        return first_definition(
            schedule, now, project=self._file.project, workflow_type=self._type(schedule),
            look_back=self._look_back,
        )  # fmt: skip

    def _next(self, owed: Step, schedule: Schedule, now: datetime) -> NewDefinition:
        return next_definition(
            owed, schedule, now, project=self._file.project, workflow_type=self._type(schedule)
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
        if not past:
            return ()
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


async def take(transaction: Transaction, file: ScheduleFile, old: str) -> None:
    """Let what the file declares, and another project has from its own file, be this project's."""
    heads = await transaction.heads(old, ())
    theirs = {key for key, each in heads.items() if each.origin == "file" and not each.retired}
    keys = sorted(theirs & {schedule.key for schedule in file.schedules})
    if keys and old != file.project:
        await transaction.lock_edited(old, keys)
        await transaction.move_to_project(keys, old, file.project)


def _foreign(file: ScheduleFile, owners: Mapping[str, str]) -> KeyForeign:
    named = ", ".join(f"{key} (of {owner})" for key, owner in owners.items())
    cure = "rename them, or let their owners retire or cancel them"
    owner, *others = {*owners.values()}
    if not others and owner.startswith("project "):
        cure = (
            f"where the {owner} was renamed, let `sched apply --take-from"
            f" {owner.removeprefix('project ')}` move them: until then nobody starts them, unless"
            f" a worker still serves it; else {cure}"
        )
    return KeyForeign(f"{file.name} declares keys of others: {named}", cure=cure)


def parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Divide keys into so many as keep the event loop, and the database, for tens of ms."""
    return (keys[first : first + _PART] for first in range(0, len(keys), _PART))


async def readable(transaction: Transaction, keys: Sequence[str]) -> list[ScheduleState]:
    """Read these locked schedules, every one: what one owes must be decided first.

    Raises:
        DefinitionUnreadable: one was written by a version that knows more.
    """
    states = await transaction.read(keys)
    if missing := sorted(set(keys) - {state.key for state in states}):
        raise DefinitionUnreadable(
            f"the present definitions of {', '.join(missing)} cannot be read by this version",
            cure="apply with the version that wrote them",
        )
    return states


def _owed(state: ScheduleState, new: Schedule, now: datetime) -> Step:
    """Decide everything the present definition still owes, now that another takes its place."""
    ended = state.hold == "disabled" and new.enabled
    make_up = new.catch_up.after("deploy") if ended else None
    return decided_to_the_end(state, now, make_up=make_up)


def _decided(before: ScheduleState | None, moment: datetime) -> bool:
    """Whether an earlier definition had this very moment and came to it."""
    if before is None or before.schedule.kind != "at":
        return False
    same = before.schedule.spec.previous(moment) == moment
    return same and (before.retired_at is None or before.cursor >= moment)
