"""Views of the page for operators: what each one reads, and sign-in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Final, cast, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from engine.api.bodies import checked_moment
from engine.api.browser import (
    PageRoute,
    Visit,
    answered,
    begin_session,
    end_session,
    form_of,
    page_of,
    service_of,
    shown,
    visit_of,
)
from engine.api.executions import RowKey, fire_cursor, fire_place, letters_for
from engine.errors import RequestMalformed, SettingsInvalid, TemporalUnavailable, TokenRequired
from engine.page.charts import Durations, Lane, Strip, durations, lane, strip
from engine.page.layout import ASSETS, asset
from engine.page.text import as_yaml, clock, run_link, runs_link, shadowed, shown_status, took
from engine.page.week import WeekLoads
from engine.schedules import TICK, Schedule, readable
from engine.schedules.describe import describe, missing, note
from engine.service import (
    LAST_MOMENT,
    OPEN,
    DeadLetter,
    Filters,
    Fire,
    RunSummary,
    ScheduleRow,
    ScheduleService,
    State,
    Status,
    StepInProgress,
)

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_LISTED: Final = 50
_WINDOWS: Final = 50
_LANES: Final = 25
_TICKS: Final = 120
_NEXT: Final = 6
_LETTERS: Final = 50
_SHOWN: Final = 20
_DAY: Final = timedelta(days=1)
_ASKED: Final = 5
"""Open runs of which Temporal is asked how far their steps are."""
_PATIENCE: Final = timedelta(milliseconds=500)


def _asked(request: Request, name: str, words: Sequence[str] = ()) -> str | None:
    """Return a value of the address; of words only one of these."""
    value = request.query_params.get(name, "").strip()[:1000]
    known = not words or value in words
    return value if value and known and value.isprintable() else None


def _other(request: Request, **changes: str | None) -> str:
    """Return the address of this view with other values; it begins at the first page."""
    values = {**request.query_params, "cursor": None, **changes}
    kept = urlencode({name: value for name, value in values.items() if value})
    return f"{request.url.path}?{kept}" if kept else request.url.path


# --- schedules ---


@dataclass(frozen=True, slots=True)
class ListedSchedule:
    """A schedule of the list, with its summary."""

    row: ScheduleRow
    next_at: datetime | None
    problem: str | None
    summary: RunSummary
    strip: Strip

    @property
    def timezone(self) -> str:
        """The time zone in which its times are shown."""
        return self.row.schedule.timezone if self.row.schedule else "UTC"


def _filters(visit: Visit, text: str | None) -> Filters:
    """Return the filters for the caller's schedules whose key has this text.

    Of a caller for some schedules, those whose key begins with it.
    """
    caller, text = visit.caller, text.lower() if text else None
    if not caller.has_every_key:
        return {"keys": caller.keys, "key_prefix": text}
    if not text:
        return {}
    return {"keys": (text if "*" in text or "?" in text else f"*{text}*",)}


@router.get("/")
async def list_schedules(request: Request) -> Response:
    """Show the schedules, page by page."""

    async def build() -> Mapping[str, Any]:
        service = service_of(request)
        text = _asked(request, "key")
        state = _asked(request, "state", get_args(State))
        last, tag = _asked(request, "last", get_args(Status)), _asked(request, "tag")
        filters: Filters = {
            **_filters(visit_of(request), text),
            "state": cast("State | None", state),
            "last_status": cast("Status | None", last),
            "tag": tag,
        }
        page = await service.list(limit=_LISTED, cursor=_asked(request, "cursor"), **filters)
        summaries = await service.run_summaries([row.key for row in page.schedules])
        listed = [
            ListedSchedule(
                row,
                row.next_start_at if row.state == "active" else None,
                row.problem,
                summary,
                strip(summary.recent),
            )
            for row, summary in zip(page.schedules, summaries, strict=True)
        ]
        return {
            "listed": listed,
            "more": _other(request, cursor=page.cursor) if page.cursor else None,
            "first": _other(request) if _asked(request, "cursor") else None,
            "text": text or "",
            "state": state,
            "last": last,
            "tag": tag,
            "states": get_args(State),
            "statuses": get_args(Status),
        }

    return await answered(request, "schedules", build)


# --- one schedule ---


@dataclass(frozen=True, slots=True)
class ComingWindow:
    """A window to come; ``note`` is what is unusual about it, ``skipped`` why it does not start."""

    at: datetime
    note: str
    skipped: str | None


@dataclass(frozen=True, slots=True)
class ShownFire:
    """A fire, with the page of its run in Temporal's Web UI."""

    fire: Fire
    link: str | None


def _coming(row: ScheduleRow, now: datetime) -> tuple[list[ComingWindow], list[str]]:
    """Return the next windows, and notes on clock times that are left out before the last."""
    schedule = row.schedule
    if schedule is None or row.state != "active":
        return [], []
    times = [*islice(schedule.starts(now, row.last_start_at or LAST_MOMENT), _NEXT)]
    notes = [[shadowed(schedule, at), note(schedule.spec, at)] for at in times]
    found = [
        ComingWindow(at, "; ".join(filter(None, said)), row.skips.get(at))
        for at, said in zip(times, notes, strict=True)
    ]
    gaps = [each.note for each in missing(schedule.spec, now, times[-1])] if times else []
    return found, gaps


