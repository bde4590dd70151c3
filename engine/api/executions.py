"""Routes of what became of windows: executions and how they are followed, next fires, letters.

Also those of webhooks, which get the same as events, and of the workers that start them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse

from engine.api.access import PREFIX, ROUTES, Caller
from engine.api.bodies import (
    HookChange,
    HookRequest,
    KeyText,
    Moment,
    OneLine,
    StatusWord,
    checked_moment,
    statuses_of,
)
from engine.api.following import FirePlace, Following, LeftOut
from engine.api.problems import documented
from engine.api.requests import GuardedRoute, api_state, streamed
from engine.api.schedules import Cursor, KeyPath, PageSize, Service, Who, as_answer
from engine.errors import (
    CursorInvalid,
    LedgerUnavailable,
    SettingsInvalid,
    TemporalUnavailable,
    WindowNotFound,
)
from engine.service import FIRST_MOMENT, LAST_MOMENT, DeadLetter, Fire, ReasonCode, ScheduleService
from engine.service.pages import as_cursor, place_of_cursor
from engine.views import answers, json_text

router = APIRouter(prefix=PREFIX, route_class=GuardedRoute, tags=["executions"])

RowKey = Annotated[
    str,
    Path(
        pattern=r"^@?[A-Za-z0-9._-]{1,300}$",
        description="The schedule's key, or `@WORKFLOW` for starts of applications.",
    ),
]

_PATIENCE: Final = timedelta(seconds=2)
"""How long Temporal may take to say how far the steps of a run are."""

# --- pages ---


_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A page; or with `Accept: text/event-stream` each execution as it changes.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get(
    "/schedules/{key}/executions",
    response_model=answers.FIRES.model,
    responses={**documented(400, 404, 422, 429), **_STREAM},
)
@router.get(
    "/schedules/{key}/fires",
    response_model=answers.FIRES.model,
    responses={**documented(400, 404, 422, 429), **_STREAM},
)
async def list_executions(
    key: KeyPath,
    request: Request,
    service: Service,
    *,
    limit: PageSize = 50,
    cursor: Cursor = None,
    status: StatusWord | None = None,
    reason_code: ReasonCode | None = None,
    since: Annotated[Moment | None, Query(alias="from")] = None,
    until: Annotated[Moment | None, Query(alias="to")] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[str | None, Header(max_length=1000)] = None,
) -> Response:
    """List what became of windows, newest first, or follow it with `Accept: text/event-stream`.

    A stream begins with the newest executions, the oldest of them first, and sends each one again
    when it changes. With `Last-Event-ID` it continues where a stream ended.
    """
    await service.schedule(key)
    if "text/event-stream" in accept:
        return _stream(request, service, key, limit, last_event_id)
    after = None if cursor is None else fire_place(cursor)
    found = await service.fires_page(
        key,
        statuses=statuses_of(status),
        reason_code=reason_code,
        since=since or FIRST_MOMENT,
        until=until or LAST_MOMENT,
        after=after,
        limit=limit + 1,
    )
    page = found[:limit]
    more = fire_cursor(page[-1]) if len(found) > limit else None
    return as_answer(answers.FIRES(executions=page, next_cursor=more))


@router.get(
    "/schedules/{key}/executions/{workflow_id:path}",
    response_model=answers.FIRE_DETAILS.model,
    responses=documented(400, 404),
)
async def show_execution(
    key: RowKey,
    workflow_id: Annotated[str, Path(max_length=1000, description="The id of its run.")],
    service: Service,
) -> Response:
    """Show an execution: its tries, why it failed, and of an open run the steps in progress."""
    fire = await service.fire(workflow_id)
    if fire is None or fire.key not in await service.keys_of(key):
        raise WindowNotFound(
            f"the ledger has no run {workflow_id} of {key}", hint="list its executions"
        )
    steps = None
    with suppress(TemporalUnavailable, SettingsInvalid):
        steps = await service.steps_in_progress(fire, within=_PATIENCE)
    details = await service.run_details(workflow_id)
    return as_answer(answers.FIRE_DETAILS(fire, details, steps_in_progress=steps))


def fire_cursor(fire: Fire) -> str:
    """Return the cursor of the page behind a fire."""
    return as_cursor(fire.fire_time.isoformat(), fire.workflow_id)


def fire_place(cursor: str) -> FirePlace:
    """Return the fire time and the run id of a cursor.

    Raises:
        CursorInvalid: it is no cursor of this list.
    """
    hint = "send nextCursor of the page before"
    moment, workflow_id = place_of_cursor(cursor, 2, hint=hint)
    try:
        found = datetime.fromisoformat(moment)
        at = None if found.tzinfo is None else checked_moment(found)
    except ValueError:
        at = None
    if at is None:
        raise CursorInvalid(hint=hint)
    return at, workflow_id


# --- streams ---

_LOOKS: Final = 1.0


def _stream(
    request: Request, service: ScheduleService, key: str, limit: int, last: str | None
) -> EventSourceResponse:
    """Answer with the newest executions, and then each that is new or has changed."""
    place = fire_place(last) if last else None
    following = Following(service, key, limit=limit, place=place)

    async def look() -> AsyncIterator[ServerSentEvent]:
        with suppress(LedgerUnavailable):
            async for each in following.look():
                yield _event(each, following.place)

    async def ask() -> None:
        caller = await api_state(request).access.caller(request, reads=True)
        caller.require(ROUTES[f"GET {PREFIX}/schedules/{{key}}/executions"], key)

    caller: Caller = request.state.caller
    hint = "close one, or ask for pages"
    return streamed(request, caller, look, ask, every=_LOOKS, hint=hint)


def _event(each: Fire | LeftOut, place: FirePlace | None) -> ServerSentEvent:
    name = as_cursor(place[0].isoformat(), place[1]) if place else None
    if isinstance(each, LeftOut):
        between = answers.GAP(**{"from": each.since, "to": each.until})
        return ServerSentEvent(data=json_text(between), event="gap", id=name)
    return ServerSentEvent(data=json_text(each), event="execution", id=name)


# --- next fires, dead letters, workers ---

_MOST_NEXT: Final = 200
_LETTERS_READ: Final = 1000
"""Letters that are read at once for a caller who may see some of them."""
_MOST_READS: Final = 20
_MOST_DETAILS: Final = 50


@router.get(
    "/schedules/{key}/next", response_model=answers.NEXT_FIRES.model, responses=documented(400, 404)
)
async def next_fires(
    key: KeyPath,
    service: Service,
    limit: Annotated[int, Query(ge=1, le=_MOST_NEXT)] = 5,
    begin: Annotated[Moment | None, Query(alias="from")] = None,
) -> Response:
    """List the next windows that start a run; a schedule that is held has none."""
    row = await service.schedule(key)
    times: list[datetime] = []
    if row.schedule is not None and row.state == "active":
        after = begin or datetime.now(UTC)
        times = [*islice(row.starts(after, LAST_MOMENT), limit)]
    zone = row.schedule.timezone if row.schedule else None
    return as_answer(answers.NEXT_FIRES(row, timezone=zone, fire_times=times))


@router.get("/dead", response_model=answers.DEAD_LETTERS.model, responses=documented(400, 404))
async def list_dead(
    service: Service,
    caller: Who,
    *,
    key: Annotated[KeyText | None, Query()] = None,
    limit: PageSize = 50,
    details: Annotated[
        bool, Query(description="Add errors with their traces, and tries; of 50 at most.")
    ] = False,
) -> Response:
    """List fires that failed and were not dealt with, newest fire time first."""
    mine = await letters_for(caller, service, key=key, limit=limit)
    if key is not None and not mine:
        await service.schedule(key)
    if not details:
        return as_answer(answers.DEAD_LETTERS(letters=mine))
    found = [
        answers.DEAD_LETTER_DETAILS(each, await service.run_details(each.workflow_id))
        for each in mine[:_MOST_DETAILS]
    ]
    return as_answer(answers.DEAD_LETTERS(letters=found))


async def letters_for(
    caller: Caller, service: ScheduleService, *, key: str | None, limit: int
) -> list[DeadLetter]:
    """Return the newest letters that a caller may see, of the 20,000 newest of all.

    Raises:
        AccessDenied: the schedule ``key`` is not one of the caller's.
    """
    if key is not None:
        caller.require_key(key)
    at_once = limit if key is not None or caller.has_every_key else _LETTERS_READ
    mine: list[DeadLetter] = []
    after = None
    for _ in range(_MOST_READS):
        found = await service.dead_letters(key=key, after=after, limit=at_once)
        mine += [each for each in found if caller.may_see(each.key)]
        if len(mine) >= limit or len(found) < at_once:
            break
        after = found[-1].fire_time, found[-1].workflow_id
    return mine[:limit]


@router.get("/workers", response_model=answers.WORKERS.model, responses=documented())
async def list_workers(service: Service) -> Response:
    """List the workers, each with what it serves and when it last announced itself."""
    return as_answer(answers.WORKERS(workers=await service.workers()))


# --- webhooks ---
# Secrets and the paths of addresses go in, and never out.

HookPath = Annotated[str, Path(max_length=500, description="The `id` of the webhook.")]


@router.get("/hooks", response_model=answers.HOOKS.model, responses=documented())
async def list_hooks(service: Service) -> Response:
    """List the webhooks, those of files too."""
    return as_answer(answers.HOOKS(hooks=await service.hooks()))


@router.post(
    "/hooks",
    status_code=201,
    response_model=answers.SUBSCRIPTION.model,
    responses=documented(400, 409, 413, 415, 422, 429),
)
async def declare_hook(body: HookRequest, service: Service) -> Response:
    """Have events sent to an address, from the next one on; one that is known is changed."""
    made = await service.declare_hook(
        body.url,
        secret=body.secret,
        events=body.events,
        keys=body.keys,
        project=body.project,
        reason=body.reason,
    )
    return as_answer(made, 201)


@router.patch(
    "/hooks/{hook}",
    response_model=answers.SUBSCRIPTION.model,
    responses=documented(400, 404, 409, 413, 415, 422),
)
async def change_hook(hook: HookPath, body: HookChange, service: Service) -> Response:
    """Change what a webhook gets, or how it is signed; a field that is not named stays."""
    changes = body.model_dump(include=body.model_fields_set - {"reason"})
    return as_answer(await service.change_hook(hook, changes, reason=body.reason))


@router.delete("/hooks/{hook}", status_code=204, responses=documented(400, 404, 409))
async def remove_hook(
    hook: HookPath, service: Service, reason: Annotated[OneLine | None, Query()] = None
) -> None:
    """Remove a webhook, with what it has not got."""
    await service.remove_hook(hook, reason=reason)
