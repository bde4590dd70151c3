"""Options and arguments shared by commands."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from engine.schedules.policies import Overlap
from engine.schedules.timing.zones import zone
from engine.schedules.units import EARLIEST, FIRST_YEAR, HORIZON, LAST_YEAR, from_seconds

# --- options ---
# Options and arguments shared by several commands, so that each has one name and one help text.

DEFAULT_DATA_DIR = Path(".sched")
DEFAULT_FILE = Path("schedules.yaml")

_MOST = 1_000_000
_LAST_PORT = 65_535
_LONG = 10
"""A number with this many digits is too large for any option here."""

_KEY = re.compile(r"(?:^|[\s{,-])key:\s*[\"']?([a-z0-9][a-z0-9._-]*)", re.MULTILINE)


def keys_in_the_file(context: typer.Context) -> list[str]:
    """Return the keys of the schedule file, for shell completion.

    Only the text is searched: this must be fast, and also work while the file is broken.
    """
    named = context.params.get("schedules") or os.environ.get("SCHED_SCHEDULES") or DEFAULT_FILE
    try:
        text = Path(named).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return []
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return sorted(set(_KEY.findall(code)))


def whole_number(text: str | int) -> int:
    """Parse a number of items to show, from typed text or a default.

    Raises:
        typer.BadParameter: it is not a whole number from 1 to 1,000,000.
    """
    number = _number(text)
    if not 1 <= number <= _MOST:
        raise typer.BadParameter(f"{text!r} is no whole number from 1 to {_MOST}; write one, as 20")
    return number


def port_number(text: str | int) -> int:
    """Parse a port, from typed text or a default; 0 is any free port.

    Raises:
        typer.BadParameter: it is not a port number.
    """
    number = _number(text)
    if not 0 <= number <= _LAST_PORT:
        raise typer.BadParameter(
            f"{text!r} is no port; write a whole number up to {_LAST_PORT}, or 0 for any free one"
        )
    return number


def _number(text: str | int) -> int:
    """Parse a whole number; return -1 if it is not one."""
    digits = str(text)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < _LONG else -1


def one_of(noun: str, words: Sequence[str]) -> Callable[[str], str]:
    """Return a parser that accepts one of these words; ``noun`` describes them in its errors.

    The error for a misspelt word suggests the closest one.
    """

    def read(text: str) -> str:
        if text in words:
            return text
        near = get_close_matches(text.lower(), words, n=1)
        cure = f"did you mean {near[0]}?" if near else f"write one of {', '.join(words)}"
        raise typer.BadParameter(f"{text!r} is no {noun}; {cure}")

    return read


TakeFrom = Annotated[
    str | None,
    typer.Option(
        "--take-from",
        metavar="PROJECT",
        help="What this project was called: its keys that the file has come along.",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        help="Where `sched up` keeps its servers.",
        envvar="SCHED_DATA_DIR",
    ),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schedule file.", envvar="SCHED_SCHEDULES")
]
Schedules = Annotated[
    Path,
    typer.Option(
        "--schedules", metavar="FILE", help="The schedule file.", envvar="SCHED_SCHEDULES"
    ),
]
SameFile = Annotated[
    Path | None,
    typer.Option("--schedules", metavar="FILE", help="The same as FILE.", show_default=False),
]
TaskQueue = Annotated[
    str,
    typer.Option(
        "--task-queue",
        metavar="NAME",
        help="What this worker listens on.",
        envvar="SCHED_TASK_QUEUE",
    ),
]
CodeToo = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="PACKAGE",
        help="A package of the workflows that the file names; may be repeated.",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="PACKAGE",
        # Not as `envvar`: typer would split it at spaces.
        help="A package of workflows or steps; may be repeated."
        "  [env var: SCHED_IMPORTS, comma separated; default: workflows,activities]",
    ),
]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="The schedule's key.", autocompletion=keys_in_the_file)
]
AnyKey = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="Only this schedule's.", autocompletion=keys_in_the_file),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Why; `sched log` shows it.", show_default=False),
]
At = Annotated[
    str,
    typer.Option("--at", metavar="ISO", help="When the window opens, as `sched next` shows it."),
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input", metavar="JSON", help="The argument of this run alone.", show_default=False
    ),
]
AsOverlap = Annotated[
    Overlap | None,
    typer.Option(
        "--overlap",
        metavar="POLICY",
        help=f"What to keep to, this once: {', '.join(get_args(Overlap))}."
        "  [default: the schedule's own]",
        parser=one_of("policy", get_args(Overlap)),
        show_default=False,
    ),
]
Limit = Annotated[
    int,
    typer.Option("--limit", "-n", metavar="N", help="At most so many.", parser=whole_number),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def one_file(context: typer.Context, path: Path, same: Path | None) -> Path:
    """Return the file that a command's FILE or ``--schedules`` names.

    Raises:
        typer.BadParameter: the command line names two different files.
    """
    if same is None:
        return path
    source = context.get_parameter_source("path")
    if source is not None and source.name == "COMMANDLINE" and same != path:
        raise typer.BadParameter(f"{path} and --schedules {same}: name one file")
    return same


# --- JSON arguments ---

_NOT_KEPT = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped U+0000 in JSON text, which the database cannot store."""


