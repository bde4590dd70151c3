"""Access to the API: tokens, and requests that may be repeated."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args
from uuid import UUID

# --- tokens ---

Scope = Literal["read", "operate", "admin"]
"""What a token may do; each scope includes those before it."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)


SESSION_LASTS: Final = timedelta(days=30)
"""Age up to which a sign-in of a browser is good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token of the API, without its secret.

    Attributes:
        id: the public part of the token, unique in the namespace.
        name: the name in the audit log; one token in force has it.
        keys: the schedules that it is for, whole keys with ``*`` for any text and ``?`` for one
            character.
        projects: patterns of the projects in which it may declare schedules.
        task_queues: patterns of the task queues that these may name.
        external: patterns of the Temporal types that these may start with ``external: true``.
        digest: the SHA-256 of the whole token, in hex.
        used_at, used_from: its last use, to a minute, and the caller's address.
        in_force: whether it was neither revoked nor has expired, by the ledger's clock.
    """

    id: str
    name: str
    scope: Scope
    keys: tuple[str, ...]
    projects: tuple[str, ...]
    task_queues: tuple[str, ...]
    external: tuple[str, ...]
    digest: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    used_at: datetime | None = None
    used_from: str | None = None
    in_force: bool = True

    @property
    def state(self) -> str:
        """Its state in words."""
        if self.in_force:
            return "in force"
        return "revoked" if self.revoked_at else "expired"


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A sign-in of a browser.

    Attributes:
        token: the id of the token; of one that the ledger does not have, its name.
        token_digest: the digest of the token.
        row: the token, if the ledger has it.
    """

    token: str
    token_digest: str
    row: TokenRow | None = None


# --- requests that may be repeated ---


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Name of a request that a client may repeat.

    Attributes:
        caller: the id of the token, or the word for callers without one.
        route: the method and the path's template.
        key: the Idempotency-Key.
    """

    caller: str
    route: str
    key: str


@dataclass(frozen=True, slots=True)
class RepeatedRequest:
    """The row of a request that may be repeated.

    Attributes:
        digest: the keyed digest of what was asked.
        claim: who has it in work.
        first_at: when it came first.
        attempts: how many processes have had it in work; from 2 on, the end of the one before is
            not known.
        answer: what was answered; None if nothing was yet.
    """

    digest: str
    claim: UUID
    first_at: datetime
    attempts: int = 1
    answer: str | None = None

    def identity(self, of: RequestKey) -> str:
        """Return a digest, in hex, that each attempt of this request has, and no other request.

        ``digest`` is no identity: a client may ask for the same twice, with two keys.
        """
        parts = [of.caller, of.route, of.key, self.first_at.astimezone(UTC).isoformat()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
