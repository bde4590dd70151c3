"""Application of the API: its routes, its document, and the server that it runs in."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine import __version__
from engine.api import executions, files, page_actions, page_views, schedules
from engine.api.access import LIMITED, PREFIX, Access, is_loopback
from engine.api.connections import ACCEPTED_AT_ONCE, BoundedProtocol
from engine.api.problems import ProblemDocument, add_handlers, problem
from engine.api.requests import (
    KEPT_FOR,
    ApiOptions,
    ApiState,
    GuardedRoute,
    PageState,
    RateLimits,
    Refusals,
    Repetitions,
    state_of,
)
from engine.errors import LedgerError, RequestMalformed, SettingsInvalid
from engine.page.week import WeekLoads
from engine.runtime.settings import Settings
from engine.schedules import Rate
from engine.service import ScheduleService

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.converter import DataConverter

    from engine.service import Ledger

_FORGETS_EVERY: Final = 3600.0
_PATIENCE: Final = 2.0
"""Seconds that the ledger may take to answer `/readyz`."""
_LEAVES_WITHIN: Final = 5
MOST_HEAD: Final = 1 << 16
"""Bytes of the longest line and headers of a request."""
_TOO_LARGE: Final = 431
_FILES: Final = Rate(60, timedelta(minutes=1))
"""The most files of a caller that are read."""
_REFUSED: Final = Rate(60, timedelta(minutes=1))
"""The most requests of an address that are refused and logged."""


def options_of(
    settings: Settings, tokens: Mapping[str, str], *, host: str, **of_page: Any
) -> ApiOptions:
    """Return the options of an API that listens on ``host``.

    Args:
        settings: names and limits.
        tokens: see ``ApiOptions``.
        host: the address.
        of_page: the options that the page alone has.
    """
    rates = {
        "create": settings.api_create_rate,
        "trigger": settings.api_trigger_rate,
        "backfill": settings.api_backfill_rate,
        "file": _FILES,
        "refused": _REFUSED,
    }
    return ApiOptions(
        tokens=tokens,
        hosts=[*settings.api_hosts, host],
        rates={kind: rate for kind in LIMITED if (rate := rates[kind]) is not None},
        open_door=not tokens and is_loopback(host),
        **of_page,
    )


def create_app(
    ledger: Ledger,
    options: ApiOptions,
    *,
    data_converter: DataConverter | Callable[[], DataConverter | None] | None = None,
    client: Callable[[], Awaitable[Client]] | None = None,
) -> FastAPI:
    """Return the application of the API on a ledger; the caller closes the ledger.

    The two arguments are those of ``ScheduleService``.
    """
    service = ScheduleService(
        ledger, actor="api", data_converter=data_converter, client=client, project=options.project
    )
    repetitions, refusals = Repetitions(ledger), Refusals(options.rates.get("refused"))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        forgetting = asyncio.create_task(_forget_old(ledger))
        yield
        forgetting.cancel()
        with suppress(asyncio.CancelledError, LedgerError):
            await forgetting

    app = FastAPI(
        title="sched-engine",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.api = ApiState(
        service=service,
        access=Access(service, options.tokens, options.open_door, refusals.require_left),
        hosts=frozenset(host.lower() for host in options.hosts),
        limits=RateLimits(options.rates),
        refusals=refusals,
        repetitions=repetitions,
        shown=schedules.shown,
        page=PageState(options.namespace, options.ui_url, options.codes),
    )
    app.state.followers, app.state.leaving = {}, False
    app.state.weeks = WeekLoads(service)
    _include(app, ledger)
    add_handlers(app)
    app.add_middleware(_Headers)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign] # FastAPI's way to do it
    return app


def _include(app: FastAPI, ledger: Ledger) -> None:
    """Give the application every route; FastAPI keeps those of a router to itself."""
    routers = (schedules.router, executions.router, files.router, _open_routes(app, ledger))
    app.state.routes = []
    for router in (*routers, page_views.router, page_actions.router):
        app.include_router(router)
        app.state.routes += router.routes


async def _forget_old(ledger: Ledger) -> None:
    """Delete old requests and sign-ins, again and again."""
    while True:
        await asyncio.sleep(_FORGETS_EVERY)
        await ledger.access.forget(requests=KEPT_FOR)


def _open_routes(app: FastAPI, ledger: Ledger) -> APIRouter:
    router = APIRouter(route_class=GuardedRoute, include_in_schema=False)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> JSONResponse:
        asked = asyncio.create_task(ledger.identity())
        asked.add_done_callback(_forgotten)
        await asyncio.wait({asked}, timeout=_PATIENCE)
        # It is not cancelled: that would wait until the silent connection is cut.
        if asked.done():
            with suppress(LedgerError):
                asked.result()
                return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "the ledger does not answer"}, 503)

    @router.get(f"{PREFIX}/openapi.json")
    async def openapi() -> dict[str, Any]:
        return app.openapi()

    return router


def _forgotten(asked: asyncio.Task[str]) -> None:
    """Read the error of a question whose answer was given up."""
    if not asked.cancelled():
        asked.exception()


class _Headers:
    """Headers: those of a request are bounded, and no answer is stored or guessed at."""

    _every = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                message["headers"] += [each for each in self._every if each[0] not in known]
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif _head_of(scope) > MOST_HEAD:
            text = f"the head of a request has at most {MOST_HEAD} bytes"
            answer = problem(RequestMalformed(text, hint="send less"), Request(scope), _TOO_LARGE)
            await answer(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)


def _head_of(scope: Scope) -> int:
    """Return the bytes of a request's line and headers.

    h11 bounds a head that arrives in pieces, and none that is whole in what it reads at once.
    """
    line = len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


# --- document ---

_REPEATABLE: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A request that is repeated with the same key within a day is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = get_openapi(
        title="sched-engine",
        version=__version__,
        openapi_version="3.1.0",
        description="Schedules and what became of them. `sched docs api` is the guide.",
        routes=app.routes,
    )
    components = document["components"]
    components["schemas"]["ProblemDocument"] = ProblemDocument.model_json_schema(
        ref_template="#/components/schemas/{model}"
    )
    part = components["schemas"]["ProblemDocument"].pop("$defs", {})
    components["schemas"] |= {k: v for k, v in part.items() if k not in components["schemas"]}
    components["schemas"]["Declaration"] = schedules.DECLARATION
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    for path in document["paths"].values():
        for method, operation in path.items():
            # FastAPI documents answers of its own, which are problems here.
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
            if method == "post":
                operation.setdefault("parameters", []).append(_REPEATABLE)
    app.openapi_schema = document
    return document


# --- server ---


class _QuietServer(uvicorn.Server):
    """Server that leaves signals to the command that runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        OSError: the port is taken, or the address is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.create_server((host, port), family=family, backlog=1024)
    # Connections inherit it. Else the second packet of an answer waits for the client's ACK, which
    # takes 40 ms.
    place.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return place


@asynccontextmanager
async def serving(app: FastAPI, place: socket.socket) -> AsyncIterator[None]:
    """Serve the application on a socket while the block lasts; the socket is closed then."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        http=BoundedProtocol,  # of h11: the other one that may be installed bounds no header
        backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=_LEAVES_WITHIN,
        timeout_keep_alive=15,
        h11_max_incomplete_event_size=MOST_HEAD,
        ws="none",
    )
    server = _QuietServer(config)
    running = asyncio.create_task(server.serve(sockets=[place]))
    try:
        yield
    finally:
        app.state.leaving = server.should_exit = True
        await running
        place.close()


async def require_tokens(app: FastAPI, options: ApiOptions, *, host: str) -> bool:
    """Check that an API that others can reach has a token; return whether it needs one.

    Raises:
        SettingsInvalid: it would be open to everyone who can reach it.
    """
    service = state_of(app).service
    in_force = any(each.in_force for each in await service.tokens())
    if not is_loopback(host) and not options.tokens and not in_force:
        problem = f"--host {host} can be reached from other machines, and there is no token"
        hint = "make one with `sched token create`, or set SCHED_API_TOKEN"
        raise SettingsInvalid([f"{problem}; {hint}"])
    return not options.open_door or await service.has_tokens()
