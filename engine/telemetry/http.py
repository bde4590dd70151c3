"""HTTP endpoint of a worker: ``/metrics``, ``/healthz`` and ``/readyz``.

The server of the standard library, in a thread, as ``prometheus_client`` uses it: it answers while
the event loop stands still, which is what ``/healthz`` has to report.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from socketserver import ThreadingMixIn
from typing import Any, Final, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from engine.telemetry.health import Health, HealthVerdict

Respond: TypeAlias = Callable[[Mapping[str, Any], Callable[..., Any]], Iterable[bytes]]
"""An application of WSGI."""

_TEXT: Final = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
_PATIENCE: Final = 10.0
"""Seconds that a client may take to send its request."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # `SO_REUSEADDR` of the base class takes over no port of a listening server on Linux.


class _ServerOf6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = _PATIENCE

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a probe comes every few seconds."""


@asynccontextmanager
async def serving(
    health: Health,
    *,
    port: int,
    host: str = "127.0.0.1",
    metrics: Respond | None = None,
) -> AsyncIterator[int]:
    """Serve health, and metrics if given, while the block lasts; yield the port.

    Args:
        health: the health of the worker's plugin, ``SchedulePlugin.health``.
        port: the port; 0 takes a free one.
        host: the address to listen on.
        metrics: answers ``/metrics``, for example ``prometheus_client.make_wsgi_app()``.

    Raises:
        OSError: the port is taken, or the address is not of this machine.
    """
    kind = _ServerOf6 if ":" in host else _Server
    with make_server(host, port, _routes(health, metrics), kind, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, name="sched-http", daemon=True)
        thread.start()
        beating = asyncio.create_task(health.beat())
        try:
            yield int(server.server_port)
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating
            await asyncio.to_thread(server.shutdown)


def _routes(health: Health, metrics: Respond | None) -> Respond:
    checks: dict[str, Callable[[], HealthVerdict]] = {
        "/healthz": health.live,
        "/readyz": health.ready,
    }

    def respond(request: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = request["PATH_INFO"]
        if request["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            start("405 Method Not Allowed", [*_TEXT, ("Allow", "GET, HEAD")])
            return [b"read only\n"]
        if path == "/metrics" and metrics is not None:
            return metrics(request, start)
        if (check := checks.get(path)) is None:
            start("404 Not Found", [*_TEXT])  # the server adds to the list
            return [b"there are /metrics, /healthz and /readyz\n"]
        verdict = check()
        start("200 OK" if verdict.good else "503 Service Unavailable", [*_TEXT])
        return [f"{verdict.text}\n".encode()]

    return respond
