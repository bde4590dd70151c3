"""Tokens of the API: made, listed, revoked, and recognised in a request."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from engine.errors import TokenInvalid, TokenNameInUse, TokenNotFound
from engine.ledger import SCOPES, SESSION_LASTS, BrowserSession, Scope, TokenRow
from engine.schedules import Schedule, utc_text
from engine.service.base import ReadOperations

EVERY_KEY: Final = "*"
"""Pattern of every key, and of every project, task queue and type."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PATTERN: Final = re.compile(r"[a-z0-9._*?-]{1,200}")
_PLACE: Final = re.compile(r"[!-~]{1,200}")
_MOST_PATTERNS: Final = 50
_MINUTE: Final = timedelta(minutes=1)
_TASK_QUEUE: Final[str] = Schedule.model_fields["task_queue"].default
_LONGEST: Final = timedelta(days=3650)
_FORM: Final = re.compile(r"sched_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
"""A token: a public id, and 256 random bits."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was made; ``secret`` is shown once, and kept nowhere."""

    row: TokenRow
    secret: str = field(repr=False)


def new_secret() -> tuple[str, str]:
    """Return the id of a new token, and the whole token."""
    token_id = secrets.token_hex(8)
    return token_id, f"sched_{token_id}_{secrets.token_urlsafe(32)}"


def secret_digest(secret: str) -> str:
    """Return the SHA-256 of a token, in hex.

    A token has 256 random bits, so that a slow hash would only slow down the server.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def is_same_secret(given: str, digest: str) -> bool:
    """Return whether a token has this digest; the time that it takes says nothing about it."""
    return hmac.compare_digest(secret_digest(given), digest)


def keys_match(patterns: Iterable[str], key: str) -> bool:
    """Return whether one of the patterns stands for the whole key, or the whole name."""
    return any(fnmatchcase(key, each) for each in patterns)


class Tokens(ReadOperations):
    """Operations on the tokens of the API."""

    async def create_token(
        self,
        name: str,
        *,
        scope: Scope,
        keys: Iterable[str] = (EVERY_KEY,),
        projects: Iterable[str] | None = None,
        task_queues: Iterable[str] | None = None,
        external: Iterable[str] | None = None,
        expires: datetime | timedelta | None = None,
    ) -> NewToken:
        """Make a token; its secret is in the result and cannot be read again.

        Args:
            name: its name in the audit log; one token in force has it.
            scope: what it may do: ``read``, ``operate`` or ``admin``; each includes those before.
            keys: the schedules that it is for: whole keys, with ``*`` for any text and ``?`` for
                one character.
            projects: patterns of the projects in which it may declare schedules. By default every
                one, of a token for some keys that of this service.
            task_queues: patterns of the task queues that these may name; by default every one, of
                a token for some keys that of schedules without any.
            external: patterns of the Temporal types that these may start with ``external: true``;
                by default every one, of a token for some keys none.
            expires: until when it is in force, or for how long; None is until it is revoked.

        Raises:
            TokenInvalid: the name, the scope, a pattern or the end is not valid.
            TokenNameInUse: a token in force has the name.
        """
        patterns = tuple(dict.fromkeys(keys))
        _require_valid(name, scope)
        _require_patterns(patterns, _PATTERN, "key", as_in="billing.*")
        some = EVERY_KEY not in patterns
        in_projects = _places(projects, (self.project,) if some else (EVERY_KEY,))
        on_queues = _places(task_queues, (_TASK_QUEUE,) if some else (EVERY_KEY,))
        types = _places(external, () if some else (EVERY_KEY,))
        async with self._ledger.transaction() as transaction:
            now = await transaction.now()
        until = now + expires if isinstance(expires, timedelta) else expires
        if until is not None and not now < until.astimezone(UTC) <= now + _LONGEST:
            raise TokenInvalid(
                f"a token cannot end at {utc_text(until)}, it is {utc_text(now)}",
                hint="name a moment of the next ten years",
            )
        token_id, secret = new_secret()
        row = TokenRow(
            id=token_id,
            name=name,
            scope=scope,
            keys=patterns,
            projects=in_projects,
            task_queues=on_queues,
            external=types,
            digest=secret_digest(secret),
            created_by=self._actor,
            created_at=now,
            expires_at=until,
        )
        if await self._ledger.access.add(row) is None:
            raise TokenNameInUse(
                f"there is a token {name}",
                hint=f"choose another name, or revoke it with `sched token revoke {name}`",
            )
        return NewToken(row, secret)

    async def tokens(self) -> list[TokenRow]:
        """Return every token, those that were revoked last."""
        return await self._ledger.access.tokens()

    async def has_tokens(self) -> bool:
        """Return whether the ledger has a token, or had one."""
        return await self._ledger.access.has_tokens()

    async def revoke_token(self, name: str) -> None:
        """Revoke a token; it changes nothing more, and reads and follows for a second at most.

        Raises:
            TokenNotFound: no token in force has the name.
        """
        if not await self._ledger.access.revoke(name, by=self._actor):
            raise TokenNotFound(
                f"there is no token {name[:64]!r} in force", hint="`sched token list` shows each"
            )

    async def token_of(self, secret: str) -> TokenRow | None:
        """Return the token in force of this secret; None if there is none."""
        form = _FORM.fullmatch(secret)
        row = await self._ledger.access.token(form[1]) if form else None
        # Compared in any case, so that the time does not say whether the id is known.
        same = is_same_secret(secret, row.digest if row else "")
        return row if row is not None and same and row.in_force else None

    # --- sessions of browsers ---

    async def begin_session(self, token_id: str, secret: str) -> str:
        """Begin a session of the holder of a token, and return the session's secret.

        Args:
            token_id: the token's id; of one that the ledger does not have, its name.
            secret: the whole token.
        """
        session = secrets.token_urlsafe(32)
        await self._ledger.access.begin_session(
            secret_digest(session), token_id, secret_digest(secret)
        )
        return session

    async def session_of(self, secret: str) -> BrowserSession | None:
        """Return the session of this secret; None if it has ended, or its token is not in force."""
        found = await self._ledger.access.session(secret_digest(secret), lasts=SESSION_LASTS)
        if found is None or (found.row is not None and not found.row.in_force):
            return None
        return found

    async def end_session(self, secret: str) -> None:
        """End a session."""
        await self._ledger.access.end_session(secret_digest(secret))

    async def note_use(self, token: TokenRow, *, address: str) -> None:
        """Record that a token was used, from this address; once a minute is enough."""
        used = token.used_at
        if used is None or token.used_from != address or datetime.now(UTC) - used > _MINUTE:
            await self._ledger.access.used(token.id, address=address)


def _places(given: Iterable[str] | None, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns of a kind of place; those that are not given are the default."""
    if given is None:
        return otherwise
    found = tuple(dict.fromkeys(given))
    _require_patterns(found, _PLACE, "name", as_in="shop-*")
    return found


def _require_valid(name: str, scope: str) -> None:
    if not _NAME.fullmatch(name):
        raise TokenInvalid(
            f"{name[:64]!r} is no name of a token",
            hint="use 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter or digit",
        )
    if scope not in SCOPES:
        raise TokenInvalid(f"{scope[:64]!r} is no scope", hint=f"write one of {', '.join(SCOPES)}")


def _require_patterns(
    patterns: tuple[str, ...], form: re.Pattern[str], what: str, *, as_in: str
) -> None:
    wrong = next((each for each in patterns if not form.fullmatch(each)), None)
    if wrong is not None:
        raise TokenInvalid(
            f"{wrong[:64]!r} stands for no {what}",
            hint=f"write a {what}, with * for any text and ? for one character, as {as_in}",
        )
    if not 0 < len(patterns) <= _MOST_PATTERNS:
        raise TokenInvalid(
            f"a token is for 1 to {_MOST_PATTERNS} patterns of {what}s", hint="write *, or fewer"
        )
