"""Command ``sched init``: write a small project that runs at once."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from engine.schedules.loader.json_schema import json_schema_text

FILES = (
    "schedules.yaml",
    "workflows/__init__.py",
    "workflows/hello.py",
    "activities/__init__.py",
    "activities/greetings.py",
    "test_hello.py",
)
"""Files to write, by path in the project and below ``templates``."""

SCHEMA = "schedules.schema.json"
"""Generated schema; the first line of ``schedules.yaml`` points editors to it."""

_IGNORED = (".sched/", ".venv/", "__pycache__/")


commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The folder; it is created if it does not exist."),
    ] = Path(),
) -> None:
    """Create a small project that is ready to run.

    The project has a schedules.yaml with its schema for editors, a workflow, a step and a test.
    Existing files are not overwritten.
    """
    for path in write_project(folder):
        typer.echo(f"  {path}")
    go = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    sched = as_called(sys.argv[0], folder)
    commands = [*go, f"{sched} check", f"{sched} up"]
    commands.append(f"{sched} show hello    # in a second terminal")
    typer.echo("\nNext:\n" + "\n".join(f"  {command}" for command in commands))


def as_called(called: str, folder: Path) -> str:
    """Return how to type the command, called as ``called``, from within ``folder``.

    A command on the PATH needs no path; one in a virtual environment that is not active does.
    """
    path, found = Path(called), shutil.which("sched")
    if path.name != "sched" or not path.exists() or (found and path.samefile(found)):
        return "sched"
    return shlex.quote(called if path.is_absolute() else os.path.relpath(path, folder))


def write_project(folder: Path) -> list[Path]:
    """Write the project's files and return their paths.

    Raises:
        typer.BadParameter: one of the names exists already, and nothing was written; or the
            folder cannot be written to.
    """
    names = dict.fromkeys(name.partition("/")[0] for name in (*FILES, SCHEMA))
    taken = [name for name in names if (folder / name).exists()]
    if taken:
        raise _refused(f"{folder} already has {', '.join(taken)}; nothing was written")
    templates = resources.files("engine.cli").joinpath("templates")
    try:
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(templates.joinpath(*name.split("/")).read_bytes())
        (folder / SCHEMA).write_text(json_schema_text(), encoding="utf-8")
        written = [folder / name for name in (*FILES, SCHEMA)]
        return [*written, folder / ".gitignore"] if _ignore(folder) else written
    except OSError as error:
        raise _refused(f"{folder} cannot be written to: {error.strerror}") from error


def _refused(why: str) -> typer.BadParameter:
    return typer.BadParameter(why, param_hint="FOLDER")


def _ignore(folder: Path) -> bool:
    """Exclude what a project makes by itself from git; return whether a line was added."""
    path = folder / ".gitignore"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    missing = [each for each in _IGNORED if not {each, each[:-1]} & {*text.splitlines()}]
    if not missing:
        return False
    ending = "" if not text or text.endswith("\n") else "\n"
    path.write_text(f"{text}{ending}{chr(10).join(missing)}\n", encoding="utf-8")
    return True
