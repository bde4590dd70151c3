"""The names that callers give to their requests, so that repeating one is safe."""

from __future__ import annotations

from engine.errors import RequestInvalid
from engine.schedules.windows import REQUEST_ID

_SHOWN = 80
"""Characters of one that are repeated to whoever sent it."""


def require_request_id(request_id: str) -> None:
    """Refuse what would make no run id.

    Raises:
        RequestInvalid: it is none.
    """
    if REQUEST_ID.fullmatch(request_id) is None:
        raise RequestInvalid(
            f"request id {request_id[:_SHOWN]!r}", cure="use 1 to 64 of a-z, A-Z, 0-9, _ and -"
        )
