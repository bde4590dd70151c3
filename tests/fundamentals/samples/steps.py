"""The steps and workflows of test_steps.py (see samples/workflows.py for why they are here)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import temporalio.workflow
from temporalio import activity
from temporalio.exceptions import ActivityError

from engine import Context, Retry, as_step, step, workflow

ATTEMPTS: list[int] = []


@dataclass
class Mail:
    to: str
    copies: int = 1


@step
async def send(mail: Mail) -> int:
    return mail.copies


@step(name="count-rows", timeout=30)
def count_rows() -> int:
    return 7


@step(timeout=timedelta(minutes=2), retry=Retry(max_attempts=3, initial_interval=0.01))
async def unreliable(successful_attempt: int) -> int:
    attempt = activity.info().attempt
    ATTEMPTS.append(attempt)
    if attempt < successful_attempt:
        raise ConnectionError(f"attempt {attempt}")
    return attempt


@step
async def echo(text: str | None = "nothing") -> str | None:
    return text


@activity.defn
async def plain_activity(text: str) -> str:
    return text.upper()


@workflow(name="uses-steps")
class UsesSteps:
    async def run(self, ctx: Context) -> list[object]:
        return [
            await ctx.step(send, Mail("a@example.org", copies=2)),
            await ctx.step(count_rows),
            await ctx.step(as_step(plain_activity), "plain", timeout=5),
            await ctx.step(echo),
            await ctx.step(echo, None),
        ]


@workflow(name="tries")
class Tries:
    async def run(self, ctx: Context, successful_attempt: int) -> int:
        return await ctx.step(unreliable, successful_attempt)


@workflow(name="tries-once")
class TriesOnce:
    async def run(self, ctx: Context) -> str:
        try:
            await ctx.step(unreliable, 2, retry=Retry(max_attempts=1), timeout=0.5)
        except ActivityError as error:
            return str(error.cause)
        return "no error"


@workflow(name="misuses-steps")
class MisusesSteps:
    async def run(self, ctx: Context, way: str) -> None:
        match way:
            case "not a step":
                await ctx.step(_undecorated)  # type: ignore[call-overload]
            case "closure":
                await ctx.step("gather", lambda: [1, 2])  # type: ignore[call-overload]
            case "lambda":
                await ctx.step(lambda: [1, 2])  # type: ignore[call-overload]
            case "local":

                async def gather() -> None: ...

                await ctx.step(gather)  # type: ignore[call-overload]
            case "called":
                await ctx.step("what a step returned")  # type: ignore[call-overload]
            case "no input":
                await ctx.step(send)  # type: ignore[arg-type]
            case "an input too many":
                await ctx.step(count_rows, 3)  # type: ignore[arg-type]


async def _undecorated() -> None: ...


@temporalio.workflow.defn(name="uses-steps@1")
class UsesOtherSteps:
    """What ``uses-steps`` would be after an edit that needed a new version."""

    @temporalio.workflow.run
    async def run(self) -> None:
        await Context().step(count_rows)


ALL = [UsesSteps, Tries, TriesOnce, MisusesSteps]
