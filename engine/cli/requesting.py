"""``sched trigger`` and ``sched rerun``: runs that somebody asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
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
from engine.cli.unserved import WaitForWorker, nobody_starts_key, wait_for_worker
from engine.runtime.verbs.requesting import Requested
from engine.service import ScheduleService

_NO_RUN = {"skipped", "rejected"}
_LONGEST = 18
"""Digits that a database's number surely holds."""
_SOON = {"claimed": "starts at once", "queued": "starts when what is open has ended"}
_ASKS = "starts at once, unless a run is open: that is looked at first"
_HELD = "waits for the end of the pause"
_LOOK_TAKES = 5.0
"""Seconds for which a command waits for a look at what may be in the way."""
_EVERY = 0.1


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
    *,
    wait: WaitForWorker = False,
    reason: Reason = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Start a run now, besides the schedule's windows.

    Also of a schedule that is paused. Ends with 1 when overlap left it without a run, and warns
    where no worker lives that would start it.
    """
    argument = given_input(own_input)
    ask(
        data_dir,
        lambda opened: opened.trigger(
            key, reason=reason, request_id=request_id, overlap=overlap, own_input=argument
        ),
        wait=wait,
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
    data_dir: Path,
    request: Callable[[ScheduleService], Awaitable[Requested]],
    *,
    wait: bool = False,
    as_json: bool,
) -> None:
    """Make a request of the service and tell what came of it; ends with 1 without a run.

    ``wait``: for a worker that would start it.
    """

    async def act() -> tuple[Requested, str, bool]:
        async with service(data_dir) as opened:
            asked = await request(opened)
            row = await opened.schedule(asked.fire.key)
            if wait and asked.fire.status in _SOON:
                await wait_for_worker(partial(nobody_starts_key, opened, row.key))
            alone, held = await nobody_starts_key(opened, row.key), row.state == "paused"
            if asked.asks and not alone and not held:
                asked = await _looked_at(opened, asked)
            return asked, alone, held

    asked, alone, held = asyncio.run(act())
    if as_json:
        print_json({**fire_json(asked.fire), "new": asked.new})
    else:
        typer.echo(told(asked, alone=bool(alone), held=held))
    if alone and asked.fire.status in _SOON:
        typer.echo(alone, err=True)
    if asked.fire.status in _NO_RUN:
        raise typer.Exit(1)


async def _looked_at(opened: ScheduleService, asked: Requested) -> Requested:
    """Return what a worker's look has made of a request, unless that takes too long."""
    end = monotonic() + _LOOK_TAKES
    while monotonic() < end:
        fire = await opened.fire(asked.fire.workflow_id)
        if fire is not None and fire.status != "queued":
            return replace(asked, fire=fire, asks=False)
        await asyncio.sleep(_EVERY)
    return asked


def told(asked: Requested, *, alone: bool, held: bool = False) -> str:
    """Return what people read.

    Args:
        asked: the request.
        alone: no worker lives, so nothing is promised.
        held: the schedule is paused, so what waits goes on waiting.
    """
    fire = asked.fire
    first = "" if asked.new else "asked for before: "
    soon = _ASKS if asked.asks else _SOON.get(fire.status)
    if held and fire.status == "queued":
        soon = _HELD
    more = ("" if alone else soon) or why(fire)
    return f"{first}{fire.workflow_id} {fire.status}{': ' if more else ''}{more}"
