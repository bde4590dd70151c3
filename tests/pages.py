"""Pages of HTTP servers on this machine."""

from __future__ import annotations

import asyncio
from http.client import HTTPConnection


def got(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Return the status and the body of a page."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Return the status and the body of a page, with the event loop free meanwhile."""
    return await asyncio.to_thread(got, port, path, method)
