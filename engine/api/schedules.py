"""Routes of schedules: declare, list, show, edit and retire them, and what operators do."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, cast
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from pydantic_core import to_json

from engine.api.access import PREFIX, Caller
from engine.api.bodies import (
    BackfillRequest,
    Body,
    CancelRequest,
    KeyText,
    Moment,
    OneLine,
    PauseRequest,
    RenameRequest,
    RerunRequest,
    ResumeRequest,
    TriggerRequest,
    WindowRequest,
    Word,
    checked_line,
    declaration_schema,
    declared,
)
from engine.api.problems import documented, documented_body
from engine.api.requests import GuardedRoute, api_state
from engine.errors import (
    AccessDenied,
    KeyInUse,
    RequestInUse,
    ScheduleError,
    VersionMissing,
    VersionOutdated,
    WindowNotFound,
)
from engine.schedules import (
    FIELDS,
    SEALED_INPUT,
    WHEN,
    Schedule,
    cron_doubts,
    epoch_ms,
    parse_workflow_id,
)
from engine.schedules.loader.relations import parents_of
from engine.service import (
    Filters,
    JobStatus,
    Origin,
    RepeatedRequest,
    ScheduleKind,
    ScheduleRow,
    ScheduleService,
    State,
    Status,
    checked_project,
)
from engine.views import answers, as_json

router = APIRouter(prefix=f"{PREFIX}/schedules", route_class=GuardedRoute, tags=["schedules"])

MOST_ROWS: Final = 500
"""The most rows of a page."""
_OTHER_FIELDS: Final = frozenset({"maxRetries", "timeoutSeconds"})
_FIELDS: Final = (_OTHER_FIELDS | FIELDS.keys()) - {"key"}
_PLACES: Final = frozenset({"project", "taskQueue", "external", "workflow"})
"""Fields that say where a schedule starts its runs."""
_TASK_QUEUE: Final[str] = Schedule.model_fields["task_queue"].default
_TAG: Final = re.compile(r'"([0-9]{1,9})"')

KeyPath = Annotated[KeyText, Path(description="The schedule's key.")]
PageSize = Annotated[int, Query(ge=1, le=MOST_ROWS, description="The most rows of the page.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="`nextCursor` of the page before.")
]
IfMatch = Annotated[
    str | None,
    Header(
        description="The ETag of the schedule that the edit was made from.",
        json_schema_extra={"pattern": r'^(\*|"[0-9]{1,9}")$'},
    ),
]


async def caller_of(request: Request) -> Caller:
    """Return the caller that the request was accepted from."""
    caller: Caller = request.state.caller
    return caller


async def service_of(request: Request) -> ScheduleService:
    """Return the service on behalf of the caller."""
    caller = await caller_of(request)
    return api_state(request).service.acting(caller.actor)


# Async, because FastAPI calls what is not in a thread, twice for each request.
Service = Annotated[ScheduleService, Depends(service_of)]
Who = Annotated[Caller, Depends(caller_of)]


def as_answer(
    answer: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer: a record, or the JSON of a view, which FastAPI would validate."""
    document = answer if isinstance(answer, dict) else as_json(answer)
    return Response(to_json(document), status, headers, "application/json")


# --- versions ---


def etag(row: ScheduleRow) -> str:
    """Return the ETag of a schedule: the version of its definition."""
    return f'"{row.definition_version}"'


