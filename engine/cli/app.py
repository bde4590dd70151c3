"""The command's frame: its subcommands, its errors, and the way it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import traceback
from typing import Annotated

import typer

from engine import __version__
from engine.cli.commands import Commands
from engine.errors import EngineError, ScheduleFileError, SettingsInvalid

app = typer.Typer(
    name="sched",
    cls=Commands,
    help="Schedules declared in YAML become Temporal workflow starts, each window exactly once.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PIPE_CLOSED = 128 + signal.SIGPIPE
"""When ``head`` has seen enough: what a shell shows of grep and git then, which SIGPIPE ends.

We meet the error instead: Python ignores the signal, and must, or a lost connection to a server
would end us in silence.
"""


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    level = logging.INFO if verbose else logging.CRITICAL
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if version:
        typer.echo(f"sched-engine {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command and end the process.

    ``os._exit`` on purpose: at interpreter exit the Temporal SDK aborts a short-lived process
    in a good part of all runs. Everything has been drained and flushed before.
    """
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or _PIPE_CLOSED
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 good, 1 it found a fault, 2 unusable input."""
    try:
        return _run(arguments)
    except BrokenPipeError:
        return _PIPE_CLOSED


def _run(arguments: list[str]) -> int:
    try:
        app(arguments, prog_name="sched")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # click and rich make a 1 of it
            raise end.__context__ from None
        return end.code if isinstance(end.code, int) else 0
    except EngineError as error:
        for line in _lines(error):
            typer.echo(line, err=True)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        raise
    except Exception:  # noqa: BLE001 - an exit that skips os._exit could abort or hang
        traceback.print_exc()
        return 1
    return 0


def _lines(error: EngineError) -> list[str]:
    if isinstance(error, ScheduleFileError):
        return [str(error)]  # its problems name their places and codes
    problems = error.problems if isinstance(error, SettingsInvalid) else [str(error)]
    return [f"sched: {error.code}: {problem}" for problem in problems]
