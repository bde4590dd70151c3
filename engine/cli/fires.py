"""``sched fires``: what became of each window."""

from __future__ import annotations

import asyncio
from typing import Annotated, get_args

import typer

from engine.cli.environment import service
from engine.cli.options import (
    DEFAULT_DATA_DIR,
    AnyKey,
    DataDir,
    Json,
    Limit,
    one_of,
)
from engine.cli.output import fire_json, fire_lag, instant, print_json, print_table, why
from engine.ledger.records import Fire, Status

_STATUSES: tuple[str, ...] = get_args(Status)


def _completed(typed: str) -> list[str]:
    return [status for status in _STATUSES if status.startswith(typed)]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("fires")(list_fires)


def list_fires(
    key: AnyKey = None,
    status: Annotated[
        Status | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help=f"Only {', '.join(_STATUSES)}.",
            parser=one_of("status", _STATUSES),
            autocompletion=_completed,
        ),
    ] = None,
    limit: Limit = 20,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show what became of each window, newest first."""

    async def read() -> list[Fire]:
        async with service(data_dir) as opened:
            found = await opened.fires(key=key, status=status, limit=limit)
            if key and not found:
                await opened.schedule(key)  # raises when there is none
            return found

    fires = asyncio.run(read())
    if as_json:
        print_json([fire_json(fire) for fire in fires])
    elif fires:
        print_table(
            ("FIRE TIME", "KEY", "STATUS", "TIMING", "LAG", "RUN", "REASON"),
            map(_fire_row, fires),
            spare=("TIMING", "LAG", "RUN"),
        )
    else:
        of = f" of {key}" if key else ""
        typer.echo(f"no window{of} {f'is {status} now' if status else 'has been decided yet'}")


def _fire_row(fire: Fire) -> tuple[object, ...]:
    return (
        instant(fire.fire_time), fire.key, fire.status, fire.timing, fire_lag(fire),
        fire.workflow_id, why(fire),
    )  # fmt: skip
