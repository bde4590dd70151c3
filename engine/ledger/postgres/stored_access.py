"""Tokens of the API, sessions of browsers and repeated requests of a ledger in PostgreSQL.

Separate, like the alerts: no statement of a tick is here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from engine.ledger.access import (
    SESSION_LASTS,
    BrowserSession,
    RepeatedRequest,
    RequestKey,
    TokenRow,
)
from engine.ledger.postgres.connections import values
from engine.ledger.postgres.rows import Row, Statements, record_of


class AccessStore:
    """The tokens, sessions and repeated requests of a ledger in PostgreSQL.

    Args:
        statements: runs those of the ledger by their names.
    """

    def __init__(self, statements: Statements) -> None:
        self._ledger, self._run = statements, statements.run

    async def add(self, new: TokenRow) -> datetime | None:
        """Write a token and return when; None if one in force has its name."""
        return await self._ledger.value("add_token", *values("add_token", new))

    async def tokens(self) -> list[TokenRow]:
        """Return every token, those that were revoked last."""
        return list(map(_as_token, await self._ledger.filtered("tokens", {})))

    async def has_tokens(self) -> bool:
        """Return whether there is a token, in force or not."""
        return bool(await self._ledger.value("has_tokens"))

    async def token(self, token_id: str) -> TokenRow | None:
        """Return the token of this id, in force or not."""
        rows = await self._ledger.filtered("tokens", {"id": token_id})
        return _as_token(rows[0]) if rows else None

    async def revoke(self, name: str, *, by: str) -> bool:
        """Revoke the token of this name; return False if none in force has it."""
        return bool(await self._run("revoke_token", name, by))

    async def used(self, token_id: str, *, address: str) -> None:
        """Record a use of a token."""
        await self._run("token_used", token_id, address)

    async def claim(
        self, of: RequestKey, digest: str, *, lease: timedelta, kept: timedelta
    ) -> tuple[RepeatedRequest, bool]:
        """Take a request into work; return its row, and whether it was taken.

        It is not taken if it has an answer, another digest, or another process has had it in work
        for less than ``lease``. A row that is older than ``kept`` counts for nothing.
        """
        while True:
            rows = await self._run("claim_request", *_named(of), digest, uuid4(), lease, kept)
            if rows:
                return RepeatedRequest(**rows[0]), True
            if rows := await self._run("request_of", *_named(of)):
                return RepeatedRequest(**rows[0]), False
            # It was dropped between the two statements.

    async def answer(self, of: RequestKey, claim: UUID, answer: str) -> None:
        """Record what was answered."""
        await self._run("answer_request", *_named(of), claim, answer)

    async def drop(self, of: RequestKey, claim: UUID) -> None:
        """Forget a request that had no effect."""
        await self._run("drop_request", *_named(of), claim)

    async def release(self, of: RequestKey, claim: UUID) -> None:
        """Let the next one with this key take over a request whose end is not known."""
        await self._run("release_request", *_named(of), claim)

    async def begin_session(self, digest: str, token: str, token_digest: str) -> None:
        """Write a session of a browser."""
        await self._run("begin_session", digest, token, token_digest)

    async def session(self, digest: str, *, lasts: timedelta) -> BrowserSession | None:
        """Return the session of this digest, unless it began longer ago."""
        rows = await self._run("session", digest, lasts)
        if not rows:
            return None
        (found,) = rows
        token = _as_token(found) if found["id"] is not None else None
        return BrowserSession(found["token"], found["token_digest"], token)

    async def end_session(self, digest: str) -> None:
        """Delete a session."""
        await self._run("end_session", digest)

    async def forget(self, *, requests: timedelta, sessions: timedelta = SESSION_LASTS) -> None:
        """Delete the requests and the sessions that are older than this."""
        await self._run("forget_requests", requests)
        await self._run("forget_sessions", sessions)


def _named(of: RequestKey) -> tuple[str, str, str]:
    return of.caller, of.route, of.key


def _as_token(row: Row) -> TokenRow:
    return record_of(TokenRow, row)
