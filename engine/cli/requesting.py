"""``sched trigger`` and ``sched rerun``: runs that somebody asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from engine.cli.environment import service
from engine.cli.given import given_input
from engine.cli.options import (
    DEFAULT_DATA_DIR,
    AsOverlap,
    DataDir,
    Input,
    Json,
    Key,
    Reason,
    whole_number,
)
from engine.cli.output import fire_json, print_json, why
from engine.cli.unserved import unserved
from engine.runtime.verbs.requesting import Requested
from engine.service import ScheduleService

_NO_RUN = {"skipped", "rejected"}
_LONGEST = 18
"""Digits that a database's number surely holds."""
_SOON = {"claimed": "starts at once", "queued": "starts when what is open has ended"}


def bucket_number(text: str | int) -> int:
    """Return the number of a window, from what was typed.

    Raises:
        typer.BadParameter: it is none.
    """
    digits = str(text)
    if not digits.isascii() or not digits.isdigit() or len(digits) > _LONGEST:
        raise typer.BadParameter(
            f"{text!r} is no bucket; write the number in the run's id, as `sched fires` shows it"
        )
    return int(digits)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(trigger)
    app.command()(rerun)


def trigger(
    key: Key,
    request_id: Annotated[
        str | None,
        typer.Option(
            "--request-id", metavar="ID", help="Names the run: one run, however often asked.",
            show_default=False,
        ),
    ] = None,
    overlap: AsOverlap = None,
    own_input: Input = None,
    reason: Reason = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Start a run now, besides the schedule's windows.

    Also of a schedule that is paused. Ends with 1 when overlap left it without a run.
    """
    argument = given_input(own_input)
    ask(
        data_dir,
        lambda opened: opened.trigger(
            key, reason=reason, request_id=request_id, overlap=overlap, own_input=argument
        ),
        as_json=as_json,
    )


def rerun(
    key: Key,
    bucket: Annotated[
        int,
        typer.Argument(
            metavar="BUCKET", help="The window's number, as in its run id.", parser=bucket_number
        ),
    ],
    series: Annotated[
        int | None,
        typer.Option(
            "--series", metavar="N", help="Where several series have that number.",
            parser=whole_number, show_default=False,
        ),
    ] = None,
    overlap: AsOverlap = None,
    own_input: Input = None,
    reason: Reason = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Start one more run of a window that was decided.

    Whatever became of it, under the present definition. Ends with 1 when overlap left it without
    a run.
    """
    argument = given_input(own_input)
    ask(
        data_dir,
        lambda opened: opened.rerun(
            key, bucket, reason=reason, series=series, overlap=overlap, own_input=argument
        ),
        as_json=as_json,
    )


def ask(
    data_dir: Path, request: Callable[[ScheduleService], Awaitable[Requested]], *, as_json: bool
) -> None:
    """Make a request of the service and tell what came of it; ends with 1 without a run."""

    async def act() -> tuple[Requested, str]:
        async with service(data_dir) as opened:
            asked = await request(opened)
            row = await opened.schedule(asked.fire.key)
            return asked, unserved([row], await opened.served())

    asked, alone = asyncio.run(act())
    if as_json:
        print_json({**fire_json(asked.fire), "new": asked.new})
    else:
        typer.echo(told(asked, alone=bool(alone)))
    if alone and asked.fire.status in _SOON:
        typer.echo(alone, err=True)
    if asked.fire.status in _NO_RUN:
        raise typer.Exit(1)


def told(asked: Requested, *, alone: bool) -> str:
    """Return what people read; where they are ``alone``, without a worker, nothing is promised."""
    fire = asked.fire
    first = "" if asked.new else "asked for before: "
    more = ("" if alone else _SOON.get(fire.status)) or why(fire)
    return f"{first}{fire.workflow_id} {fire.status}{': ' if more else ''}{more}"
