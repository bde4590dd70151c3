"""Tokens of the API and repeated requests of the ledger in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from engine.ledger.access import RepeatedRequest, RequestKey, TokenRow


class AccessInMemory:
    """Tokens and requests of a ledger in memory."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._tokens: dict[str, TokenRow] = {}
        self._requests: dict[RequestKey, tuple[RepeatedRequest, datetime]] = {}

    async def add(self, new: TokenRow) -> datetime | None:
        if any(each.name == new.name and not each.revoked_at for each in self._tokens.values()):
            return None
        now = self._clock()
        self._tokens[new.id] = replace(new, created_at=now)
        return now

    async def tokens(self) -> list[TokenRow]:
        return sorted(
            map(self._seen, self._tokens.values()),
            key=lambda each: (each.revoked_at is not None, each.name, each.created_at),
        )

    async def has_tokens(self) -> bool:
        return bool(self._tokens)

    async def token(self, token_id: str) -> TokenRow | None:
        found = self._tokens.get(token_id)
        return found and self._seen(found)

    def _seen(self, row: TokenRow) -> TokenRow:
        expired = row.expires_at is not None and row.expires_at <= self._clock()
        return replace(row, in_force=row.revoked_at is None and not expired)

    async def revoke(self, name: str, *, by: str) -> bool:
        for row in self._tokens.values():
            if row.name == name and row.revoked_at is None:
                self._tokens[row.id] = replace(row, revoked_at=self._clock(), revoked_by=by)
                return True
        return False

    async def used(self, token_id: str, *, address: str) -> None:
        row = self._tokens[token_id]
        self._tokens[token_id] = replace(row, used_at=self._clock(), used_from=address)

    async def claim(
        self, of: RequestKey, digest: str, *, lease: timedelta, kept: timedelta
    ) -> tuple[RepeatedRequest, bool]:
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
        if (mine := self._mine(of, claim)) is not None:
            self._requests[of] = replace(mine, answer=answer), self._clock()

    async def drop(self, of: RequestKey, claim: UUID) -> None:
        if self._mine(of, claim) is not None:
            del self._requests[of]

    async def release(self, of: RequestKey, claim: UUID) -> None:
        if (mine := self._mine(of, claim)) is not None:
            self._requests[of] = mine, self._clock()

    def _mine(self, of: RequestKey, claim: UUID) -> RepeatedRequest | None:
        row, _ = self._requests.get(of, (None, None))
        return row if row is not None and row.claim == claim else None

    async def forget(self, kept: timedelta) -> None:
        edge = self._clock() - kept
        self._requests = {of: had for of, had in self._requests.items() if had[0].first_at >= edge}
