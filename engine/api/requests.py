"""Course of a request before and after its route: access, body, limits, repetitions.

A repetition is a request with the Idempotency-Key of an earlier one. The ledger keeps its keyed
digest and its answer for a day, so that a client that has lost an answer may ask again, of any
process of the API.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import signature
from math import ceil
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from pydantic_core import from_json
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.types import Receive, Scope, Send

from engine.api.access import (
    OPEN_ROUTES,
    ROUTES,
    Access,
    Caller,
    Limited,
    RouteRule,
    address_of,
    require_own_name,
)
from engine.api.problems import status_of
from engine.errors import (
    AccessDenied,
    BodyTooLarge,
    EngineError,
    KeyReused,
    LedgerUnavailable,
    MediaTypeWrong,
    OriginForeign,
    ParentTimesDiffer,
    RateExceeded,
    RequestInUse,
    RequestMalformed,
    RequestRefused,
    RequestUnfinished,
    ScheduleNotFound,
    TokenRequired,
)
from engine.schedules import Rate
from engine.service import RepeatedRequest, RequestKey, ScheduleService

if TYPE_CHECKING:
    from engine.service import Ledger

# --- options ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """Options of one API.

    Attributes:
        tokens: tokens with full rights that only this process knows, by name.
        hosts: names by which it is reached, besides loopback.
        rates: the most requests of a caller by kind; one that is missing is not limited.
        open_door: whether a caller without a token may do everything, as long as the ledger has
            no token.
        namespace: the Temporal namespace, which the page shows.
        ui_url: the URL of Temporal's Web UI, to which the page links.
        codes: tokens by the code of an address of the page that signs in with it, once: a code
            that was used is taken out.
        project: the project of what is declared without one; None is that of the environment.
    """

    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    hosts: Iterable[str] = ()
    rates: Mapping[Limited, Rate] = field(default_factory=dict)
    open_door: bool = False
    namespace: str = "default"
    ui_url: str | None = None
    codes: dict[str, str] = field(default_factory=dict, repr=False)
    project: str | None = None


# --- bodies ---

MOST_BYTES: Final = 1 << 20
"""The largest body."""
JSON_TYPES: Final = frozenset({"application/json", "application/merge-patch+json"})
FILE_TYPES: Final = frozenset({"application/json", "application/yaml"})
_PATIENCE: Final = 30.0
"""Seconds that a client may take to send a body."""
_SERVER_ERROR: Final = 500


async def read_body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        BodyTooLarge: it has more than ``MOST_BYTES``; the rest is not read.
        RequestMalformed: it does not arrive in time.
    """
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > MOST_BYTES:
        raise _too_large()
    found = bytearray()
    try:
        async with asyncio.timeout(_PATIENCE):
            async for chunk in request.stream():
                found += chunk
                if len(found) > MOST_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise RequestMalformed("the body did not arrive in time") from None
    return bytes(found)


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"a body has at most {MOST_BYTES} bytes", hint="send less at once")


def _require_media_type(request: Request, *, takes_file: bool) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    allowed = FILE_TYPES if takes_file else JSON_TYPES
    if given not in allowed:
        raise MediaTypeWrong(
            f"the content type is {given[:80]!r}" if given else "there is no content type",
            hint="send Content-Type: application/json"
            + (" or application/yaml" if takes_file else ", and {} if there is nothing to say"),
        )


