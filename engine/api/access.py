"""Access to the API: which route needs which scope, and who a request comes from.

The tables are the whole of it (``ROUTES``, ``PAGE_ROUTES``, and ``OPEN_ROUTES``, which need no
token): a route that is in none cannot be registered. Authorization is a matter of the token alone;
what a caller says of itself (an owner, a tenant) permits nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Literal, get_args

from fastapi import Request

from engine.errors import AccessDenied, OriginForeign, TokenRequired
from engine.service import SCOPES, ScheduleService, Scope, TokenRow
from engine.service.tokens import EVERY_KEY, is_same_secret, keys_match, secret_digest

# --- routes ---

PREFIX: Final = "/api/v1"
KEYED: Final = f"{PREFIX}/schedules/{{key}}"

Kept = Literal["answer", "schedule", "nothing"]
"""What is kept of an answer to a request with an Idempotency-Key: all of it; the key of a schedule
that is read again, because inputs may be sealed; or nothing, because the route has no effect."""

Limited = Literal["create", "trigger", "backfill", "file", "refused"]
"""Kinds of requests that a caller may only make so many of; of those that are refused, an address
may."""

LIMITED: Final[tuple[Limited, ...]] = get_args(Limited)


@dataclass(frozen=True, slots=True)
class RouteRule:
    """The rule of one route.

    Attributes:
        scope: the scope that it needs.
        everything: whether it shows more than single schedules, so that the token has to be for
            every key.
        limited: the limit that it counts for.
        kept: see ``Kept``.
        takes_file: whether its body may be a schedule file, in YAML too.
        once: whether a second attempt could do it twice, so that none is made when the end of the
            first is not known.
    """

    scope: Scope
    everything: bool = False
    limited: Limited | None = None
    kept: Kept = "answer"
    takes_file: bool = False
    once: bool = False


ROUTES: Final[Mapping[str, RouteRule]] = {
    f"GET {PREFIX}/schedules": RouteRule("read"),
    f"POST {PREFIX}/schedules": RouteRule("admin", limited="create", kept="schedule"),
    f"GET {KEYED}": RouteRule("read"),
    f"PUT {KEYED}": RouteRule("admin", limited="create"),
    f"PATCH {KEYED}": RouteRule("admin"),
    f"DELETE {KEYED}": RouteRule("admin"),
    f"POST {KEYED}/rename": RouteRule("admin", kept="schedule"),
    f"POST {KEYED}/reschedule": RouteRule("admin", kept="schedule"),
    f"POST {KEYED}/pause": RouteRule("operate"),
    f"POST {KEYED}/resume": RouteRule("operate"),
    f"POST {KEYED}/trigger": RouteRule("operate", limited="trigger"),
    f"POST {KEYED}/backfill": RouteRule("operate", limited="backfill", once=True),
    f"POST {KEYED}/skip": RouteRule("operate"),
    f"POST {KEYED}/unskip": RouteRule("operate"),
    f"POST {KEYED}/cancel": RouteRule("operate"),
    f"POST {KEYED}/rerun": RouteRule("operate", limited="trigger", once=True),
    f"GET {KEYED}/executions": RouteRule("read"),
    f"GET {KEYED}/executions/{{workflow_id}}": RouteRule("read"),
    f"GET {KEYED}/fires": RouteRule("read"),
    f"GET {KEYED}/next": RouteRule("read"),
    f"GET {PREFIX}/dead": RouteRule("read"),
    f"GET {PREFIX}/workers": RouteRule("read", everything=True),
    f"GET {PREFIX}/hooks": RouteRule("read", everything=True),
    f"POST {PREFIX}/hooks": RouteRule("admin", everything=True, limited="create"),
    f"PATCH {PREFIX}/hooks/{{hook}}": RouteRule("admin", everything=True),
    f"DELETE {PREFIX}/hooks/{{hook}}": RouteRule("admin", everything=True),
    f"POST {PREFIX}/plan": RouteRule(
        "read", everything=True, limited="file", kept="nothing", takes_file=True
    ),
    f"POST {PREFIX}/simulate": RouteRule("read", limited="file", kept="nothing", takes_file=True),
}
"""Every route of the API that needs access, by method and path."""

_PAGED: Final = "/schedules/{key}"

PAGE_ROUTES: Final[Mapping[str, RouteRule]] = {
    "GET /": RouteRule("read"),
    "GET /week": RouteRule("read"),
    f"GET {_PAGED}": RouteRule("read"),
    "GET /dead": RouteRule("read"),
    "GET /workers": RouteRule("read", everything=True),
    "GET /alerts": RouteRule("read", everything=True),
    f"POST {_PAGED}/pause": RouteRule("operate"),
    f"POST {_PAGED}/resume": RouteRule("operate"),
    f"POST {_PAGED}/trigger": RouteRule("operate", limited="trigger"),
    f"POST {_PAGED}/skip": RouteRule("operate"),
    f"POST {_PAGED}/unskip": RouteRule("operate"),
    f"POST {_PAGED}/backfill": RouteRule("operate", limited="backfill"),
    f"POST {_PAGED}/dead/rerun": RouteRule("operate", limited="trigger"),
    f"POST {_PAGED}/dead/drop": RouteRule("operate"),
    "POST /signout": RouteRule("read"),
}
"""Every route of the page for operators that needs access. Browsers show a cookie there, which no
route of the API reads; a request that changes something also shows the word of its form."""

OPEN_ROUTES: Final = frozenset(
    {
        "GET /healthz",
        "GET /readyz",
        f"GET {PREFIX}/openapi.json",
        "GET /assets/{name}",
        "GET /enter/{code}",
        "GET /signin",
        "POST /signin",
    }
)
"""Routes that say nothing about schedules, and need no token."""


# --- callers ---

_TRUST: Final = 0.5
"""Seconds for which a token or a session that was good is not read again for what only reads."""
_MOST_TRUSTED: Final = 1000


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller of a request.

    Attributes:
        id: the id of the token, or a word for a caller without one.
        name: the name in the audit log.
        scope: what the caller may do.
        keys: the schedules that the caller may do it with.
        projects, task_queues, external: see ``TokenRow``.
        address: the address that the connection comes from.
        secret: a digest of what the caller shows, which the ledger does not have; digests of
            requests are made with it.
    """

    id: str
    name: str
    scope: Scope
    keys: tuple[str, ...]
    address: str
    secret: bytes = field(default=b"", repr=False)
    projects: tuple[str, ...] = (EVERY_KEY,)
    task_queues: tuple[str, ...] = (EVERY_KEY,)
    external: tuple[str, ...] = (EVERY_KEY,)

    @property
    def actor(self) -> str:
        """Return the actor in the audit log."""
        return f"{self.name} at {self.address}"

    @property
    def has_every_key(self) -> bool:
        """Whether the caller's schedules are all there are."""
        return EVERY_KEY in self.keys

    def may_see(self, key: str) -> bool:
        """Return whether a schedule is one of the caller's."""
        return self.has_every_key or keys_match(self.keys, key)

    def require(self, rule: RouteRule, key: str | None) -> None:
        """Check that the caller may use a route, for this schedule.

        Raises:
            AccessDenied: the token has another scope, or is for other schedules. Whether the
                schedule exists was not looked up.
        """
        if SCOPES.index(self.scope) < SCOPES.index(rule.scope):
            raise AccessDenied(
                f"this needs a token of scope {rule.scope}, and {self.name} has {self.scope}",
                hint=f"`sched token create NAME --scope {rule.scope}` makes one",
            )
        places = (self.keys, self.projects, self.task_queues, self.external)
        if rule.everything and not all(EVERY_KEY in each for each in places):
            raise AccessDenied(
                f"this needs a token for every schedule and project, and {self.name} is for some",
                hint="`sched token create NAME` without --keys makes one",
            )
        if key is not None:
            self.require_key(key)

    def require_key(self, key: str) -> None:
        """Check that a schedule is one of the caller's.

        Raises:
            AccessDenied: it is not.
        """
        if not self.may_see(key):
            raise AccessDenied(
                f"{self.name} is not for the schedule {key}",
                hint="see `sched token list` for the keys of each token",
            )

    def require_place(self, project: str, task_queue: object, external: object) -> None:
        """Check that the caller may have a schedule start runs there.

        Args:
            project: whose workers start them.
            task_queue: where they run.
            external: the Temporal type, if no worker of the project has to know it; else None.

        Raises:
            AccessDenied: the token is for other places.
        """
        asked = (("project", project, self.projects), ("task queue", task_queue, self.task_queues))
        for what, name, patterns in (*asked, ("external type", external, self.external)):
            # What is no text is refused as a field.
            if isinstance(name, str) and not keys_match(patterns, name):
                raise AccessDenied(
                    f"{self.name} is not for the {what} {name[:200]}",
                    hint="see `sched token list` for what each token may use",
                )


