"""Waiting for a fact instead of sleeping for a time."""

# ruff: noqa: ASYNC109 - a deadline is what callers are here for

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, overload

import asyncpg

from engine.errors import MomentInPast
from engine.ledger.postgres.connections import Connection

T = TypeVar("T")


@overload
async def eventually(
    condition: Callable[[], Awaitable[T | None]], *, timeout: float = ..., every: float = ...
) -> T: ...


@overload
async def eventually(
    condition: Callable[[], T], *, timeout: float = ..., every: float = ...
) -> T: ...


async def eventually(
    condition: Callable[[], Any], *, timeout: float = 20.0, every: float = 0.02
) -> Any:
    """Return the condition's value as soon as it is true.

    Args:
        condition: sync or async; an AssertionError in it means "not yet", any other error is one.
        timeout: seconds until the test fails. The usual is less than the 30 s of a lease, so that
            what is waited for has not come about by a lease that ended.
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


async def about_to_come(ask: Callable[[datetime], Awaitable[T]]) -> T:
    """Return the answer for a moment to come, as soon as this machine is fast enough to name one.

    Args:
        ask: asks for something at a moment, which is refused if that has passed.
    """
    for wait in (0.06, 0.6, 6):
        with suppress(MomentInPast):
            return await ask(datetime.now(UTC) + timedelta(seconds=wait))
    raise AssertionError("no moment to come can be named")


async def until_one_waits(connection: asyncpg.Connection | Connection) -> None:
    """Wait until a session of the connection's database waits for a lock."""
    waiting = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    await eventually(lambda: connection.fetchval(waiting))
