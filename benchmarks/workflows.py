"""The workflow that every contestant starts: it ends at once, so only starting is measured."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from engine import Context, step, workflow

TYPE = "bare@1"


@workflow(name="bare", version="1")
class Noop:
    """Does nothing."""

    async def run(self, ctx: Context) -> None:
        """End at once."""


@workflow(name="bare-fails", version="1")
class Failing:
    """Fails at once."""

    async def run(self, ctx: Context) -> None:  # noqa: ARG002 - the signature of a run
        """Fail at once."""
        raise ApplicationError("it always fails", non_retryable=True)


@step
async def count(number: int) -> int:
    """Count one up."""
    return number + 1


@workflow(name="three-steps", version="1")
class ThreeSteps:
    """Takes about half a second, and may fail in each seventh window."""

    async def run(self, ctx: Context, fails: bool) -> int:  # noqa: FBT001 - the input of a schedule
        """Count to three."""
        number = 0
        for _ in range(3):
            number = await ctx.step(count, number)
        if fails and ctx.fire.bucket % 7 == 0:
            raise ApplicationError("the seventh", non_retryable=True)
        return number
