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
# Finds calls of ``ctx`` that nobody awaited, which would do nothing without a word.

M = TypeVar("M", bound="Callable[..., Coroutine[Any, Any, Any]]")


class UnawaitedCalls:
    """The calls of one run that have not begun."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[str, Coroutine[Any, Any, Any]]] = {}
        self._count = 0

    def note(self, text: str, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return a coroutine that is forgotten as soon as somebody awaits it."""
        self._count += 1
        number = self._count

        async def call() -> Any:
            self._made.pop(number, None)
            return await begin()

        made = call()
        self._made[number] = (text, made)
        return made

    def refuse(self) -> None:
        """Raise for the first call that was made and never begun; one that was cancelled is not.

        Raises:
            TypeError: names it.
        """
        left = [text for text, made in self._made.values() if _is_waiting(made)]
        for _, made in self._made.values():
            made.close()  # Python would complain of each, where nobody looks
        if left:
            raise TypeError(f"{left[0]} was never awaited and did nothing; write `await` before it")


def to_await(method: M) -> M:
    """Let a run fail that calls this method of its context and does not await it."""

    @functools.wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        text = f"ctx.{method.__name__}({_shown(args[0]) if args else ''})"
        return self._unawaited.note(text, lambda: method(self, *args, **kwargs))

    return called  # type: ignore[return-value] # it is called and awaited alike


def _shown(first: object) -> str:
    """A step or a workflow by its name; of a list of calls, which may be long, that it is one."""
    named = getattr(first, "__name__", None)
    return str(named) if named else "…" if isinstance(first, list | tuple) else repr(first)


def _is_waiting(made: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(made) == inspect.CORO_CREATED


# --- cancellation while waiting ---
# What a task that waits for a step or a child makes of a cancel.


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


# --- protection from cancellation ---
# What a cancel of the run does not interrupt.

R = TypeVar("R")


async def finish_despite_cancel(work: Coroutine[Any, Any, R]) -> R:
    """Wait until the work has ended, and return what it returned, however often it is cancelled.

    A cancel of the run arrives in the task that waits here; the work goes on in one of its own.
    """
    working = asyncio.create_task(work)
    while not working.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(working)
    return await working
