"""The workflow that docs/workflows.md translates: its service is an object with steps."""

from __future__ import annotations

from collections.abc import AsyncIterator

from engine import Context, given, resource, step, workflow


class Database:
    def __init__(self) -> None:
        self.mails: list[str] = []


@resource
async def database() -> AsyncIterator[Database]:
    yield Database()


class Reports:
    def __init__(self, database: Database) -> None:
        self.database = database

    @step(timeout=300)
    async def gather_yesterday(self) -> list[str]:
        return ["first row", "second row"]

    @step
    async def email(self, rows: list[str]) -> None:
        self.database.mails.append(f"{len(rows)} rows")


@resource
async def report_service(database: Database) -> AsyncIterator[Reports]:
    yield Reports(database)


reports = given(Reports)


@workflow(name="nightly-rows", version="1")
class NightlyRows:
    async def run(self, ctx: Context) -> dict[str, int]:
        rows = await ctx.step(reports.gather_yesterday)
        await ctx.step(reports.email, rows)
        return {"rows": len(rows)}
