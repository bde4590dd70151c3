"""Waiting for a fact instead of sleeping for a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def eventually(
    condition: Callable[[], T | Awaitable[T]],
    *,
    timeout: float = 10.0,  # noqa: ASYNC109 - the deadline is what the caller is here for
    every: float = 0.02,
) -> T:
    """Return the condition's value as soon as it is true.

    Args:
        condition: sync or async; an AssertionError in it means "not yet", any other error is one.
        timeout: seconds until the test fails.
        every: seconds between two looks.

    Raises:
        AssertionError: the deadline has passed; says the last value seen.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            last: object = value
        except AssertionError as error:
            last, value = error, None
        if value:
            return value
        if time.monotonic() > deadline:
            name = getattr(condition, "__name__", "the condition")
            raise AssertionError(f"{name} was still {last!r} after {timeout} s")
        await asyncio.sleep(every)