def version_of(if_match: str | None) -> int | None:
    """Return the version that an edit was made from; None for any.

    Raises:
        VersionOutdated: the header names no version of a schedule.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        raise VersionOutdated(
            f"If-Match is {if_match[:40]!r}, which is no version", hint="send the ETag of a GET"
        )
    return int(found[1])


async def shown(service: ScheduleService, key: str, status: int = 200) -> Response:
    """Return the answer that shows the schedule of a key as it is now."""
    return await _shown(service, await service.schedule(key), status)


async def _shown(service: ScheduleService, row: ScheduleRow, status: int = 200) -> Response:
    """Return the answer that shows a schedule, and what it waits for."""
    place = f"{PREFIX}/schedules/{row.key}"
    headers = {"ETag": etag(row), "Content-Location": place}
    if status == 201:  # noqa: PLR2004 - Created
        headers["Location"] = place
    waiting, warnings = None, list[str]()
    if row.schedule is not None and row.state != "retired":
        waiting = await service.waiting(row.schedule, row.project, row.workflow_type)
        doubts = cron_doubts(row.schedule, datetime.now(UTC))
        warnings = [f"{each.message}; {each.hint}" for each in doubts]
    answer = answers.DETAILED_SCHEDULE(row, waiting=waiting, warnings=warnings)
    return as_answer(answer, status, headers)


# --- declarations ---

_DETAILS: Final = answers.DETAILED_SCHEDULE.model
DECLARATION: Final = declaration_schema()
"""JSON Schema of a declaration."""

_DECLARED: Final = {"$ref": "#/components/schemas/Declaration"}
_DECLARATION: Final = documented_body(
    _DECLARED,
    "application/json",
    cron={
        "key": "billing.nightly",
        "workflow": "noop",
        "cron": "0 2 * * *",
        "timezone": "America/Sao_Paulo",
    },
    other_names={
        "name": "Billing reminders",
        "cronExpression": "*/5 * * * *",
        "jobType": "noop",
        "jobPayload": {"limit": 10},
        "enabled": True,
    },
)


@router.post(
    "",
    status_code=201,
    response_model=_DETAILS,
    openapi_extra=_DECLARATION,
    responses=documented(400, 409, 413, 415, 422, 429),
)
async def create_schedule(request: Request, service: Service, caller: Who) -> Response:
    """Declare a schedule of an application: once with `at`, else by `every` or `cron`."""
    given = declared(await request.json())
    repeated: RepeatedRequest | None = request.state.repeated
    wrong: list[ScheduleError] = []
    reason = _checked(wrong, checked_line, given.pop("reason", None), "reason")
    request_id = _checked(wrong, _text, given.pop("clientRequestId", None), "clientRequestId")
    project = _checked(wrong, checked_project, given.pop("project", service.project))
    named = _checked(wrong, _text, given.pop("key", None), "key")
    key = _derived_key(request, given) if named is None else named
    if key is not None:
        caller.require_key(key)
    elif not caller.has_every_key:
        raise AccessDenied(f"{caller.name} is for some schedules only", hint="give a key")
    _require_fields(given, _FIELDS, wrong, key=key or "draft")
    _require_places(caller, given, project or service.project)
    workflow = given.pop("workflow", None)
    options: dict[str, Any] = {
        "key": key,
        "request_id": request_id,
        "project": project,
        "reason": reason,
        **given,
    }
    made = await _made_before(service, caller, key, repeated)
    if made is None:
        create = service.schedule_at if "at" in given else service.schedule_repeat
        try:
            made = (await create(workflow, **options)).key
        except (KeyInUse, RequestInUse):  # the earlier attempt may have ended only now
            made = await _made_before(service, caller, key, repeated)
            if made is None:
                raise
    return await shown(service, made, 201)


@router.put(
    "/{key}",
    response_model=_DETAILS,
    openapi_extra=_DECLARATION,
    responses={
        201: {"model": _DETAILS, "description": "It was created."},
        **documented(400, 409, 412, 413, 415, 422, 429),
    },
)
async def put_schedule(
    key: KeyPath, request: Request, service: Service, caller: Who, if_match: IfMatch = None
) -> Response:
    """Create a schedule of an application, or replace its whole definition.

    It may be repeated: an equal definition is no new version. With If-Match it only replaces.
    """
    body = await request.json()
    given = declared({"key": key, **body} if isinstance(body, Mapping) else body)
    wrong: list[ScheduleError] = []
    if given.pop("key") != key:
        wrong.append(ScheduleError("key is not the one of the path", hint="leave it out"))
    reason = _checked(wrong, checked_line, given.pop("reason", None), "reason")
    project = _checked(wrong, checked_project, given.pop("project", service.project))
    _require_fields(given, _FIELDS, wrong, key=key)
    _require_places(caller, given, project or service.project)
    options: dict[str, Any] = {"project": project, "reason": reason, **given}
    options["version"] = version_of(if_match)
    if if_match is not None:
        row = await service.find(key)
        if row is None or row.state == "retired":
            raise VersionOutdated(f"there is no schedule {key}", hint="leave out If-Match")
    done = await service.declare(options.pop("workflow", None), key=key, **options)
    return await _shown(service, done.row, 201 if done.outcome == "created" else 200)


def _checked(
    wrong: list[ScheduleError], check: Callable[..., str | None], *given: Any
) -> str | None:
    """Return what the check returns; its error is added to those that are raised together."""
    try:
        return check(*given)
    except ScheduleError as error:
        wrong.append(error)
        return None


def _require_places(caller: Caller, given: Mapping[str, Any], project: str) -> None:
    """Check that a declaration follows only what the caller may see, and starts runs where it may.

    Raises:
        AccessDenied: it does not.
    """
    for parent in parents_of(given):
        caller.require_key(parent)
    external = given.get("workflow") if given.get("external") is True else None
    caller.require_place(project, given.get("taskQueue", _TASK_QUEUE), external)


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ScheduleError(f"{name} is not a text", hint="write one")
    return value


def _require_fields(
    given: Mapping[str, Any],
    known: Container[str],
    wrong: Sequence[ScheduleError] = (),
    **others: str,
) -> None:
    """Check that a declaration has only fields that it may have.

    If not, all else that is wrong with it is named as well; otherwise the service does that.

    Args:
        given: the fields.
        known: the fields that it may have.
        wrong: what was found before.
        others: fields that make a whole declaration of it.
    """
    unknown = sorted(name for name in given if name not in known)
    if not unknown and not wrong:
        return
    ours = [name for name in unknown if name in {*_FIELDS, "key", SEALED_INPUT}]
    found = [
        *wrong,
        *(ScheduleError(f"{name} is no field here", hint="leave it out") for name in ours),
    ]
    left_out = {*_OTHER_FIELDS, SEALED_INPUT}
    try:
        plain = {name: value for name, value in given.items() if name not in left_out}
        Schedule.from_json({**plain, **others})
    except ScheduleError as error:
        found.append(error)
    texts = [f"{each.message}; {each.hint or ''}".rstrip("; ") for each in found]
    raise type(found[0])("; ".join(texts), code=found[0].code)


def _derived_key(request: Request, given: dict[str, Any]) -> str | None:
    """Return a key that every attempt of one request has; None if it is not to be repeated."""
    repeated: RepeatedRequest | None = request.state.repeated
    if repeated is None:
        return None
    number = epoch_ms(repeated.first_at) << 80 | int(request.state.identity[:20], 16)
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return f"{'at' if 'at' in given else 'repeat'}-{UUID(int=number)}"


async def _made_before(
    service: ScheduleService, caller: Caller, key: str | None, repeated: RepeatedRequest | None
) -> str | None:
    """Return the key if an earlier attempt, whose end is not known, has declared the schedule."""
    if key is None or repeated is None or repeated.attempts == 1:
        return None
    is_made = any(
        action.verb == "schedule"
        and action.at >= repeated.first_at
        and action.by.startswith(f"{caller.name} at ")
        for action in await service.actions(key=key, limit=MOST_ROWS)
    )
    return key if is_made else None


class ScheduleFilters(Body):
    """Filters of a list of schedules; all that are given have to match."""

    limit: PageSize = 50
    cursor: Cursor = None
    project: Word | None = None
    origin: Origin | None = None
    kind: ScheduleKind | None = None
    state: State | None = None
    status: JobStatus | None = Field(None, description="The state, in the words of job queues.")
    last_status: Status | None = None
    enabled: bool | None = None
    workflow: Word | None = None
    job_type: Word | None = Field(None, description="The same as `workflow`.")
    topic: Word | None = None
    tag: Word | None = None
    owner_id: Word | None = None
    tenant_id: Word | None = None
    correlation_id: Word | None = None
    client_request_id: Word | None = None
    key_prefix: Word | None = None
    due_before: Moment | None = None

    def given(self) -> Filters:
        """Return the filters of the service."""
        named = self.model_dump(exclude={"limit", "cursor", "job_type", "client_request_id"})
        found = cast("Filters", named)
        found["workflow"] = self.workflow or self.job_type
        found["request_id"] = self.client_request_id
        return found


def filters_of(request: Request) -> ScheduleFilters:
    """Return the filters of a request.

    FastAPI takes a fifth of a millisecond to do the same, as long as ten rows take.

    Raises:
        RequestValidationError: one of them has no such value.
    """
    try:
        return ScheduleFilters.model_validate(dict(request.query_params))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        at = [{**each, "loc": ("query", *each["loc"])} for each in faults]
        raise RequestValidationError(at) from None


_FILTERS: Final = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": schema}
        | ({"description": schema["description"]} if "description" in schema else {})
        for name, schema in ScheduleFilters.model_json_schema()["properties"].items()
    ]
}


@router.get(
    "", response_model=answers.SCHEDULES.model, openapi_extra=_FILTERS, responses=documented(400)
)
async def list_schedules(request: Request) -> Response:
    """List the schedules that the caller may see, by key."""
    caller, service = await caller_of(request), await service_of(request)
    asked = filters_of(request)
    filters = asked.given()
    if not caller.has_every_key:
        filters["keys"] = caller.keys
    page = await service.list(limit=asked.limit, cursor=asked.cursor, **filters)
    return as_answer(answers.SCHEDULES(page, next_cursor=page.cursor))


@router.get("/{key}", response_model=_DETAILS, responses=documented(400, 404))
async def show_schedule(key: KeyPath, service: Service) -> Response:
    """Show a schedule. Its ETag is what an edit has to name."""
    return await shown(service, key)


_EDIT: Final = documented_body(
    _DECLARED,
    "application/json",
    "application/merge-patch+json",
    edit={"cron": "0 3 * * *", "reason": "later"},
)


@router.patch(
    "/{key}",
    response_model=_DETAILS,
    openapi_extra=_EDIT,
    responses=documented(400, 404, 409, 412, 413, 415, 422, 428),
)
async def edit_schedule(
    key: KeyPath, request: Request, service: Service, caller: Who, if_match: IfMatch = None
) -> Response:
    """Change some fields of an application's schedule; null is the default of a field.

    If-Match is needed: the ETag that was read, or `*` for whatever it is now.
    """
    if if_match is None:
        raise VersionMissing(hint="send the ETag of the schedule as If-Match")
    changes = declared(await request.json(), edits=True)
    reason = checked_line(changes.pop("reason", None), "reason")
    if SEALED_INPUT in changes:
        raise ScheduleError(f"{SEALED_INPUT} is no field here", hint="leave it out")
    if not changes.keys().isdisjoint(_PLACES):
        now = await service.schedule(key)
        before = now.schedule.to_json() if now.schedule else {}
        after = {name: each for name, each in {**before, **changes}.items() if each is not None}
        _require_places(caller, after, str(after.get("project", now.project)))
    row = await service.edit(key, changes, version=version_of(if_match), reason=reason)
    return await _shown(service, row)


@router.delete("/{key}", response_model=_DETAILS, responses=documented(400, 404, 409, 412))
async def retire_schedule(
    key: KeyPath,
    service: Service,
    if_match: IfMatch = None,
    reason: Annotated[OneLine | None, Query()] = None,
) -> Response:
    """Retire an application's schedule: it never fires again, and open runs continue."""
    await service.retire(key, version=version_of(if_match), reason=reason)
    return await shown(service, key)


