"""Saga: undo steps, and the clean-up workflow."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Final

import temporalio.workflow
from temporalio.common import RawValue, VersioningBehavior
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityHandle

from engine.errors import EngineError
from engine.flow.children import (
    Children,
    answer_of,
    child_key,
    payload_of,
    payload_text,
    was_undone,
)
from engine.flow.definition import policy_from_json, policy_to_json
from engine.flow.failures import CompensationFailed, NotUndone, refusal, text_of, was_refused
from engine.flow.step_calls import (
    ChildOptions,
    StepCall,
    UndoScope,
    finish_despite_cancel,
    giving_up,
    may_repeat,
    origin_of,
    repeats,
    result_of,
    routing_of,
    undo_of,
)
from engine.flow.steps import StepNote, noted

# --- clean-up workflow ---
# The engine's own workflow, which undoes the work of a run that was ended from outside. It reads
# the remaining undo steps from that run's history, because the run executes no more code. Each undo
# gets the step's input as recorded and its idempotency key, so that it does not repeat what the run
# itself, or an interrupted attempt, has already undone.

UNDO_TYPE: Final = "sched.undo@1"
"""The Temporal type of the clean-up workflow."""

LEFT_TO_UNDO: Final = "sched.left_to_undo"
"""The activity that reads the remaining undo steps."""

CHECK_RESET: Final = "sched.check_reset"
"""The activity that looks whether a run that repeats another may complete."""

COMMITTED: Final = "sched.committed"
"""The memo field that a run writes when it commits, so that nothing before is undone."""

UNDO_CARRIED: Final = "sched.undo."
"""The beginning of memo fields that carry an undo step into the next run of a chain."""

_LONGEST_INPUT: Final = 500


def undo_note(undo: StepCall) -> dict[str, Any]:
    """Return how another run undoes a step: a clean-up run, or the next run of the chain.

    A clean-up run has no code of the run.
    """
    definition = getattr(undo.fn, "__temporal_activity_definition", None)
    return {
        "step": getattr(definition, "name", None) or undo.name,
        "key": undo.undoes,
        "takes_input": bool(undo.args),
        "takes_result": undo.sees_result,
        "timeout": undo.timeout.total_seconds(),
        "deadline": None if undo.deadline is None else undo.deadline.total_seconds(),
        "idempotency_key": undo.key,
        "queue": undo.queue,
        "task_queue": undo.task_queue,
        "priority": undo.priority,
        "retry": policy_to_json(undo.retry.to_policy()),
        "rules": undo.retry.for_worker(),
    }


@temporalio.workflow.defn(name=UNDO_TYPE)
class CleanUp:
    """The clean-up workflow: undoes the remaining steps of one run, newest first."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._not_undone: list[NotUndone] = []

    @temporalio.workflow.run
    async def run(self, dead: dict[str, Any]) -> int:
        """Undo all remaining steps, whatever fails in between, and return how many succeeded.

        Args:
            dead: ``workflow_id``, ``run_id`` and ``workflow``, the type, of the run.

        Raises:
            CompensationFailed: a step could not be undone.
        """
        # A cancel of this run has no effect, because it would leave the rest in place.
        undone = await finish_despite_cancel(self._undo_all(dead))
        if self._not_undone:
            raise CompensationFailed(str(dead["workflow"]), self._not_undone)
        return undone

    async def _undo_all(self, dead: Mapping[str, Any]) -> int:
        done = 0
        while True:
            # A local activity, because a worker that serves steps only does not have it.
            left = await answer_of(LEFT_TO_UNDO, {**dead, "skip": done})
            await _until(left["quiet_at"])
            for each in left["undos"]:
                await self._undo(each)
            done += len(left["undos"])
            if not left["undos"]:
                return done - len(self._not_undone)

    async def _undo(self, each: Mapping[str, Any]) -> None:
        name = each["undo"]["step"]
        self._calls[name] += 1
        self._not_undone += await _undone_for_another(each, f"{name}/{self._calls[name]}")


