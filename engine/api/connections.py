"""Connections of the API: how long the head of a request may take, and how many there may be.

Separate, because it is about uvicorn's protocol and no route knows of it. uvicorn bounds the size
of a head and not its time, and counts connections only once it has read one.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger("sched.api")

HEAD_WITHIN: Final = 10.0
"""Seconds from the first byte of a request, or from the connect, to the end of its head."""
ACCEPTED_AT_ONCE: Final = 128
"""Connections that are accepted before any of them is looked at."""
_MOST, _LEAST = 4096, 64
_REPORTED_EVERY: Final = 60.0


def most_connections() -> int:
    """Return the most connections: half of the descriptors that the process may have."""
    if sys.platform == "win32":
        return _MOST
    import resource  # noqa: PLC0415 - not everywhere

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(soft // 2, _MOST))


class BoundedProtocol(H11Protocol):
    """A connection that has ten seconds for a head, and gives way to newer ones while it has none.

    One address has half of all connections. Where there are too many, the one goes that has waited
    for a request the longest; if all have one in work, the new one.
    """

    _reported_at = 0.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._most = most_connections()
        self._idle_since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The address that it comes from."""
        return self.client[0] if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether it has no request in work."""
        no_request = self.cycle is None  # type: ignore[redundant-expr,unused-ignore] # before one
        return no_request or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head, and make room if there are too many connections."""
        super().connection_made(transport)
        self._watch()
        every = [each for each in self.connections if isinstance(each, BoundedProtocol)]
        own = [each for each in every if each.address == self.address]
        if len(own) > self._most // 2:
            self._make_room(own)
        elif len(every) > self._most:
            self._make_room(every)

    def data_received(self, data: bytes) -> None:
        """Read on; a head that is not whole has until its time ends, whatever comes."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Note that nothing is in work any more; uvicorn closes what stays idle."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        super().connection_lost(exc)
        self._stop_watch()

    def _watch(self) -> None:
        if not self.is_waiting:
            self._stop_watch()
        elif self._timer is None:
            text = f"no request within {HEAD_WITHIN:.0f} s"
            self._timer = self.loop.call_later(HEAD_WITHIN, self._drop, text)

    def _stop_watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self, among: list[BoundedProtocol]) -> None:
        waiting = [each for each in among if each.is_waiting and each is not self]
        longest = min(waiting, key=lambda each: each._idle_since, default=self)  # noqa: SLF001
        longest._drop(f"there are {len(among)} of them")  # noqa: SLF001

    def _drop(self, why: str) -> None:
        """Close the connection now, and report that once a minute."""
        self._stop_watch()
        self.connections.discard(self)  # asyncio reports the end a little later
        self.transport.abort()
        now = self.loop.time()
        if now - BoundedProtocol._reported_at >= _REPORTED_EVERY:
            BoundedProtocol._reported_at = now
            logger.warning("connections of %s are closed: %s", self.address, why)
