"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from engine.ledger.backfill_records import Backfill
from engine.ledger.fire_records import Fire
from engine.ledger.schedule_records import Pause, ScheduleRow

UNANSWERED = "not answered"
"""What people read of a start whose answer is not known yet."""

ASKED_LATER = frozenset({"backfill", "rerun", "handler"})
"""Timings of runs that began long after their windows: how late they are tells nothing."""

_COLOURS = {
    "completed": "green", "started": "cyan", "claimed": "cyan", "starting": "cyan",
    UNANSWERED: "yellow", "queued": "cyan", "cancelled": "yellow",
    "failed": "red", "rejected": "red", "unvouched": "red", "terminated": "red",
    "timed_out": "red", "active": "green", "paused": "yellow",
}  # fmt: skip

_LEAST_LAST = 12
"""Columns below which the beginning of a sentence tells nothing."""


def instant(moment: datetime | None) -> str | None:
    """Return ISO 8601 with ``Z``, to the millisecond where it has one."""
    if moment is None:
        return None
    precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


class _Console(Console):
    """Says that a pipe is closed as every ``print`` does; rich alone would end the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, wraps: bool = False) -> Console:
    """Return where text goes: coloured on a terminal, and by ``FORCE_COLOR``.

    Long lines are left to the terminal unless ``wraps``, so that they can be copied whole.

    ``NO_COLOR`` switches all of it off; rich by itself would still print bold and dim.
    """
    plain = bool(os.environ.get("NO_COLOR"))
    return _Console(
        highlight=False, soft_wrap=not wraps, markup=False, emoji=False,
        color_system=None if plain else "auto",
    )  # fmt: skip


def print_json(value: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    spare: Sequence[str] = (),
    whole: bool = False,
) -> None:
    """Print columns as wide as they need: a time or an id that is folded cannot be copied.

    On a terminal that is narrower a line stays one line: the ``spare`` columns go, the first
    named first, then the end of each line; unless all of it must stay ``whole``. A pipe gets
    everything. Words that say how a thing fares have a colour on a terminal.
    """
    table = [["" if cell is None else str(cell) for cell in row] for row in rows]
    shown = {heading: (heading, *cells) for heading, *cells in zip(columns, *table, strict=True)}
    out = console()
    room = out.width if sys.stdout.isatty() and not whole else None
    for name in spare:
        if room is not None and _least(shown) > room:
            shown.pop(name, None)
    widths = [max(map(cell_len, column)) for column in shown.values()]
    for number, cells in enumerate(zip(*shown.values(), strict=True)):
        line = _line(cells, widths)
        if room is not None:
            line.truncate(room, overflow="ellipsis")
        out.print(line, style="" if number else "bold")


def _least(shown: Mapping[str, Sequence[str]]) -> int:
    """Return how wide the columns are when the last one is cut."""
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
    """Return the colour of a word that says how a thing fares; empty for any other."""
    return _COLOURS.get(status, "")


def counted(number: int, noun: str) -> str:
    """Return ``1 window``, ``2 windows``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def problem_of(row: ScheduleRow) -> str | None:
    """Return why the schedule does not fire as declared, if so."""
    if row.error is None and row.workflow_type is None and row.state == "active":
        return f"no worker has announced {row.workflow} yet"
    return row.error


def schedule_json(row: ScheduleRow) -> dict[str, object]:
    """Return one schedule as ``sched list --json`` shows it."""
    schedule = row.schedule
    return {
        "key": row.key,
        "project": row.project,
        "workflow": row.workflow,
        "kind": schedule.kind if schedule else None,
        "spec": schedule.when if schedule else None,
        "timezone": schedule.timezone if schedule else None,
        "state": row.state,
        "next_fire_at": instant(row.next_start_at),
        "last_fire_at": instant(row.last_fire_at),
        "last_status": row.last_status,
        "workflow_type": row.workflow_type,
        "origin": row.origin,
        "error": problem_of(row),
    }


def pause_json(pause: Pause | None) -> dict[str, object] | None:
    """Return a pause: since when, why, by whom and until when."""
    if pause is None:
        return None
    return {
        "at": instant(pause.at),
        "reason": pause.reason,
        "by": pause.by,
        "until": instant(pause.until),
    }


def paused_until(pause: Pause) -> str:
    """Return how long a pause lasts, in words that follow "is paused"."""
    return f"until {instant(pause.until)}" if pause.until else "until it is resumed"


def why(fire: Fire) -> str:
    """Return what there is to say of a fire, its error first, and of how many windows."""
    several = f"{fire.windows} windows up to {instant(fire.last_fire_time)}: "
    return (several if fire.windows > 1 else "") + "; ".join(
        filter(None, (fire.error, fire.reason))
    )


def fire_lag(fire: Fire) -> str | None:
    """Return how late its run was, in seconds; nothing where it was asked for long after."""
    asked_for = fire.timing in ASKED_LATER
    return None if fire.lag_ms is None or asked_for else f"{fire.lag_ms / 1000:.3f} s"


def backfill_json(of: Backfill) -> dict[str, object]:
    """Return a backfill as ``sched show --json`` shows it."""
    return {
        "id": of.id,
        "key": of.key,
        "state": of.state,
        "ended_reason": of.ended_reason,
        "from": instant(of.first),
        "to": instant(of.last),
        "cursor": instant(of.cursor),
        "overlap": of.overlap,
        "include": list(of.include),
        "windows": of.windows,
        "done": of.done,
        "laid": of.laid,
        "left_alone": dict(of.left_alone),
        "requested_by": of.requested_by,
        "requested_at": instant(of.requested_at),
        "ended_at": instant(of.ended_at),
        "reason": of.reason,
        "error": of.error,
    }


def is_to_be_laid(fire: Fire, laying: Iterable[Backfill]) -> bool:
    """Whether a backfill may still start windows of this row."""
    return any(
        each.key == fire.key and each.is_pending(fire.cause, fire.fire_time, fire.last_fire_time)
        for each in laying
    )


def fire_json(fire: Fire, laying: Iterable[Backfill] = ()) -> dict[str, object]:
    """Return one fire as ``sched fires --json`` shows it; ``laying``: see `is_to_be_laid`."""
    return {
        "key": fire.key,
        "series": fire.series,
        "bucket": fire.bucket,
        "fire_time": instant(fire.fire_time),
        "windows": fire.windows,
        "last_fire_time": instant(fire.last_fire_time),
        "workflow_id": fire.workflow_id,
        "run_id": fire.run_id,
        "status": fire.status,
        "reason": fire.reason,
        "reason_code": fire.reason_code,
        "timing": fire.timing,
        "started_at": instant(fire.started_at),
        "closed_at": instant(fire.closed_at),
        "lag_ms": fire.lag_ms,
        "error": fire.error,
        "replica": fire.replica,
        "definition_version": fire.definition_version,
        "backfill_pending": is_to_be_laid(fire, laying),
    }
