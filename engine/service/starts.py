"""Runs that applications start themselves, each id once for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, overload

from engine.errors import LetterNotFound, StartInUse, StartInvalid, WorkflowUnknown
from engine.ledger import DENIED, UNSTARTED, Action, DeadLetter, Start
from engine.runtime.apply.source import DEFAULT_PROJECT
from engine.service.base import as_json, workflow_text
from engine.service.operate import Requested, Running, Started

if TYPE_CHECKING:
    from engine.flow import RunsAlone, RunsWithInput
    from engine.ledger import Transaction

T = TypeVar("T")

_NOT_GIVEN: Final[Any] = object()
_SHOWN: Final = 80
"""Characters of an invalid id that an error message quotes."""


class StartOptions(TypedDict, total=False):
    """Options of ``ScheduleService.start``; see there."""

    project: str
    task_queue: str
    wait: timedelta | float | None


class Starting(Running):
    """Starts by applications, and further runs of those that failed."""

    @overload
    async def start(
        self, workflow: type[RunsAlone[Any]], /, *, id: str, **options: Unpack[StartOptions]
    ) -> Started: ...

    @overload
    async def start(
        self,
        workflow: type[RunsWithInput[T, Any]],
        input: T,
        /,
        *,
        id: str,
        **options: Unpack[StartOptions],
    ) -> Started: ...

    @overload
    async def start(
        self, workflow: str, input: Any = ..., /, *, id: str, **options: Unpack[StartOptions]
    ) -> Started: ...

    async def start(
        self,
        workflow: Any,
        input: Any = _NOT_GIVEN,  # noqa: A002 - the word of schedules.yaml
        /,
        *,
        id: str,  # noqa: A002 - the word of Temporal's clients
        project: str = DEFAULT_PROJECT,
        task_queue: str = "sched",
        wait: timedelta | float | None = None,
    ) -> Started:
        """Start a workflow under an id, once for ever.

        The call returns when the start is in the ledger; a worker of the project sends it. The same
        id with the same input returns the first start, whatever became of it.

        Args:
            workflow: a ``@workflow`` class, whose version is started, or text: ``name`` is the
                newest version that a worker has announced, ``name@1`` that version.
            input: the argument of the run, anything that the run can read back from JSON.
            id: names what the run is for, as an order number does: 1 to 200 printable ASCII
                characters. It is used once for each workflow, whatever the version.
            project: the project whose workers send it.
            task_queue: the task queue of the run.
            wait: how long to wait until the run has begun (timedelta or seconds).

        Raises:
            StartInvalid: the id, or the name of the workflow, is malformed.
            StartInUse: the id started this workflow before, with another input.
            InputInvalid: the workflow cannot take the input; see ``check_inputs``.
            ScheduleError: JSON cannot carry the input.
            InputsSealed: the project's inputs are sealed, and there is no codec here.
            TypeError: the class takes no input, or needs one.
            WorkflowUnknown: no worker of the task queue has ever announced the workflow.
            EnqueueFailure: with ``wait``: the run has not begun by then, or never can. It has the
                id of the row.
        """
        requested = workflow_text(workflow, has_input=input is not _NOT_GIVEN)
        name = Start.workflow_of(requested)
        if name is None:
            raise StartInvalid(f"{requested!r} names no workflow", cure="write name or name@1")
        given = () if input is _NOT_GIVEN else (as_json(input),)
        arguments = tuple(await self._sealing.seal(project, given))
        new = Start(
            workflow=name,
            start_id=id,
            digest=Start.digest_of(arguments),
            requested=requested,
            project=project,
            task_queue=task_queue,
            requested_by=self._actor,
        )
        if new.workflow_id is None:
            raise StartInvalid(
                f"a start cannot have the id {id[:_SHOWN]!r}",
                cure="use 1 to 200 printable ASCII characters that do not end in :dead, :undo or"
                " :rerun:<number>",
            )
        done = await self._start(new, new.workflow_id, arguments, given)
        if wait is None or done.fire is None:
            return done
        begun = await self._begun(
            done.fire, wait, refused=DENIED, unserved=partial(self._unserved, done.start)
        )
        return replace(done, fire=begun, waiting=None)

    async def _start(
        self, new: Start, workflow_id: str, arguments: tuple[Any, ...], plain: tuple[Any, ...]
    ) -> Started:
        async with self._ledger.transaction() as transaction:
            first = await transaction.started(new.workflow, new.start_id)
            workflow_type = None if first else await _type_of(transaction, new)
            self._require_fitting(workflow_type, arguments)
            if workflow_type:
                # Committed before the start, which must not share a lock with others.
                await transaction.declare_starts(new.workflow, by=self._actor)
        is_new = workflow_type is not None and await self._write(
            new, workflow_id, workflow_type, arguments
        )
        return await self._first(new, workflow_id, plain, is_new=is_new)

    async def _write(
        self, new: Start, workflow_id: str, workflow_type: str, arguments: tuple[Any, ...]
    ) -> bool:
        """Write a start, and wake the workers; return False if a concurrent one was first."""
        async with self._ledger.transaction() as transaction:
            fire = new.fire(workflow_id, workflow_type, await transaction.now(), arguments)
            if not await transaction.start(new, fire):
                return False
        # Apart, because commits that notify wait for each other.
        async with self._ledger.transaction() as transaction:
            await transaction.notify()
        return True

    async def _first(
        self, asked: Start, workflow_id: str, plain: tuple[Any, ...], *, is_new: bool
    ) -> Started:
        """Return the start of this id, which is in the ledger."""
        async with self._ledger.transaction() as transaction:
            first = await transaction.started(asked.workflow, asked.start_id)
            fire = await transaction.fire(workflow_id)
        if first is None:
            raise AssertionError("starts are never deleted")
        if not await self._is_same(first, asked, plain):
            raise StartInUse(
                f"{workflow_id} was started before, with another input",
                cure="give another id; or repeat the start with the input of the first",
            )
        waits = fire is not None and fire.status in UNSTARTED
        waiting = await self._unserved(first) if waits else None
        return Started(workflow_id, is_new, first, fire, waiting)

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
                    cure=f"see `sched fires {letter.key}`",
                )
            start = letter.started and await transaction.started(*letter.started)
            if start is None or start.workflow_id is None:
                raise AssertionError("it is the letter of a start, and starts are never deleted")
            workflow_type = await _type_of(transaction, start)
            self._require_fitting(workflow_type, own_input)
            number = 1 + await transaction.count_reruns(letter.window, start.workflow_id)
            fire = start.fire(
                f"{start.workflow_id}:rerun:{number}",
                workflow_type,
                letter.fire_time,
                own_input or letter.arguments,
                timing="rerun",
            )
            await transaction.request(fire)
            after = {"status": fire.status}
            action = Action(fire.project, fire.key, "rerun", reason, fire.workflow_id, after=after)
            await transaction.act([action], by=self._actor)
            row = await transaction.fire(fire.workflow_id)
        if row is None:
            raise AssertionError("it was written in this transaction")
        return Requested(row, new=True)


async def _type_of(transaction: Transaction, start: Start) -> str:
    """Return the Temporal type of a start.

    Raises:
        WorkflowUnknown: no worker of its task queue has ever announced it.
    """
    wanted = (start.task_queue, start.requested)
    found = (await transaction.resolve([wanted])).get(wanted)
    if found is None:
        raise WorkflowUnknown(
            f"no worker on task queue {start.task_queue} knows {start.requested}",
            cure="start a worker that has it",
        )
    return found
