"""Stops claims while Temporal is away: what nobody has claimed, everybody can claim later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Literal

from engine.runtime.events import Held, Listener

_SUSPICIOUS = 3
"""Sends in a row that nobody answered, before the server itself is asked."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
_LOOK = 1.0
"""Seconds until a loop with nothing to do comes back, so that it can be stopped."""
_NOTHING = timedelta(0)


class Breaker:
    """Closed while the server answers, open while it does not.

        closed ──3 sends in a row without an answer──▶ suspect
        suspect ──the trial call is answered──▶ closed; it was the sends' own fault
        suspect ──it is not──▶ open ──a later trial call is answered──▶ closed

    A schedule whose own start never gets an answer raises suspicion only, and the trial call
    clears it: one bad schedule never holds the others.

    Args:
        ask: makes the trial call; returns why there was no answer, or None when there was one.
        tell: hears once that starts are held, and once that they go on.
    """

    def __init__(self, ask: Callable[[], Awaitable[str | None]], *, tell: Listener) -> None:
        self._ask, self._tell = ask, tell
        self._state: Literal["closed", "suspect", "open"] = "closed"
        self._unanswered = self._trials = 0
        self._given_up = False
        self._suspected, self._decided = asyncio.Event(), asyncio.Event()
        self._decided.set()

    @property
    def holds(self) -> bool:
        """Whether nothing may be claimed: the server is away, or it is being found out."""
        return self._state != "closed"

    @property
    def is_open(self) -> bool:
        """Whether the server is known to be away, by a trial call that it did not answer."""
        return self._state == "open"

    async def ask(self) -> str | None:
        """Make the trial call for somebody else; returns why there was no answer, if so."""
        return await self._ask()

    def answered(self) -> None:
        """Note that the server answered a send, whatever it said."""
        self._unanswered = 0

    def unanswered(self) -> None:
        """Note that nobody answered a send."""
        self._unanswered += 1
        if self._unanswered >= _SUSPICIOUS and self._state == "closed":
            self._state = "suspect"
            self._suspected.set()
            if self._given_up:
                self.give_up()
            else:
                self._decided.clear()

    async def closed(self) -> bool:
        """Return whether sends may go on; waits while it is being found out."""
        await self._decided.wait()
        return self._state == "closed"

    async def turn(self) -> timedelta:
        """Wait for a suspicion, then make trial calls; returns the pause before the next."""
        if self._state == "closed":
            try:
                async with asyncio.timeout(_LOOK):
                    await self._suspected.wait()
            except TimeoutError:
                return _NOTHING
        reason = await self._ask()
        if reason is None:
            self._close()
            return _NOTHING
        if self._state != "open":
            self._state = "open"
            self._decided.set()
            self._tell(Held("starts", f"Temporal does not answer: {reason}"))
        longest = min(_FIRST_PAUSE * 2.0 ** min(self._trials, 10), _LONGEST_PAUSE)
        self._trials += 1
        return timedelta(seconds=longest * random.uniform(0.5, 1))

    def give_up(self) -> None:
        """Decide without trial calls from here on: the replica is leaving."""
        self._given_up = True
        if self._state == "suspect":
            self._state = "open"
            self._decided.set()

    def _close(self) -> None:
        if self._state == "open":
            self._tell(Held("starts", None))
        self._state = "closed"
        self._unanswered = self._trials = 0
        self._suspected.clear()
        self._decided.set()
