"""Reads from Temporal why a closed run failed. Whatever it cannot read never hides the close."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from engine.flow import CompensationFailed
from engine.ledger.fire_records import Evidence
from engine.runtime.settings import Settings

_LONGEST = 2000
"""Characters of an error in the ledger."""
_MOST_LEFT = 100
"""Steps that are listed of those that could not be undone."""
ENDED_BADLY = frozenset({"failed", "timed_out", "terminated"})
"""How a run ends that has a reason to be read, which is a call of its own."""


async def with_reason(
    evidence: Evidence, handle: WorkflowHandle[Any, Any], settings: Settings
) -> Evidence:
    """Return the evidence of a run with why it failed, where it did."""
    if evidence.closed not in ENDED_BADLY:
        return evidence
    try:
        await handle.result(follow_runs=False, rpc_timeout=settings.rpc_timeout)
    except WorkflowFailureError as failure:
        error, left = _told(failure.cause)
        return replace(evidence, error=error, not_undone=left)
    except Exception as error:  # noqa: BLE001 - also a codec that cannot reach its keys
        text = f"its failure could not be read: {type(error).__name__}: {error}"
        return replace(evidence, error=_line(text))
    return evidence


def _told(failure: BaseException) -> tuple[str, str | None]:
    """The innermost reason in one line; and what could not be taken back, as JSON."""
    innermost = failure
    while innermost.__cause__ is not None and not _is_cancel(innermost.__cause__):
        innermost = innermost.__cause__
    if not isinstance(failure, ApplicationError) or failure.type != CompensationFailed.__name__:
        return _line(str(innermost)), None
    error = failure.message
    if innermost is not failure:
        error += f", after: {innermost}"
    left = [
        {name: _line(str(each.get(name, ""))) for name in ("step", "undo", "error")}
        for each in failure.details[:_MOST_LEFT]
        if isinstance(each, dict)
    ]
    return _line(error), json.dumps(left, ensure_ascii=False) if left else None


def _is_cancel(error: BaseException) -> bool:
    """How asyncio times something out, and not why: below a TimeoutError there is a cancel."""
    return isinstance(error, ApplicationError) and error.type == asyncio.CancelledError.__name__


def _line(text: str) -> str:
    """One line of text that a database can keep."""
    kept = text[: _LONGEST * 4].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return " ".join(kept.split())[:_LONGEST]
