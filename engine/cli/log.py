"""``sched log``: who did what to schedules and runs, and why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import typer

from engine.cli.environment import service
from engine.cli.options import DEFAULT_DATA_DIR, AnyKey, DataDir, Json, Limit
from engine.cli.output import instant, print_json, print_table
from engine.ledger.operating_records import ActionRow


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("log")(list_actions)


def list_actions(
    key: AnyKey = None,
    limit: Limit = 20,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show who did what to schedules and runs, and why, newest first."""

    async def read() -> list[ActionRow]:
        async with service(data_dir) as opened:
            found = await opened.actions(key=key, limit=limit)
            if key and not found:
                await opened.schedule(key)  # raises when there is none
            return found

    rows = asyncio.run(read())
    if as_json:
        print_json([action_json(row) for row in rows])
    elif rows:
        print_table(
            ("AT", "BY", "VERB", "KEY", "RUN", "REASON", "STATE"),
            map(_action_row, rows),
            spare=("STATE", "RUN", "BY"),
        )
    else:
        typer.echo(f"nobody has done anything{f' to {key}' if key else ''} yet")


def action_json(row: ActionRow) -> dict[str, object]:
    """Return one action as ``sched log --json`` shows it."""
    return {
        "at": instant(row.at),
        "by": row.by,
        "verb": row.verb,
        "key": row.key,
        "project": row.project,
        "reason": row.reason,
        "workflow_id": row.workflow_id,
        "before": row.before,
        "after": row.after,
    }


def _action_row(row: ActionRow) -> tuple[object, ...]:
    return (
        instant(row.at), row.by, row.verb, row.key, row.workflow_id, row.reason,
        _change(row.before, row.after),
    )  # fmt: skip


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None and after is None:
        return ""
    texts = [json.dumps(value, ensure_ascii=False, default=str) for value in (before, after)]
    return texts[1] if before is None else " → ".join(texts)
