"""The workflows of a monthly report: each notes its order, and only the first may fail."""

from __future__ import annotations

from engine import Context, FatalError, workflow


@workflow(name="generate-monthly-report", version="1")
class GenerateMonthlyReport:
    """Fails where its input says so."""

    async def run(self, ctx: Context, fails: bool) -> None:  # noqa: FBT001 - the input, as it is
        if fails:
            raise FatalError("the month is not closed yet")


@workflow(name="extract", version="1")
class Extract:
    """Stands for the extracts of sales and of inventory."""

    async def run(self, ctx: Context, what: str) -> str:
        return what


@workflow(name="compile-report", version="1")
class CompileReport:
    """Puts the extracts together."""

    async def run(self, ctx: Context) -> None:
        """Do nothing."""


@workflow(name="send-failure-alert", version="1")
class SendFailureAlert:
    """Tells that there is no report."""

    async def run(self, ctx: Context) -> None:
        """Do nothing."""


ALL = [GenerateMonthlyReport, Extract, CompileReport, SendFailureAlert]
