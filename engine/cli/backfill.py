"""``sched backfill``: gives windows of the past the runs that they never had."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
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
from engine.cli.output import counted, instant, print_json
from engine.runtime.verbs.backfilling import Overlap, Progress

_NAMED = 20
_TENTHS = 10

InLine = Annotated[
    Overlap | None,
    typer.Option(
        "--overlap",
        metavar="POLICY",
        help="allow: all as fast as it goes; queue: one after another."
        "  [default: what comes nearer to the schedule's own]",
        parser=one_of("policy", get_args(Overlap)),
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
    overlap: InLine = None,
    reason: Reason = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Give windows of the past the runs that they never had.

    A window that has, had or may have had a run is left alone. Broken off, it goes on where it
    was when it is run again.
    """
    begin, last = _between(start, end)

    async def act() -> Done:
        done = Done(key)
        async with service(data_dir) as opened:
            asked = opened.backfill(key, begin, last, reason=reason, overlap=overlap)
            with _shown(quiet=as_json) as show:
                async for progress in asked:
                    done.add(progress)
                    show(progress)
        return done

    try:
        done = asyncio.run(act())
    except KeyboardInterrupt:
        typer.echo("broken off; run it again, and it goes on where it was", err=True)
        raise
    if as_json:
        print_json(done.as_json())
    else:
        done.print()


def _between(start: str, end: str) -> tuple[datetime, datetime]:
    begin, last = moment(start, "--from"), moment(end, "--to")
    if begin > last:
        raise typer.BadParameter(
            f"{end!r} is before --from; write the earlier moment there", param_hint="'--to'"
        )
    return begin, last


class Done:
    """What a backfill has come to."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._windows = 0
        self._until: datetime | None = None
        self._started: list[str] = []
        self._left_alone: list[tuple[str, str]] = []

    def add(self, progress: Progress) -> None:
        """Take in one more part."""
        self._windows, self._until = progress.windows, progress.until
        self._started += progress.started
        self._left_alone += progress.left_alone

    def as_json(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        return {
            "key": self._key,
            "windows": self._windows,
            "until": instant(self._until),
            "started": self._started,
            "left_alone": [{"workflow_id": run, "why": why} for run, why in self._left_alone],
        }

    def print(self) -> None:
        """Say what was started, and what was left alone and why."""
        typer.echo(
            f"{self._key}: {counted(self._windows, 'window')}, {len(self._started)} to start,"
            f" {len(self._left_alone)} left alone"
        )
        reasons = Counter(why for _, why in self._left_alone)
        for why, number in reasons.most_common():
            typer.echo(f"left alone, {why}: {counted(number, 'window')}")
        for run, why in self._left_alone[:_NAMED]:
            typer.echo(f"  {run}  {why}")
        if len(self._left_alone) > _NAMED:
            typer.echo(f"  and {len(self._left_alone) - _NAMED} more; --json names them all")


Show = Callable[[Progress], None]


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

    def __call__(self, progress: Progress) -> None:
        tenth = progress.done * _TENTHS // progress.windows
        if progress.done < progress.windows and tenth > self._told:
            self._told = tenth
            typer.echo(
                f"{progress.done} of {progress.windows} windows, up to {instant(progress.until)}",
                err=True,
            )
