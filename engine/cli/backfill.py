"""Command ``sched backfill``: request runs for past windows that never had one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, cast, get_args

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress as Bar,
    TextColumn,
    TimeRemainingColumn,
)

from engine.cli.output import answers, confirm, counted, instant_text, print_json, print_table
from engine.cli.target import Key, Reason, Session, command, moment, one_of
from engine.service import (
    INCLUDED,
    UNDECLARED,
    Backfill,
    BackfillOverlap,
    BackfillRequested,
    Considered,
    Fire,
    Included,
    ScheduleService,
    require_in_order,
)

_TENTHS = 10
_EVERY = 0.5
"""Seconds between two polls of the progress."""

Overlap = Annotated[
    BackfillOverlap | None,
    typer.Option(
        "--overlap",
        metavar="POLICY",
        help="allow: all as fast as possible; queue: one after another."
        "  [default: the one that is closer to the schedule's own]",
        parser=one_of("policy", get_args(BackfillOverlap)),
    ),
]

Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="CAUSE",
        help=f"Also start windows with this cause: {', '.join(INCLUDED)}. May be repeated.",
        parser=one_of("cause", INCLUDED),
    ),
]


_PACES: dict[BackfillOverlap, str] = {
    "allow": "they start as fast as workers take them; `--overlap queue` starts one after another",
    "queue": "they start one after another; `--overlap allow` starts them as fast as possible",
}
"""What the overlap of a backfill means for its own runs."""

commands = typer.Typer(rich_markup_mode=None)


@command(commands)
def backfill(
    session: Session,
    key: Key,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The first moment; a date in UTC, or -2h.")
    ],
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="The last moment; now at the latest.")
    ],
    *,
    overlap: Overlap = None,
    include: Include = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal it is required.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="List what would start and what would not, and change nothing."
        ),
    ] = False,
    reason: Reason = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until every window is laid, and show the progress.")
    ] = False,
) -> None:
    """Start runs for past windows that had none.

    A window that has, had or may have had a run is not started again. Neither is one that an
    operator skipped, that the schedule excludes, that its dependencies prevented, or whose data a
    later run has processed, unless --include names that cause. The command first prints how many
    would start, and asks; --dry-run lists them. Workers start the windows after everything that is
    due. `sched show KEY` shows the progress, and `sched cancel KEY` ends the backfill.
    """
    begin, last = moment(start, "--from", bare="ago"), moment(end, "--to", bare="ago")
    require_in_order(begin, last)
    besides = cast("tuple[Included, ...]", tuple(include or ()))

    async def preview(opened: ScheduleService) -> tuple[BackfillRequested, list[_WindowSpan]]:
        seen = await opened.preview_backfill(key, begin, last, overlap=overlap, include=besides)
        if not dry_run:
            return seen, []
        return seen, [each async for each in _merged(opened.windows_of(seen.backfill))]

    async def act(opened: ScheduleService) -> Backfill:
        asked = await opened.backfill(
            key, begin, last, reason=reason, overlap=overlap, include=besides
        )
        return await _report(session, opened, asked, wait=wait)

    seen, spans = session.ask(preview)
    asks = bool(seen.would_start) and not (yes or dry_run)
    if asks or not session.as_json:
        typer.echo("\n".join(describe_preview(seen)), err=session.as_json)
    if dry_run:
        _print_spans(session, seen, spans)
        return
    if asks:
        confirm(f"start {counted(seen.would_start, 'run')} of {key}?", yes=yes)
    try:
        done = session.ask(act)
    except KeyboardInterrupt:
        if wait:
            typer.echo("it continues; `sched show` reports its progress", err=True)
        raise
    if done.state == "ended":
        raise typer.Exit(1)


async def _report(
    session: Session, opened: ScheduleService, asked: BackfillRequested, *, wait: bool
) -> Backfill:
    """Report a requested backfill; with ``wait`` follow it to its end and report the result."""
    done, fires = asked.backfill, list[Fire]()
    if not session.as_json:
        later = f"workers lay them; `sched show {done.key}` says how far they are"
        typer.echo(later if asked.would_start else "nothing is left to start")
    if wait:
        with _shown(quiet=session.as_json) as show:
            done = await _followed(opened, done, show)
        fires = await opened.laid(done)
    started = [fire.workflow_id for fire in fires]
    document = answers.BACKFILL_FOLLOWED(replace(asked, backfill=done), started=started)
    session.print(document, [describe_end(done)] if wait else [])
    return done


async def _followed(
    opened: ScheduleService, asked: Backfill, show: Callable[[Backfill], None]
) -> Backfill:
    """Show the progress of a backfill until it is done or has ended."""
    while True:
        found = await opened.backfills(asked.key)
        (now,) = [each for each in found if each.id == asked.id]
        show(now)
        if now.state != "laying":
            return now
        await asyncio.sleep(_EVERY)


def describe_preview(seen: BackfillRequested) -> Iterator[str]:
    """Yield the text output for a previewed backfill."""
    of = seen.backfill
    alone = sum(seen.left_alone.values())
    span = instant_text(of.first)
    if of.last != of.first:
        span = f"from {span} to {instant_text(of.last)}"
    yield (
        f"{of.key}: {counted(of.windows, 'window')} {span}: {seen.would_start} to start,"
        f" {alone} left alone"
    )
    for why, number in sorted(seen.starts.items(), key=lambda each: -each[1]):
        before = ", from before the schedule was declared" if why == UNDECLARED else ""
        yield f"to start, {why}: {counted(number, 'window')}{before}"
    if seen.would_start > 1:
        yield _PACES[of.overlap]
    for why, number in sorted(seen.left_alone.items(), key=lambda each: -each[1]):
        hint = f"; `--include {why}` starts {'it' if number == 1 else 'them'}"
        yield f"left alone, {why}: {counted(number, 'window')}{hint if why in INCLUDED else ''}"
    if seen.cost:
        yield seen.cost


@dataclass(slots=True)
class _WindowSpan:
    """Consecutive windows with the same decision for the same cause."""

    first: datetime
    last: datetime
    windows: int
    starts: bool
    why: str


async def _merged(windows: AsyncIterator[Considered]) -> AsyncIterator[_WindowSpan]:
    span: _WindowSpan | None = None
    async for each in windows:
        if span is not None and (span.starts, span.why) == (each.starts, each.why):
            span.last, span.windows = each.at, span.windows + 1
            continue
        if span is not None:
            yield span
        span = _WindowSpan(each.at, each.at, 1, each.starts, each.why)
    if span is not None:
        yield span


def _print_spans(session: Session, seen: BackfillRequested, spans: Sequence[_WindowSpan]) -> None:
    if session.as_json:
        shown = [
            answers.WINDOW_SPAN(each, **{"from": each.first, "to": each.last}) for each in spans
        ]
        print_json(answers.BACKFILL_PREVIEW(seen, spans=shown))
        return
    print_table(
        ("FIRST", "LAST", "WINDOWS", "STARTS", "WHY"),
        (
            (
                instant_text(each.first),
                instant_text(each.last),
                each.windows,
                "yes" if each.starts else "no",
                each.why,
            )
            for each in spans
        ),
    )
    typer.echo("nothing was asked for: without --dry-run it is")


def describe_end(done: Backfill) -> str:
    """Return a sentence with the result of a backfill."""
    alone = sum(done.left_alone.values())
    line = f"{done.key}: {done.laid} laid, {alone} left alone"
    if done.state == "ended":
        line += f", {done.windows - done.done} not laid: {done.ended_reason}"
    return line


Show = Callable[[Backfill], None]


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Show]:
    """Yield a progress printer: a bar on a terminal, otherwise a line for each tenth."""
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
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


class _Lines:
    """Printer of a long backfill's progress, one line for each tenth."""

    def __init__(self) -> None:
        self._printed = 0

    def __call__(self, now: Backfill) -> None:
        tenth = now.done * _TENTHS // now.windows
        if now.done < now.windows and tenth > self._printed:
            self._printed = tenth
            typer.echo(
                f"{now.done} of {now.windows} windows, up to {instant_text(now.cursor)}", err=True
            )
