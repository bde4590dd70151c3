"""The commands that only look: ``list`` and ``fires``."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from engine.cli.environment import DEFAULT_DATA_DIR, DataDir, Json, service
from engine.cli.output import fire_json, instant, print_json, print_table, problem_of, schedule_json
from engine.errors import ScheduleNotFound
from engine.ledger.records import Fire, ScheduleRow, Status


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list")(list_schedules)
    app.command("fires")(list_fires)


def list_schedules(
    project: Annotated[str | None, typer.Option(help="Only this project's.")] = None,
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


def list_fires(
    key: Annotated[str | None, typer.Argument(help="Only this schedule's.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only these.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show what became of each window, newest first."""

    async def read() -> list[Fire]:
        async with service(data_dir) as opened:
            found = await opened.fires(key=key, status=status, limit=limit)
            if key and not found and key not in {row.key for row in await opened.schedules()}:
                raise ScheduleNotFound(f"there is no schedule {key}", cure="see `sched list`")
            return found

    fires = asyncio.run(read())
    if as_json:
        print_json([fire_json(fire) for fire in fires])
        return
    print_table(
        ("FIRE TIME", "KEY", "STATUS", "TIMING", "LAG", "RUN", "REASON"), map(_fire_row, fires)
    )


def _fire_row(fire: Fire) -> tuple[object, ...]:
    lag = None if fire.lag_ms is None else f"{fire.lag_ms / 1000:.3f} s"
    several = f"{fire.windows} windows up to {instant(fire.last_fire_time)}: "
    reason = (several if fire.windows > 1 else "") + (fire.reason or fire.error or "")
    return (
        instant(fire.fire_time), fire.key, fire.status, fire.timing, lag, fire.workflow_id, reason,
    )  # fmt: skip
