"""A TCP link to the Temporal server that is slow, or on which requests about some runs are lost.

It is no part of the engine or of the SDK: whatever either does, its bytes pass here.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Callable
from functools import partial

from tests.links import accepting

_PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_HEADER = 9
_DATA, _END_STREAM = 0, 1
_GZIP = 31
_GONE = (OSError, asyncio.IncompleteReadError)

Loses = Callable[[bytes], bool]
"""Whether a request with this protobuf message is lost."""


@contextlib.asynccontextmanager
async def link(
    address: str, *, one_way: float = 0.0, loses: Loses | None = None
) -> AsyncIterator[str]:
    """Listen on loopback and forward to ``address``; yields the own address.

    Args:
        address: ``host:port`` of the server.
        one_way: seconds that each byte is on its way, in either direction.
        loses: which requests the server never gets to the end; it and the caller wait for the
            rest of them until the caller's patience ends.
    """
    host, _, port = address.rpartition(":")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        requests = partial(_requests, reader, loses) if loses else partial(_chunks, reader)
        await asyncio.gather(
            _carry(requests(), far_writer, one_way),
            _carry(_chunks(far_reader), writer, one_way),
        )

    async with accepting(carry) as own:
        yield f"127.0.0.1:{own}"


async def _carry(
    chunks: AsyncIterator[bytes], writer: asyncio.StreamWriter, one_way: float
) -> None:
    """Deliver each chunk so long after it came; many may be on their way at once."""
    clock = asyncio.get_running_loop().time
    travelling: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        with contextlib.suppress(*_GONE):
            while True:
                arrives, chunk = await travelling.get()
                if not chunk:
                    break
                if (left := arrives - clock()) > 0:
                    await asyncio.sleep(left)
                writer.write(chunk)
                await writer.drain()
        writer.close()

    delivering = asyncio.create_task(deliver())
    try:
        with contextlib.suppress(*_GONE):
            async for chunk in chunks:
                travelling.put_nowait((clock() + one_way, chunk))
        travelling.put_nowait((0.0, b""))
        await delivering
    finally:
        delivering.cancel()
        writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await reader.read(1 << 16):
        yield chunk


async def _requests(reader: asyncio.StreamReader, loses: Loses) -> AsyncIterator[bytes]:
    """Yield the frames of HTTP/2 that a client sends; a lost request is left without its end.

    All its bytes are delivered, or the two sides would count their windows differently: it only
    promises one byte more than there is.
    """
    yield await reader.readexactly(_PREFACE)
    lost: set[bytes] = set()
    while True:
        header = await reader.readexactly(_HEADER)
        payload = await reader.readexactly(int.from_bytes(header[:3]))
        stream = header[5:]
        if header[3] == _DATA and loses(_message(payload)):
            lost.add(stream)
            payload = payload[:1] + (int.from_bytes(payload[1:5]) + 1).to_bytes(4) + payload[5:]
        if header[3] == _DATA and stream in lost:
            header = header[:4] + bytes([header[4] & ~_END_STREAM]) + stream
        yield header + payload


def _message(payload: bytes) -> bytes:
    """Return the message of a DATA frame that holds a whole one, else nothing."""
    if len(payload) < 5 or int.from_bytes(payload[1:5]) != len(payload) - 5:  # noqa: PLR2004
        return b""
    return zlib.decompress(payload[5:], _GZIP) if payload[0] else payload[5:]