@router.post(
    "/{key}/rename",
    response_model=_DETAILS,
    responses=documented(400, 404, 409, 412, 413, 415, 422),
)
async def rename(
    key: KeyPath, body: RenameRequest, service: Service, caller: Who, if_match: IfMatch = None
) -> Response:
    """Give an application's schedule another key, which later windows belong to."""
    caller.require_key(body.key)
    row = await service.rename(key, body.key, version=version_of(if_match), reason=body.reason)
    return await _shown(service, row)


_WHEN_BODY: Final = documented_body(
    _DECLARED, "application/json", cron={"cron": "30 6 * * MON-FRI"}
)


@router.post(
    "/{key}/reschedule",
    response_model=_DETAILS,
    openapi_extra=_WHEN_BODY,
    responses=documented(400, 404, 409, 413, 415, 422),
)
async def reschedule(key: KeyPath, request: Request, service: Service) -> Response:
    """Change when an application's schedule fires: these fields replace all former ones of time."""
    when = declared(await request.json(), edits=True)
    reason = checked_line(when.pop("reason", None), "reason")
    _require_fields(when, WHEN, key=key, workflow="noop")
    await service.reschedule(key, reason=reason, **when)
    return await shown(service, key)


# --- what operators do ---
# Also with schedules of files.

_OF_RUNS: Final = documented(400, 404, 409, 413, 415, 422, 429)
_OF_WINDOWS: Final = documented(400, 404, 409, 413, 415, 422)


