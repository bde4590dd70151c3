"""Follow-up runs, and pauses after failures: a durable outbox for fires that ended badly.

Their follow-up fires, and the mark that they were processed, are written in one transaction. Any
replica sends the follow-ups, as ordinary claims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from engine.errors import Code, InputsSealed
from engine.flow import UNDO_TYPE, RunOptions
from engine.ledger import DIED, ENGINE, Ended, FollowUp, Ledger
from engine.runtime.events import Alert, OnEvent
from engine.runtime.schedule_lock import locked
from engine.runtime.sealing import Sealing
from engine.schedules import Reason, Sealed, exact_text, resolve_type

_AT_ONCE = 200
_CUT_OFF = frozenset({"terminated", "timed_out"})
"""Statuses of runs that could not undo anything themselves."""


async def follow(ledger: Ledger, sealing: Sealing, *, on_event: OnEvent) -> int | None:
    """Write the follow-ups of a batch of fires that ended badly; return how many are dealt with.

    None if there is no such fire. Without the codec, fires whose handler gets a sealed input are
    left to other replicas.

    Raises:
        InputsSealed: the codec failed for some fires, which are left; the others are dealt with.
    """
    if not await ledger.anything_ended():
        return None
    batch = _FollowUpBatch(ledger, sealed=sealing.has_codec, on_event=on_event)
    await batch.write({})
    await pause_failing(ledger, on_event=on_event)
    if not batch.left:
        return batch.done
    # Between the transactions, because a codec may ask a server for its keys.
    inputs, failure = await _inputs(batch.left, sealing)
    await batch.write(inputs)
    if failure is not None:
        # Those that are left may fill a batch, and no other fire waits for them.
        await _FollowUpBatch(ledger, sealed=False, on_event=on_event).write({})
        raise failure
    return batch.done


async def _inputs(
    fires: Iterable[Ended], sealing: Sealing
) -> tuple[dict[int, Any], InputsSealed | None]:
    """Return the inputs of handlers by fire, and why some are missing."""
    inputs, failure = dict[int, Any](), None
    for fire in fires:
        try:
            inputs[fire.fire_id] = await _input(fire, sealing)
        except InputsSealed as error:  # one that cannot be read never hides the others
            failure = error
    return inputs, failure


async def _input(fire: Ended, sealing: Sealing) -> Any:
    """Return the input of a fire's handler, sealed as the fire's own is."""
    arguments = tuple([await sealing.open(each) for each in fire.arguments])
    (given,) = await sealing.seal(fire.project, [handler_input(replace(fire, arguments=arguments))])
    return given


class _FollowUpBatch:
    """The fires of one batch.

    Attributes:
        done: the number of fires that are dealt with.
        left: the fires whose handler still needs a sealed input, as they were read.
    """

    def __init__(self, ledger: Ledger, *, sealed: bool, on_event: OnEvent) -> None:
        self._ledger, self._sealed, self._emit = ledger, sealed, on_event
        self.done, self.left = 0, list[Ended]()

    async def write(self, inputs: Mapping[int, Any]) -> None:
        """Write the follow-ups of all fires that need no sealed input, or have it here.

        ``inputs`` are those of the handlers of ``left``, by fire, as far as they are known.
        """
        news, prepared = list[FollowUp](), self.left
        async with self._ledger.transaction() as transaction:
            ended = await transaction.ended(_AT_ONCE, sealed=self._sealed)
            announced = await transaction.announced({each.task_queue for each in ended})
            ready = [each for each in prepared if each.fire_id in inputs]
            self.left = [each for each in ended if _is_sealed(each) and each not in ready]
            dealt = [each for each in ended if each not in self.left]
            for fire in dealt:
                news += follow_ups(
                    fire, announced.get(fire.task_queue, ()), inputs.get(fire.fire_id)
                )
            written = await transaction.follow([each.fire_id for each in dealt], news)
        self.done += len(dealt)
        for each in news:
            if each.reason and each.workflow_id in written:
                self._emit(Alert(Code.HANDLER_UNKNOWN, f"{each.workflow_id}: {each.reason}"))


# --- pauses ---


async def pause_failing(ledger: Ledger, *, on_event: OnEvent) -> list[str]:
    """Pause the schedules whose runs have failed in a row, as ``pauseAfterFailures`` says.

    What is in the ledger decides, so that a replica that dies before it pauses leaves that to the
    next one. Each is counted again under its lock: an operator may have resumed it meanwhile.
    """
    async with ledger.transaction() as transaction:
        wanted = await transaction.failed_in_row()
    paused = []
    for each in wanted:
        async with locked(ledger, each.key, by=ENGINE, retired=True) as schedule:
            for found in await schedule.transaction.failed_in_row([each.key]):
                count = f"{found.failures} failed run{'s in a row' if found.failures > 1 else ''}"
                await schedule.pause(f"{count}, the last is {found.newest}")
                paused.append(found)
    for found in paused:
        why = f": {found.error}" if found.error else ""
        text = f"{found.key} is paused: {found.failures} of its runs in a row failed, the last is"
        hint = f"`sched resume {found.key}` when its runs can succeed"
        on_event(Alert(Code.PAUSED_AFTER_FAILURES, f"{text} {found.newest}{why}; {hint}"))
    return [found.key for found in paused]


# --- follow-up runs of one fire ---


def _has_handler(fire: Ended) -> bool:
    return fire.on_dead is not None and fire.status in DIED


def _is_sealed(fire: Ended) -> bool:
    """Return whether a handler follows that gets a sealed input."""
    return _has_handler(fire) and any(isinstance(each, Sealed) for each in fire.arguments)


def follow_ups(
    fire: Ended, announced: Collection[str], sealed: Sealed | None = None
) -> Iterator[FollowUp]:
    """Yield the follow-ups of a fire.

    Args:
        fire: the fire that ended badly.
        announced: every type that a worker of its task queue ever announced.
        sealed: the input of its handler, if that is sealed.
    """
    if fire.on_dead is not None and _has_handler(fire):
        found = resolve_type(fire.on_dead, announced)
        text = f"no worker on task queue {fire.task_queue} knows {fire.on_dead}"
        reason = Reason("unknown_workflow", text)
        yield FollowUp(
            fire.fire_id,
            f"{fire.workflow_id}:dead",
            found,
            sealed or handler_input(fire),
            reason=None if found else reason,
        )

    undone_for_it = RunOptions.from_json(fire.rules).compensate_on_terminate
    if undone_for_it and fire.run_id and fire.status in _CUT_OFF:
        dead = {
            "workflow_id": fire.workflow_id,
            "run_id": fire.run_id,
            "workflow": fire.workflow_type,
        }
        yield FollowUp(fire.fire_id, f"{fire.workflow_id}:undo", UNDO_TYPE, dead)


def handler_input(fire: Ended) -> dict[str, object]:
    """Return the input of an ``onDead`` handler."""
    return {
        "key": fire.key,
        "bucket": fire.bucket,
        "fire_time": exact_text(fire.fire_time),
        "windows": fire.windows,
        "workflow_id": fire.workflow_id,
        "run_id": fire.run_id,
        "workflow": fire.workflow_type or fire.workflow,
        "status": fire.status,
        "error": fire.error,
        "attempts": fire.attempts,
        "input": fire.arguments[0] if fire.arguments else None,
        "not_undone": [dict(left) for left in fire.not_undone],
    }
