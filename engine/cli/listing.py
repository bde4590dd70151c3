"""``sched list``: every schedule on one line."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from engine.cli.environment import service
from engine.cli.options import DEFAULT_DATA_DIR, DataDir, Json
from engine.cli.output import instant, print_json, print_table, problem_of, schedule_json
from engine.ledger.records import ScheduleRow


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list")(list_schedules)


def list_schedules(
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Only this project's.")
    ] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show every schedule: what it runs, when, and how it fares."""

    async def read() -> list[ScheduleRow]:
        async with service(data_dir) as opened:
            return await opened.schedules(project)

    rows = asyncio.run(read())
    if as_json:
        print_json([schedule_json(row) for row in rows])
        return
    columns = ["KEY", "WORKFLOW", "WHEN", "STATE", "NEXT FIRE", "LAST FIRE", "LAST STATUS"]
    problems = [problem_of(row) for row in rows]
    cells = [_schedule_row(row) for row in rows]
    if len({row.project for row in rows}) > 1:
        columns.append("PROJECT")
        cells = [[*cell, row.project] for cell, row in zip(cells, rows, strict=True)]
    if any(problems):
        columns.append("PROBLEM")
        cells = [[*cell, problem] for cell, problem in zip(cells, problems, strict=True)]
    print_table(columns, cells)


def _schedule_row(row: ScheduleRow) -> list[object]:
    when = row.schedule.when if row.schedule else "?"
    if row.schedule and row.schedule.kind == "cron" and row.schedule.timezone != "UTC":
        when += f" {row.schedule.timezone}"
    return [
        row.key, row.workflow, when, row.state,
        instant(row.next_fire_at), instant(row.last_fire_at), row.last_status,
    ]  # fmt: skip
