"""The link that tests harm: each harm is felt as it is described."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from tests.links import Link, accepting, link_to
from tests.waiting import eventually

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Opens = Callable[[], Awaitable[Streams]]


@pytest.fixture
async def heard() -> list[bytes]:
    """What a server that says everything twice has heard."""
    return []


@pytest.fixture
async def link(heard: list[bytes]) -> AsyncIterator[Link]:
    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            heard.append(line)
            writer.write(line + line)

    async with accepting(twice) as port, link_to(port) as made:
        yield made


@pytest.fixture
async def opened(link: Link) -> AsyncIterator[Opens]:
    """Opens a connection through the link; at the end all are closed."""
    writers = []

    async def opens() -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writers.append(writer)
        return reader, writer

    yield opens
    for writer in writers:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_link_passes_on_both_ways(opened: Opens) -> None:
    reader, writer = await opened()
    writer.write(b"one\n")
    assert await reader.readexactly(8) == b"one\none\n"


async def test_a_cut_ends_what_is_open_and_refuses_what_comes(link: Link, opened: Opens) -> None:
    reader, writer = await opened()
    writer.write(b"one\n")
    await reader.readexactly(8)
    with link.harmed("cut"):
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        late, _ = await opened()
        with pytest.raises(ConnectionError):
            await late.readexactly(1)
    reader, writer = await opened()
    writer.write(b"two\n")
    assert await reader.readexactly(8) == b"two\ntwo\n"


async def test_a_held_link_is_silent_until_it_is_let_go(
    link: Link, opened: Opens, heard: list[bytes]
) -> None:
    reader, writer = await opened()
    with link.harmed("hold"):
        writer.write(b"one\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(8), 0.2)
        assert heard == []
    assert await reader.readexactly(8) == b"one\none\n"


async def test_a_lost_reply_was_heard_and_its_connection_ends(
    link: Link, opened: Opens, heard: list[bytes]
) -> None:
    reader, writer = await opened()
    with link.harmed("drop_replies"):
        writer.write(b"one\n")
        await eventually(lambda: heard == [b"one\n"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.2)
    with pytest.raises(ConnectionError):
        await reader.readexactly(1)


async def test_a_delay_is_felt_each_way(link: Link, opened: Opens) -> None:
    reader, writer = await opened()
    with link.harmed("delay", 0.1):
        began = time.monotonic()
        writer.write(b"one\n")
        await reader.readexactly(8)
        assert time.monotonic() - began >= 0.2


async def test_answers_are_late_on_connections_that_ask_for_something(
    link: Link, opened: Opens, heard: list[bytes]
) -> None:
    link.late = b"two"
    reader, writer = await opened()
    other, quick = await opened()
    writer.write(b"two\n")
    await eventually(lambda: heard == [b"two\n"])
    quick.write(b"one\n")
    assert await other.readexactly(8) == b"one\none\n"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.1)
    link.late = None
    assert await reader.readexactly(8) == b"two\ntwo\n"


async def test_a_link_that_ends_resets_what_is_open() -> None:
    reached = asyncio.Event()

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await asyncio.Event().wait()

    async with accepting(hangs) as port, link_to(port) as other:
        reader, writer = await asyncio.open_connection("127.0.0.1", other.port)
        await reached.wait()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_an_error_of_a_server_is_an_error_of_its_test() -> None:
    async def fails(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise LookupError(await reader.readline())

    async def asks() -> None:
        async with accepting(fails) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"one\n")
            assert await reader.read() == b""
            writer.close()

    with pytest.raises(LookupError, match="one"):
        await asks()


@pytest.mark.parametrize("steps", range(5))
async def test_a_connection_that_comes_at_the_end_is_closed(steps: int) -> None:
    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with accepting(hangs) as port:
        with socket.create_connection(("127.0.0.1", port)):
            for _ in range(steps):  # of the event loop, which accepts it in one of them
                await asyncio.sleep(0)
    await asyncio.sleep(0)  # what was aborted is closed in the next step
    gc.collect()  # a connection that was left open becomes this test's error
