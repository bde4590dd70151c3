"""``sched cancel``: ends runs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from engine.cli.environment import service
from engine.cli.options import DEFAULT_DATA_DIR, DataDir, Json, Reason, keys_in_the_file
from engine.cli.output import print_json
from engine.runtime.verbs.stopping import Cancelled


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(cancel)


def cancel(
    name: Annotated[
        str,
        typer.Argument(
            metavar="KEY|RUN-ID",
            help="A schedule, for all its open runs, or one run.",
            autocompletion=keys_in_the_file,
        ),
    ],
    terminate: Annotated[
        bool, typer.Option("--terminate", help="End it at once; it undoes nothing then.")
    ] = False,
    reason: Reason = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Cancel a run, or every open run of a schedule.

    A cancelled run may take its time to undo what it did. What nobody has begun to send is
    skipped. Windows to come are not touched.
    """

    async def act() -> Cancelled:
        async with service(data_dir) as opened:
            return await opened.cancel(name, reason=reason, terminate=terminate)

    done = asyncio.run(act())
    if as_json:
        print_json(asdict(done))
        return
    word = "terminated" if terminate else "cancelled"
    for runs, told in (
        (done.asked, f"is being {word}"),
        (done.skipped, "had not begun to start, and will not"),
        (done.already, f"was to be {word} before"),
    ):
        for run in runs:
            typer.echo(f"{run} {told}")
