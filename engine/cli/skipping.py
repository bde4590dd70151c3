"""``sched skip`` and ``sched unskip``: one window that is to come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import typer

from engine.cli.environment import service
from engine.cli.moments import moment
from engine.cli.options import DEFAULT_DATA_DIR, At, DataDir, Json, Key, Reason
from engine.cli.output import instant, print_json
from engine.runtime.verbs.skipping import Skipped
from engine.service import ScheduleService


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(skip)
    app.command()(unskip)


def skip(
    key: Key,
    at: At,
    reason: Reason = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Skip one window before its run is sent."""
    opens = moment(at, "--at")
    done = _done(data_dir, lambda opened: opened.skip(key, opens, reason=reason))
    _tell(done, "will not start" if done.changed else "was skipped before", as_json=as_json)


def unskip(
    key: Key,
    at: At,
    reason: Reason = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Let a window start that was skipped before it came."""
    opens = moment(at, "--at")
    done = _done(data_dir, lambda opened: opened.unskip(key, opens, reason=reason))
    _tell(done, "starts as declared" if done.changed else "was not skipped", as_json=as_json)


def _done(data_dir: Path, verb: Callable[[ScheduleService], Awaitable[Skipped]]) -> Skipped:
    async def act() -> Skipped:
        async with service(data_dir) as opened:
            return await verb(opened)

    return asyncio.run(act())


def _tell(done: Skipped, told: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "key": done.key,
                "fire_time": instant(done.fire_time),
                "workflow_id": done.workflow_id,
                "changed": done.changed,
            }
        )
    else:
        typer.echo(f"{done.workflow_id} of {instant(done.fire_time)} {told}")
