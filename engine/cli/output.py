"""Output of commands: tables, JSON, times and links."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from engine.page.text import (
    ASKED_LATER,
    as_yaml,
    clock,
    counted,
    fire_lag,
    local,
    relative,
    run_link,
    runs_link,
    shadow_mode,
    shadowed,
    shown_state,
    shown_status,
    took,
    why,
)
from engine.runtime.workflow_workers import missing_worker_at, no_worker_lives
from engine.safe_text import escaped
from engine.schedules import instant_text
from engine.service import Backfill, Binding, Fire, ScheduleRow, ScheduleService, Served
from engine.views import answers, in_camel_case, json_schema, json_text

__all__ = [
    "ASKED_LATER",
    "answers",
    "as_yaml",
    "clock",
    "counted",
    "escaped",
    "fire_lag",
    "in_camel_case",
    "instant_text",
    "json_schema",
    "local",
    "relative",
    "run_link",
    "runs_link",
    "shadow_mode",
    "shadowed",
    "shown_state",
    "shown_status",
    "took",
    "why",
]
"""What commands take from here and the page has too."""

# --- tables and JSON ---
# Tables for people, JSON for programs.

UNANSWERED = "not answered"
"""Status shown for a start whose answer is not known yet."""

_COLOURS = {
    "completed": "green",
    "started": "cyan",
    "claimed": "cyan",
    "starting": "cyan",
    UNANSWERED: "yellow",
    "queued": "cyan",
    "cancelled": "yellow",
    "failed": "red",
    "rejected": "red",
    "unvouched": "red",
    "terminated": "red",
    "timed_out": "red",
    "stuck": "red",
    "active": "green",
    "paused": "yellow",
    "alive": "green",
    "silent": "red",
    "shadow": "yellow",
}

_LEAST_LAST = 12
"""Least width of a truncated last column: a shorter beginning of a sentence is useless."""


class _Console(Console):
    """Console that escapes texts of people, and raises on a closed pipe like ``print``.

    Rich alone would end the process then.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See the base class."""
        for each in super().render(renderable, options):
            yield each if each.control else each._replace(text=escaped(each.text))

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, wraps: bool = False) -> Console:
    """Return a console with colours on a terminal or with ``FORCE_COLOR``.

    Long lines are not wrapped unless ``wraps``, so that they can be copied whole. ``NO_COLOR``
    turns all styles off; rich by itself would still print bold and dim.
    """
    plain = bool(os.environ.get("NO_COLOR"))
    return _Console(
        highlight=False,
        soft_wrap=not wraps,
        markup=False,
        emoji=False,
        color_system=None if plain else "auto",
    )


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document, records by their views; without ``indent`` on one line."""
    sys.stdout.write(json_text(value, indent=indent) + "\n")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal whether to go on.

    Raises:
        typer.BadParameter: there is no terminal.
        typer.Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask on; write --yes", param_hint="--yes")
    typer.confirm(question, abort=True, err=True)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    optional: Sequence[str] = (),
    spare: Sequence[str] = (),
    whole: bool = False,
) -> None:
    """Print a table without folding cells, so that times and ids can be copied.

    ``optional`` columns are left out if all of their cells are empty. On a narrower terminal the
    ``spare`` columns are dropped in order, then lines are truncated; ``whole`` prevents both. A
    pipe gets everything. On a terminal statuses are coloured.
    """
    out = console()
    room = out.width if sys.stdout.isatty() and not whole else None
    lines = table_lines(columns, rows, optional=optional, spare=spare, room=room)
    for number, line in enumerate(lines):
        out.print(line, style="" if number else "bold")


def table_lines(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    optional: Sequence[str] = (),
    spare: Sequence[str] = (),
    room: int | None,
) -> list[Text]:
    """Return the lines of `print_table` for a terminal of this width; None is any width."""
    table = [[_cell(each) for each in row] for row in rows]
    shown = {heading: (heading, *cells) for heading, *cells in zip(columns, *table, strict=True)}
    shown = {name: shown[name] for name in shown if name not in optional or any(shown[name][1:])}
    for name in spare:
        if room is not None and _least(shown) > room:
            shown.pop(name, None)
    widths = [max(map(cell_len, column)) for column in shown.values()]
    lines = [_line(cells, widths) for cells in zip(*shown.values(), strict=True)]
    if room is not None:
        for line in lines:
            line.truncate(room, overflow="ellipsis")
    return lines


def _cell(value: object) -> str:
    return "" if value is None else escaped(str(value), one_line=True)


def _least(shown: Mapping[str, Sequence[str]]) -> int:
    """Return the width of the columns with the last one truncated."""
    *widths, last = (max(map(cell_len, column)) for column in shown.values())
    return sum(widths) + 2 * len(widths) + min(last, _LEAST_LAST)


