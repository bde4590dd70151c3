"""Requests as HTTP servers of tests read them, and a receiver of alerts that notes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.links import accepting
from tests.waiting import eventually


@dataclass(frozen=True)
class Request:
    """A request; the names of its headers are in small letters."""

    line: str
    headers: dict[str, str]
    body: bytes

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.splitlines()
        fields = (each.split(": ", 1) for each in lines if each)
        headers = {name.lower(): value for name, value in fields}
        return cls(line, headers, await reader.readexactly(int(headers.get("content-length", 0))))


class Receiver:
    """A server that notes each message; it refuses the first one, and counts the pings."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.pings = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with accepting(self._answer) as port:
            yield f"http://127.0.0.1:{port}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await Request.read(reader)
        answer = "200 OK"
        if request.line.startswith("GET /well"):
            self.pings += 1
        elif not self.refused:
            self.refused.append(json.loads(request.body))
            answer = "503 Service Unavailable"
        else:
            self.messages.append(json.loads(request.body))
        writer.write(
            f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        await writer.drain()

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
