"""Schedules declared by applications at run time."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from engine.errors import (
    KeyInUse,
    MomentInPast,
    NotCancellable,
    OwnedByFile,
    RequestInUse,
    RetryPolicyInvalid,
    ScheduleError,
    VersionOutdated,
)
from engine.ledger import Action, NewDefinition, ScheduleRow
from engine.runtime import workflow_workers
from engine.runtime.apply.definitions import first_definition, next_definition, read_all
from engine.runtime.schedule_lock import (
    Locked,
    decide_ahead,
    decided_to_the_end,
    record_decided,
    require_present,
)
from engine.runtime.workflow_workers import type_of
from engine.schedules import MOST_TRIES, TICK, WHEN, Schedule, epoch_ms, utc_text
from engine.schedules.loader.relations import (
    inherited,
    parents_of,
    require_fitting,
    takes_times,
    with_parents,
)
from engine.schedules.planner import ScheduleState
from engine.service.base import (
    ReadOperations,
    as_json,
    require_request_id,
    require_version,
    workflow_text,
)

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from engine.ledger import Transaction

    Connection = asyncpg.Connection[Any] | PoolConnectionProxy[Any]

# --- application schedules ---
# One-shot and repeating schedules that applications create at run time.
#
# They live in the ledger beside those of schedule files, and no file changes or retires them.
# Applications change them here and end them with ``runs.cancel``. Callers are authorized before.

_REQUEST_ID = "clientRequestId"
_IDENTITIES = ("ownerId", "tenantId", "correlationId", _REQUEST_ID)
_LONGEST_ID = 64
_SHOWN = 80
"""Characters of an invalid value that an error message quotes."""

_ATTEMPTS: Final = 5
"""Times that a declaration looks again because its key was created or retired meanwhile."""

_DRAFT = "draft"
"""Key of a schedule that is validated before its own key is known."""


@dataclass(frozen=True, slots=True)
class ApplicationSchedule:
    """A schedule that an application created or changed.

    Attributes:
        key: the id by which it is found, changed and cancelled.
        schedule: the definition in force.
        next_fire_at: when it fires next; None while it is paused.
        project: the project whose workers start it.
        workflow_type: the workflow's current Temporal type; None until a worker announces it.
        waiting: why no worker would start it at present; None if one would.
    """

    key: str
    schedule: Schedule
    next_fire_at: datetime | None
    project: str
    workflow_type: str | None
    waiting: str | None = None


@dataclass(frozen=True, slots=True)
class DeclaredByKey:
    """A schedule that an application declared by its key.

    Attributes:
        row: the schedule as it is now.
        outcome: ``created`` also for a key that returns in a new series; ``unchanged`` if the
            definition equals the one before, which made no new version.
    """

    row: ScheduleRow
    outcome: Literal["created", "changed", "unchanged"]


@dataclass(frozen=True, slots=True)
class _Request:
    """A schedule that an application asks for; ``fields`` by their names in a file."""

    fields: Mapping[str, Any]
    project: str
    key: str | None
    reason: str | None
    connection: Connection | None = None

    @property
    def request_id(self) -> str | None:
        """The id that its metadata have, however the application gave it."""
        metadata = self.fields.get("metadata")
        return metadata.get(_REQUEST_ID) if isinstance(metadata, Mapping) else None


def _draft(fields: Mapping[str, Any], key: str | None) -> Schedule:
    return Schedule.from_json({**fields, "key": _DRAFT if key is None else key})


def _what(workflow: str | type[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with the workflow and its input as a file has them.

    Raises:
        TypeError: it is no workflow, or its ``run`` does not fit the input.
        ScheduleError: JSON cannot carry the input.
    """
    found = dict(fields)
    if "input" in fields:
        found["input"] = as_json(fields["input"])
    if isinstance(workflow, type):  # of anything else the check of the field says what is wrong
        workflow = workflow_text(workflow, has_input="input" in fields)
    return {**found, "workflow": workflow}


