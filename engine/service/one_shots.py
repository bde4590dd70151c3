"""Schedules declared by applications at run time."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from engine.errors import (
    KeyInUse,
    LedgerRequired,
    MomentInPast,
    NotCancellable,
    OwnedByFile,
    RequestInUse,
    ScheduleError,
)
from engine.ledger import Ledger, Transaction
from engine.ledger.records import Action, NewDefinition, ScheduleState
from engine.runtime import planning
from engine.runtime.apply.definitions import first_definition, next_definition
from engine.runtime.apply.source import DEFAULT_PROJECT
from engine.runtime.planning import decide_ahead, locked
from engine.schedules import Schedule
from engine.schedules.diff import WHEN
from engine.schedules.units import TICK, epoch_ms
from engine.service.base import ReadOperations, require_request_id

# --- application schedules ---
# Schedules that applications ask for while they run: one moment, or one that repeats.
#
# They live in the ledger beside those of the files, and no file changes or retires them. What an
# application may do to them afterwards is here and in `stopping`; whoever calls has been authorized
# before.

_DRAFT = "draft"
"""The key of what is checked before its own key is known."""


@dataclass(frozen=True, slots=True)
class ApplicationSchedule:
    """A schedule that an application asked for, or changed.

    Attributes:
        key: the id under which it is found, changed and cancelled.
        schedule: what is in force now.
        next_fire_at: when it fires next; None while it is paused.
        project: whose workers start it.
        workflow_type: what its workflow means today; None while no worker has announced it.
        waiting: why nobody would start it as things are now, if so.
    """

    key: str
    schedule: Schedule
    next_fire_at: datetime | None
    project: str
    workflow_type: str | None
    waiting: str | None = None


async def create_schedule(
    ledger: Ledger,
    fields: Mapping[str, Any],
    *,
    by: str,
    project: str = "default",
    key: str | None = None,
    request_id: str | None = None,
    reason: str | None = None,
) -> ApplicationSchedule:
    """Schedule a workflow for one moment, or again and again.

    Args:
        ledger: the memory to write it to.
        fields: the schedule as an entry of a file has it, without its key.
        by: who asks.
        reason: why, for the audit.
        project: whose workers start it.
        key: names it; without one it gets a key of its own, in the order of time.
        request_id: asking twice under one id is refused, so that a repeated request does nothing.

    Raises:
        ScheduleError: a field is wrong; its code says which.
        MomentInPast: it would never fire.
        KeyInUse: the key is, or was, another schedule's.
        RequestInvalid: the request id is none.
        RequestInUse: it was used before, whatever became of that schedule.
        LedgerRequired: the ledger forgets.
    """
    _require_memory(ledger)
    draft = _draft(fields, key, request_id)
    async with ledger.transaction(long=True) as transaction:
        # As an apply does: two that reach for one key, or one request id, come one by one.
        await transaction.lock_project(project)
        now = await transaction.now()
        if key is None:
            draft = draft.model_copy(update={"key": _new_key(draft, now)})
        await _require_unused(transaction, draft.key, request_id)
        _require_future(draft, now)
        new = first_definition(
            draft, now, project=project, workflow_type=await _type_of(transaction, draft),
            origin="api", request_id=request_id,
        )  # fmt: skip
        await _declare(transaction, new, by=by, reason=reason)
        return await _asked(transaction, new)


def _draft(fields: Mapping[str, Any], key: str | None, request_id: str | None) -> Schedule:
    if request_id is not None:
        require_request_id(request_id)
    draft = Schedule.from_json({**fields, "key": key or _DRAFT})
    if draft.follows:  # nobody would look for a cycle, or keep the times of both the same
        raise ScheduleError("after and needs belong to a schedule of a file", cure="remove them")
    return draft


async def _declare(
    transaction: Transaction, new: NewDefinition, *, by: str, reason: str | None
) -> None:
    await transaction.define([new], by=by)
    asked = new.schedule
    action = Action(new.project, asked.key, "schedule", reason, after=asked.to_json())
    await transaction.act([action], by=by)


async def _require_unused(transaction: Transaction, key: str, request_id: str | None) -> None:
    if request_id is not None and (other := await transaction.asked_under(request_id)):
        raise RequestInUse(f"request id {request_id} was used before, for {other}")
    if await transaction.heads("", [key]):  # of this key alone, and no project's
        raise KeyInUse(f"there is, or was, a schedule {key}", cure="choose another key")


async def reschedule(
    ledger: Ledger, key: str, when: Mapping[str, Any], *, by: str, reason: str | None = None
) -> ApplicationSchedule:
    """Let a schedule of an application fire at other times; all else stays.

    Args:
        ledger: the memory that has it.
        key: of the schedule.
        when: the fields that say when, as a file has them; they replace all that said it before.
        by: who asks.
        reason: why, for the audit.

    Raises:
        ScheduleNotFound: there is none of this key.
        OwnedByFile: a file declares it.
        NotCancellable: it was cancelled, or its last window has come.
        ScheduleError: a field is wrong.
        MomentInPast: it would never fire again.
    """
    _require_memory(ledger)
    await decide_ahead(ledger, key)
    async with locked(ledger, key, by=by, retired=True) as held:
        before = held.state
        _require_movable(before, held.now)
        changed = _with(before.schedule, when)
        _require_future(changed, held.now)
        owed = await held.decide()
        new = next_definition(
            owed, changed, held.now, project=before.project, origin="api",
            workflow_type=await _type_of(held.transaction, changed),
        )  # fmt: skip
        await held.transaction.define([new], by=by)
        await held.act(
            "reschedule", reason=reason,
            before=before.schedule.to_json(), after=changed.to_json(),
        )  # fmt: skip
        return await _asked(held.transaction, new)


def _require_movable(state: ScheduleState, now: datetime) -> None:
    key = state.key
    if state.origin == "file":
        raise OwnedByFile(f"{key} is declared by a file", cure="change the file and apply it")
    if state.retired_at is not None:
        raise NotCancellable(f"{key} was cancelled at {state.retired_at:%Y-%m-%d %H:%M:%S}Z")
    if state.schedule.spec.next(now) is None:
        raise NotCancellable(f"the last window of {key} has come", cure="ask for a new one")


def _with(schedule: Schedule, when: Mapping[str, Any]) -> Schedule:
    kept = {name: value for name, value in schedule.to_json().items() if name not in WHEN}
    return Schedule.from_json({**kept, **when})


async def _type_of(transaction: Transaction, schedule: Schedule) -> str | None:
    if schedule.external:
        return schedule.workflow
    wanted = (schedule.task_queue, schedule.workflow)
    return (await transaction.resolve([wanted]))[wanted]


async def _asked(transaction: Transaction, new: NewDefinition) -> ApplicationSchedule:
    waiting, schedule = None, new.schedule
    if new.workflow_type is None:
        # A worker that announces it at this very moment has not seen this row.
        await transaction.raise_epoch()
        announced = await transaction.announced([schedule.task_queue])
        waiting = planning.explained(schedule, announced.get(schedule.task_queue, ()))
    kind = new.workflow_type
    return ApplicationSchedule(schedule.key, schedule, new.next_fire_at, new.project, kind, waiting)


def _require_memory(ledger: Ledger) -> None:
    if not ledger.remembers:
        raise LedgerRequired(
            "a schedule of an application needs a ledger", cure="set SCHED_DATABASE_URL"
        )


def _require_future(schedule: Schedule, now: datetime) -> None:
    if schedule.first_start(now + TICK) is None:
        past = schedule.spec.previous(now)
        moment = f"{past:%Y-%m-%d %H:%M:%S}Z" if past else schedule.when
        raise MomentInPast(
            f"{moment} has passed, it is {now:%Y-%m-%d %H:%M:%S}Z", cure="name one to come"
        )


def _new_key(schedule: Schedule, now: datetime) -> str:
    """Return a key nobody has: the clock's milliseconds and 74 random bits, a UUID of version 7."""
    number = epoch_ms(now) << 80 | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return f"{'at' if schedule.kind == 'at' else 'repeat'}-{UUID(int=number)}"


