"""``sched backfill``: asks for runs of windows of the past that never had one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)

from engine.cli.environment import service
from engine.cli.moments import moment
from engine.cli.options import DEFAULT_DATA_DIR, DataDir, Json, Key, Reason, one_of
from engine.cli.output import backfill_json, counted, instant, print_json
from engine.ledger.backfill_records import Backfill, InLine
from engine.ledger.fire_records import Fire
from engine.runtime.verbs.backfilling import BackfillRequested
from engine.service import ScheduleService

_TENTHS = 10
_EVERY = 0.5
"""Seconds between two looks at how far it is."""

Overlap = Annotated[
    InLine | None,
    typer.Option(
        "--overlap",
        metavar="POLICY",
        help="allow: all as fast as it goes; queue: one after another."
        "  [default: what comes nearer to the schedule's own]",
        parser=one_of("policy", get_args(InLine)),
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(backfill)


def backfill(
    key: Key,
    start: Annotated[
        str, typer.Option("--from", metavar="ISO", help="The first moment; a date in UTC.")
    ],
    end: Annotated[
        str, typer.Option("--to", metavar="ISO", help="The last moment, which has passed.")
    ],
    overlap: Overlap = None,
    reason: Reason = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Show how far it is until all of it is laid.")
    ] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Give windows of the past the runs that they never had.

    A window that has, had or may have had a run is left alone. Workers lay the windows, behind all
    that is due; `sched show KEY` says how far they are, and `sched cancel KEY` ends it.
    """
    begin, last = _between(start, end)

    async def act() -> tuple[BackfillRequested, Backfill, list[Fire]]:
        async with service(data_dir) as opened:
            asked = await opened.backfill(key, begin, last, reason=reason, overlap=overlap)
            if not as_json:
                for line in said(asked):
                    typer.echo(line)
            if not wait:
                return asked, asked.backfill, []
            with _shown(quiet=as_json) as show:
                done = await _followed(opened, asked.backfill, show)
            return asked, done, await opened.laid(done)

    try:
        asked, done, fires = asyncio.run(act())
    except KeyboardInterrupt:
        if wait:
            typer.echo("it goes on; `sched show` says how far it is", err=True)
        raise
    if as_json:
        print_json(as_document(asked, done, fires))
    elif wait:
        typer.echo(ended(done))
    if done.state == "ended":
        raise typer.Exit(1)


def _between(start: str, end: str) -> tuple[datetime, datetime]:
    begin, last = moment(start, "--from"), moment(end, "--to")
    if begin > last:
        raise typer.BadParameter(
            f"{end!r} is before --from; write the earlier moment there", param_hint="'--to'"
        )
    return begin, last


async def _followed(
    opened: ScheduleService, asked: Backfill, show: Callable[[Backfill], None]
) -> Backfill:
    """Show how far a backfill is until it goes no further."""
    while True:
        found = await opened.backfills(asked.key)
        (now,) = [each for each in found if each.id == asked.id]
        show(now)
        if now.state != "laying":
            return now
        await asyncio.sleep(_EVERY)


def said(asked: BackfillRequested) -> Iterator[str]:
    """Yield what people read of a request."""
    of = asked.backfill
    alone = sum(asked.left_alone.values())
    yield (
        f"{of.key}: {counted(of.windows, 'window')}, {asked.would_start} to start,"
        f" {alone} left alone"
    )
    for why, number in sorted(asked.left_alone.items(), key=lambda each: -each[1]):
        yield f"left alone, {why}: {counted(number, 'window')}"
    if asked.cost:
        yield asked.cost
    yield f"workers lay them; `sched show {of.key}` says how far they are"


def ended(done: Backfill) -> str:
    """Say what a backfill has come to."""
    alone = sum(done.left_alone.values())
    line = f"{done.key}: {done.laid} laid, {alone} left alone"
    if done.state == "ended":
        line += f", {done.windows - done.done} not laid: {done.ended_reason}"
    return line


def as_document(
    asked: BackfillRequested, done: Backfill, fires: Sequence[Fire]
) -> dict[str, object]:
    """Return what ``--json`` prints; ``started`` is what was laid, if it was waited for."""
    alone = done.left_alone if done.state != "laying" else asked.left_alone
    return {
        **backfill_json(done),
        "windows": done.windows,
        "until": instant(done.last),
        "started": [fire.workflow_id for fire in fires],
        "left_alone": [
            {"workflow_id": None, "why": why, "windows": number} for why, number in alone.items()
        ],
        "counts": {"would_start": asked.would_start, "left_alone": dict(asked.left_alone)},
        "cost": asked.cost,
    }


Show = Callable[[Backfill], None]


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Show]:
    """Yield what shows how far it is: a bar on a terminal, otherwise a line for each tenth."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("backfill", total=None)
            yield lambda each: bar.update(task, total=each.windows, completed=each.done)
    else:
        yield _Lines()


def _bar() -> Bar:
    return Bar(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip


class _Lines:
    """Tells each tenth of a long backfill once."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, now: Backfill) -> None:
        tenth = now.done * _TENTHS // now.windows
        if now.done < now.windows and tenth > self._told:
            self._told = tenth
            typer.echo(
                f"{now.done} of {now.windows} windows, up to {instant(now.cursor)}", err=True
            )
