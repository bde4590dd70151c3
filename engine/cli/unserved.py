"""Schedules whose workers are not there: told before anything comes due, or waited for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated

import typer

from engine.cli.output import problem_of
from engine.ledger.replica_records import Served
from engine.ledger.schedule_records import ScheduleRow
from engine.runtime.unknown import no_worker_lives, unserved_at
from engine.service import ScheduleService

WaitForWorker = Annotated[
    bool, typer.Option("--wait-for-worker", help="Wait until a worker lives that starts it.")
]
_EVERY = 0.5
"""Seconds between two looks for a worker."""


def unserved(rows: Iterable[ScheduleRow], served: Served) -> str:
    """Return where schedules wait for a worker that is not there; empty when all is well.

    Args:
        rows: the schedules. One that fires no more, or has a problem of its own, waits for none.
        served: what living workers have announced.
    """
    fires = (row for row in rows if row.state == "active" and row.next_fire_at is not None)
    return nobody_starts((row for row in fires if not problem_of(row)), served)


def nobody_starts(rows: Iterable[ScheduleRow], served: Served) -> str:
    """Return where no worker lives that would start these schedules, however they stand."""
    places = Counter[str]()
    for row in rows:
        if row.schedule is not None:
            workflow = row.workflow_type or row.workflow
            if place := unserved_at(row.project, row.schedule.lane, workflow, served):
                places[place] += 1
    return no_worker_lives(places)


async def nobody_starts_key(opened: ScheduleService, key: str) -> str:
    """Return where no worker lives that would start this schedule, as ``nobody_starts``."""
    return nobody_starts([await opened.schedule(key)], await opened.served())


async def nobody_serves(opened: ScheduleService, project: str, *, unknown: bool = False) -> str:
    """Return where schedules of a project wait for a worker that is not there, as ``unserved``.

    They are counted in the ledger, however many. ``unknown``: also those whose workflow no worker
    has ever announced.
    """
    places, served = Counter[str](), await opened.served()
    for each in await opened.wanted(project):
        workflow = each.workflow_type or (each.workflow if unknown else None)
        if workflow and (place := unserved_at(project, each.lane, workflow, served)):
            places[place] += each.schedules
    return no_worker_lives(places)


async def wait_for_worker(look: Callable[[], Awaitable[str]]) -> None:
    """Wait until a look for workers does not say any more that there are none."""
    told = False
    while text := await look():
        if not told:
            typer.echo(f"{text}\nwaiting for it; Ctrl-C ends the wait alone", err=True)
        told = True
        await asyncio.sleep(_EVERY)
    if told:
        typer.echo("a worker lives that starts it", err=True)