@temporalio.workflow.defn(name=UNDO_TYPE, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class VersionedCleanUp(CleanUp):
    """The same for workers that ask each workflow for its versioning behavior."""

    @temporalio.workflow.run
    async def run(self, dead: dict[str, Any]) -> int:
        """See the base class."""
        return await super().run(dead)


async def _undone_for_another(each: Mapping[str, Any], place: str) -> list[NotUndone]:
    """Run an undo step whose call was made by another run; return it if it fails."""
    step, undo, given = each["step"], each["undo"], each["input"]
    cause = await _failure_of(partial(start_undo, each, place), undo["step"], step)
    if cause is None:
        return []
    shown = None if given is None else _cut(_raw(given).payload.data)
    return [NotUndone(step, undo["step"], text_of(cause), shown, undo["key"])]


async def _failure_of(
    begin: Callable[[], ActivityHandle[Any]], undo: str, step: str
) -> BaseException | None:
    """Run one undo step; return why it failed, so that the others are still undone."""
    try:
        await begin()
    # Never BaseException: the SDK uses it to evict a run from its cache.
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
        cause = error.__cause__ or error
        temporalio.workflow.logger.error("the undo %r of %r failed: %s", undo, step, cause)
        return cause
    return None


def _cut(data: bytes) -> str:
    """Return the text of an input, as long as a failure may be."""
    text = data.decode(errors="replace")
    return text if len(text) <= _LONGEST_INPUT else f"{text[:_LONGEST_INPUT]}…"


def start_undo(each: Mapping[str, Any], place: str) -> ActivityHandle[Any]:
    """Start an undo step whose call was made by another run.

    Args:
        each: ``step``, ``undo`` (see ``undo_note``), ``input`` and ``result``, or None.
        place: the activity id.
    """
    undo, info = each["undo"], temporalio.workflow.info()
    deadline = undo["deadline"]
    note = {
        **undo["rules"],
        "undoes": undo["key"],
        "origin": origin_of(info),
        "redo": may_repeat(info),
        "key": undo["idempotency_key"],
    }
    with noted(StepNote.from_json(note)):
        handle: ActivityHandle[Any] = temporalio.workflow.start_activity(
            undo["step"],
            args=_recorded_args(each),
            activity_id=place,
            start_to_close_timeout=timedelta(seconds=undo["timeout"]),
            schedule_to_close_timeout=None if deadline is None else timedelta(seconds=deadline),
            retry_policy=giving_up(policy_from_json(undo["retry"])),
            summary=f"undo of {each['step']}",
            **routing_of(undo["queue"], undo["priority"], undo["task_queue"]),
        )
    return handle


def _recorded_args(each: Mapping[str, Any]) -> list[Any]:
    given, result = (_raw(each[it]) if each[it] else None for it in ("input", "result"))
    if each["undo"]["takes_result"]:
        return [given, result]
    return [] if given is None else [given]


async def _until(moment: str | None) -> None:
    if moment is None:
        return
    wait = datetime.fromisoformat(moment) - temporalio.workflow.now()
    if wait > timedelta(0):
        await temporalio.workflow.sleep(wait)


def _raw(text: str) -> RawValue:
    return RawValue(payload_of(text))


def _text(raw: RawValue) -> str:
    return payload_text(raw.payload)


def _converter() -> PayloadConverter:
    return temporalio.workflow.payload_converter()


def _keeper(undo: StepCall | None) -> Callable[[Any], None] | None:
    return partial(undo.keep, _converter()) if undo else None


# --- undo steps ---
# Registered before their steps run, and run in reverse order when the run fails or is cancelled.


class Saga:
    """The steps and children of one run, with their undo steps.

    The undo steps live with the run: one that is terminated or times out is unwound by another run
    if it leaves notes, else by none. ``continue_as_new`` carries them over with ``undo="carry"``.

    Args:
        children: the child runs of this run.
        leaves_notes: whether each step records its undo instructions in the history, so that
            another run can undo it (see ``CleanUp``).

    Attributes:
        scope: all that a bad end undoes.
        has_settled_carried: whether the run has undone, or kept by a commit, what earlier runs of
            its chain did. The memo stays as it is: a retry would begin with the same undo steps
            again, after they have run, or although that work is to stay.
        refused: the failure of a call that was not made because its idempotency key cannot be
            known after a reset. The run fails with it, even if its code handles the error.
    """

    def __init__(self, children: Children, *, leaves_notes: bool = False) -> None:
        self._children, self._leaves_notes = children, leaves_notes
        self.scope = UndoScope()
        self._under_way: dict[ActivityHandle[Any], tuple[UndoScope, str]] = {}
        self._calls: Counter[str] = Counter()
        self._carried: list[Mapping[str, Any]] | None = None
        self._left_by_scopes: list[NotUndone] = []
        self._undone: set[str] = set()
        self.has_settled_carried = False
        self.refused: BaseException | None = None

    async def run(self, call: StepCall, undo: StepCall | None) -> Any:
        """Run a step and return its result.

        Raises:
            asyncio.CancelledError: the run is being undone, or as in ``result_of``.
            temporalio.exceptions.ActivityError: the step failed for good.
        """
        scope = self.scope.current
        if scope.ended:
            # Another branch of the run has failed; those still running must start no more steps.
            raise asyncio.CancelledError("the run is being undone")
        if self.refused is not None:
            raise self.refused
        place = self._place_of(call.name)
        key = call.idempotency_key(place)
        self._refuse_undone(call)
        entry = undo.undoing(call.name, key, _converter()) if undo else None
        handle = call.start(place, self._note_of(entry))
        if entry:
            # Before the step runs (nothing is sent until this task yields), because a step whose
            # result is lost must be undone too. After start(), because a call that could not be
            # sent needs no undo.
            scope.add(entry)
        self._under_way[handle] = scope, call.name
        try:
            return await result_of(handle, repr(call.name), _keeper(entry))
        except ActivityError as error:
            if was_refused(error):
                self.refused = error
                if entry:
                    self.scope.remove(entry)
            raise
        finally:
            del self._under_way[handle]

    async def run_child(
        self, child: Any, given: Any, options: ChildOptions, result_type: Any, undo: Any
    ) -> Any:
        """Run a child and return its result; ``undo`` is the step that undoes it.

        Raises:
            TypeError, ValueError: as ``Children.call_of``, or ``undo`` does not fit.
            temporalio.exceptions.ChildWorkflowError: the child did not complete.
        """
        scope = self.scope.current
        if scope.ended:
            raise asyncio.CancelledError("the run is being undone")
        call = self._children.call_of(child, given, options, result_type)
        entry = None
        if undo is not None:
            undone_by = undo_of(undo, call.name, call.args)
            entry = undone_by.undoing(call.name, child_key(call.id), _converter())
            scope.add(entry)
        try:
            return await self._children.run(call, scope, self._note_of(entry), _keeper(entry))
        except BaseException as error:
            if entry and was_undone(error):
                self.scope.remove(entry)
            raise

    def _note_of(self, entry: StepCall | None) -> dict[str, Any] | None:
        return undo_note(entry) if entry and self._leaves_notes else None

    def refuse_under_way(self) -> None:
        """Refuse the end of a run one of whose calls is in progress: it would stop half-way.

        Raises:
            TypeError: there is such a call; the message names the first.
        """
        steps = (f"ctx.step({name})" for _, name in self._under_way.values())
        children = (f"ctx.child({name})" for name in self._children.waited_for)
        for each in chain(steps, children):
            raise TypeError(
                f"run has returned while {each} is in progress; await it, or use ctx.parallel,"
                " which stops the others when one fails"
            )

    async def check_reset(self) -> None:
        """Let a run that repeats another complete only if their effects fit together.

        Raises:
            ApplicationError: they do not.
        """
        if refused := self.refused or self._children.refused:
            raise refused
        info = temporalio.workflow.info()
        # A replay of a history from a file does not know that its run was reset. The marker tells
        # it that the run was checked.
        if not (repeats(info) or temporalio.workflow.unsafe.is_replaying()):
            return
        if not temporalio.workflow.patched(CHECK_RESET):
            return
        found = await answer_of(
            CHECK_RESET, {"workflow_id": info.workflow_id, "run_id": info.run_id}
        )
        if spoiled := found.get("spoiled"):
            raise refusal(spoiled)
        for each in found.get("left", ()):
            temporalio.workflow.logger.warning(
                "%s had an effect before the reset, and was neither repeated nor undone", each
            )

    async def unwind(self) -> list[NotUndone]:
        """Undo every step, newest first, and return what could not be undone.

        The result includes what stopped children could not undo. Neither an error nor a cancel
        interrupts the unwinding.
        """
        if not self.to_undo and not self._children.under_way:
            return self._left_by_scopes + self._children.take_not_undone()
        return await finish_despite_cancel(self._unwind())

    async def unwind_scope(self, scope: UndoScope) -> list[NotUndone]:
        """Undo the steps of one scope, and return what could not be undone."""
        left = await finish_despite_cancel(self._unwind_scope(scope))
        self._left_by_scopes += left
        return left

    async def _unwind(self) -> list[NotUndone]:
        not_undone = await self._unwind_scope(self.scope)
        for each in reversed(self._of_earlier_runs()):
            self.has_settled_carried = True
            not_undone += await _undone_for_another(each, self._place_of(each["undo"]["step"]))
        return self._left_by_scopes + not_undone

    async def _unwind_scope(self, scope: UndoScope) -> list[NotUndone]:
        scope.end()
        # Parallel branches may still be running the steps to undo.
        under_way = [handle for handle, (at, _) in self._under_way.items() if at.is_in(scope)]
        for handle in under_way:
            handle.cancel()
        await self._children.stop(scope)
        for handle in under_way:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await handle
        not_undone = self._children.take_not_undone()

        async def undo(call: StepCall) -> None:
            if failed := await self._undo(call):
                not_undone.append(failed)

        await scope.unwind(undo)
        return not_undone

    async def _undo(self, call: StepCall) -> NotUndone | None:
        """Run one undo step; return what it undoes if it fails."""
        begin = partial(call.start, self._place_of(call.name))
        cause = await _failure_of(begin, call.name, call.undone)
        self._undone.add(call.undoes)
        if cause is None:
            return None
        given = _cut(call.args[0].payload.data) if call.args else None
        return NotUndone(call.undone, call.name, text_of(cause), given, call.undoes or None)

    def _refuse_undone(self, call: StepCall) -> None:
        """Refuse a key that the code gives again after the call that had it was undone.

        The system that did the work would answer with what is undone.

        Raises:
            EngineError: it was.
        """
        if call.key in self._undone:
            raise EngineError(
                f"ctx.step({call.name}, idempotency_key={call.key!r}): the call that had this key"
                " was undone",
                hint="give each try a key of its own",
            )

    def on_failure(self, undo: StepCall) -> None:
        """Have a bad end run this step, which undoes no other one."""
        self.scope.current.add(undo.undoing(undo.name, "", _converter()))

    def commit(self) -> None:
        """Forget what a bad end would undo."""
        if self._leaves_notes and self.to_undo:
            # For the clean-up run, which reads the history.
            temporalio.workflow.upsert_memo({COMMITTED: len(self.scope.left)})
        self.scope.clear()
        self.has_settled_carried |= bool(self._of_earlier_runs())
        self._carried = []

    @property
    def to_undo(self) -> list[str]:
        """The steps that a bad end would undo, the oldest first."""
        earlier = [str(each["step"]) for each in self._of_earlier_runs()]
        return earlier + [each.undone for each in self.scope.left]

    def carried(self) -> dict[str, Any]:
        """Return what is to undo as memo fields of the next run of the chain."""
        own = [
            {
                "step": each.undone,
                "undo": undo_note(each),
                **dict(zip_longest(("input", "result"), map(_text, each.args))),
            }
            for each in self.scope.left
        ]
        every = [*self._of_earlier_runs(), *own]
        return {f"{UNDO_CARRIED}{number:06d}": each for number, each in enumerate(every)}

    def _of_earlier_runs(self) -> list[Mapping[str, Any]]:
        """Return what earlier runs of the chain have left to undo, the oldest first."""
        if self._carried is None:
            memo = temporalio.workflow.info().raw_memo
            fields = sorted(field for field in memo if field.startswith(UNDO_CARRIED))
            self._carried = [temporalio.workflow.memo_value(field) for field in fields]
        return self._carried

    def _place_of(self, name: str) -> str:
        """Return the name of a call: numbered, so that every replay gives it the same name."""
        self._calls[name] += 1
        return f"{name}/{self._calls[name]}"