# --- service methods ---
# The verbs of applications, which declare schedules of their own.


class ApplicationSchedules(ReadOperations):
    """Operations of applications that declare schedules at run time."""

    async def schedule_at(
        self,
        workflow: str,
        at: datetime | str,
        *,
        key: str | None = None,
        request_id: str | None = None,
        project: str = DEFAULT_PROJECT,
        reason: str | None = None,
        **fields: Any,
    ) -> ApplicationSchedule:
        """Start a workflow once, at ``at``; see ``one_shots.create_schedule``.

        It is declared even where no living worker would start it; then
        ``ApplicationSchedule.waiting`` says so.

        Args:
            workflow: what to start, as a schedule file names it.
            at: an aware instant, or ISO 8601; without an offset it is local to ``timezone``.
            key: names the schedule; without one it gets a key of its own.
            request_id: asking twice under one id is refused.
            project: whose workers start it.
            reason: why, for the audit.
            fields: further fields of a schedule, by their names in a file: ``input``,
                ``timezone``, ``taskQueue``, ``metadata``.
        """
        moment = at if isinstance(at, str) else as_text(at)
        asked = await create_schedule(
            self._ledger, {"workflow": workflow, "at": moment, **fields}, by=self._actor,
            project=project, key=key, request_id=request_id, reason=reason,
        )  # fmt: skip
        return await self._with_workers(asked)

    async def schedule_repeat(
        self,
        workflow: str,
        *,
        key: str | None = None,
        request_id: str | None = None,
        project: str = DEFAULT_PROJECT,
        reason: str | None = None,
        **fields: Any,
    ) -> ApplicationSchedule:
        """Start a workflow again and again, by ``everyMs`` or ``cron``; see ``schedule_at``."""
        asked = await create_schedule(
            self._ledger, {"workflow": workflow, **fields}, by=self._actor,
            project=project, key=key, request_id=request_id, reason=reason,
        )  # fmt: skip
        return await self._with_workers(asked)

    async def reschedule(
        self, key: str, *, reason: str | None = None, **when: Any
    ) -> ApplicationSchedule:
        """Let a schedule of an application fire at other times; see ``one_shots.reschedule``.

        Args:
            key: of the schedule.
            reason: why, for the audit.
            when: the fields that say when, by their names in a file; ``at`` may be an instant.
        """
        if isinstance(at := when.get("at"), datetime):
            when["at"] = as_text(at)
        async with self._near():
            asked = await reschedule(self._ledger, key, when, by=self._actor, reason=reason)
        return await self._with_workers(asked)

    async def _with_workers(self, asked: ApplicationSchedule) -> ApplicationSchedule:
        """Say where no worker lives that would start it; it is asked for all the same."""
        if asked.waiting is not None:
            return asked
        workflow = asked.workflow_type or asked.schedule.workflow
        lane, served = asked.schedule.lane, await self.served()
        place = planning.unserved_at(asked.project, lane, workflow, served)
        return replace(asked, waiting=planning.no_worker_lives({place: 1})) if place else asked


def as_text(moment: datetime) -> str:
    """Return an instant as a schedule has it: to the millisecond, floored.

    Raises:
        ValueError: it is naive; its meaning would depend on the machine.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} is naive; give it a time zone, e.g. tzinfo=UTC")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
