"""The engine's own workflow: undoes what a run did that was ended from outside.

What is left is read from that run's history, because nothing else of it is executed any more. Each
undo has the step's input as it was written, and its idempotency key: what the run itself, or an
attempt that was cut off, has undone already is not undone twice.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import temporalio.workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue, RetryPolicy

from engine.flow.calls import StepCall, place_of
from engine.flow.failures import CompensationFailed, NotUndone
from engine.flow.notes import StepNote, noted
from engine.flow.run_rules import policy_from_json, policy_to_json
from engine.flow.to_the_end import to_the_end

UNDO_TYPE: Final = "sched.undo@1"
"""The Temporal type of the run that undoes another one."""

LEFT_TO_UNDO: Final = "sched.left_to_undo"
"""The activity that reads what is left."""

_READING = timedelta(minutes=1)
_PATIENT = RetryPolicy(maximum_interval=timedelta(minutes=1))


def undo_note(undo: StepCall, key: str) -> dict[str, Any]:
    """Return how to take a step back, as its note says it: whoever does it has no code of the run.

    Args:
        undo: the call that takes it back.
        key: the step's idempotency key.
    """
    definition = getattr(undo.fn, "__temporal_activity_definition", None)
    return {
        "step": getattr(definition, "name", None) or undo.name,
        "key": key,
        "takes_input": bool(undo.args),
        "timeout": undo.timeout.total_seconds(),
        "queue": undo.queue,
        "priority": undo.priority,
        "retry": undo.retry and policy_to_json(undo.retry.to_policy()),
        "rules": undo.retry.told_to_worker() if undo.retry else {},
    }


@temporalio.workflow.defn(name=UNDO_TYPE)
class Undo:
    """Undoes what is left of one run, the newest step first."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._not_undone: list[NotUndone] = []

    @temporalio.workflow.run
    async def run(self, dead: dict[str, Any]) -> int:
        """Undo all of it, whatever fails in between; returns how many steps were undone.

        Args:
            dead: ``workflow_id``, ``run_id`` and ``workflow``, the type, of the run.

        Raises:
            CompensationFailed: something could not be undone.
        """
        # A cancel of this run would leave the rest undone: it is heard, and that is all.
        undone = await to_the_end(self._undo_all(dead))
        if self._not_undone:
            raise CompensationFailed(str(dead.get("workflow")), self._not_undone)
        return undone

    async def _undo_all(self, dead: Mapping[str, Any]) -> int:
        done = 0
        while True:
            # Beside this workflow and not on any worker: one that runs steps only lacks it.
            left = await temporalio.workflow.execute_local_activity(
                LEFT_TO_UNDO, {**dead, "skip": done},
                start_to_close_timeout=_READING, retry_policy=_PATIENT, result_type=dict,
            )  # fmt: skip
            await _until(left.get("quiet_at"))
            for each in left["undos"]:
                await self._undo(each)
            done += len(left["undos"])
            if not left["undos"]:
                return done - len(self._not_undone)

    async def _undo(self, each: Mapping[str, Any]) -> None:
        undo = each["undo"]
        name = undo["step"]
        self._calls[name] += 1
        retry = undo.get("retry")
        try:
            with noted(StepNote.from_json({**undo.get("rules", {}), "undoes": undo["key"]})):
                handle: temporalio.workflow.ActivityHandle[Any] = (
                    temporalio.workflow.start_activity(
                        name,
                        args=[_raw(each["input"])] if each.get("input") else [],
                        activity_id=f"{name}/{self._calls[name]}",
                        start_to_close_timeout=timedelta(seconds=undo["timeout"]),
                        retry_policy=policy_from_json(retry) if retry else None,
                        summary=f"undo of {each['step']}",
                        **place_of(undo.get("queue"), undo.get("priority")),
                    )
                )
            await handle
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the others are undone
            cause = error.__cause__ or error
            temporalio.workflow.logger.error("the undo %r failed: %s", name, cause)
            self._not_undone.append(NotUndone(each["step"], name, str(cause)))


async def _until(moment: str | None) -> None:
    if moment is None:
        return
    wait = datetime.fromisoformat(moment) - temporalio.workflow.now()
    if wait > timedelta(0):
        await temporalio.workflow.sleep(wait)


def _raw(text: str) -> RawValue:
    return RawValue(Payload.FromString(base64.b64decode(text)))