def _bars(fires: Sequence[Fire], timezone: str) -> Durations:
    titles = [
        ", ".join(
            filter(
                None,
                (
                    clock(each.fire_time, timezone),
                    shown_status(each).replace("_", " "),
                    took(each.duration_ms),
                ),
            )
        )
        for each in fires
    ]
    return durations(fires, titles)


@router.get("/schedules/{key}")
async def show_schedule(request: Request, key: RowKey) -> Response:
    """Show one schedule: its definition, next fires, windows and what can be done."""

    async def build() -> Mapping[str, Any]:
        service, page, now = service_of(request), page_of(request), datetime.now(UTC)
        row = await service.schedule(key)
        status = _asked(request, "status", get_args(Status))
        cursor = _asked(request, "cursor")
        fires = await service.fires_page(
            key,
            statuses=[cast("Status", status)] if status else (),
            until=now,
            after=fire_place(cursor) if cursor else None,
            limit=_WINDOWS + 1,
        )
        (summary,) = await service.run_summaries([key])
        coming, gaps = _coming(row, now)
        listed, more = fires[:_WINDOWS], len(fires) > _WINDOWS
        timezone = row.schedule.timezone if row.schedule else "UTC"
        return {
            "row": row,
            "summary": summary,
            "problem": row.problem,
            "zone": timezone,
            "words": describe(row.schedule, now=now) if row.schedule else None,
            "yaml": "\n".join(as_yaml(row.schedule)) if row.schedule else None,
            "coming": coming,
            "gaps": gaps,
            "bars": _bars(listed, timezone),
            "fires": [ShownFire(each, _run_link(request, each)) for each in listed],
            "steps": await _steps_of(service, listed),
            "more": _other(request, cursor=fire_cursor(listed[-1])) if more else None,
            "first": _other(request) if cursor else None,
            "status": status,
            "statuses": get_args(Status),
            "runs": runs_link(page.ui_url, page.namespace, key) if page.ui_url else None,
            "backfills": await service.backfills(key, limit=3),
            "children": [*filter(visit_of(request).caller.may_see, await service.children(key))],
            "actions": await service.actions(key=key, limit=8),
            "request_id": f"page-{secrets.token_hex(8)}",
        }

    return await answered(request, "schedule", build)


async def _steps_of(
    service: ScheduleService, fires: Sequence[Fire]
) -> dict[str, tuple[StepInProgress, ...]]:
    """Return the steps in progress of the newest open runs; none if Temporal does not answer."""

    async def read(fire: Fire) -> tuple[StepInProgress, ...]:
        with suppress(TemporalUnavailable, SettingsInvalid):
            return await service.steps_in_progress(fire, within=_PATIENCE)
        return ()

    asked = [fire for fire in fires if fire.status in OPEN and fire.run_id][:_ASKED]
    found = await asyncio.gather(*map(read, asked))
    return {fire.workflow_id: steps for fire, steps in zip(asked, found, strict=True)}


def _run_link(request: Request, of: Fire | DeadLetter) -> str | None:
    page = page_of(request)
    if page.ui_url is None or of.run_id is None:
        return None
    return run_link(page.ui_url, page.namespace, of.workflow_id, of.run_id)


# --- a week ---


def _monday(request: Request, now: datetime) -> datetime:
    asked = _asked(request, "week")
    try:
        day = date.fromisoformat(asked) if asked else now.date()
        checked_moment(datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=14))
    except (ValueError, OverflowError):
        raise RequestMalformed(f"{asked!r} is no day", hint="write a date, as 2026-11-23") from None
    day -= timedelta(days=day.weekday())
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


@router.get("/week")
async def show_week(request: Request) -> Response:
    """Show a week: how many windows each hour has, and those of each schedule."""

    async def build() -> Mapping[str, Any]:
        service, now = service_of(request), datetime.now(UTC)
        caller, text, monday = (
            visit_of(request).caller,
            _asked(request, "key"),
            _monday(request, now),
        )
        filters = _filters(visit_of(request), text)
        keys = filters.get("keys", ()) if caller.has_every_key else caller.keys
        loads: WeekLoads = request.app.state.weeks
        load, counts = await loads.week(monday, keys, now)
        page = await service.list(limit=_LANES, cursor=_asked(request, "cursor"), **filters)
        lanes = await asyncio.gather(*(_lane(service, row, monday, now) for row in page.schedules))
        week = timedelta(days=7)
        return {
            "load": load,
            "counts": counts,
            "lanes": lanes,
            "text": text or "",
            "monday": monday,
            "sunday": monday + 6 * _DAY,
            "Lane": Lane,
            "at": (now - monday) / week if monday <= now < monday + week else None,
            "before": _other(request, week=f"{(monday - week).date()}"),
            "after": _other(request, week=f"{(monday + week).date()}"),
            "today": _other(request, week=None),
            "more": _other(request, cursor=page.cursor) if page.cursor else None,
            "first": _other(request) if _asked(request, "cursor") else None,
        }

    return await answered(request, "week", build)