def parse_json_input(text: str | None) -> tuple[Any, ...]:
    """Parse the argument of ``--input`` into a tuple; without it return an empty one.

    Raises:
        typer.BadParameter: it is not JSON that a run can get as input.
    """
    if text is None:
        return ()
    try:
        value = json.loads(text, parse_constant=_refuse)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        written.encode()
    except (ValueError, RecursionError):
        raise typer.BadParameter(
            f'{text[:80]!r} is no JSON; write for example \'{{"format": "pdf"}}\'',
            param_hint="'--input'",
        ) from None
    if _NOT_KEPT.search(written):
        raise typer.BadParameter("no database keeps the character U+0000", param_hint="'--input'")
    return (value,)


def _refuse(_: str) -> NoReturn:
    raise ValueError


# --- instants ---
# The parser of all instants on the command line, with an error message for each mistake.

_FIRST, _END = from_seconds(EARLIEST), from_seconds(HORIZON)


def moment(text: str, option: str, *, timezone: str | None = None) -> datetime:
    """Parse the instant given to ``option`` and return it in UTC.

    A date without a time is its midnight. Without an offset the value is local to ``timezone``; if
    the clock repeats that time, the first occurrence counts. Without ``timezone`` a date is in UTC.

    Raises:
        typer.BadParameter: it is no ISO 8601 date or time, a time has neither an offset nor
            ``timezone``, or it is before 1970 or after 2100, where nothing fires.
        TimezoneInvalid: ``timezone`` is not a time zone.
    """
    hint = f"'{option}'"
    try:
        read = _midnight(text, timezone or "UTC") if is_date(text) else datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no moment; write 2026-11-22T02:00:00Z, or a date as 2026-11-22",
            param_hint=hint,
        ) from None
    if read.tzinfo is None and timezone is not None:
        read = read.replace(tzinfo=zone(timezone).tzinfo)
    if read.tzinfo is None:
        raise typer.BadParameter(
            f"{text!r} has no offset; append Z for UTC, or an offset as -03:00", param_hint=hint
        )
    if not _FIRST <= read <= _END:
        raise typer.BadParameter(
            f"{text!r} is outside of the time in which anything fires; write a moment of the"
            f" years {FIRST_YEAR} to {LAST_YEAR}",
            param_hint=hint,
        )
    return read.astimezone(UTC)


def is_date(text: str) -> bool:
    """Return whether the text is a date without a time."""
    with contextlib.suppress(ValueError):
        date.fromisoformat(text)
        return True
    return False


def _midnight(text: str, timezone: str) -> datetime:
    return datetime.combine(date.fromisoformat(text), time(), zone(timezone).tzinfo)
