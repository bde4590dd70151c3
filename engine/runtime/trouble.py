"""Which errors of a call say something about the Temporal server and not about the call."""

from __future__ import annotations

from typing import Literal

from temporalio.service import RPCError, RPCStatusCode

Trouble = Literal["away", "busy"]
"""``away``: nobody answered. ``busy``: an answer, namely that there were too many calls."""

_NOBODY_ANSWERED = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,  # the SDK's word for its own timeout
        RPCStatusCode.UNKNOWN,  # a connection that broke in the middle of a call
    }
)


def trouble(error: BaseException) -> Trouble | None:
    """Return the server's trouble, or None for an answer to this one call."""
    if isinstance(error, RPCError):
        if error.status in _NOBODY_ANSWERED:
            return "away"
        busy = error.status == RPCStatusCode.RESOURCE_EXHAUSTED and not too_large(error)
        return "busy" if busy else None
    # The SDK's only sign that a connection could not even be opened.
    unconnected = isinstance(error, RuntimeError) and "client connect" in str(error)
    return "away" if unconnected else None


def too_large(error: RPCError) -> bool:
    """Whether the call was too large; the server has the same status for that and for too many."""
    exhausted = error.status == RPCStatusCode.RESOURCE_EXHAUSTED
    return exhausted and "larger than max" in error.message