_Find = Callable[[str, str], Awaitable[Caller | None]]
"""Returns the caller of a secret and an address."""


@dataclass
class Access:
    """The ways in: tokens of the ledger, tokens of this process, and the open door of loopback.

    Args:
        service: the service that knows the ledger's tokens.
        own: tokens of this process with full rights, by the name of each: ``SCHED_API_TOKEN``,
            and the one that ``sched up`` prints.
        open_door: whether a caller without a token has full rights. Only on loopback, and only
            until the ledger has a token; then the door stays shut.
        require_left: raises ``RateExceeded`` if an address may try no more tokens.
    """

    service: ScheduleService
    own: Mapping[str, str] = field(default_factory=dict, repr=False)
    open_door: bool = False
    require_left: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._own = {name: secret_digest(secret) for name, secret in self.own.items()}
        self._trusted: dict[tuple[str, str, str], tuple[Caller, float]] = {}

    async def caller(self, request: Request, *, reads: bool = False) -> Caller:
        """Return the caller of a request.

        Args:
            request: the request.
            reads: whether it changes nothing; then a token that was in force just now is.

        Raises:
            TokenRequired: it carries no token that is in force.
        """
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        is_bearer = not secret or kind.lower() == "bearer"
        shown = secret.strip() if is_bearer else "?"
        return await self.holder(shown, address_of(request), reads=reads)

    async def holder(self, secret: str, address: str, *, reads: bool = False) -> Caller:
        """Return the caller that shows this token; without one, that of the open door.

        Raises:
            TokenRequired: it is not in force, or none is given and one is needed.
            RateExceeded: too many requests of this address were refused.
        """
        if not secret:
            return await self._without_token(address)
        if secret.isascii():
            found = self._own_caller(secret, address) or await self._known(
                self._of_token, secret, address, reads=reads
            )
            if found is not None:
                return found
        raise TokenRequired(
            "the token is not in force", hint="`sched token list` shows those that are"
        )

    # --- sessions of browsers ---

    async def begin_session(self, token: str, address: str) -> str:
        """Begin a session of the holder of a token, and return its secret.

        Raises:
            TokenRequired: the token is not in force.
        """
        caller = await self.holder(token, address)
        return await self.service.begin_session(caller.id, token)

    async def visitor(self, session: str, address: str, *, reads: bool = False) -> Caller:
        """Return the caller that shows a session; without one, that of the open door.

        Raises:
            TokenRequired: the session has ended, or its token is not in force.
        """
        if not session:
            return await self._without_token(address)
        found = await self._known(self._of_session, session, address, reads=reads)
        if found is None:
            raise TokenRequired("the session has ended", hint="sign in again")
        return found

    async def end_session(self, session: str) -> None:
        """End a session, in every process; reads of others notice it within the trust."""
        await self.service.end_session(session)
        self._trusted = {
            who: kept for who, kept in self._trusted.items() if who[0] != self._of_session.__name__
        }

    # --- who it is ---

    async def _without_token(self, address: str) -> Caller:
        if self.open_door and await self.service.has_tokens():
            self.open_door = False
        if not self.open_door:
            raise TokenRequired(hint="send it as Authorization: Bearer TOKEN")
        return Caller("loopback", "api", "admin", (EVERY_KEY,), address)

    def _own_caller(self, secret: str, address: str) -> Caller | None:
        # Each is compared, so that the time does not say which one it is.
        same = [name for name, digest in self._own.items() if is_same_secret(secret, digest)]
        keyed = _request_secret(secret)
        return next((Caller(n, n, "admin", (EVERY_KEY,), address, keyed) for n in same), None)

    async def _known(self, find: _Find, secret: str, address: str, *, reads: bool) -> Caller | None:
        """Return the caller of a secret that the ledger knows; reads trust it for a moment."""
        who, now = (find.__name__, secret_digest(secret), address), monotonic()
        caller, until = self._trusted.get(who, (None, now))
        if reads and caller is not None and now < until:
            return caller
        if caller is None:
            self.require_left(address)
        if (caller := await find(secret, address)) is None:
            self._trusted.pop(who, None)
            return None
        if len(self._trusted) >= _MOST_TRUSTED:
            self._trusted.clear()
        self._trusted[who] = caller, now + _TRUST
        return caller

    async def _of_token(self, secret: str, address: str) -> Caller | None:
        row = await self.service.token_of(secret)
        return None if row is None else await self._holding(row, secret, address)

    async def _of_session(self, secret: str, address: str) -> Caller | None:
        session = await self.service.session_of(secret)
        if session is None:
            return None
        if session.row is not None:
            return await self._holding(session.row, secret, address)
        if self._own.get(session.token) != session.token_digest:
            return None  # of another process, or of its last run
        keyed = _request_secret(secret)
        return Caller(session.token, session.token, "admin", (EVERY_KEY,), address, keyed)

    async def _holding(self, row: TokenRow, secret: str, address: str) -> Caller:
        await self.service.note_use(row, address=address)
        keyed = _request_secret(secret)
        places = row.projects, row.task_queues, row.external
        return Caller(row.id, f"token {row.name}", row.scope, row.keys, address, keyed, *places)


