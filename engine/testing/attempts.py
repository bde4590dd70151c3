"""One attempt of a step without a server: what it sees of Temporal, and its values as JSON."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Final

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.testing import ActivityEnvironment

from engine.flow.calls import StepCall
from engine.flow.notes import StepNote
from engine.flow.step_info import NotedInfo
from engine.testing.failing import step_failed
from engine.testing.fakes import name_of

_converter: Final = PydanticPayloadConverter()


async def attempt(call: StepCall, act: Callable[..., Any], there: ActivityEnvironment) -> Any:
    """Call a step, or the ``act`` that stands for it, and return what a run would be given.

    Raises:
        TypeError: the input cannot be written as JSON, or does not fit.
        ActivityError: it failed; the cause says why.
    """

    async def called(*args: Any) -> Any:
        found = act(*args)
        return await found if inspect.isawaitable(found) else found

    signature = inspect.signature(call.fn, eval_str=True)
    hints = [_known(each.annotation) for each in signature.parameters.values()]
    args = [through_json(arg, hint) for arg, hint in zip(call.args, hints, strict=False)]
    try:
        found = await there.run(called, *args)
        return through_json(found, _known(signature.return_annotation))
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends the step
        failure = step_failed(name_of(call.fn), there.info.activity_id, error)
        raise failure from failure.__cause__


def environment(
    name: str, place: str, note: StepNote, workflow_id: str, run_id: str
) -> ActivityEnvironment:
    """Return what ``step_info()`` and Temporal's ``activity`` work in."""
    found = ActivityEnvironment()
    known = {each.name: getattr(found.info, each.name) for each in dataclasses.fields(found.info)}
    known |= {
        "activity_id": place,
        "activity_type": name,
        "workflow_id": workflow_id,
        "workflow_run_id": run_id,
    }
    found.info = NotedInfo(**known, note=note)
    return found


def through_json(value: Any, wanted: Any = None) -> Any:
    """Return a value as it comes out of a run's history.

    Raises:
        TypeError: it cannot be written as JSON, or does not fit what is wanted.
    """
    [payload] = _converter.to_payloads([value])
    return _converter.from_payloads([payload], None if wanted is None else [wanted])[0]


def _known(hint: Any) -> Any:
    return None if hint is inspect.Signature.empty else hint
