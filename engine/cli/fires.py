"""``sched fires``: what became of each window."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.text import Text

from engine.cli.environment import service, target
from engine.cli.options import (
    DEFAULT_DATA_DIR,
    AnyKey,
    DataDir,
    Json,
    Limit,
    one_of,
)
from engine.cli.output import (
    colour_of,
    console,
    fire_json,
    fire_lag,
    instant,
    is_to_be_laid,
    print_json,
    print_table,
    why,
)
from engine.ledger.backfill_records import Backfill
from engine.ledger.fire_records import Fire, Status

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
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on: show what changes, and how far runs are."),
    ] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show what became of each window, newest first.

    With --follow the oldest comes first, and each further line is something that has changed: a
    window's status, or the progress that a run tells with ctx.progress. Ctrl-C ends it. With
    --json each line is a document.
    """
    if follow:
        _follow(key, status, limit, data_dir, as_json=as_json)
        return

    fires, laying = asyncio.run(_read(key, status, limit, data_dir))
    if as_json:
        print_json([fire_json(fire, laying) for fire in fires])
    elif fires:
        print_table(
            ("FIRE TIME", "KEY", "STATUS", "TIMING", "LAG", "RUN", "REASON"),
            (_fire_row(fire, laying) for fire in fires),
            spare=("TIMING", "LAG", "RUN"),
        )
    else:
        of = f" of {key}" if key else ""
        typer.echo(f"no window{of} {f'is {status} now' if status else 'has been decided yet'}")


async def _read(
    key: str | None, status: Status | None, limit: int, data_dir: Path
) -> tuple[list[Fire], list[Backfill]]:
    async with service(data_dir) as opened:
        found = await opened.fires(key=key, status=status, limit=limit)
        if key and not found:
            await opened.schedule(key)  # raises when there is none
        return found, await opened.laying()


def _follow(
    key: str | None, status: Status | None, limit: int, data_dir: Path, *, as_json: bool
) -> None:
    # Temporal's SDK takes longer to load than a list of fires.
    from engine.cli.following import Follower  # noqa: PLC0415

    out = console()

    def say(fire: Fire, progress: str) -> None:
        if as_json:
            line = json.dumps({**fire_json(fire), "progress": progress or None}, ensure_ascii=False)
            typer.echo(line)
            return
        told = progress or why(fire)
        out.print(Text.assemble(
            f"{instant(fire.fire_time)}  {fire.key}  ",
            (fire.status, colour_of(fire.status)),
            f"  {fire.workflow_id}" + (f"  {told}" if told else ""),
        ))  # fmt: skip

    follower, of = Follower(key, status, limit, say=say), target(data_dir)

    async def run() -> None:
        # It only reads, so nothing has to be finished; and Temporal's SDK may hang when a call that
        # it is in the middle of is cancelled, as the end of a loop does.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, _leave_at_once)
        await follower.run(of, warn=lambda text: typer.echo(f"sched: {text}", err=True))

    asyncio.run(run())


def _leave_at_once() -> None:
    with contextlib.suppress(OSError):  # whoever read it may have gone first
        sys.stdout.flush()
    os._exit(128 + signal.SIGINT)


def _fire_row(fire: Fire, laying: list[Backfill]) -> tuple[object, ...]:
    to_come = ["a backfill is still to come to it"] if is_to_be_laid(fire, laying) else []
    return (
        instant(fire.fire_time), fire.key, fire.status, fire.timing, fire_lag(fire),
        fire.workflow_id, "; ".join(filter(None, [why(fire), *to_come])),
    )  # fmt: skip
