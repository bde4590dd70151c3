"""Actions of the page for operators: each form is one call of the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, get_args

from fastapi import APIRouter, Request, Response
from pydantic_core import from_json

from engine.api.bodies import checked_input, checked_line, checked_moment
from engine.api.browser import (
    PageRoute,
    done,
    form_of,
    page_of,
    place_of_schedule,
    refused,
    service_of,
    shown,
)
from engine.api.executions import RowKey
from engine.errors import EngineError, LetterNotFound, RequestMalformed
from engine.page.text import counted, run_link
from engine.schedules import CatchUpPolicy, instant_text, parse_workflow_id
from engine.service import INCLUDED, BackfillOverlap

router = APIRouter(prefix="/schedules/{key}", route_class=PageRoute, include_in_schema=False)

Form = Mapping[str, str]
Act = Callable[[Request, str, Form], Awaitable[str | Response]]


def _action(path: str, back: str = "") -> Callable[[Act], Act]:
    """Return a decorator for the action of a form: it returns what was done, or another answer.

    What was done, or why it was refused, is shown by the page of the schedule, or by ``back``.
    """

    def register(act: Act) -> Act:
        @router.post(path)
        async def run(request: Request, key: RowKey) -> Response:
            place = back or place_of_schedule(key)
            try:
                answer = await act(request, key, form_of(request))
            except EngineError as error:
                return refused(request, place, error)
            return done(request, place, answer) if isinstance(answer, str) else answer

        return act

    return register


def _reason(form: Form) -> str | None:
    return checked_line(form.get("reason"), "reason")


def _moment(form: Form, name: str) -> datetime:
    """Return a moment of a form; one without an offset is in UTC, as its label says."""
    try:
        found = datetime.fromisoformat(form.get(name, ""))
        return checked_moment(found.replace(tzinfo=UTC) if found.tzinfo is None else found)
    except ValueError:
        raise RequestMalformed(
            f"{name} is no moment", hint="write one, as 2026-11-22T02:00"
        ) from None


def _input(form: Form) -> tuple[Any, ...]:
    text = form.get("input")
    if text is None:
        return ()
    try:
        found = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise RequestMalformed(f"the input is not JSON: {error}", hint="write JSON") from None
    return checked_input(found)


def _choice(form: Form, name: str, known: tuple[Any, ...]) -> Any:
    """Return what a list of choices of a form has; None if it says nothing."""
    given = form.get(name)
    if given is not None and given not in known:
        words = ", ".join(known)
        raise RequestMalformed(f"{name} is {given[:40]!r}", hint=f"use one of {words}")
    return given


# --- one schedule ---

_POLICIES: Final = get_args(CatchUpPolicy)


@_action("/pause")
async def pause(request: Request, key: str, form: Form) -> str | Response:
    """Pause a schedule."""
    until = _moment(form, "until") if "until" in form else None
    paused = await service_of(request).pause(key, reason=_reason(form), until=until)
    end = f" until {instant_text(paused.pause.until)}" if paused.pause.until else ""
    return f"{key} is paused{end}"


@_action("/resume")
async def resume(request: Request, key: str, form: Form) -> str | Response:
    """Resume a schedule."""
    catch_up = _choice(form, "catch_up", _POLICIES)
    found = await service_of(request).resume(key, reason=_reason(form), catch_up=catch_up)
    more = f"; {counted(found.caught_up, 'window')} of the pause start" if found.caught_up else ""
    return f"{key} is resumed{more}" if found.before else f"{key} was not paused"


@_action("/trigger")
async def trigger(request: Request, key: str, form: Form) -> str | Response:
    """Start a run now."""
    asked = await service_of(request).trigger(
        key, reason=_reason(form), request_id=form.get("request"), own_input=_input(form)
    )
    return _asked(request, key, asked.fire.workflow_id)


def _asked(request: Request, key: str, workflow_id: str) -> Response:
    page = page_of(request)
    link = run_link(page.ui_url, page.namespace, workflow_id, "") if page.ui_url else ""
    link = link.removesuffix("//history")
    text = f"The run {workflow_id} is asked for"
    return done(request, place_of_schedule(key), text, link=link)


@_action("/skip")
async def skip(request: Request, key: str, form: Form) -> str | Response:
    """Skip a window to come."""
    at = _moment(form, "at")
    await service_of(request).skip(key, at, reason=_reason(form))
    return f"the window of {instant_text(at)} will be skipped"


@_action("/unskip")
async def unskip(request: Request, key: str, form: Form) -> str | Response:
    """Undo the skip of a window to come."""
    at = _moment(form, "at")
    await service_of(request).unskip(key, at, reason=_reason(form))
    return f"the window of {instant_text(at)} will start"


# --- backfills ---

_OVERLAPS: Final = get_args(BackfillOverlap)


@_action("/backfill")
async def backfill(request: Request, key: str, form: Form) -> str | Response:
    """Preview a backfill, or start the one that was previewed."""
    service = service_of(request)
    include = [each for each in INCLUDED if f"include_{each}" in form]
    overlap = _choice(form, "overlap", _OVERLAPS)
    begin, end = _moment(form, "from"), _moment(form, "to")
    if form.get("step") == "start":
        started = await service.backfill(
            key, begin, end, reason=_reason(form), overlap=overlap, include=include
        )
        runs = counted(started.would_start, "run")
        return f"backfill {started.backfill.id} is requested: {runs}"
    seen = await service.preview_backfill(key, begin, end, overlap=overlap, include=include)
    values = {"key": key, "seen": seen, "fields": form, "begin": begin, "end": end}
    return shown(request, "schedules", "backfill.html", values)


# --- dead letters ---


def _run_of_letter(form: Form, key: str) -> str:
    """Return the run of a letter, which is of the schedule of the address.

    Raises:
        LetterNotFound: it is of another one.
    """
    name = form.get("run", "")
    parsed = parse_workflow_id(name)
    if parsed is None or parsed.key != key:
        raise LetterNotFound(f"{key} has no dead letter {name[:200]!r}", hint="see its page")
    return name


@_action("/dead/rerun", "/dead")
async def rerun_dead(request: Request, key: str, form: Form) -> str | Response:
    """Start another run of a window that failed."""
    name = _run_of_letter(form, key)
    asked = await service_of(request).rerun_dead(name, reason=_reason(form))
    return _asked(request, key, asked.fire.workflow_id)


@_action("/dead/drop", "/dead")
async def drop_dead(request: Request, key: str, form: Form) -> str | Response:
    """Discard a dead letter."""
    name = _run_of_letter(form, key)
    await service_of(request).drop_dead(name, reason=_reason(form))
    return f"the letter of {name} is dropped"