def _request_secret(secret: str) -> bytes:
    """Return the key that signs what a caller sends, for ``request_digest`` and forms."""
    return bytes.fromhex(secret_digest(f"request {secret}"))


def address_of(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client else "unknown"


# --- the browser next door ---


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is this machine alone."""
    if host.lower() == "localhost":
        return True
    in_brackets = host[:1] == "[" and host[-1:] == "]"
    try:
        return ipaddress.ip_address(host[1:-1] if in_brackets else host).is_loopback
    except ValueError:
        return False


_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{0,5})?")
"""A ``Host`` header: a name, or an IPv6 address in brackets, and a port."""


def require_own_name(headers: Mapping[str, str], hosts: frozenset[str]) -> None:
    """Check that a request was sent to a name of this API, and by no page of another site.

    A page can make a browser send requests to loopback, and a name that it owns can be made to
    mean loopback. It can change neither ``Host`` nor ``Origin``.

    Raises:
        OriginForeign: the name or the page is another one.
    """
    host = headers.get("host", "")
    found = _HOST.fullmatch(host)
    name = found["name"] if found else host
    if found is None or not (is_loopback(name) or name.lower() in hosts):
        raise OriginForeign(
            f"the API has no name {name[:80]!r}", hint="SCHED_API_HOSTS names those that it has"
        )
    origin = headers.get("origin")
    own = origin is None or origin in {f"http://{host}", f"https://{host}"}
    if not own or headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        raise OriginForeign(
            "the request comes from a page of another site", hint="call the API from a program"
        )
