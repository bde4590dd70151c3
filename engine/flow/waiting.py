"""What a task that waits for a step or a child makes of a cancel."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.exceptions import ActivityError, ChildWorkflowError


async def result_of(handle: asyncio.Task[Any], what: str) -> Any:
    """Return what a step or a child returned; a cancel of whoever waits here is never lost.

    Args:
        handle: of the SDK.
        what: for people.

    Raises:
        asyncio.CancelledError: the task that waits here was cancelled, even if what it waits for
            had ended by itself before it heard of that.
        ActivityError, ChildWorkflowError: what it waits for failed for good.
    """
    task = asyncio.current_task()
    cancelled = task.cancelling() if task else 0
    try:
        result = await handle
    except (ActivityError, ChildWorkflowError) as error:
        if task and task.cancelling() > cancelled:
            # Whoever catches such an error to go on without the result must not catch this.
            raise asyncio.CancelledError(str(error)) from error
        raise
    if task and task.cancelling() > cancelled:
        # The SDK returns the result of what finished all the same, and the request to stop
        # would be lost.
        raise asyncio.CancelledError(f"cancelled while {what} ran")
    return result
