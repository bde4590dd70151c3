"""The command's frame: its subcommands, its errors, and the way it ends."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import Annotated

import typer

from engine import __version__
from engine.cli import fires, init, listing, preview, schema, show, simulate, up, worker, writing
from engine.cli.help import Commands, dress
from engine.errors import EngineError, ScheduleFileError

app = typer.Typer(
    name="sched",
    cls=Commands,
    help="Schedules declared in YAML become Temporal workflow starts, each window exactly once.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (init, up, worker, listing, show, preview, fires, writing, schema, simulate):
    module.register(app)
dress(app)


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
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 good, 1 it found a fault, 2 unusable input."""
    try:
        app(arguments, prog_name="sched")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except ScheduleFileError as error:
        typer.echo(str(error), err=True)
        return 2
    except EngineError as error:
        typer.echo(f"sched: {error.code}: {error}", err=True)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing is left to flush it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception:  # noqa: BLE001 - an exit that skips os._exit could abort or hang
        traceback.print_exc()
        return 1
    return 0
