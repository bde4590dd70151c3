"""The workflow that every contestant starts: it ends at once, so only starting is measured."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from engine import Context, workflow

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
