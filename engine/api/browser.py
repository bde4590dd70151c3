"""Requests of browsers to the page for operators: sign-in, forms, errors as pages, live parts.

A browser shows the secret of its session in a cookie, which no route of the API reads. A form that
changes something carries a word that only our own pages have; where it comes from is checked too.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from sse_starlette.event import ServerSentEvent

from engine.api.access import (
    OPEN_ROUTES,
    PAGE_ROUTES,
    Caller,
    RouteRule,
    address_of,
    require_own_name,
)
from engine.api.problems import ShownProblem, shape_faults, shown_problem
from engine.api.requests import PageState, api_state, read_body, streamed, without_others
from engine.errors import (
    AccessDenied,
    EngineError,
    LedgerUnavailable,
    MediaTypeWrong,
    OriginForeign,
    RequestMalformed,
    TokenRequired,
)
from engine.page.layout import digest, rendered
from engine.service import SCOPES, ScheduleService

Build = Callable[[], Awaitable[Mapping[str, Any]]]
"""Reads what a view shows."""

# --- visits ---

_SAID_FOR: Final = 60
_LONGEST_SAID: Final = 800


@dataclass(frozen=True, slots=True)
class Visit:
    """A visit of a caller: one request of a browser.

    Attributes:
        caller: who has signed in.
        word: the CSRF token of the caller's forms; a page of another site cannot know it.
        rule: the rule of the route.
    """

    caller: Caller
    word: str
    rule: RouteRule

    @property
    def operates(self) -> bool:
        """Whether the caller may change something."""
        return SCOPES.index(self.caller.scope) >= SCOPES.index("operate")


def visit_of(request: Request) -> Visit:
    """Return the visit that the request was accepted as."""
    visit: Visit = request.state.visit
    return visit


def form_of(request: Request) -> dict[str, str]:
    """Return the fields of the form, without those that are empty."""
    form: dict[str, str] = request.state.form
    return form


def page_of(request: Request) -> PageState:
    """Return what the page of the application needs."""
    return api_state(request).page


def service_of(request: Request) -> ScheduleService:
    """Return the service on behalf of the caller."""
    return api_state(request).service.acting(visit_of(request).caller.actor)


def cookie_name(request: Request, kind: str) -> str:
    """Return the name of a cookie; ports of one machine share their cookies."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"sched-{kind}-{port if port.isdecimal() else 'page'}"


async def caller_of_cookie(request: Request) -> Caller:
    """Return the caller whose session the cookie names, or that of the open door.

    Raises:
        TokenRequired: there is none.
    """
    access = api_state(request).access
    session, reads = _session_of(request), request.method == "GET"
    try:
        return await access.visitor(session, address_of(request), reads=reads)
    except TokenRequired:
        # A cookie of an earlier run closes no door that is open.
        return await access.holder("", address_of(request))


def _session_of(request: Request) -> str:
    return request.cookies.get(cookie_name(request, "session"), "")


async def begin_session(request: Request, token: str, place: str) -> Response:
    """Answer a sign-in: begin a session, whose cookie no script reads, and go to a place.

    Raises:
        TokenRequired: the token is not in force.
    """
    state, address = api_state(request), address_of(request)
    try:
        session = await state.access.begin_session(token or "?", address)
    except TokenRequired as error:
        state.refusals.note("POST /signin", address, error)
        raise
    answer = RedirectResponse(place, 303)
    answer.set_cookie(
        cookie_name(request, "session"),
        session,
        httponly=True,
        samesite="strict",
        secure=request.headers.get("origin", "").startswith("https:"),
    )
    return answer


async def end_session(request: Request) -> Response:
    """Answer a sign-out: end the session, also for every copy of its cookie."""
    await api_state(request).access.end_session(_session_of(request))
    answer = RedirectResponse("/signin", 303)
    answer.delete_cookie(cookie_name(request, "session"), httponly=True, samesite="strict")
    return answer


def _word(request: Request, caller: Caller) -> str:
    key = caller.secret or page_of(request).secret
    return hmac.new(key, b"a form of the page", "sha256").hexdigest()


# --- the route ---


