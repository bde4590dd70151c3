"""Runs as commands name them, and their results.

It is separate because most commands need no SDK: Temporal is asked, and its SDK loaded, only for
what the ledger does not know.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import typer

from engine.cli.target import Session
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.runtime import Setup

_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def workflow_id(session: Session, name: str, setup: Setup | None = None) -> str:
    """Return the workflow id of Temporal's id of a run; any other text as it is.

    ``setup`` has the options of the client, in place of those of the environment.

    Raises:
        WindowNotFound: it looks like one, and neither Temporal nor the ledger knows it.
        TemporalUnavailable: the server does not answer.
    """
    if _RUN_ID.fullmatch(name) is None or session.ask(lambda opened: opened.find(name)):
        return name
    from engine.cli.temporal import workflow_of

    return asyncio.run(workflow_of(session.target, name, setup))


def result_of(session: Session, run: str) -> Any:
    """Return the result of a completed run; None, with a warning, if it cannot be read."""
    from engine.cli import temporal

    try:
        return asyncio.run(temporal.result_of(session.target, run))
    except EngineError as error:
        typer.echo(f"its result is not known: {error}", err=True)
        return None
