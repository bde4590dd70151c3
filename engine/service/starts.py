"""Runs that applications start themselves, each id once for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar, Unpack, overload

from pydantic.alias_generators import to_camel

from engine.errors import (
    EngineError,
    EnqueueFailure,
    LetterNotFound,
    RetryPolicyInvalid,
    StartInUse,
    StartInvalid,
    TemporalUnavailable,
    WorkflowUnknown,
    did_you_mean,
)
from engine.ledger import DENIED, OPEN, UNSTARTED, Action, DeadLetter, Fire, NewFire, Start
from engine.service.base import as_json, workflow_text
from engine.service.handles import (
    NOT_GIVEN,
    PATIENCE,
    Started,
    StepInProgress,
    TemporalAccess,
    steps_in_progress,
)
from engine.service.one_shots import as_text, fields_of_run, identified, require_to_come
from engine.service.operate import Requested, Running

if TYPE_CHECKING:
    from temporalio.client import Client

    from engine.flow import Retry, RunsAlone, RunsWithInput
    from engine.ledger import Transaction
    from engine.service.one_shots import Connection

R = TypeVar("R")
T = TypeVar("T")

_SHOWN: Final = 80
"""Characters of an invalid id that an error message quotes."""


class StartOptions(TypedDict, total=False):
    """Options of ``ScheduleService.start``; see there."""

    project: str
    task_queue: str
    wait: timedelta | float | None
    at: datetime | None
    delay: timedelta | float | None
    connection: Connection | None
    priority: int | None
    fairness: str | Mapping[str, Any] | None
    timeout: timedelta | float | str | Mapping[str, Any] | None
    retry: Retry | Mapping[str, Any] | None
    search_attributes: Mapping[str, Any] | None
    memo: Mapping[str, Any] | None
    topic: str | None
    metadata: Mapping[str, Any] | None
    owner_id: str | None
    tenant_id: str | None
    correlation_id: str | None


_OF_THE_RUN: Final = (
    "priority", "fairness", "timeout", "retry", "search_attributes", "memo", "topic", "metadata",
)  # fmt: skip


@dataclass(frozen=True)
class _Asked(Generic[R]):
    """A start that an application asks for.

    Attributes:
        start: what the ledger keeps of it.
        plain: its input as the application gave it, or none.
        arguments: the same as the ledger keeps it.
        options: fields of a schedule that its run has of its own.
        begins: when it is to begin, or how long after the call; None: at once.
        connection: that of the application in whose transaction it is written.
        result_type: what its class returns.
    """

    start: Start
    plain: tuple[Any, ...]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    begins: datetime | timedelta | None
    connection: Connection | None
    result_type: Any

    @property
    def workflow_id(self) -> str:
        """The id of its run.

        Raises:
            StartInvalid: its own id is malformed.
        """
        if (found := self.start.workflow_id) is not None:
            return found
        raise StartInvalid(
            f"a start cannot have the id {self.start.start_id[:_SHOWN]!r}",
            hint="use 1 to 200 printable ASCII characters that do not end in :dead, :undo or"
            " :rerun:<number>",
        )

    def moment(self, now: datetime) -> datetime | None:
        """Return when it is to begin; None: at once.

        Raises:
            MomentInPast: that has passed.
        """
        begins = now + self.begins if isinstance(self.begins, timedelta) else self.begins
        if begins is not None:
            require_to_come(begins, now)
        return begins


class Starting(Running):
    """Starts by applications, and further runs of those that failed."""

    @overload
    async def start(
        self, workflow: type[RunsAlone[R]], /, *, id: str, **options: Unpack[StartOptions]
    ) -> Started[R]: ...

    @overload
    async def start(
        self,
        workflow: type[RunsWithInput[T, R]],
        input: T,
        /,
        *,
        id: str,
        **options: Unpack[StartOptions],
    ) -> Started[R]: ...

    @overload
    async def start(
        self, workflow: str, input: Any = ..., /, *, id: str, **options: Unpack[StartOptions]
    ) -> Started[Any]: ...

    async def start(
        self,
        workflow: Any,
        input: Any = NOT_GIVEN,
        /,
        *,
        id: str,
        **options: Unpack[StartOptions],
    ) -> Started[Any]:
        """Start a workflow under an id, once for ever, and return a handle of its run.

        The call returns when the start is in the ledger; a worker of the project sends it. The same
        id with the same input returns the first start, whatever became of it, and whatever the
        options of this call are.

        Args:
            workflow: a ``@workflow`` class, whose version is started, or text: ``name`` is the
                newest version that a worker has announced, ``name@1`` that version.
            input: the argument of the run, anything that the run can read back from JSON.
            id: names what the run is for, as an order number does: 1 to 200 printable ASCII
                characters. It is used once for each workflow, whatever the version.
            **options: where, when and how it runs.

                - ``project``: the project whose workers send it; by default the service's own.
                - ``task_queue``: the task queue of the run (``sched``).
                - ``at``, ``delay``: when it is to begin: an aware instant, or a time from now on
                  (timedelta or seconds). By default at once.
                - ``wait``: how long to wait until the run has begun (timedelta or seconds).
                - ``connection``: an asyncpg connection of the application with an open transaction
                  on the ledger's database: the start exists if that transaction commits.
                - ``priority``, ``fairness``, ``timeout``, ``retry``, ``search_attributes``,
                  ``memo``, ``topic``, ``metadata``: of this run, as the fields of a schedule, in
                  place of what its class says. ``timeout`` may be a timedelta or seconds, ``retry``
                  a ``Retry``.
                - ``owner_id``, ``tenant_id``, ``correlation_id``: for ``ctx.fire`` and filters,
                  never a permission.

        Raises:
            StartInvalid: the id, or the name of the workflow, is malformed.
            StartInUse: the id started this workflow before, with another input.
            InputInvalid: the workflow cannot take the input; see ``check_inputs``.
            ScheduleError: JSON cannot carry the input, or an option is invalid; its code says
                which.
            MomentInPast: ``at`` has passed, and there is no such start.
            InputsSealed: the project's inputs are sealed, and there is no codec here.
            TypeError: the class takes no input, or needs one; or there is no such option.
            WorkflowUnknown: no worker of the task queue has ever announced the workflow.
            LedgerError: ``connection`` has no open transaction, or reaches another ledger.
            EnqueueFailure: with ``wait``: the run has not begun by then, or never can. It has the
                id of the row.
        """
        asked = await self._asked(workflow, input, id, options)
        done = await self._start(asked)
        wait = options.get("wait")
        if wait is None or done.fire is None:
            return done
        return replace(done, fire=await self.begun(done, wait), waiting=None)

    async def signal_or_start(
        self,
        workflow: type[RunsAlone[R] | RunsWithInput[T, R]] | str,
        input: T = NOT_GIVEN,
        /,
        *,
        id: str,
        signal: str | Any,
        value: Any = NOT_GIVEN,
        **options: Unpack[StartOptions],
    ) -> Started[R]:
        """Send a signal to the one run of an entity, such as a cart, and start it if there is none.

        Args:
            workflow: see ``start``.
            input: of the run; each call for one id gives the same.
            id: the entity's, see ``start``.
            signal: what ``ctx.wait_for`` waits for, or a handler of the class.
            value: that of the signal.
            **options: see ``start``. A run that begins waits at most ``wait`` for a worker, by
                default ten seconds.

        Raises:
            RunEnded: the run of this id has ended.
            EnqueueFailure: the run has not begun in time, or never can. It gets no signal then:
                repeat the call.
            Exception: see ``start``.
        """
        started: Started[R] = await self._begin(workflow, input, id, options)
        await started.signal(signal, value)
        return started

    async def update_or_start(
        self,
        workflow: type[RunsAlone[Any] | RunsWithInput[T, Any]] | str,
        input: T = NOT_GIVEN,
        /,
        *,
        id: str,
        update: str | Any,
        value: Any = NOT_GIVEN,
        **options: Unpack[StartOptions],
    ) -> Any:
        """Return the result of an update of the one run of an entity; see ``signal_or_start``."""
        started: Started[Any] = await self._begin(workflow, input, id, options)
        return await started.update(update, value)

    async def _begin(
        self, workflow: Any, given: Any, start_id: str, options: StartOptions
    ) -> Started[Any]:
        if any(options.get(name) is not None for name in ("connection", "at", "delay")):
            raise TypeError("a run that is called at once takes no at, delay or connection")
        asked: StartOptions = {"wait": PATIENCE, **options}
        arguments = () if given is NOT_GIVEN else (given,)
        return await self.start(workflow, *arguments, id=start_id, **asked)

    async def _asked(
        self, workflow: Any, given: Any, start_id: str, options: StartOptions
    ) -> _Asked[Any]:
        requested = workflow_text(workflow, has_input=given is not NOT_GIVEN)
        declared = None
        if isinstance(workflow, type):
            self.check_inputs([workflow])
            declared = self._code[requested].result_type
        name = Start.workflow_of(requested)
        if name is None:
            raise StartInvalid(f"{requested!r} names no workflow", hint="write name or name@1")
        _refuse_unknown(options)
        project, task_queue = self.project_of(options.get("project")), options.get("task_queue")
        plain = () if given is NOT_GIVEN else (as_json(given),)
        arguments = tuple(await self._sealing.seal(project, plain))
        new = Start(
            workflow=name,
            start_id=start_id,
            digest=Start.digest_of(arguments),
            requested=requested,
            project=project,
            task_queue="sched" if task_queue is None else task_queue,
            requested_by=self._actor,
        )
        return _Asked(
            new,
            plain,
            arguments,
            _fields_of(options),
            _begins(options),
            options.get("connection"),
            declared,
        )

    async def _start(self, asked: _Asked[R]) -> Started[R]:
        new, workflow_id = asked.start, asked.workflow_id
        async with self._ledger.transaction() as transaction:
            first = await transaction.started(new.workflow, new.start_id)
            workflow_type = None if first else await _type_of(transaction, new)
            await self._require_fitting(transaction, new.task_queue, workflow_type, asked.plain)
            if workflow_type:
                asked.moment(await transaction.now())
                # Committed before the start, which must not share a lock with others.
                await transaction.declare_starts(new.workflow, by=self._actor)
        if workflow_type is None:
            return await self._first(asked, is_new=False)
        if asked.connection is not None:
            return await self._write_within(asked, workflow_id, workflow_type)
        return await self._first(asked, is_new=await self._write(asked, workflow_id, workflow_type))

    async def _write(self, asked: _Asked[Any], workflow_id: str, workflow_type: str) -> bool:
        """Write a start, and wake the workers; return False if a concurrent one was first."""
        async with self._ledger.transaction() as transaction:
            fire = _fire(asked, workflow_id, workflow_type, await transaction.now())
            if not await transaction.start(asked.start, fire):
                return False
        # Apart, because commits that notify wait for each other.
        async with self._ledger.transaction() as transaction:
            await transaction.notify()
        return True

    async def _write_within(
        self, asked: _Asked[R], workflow_id: str, workflow_type: str
    ) -> Started[R]:
        """Write a start in the application's transaction, which alone decides whether it exists."""
        async with self._ledger.transaction() as transaction:
            now = await transaction.now()
        fire = _fire(asked, workflow_id, workflow_type, now)
        if not await self._ledger.start_within(asked.connection, asked.start, fire):
            return await self._first(asked, is_new=False)
        new = replace(asked.start, requested_at=now)
        waiting = await self._unserved(new)
        return Started(workflow_id, True, new, None, waiting, self, asked.result_type)

    async def _first(self, asked: _Asked[R], *, is_new: bool) -> Started[R]:
        """Return the start of this id, which is in the ledger."""
        workflow_id = asked.workflow_id
        async with self._ledger.transaction() as transaction:
            first = await transaction.started(asked.start.workflow, asked.start.start_id)
            fire = await transaction.fire(workflow_id)
        if first is None:
            raise StartInUse(
                f"{workflow_id} was started before, in the same transaction",
                hint="start it once, and keep what the first call returned",
            )
        if not await self._is_same(first, asked.start, asked.plain):
            raise StartInUse(
                f"{workflow_id} was started before, with another input",
                hint="give another id; or repeat the start with the input of the first",
            )
        waits = fire is not None and fire.status in UNSTARTED
        waiting = await self._unserved(first) if waits else None
        return Started(workflow_id, is_new, first, fire, waiting, self, asked.result_type)

    async def begun(self, started: Started[Any], wait: timedelta | float | None) -> Fire | None:
        """Wait until the run of a start has begun, and return its row, if it still has one.

        Raises:
            EnqueueFailure: it has not begun by then, or never can.
        """
        fire = await self._ledger.fire(started.workflow_id)
        if fire is None and started.fire is None and started.new:
            raise EnqueueFailure(
                f"{started.workflow_id} is not in the ledger: its transaction has not committed",
                workflow_id=started.workflow_id,
                refused=False,
                reason_code=None,
                hint="call its run after the commit",
            )
        if fire is None:  # retention has removed it
            return None
        unserved = partial(self._unserved, started.start)
        return await self._begun(fire, wait, refused=DENIED, unserved=unserved)

    async def temporal(self) -> Client:
        """Return the application's Temporal client, connected when it is first needed.

        Raises:
            TemporalUnavailable: no server answers.
            SettingsInvalid: it is a client of another namespace.
        """
        return await self._access.client()

    async def steps_in_progress(
        self, of: Fire, *, within: timedelta = PATIENCE
    ) -> tuple[StepInProgress, ...]:
        """Return the steps in progress of a run as Temporal has them, the oldest first.

        Args:
            of: the row of the run; one that is not open has none.
            within: how long Temporal may take.

        Raises:
            TemporalUnavailable: it does not answer in time, or has forgotten the run.
        """
        if of.status not in OPEN or of.run_id is None:
            return ()
        try:
            async with asyncio.timeout(within.total_seconds()):
                client = await self.temporal()
                return await steps_in_progress(client, of.workflow_id, of.run_id)
        except TimeoutError as error:
            seconds = within.total_seconds()
            raise TemporalUnavailable(f"no answer within {seconds:g} s") from error
        except EngineError:
            raise
        except RuntimeError as error:  # RPCError too
            raise TemporalUnavailable(f"{of.workflow_id} could not be read: {error}") from error

    @cached_property
    def _access(self) -> TemporalAccess:
        return TemporalAccess(self._client, self._ledger.namespace, self._converter)

    async def _is_same(self, first: Start, asked: Start, plain: tuple[Any, ...]) -> bool:
        """Return whether two starts have the same input."""
        if first.digest in {asked.digest, Start.digest_of(plain)}:
            return True  # the first may be from a time without a codec
        if first.project == asked.project:
            return False
        theirs = await self._sealing.seal(first.project, plain)
        return first.digest == Start.digest_of(tuple(theirs))

    async def _unserved(self, start: Start) -> str | None:
        """Return why no worker would send a start at present; None if one would."""
        if (start.project, start.task_queue) in await self.served():
            return None
        place = f"project {start.project}, task queue {start.task_queue}"
        return f"no worker lives that serves {place}: start one (`sched up` or `sched worker`)"

    async def _rerun_start(
        self, letter: DeadLetter, own_input: tuple[Any, ...], reason: str | None
    ) -> Requested:
        """Run a start again that failed, and resolve its letter."""
        given = tuple(map(as_json, own_input))
        own_input = tuple(await self._sealing.seal(letter.project, given))
        async with self._ledger.transaction(long=True) as transaction:
            if not await transaction.resolve_dead_letters([letter.workflow_id]):
                raise LetterNotFound(
                    f"{letter.workflow_id} was resolved meanwhile",
                    hint=f"see `sched fires {letter.key}`",
                )
            start = letter.started and await transaction.started(*letter.started)
            if start is None or start.workflow_id is None:
                raise AssertionError("it is the letter of a start, and starts are never deleted")
            workflow_type = await _type_of(transaction, start)
            if given:
                await self._require_fitting(transaction, start.task_queue, workflow_type, given)
            number = 1 + await transaction.count_reruns(letter.window, start.workflow_id)
            fire = start.fire(
                f"{start.workflow_id}:rerun:{number}",
                workflow_type,
                letter.fire_time,
                own_input or letter.arguments,
                timing="rerun",
                options=await transaction.options_of(start.workflow_id),
            )
            await transaction.request(fire)
            after = {"status": fire.status}
            action = Action(fire.project, fire.key, "rerun", reason, fire.workflow_id, after=after)
            await transaction.act([action], by=self._actor)
            row = await transaction.fire(fire.workflow_id)
        if row is None:
            raise AssertionError("it was written in this transaction")
        return Requested(row, new=True)


