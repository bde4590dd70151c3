"""Receiver of alerts, and the address that is called as long as all is well.

It is short and separate because it is all that speaks HTTP.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from urllib.parse import urlsplit

from engine.ledger import AlertRow

_PATIENCE = 10.0
"""Seconds that an answer may take."""


class Receiver:
    """The receiver that ``SCHED_ALERT_URL`` names.

    It gets each alert as a POST with a JSON body. Any answer from 200 to 299 confirms it. Redirects
    are not followed. Errors never show more of the address than its host, because many services
    put a secret into the path.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._url, self._namespace = url, namespace

    async def send(self, alert: AlertRow) -> str | None:
        """Send an alert in its present state; return why it is not confirmed, or None."""
        return await _called(self._url, alert.to_json(self._namespace))


async def ping(url: str) -> str | None:
    """Call ``SCHED_HEARTBEAT_URL``, since all is well; return why it did not answer, or None."""
    return await _called(url, None)


async def _called(url: str, message: dict[str, object] | None) -> str | None:
    # Loaded in a thread, because it takes some 50 ms, and not before: most workers never call.
    if "httpx" not in sys.modules:
        await asyncio.to_thread(import_module, "httpx")
    import httpx  # noqa: PLC0415

    host = urlsplit(url).hostname
    try:
        async with httpx.AsyncClient(timeout=_PATIENCE) as http:
            if message is None:
                answer = await http.get(url)
            else:
                answer = await http.post(url, json=message)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return f"{host} does not answer ({type(error).__name__})"
    return None if answer.is_success else f"{host} answers {answer.status_code}"