def identified(fields: Mapping[str, Any], *values: str | None) -> Mapping[str, Any]:
    """Note in the metadata for whom a schedule is, and under which id it was asked for.

    Raises:
        ScheduleError: one of these is not a text of 1 to 64 characters.
    """
    given = {} if fields.get("metadata") is None else fields["metadata"]
    if not isinstance(given, Mapping):
        return fields  # its check refuses it
    named = dict(zip(_IDENTITIES, values, strict=True))
    metadata = {**given, **{name: value for name, value in named.items() if value is not None}}
    if isinstance(request_id := metadata.get(_REQUEST_ID), str):
        require_request_id(request_id)
    for name in _IDENTITIES:
        value = metadata.get(name)
        if value is not None and not (isinstance(value, str) and 1 <= len(value) <= _LONGEST_ID):
            raise ScheduleError(
                f"{name} is {value!r:.{_SHOWN}}",
                hint=f"write a text of 1 to {_LONGEST_ID} characters",
            )
    return {**fields, "metadata": metadata} if metadata else fields


def in_our_words(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with ``maxRetries`` and ``timeoutSeconds`` as ``retry`` and ``timeout``.

    Raises:
        RetryPolicyInvalid: ``maxRetries`` is no number of 0 to 99, or ``retry`` is given too.
        ScheduleError: ``timeout`` and ``timeoutSeconds`` are given.
    """
    ours = dict(fields)
    for theirs, name, error in (
        ("maxRetries", "retry", RetryPolicyInvalid),
        ("timeoutSeconds", "timeout", ScheduleError),
    ):
        if theirs in ours and name in ours:
            raise error(f"{name} and {theirs} are given", hint="keep one of the two")
    if "maxRetries" in ours:
        retries = ours.pop("maxRetries")
        if type(retries) is not int or not 0 <= retries < MOST_TRIES:
            raise RetryPolicyInvalid(
                f"maxRetries is {repr(retries)[:_SHOWN]}", hint=f"write 0 to {MOST_TRIES - 1}"
            )
        ours["retry"] = {"attempts": retries + 1}
    if "timeoutSeconds" in ours:
        seconds = ours.pop("timeoutSeconds")
        ours["timeout"] = {"run": f"{seconds}s" if type(seconds) is int else seconds}
    return ours


def _with_caller(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Note the span of the caller in the metadata, if the application traces what it does."""
    given = fields.get("metadata") or {}
    if "opentelemetry.trace" not in sys.modules or not isinstance(given, Mapping):
        return fields
    from engine.telemetry.traces import CALLER, callers_traceparent  # it traces

    found = callers_traceparent()
    return fields if found is None else {**fields, "metadata": {CALLER: found, **given}}


async def _retired(transaction: Transaction, asked: _Request) -> ScheduleState | None:
    """Lock what an application had under this key and has retired; None if the key is new.

    Raises:
        KeyInUse: the key is, or was, another schedule's.
        RequestInUse: the request id was used before.
        ScheduleRenamed: the key is a former one of a schedule.
    """
    key, request_id = asked.key, asked.request_id
    if request_id is not None and (other := await transaction.asked_under(request_id)):
        raise RequestInUse(f"request id {request_id} was used before, for {other}")
    if key is None or not await transaction.heads("", [key]):  # "" is no project: only the key's
        return None
    await transaction.lock([key])
    (before,) = await read_all(transaction, [key])
    require_present(before)
    if before.retired_at is None:
        raise KeyInUse(f"there is a schedule {key}", hint="choose another key")
    if before.origin == "file" or before.project != asked.project:
        owner = f"{'a file' if before.origin == 'file' else 'an application'} of {before.project}"
        raise KeyInUse(f"{key} was retired, and belongs to {owner}", hint="choose another key")
    if asked.connection is not None:
        raise KeyInUse(
            f"{key} was retired, and returns only in a transaction of its own",
            hint="leave out connection=, or choose another key",
        )
    return before


def require_owned_by_application(state: ScheduleState, *, ended: str = "retired") -> None:
    """Check that an application may change the schedule; ``ended`` is the word for a retired one.

    Raises:
        OwnedByFile: a file declares it.
        NotCancellable: it was retired.
        ScheduleRenamed: it has another key now.
    """
    require_present(state)
    if state.origin == "file":
        raise OwnedByFile(f"{state.key} is declared by a file", hint="change the file and apply it")
    if state.retired_at is not None:
        raise NotCancellable(f"{state.key} was {ended} at {utc_text(state.retired_at)}")


def _require_movable(state: ScheduleState, now: datetime) -> None:
    require_owned_by_application(state, ended="cancelled")
    if state.schedule.spec.next(now) is None:
        raise NotCancellable(f"the last window of {state.key} has passed", hint="request a new one")


async def _parents(
    transaction: Transaction, keys: Sequence[str], project: str
) -> dict[str, Schedule]:
    """Return those of these schedules that are of the project and not retired.

    One that was renamed is returned under the key by which it is asked for.
    """
    states = await transaction.read([*dict.fromkeys(keys)]) if keys else []
    present = {state.key: state.successor or state.key for state in states}
    if heirs := {*present.values()} - present.keys():
        states += await transaction.read([*heirs])
    found = {
        state.key: state.schedule
        for state in states
        if state.project == project and state.retired_at is None
    }
    return {key: found[now] for key, now in present.items() if now in found}


def _require_fitting(schedule: Schedule, parents: Mapping[str, Schedule]) -> None:
    """See ``require_fitting``; the parents by the keys that the schedule names."""
    named = with_parents(schedule, {key: parent.key for key, parent in parents.items()})
    others = {parent.key: parent for parent in parents.values()}
    require_fitting([*others.values(), named], schedule.key)


async def require_fitting_parents(
    transaction: Transaction, schedule: Schedule, project: str
) -> None:
    """Check ``after`` and ``needs`` as a file does.

    Raises:
        ParentUnknown, ParentCycle, ParentTimesDiffer, ScheduleError: see there.
    """
    if schedule.follows:
        parents = await _parents(transaction, [rule.parent for rule in schedule.follows], project)
        _require_fitting(schedule, parents)


async def require_fitting_children(
    transaction: Transaction, schedule: Schedule, project: str, children: Sequence[str]
) -> None:
    """Refuse times that windows of its children would wait for in vain.

    Raises:
        ParentTimesDiffer: a child needs windows of the same fire times.
    """
    for child in (await _parents(transaction, children, project)).values():
        around = await _parents(transaction, [rule.parent for rule in child.follows], project)
        edited = {key: each for key, each in around.items() if each.key == schedule.key}
        _require_fitting(child, {**around, **dict.fromkeys(edited, schedule)})


def _with(schedule: Schedule, when: Mapping[str, Any]) -> Schedule:
    kept = {name: value for name, value in schedule.to_json().items() if name not in WHEN}
    return Schedule.from_json({**kept, **when})


def _when(schedule: Schedule) -> dict[str, Any]:
    return {name: value for name, value in schedule.to_json().items() if name in WHEN}


async def _new_definition(
    transaction: Transaction,
    asked: _Request,
    schedule: Schedule,
    before: ScheduleState | None,
    now: datetime,
) -> NewDefinition:
    """Return the definition that an application asks for; of a key that returns, a new series."""
    kind = await type_of(transaction, schedule)
    if before is None:
        return first_definition(
            schedule,
            now,
            project=asked.project,
            origin="api",
            request_id=asked.request_id,
            workflow_type=kind,
        )
    (owed,) = await record_decided(
        transaction, [before], lambda state: decided_to_the_end(state, now)
    )
    new = next_definition(
        owed, schedule, now, project=asked.project, origin="api", workflow_type=kind
    )
    return replace(new, request_id=asked.request_id)


async def _resolve_later(transaction: Transaction, new: NewDefinition) -> None:
    """Have workers resolve a workflow without a type, which locks a row for all.

    A worker that announces the workflow concurrently cannot see this row yet.
    """
    if new.workflow_type is None:
        await transaction.raise_epoch()


def require_future(schedule: Schedule, now: datetime) -> None:
    """Check that a schedule will fire.

    Raises:
        MomentInPast: its last window has passed.
    """
    if schedule.first_start(now + TICK) is None:
        past = schedule.spec.previous(now)
        raise _passed(utc_text(past) if past else schedule.when, now)


def require_to_come(moment: datetime, now: datetime) -> None:
    """Check that a moment has not passed.

    Raises:
        MomentInPast: it has.
    """
    if moment < now:
        raise _passed(utc_text(moment), now)


def _passed(moment: str, now: datetime) -> MomentInPast:
    return MomentInPast(f"{moment} has passed, it is {utc_text(now)}", hint="name one to come")


def fields_of_run(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields that a schedule has for its runs as the ledger keeps them.

    Raises:
        ScheduleError: one is invalid; its code says which.
    """
    moment = {"workflow": "start", "at": "1970-01-01T00:00:00Z"}
    written = _draft({**moment, **fields}, None).to_json()
    return {name: written[name] for name in fields if name in written}


def _new_key(schedule: Schedule, now: datetime) -> str:
    """Return a unique key: a UUID of version 7, the clock's milliseconds and 74 random bits."""
    number = epoch_ms(now) << 80 | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return f"{'at' if schedule.kind == 'at' else 'repeat'}-{UUID(int=number)}"


# --- service methods ---


class ApplicationSchedules(ReadOperations):
    """Operations of applications that declare schedules at run time."""

    async def schedule_at(
        self,
        workflow: str | type[Any],
        at: datetime | str,
        *,
        key: str | None = None,
        request_id: str | None = None,
        project: str | None = None,
        reason: str | None = None,
        owner_id: str | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        connection: Connection | None = None,
        **fields: Any,
    ) -> ApplicationSchedule:
        """Start a workflow once, at ``at``.

        The schedule is created even if no live worker would start it; then
        ``ApplicationSchedule.waiting`` is set.

        Args:
            workflow: a ``@workflow`` class, whose version is started, or text as in a schedule
                file.
            at: an aware instant, or ISO 8601; without an offset it is local to ``timezone``.
            key: the schedule's key; the default is a generated one that sorts by time.
            request_id: idempotency key; a second request with the same id is refused. It is the
                ``clientRequestId`` of the metadata.
            project: the project whose workers start it; by default the service's own.
            reason: the reason, for the audit log.
            owner_id: the ``ownerId`` of its metadata, 1 to 64 characters; like the two that follow
                for audit, filters and ``ctx.fire``, and never a permission.
            tenant_id: the ``tenantId`` of its metadata.
            correlation_id: the ``correlationId`` of its metadata.
            connection: an asyncpg connection of the application with an open transaction on the
                ledger's database: the schedule exists if that transaction commits. Only its key and
                request id are locked until then.
            fields: further fields of a schedule, by their names in a file: ``input`` (a model, a
                dataclass or JSON),
                ``timezone``, ``taskQueue``, ``topic``, ``metadata``, ``retry`` and ``timeout`` (or
                ``maxRetries`` and ``timeoutSeconds``).

        Raises:
            ScheduleError: a field is invalid; its code says which.
            TypeError: the class takes no input, or needs one.
            MomentInPast: it would never fire.
            KeyInUse: the key is another schedule's, or was a file's. What an application has
                retired under this key returns as a new series; not with ``connection``.
            RequestInvalid: the request id is malformed.
            RequestInUse: the request id was used before, whatever became of that schedule.
            ParentUnknown, ParentTimesDiffer: ``after`` or ``needs`` names no fitting schedule
                of the project.
            LedgerError: ``connection`` has no open transaction, or reaches another ledger.
        """
        moment = as_text(at) if isinstance(at, datetime) else at
        fields = {**_what(workflow, fields), "at": moment}
        named = identified(fields, owner_id, tenant_id, correlation_id, request_id)
        named = _with_caller(named)
        return await self._create(
            _Request(named, self.project_of(project), key, reason, connection)
        )

    async def schedule_repeat(
        self,
        workflow: str | type[Any],
        *,
        key: str | None = None,
        request_id: str | None = None,
        project: str | None = None,
        reason: str | None = None,
        owner_id: str | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        connection: Connection | None = None,
        **fields: Any,
    ) -> ApplicationSchedule:
        """Start a workflow repeatedly, by ``every`` or ``cron``; see ``schedule_at``."""
        fields = _what(workflow, fields)
        named = identified(fields, owner_id, tenant_id, correlation_id, request_id)
        named = _with_caller(named)
        return await self._create(
            _Request(named, self.project_of(project), key, reason, connection)
        )

    async def _create(self, asked: _Request) -> ApplicationSchedule:
        if "was" in asked.fields:
            raise ScheduleError("a new schedule had no key before", hint="leave out was")
        fields = await self._with_times(in_our_words(asked.fields), asked.project)
        plain = _draft(fields, asked.key)
        (draft,) = await self._sealing.sealed(asked.project, [plain])
        async with self._ledger.transaction(long=True) as transaction:
            before = await _retired(transaction, asked)
            now = await transaction.now()
            if asked.key is None:
                draft = draft.model_copy(update={"key": _new_key(draft, now)})
            await require_fitting_parents(transaction, draft, asked.project)
            require_future(draft, now)
            new = await _new_definition(transaction, asked, draft, before, now)
            shown = draft.shown
            action = Action(asked.project, draft.key, "schedule", asked.reason, after=shown)
            if before is not None:
                await transaction.define([new], by=self._actor)
                await transaction.act([action], by=self._actor)
            elif asked.connection is None:
                await transaction.create(new, action, by=self._actor)
            if asked.connection is None:
                await _resolve_later(transaction, new)
        if asked.connection is not None:
            await self._ledger.create_within(asked.connection, new, action, by=self._actor)
        return await self._made(new)

    async def declare(
        self,
        workflow: str | type[Any],
        *,
        key: str,
        version: int | None = None,
        project: str | None = None,
        reason: str | None = None,
        owner_id: str | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        **fields: Any,
    ) -> DeclaredByKey:
        """Create the schedule of this key, or replace its whole definition; safe to repeat.

        Fields that are left out get their defaults. An equal definition is no new version, however
        many processes declare it at once. A replaced one fires no past window: ``firstFire`` and
        ``paused`` count only when the schedule is created. Another kind begins a new series, and so
        does a key that an application has retired.

        Args:
            workflow: see ``schedule_at``.
            key: the schedule's key.
            version: the definition's version that the caller has read; None replaces any.
            project: the project whose workers start it; ``edit`` moves a schedule to another one.
            reason: the reason, for the audit log.
            owner_id: see ``schedule_at``; so are the two that follow.
            tenant_id: the ``tenantId`` of its metadata.
            correlation_id: the ``correlationId`` of its metadata.
            fields: all other fields of the schedule; ``at``, ``every`` or ``cron`` among them.

        Raises:
            OwnedByFile: a file declares it.
            KeyInUse: it is of another project, or was retired from a file.
            ScheduleRenamed: the key is a former one of a schedule.
            VersionOutdated: it was edited after ``version``, or does not exist.
            MomentInPast: it would never fire.
            ScheduleError: a field is invalid; its code says which.
        """
        if isinstance(at := fields.get("at"), datetime):
            fields["at"] = as_text(at)
        given = identified(_what(workflow, fields), owner_id, tenant_id, correlation_id, None)
        asked = _Request(given, self.project_of(project), key, reason)
        if asked.request_id is not None:
            hint = "leave it out: the key makes the request safe to repeat"
            raise ScheduleError(f"{_REQUEST_ID} is given with a key that is declared", hint=hint)
        for attempt in range(_ATTEMPTS):
            row = next(iter(await self._ledger.schedules(key=key)), None)
            if row is not None and row.state != "retired":
                if (outcome := await self._replace(asked, row, version)) is not None:
                    return DeclaredByKey(await self.schedule(key), outcome)
                continue  # it was retired meanwhile
            if version is not None:
                raise VersionOutdated(f"there is no schedule {key}", hint="leave out the version")
            try:
                await self._create(asked)
            except KeyInUse:  # another process may have created it just now
                if attempt + 1 == _ATTEMPTS or (row is not None and row.origin == "file"):
                    raise
                continue
            return DeclaredByKey(await self.schedule(key), "created")
        raise KeyInUse(f"{key} is declared and retired again and again", hint="repeat the request")

    async def _replace(
        self, asked: _Request, row: ScheduleRow, version: int | None
    ) -> Literal["changed", "unchanged"] | None:
        """Replace the definition of a schedule; None if it was retired meanwhile."""
        key, project = row.key, asked.project
        if "was" in asked.fields:
            raise ScheduleError("was is given", hint="leave it out; `rename` changes a key")
        fields = await self._with_times(in_our_words(asked.fields), project)
        seed = {"was": row.schedule.was} if row.schedule and row.schedule.was else {}
        (draft,) = await self._sealing.sealed(project, [_draft({**fields, **seed}, key)])
        same = row.schedule is not None and row.schedule.digest == draft.digest
        own = row.origin == "api" and row.project == project
        if same and own and version in {None, row.definition_version}:
            return "unchanged"
        await decide_ahead(self._ledger, key)
        children = await self.children(key)
        async with self._locked(key, retired=True) as held:
            before = held.state
            if before.retired_at is not None and before.successor is None:
                return None
            require_owned_by_application(before)
            if before.project != project:
                raise KeyInUse(f"{key} is of project {before.project}", hint="choose another key")
            require_version(held, version)
            if draft.digest == before.schedule.digest:
                return "unchanged"
            if _when(draft) != _when(before.schedule):
                require_future(draft, held.now)
            await require_fitting_parents(held.transaction, draft, project)
            await require_fitting_children(held.transaction, draft, project, children)
            await self._redefine(held, draft)
            was, now = before.schedule.shown, draft.shown
            await held.act("edit", reason=asked.reason, before=was, after=now)
        return "changed"

    async def _with_times(self, fields: dict[str, Any], project: str) -> dict[str, Any]:
        """Return the fields, with the times of its parents if the schedule has none of its own."""
        if not takes_times(fields):
            return fields
        async with self._ledger.transaction() as transaction:
            parents = await _parents(transaction, [*parents_of(fields)], project)
        return {**fields, **(inherited(fields, parents) or {})}

    async def reschedule(
        self, key: str, *, reason: str | None = None, **when: Any
    ) -> ApplicationSchedule:
        """Change when an application's schedule fires; everything else stays.

        Args:
            key: the schedule's key.
            reason: the reason, for the audit log.
            when: the timing fields, by their names in a file; they replace all previous timing
                fields. ``at`` may be an instant.

        Raises:
            ScheduleNotFound: there is no schedule with this key.
            OwnedByFile: a file declares it.
            NotCancellable: it was cancelled, or its last window has passed.
            ScheduleError: a field is invalid.
            MomentInPast: it would never fire again.
        """
        if isinstance(at := when.get("at"), datetime):
            when["at"] = as_text(at)
        await decide_ahead(self._ledger, key)
        children = await self.children(key)
        async with self._locked(key, retired=True) as held:
            before = held.state
            _require_movable(before, held.now)
            changed = _with(before.schedule, when)
            require_future(changed, held.now)
            await require_fitting_parents(held.transaction, changed, before.project)
            await require_fitting_children(held.transaction, changed, before.project, children)
            new = await self._redefine(held, changed)
            await held.act(
                "reschedule",
                reason=reason,
                before=before.schedule.shown,
                after=changed.shown,
            )
        return await self._made(new)

    async def _redefine(self, held: Locked, changed: Schedule) -> NewDefinition:
        """Make this the newest definition of a locked schedule."""
        owed = await held.decide()
        new = next_definition(
            owed,
            changed,
            held.now,
            project=held.state.project,
            origin="api",
            workflow_type=await type_of(held.transaction, changed),
        )
        await held.transaction.define([new], by=self._actor)
        await _resolve_later(held.transaction, new)
        return new

    async def _made(self, new: NewDefinition) -> ApplicationSchedule:
        """Return what was asked for, with its input shown."""
        kind, project = new.workflow_type, new.project
        waiting = await self.waiting(new.schedule, project, kind)
        schedule = await self._sealing.shown_in(new.schedule)
        return ApplicationSchedule(schedule.key, schedule, new.next_fire_at, project, kind, waiting)

    async def waiting(self, schedule: Schedule, project: str, kind: str | None) -> str | None:
        """Return why no worker would start at present what comes due; None if one would.

        Args:
            schedule: a definition.
            project: whose workers start it.
            kind: the Temporal type of its workflow; None while no worker has announced one.
        """
        if kind is None and not schedule.starts_nothing:
            async with self._ledger.transaction() as transaction:
                announced = await transaction.announced([schedule.task_queue])
            return workflow_workers.unresolved_workflow_hint(schedule, announced)
        served = await self.served()
        workflow = kind or schedule.workflow
        place = workflow_workers.missing_worker_at(project, schedule.lane, workflow, served)
        return workflow_workers.no_worker_lives({place: 1}) if place else None


def as_text(moment: datetime) -> str:
    """Return an instant in ISO 8601 and UTC, floored to the millisecond.

    Raises:
        ValueError: it is naive; its meaning would depend on the machine.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} is naive; give it a time zone, e.g. tzinfo=UTC")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