class PageRoute(APIRoute):
    """A route of the page that checks access before anything else; ``PAGE_ROUTES`` has its rule."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, with all that stands before and behind it."""
        handler = super().get_route_handler()
        (method,) = sorted(self.methods or ())
        name = f"{method} {self.path_format}"
        rule = None if name in OPEN_ROUTES else PAGE_ROUTES[name]

        async def guarded(request: Request) -> Response:
            try:
                answer = await _noted(name, request, _accepted(request, handler, rule))
            except RequestValidationError as error:
                malformed = RequestMalformed(shape_faults(error.errors()))
                answer = error_page(request, malformed)
            except TokenRequired as error:
                answer = _to_sign_in(request, error)
            except EngineError as error:
                answer = error_page(request, error)
            for header, value in _HEADERS.items():
                answer.headers.setdefault(header, value)
            return answer

        return guarded


_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


async def _noted(name: str, request: Request, answering: Awaitable[Response]) -> Response:
    """Return the answer, or note that it is refused; a visitor without a sign-in is none of these.

    Raises:
        RateExceeded: one too many is refused.
    """
    try:
        return await answering
    except (TokenRequired, AccessDenied, OriginForeign) as error:
        if not isinstance(error, TokenRequired) or _session_of(request):
            api_state(request).refusals.note(name, address_of(request), error)
        raise


async def _accepted(
    request: Request,
    handler: Callable[[Request], Coroutine[Any, Any, Response]],
    rule: RouteRule | None,
) -> Response:
    """Check the request, and answer it by its route."""
    state = api_state(request)
    _require_own_page(request, state.hosts)
    visit = None
    if rule is not None:
        caller = await caller_of_cookie(request)
        caller.require(rule, request.path_params.get("key"))
        visit = request.state.visit = Visit(caller, _word(request, caller), rule)
    request.state.form = {}
    if request.method == "POST":
        request.state.form = await _form(request)
        if visit is not None:
            _require_own_form(request.state.form, visit)
    if visit is not None and visit.rule.limited:
        state.limits.count(visit.rule.limited, visit.caller)
    return await handler(request)


def _require_own_form(form: dict[str, str], visit: Visit) -> None:
    """Check that a form comes from a page of this sign-in, and take its word out."""
    given = form.pop("word", "")
    if not hmac.compare_digest(given.encode(), visit.word.encode()):
        raise OriginForeign(
            "the form does not come from a page of this sign-in",
            hint="load the page again, and send the form once more",
        )


def _require_own_page(request: Request, hosts: frozenset[str]) -> None:
    """Check that the request comes from our own page; a link of another site may lead here."""
    headers = dict(request.headers)
    if request.method == "GET" and headers.get("sec-fetch-mode") == "navigate":
        headers["sec-fetch-site"] = "none"
    require_own_name(headers, hosts)


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise MediaTypeWrong("this is no form", hint="use the forms of the page, or the API")
    body = await read_body(request)
    try:
        fields = parse_qsl(body.decode(), max_num_fields=50)
    except ValueError:
        raise RequestMalformed("the form cannot be read") from None
    return {name: value.strip() for name, value in fields if value.strip()}


def _to_sign_in(request: Request, error: TokenRequired) -> Response:
    if request.method != "GET" or "text/event-stream" in request.headers.get("accept", ""):
        return error_page(request, error)
    if request.headers.get("sec-fetch-site") == "cross-site":
        # The browser keeps the cookie back from a link of another site, but not from our own page.
        return HTMLResponse(rendered("again.html", {"base": "plain.html"}))
    place = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/signin?{urlencode({'next': place})}", 303)


def error_page(request: Request, error: EngineError) -> Response:
    """Return the page about an error, with its status and code."""
    found = _problem_for(request, error)
    return shown(request, "", "error.html", {"problem": found}, found.status)


def _problem_for(request: Request, error: EngineError) -> ShownProblem:
    """Return what the visitor may know of an error; before sign-in it names no schedule."""
    visit: Visit | None = getattr(request.state, "visit", None)
    return shown_problem(without_others(error, visit.caller) if visit else error)


# --- answers ---