@router.post("/{key}/pause", response_model=answers.PAUSED.model, responses=_OF_WINDOWS)
async def pause(key: KeyPath, body: PauseRequest, service: Service) -> Response:
    """Pause a schedule until it is resumed, or until a moment. Open runs continue."""
    return as_answer(await service.pause(key, reason=body.reason, until=body.until))


@router.post("/{key}/resume", response_model=answers.RESUMED.model, responses=_OF_WINDOWS)
async def resume(key: KeyPath, body: ResumeRequest, service: Service) -> Response:
    """Resume a paused schedule. Missed windows start only on request."""
    return as_answer(await service.resume(key, reason=body.reason, catch_up=body.catch_up))


@router.post(
    "/{key}/trigger", status_code=202, response_model=answers.REQUESTED.model, responses=_OF_RUNS
)
async def trigger(
    key: KeyPath, body: TriggerRequest, request: Request, service: Service
) -> Response:
    """Start a run now, besides the schedule's windows; of a paused schedule too."""
    identity: str | None = request.state.identity
    derived = f"idem-{identity[:48]}" if identity else None
    done = await service.trigger(
        key,
        reason=body.reason,
        request_id=derived if body.request_id is None else body.request_id,
        overlap=body.overlap,
        own_input=body.own_input,
        wait=body.wait,
    )
    return as_answer(done, 202)