def _fire(asked: _Asked[Any], workflow_id: str, workflow_type: str, now: datetime) -> NewFire:
    begins = asked.moment(now)
    return asked.start.fire(
        workflow_id,
        workflow_type,
        begins or now,
        asked.arguments,
        options=asked.options,
        not_before=begins,
    )


def _refuse_unknown(options: StartOptions) -> None:
    from engine.flow import refuse_unknown  # it loads Temporal's SDK

    refuse_unknown("start", options, StartOptions.__annotations__)


def _begins(options: StartOptions) -> datetime | timedelta | None:
    """Return when a start is to begin, or how long after the call.

    Raises:
        TypeError: both are given.
        ValueError: the moment is naive, or the time is negative.
    """
    at, delay = options.get("at"), options.get("delay")
    if at is not None and delay is not None:
        raise TypeError("at and delay are given; keep one of the two")
    if at is not None:
        return datetime.fromisoformat(as_text(at))
    if delay is None:
        return None
    span = _span(delay)
    if span < timedelta(0):
        raise ValueError(f"delay is a time from now on; got {delay!r}")
    return span


def _fields_of(options: StartOptions) -> dict[str, Any]:
    """Return the fields of a schedule that a run has of its own, by the rules of a file.

    Raises:
        ScheduleError: one is invalid; its code says which.
    """
    given = {name: options.get(name) for name in _OF_THE_RUN}
    fields = {to_camel(name): value for name, value in given.items() if value is not None}
    whose = (options.get("owner_id"), options.get("tenant_id"), options.get("correlation_id"))
    fields = {**identified(fields, *whose, None)}
    if isinstance(seconds := fields.get("timeout"), int | float):
        fields["timeout"] = _span(seconds)
    if "retry" in fields and not isinstance(fields["retry"], Mapping):
        fields["retry"] = _tries(fields["retry"])
    return fields_of_run(fields)


