"""Errors of the API: ``application/problem+json`` with the engine's codes.

A refusal names its code, a sentence and the hint, as a command does. Of an error of the server
only the code's own sentence goes out: addresses and statements stay in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from engine.errors import (
    Code,
    EngineError,
    EnqueueFailure,
    LedgerError,
    LedgerUnavailable,
    RateExceeded,
    RequestMalformed,
    RouteUnknown,
    ScheduleError,
    ScheduleFileError,
    TemporalUnavailable,
)

logger = logging.getLogger("sched.api")

MEDIA_TYPE: Final = "application/problem+json"
_RETRY_AFTER: Final = 1
_EVERY: Final = 60.0
_SHOWN: Final = 20
"""The most problems of a file, or of the shape of a request, in one answer."""

_STATUS: Final[Mapping[Code, int]] = {
    Code.REQUEST_MALFORMED: 400,
    Code.CURSOR_INVALID: 400,
    Code.TOKEN_REQUIRED: 401,
    Code.ACCESS_DENIED: 403,
    Code.ORIGIN_FOREIGN: 403,
    Code.ROUTE_UNKNOWN: 404,
    Code.JOB_NOT_FOUND: 404,
    Code.WINDOW_NOT_FOUND: 404,
    Code.LETTER_NOT_FOUND: 404,
    Code.HOOK_NOT_FOUND: 404,
    Code.VERSION_OUTDATED: 412,
    Code.BODY_TOO_LARGE: 413,
    Code.MEDIA_TYPE_WRONG: 415,
    Code.VERSION_MISSING: 428,
    Code.RATE_EXCEEDED: 429,
    Code.FILE_INVALID: 422,
    Code.INPUT_INVALID: 422,
    Code.REQUEST_ID_INVALID: 422,
    Code.IDEMPOTENCY_KEY_REUSED: 422,
    Code.INPUTS_SEALED: 409,
    Code.DEFINITION_UNREADABLE: 409,
}
"""Status by code. Else: 422 of a declaration, 503 of a server that is away, 409 of the rest."""


class FileProblem(BaseModel):
    """A problem of a schedule file, with its place."""

    code: str
    message: str
    hint: str = ""
    line: int = 0
    column: int = 0
    key: str | None = None


class ProblemDocument(BaseModel):
    """A refusal or a failure (RFC 9457)."""

    type: str = Field(examples=[f"urn:sched:{Code.JOB_NOT_FOUND}"])
    title: str = Field(examples=["There is no schedule of this key"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no schedule nightly-repot"])
    code: str = Field(examples=[str(Code.JOB_NOT_FOUND)])
    hint: str | None = Field(None, examples=["did you mean nightly-report?"])
    instance: str = Field(examples=["/api/v1/schedules/nightly-repot"])
    workflow_id: str | None = Field(
        None, alias="workflowId", description="The run that was asked for and has not begun."
    )
    problems: list[FileProblem] | None = None


def status_of(error: EngineError) -> int:
    """Return the status of the answer to this error."""
    if (known := _STATUS.get(error.code)) is not None:
        return known
    if isinstance(error, EnqueueFailure):
        return 409 if error.refused else 503
    if isinstance(error, ScheduleError):
        return 422
    if isinstance(error, LedgerUnavailable | TemporalUnavailable):
        return 503
    return 500 if isinstance(error, LedgerError) or type(error) is EngineError else 409


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """Parts of an error that a client may know."""

    status: int
    code: str
    title: str
    detail: str
    hint: str | None


class _Away:
    """Limit of lines about a server that is away: one in a minute, and not one for each request."""

    def __init__(self) -> None:
        self._logged: float | None = None

    def holds_back(self, error: EngineError) -> bool:
        """Return whether there was a line about it within the minute; if not, there is one now."""
        if not isinstance(error, LedgerUnavailable | TemporalUnavailable):
            return False
        now = time.monotonic()
        if self._logged is not None and now - self._logged < _EVERY:
            return True
        self._logged = now
        return False


_AWAY: Final = _Away()


def shown_problem(error: EngineError, status: int | None = None) -> ShownProblem:
    """Return what may be known of an error, by default with its own status; ours is logged."""
    status = status or status_of(error)
    title = error.title
    is_late = isinstance(error, EnqueueFailure)
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR and not is_late
    if is_ours and not _AWAY.holds_back(error):
        logger.error("%s: %s", error.code, error)
    return ShownProblem(
        status,
        str(error.code),
        title,
        title if is_ours else error.message,
        None if is_ours else error.hint,
    )


def problem(error: EngineError, request: Request, status: int | None = None) -> JSONResponse:
    """Return the answer to this error, by default with its own status."""
    shown = shown_problem(error, status)
    status = shown.status
    document: dict[str, Any] = {
        "type": f"urn:sched:{error.code}",
        "title": shown.title,
        "status": status,
        "detail": shown.detail,
        "code": shown.code,
        "hint": shown.hint,
        "instance": request.url.path,
    }
    if isinstance(error, EnqueueFailure):
        document["workflowId"] = error.workflow_id
    if isinstance(error, ScheduleFileError):
        found = error.problems
        document["detail"] = f"the file has {len(found)} problem{'' if len(found) == 1 else 's'}"
        names = FileProblem.model_fields
        document["problems"] = [
            {name: getattr(each, name) for name in names} for each in found[:_SHOWN]
        ]
    return JSONResponse(document, status, _headers(error, status), MEDIA_TYPE)


def _headers(error: EngineError, status: int) -> dict[str, str]:
    if isinstance(error, RateExceeded):
        return {"Retry-After": str(error.retry_after)}
    if status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    waits = error.code is Code.REQUEST_UNFINISHED or status == HTTPStatus.SERVICE_UNAVAILABLE
    return {"Retry-After": str(_RETRY_AFTER)} if waits else {}


# --- handlers ---


def add_handlers(app: FastAPI) -> None:
    """Answer every error of the application with a problem document."""

    @app.exception_handler(EngineError)
    async def _refused(request: Request, error: EngineError) -> JSONResponse:
        return problem(error, request)

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        faults = error.errors()
        codes = [each["type"] for each in faults]
        if all(code.startswith("SCHEDULE_") for code in codes):  # as the same field of a file
            text = "; ".join(str(each["msg"]) for each in faults[:_SHOWN])
            return problem(ScheduleError(text, code=Code(codes[0])), request)
        return problem(RequestMalformed(shape_faults(faults)), request)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            nothing = RouteUnknown(f"there is no {request.method} {request.url.path[:200]}")
            found = problem(nothing, request, error.status_code)
        else:
            found = problem(RequestMalformed(str(error.detail)), request, error.status_code)
        found.headers.update(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            found.headers["Allow"] = ", ".join(methods_at(request))
        return found

    @app.exception_handler(Exception)
    async def _failed(request: Request, error: Exception) -> JSONResponse:
        logger.error("%s %r failed", request.method, request.url.path, exc_info=error)
        return problem(EngineError(), request)


def methods_at(request: Request) -> list[str]:
    """Return the methods of all routes of a path; the router names those of the first alone."""
    path, routes = request.url.path, request.app.state.routes
    found = (each.methods for each in routes if each.path_regex.match(path))
    return sorted(set().union(*found))


def shape_faults(faults: Iterable[Mapping[str, Any]]) -> str:
    """Return what is wrong with the shape of a request, without its values."""
    texts = []
    for each in faults:
        place = ".".join(str(part) for part in each["loc"] if part != "body")
        text = str(each["msg"]).removeprefix("Value error, ")  # pydantic puts it before ours
        if "\\x00" in each.get("ctx", {}).get("pattern", ""):  # which says nothing to a person
            text = "write one line, without control characters"
        texts.append(f"{place}: {text}" if place else text)
    return "; ".join(texts[:_SHOWN])


# --- documentation ---

_MEANING: Final = {
    400: "The request is not valid.",
    401: "There is no token, or it is not in force.",
    403: "The token has another scope or is for other schedules; or the request comes from a page.",
    404: "There is no such schedule or window.",
    409: "The state of the schedule does not allow it.",
    412: "The schedule was edited meanwhile.",
    413: "The body is too large.",
    415: "The body is not of a type that this route takes.",
    422: "A value is not valid, or the Idempotency-Key was used for another request.",
    428: "The edit names no version: send If-Match.",
    429: "Too many requests of this kind; Retry-After says when to repeat.",
    503: "The ledger does not answer.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of errors of a route."""
    every = {401, 403, 503, *statuses}
    return {
        status: {
            "description": _MEANING[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        for status in sorted(every)
    }


def documented_body(
    schema: Mapping[str, Any], *media_types: str, **examples: Any
) -> dict[str, dict[str, Any]]:
    """Return the documentation of a body that a route reads itself, with examples by name."""
    shown = {name.replace("_", " "): {"value": value} for name, value in examples.items()}
    content = {each: {"schema": schema, "examples": shown} for each in media_types}
    return {"requestBody": {"required": True, "content": content}}
