"""A TCP link that can be slow, silent, cut, or lose replies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Self

Harm = Literal["cut", "hold", "delay", "drop_replies"]
"""``cut`` resets connections and refuses new ones; ``hold`` passes nothing on, and says nothing;
``drop_replies`` passes requests on and swallows what is answered."""

_CHUNK = 65536
_LOOK = 0.02


@dataclass(eq=False)
class _Pair:
    """One connection through the link."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    lost_some: bool = False

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


class Link:
    """Listens on a port of its own, and passes on to ``target`` what harms let through."""

    def __init__(self, name: str, target: int) -> None:
        self.name, self.target = name, target
        self.port = 0
        self._numbers = itertools.count()
        self._harms: dict[int, tuple[Harm, float]] = {}
        self._pairs: set[_Pair] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()
        self._reset_all()

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

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if delay := self._delay():
                    await asyncio.sleep(delay)
                while self._has("hold"):  # noqa: ASYNC110 - several harms may overlap
                    await asyncio.sleep(_LOOK)
                if replies and (pair.lost_some or self._has("drop_replies")):
                    pair.lost_some = True
                    continue
                writer.write(chunk)
                await writer.drain()
        pair.close()  # one side has ended, so has the other
