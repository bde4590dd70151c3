"""``sched cancel``: ends runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from engine.cli.environment import service
from engine.cli.options import DEFAULT_DATA_DIR, DataDir, Json, Reason, keys_in_the_file
from engine.cli.output import print_json
from engine.runtime.verbs.stopping import Cancelled

_NAMED = 20
"""Runs that are named each; thousands may be open."""


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
    """Cancel a run, every open run of a schedule, or all of one that is in no file.

    A cancelled run may take its time to undo what it did. What nobody has begun to send is
    skipped, and a backfill of the key ends. What a file declares fires on; what an application or
    `sched at` asked for is over for good when its key is cancelled.
    """

    async def act() -> Cancelled:
        async with service(data_dir) as opened:
            return await opened.cancel(name, reason=reason, terminate=terminate)

    done = asyncio.run(act())
    if as_json:
        print_json(asdict(done))
        return
    for line in _told(done, "terminated" if terminate else "cancelled"):
        typer.echo(line)


def _told(done: Cancelled, word: str) -> Iterator[str]:
    """Yield what people read: what became of the schedule, and of its runs."""
    if done.retired:
        yield f"{done.key} is cancelled for good: none of its windows will come"
    if done.was_retired:
        yield f"{done.key} was cancelled before"
    yield from done.backfills
    for runs, told in (
        (done.asked, f"is being {word}"),
        (done.skipped, "had not begun to start, and will not"),
        (done.already, f"was to be {word} before"),
    ):
        yield from (f"{run} {told}" for run in runs[:_NAMED])
        if len(runs) > _NAMED:
            yield f"and {len(runs) - _NAMED} more {told}; --json names them all"
