"""The steps and workflows of test_retries.py and test_idempotency.py."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError

from engine import Context, FatalError, Retry, StepInfo, caused_by, step, step_info, undo, workflow


@dataclass
class Seen:
    """What the attempts of a test saw; the test and its steps share a process."""

    began: list[datetime] = field(default_factory=list)
    ended: list[datetime] = field(default_factory=list)
    infos: list[StepInfo] = field(default_factory=list)


SEEN = Seen()


class NoSuchAccount(Exception):
    pass


class AccountClosed(NoSuchAccount):
    pass


class CardStolen(FatalError):
    pass


@step(timeout=30)
async def pay(raises: str) -> int:
    attempt = activity.info().attempt
    SEEN.began.append(activity.info().started_time)
    if raises == "twice" and attempt > 2:
        return attempt
    if raises == "AccountClosed":
        raise AccountClosed("closed in 2019")
    if raises == "CardStolen":
        raise CardStolen("stolen", {"card": 4})
    if raises == "own word" and attempt == 1:
        raise ApplicationError("in a moment", next_retry_delay=timedelta(milliseconds=1))
    if raises == "own word":
        return attempt
    raise ConnectionError(f"attempt {attempt}")


@dataclass
class Rules:
    raises: str
    intervals: list[float] = field(default_factory=list)
    max_attempts: int | None = None
    give_up_on: list[str] = field(default_factory=list)


@workflow
class Charging:
    async def run(self, ctx: Context, rules: Rules) -> int:
        retry = Retry(
            max_attempts=rules.max_attempts,
            intervals=rules.intervals,
            give_up_on=rules.give_up_on,
        )
        return await ctx.step(pay, rules.raises, retry=retry)


@workflow
class Catching:
    """Which of four classes each of three failures is of: a step's, a child's and a group's."""

    async def run(self, ctx: Context, raises: str) -> list[str]:
        rules = Rules(raises, max_attempts=1)
        found = [await _caught(ctx.step(pay, raises, retry=Retry(max_attempts=1)))]
        found.append(await _caught(ctx.child(Charging, rules)))
        try:
            async with asyncio.TaskGroup() as together:
                together.create_task(ctx.child(Charging, rules))
        except* ChildWorkflowError as group:
            found.append(_kinds(group))
        return found


async def _caught(call: Coroutine[Any, Any, int]) -> str:
    try:
        await call
    except (ActivityError, ChildWorkflowError) as error:
        return _kinds(error)
    return "no failure"


def _kinds(error: BaseException) -> str:
    asked = (NoSuchAccount, AccountClosed, FatalError, OSError)
    return " ".join(each.__name__ for each in asked if caused_by(error, each))


@step(retry=Retry(initial_interval=0.01))
def note_key(failures: int) -> str:
    info = step_info()
    SEEN.infos.append(info)
    if info.attempt <= failures:
        raise ConnectionError("once")
    return info.idempotency_key


@undo
async def take_back() -> None:
    SEEN.infos.append(step_info())


@workflow
class Keys:
    """The same step three times, one of them with a key of the workflow's own; then it fails."""

    async def run(self, ctx: Context) -> None:
        await ctx.step(note_key, 1, compensate=take_back)
        await ctx.step(note_key, 0, compensate=take_back)
        await ctx.step(note_key, 0, compensate=take_back, idempotency_key="invoice-42", priority=1)
        raise LookupError("and all of it has to be taken back")


ALL: list[Any] = [Charging, Catching, Keys]
STEPS: list[Any] = [pay, note_key, take_back]
