"""Helpers for coroutines: forgotten awaits and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from temporalio.exceptions import ActivityError, ChildWorkflowError

# --- forgotten awaits ---
# Detection of ``ctx`` calls that were never awaited: they would silently do nothing.

M = TypeVar("M", bound="Callable[..., Coroutine[Any, Any, Any]]")


class UnawaitedCalls:
    """The calls of one run that have not started."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[str, Coroutine[Any, Any, Any]]] = {}
        self._count = 0

    def note(self, text: str, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return a coroutine that leaves the record when it is awaited."""
        self._count += 1
        number = self._count

        async def call() -> Any:
            self._made.pop(number, None)
            return await begin()

        made = call()
        self._made[number] = (text, made)
        return made

    def refuse(self) -> None:
        """Refuse a call that was made and never started; cancelled calls do not count.

        Raises:
            TypeError: there is such a call; the message names the first.
        """
        left = [text for text, made in self._made.values() if _is_waiting(made)]
        for _, made in self._made.values():
            made.close()  # avoids Python's own warnings, which go unnoticed
        if left:
            raise TypeError(f"{left[0]} was never awaited and did nothing; write `await` before it")


def to_await(method: M) -> M:
    """Make a run fail if it calls this method of its context and does not await it."""

    @functools.wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        text = f"ctx.{method.__name__}({_shown(args[0]) if args else ''})"
        return self._unawaited.note(text, lambda: method(self, *args, **kwargs))

    return called  # type: ignore[return-value] # it is called and awaited alike


def _shown(first: object) -> str:
    """Return the name of a step or workflow, and ``…`` for a list of calls, which may be long."""
    named = getattr(first, "__name__", None)
    return str(named) if named else "…" if isinstance(first, list | tuple) else repr(first)


def _is_waiting(made: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(made) == inspect.CORO_CREATED


# --- cancellation while waiting ---


async def result_of(
    handle: asyncio.Task[Any], what: str, keep: Callable[[Any], None] | None = None
) -> Any:
    """Return the result of a step or a child, without losing a cancel of the waiting task.

    Args:
        handle: the SDK's handle.
        what: the name of the step or child in messages.
        keep: takes the result, also one that arrives together with a cancel.

    Raises:
        asyncio.CancelledError: the waiting task was cancelled, even if the step or child had
            ended by itself before the cancel reached it.
        ActivityError, ChildWorkflowError: the step or child failed for good.
    """
    task = asyncio.current_task()
    cancelled = task.cancelling() if task else 0
    try:
        result = await handle
    except (ActivityError, ChildWorkflowError) as error:
        if task and task.cancelling() > cancelled:
            # Code that catches such an error to continue without the result must not catch this.
            raise asyncio.CancelledError(str(error)) from error
        raise
    if keep is not None:
        keep(result)
    if task and task.cancelling() > cancelled:
        # The SDK returns the result if the work finished anyway, and the cancel would be lost.
        raise asyncio.CancelledError(f"cancelled while {what} ran")
    return result


# --- protection from cancellation ---

R = TypeVar("R")


async def finish_despite_cancel(work: Coroutine[Any, Any, R]) -> R:
    """Wait until the work has ended, despite any number of cancels, and return its result.

    A cancel of the run arrives in the task that waits here; the work runs in its own task.
    """
    try:
        working = asyncio.create_task(work)
    except BaseException:  # the SDK evicts the run from its cache
        work.close()  # avoids Python's warning
        raise
    while not working.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(working)
    return await working
