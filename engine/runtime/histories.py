"""The histories of runs, as files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import TemporalUnavailable

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST: Final = 180
"""Characters of a file's name that come from the workflow id, which may have a thousand."""


@dataclass(frozen=True, slots=True)
class Exported:
    """One run whose history was asked for.

    Attributes:
        workflow_id: of the run.
        run_id: Temporal's own; None where nobody knows it.
        file: where its history is; None where Temporal has forgotten the run.
        events: how many it has.
    """

    workflow_id: str
    run_id: str | None
    file: Path | None
    events: int = 0


async def export(
    client: Client, runs: Iterable[tuple[str, str | None]], folder: Path
) -> list[Exported]:
    """Write the history of each run into a file of its own, as Temporal's JSON.

    Args:
        client: of the namespace that has the runs.
        runs: workflow id and run id of each; without run id the newest of the id.
        folder: made where it is not there.

    Raises:
        TemporalUnavailable: the server does not answer.
    """
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    return [await _exported(client, *run, folder) for run in runs]


async def _exported(client: Client, workflow_id: str, run_id: str | None, folder: Path) -> Exported:
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    try:
        history = await handle.fetch_history()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise TemporalUnavailable(f"the history of {workflow_id}: {error.message}") from error
        return Exported(workflow_id, run_id, None)
    file = folder / file_name(workflow_id, history.run_id)
    file.write_text(history.to_json() + "\n", encoding="utf-8")
    return Exported(workflow_id, history.run_id, file, len(history.events))


def file_name(workflow_id: str, run_id: str) -> str:
    """Return a name that every file system takes: ``sched.nightly.17….<run id>.json``."""
    safe = _UNSAFE.sub(".", workflow_id)[:_LONGEST].lstrip(".")
    return f"{safe}.{run_id}.json"
