"""Which commands there are. Each is loaded when it is run, asked for help or completed.

The list of commands, and a shell that completes one, need a name and a purpose only. The rest of
this package loads what it works with, which takes longer than many a command.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from engine.cli.help import dress

MODULES = {
    "init": "init", "up": "up", "worker": "worker",
    "list": "listing", "show": "show", "next": "preview", "fires": "fires", "log": "log",
    "pause": "pausing", "resume": "pausing", "trigger": "requesting", "rerun": "requesting",
    "skip": "skipping", "unskip": "skipping", "cancel": "cancel", "backfill": "backfill",
    "dead": "dead",
    "at": "one_shots", "reschedule": "one_shots",
    "check": "writing", "apply": "writing", "plan": "plan",
    "history": "history",
    "migrate": "writing", "schema": "schema", "simulate": "simulate",
}  # fmt: skip
"""In which module of ``engine.cli`` each command is."""

GROUPS = {
    "Run": {
        "init": "Write a small project that runs at once.",
        "up": "Run it all here: two servers, the schedules and one worker.",
        "worker": "Run one replica against servers that others run.",
    },
    "Look": {
        "list": "Show every schedule: what it runs, when, and how it fares.",
        "show": "Show one schedule: its definition, state, last and next fires, and links.",
        "next": "Show what fires next: each schedule once, or so many fires of one.",
        "fires": "Show what became of each window, newest first.",
        "log": "Show who did what to schedules and runs, and why, newest first.",
    },
    "Act": {
        "pause": "Let a schedule rest; no deploy wakes it.",
        "resume": "Let a paused schedule fire again. Replays nothing unless asked.",
        "trigger": "Start a run now, besides the schedule's windows.",
        "rerun": "Start one more run of a window that was decided.",
        "skip": "Skip one window before its run is sent.",
        "unskip": "Let a window start that was skipped before it came.",
        "cancel": "Cancel a run, every open run of a schedule, or all of one that is in no file.",
        "backfill": "Give windows of the past the runs that they never had.",
        "dead": "Look at runs that ended badly; run them again, or let them rest.",
    },
    "Declare": {
        "check": "Name everything that is wrong with a schedule file. Needs no server.",
        "plan": "Show what applying a schedule file would change, and which fires move.",
        "apply": "Apply a schedule file: make it the newest word on its project.",
    },
    "Ask": {
        "at": "Start a workflow once, at a moment to come.",
        "reschedule": "Move what an application or `sched at` has scheduled to other times.",
    },
    "Maintain": {
        "migrate": "Bring the ledger's schema up to date.",
        "schema": "Print the JSON Schema of the schedule file, for editors.",
        "history": "Write the histories of runs into files, to be replayed against new code.",
        "simulate": "Simulate a schedule file between two moments. Needs no server.",
    },
}
"""The commands by what they are for, each with its purpose: the first line of its own help."""


class Commands(TyperGroup):
    """The list of commands, in groups."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name=name, help=purpose)
            for group in GROUPS.values()
            for name, purpose in group.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command itself for its name in the list."""
        name, listed, rest = super().resolve_command(ctx, args)
        for each in rest:
            _require_text(each)
        return name, listed and load(str(listed.name)), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        """Write each group under its heading."""
        widest = max(map(len, self.commands))
        for heading, group in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), said) for name, said in group.items()])


def _require_text(argument: str) -> None:
    """Refuse what neither a database nor Temporal takes; only a file's name may be no UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        if not Path(argument).exists():
            raise typer.BadParameter(f"{argument!r} is not UTF-8") from None


def load(name: str) -> TyperCommand | TyperGroup:
    """Return a command, or a group of them, loaded."""
    loaded = typer.Typer(rich_markup_mode=None)
    import_module(f"engine.cli.{MODULES[name]}").register(loaded)
    dress(loaded)
    command = typer.main.get_group(loaded).commands[name]
    assert isinstance(command, TyperCommand | TyperGroup)  # noqa: S101 - `dress` has made it one
    return command
