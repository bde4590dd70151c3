"""Queues of steps, seen from a workflow: where a step waits, and whose turn it takes."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import temporalio.workflow

from engine.flow.fire import MEMO_KEY, FireInfo

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_LONGEST_KEY: Final = 64
"""Bytes of a fairness key, which the server takes."""


def lane_of(task_queue: str, queue: str) -> str:
    """Return the Temporal task queue on which steps of a queue wait."""
    return f"{task_queue}/{queue}"


def queue_of(lane: str, task_queue: str) -> str | None:
    """Return the queue whose lane this is; None for any other task queue."""
    before, slash, queue = lane.rpartition("/")
    return queue if slash and before == task_queue else None


def checked_queue(name: str | None) -> str | None:
    """Return ``name`` if it may name a queue.

    Raises:
        ValueError: It may not.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name a queue: use up to 200 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    return name


def turn_key() -> str:
    """Return whose turns this run's steps take: its schedule's, or those of its workflow type."""
    try:
        key = FireInfo.from_memo(temporalio.workflow.memo_value(MEMO_KEY, None)).key
    except ValueError:
        key = temporalio.workflow.info().workflow_type
    data = key.encode()
    if len(data) <= _LONGEST_KEY:
        return key
    # Keys that begin alike must stay apart.
    digest = hashlib.sha256(data).hexdigest()[:16]
    return f"{data[: _LONGEST_KEY - 20].decode(errors='ignore')}-{digest}"