def chrome(
    request: Request, visit: Visit | None, view: str, *, error: bool = False
) -> dict[str, Any]:
    """Return what every view has around it.

    Args:
        request: the request.
        visit: its visit; None before sign-in.
        view: the name of the view, for the menu.
        error: whether it is about an error, so that it does not follow anything.
    """
    page = page_of(request)
    return {
        "now": datetime.now(UTC),
        "view": view,
        "namespace": page.namespace,
        "ui": page.ui_url,
        "visit": visit,
        "live": not error,
        "said": None if error or visit is None else _notice(request, visit),
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
    }


def shown(
    request: Request, view: str, template: str, values: Mapping[str, Any], status: int = 200
) -> Response:
    """Answer with a page that does not follow anything."""
    visit: Visit | None = getattr(request.state, "visit", None)
    around = chrome(request, visit, view, error=True)
    return HTMLResponse(rendered(template, {**around, **values}), status)


async def answered(request: Request, view: str, build: Build) -> Response:
    """Answer with a view: as a page, or as a stream of the part of it that changes."""
    visit = visit_of(request)
    if "text/event-stream" in request.headers.get("accept", ""):
        return _stream(request, view, build)
    values = {**chrome(request, visit, view), **await build()}
    answer = HTMLResponse(rendered(f"{view}.html", values))
    if values["said"]:
        answer.delete_cookie(cookie_name(request, "said"), httponly=True, samesite="strict")
    return answer


def done(request: Request, place: str, text: str, *, link: str = "", bad: bool = False) -> Response:
    """Answer a form: go to a place, whose page says once what was done.

    Args:
        request: the request of the form.
        place: where to go.
        text: what was done.
        link: the address of what the text is about.
        bad: whether it was refused.
    """
    visit, body = visit_of(request), {"text": text[:_LONGEST_SAID], "link": link, "bad": bad}
    packed = base64.urlsafe_b64encode(json.dumps(body).encode()).decode()
    answer = RedirectResponse(place, 303)
    answer.set_cookie(
        cookie_name(request, "said"),
        f"{packed}.{_seal(visit, packed)}",
        max_age=_SAID_FOR,
        httponly=True,
        samesite="strict",
    )
    return answer


def refused(request: Request, place: str, error: EngineError) -> Response:
    """Answer a form that was refused: go to a place, whose page says once why."""
    found = _problem_for(request, error)
    text = "; ".join(part for part in (found.detail, found.hint) if part)
    return done(request, place, f"{found.code}: {text}", bad=True)


def _seal(visit: Visit, packed: str) -> str:
    return hmac.new(visit.word.encode(), packed.encode(), "sha256").hexdigest()


def _notice(request: Request, visit: Visit) -> dict[str, Any] | None:
    """Return what the form before has led to; only what was sealed here counts."""
    packed, _, seal = request.cookies.get(cookie_name(request, "said"), "").partition(".")
    if not packed or not hmac.compare_digest(seal.encode(), _seal(visit, packed).encode()):
        return None
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(packed))
    return found


def place_of_schedule(key: str) -> str:
    """Return the address of a schedule's page."""
    return f"/schedules/{quote(key, safe='')}"


# --- live ---
# A stream reads its view again and again, and sends the part that changes when it has changed. It
# takes at most a twentieth of its time, so that many viewers of a large view do not stop the rest.

_LOOKS: Final = 2.0
_SHARE: Final = 20


def _stream(request: Request, view: str, build: Build) -> Response:
    """Answer with the part of a view that changes, whenever it has changed."""
    before = b""

    async def look() -> AsyncIterator[ServerSentEvent]:
        nonlocal before
        try:
            values = {**chrome(request, visit_of(request), view), **await build()}
        except LedgerUnavailable:
            yield ServerSentEvent(event="away", data="the ledger does not answer")
            return
        part = rendered(f"{view}.html", {**values, "said": None, "base": "part.html"})
        if (after := digest(part)) != before:
            before = after
            yield ServerSentEvent(event="part", data=part)

    async def ask() -> None:
        caller = await caller_of_cookie(request)
        caller.require(visit_of(request).rule, request.path_params.get("key"))

    caller = visit_of(request).caller
    return streamed(request, caller, look, ask, every=_LOOKS, share=_SHARE, hint="close a page")