async def _lane(
    service: ScheduleService, row: ScheduleRow, monday: datetime, now: datetime
) -> Lane:
    end = monday + 7 * _DAY - TICK
    past = await service.fires_page(row.key, since=monday, until=min(end, now), limit=_TICKS)
    coming: list[datetime] = []
    if isinstance(row.schedule, Schedule) and row.state == "active":
        coming = [*islice(row.starts(max(now, monday - TICK), end), _TICKS)]
    return lane(row.key, monday, past, coming, most=_TICKS, now=now)


# --- dead letters, workers, alerts ---


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """A dead letter, with its input as text and the page of its run."""

    letter: DeadLetter
    input: str | None
    link: str | None

    @property
    def is_unwound(self) -> bool:
        """Whether a step ended its run, which then undid all that it had to."""
        letter = self.letter
        ours = "@" in (letter.workflow_type or "")  # another's workflow undoes as it likes
        return ours and letter.given_up is not None and not letter.not_undone


@router.get("/dead")
async def show_dead(request: Request) -> Response:
    """Show fires that failed and were not dealt with."""

    async def build() -> Mapping[str, Any]:
        caller, key = visit_of(request).caller, _asked(request, "key")
        mine = await letters_for(caller, service_of(request), key=key, limit=_LETTERS + 1)
        letters = [
            ShownLetter(each, _input(each), _run_link(request, each)) for each in mine[:_LETTERS]
        ]
        return {"letters": letters, "key": key, "are_more": len(mine) > _LETTERS}

    return await answered(request, "dead", build)


def _input(letter: DeadLetter) -> str | None:
    import json  # noqa: PLC0415

    if not letter.arguments:
        return None
    return json.dumps(readable(letter.arguments[0]), ensure_ascii=False, indent=2, default=str)


@router.get("/workers")
async def show_workers(request: Request) -> Response:
    """Show the workers that have announced themselves."""

    async def build() -> Mapping[str, Any]:
        return {"workers": await service_of(request).workers()}

    return await answered(request, "workers", build)


@router.get("/alerts")
async def show_alerts(request: Request) -> Response:
    """Show what is wrong: windows that have not fired, other conditions, stuck runs, alerts.

    Also subscribers of events that accept nothing.
    """

    async def build() -> Mapping[str, Any]:
        report = await service_of(request).status()
        subscribers = await service_of(request).subscriptions()
        return {
            "report": report,
            "failing": [each for each in subscribers if each.failing_since][:_SHOWN],
            "others": report.others[:_SHOWN],
            "overdue": report.overdue[:_SHOWN],
            "stuck": [ShownFire(each, _run_link(request, each)) for each in report.stuck[:_SHOWN]],
            "alerts": report.unconfirmed[:_SHOWN],
            "lag": took(round(report.lag.total_seconds() * 1000)) if report.lag else None,
        }

    return await answered(request, "alerts", build)


# --- sign-in ---


def _local(place: str | None) -> str:
    """Return a place of this page; never one of another site."""
    is_local = place and place.startswith("/") and not place.startswith(("//", "/\\"))
    return place if place and is_local and place.isprintable() else "/"


def _sign_in(request: Request, place: str, error: str, status: int = 200) -> Response:
    return shown(request, "signin", "signin.html", {"next": place, "error": error}, status)


@router.get("/signin")
async def sign_in_page(request: Request) -> Response:
    """Ask for a token."""
    used = (
        "this address opens once; sign in with the token" if "used" in request.query_params else ""
    )
    return _sign_in(request, _local(request.query_params.get("next")), used)


@router.post("/signin")
async def sign_in(request: Request) -> Response:
    """Take a token, and begin a session."""
    form = form_of(request)
    place, secret = _local(form.get("next")), form.get("token", "")
    try:
        return await begin_session(request, secret, place)
    except TokenRequired as error:
        return _sign_in(request, place, error.message, 401)


@router.get("/enter/{code}")
async def enter(request: Request, code: Annotated[str, Path(max_length=100)]) -> Response:
    """Sign in by an address that works once."""
    secret = page_of(request).codes.pop(code, None)
    if secret is None:
        return RedirectResponse("/signin?used", 303)
    return await begin_session(request, secret, "/")


@router.post("/signout")
async def sign_out(request: Request) -> Response:
    """End the session."""
    return await end_session(request)


@router.get("/assets/{name}")
async def show_asset(name: str) -> Response:
    """Return a file that the page loads."""
    if name not in ASSETS:
        return Response(status_code=404)
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(asset(name), 200, kept, ASSETS[name])