def _line(cells: Sequence[str], widths: Sequence[int]) -> Text:
    line = Text("  ").join(
        Text(cell + " " * (width - cell_len(cell)), style=colour_of(cell))
        for cell, width in zip(cells, widths, strict=True)
    )
    line.rstrip()
    return line


def colour_of(status: str) -> str:
    """Return the colour of a status or state; empty for any other word."""
    return _COLOURS.get(status, "")


EFFORT = ("TOOK", "TRIES", "RETRIES")
OUTCOME = ("STATUS", "TIMING", "LAG", *EFFORT)
"""Columns of `outcome`; the last ones tell how long a run took, and how often it was tried."""


def outcome(fire: Fire) -> tuple[object, ...]:
    """Return what became of a fire as cells; tries and retries only if there were any."""
    tries = fire.tries if fire.tries != 1 else None
    effort = took(fire.duration_ms), tries, fire.step_retries or None
    # Its window had opened before anybody knew of it: a lag of 59 s beside "on_time" is no fault.
    timing = "first sight" if fire.reason_code == "first_sight" else fire.timing
    return shown_status(fire), timing, fire_lag(fire), *effort


def effort_text(tries: int | None, step_retries: int | None) -> str:
    """Return ``3 tries, 2 step retries``, without what is unknown or happened once."""
    parts = [
        f"{tries} tries" if tries and tries > 1 else "",
        f"{step_retries} step {'retry' if step_retries == 1 else 'retries'}"
        if step_retries
        else "",
    ]
    return ", ".join(filter(None, parts))


def is_to_be_laid(fire: Fire, laying: Iterable[Backfill]) -> bool:
    """Return whether a backfill may still start windows of this row."""
    return any(
        each.key == fire.key and each.is_pending(fire.cause, fire.fire_time, fire.last_fire_time)
        for each in laying
    )


# --- schedules without a worker ---
# Warnings about schedules without a live worker, before a window is due, and waiting for a worker.

WaitForWorker = Annotated[
    bool, typer.Option("--wait-for-worker", help="Wait until a live worker can start it.")
]
_EVERY = 0.5
"""Seconds between two polls for a worker."""


def without_worker(rows: Iterable[ScheduleRow], served: Served) -> str:
    """Return a warning about schedules without a live worker; empty if there are none.

    Args:
        rows: the schedules; those that no longer fire or have a problem of their own are ignored.
        served: the announcements of live workers.
    """
    fires = (row for row in rows if row.state == "active" and row.next_fire_at is not None)
    return any_without_worker((row for row in fires if not row.problem), served)


def binding_text(each: Binding) -> str:
    """Return what a Temporal namespace is to the ledger."""
    if each.current:
        return f"{each.place}: windows start here since {instant_text(each.bound_at)}"
    if each.closed_at is not None:
        return f"{each.place}: closed at {instant_text(each.closed_at)}"
    return f"{each.place}: {counted(each.open, 'fire')} still open"


def any_without_worker(rows: Iterable[ScheduleRow], served: Served) -> str:
    """Return a warning about those of these schedules, in any state, without a live worker."""
    places = Counter[str]()
    for row in rows:
        if row.schedule is not None and not row.of_starts:
            workflow = row.workflow_type or row.workflow
            if place := missing_worker_at(row.project, row.schedule.lane, workflow, served):
                places[place] += 1
    return no_worker_lives(places)


async def key_without_worker(opened: ScheduleService, key: str) -> str:
    """Return a warning if this schedule has no live worker; see ``any_without_worker``."""
    return any_without_worker([await opened.schedule(key)], await opened.served())


async def project_without_worker(
    opened: ScheduleService, project: str, *, unknown: bool = False
) -> str:
    """Return a warning about schedules of a project without a live worker.

    The ledger counts them, so that any number is cheap. ``unknown`` includes schedules whose
    workflow no worker has ever announced.
    """
    places, served = Counter[str](), await opened.served()
    for each in await opened.wanted(project):
        workflow = each.workflow_type or (each.workflow if unknown else None)
        if workflow and (place := missing_worker_at(project, each.lane, workflow, served)):
            places[place] += each.schedules
    return no_worker_lives(places)


async def wait_for_worker(look: Callable[[], Awaitable[str]]) -> None:
    """Poll until ``look`` returns no warning about a missing worker; print each new one."""
    shown = ""
    while text := await look():
        if text != shown:
            more = "still waiting" if shown else "waiting for it; Ctrl-C ends the wait alone"
            typer.echo(f"{text}\n{more}", err=True)
        shown = text
        await asyncio.sleep(_EVERY)
    if shown:
        typer.echo("a worker lives that starts it", err=True)
