"""Command ``sched history export``: histories of runs, for ``assert_replayable``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer

from engine.cli.output import counted, fields
from engine.cli.target import (
    Limit,
    Session,
    Target,
    command,
    keys_in_the_file,
    one_of,
    open_service,
)
from engine.cli.temporal import connected
from engine.runtime.tracking.replay import Exported, export

_DEFAULT_OUT: Final = Path("histories")


commands = typer.Typer(rich_markup_mode=None)


@command(commands)
def history(
    session: Session,
    action: Annotated[  # noqa: ARG001 - there is one as yet, and its parser refuses others
        str,
        typer.Argument(
            metavar="export",
            help="What to do with them; `export` is all there is.",
            parser=one_of("action", ("export",)),
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="KEY|RUN-ID",
            help="A schedule, for its newest runs, or one run.",
            autocompletion=keys_in_the_file,
        ),
    ],
    limit: Limit = 20,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where the files go.")
    ] = _DEFAULT_OUT,
) -> None:
    """Write the histories of runs into files, to be replayed against new code.

    One file for each run, as Temporal's JSON. Inputs and results are in it. Ends with 1 when
    Temporal has none of the runs any more.
    """
    written = asyncio.run(_export(name, limit, out, session.target))
    kept = [each for each in written if each.file is not None]
    session.print(
        [fields(each, "workflow_id run_id file events") for each in written],
        *(f"{each.workflow_id}: {each.file or 'Temporal has forgotten it'}" for each in written),
        f"{counted(len(kept), 'run')} written to {out}" if kept else "nothing written",
    )
    raise typer.Exit(0 if kept else 1)


async def _export(name: str, limit: int, out: Path, of: Target) -> list[Exported]:
    runs: list[tuple[str, str | None]] = [(name, None)]
    if ":" not in name:  # keys have no colon
        async with open_service(of) as opened:
            await opened.schedule(name)  # raises if there is none
            fires = await opened.fires(key=name, limit=limit)
        runs = [(fire.workflow_id, fire.run_id) for fire in fires if fire.run_id]
    return await export(await connected(of), runs, out)
