"""``sched list``: every schedule on one line."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Annotated

import typer

from engine.cli.environment import service
from engine.cli.options import DEFAULT_DATA_DIR, DataDir, Json
from engine.cli.output import instant, print_json, print_table, problem_of, schedule_json
from engine.cli.unserved import unserved
from engine.ledger.schedule_records import ScheduleRow

_SPARE = ("WORKFLOW", "LAST FIRE", "WHEN", "ORIGIN", "PROJECT", "LAST STATUS")
_LATE = timedelta(seconds=30)
"""A worker looks every second; what is due for so long is started by none."""
_NAMED = 5
_EMPTY = "the ledger has no schedule yet; `sched apply` or a worker brings those of a file"


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

    async def read() -> tuple[list[ScheduleRow], str]:
        async with service(data_dir) as opened:
            rows = await opened.schedules(project)
            if rows or project is None:
                if not rows:
                    return rows, _EMPTY
                late = overdue(rows, datetime.now(UTC))
                alone = late or unserved(rows, await opened.served())
                return rows, "\n".join(filter(None, [alone, *await opened.left_alone(rows)]))
            return rows, _nothing_of(project, {row.project for row in await opened.schedules()})

    rows, remark = asyncio.run(read())
    if as_json:
        print_json([schedule_json(row) for row in rows])
    elif rows:
        _print(rows)
    if remark:
        typer.echo(remark, err=as_json)


def _nothing_of(project: str, known: Collection[str]) -> str:
    if not known:
        return _EMPTY
    near = get_close_matches(project.lower(), known, n=1)
    cure = f"did you mean {near[0]}?" if near else f"there is {', '.join(sorted(known)[:_NAMED])}"
    return f"no schedule of project {project}; {cure}"


def overdue(rows: Sequence[ScheduleRow], now: datetime) -> str:
    """Say which windows nobody starts, and since when; empty when all is well.

    The ledger cannot tell why. A schedule with a problem of its own says so on its line.
    """
    late = [
        (row.next_fire_at, row.key)
        for row in rows
        if row.next_fire_at and row.state == "active" and not problem_of(row)
        and row.next_fire_at < now - _LATE
    ]  # fmt: skip
    if not late:
        return ""
    keys = [key for _, key in sorted(late)]
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return (
        f"nobody starts what is due since {instant(min(late)[0])}"
        f" ({', '.join(keys[:_NAMED])}{more}):"
        " start a worker (`sched up` or `sched worker`), or see what yours says"
    )


def _print(rows: Sequence[ScheduleRow]) -> None:
    columns = ["KEY", "WORKFLOW", "WHEN", "STATE", "NEXT FIRE", "LAST FIRE", "LAST STATUS"]
    problems = [problem_of(row) for row in rows]
    cells = [_schedule_row(row) for row in rows]
    if len({row.project for row in rows}) > 1:
        columns.append("PROJECT")
        cells = [[*cell, row.project] for cell, row in zip(cells, rows, strict=True)]
    if any(row.origin == "api" for row in rows):
        columns.append("ORIGIN")
        cells = [[*cell, row.origin] for cell, row in zip(cells, rows, strict=True)]
    if any(problems):
        columns.append("PROBLEM")
        cells = [[*cell, problem] for cell, problem in zip(cells, problems, strict=True)]
    print_table(columns, cells, spare=_SPARE)


def _schedule_row(row: ScheduleRow) -> list[object]:
    when = row.schedule.when if row.schedule else "?"
    if row.schedule and row.schedule.kind == "cron" and row.schedule.timezone != "UTC":
        when += f" {row.schedule.timezone}"
    return [
        row.key, row.workflow, when, row.state,
        instant(row.next_start_at), instant(row.last_fire_at), row.last_status,
    ]  # fmt: skip