@router.post(
    "/{key}/rerun", status_code=202, response_model=answers.REQUESTED.model, responses=_OF_RUNS
)
async def rerun(key: KeyPath, body: RerunRequest, service: Service) -> Response:
    """Start another run of a window that was decided, whatever became of it."""
    done = await service.rerun(
        key,
        body.bucket,
        at=body.at,
        reason=body.reason,
        series=body.series,
        overlap=body.overlap,
        own_input=body.own_input,
    )
    return as_answer(done, 202)


@router.post(
    "/{key}/backfill",
    status_code=202,
    response_model=answers.BACKFILL_REQUESTED.model,
    responses=_OF_RUNS,
)
async def backfill(key: KeyPath, body: BackfillRequest, service: Service) -> Response:
    """Request runs for past windows that had none; workers start them."""
    if body.dry_run:
        seen = await service.preview_backfill(
            key, body.begin, body.end, overlap=body.overlap, include=body.include
        )
        return as_answer(seen, 202)
    done = await service.backfill(
        key, body.begin, body.end, reason=body.reason, overlap=body.overlap, include=body.include
    )
    return as_answer(done, 202)


@router.post("/{key}/skip", response_model=answers.SKIPPED.model, responses=_OF_WINDOWS)
async def skip(key: KeyPath, body: WindowRequest, service: Service) -> Response:
    """Skip one window before its run is sent."""
    return as_answer(await service.skip(key, body.at, reason=body.reason))


@router.post("/{key}/unskip", response_model=answers.SKIPPED.model, responses=_OF_WINDOWS)
async def unskip(key: KeyPath, body: WindowRequest, service: Service) -> Response:
    """Undo the skip of a window that has not opened yet."""
    return as_answer(await service.unskip(key, body.at, reason=body.reason))


@router.post("/{key}/cancel", response_model=answers.CANCELLED.model, responses=_OF_WINDOWS)
async def cancel(key: KeyPath, body: CancelRequest, service: Service) -> Response:
    """Cancel a run, or every open run and backfill.

    An application's schedule is then retired, unless it `goesOn`.
    """
    name = key if body.workflow_id is None else body.workflow_id
    parsed = parse_workflow_id(name)
    if body.workflow_id is not None and (parsed is None or parsed.key != key):
        raise WindowNotFound(f"{key} has no run {name}", hint="see its executions")
    done = await service.cancel(
        name, reason=body.reason, terminate=body.terminate, goes_on=body.goes_on
    )
    return as_answer(done)
