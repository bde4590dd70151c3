"""``sched schema``: what an editor needs to help with a schedule file."""

from __future__ import annotations

import sys

import typer

from engine.schedules.json_schema import json_schema_text


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("schema")(print_schema)


def print_schema() -> None:
    """Print the JSON Schema of the schedule file, for editors.

    Keep it beside the file (sched schema > schedules.schema.json) and put this at its top:
    # yaml-language-server: $schema=schedules.schema.json
    """
    sys.stdout.write(json_schema_text())
