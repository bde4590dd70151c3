"""A link to a server through which answers can be held back, as over a slow network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Link:
    """Carries bytes both ways, and holds back the answers to what ``late`` occurs in."""

    def __init__(self, host: str, port: int) -> None:
        self._place = host, port
        self._calls: set[asyncio.Task[None]] = set()
        self._on_time = asyncio.Event()
        self.late: bytes | None = None

    def on_time(self) -> None:
        """Let every answer through from now on."""
        self.late = None
        self._on_time.set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Listen on a free port, which is yielded."""
        listener = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.create_task(self._carry(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(*self._place)
        held = asyncio.Event()
        back = asyncio.create_task(self._answer(answers, writer, held))
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if self.late and self.late in data:
                    held.set()
                server.write(data)
                await server.drain()
        back.cancel()
        for end in (server, writer):
            end.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if held.is_set():
                    await self._on_time.wait()
                writer.write(data)
                await writer.drain()
            writer.close()


@asynccontextmanager
async def link_to(url: str) -> AsyncIterator[tuple[Link, str]]:
    """A link to the server of an address, and the address at its other end."""
    place = urlsplit(url)
    assert place.hostname
    assert place.port
    link = Link(place.hostname, place.port)
    async with link.listening() as port:
        yield link, url.replace(f":{place.port}/", f":{port}/")
