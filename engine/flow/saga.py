"""Undo steps: noted before their steps run, run in reverse when the run ends badly."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import temporalio.workflow
from temporalio.workflow import ActivityHandle

from engine.flow.calls import StepCall
from engine.flow.children import Children
from engine.flow.failures import NotUndone
from engine.flow.to_the_end import to_the_end
from engine.flow.undoing import undo_note
from engine.flow.waiting import result_of


@dataclass(frozen=True)
class _Undo:
    """What takes back a step that was started, whether or not it took effect."""

    call: StepCall
    step: StepCall
    key: str  # the step's idempotency key


class Saga:
    """The steps of one run, and how to take them back.

    Limits: the undo steps live with the run. One that is terminated, or that runs into its
    timeout, is not unwound, and ``continue_as_new`` begins with none.

    Args:
        children: the runs that this one started.
        leaves_notes: whether each step says in the history how to take it back, so that another
            run can do that (see ``engine.flow.undoing``).
    """

    def __init__(self, children: Children, *, leaves_notes: bool = False) -> None:
        self._children, self._leaves_notes = children, leaves_notes
        self._undos: list[_Undo] = []
        self._under_way: dict[ActivityHandle[Any], None] = {}
        self._unwinding = False
        self._calls: Counter[str] = Counter()

    async def run(self, call: StepCall, undo: StepCall | None) -> Any:
        """Run a step and return its result.

        Raises:
            asyncio.CancelledError: see ``result_of``; or the run is being undone.
            temporalio.exceptions.ActivityError: the step failed for good.
        """
        if self._unwinding:
            # Another branch of the run has failed; what it left running must not begin anew.
            raise asyncio.CancelledError("the run is being undone")
        place = self._place_of(call)
        left = undo_note(undo, call.idempotency_key(place)) if undo and self._leaves_notes else None
        handle = call.start(place, undo=left)
        if undo is not None:
            # Before the step runs (nothing is sent until this task yields), since a step whose
            # answer got lost has to be undone too. After start(): what could not be sent needs
            # no undo.
            self._undos.append(_Undo(undo, call, call.idempotency_key(place)))
        self._under_way[handle] = None
        try:
            return await result_of(handle, repr(call.name))
        finally:
            del self._under_way[handle]

    async def unwind(self) -> list[NotUndone]:
        """Undo every step, the newest first, and return what could not be undone.

        What children could not undo when they were stopped is part of it. Neither errors nor a
        cancel keep it from its end.
        """
        if not self._undos and not self._children.under_way:
            return self._children.not_undone
        self._unwinding = True
        return await to_the_end(self._unwind())

    async def _unwind(self) -> list[NotUndone]:
        # Parallel branches may still be at work on what is to be taken back.
        under_way = list(self._under_way)
        for handle in under_way:
            handle.cancel()
        await self._children.stop()
        for handle in under_way:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await handle
        not_undone = self._children.not_undone
        while self._undos:
            undo = self._undos.pop()
            try:
                await undo.call.start(self._place_of(undo.call), undoes=undo.key)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
                # The others are undone all the same, and the run's own error stays its cause.
                # (Never BaseException: that is how the SDK takes a run out of its cache.)
                names, cause = (undo.call.name, undo.step.name), error.__cause__ or error
                temporalio.workflow.logger.error("the undo %r of %r failed: %s", *names, cause)
                not_undone.append(NotUndone(undo.step.name, undo.call.name, str(cause)))
        return not_undone

    def _place_of(self, call: StepCall) -> str:
        """Name a call so that it is called the same on every replay: by how often it was made."""
        self._calls[call.name] += 1
        return f"{call.name}/{self._calls[call.name]}"
