"""Servers on loopback, and links to servers that can be slow, silent, cut, or lose replies."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

Harm = Literal["cut", "hold", "delay", "drop_replies"]
"""``cut`` resets connections and refuses new ones; ``hold`` passes nothing on, and says nothing;
``drop_replies`` passes requests on and swallows what is answered."""

_CHUNK = 65536
_LOOK = 0.02


@asynccontextmanager
async def accepting(
    answer: Answer, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Answer each connection to a port, free or given, and leave none open at the end.

    Tasks that asyncio begins for connections are awaited by nobody: what they leave open is found
    by the garbage collector, and becomes the error of whichever test runs then.
    """
    calls: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError):  # the other side may leave at any time
                await answer(reader, writer)
        finally:
            writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if listener.is_serving():
            calls[asyncio.create_task(serve(reader, writer))] = writer
        else:
            writer.transport.abort()

    listener = await asyncio.start_server(begin, "127.0.0.1", port, ssl=tls)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        # asyncio leaves open what a server accepted in the last step before its close: accept no
        # more, and let what was accepted begin.
        asyncio.get_running_loop().remove_reader(listener.sockets[0].fileno())
        await asyncio.sleep(0)
        listener.close()
        for call in calls:
            call.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for writer in calls.values():
            writer.transport.abort()  # over TLS a close waits for the other side
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


@dataclass(eq=False)
class _Pair:
    """One connection through the link."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    lost_some: bool = False
    answers_late: bool = False

    def reset(self) -> None:
        for writer in (self.client, self.server):
            _reset(writer)

    def close(self) -> None:
        """Let each side have what was sent to it, and its end."""
        for writer in (self.client, self.server):
            writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


@asynccontextmanager
async def link_to(target: int) -> AsyncIterator[Link]:
    """A link to what listens on a port of this machine."""
    link = Link(target)
    async with accepting(link.carry) as link.port:
        yield link


class Link:
    """Passes on to ``target``, from a port of its own, what harms let through."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.late: bytes | None = None
        """Connections on which this occurs get no answers from then on, while it is set."""
        self._numbers = itertools.count()
        self._harms: dict[int, tuple[Harm, float]] = {}
        self._pairs: set[_Pair] = set()

    def way(self, address: str) -> str:
        """Return the address by which the target's is reached through this link."""
        return address.replace(f":{self.target}", f":{self.port}")

    @contextmanager
    def harmed(self, harm: Harm, seconds: float = 0.0) -> Iterator[None]:
        """Do harm for as long as the block lasts; ``seconds`` is how long a delay takes."""
        number = next(self._numbers)
        self._harms[number] = (harm, seconds)
        if harm == "cut":
            self._reset_all()
        try:
            yield
        finally:
            del self._harms[number]
            for pair in [*self._pairs]:
                if pair.lost_some:  # what comes next would be read as the middle of a message
                    pair.reset()

    def _has(self, harm: Harm) -> bool:
        return any(each == harm for each, _ in self._harms.values())

    def _delay(self) -> float:
        return max((took for harm, took in self._harms.values() if harm == "delay"), default=0.0)

    def _reset_all(self) -> None:
        for pair in [*self._pairs]:
            pair.reset()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to the target, and back."""
        if self._has("cut"):
            _reset(writer)
            return
        try:
            beyond, server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            _reset(writer)
            return
        pair = _Pair(writer, server)
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._pump(pair, reader, server, replies=False),
                self._pump(pair, beyond, writer, replies=True),
            )
        except asyncio.CancelledError:
            pair.reset()
            raise
        finally:
            self._pairs.discard(pair)
            pair.close()

    async def _pump(
        self,
        pair: _Pair,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        replies: bool,
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if delay := self._delay():
                    await asyncio.sleep(delay)
                if not replies and self.late and self.late in chunk:
                    pair.answers_late = True
                # Several harms may overlap.
                while self._has("hold") or (replies and pair.answers_late and self.late):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK)
                if replies and (pair.lost_some or self._has("drop_replies")):
                    pair.lost_some = True
                    continue
                writer.write(chunk)
                await writer.drain()
        pair.close()  # one side has ended, so has the other
