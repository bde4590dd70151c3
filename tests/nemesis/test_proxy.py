from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.nemesis.proxy import Link
from tests.waiting import eventually


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
        writer.close()

    server = await asyncio.start_server(twice, "127.0.0.1", 0)
    async with Link("a", server.sockets[0].getsockname()[1]) as made:
        yield made
    server.close()


async def opened(link: Link) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", link.port)


async def test_a_link_passes_on_both_ways(link: Link) -> None:
    reader, writer = await opened(link)
    writer.write(b"one\n")
    assert await reader.readexactly(8) == b"one\none\n"
    writer.close()


async def test_a_cut_ends_what_is_open_and_refuses_what_comes(link: Link) -> None:
    reader, writer = await opened(link)
    writer.write(b"one\n")
    await reader.readexactly(8)
    with link.harmed("cut"):
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        late, _ = await opened(link)
        with pytest.raises(ConnectionError):
            await late.readexactly(1)
    reader, writer = await opened(link)
    writer.write(b"two\n")
    assert await reader.readexactly(8) == b"two\ntwo\n"


async def test_a_held_link_is_silent_until_it_is_let_go(link: Link, heard: list[bytes]) -> None:
    reader, writer = await opened(link)
    with link.harmed("hold"):
        writer.write(b"one\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(8), 0.2)
        assert heard == []
    assert await reader.readexactly(8) == b"one\none\n"
    writer.close()


async def test_a_lost_reply_was_heard_and_its_connection_ends(
    link: Link, heard: list[bytes]
) -> None:
    reader, writer = await opened(link)
    with link.harmed("drop_replies"):
        writer.write(b"one\n")
        await eventually(lambda: heard == [b"one\n"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.2)
    with pytest.raises(ConnectionError):
        await reader.readexactly(1)


async def test_a_delay_is_felt_each_way(link: Link) -> None:
    reader, writer = await opened(link)
    with link.harmed("delay", 0.1):
        began = time.monotonic()
        writer.write(b"one\n")
        await reader.readexactly(8)
        assert time.monotonic() - began >= 0.2
    writer.close()