def _tries(retry: Any) -> dict[str, Any]:
    """Return the retry policy of a run as the field of a schedule.

    Raises:
        RetryPolicyInvalid: it is none, or says what only the class of a workflow can say.
    """
    from engine.flow import Retry  # it loads Temporal's SDK

    if not isinstance(retry, Retry):
        raise RetryPolicyInvalid(f"retry is {retry!r:.{_SHOWN}}", hint="write Retry(...)")
    if retry.jitter or retry.give_up_on or retry.max_attempts is None:
        raise RetryPolicyInvalid(
            "the retry of a start has jitter, give_up_on or no end",
            hint="write those at the workflow's class",
        )
    if retry.intervals:
        return {"attempts": retry.max_attempts, "intervals": list(retry.intervals)}
    return {
        "attempts": retry.max_attempts,
        "initial": _span(retry.initial_interval),
        "coefficient": retry.backoff,
        **({"max": _span(retry.max_interval)} if retry.max_interval is not None else {}),
    }


def _span(given: timedelta | float) -> timedelta:
    return given if isinstance(given, timedelta) else timedelta(seconds=given)


async def _type_of(transaction: Transaction, start: Start) -> str:
    """Return the Temporal type of a start.

    Raises:
        WorkflowUnknown: no worker of its task queue has ever announced it.
    """
    wanted = (start.task_queue, start.requested)
    found = (await transaction.resolve([wanted])).get(wanted)
    if found is None:
        announced = (await transaction.announced([start.task_queue])).get(start.task_queue, ())
        names = {each.partition("@")[0] for each in announced} - {start.workflow}
        raise WorkflowUnknown(
            f"no worker on task queue {start.task_queue} knows {start.requested}",
            hint=did_you_mean(start.workflow, names, "start a worker that has it"),
        )
    return found
