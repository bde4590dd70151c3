"""Access to the API: tokens, and requests that may be repeated."""

from __future__ import annotations

__all__ = [
    "SCOPES",
    "AccessBook",
    "AccessInMemory",
    "RepeatedRequest",
    "RequestKey",
    "Scope",
    "TokenRow",
]

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol, get_args
from uuid import UUID, uuid4

# --- tokens ---

Scope = Literal["read", "operate", "admin"]
"""What a token may do; each scope includes those before it."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token of the API, without its secret.

    Attributes:
        id: the public part of the token, unique in the namespace.
        name: the name in the audit log; one token in force has it.
        keys: the schedules that it is for, whole keys with ``*`` for any text and ``?`` for one
            character.
        digest: the SHA-256 of the whole token, in hex.
        used_at, used_from: its last use, to a minute, and the caller's address.
        in_force: whether it was neither revoked nor has expired, by the ledger's clock.
    """

    id: str
    name: str
    scope: Scope
    keys: tuple[str, ...]
    digest: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    used_at: datetime | None = None
    used_from: str | None = None
    in_force: bool = True


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


class AccessBook(Protocol):
    """The tokens of a namespace, and its requests of the last day that may be repeated."""

    async def add(self, new: TokenRow) -> datetime | None:
        """Write a token and return when; None if one in force has its name."""

    async def tokens(self) -> list[TokenRow]:
        """Return every token, those that were revoked last."""

    async def has_tokens(self) -> bool:
        """Return whether there is a token, in force or not."""

    async def token(self, token_id: str) -> TokenRow | None:
        """Return the token of this id, in force or not."""

    async def revoke(self, name: str, *, by: str) -> bool:
        """Revoke the token of this name; return False if none in force has it."""

    async def used(self, token_id: str, *, address: str) -> None:
        """Record a use of a token."""

    async def claim(
        self, of: RequestKey, digest: str, *, lease: timedelta, kept: timedelta
    ) -> tuple[RepeatedRequest, bool]:
        """Take a request into work; return its row, and whether it was taken.

        It is not taken if it has an answer, another digest, or another process has had it in work
        for less than ``lease``. A row that is older than ``kept`` counts for nothing.
        """

    async def answer(self, of: RequestKey, claim: UUID, answer: str) -> None:
        """Record what was answered."""

    async def drop(self, of: RequestKey, claim: UUID) -> None:
        """Forget a request that had no effect."""

    async def release(self, of: RequestKey, claim: UUID) -> None:
        """Let the next one with this key take over a request whose end is not known."""

    async def forget(self, kept: timedelta) -> None:
        """Delete the requests that are older than ``kept``."""


# --- in memory ---


class AccessInMemory:
    """Tokens and requests of a ledger in memory."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._tokens: dict[str, TokenRow] = {}
        self._requests: dict[RequestKey, tuple[RepeatedRequest, datetime]] = {}

    async def add(self, new: TokenRow) -> datetime | None:
        """See ``AccessBook``."""
        if any(each.name == new.name and not each.revoked_at for each in self._tokens.values()):
            return None
        now = self._clock()
        self._tokens[new.id] = replace(new, created_at=now)
        return now

    async def tokens(self) -> list[TokenRow]:
        """See ``AccessBook``."""
        return sorted(
            map(self._seen, self._tokens.values()),
            key=lambda each: (each.revoked_at is not None, each.name, each.created_at),
        )

    async def has_tokens(self) -> bool:
        """See ``AccessBook``."""
        return bool(self._tokens)

    async def token(self, token_id: str) -> TokenRow | None:
        """See ``AccessBook``."""
        found = self._tokens.get(token_id)
        return found and self._seen(found)

    def _seen(self, row: TokenRow) -> TokenRow:
        expired = row.expires_at is not None and row.expires_at <= self._clock()
        return replace(row, in_force=row.revoked_at is None and not expired)

    async def revoke(self, name: str, *, by: str) -> bool:
        """See ``AccessBook``."""
        for row in self._tokens.values():
            if row.name == name and row.revoked_at is None:
                self._tokens[row.id] = replace(row, revoked_at=self._clock(), revoked_by=by)
                return True
        return False

    async def used(self, token_id: str, *, address: str) -> None:
        """See ``AccessBook``."""
        row = self._tokens[token_id]
        self._tokens[token_id] = replace(row, used_at=self._clock(), used_from=address)

    async def claim(
        self, of: RequestKey, digest: str, *, lease: timedelta, kept: timedelta
    ) -> tuple[RepeatedRequest, bool]:
        """See ``AccessBook``."""
        now = self._clock()
        row, until = self._requests.get(of, (None, now))
        if row is None or row.first_at < now - kept:
            row = RepeatedRequest(digest, uuid4(), now)
        elif row.answer is None and until <= now and row.digest == digest:
            row = replace(row, claim=uuid4(), attempts=row.attempts + 1)
        else:
            return row, False
        self._requests[of] = row, now + lease
        return row, True

    async def answer(self, of: RequestKey, claim: UUID, answer: str) -> None:
        """See ``AccessBook``."""
        if (mine := self._mine(of, claim)) is not None:
            self._requests[of] = replace(mine, answer=answer), self._clock()

    async def drop(self, of: RequestKey, claim: UUID) -> None:
        """See ``AccessBook``."""
        if self._mine(of, claim) is not None:
            del self._requests[of]

    async def release(self, of: RequestKey, claim: UUID) -> None:
        """See ``AccessBook``."""
        if (mine := self._mine(of, claim)) is not None:
            self._requests[of] = mine, self._clock()

    def _mine(self, of: RequestKey, claim: UUID) -> RepeatedRequest | None:
        row, _ = self._requests.get(of, (None, None))
        return row if row is not None and row.claim == claim else None

    async def forget(self, kept: timedelta) -> None:
        """See ``AccessBook``."""
        edge = self._clock() - kept
        self._requests = {of: had for of, had in self._requests.items() if had[0].first_at >= edge}
