"""Routes of files: what an apply would change, and how many windows a file has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from engine.api.access import PREFIX
from engine.api.bodies import Moment
from engine.api.problems import documented, documented_body
from engine.api.requests import GuardedRoute, api_state
from engine.api.schedules import Service, as_answer
from engine.errors import BodyTooLarge, Code, Problem, ScheduleError
from engine.schedules import ScheduleFile, cron_doubts, load_schedules
from engine.schedules.simulation import Outage, Simulation, simulate
from engine.views import answers

router = APIRouter(prefix=PREFIX, route_class=GuardedRoute, tags=["files"])

_FILE: Final = "schedules:\n  - {key: nightly-report, workflow: noop, cron: '0 2 * * *'}\n"
_YAML: Final = documented_body(
    {"type": "string", "description": "A schedule file."}, "application/yaml", file=_FILE
)
_JSON: Final = documented_body(
    {"type": "object", "description": "A schedule file in JSON."},
    "application/json",
    file={"schedules": [{"key": "nightly-report", "workflow": "noop", "cron": "0 2 * * *"}]},
)
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": _YAML["requestBody"]["content"] | _JSON["requestBody"]["content"],
    }
}


def _name_of(request: Request) -> str:
    """Return the name of the file of the body, which cannot name calendars of this machine."""
    media_type = request.headers["content-type"]
    return "request.json" if media_type.startswith("application/json") else "request.yaml"


# --- plan ---

_MOST_WARNINGS: Final = 100


@router.post(
    "/plan",
    response_model=answers.PLAN.model,
    openapi_extra=_BODY,
    responses=documented(400, 409, 413, 415, 422, 429),
)
async def plan(
    request: Request,
    service: Service,
    *,
    prune: Annotated[bool, Query(description="Include what a prune would retire.")] = False,
    force: Annotated[bool, Query(description="As a forced apply would do it.")] = False,
) -> Response:
    """Show what applying the file in the body would change, and which fires move."""
    async with api_state(request).files:
        body = await request.body()
        file = await asyncio.to_thread(load_schedules, body, _name_of(request))
    found = await service.plan(file, prune=prune, force=force)
    return as_answer(answers.PLAN(found, warnings=_warnings(file)))


def _warnings(file: ScheduleFile) -> list[Problem]:
    """Return the warnings about a file, the first of them."""
    now = datetime.now(UTC)
    doubts = (
        Problem(Code.CRON_DOUBTFUL, each.message, each.hint, key=schedule.key)
        for schedule in file.schedules
        for each in cron_doubts(schedule, now)
    )
    return [*islice(chain(file.warnings, doubts), _MOST_WARNINGS)]


# --- simulate ---

_LONGEST: Final = timedelta(days=31)
_MOST_WINDOWS: Final = 500_000
_MOST_BYTES: Final = 1 << 19
"""Bytes of the largest file: to read it before its first schedule takes half of the time."""
_MOST_SECONDS: Final = 1.0
"""Processor time that one simulation may take, while every other request waits for it."""


class _Limit:
    """The end of the processor time that this thread may take from now on."""

    def __init__(self) -> None:
        self._end = time.thread_time() + _MOST_SECONDS

    def __call__(self) -> None:
        """Go on, unless it has passed.

        Raises:
            ScheduleError: it has.
        """
        if time.thread_time() > self._end:
            raise ScheduleError(
                f"to simulate this takes more than {_MOST_SECONDS:.0f} s of processor time",
                hint="send a smaller file, name a shorter time, or use `sched simulate`",
            )


@router.post(
    "/simulate",
    response_model=answers.SIMULATION.model,
    openapi_extra=_BODY,
    responses=documented(400, 409, 413, 415, 422, 429),
)
async def simulate_file(
    request: Request,
    begin: Annotated[Moment, Query(alias="from", examples=["2026-12-01T00:00:00Z"])],
    end: Annotated[Moment, Query(alias="to", examples=["2026-12-08T00:00:00Z"])],
    outage_from: Annotated[Moment | None, Query(alias="outageFrom")] = None,
    outage_to: Annotated[Moment | None, Query(alias="outageTo")] = None,
) -> Response:
    """Count the windows of the file in the body between two moments, of 31 days at most."""
    if (outage_from is None) != (outage_to is None):
        raise ScheduleError("an outage needs outageFrom and outageTo", hint="send both or none")
    if not timedelta(0) < end - begin <= _LONGEST:
        raise ScheduleError("from and to span no time, or more than 31 days")
    outages = [Outage(outage_from, outage_to)] if outage_from and outage_to else []
    body, name = await request.body(), _name_of(request)
    if len(body) > _MOST_BYTES:
        text = f"a file to simulate has at most {_MOST_BYTES} bytes"
        raise BodyTooLarge(text, hint="send a part of it, or use `sched simulate`")
    async with api_state(request).files:
        found = await asyncio.to_thread(_simulated, body, name, begin, end, outages)
    return as_answer(found)


def _simulated(
    body: bytes, name: str, begin: datetime, end: datetime, outages: Sequence[Outage]
) -> Simulation:
    limit, windows = _Limit(), 0
    file = load_schedules(body, name, watch=limit)
    for each in file.schedules:
        limit()
        windows += each.spec.count(begin, end)
    if windows > _MOST_WINDOWS:
        raise ScheduleError(
            f"the file has {windows:,} windows in that time, and {_MOST_WINDOWS:,} are simulated",
            hint="name a shorter time, or use `sched simulate`",
        )
    try:
        return simulate(file.schedules, begin, end, outages=outages, watch=limit)
    except ValueError as error:
        raise ScheduleError(str(error)) from None