def _parsed(body: bytes) -> Any:
    """Return the JSON value of a body; none is an empty object."""
    try:
        return from_json(body or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise RequestMalformed(
            f"the body is not JSON: {error}", hint="send a JSON object of at most 200 levels"
        ) from None


# --- limits ---

logger = logging.getLogger("sched.api")
_LONGEST: Final = 300
"""Characters of a refusal in the log."""


class RateLimits:
    """Numbers of requests by caller and kind, in this process.

    Args:
        rates: see ``ApiOptions``.
    """

    def __init__(self, rates: Mapping[Limited, Rate]) -> None:
        self._items: dict[Limited, tuple[Rate, RateLimitItem]] = {
            kind: (rate, RateLimitItemPerSecond(rate.count, ceil(rate.per.total_seconds())))
            for kind, rate in rates.items()
        }
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def count(self, kind: Limited, caller: Caller) -> None:
        """Count a request.

        Raises:
            RateExceeded: it is one too many.
        """
        if (found := self._items.get(kind)) is None:
            return
        rate, item = found
        place = kind, caller.id, caller.address
        if not self._limiter.hit(item, *place):
            reset = self._limiter.get_window_stats(item, *place).reset_time
            raise RateExceeded(
                f"{caller.name} may make {rate} requests of this kind",
                retry_after=max(1, ceil(reset - time.time())),
                hint="wait as long as Retry-After says",
            )


@dataclass(slots=True)
class Refusals:
    """Requests that are refused for their token or where they come from: logged, and limited.

    Beyond the limit no token of the address is looked up but those that were good before.

    Args:
        rate: the most of an address that are answered as such; None is any number.
    """

    rate: Rate | None = None
    _limiter: MovingWindowRateLimiter = field(
        default_factory=lambda: MovingWindowRateLimiter(MemoryStorage())
    )

    def require_left(self, address: str) -> None:
        """Check that an address may try another token.

        Raises:
            RateExceeded: too many of its requests were refused.
        """
        if self._item is not None and not self._limiter.test(self._item, _network(address)):
            raise self._exceeded(address)

    def note(self, route: str, address: str, error: RequestRefused) -> None:
        """Log a refused request, and count it.

        Raises:
            RateExceeded: it is one too many, and is not logged.
        """
        left = 1
        if (item := self._item) is not None:
            if not self._limiter.hit(item, _network(address)):
                raise self._exceeded(address)
            left = self._limiter.get_window_stats(item, _network(address)).remaining
        # The path may have a code that signs in, and a message may have what the client sent.
        text = "".join(sign if sign.isprintable() else "?" for sign in error.message[:_LONGEST])
        more = "" if left else "; its next ones are answered with 429, and not logged"
        logger.warning(
            "%s of %s is refused: %s%s",
            *(route, address, text, more),
            extra={"code": error.code},
        )

    @property
    def _item(self) -> RateLimitItem | None:
        if self.rate is None:
            return None
        return RateLimitItemPerSecond(self.rate.count, ceil(self.rate.per.total_seconds()))

    def _exceeded(self, address: str) -> RateExceeded:
        return RateExceeded(
            f"{self.rate} requests of {address} were refused",
            retry_after=ceil(self.rate.per.total_seconds()) if self.rate else 1,
            hint="wait as long as Retry-After says, and use a token that is in force",
        )


def _network(address: str) -> str:
    """Return the address that is counted: of IPv6 the network, which one machine has whole."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ipaddress.ip_network((int(found), 64), False))  # noqa: PLR2004 - host bits are set; IPv4


# --- repetitions ---

KEPT_FOR: Final = timedelta(hours=24)
_LEASE: Final = timedelta(seconds=60)
"""Time after which another process may take over a request whose process has vanished."""
_WAITS: Final = 10.0
_FIRST_LOOK, _SLOWEST_LOOK = 0.05, 0.5
_KEY: Final = re.compile(r"[!-~]{1,200}")


@dataclass
class Repetitions:
    """Requests with an Idempotency-Key.

    Args:
        ledger: keeps their digests and answers.
    """

    ledger: Ledger
    _locks: dict[RequestKey, tuple[asyncio.Lock, int]] = field(default_factory=dict)

    @asynccontextmanager
    async def one_at_a_time(self, of: RequestKey) -> AsyncIterator[None]:
        """Let the requests of one key pass one after the other, in this process."""
        lock, users = self._locks.get(of, (asyncio.Lock(), 0))
        self._locks[of] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[of]
            if users == 1:
                del self._locks[of]
            else:
                self._locks[of] = lock, users - 1

    async def taken(self, of: RequestKey, digest: str) -> tuple[RepeatedRequest, bool]:
        """Take a request into work, or wait for its answer; see ``AccessStore.claim``.

        Raises:
            KeyReused: the key stands for another request.
            RequestUnfinished: another process has it in work for longer than this one waits.
        """
        until, pause = time.monotonic() + _WAITS, _FIRST_LOOK
        while True:
            row, mine = await self.ledger.access.claim(of, digest, lease=_LEASE, kept=KEPT_FOR)
            if row.digest != digest:
                raise KeyReused(
                    "the Idempotency-Key was used for another request of the last 24 hours",
                    hint="use a new key for each request",
                )
            if mine or row.answer is not None:
                return row, mine
            if time.monotonic() > until:
                raise RequestUnfinished(
                    "the same request is still in work", hint="repeat it with the same key"
                )
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST_LOOK)


def request_digest(request: Request, body: bytes, caller: Caller) -> str:
    """Return the digest of what a request asks for, keyed by the caller's secret.

    A reader of the ledger cannot try guesses of a body.
    """
    asked = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + body
    return hmac.new(caller.secret, asked, hashlib.sha256).hexdigest()


# --- routes ---


@dataclass
class PageState:
    """Things that the page for operators needs besides.

    Attributes:
        namespace, ui_url, codes: see ``ApiOptions``.
        secret: signs the forms of callers without a token.
    """

    namespace: str = "default"
    ui_url: str | None = None
    codes: dict[str, str] = field(default_factory=dict, repr=False)
    secret: bytes = field(default_factory=lambda: token_bytes(32), repr=False)


@dataclass
class ApiState:
    """Things that the routes of one application share.

    Attributes:
        service: the service, to act on behalf of callers.
        access: who may come in.
        hosts: the names of the API besides loopback.
        limits: the limits of callers.
        refusals: requests that were refused.
        repetitions: the requests with an Idempotency-Key.
        shown: answers with the schedule of a key, as it is now.
        page: what the page needs besides.
        files: lets one file at a time be read; Python does that, and other requests wait for it.
    """

    service: ScheduleService
    access: Access
    hosts: frozenset[str]
    limits: RateLimits
    refusals: Refusals
    repetitions: Repetitions
    shown: Callable[[ScheduleService, str, int], Awaitable[Response]]
    files: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    page: PageState = field(default_factory=PageState)


def api_state(request: Request) -> ApiState:
    """Return the state of the application that the request is for."""
    return state_of(request.app)


def state_of(app: FastAPI) -> ApiState:
    """Return the state of an application."""
    state: ApiState = app.state.api
    return state


class GuardedRoute(APIRoute):
    """A route that checks access before anything else; its rule is in ``ROUTES``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, with all that stands before it."""
        # Where FastAPI has nothing to fill in, a page need not wait for it.
        plain = [*signature(self.endpoint).parameters] == ["request"]
        handler = self.endpoint if plain else super().get_route_handler()
        (method,) = sorted(self.methods or ())
        name = f"{method} {self.path_format}"
        if name in OPEN_ROUTES:
            return handler
        rule = ROUTES[name]

        async def guarded(request: Request) -> Response:
            state = api_state(request)
            caller = await _let_in(state, request, rule, name)
            body = b""
            if method in {"POST", "PUT", "PATCH"}:
                _require_media_type(request, takes_file=rule.takes_file)
                body = await read_body(request)
                # Both are where Starlette keeps what it has read.
                request._body = body  # noqa: SLF001
                if not rule.takes_file:
                    request._json = _parsed(body)  # noqa: SLF001
            if rule.limited:
                state.limits.count(rule.limited, caller)
            request.state.caller = caller
            request.state.repeated = request.state.identity = None
            key = request.headers.get("idempotency-key")
            try:
                if key is None or method != "POST":
                    return await handler(request)
                of = RequestKey(caller.id, name, _checked(key))
                digest = request_digest(request, body, caller)
                async with state.repetitions.one_at_a_time(of):
                    return await _repeatable(state, request, handler, rule, of, digest)
            except EngineError as error:
                allowed = without_others(error, caller, made=rule.limited == "create")
                if allowed is error:
                    raise
                raise allowed from None

        return guarded


async def _let_in(state: ApiState, request: Request, rule: RouteRule, name: str) -> Caller:
    """Return the caller of a request that may use its route; note one that may not.

    Raises:
        RequestRefused: it may not.
    """
    try:
        require_own_name(request.headers, state.hosts)
        caller = await state.access.caller(request, reads=rule.scope == "read")
        await _require_access(caller, rule, state.service, request.path_params.get("key"))
    except (TokenRequired, AccessDenied, OriginForeign) as error:
        state.refusals.note(name, address_of(request), error)
        raise
    return caller


async def _require_access(
    caller: Caller, rule: RouteRule, service: ScheduleService, key: str | None
) -> None:
    """Check that the caller may use a route, for all keys that this schedule has had.

    What is shown of it, and done with it, concerns the windows of all of them.

    Raises:
        AccessDenied: it may not.
    """
    caller.require(rule, key)
    if key is None or caller.has_every_key:
        return
    if not all(map(caller.may_see, await service.keys_of(key))):
        raise AccessDenied(
            f"{caller.name} is not for all keys that {key} has had",
            hint="a token for each of them is needed; see `sched token list`",
        )


def without_others(error: EngineError, caller: Caller, *, made: bool = False) -> EngineError:
    """Return an error without keys that may not be the caller's.

    Args:
        error: the error; its text or its hint may name schedules.
        caller: who is answered.
        made: whether it is about a new schedule, which follows only what the caller may see.
    """
    if caller.has_every_key:
        return error
    if isinstance(error, ScheduleNotFound):
        return ScheduleNotFound(error.key)
    if isinstance(error, RequestInUse):
        return RequestInUse("the clientRequestId was used before", hint="use another one")
    if isinstance(error, ParentTimesDiffer) and not made:
        text = "a schedule that follows this one would have no windows of its fire times"
        return ParentTimesDiffer(text, hint="a token for every schedule is shown which")
    return error


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise RequestMalformed(
            "the Idempotency-Key is not valid", hint="use 1 to 200 printable ASCII characters"
        )
    return key


async def _repeatable(
    state: ApiState,
    request: Request,
    handler: Callable[[Request], Coroutine[Any, Any, Response]],
    rule: RouteRule,
    of: RequestKey,
    digest: str,
) -> Response:
    """Answer a request with an Idempotency-Key: by its route, or as before."""
    row, mine = await state.repetitions.taken(of, digest)
    if not mine and row.answer is not None:
        if rule.kept != "nothing":
            return await _again(state, json.loads(row.answer))
        return await handler(request)
    book = state.repetitions.ledger.access
    if rule.once and row.attempts > 1:
        await book.release(of, row.claim)
        raise RequestUnfinished(
            "an earlier attempt of this request did not come to its end, and may have had its"
            " effect",
            hint="look at the executions, and use a new Idempotency-Key if it had none",
        )
    request.state.repeated, request.state.identity = row, row.identity(of)
    try:
        answer = await handler(request)
    except (EngineError, RequestValidationError) as error:
        if not isinstance(error, EngineError) or status_of(error) < _SERVER_ERROR:
            await book.drop(of, row.claim)  # it had no effect
        else:
            await book.release(of, row.claim)
        raise
    except BaseException:
        await book.release(of, row.claim)
        raise
    await book.answer(of, row.claim, json.dumps(_kept(answer, rule)))
    return answer


_KEPT_HEADERS: Final = ("location", "etag")


def _kept(answer: Response, rule: RouteRule) -> dict[str, Any]:
    if rule.kept == "nothing":
        return {}
    if rule.kept == "schedule":
        return {
            "status": answer.status_code,
            "key": answer.headers["content-location"].rpartition("/")[2],
        }
    headers = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    body = bytes(answer.body).decode()
    return {"status": answer.status_code, "headers": headers, "body": body}


async def _again(state: ApiState, kept: dict[str, Any]) -> Response:
    if "key" in kept:
        found = await state.shown(state.service, kept["key"], kept["status"])
    else:
        found = Response(
            kept["body"], kept["status"], kept["headers"], media_type="application/json"
        )
    found.headers["Idempotency-Replayed"] = "true"
    return found


# --- streams ---
# A stream looks again and again, and sends what is new. The ledger's notifications are hints for
# workers; a stream that listened to them would need a connection of its own.

_STREAMS: Final = 100
"""The most streams of one process."""
_STREAMS_OF_ONE: Final = 25
"""The most of them with one token."""
_ASKED_AGAIN: Final = 0.5
"""Seconds after which the caller is checked again; with the trust in it that is a second."""
_SEND_WITHIN: Final = 30.0
_PING: Final = 15

NewEvents = Callable[[], AsyncIterator[ServerSentEvent]]
"""Yields what is new since the last look."""


def streamed(
    request: Request,
    caller: Caller,
    look: NewEvents,
    ask: Callable[[], Awaitable[None]],
    *,
    every: float,
    share: int = 0,
    hint: str,
) -> EventSourceResponse:
    """Answer with a stream of what each look finds.

    Args:
        request: the request.
        caller: the caller of it.
        look: looks once.
        ask: raises ``RequestRefused`` if the caller may no longer follow.
        every: seconds between two looks.
        share: a look may take one part in so many of the time; 0 is all of it.
        hint: what to do when too many streams are open.

    Raises:
        RateExceeded: too many are open.
    """
    followers: dict[object, str] = request.app.state.followers
    if len(followers) >= _STREAMS:
        raise RateExceeded(f"{_STREAMS} streams are open", retry_after=5, hint=hint)
    if sum(each == caller.id for each in followers.values()) >= _STREAMS_OF_ONE:
        text = f"{caller.name} has {_STREAMS_OF_ONE} streams open"
        raise RateExceeded(text, retry_after=5, hint=hint)
    events = _looks(request, look, _Asking(ask), every, share)
    return _Stream(followers, caller, events)


class _Stream(EventSourceResponse):
    """A stream that counts from its request to its end."""

    def __init__(
        self,
        followers: dict[object, str],
        caller: Caller,
        events: AsyncIterator[ServerSentEvent],
    ) -> None:
        super().__init__(events, ping=_PING, send_timeout=_SEND_WITHIN)
        self._followers = followers
        followers[self] = caller.id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            del self._followers[self]


@dataclass
class _Asking:
    """Whether the caller of a stream may still follow, asked twice a second."""

    ask: Callable[[], Awaitable[None]]
    asked: float = field(default_factory=time.monotonic)

    async def again(self) -> None:
        """Ask, if that is due."""
        if time.monotonic() - self.asked >= _ASKED_AGAIN:
            with suppress(LedgerUnavailable):
                await self.ask()
            self.asked = time.monotonic()

    async def during(self, seconds: float) -> None:
        """Ask again and again for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _ASKED_AGAIN))
            await self.again()


async def _looks(
    request: Request, look: NewEvents, asking: _Asking, every: float, share: int
) -> AsyncIterator[ServerSentEvent]:
    try:
        while True:
            began = time.monotonic()
            async for event in look():
                await asking.again()
                yield event
            if request.app.state.leaving:
                return
            await asking.during(max(every, share * (time.monotonic() - began)))
    except EngineError:
        return  # the client asks again, and gets the answer to that
