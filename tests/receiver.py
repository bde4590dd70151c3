"""A receiver of alerts: an HTTP server that notes what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.waiting import eventually


class Receiver:
    """A server that notes each message; it refuses the first one, and counts the pings."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.pings = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        answer = "200 OK"
        if head.startswith("GET /well"):
            self.pings += 1
        elif not self.refused:
            self.refused.append(json.loads(body))
            answer = "503 Service Unavailable"
        else:
            self.messages.append(json.loads(body))
        writer.write(
            f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()

    async def heard(self, status: str, code: str, **fields: str) -> dict[str, Any]:
        """Wait for a message like this that was not asked for before, and return it."""
        wanted = {"status": status, "code": f"SCHEDULE_{code}", **fields}

        def found() -> dict[str, Any] | None:
            return next((each for each in self.messages if wanted.items() <= each.items()), None)

        await eventually(lambda: found() is not None, timeout=60, every=0.1)
        message = found()
        assert message is not None
        self.messages.remove(message)
        return message
