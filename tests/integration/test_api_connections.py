"""Connections and streams of the API: none keeps others out, and a sign-out ends what it began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

import pytest

from engine.api import access, connections, requests
from engine.api.app import listening, serving
from tests.rest import PATH, RestApi, rest_api
from tests.waiting import eventually

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: "
STREAM = f"{PATH}/filed/executions"


@pytest.fixture
async def api(shared_database_url):
    async with rest_api(shared_database_url) as found:
        yield found


@asynccontextmanager
async def served(api: RestApi) -> AsyncIterator[int]:
    place = listening("127.0.0.1", 0)
    async with serving(api.app, place):
        yield place.getsockname()[1]


class Client:
    """One connection, byte by byte."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=1 << 20
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def ask(self, path: str, **headers: str) -> int:
        """Send a whole request; return the status, and leave the body."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode())
        return int((await self.reader.readuntil(b"\r\n\r\n")).split()[1])

    async def ended(self) -> None:
        """Wait for the end of the connection, for 20 s at most."""
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                while await self.reader.read(65536):
                    pass

    async def stream_ended(self) -> None:
        """Wait for the last chunk of a stream, for 20 s at most; the connection stays."""
        async with asyncio.timeout(20):
            while await self.reader.readline() != b"0\r\n":
                assert not self.reader.at_eof()


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(port)) for _ in range(count)]


# --- connections ---


async def test_a_head_above_64_kb_is_refused_even_if_it_arrives_at_once(api):
    async with served(api) as port:
        for size, status in ((60_000, {200}), (100_000, {400, 431})):
            async with Client(port) as client:
                assert await client.ask("/healthz", **{"X-a": "a" * size}) in status
    async with api.client() as client:
        for more in (
            {"headers": {"X-a": "a" * 70_000}},
            {"headers": {"X-a": "a" * 40_000}, "params": {"key": "a" * 40_000}},
        ):
            answer = await client.get("/api/v1/dead", **more)
            assert (answer.status_code, answer.json()["status"]) == (431, 431)


async def test_a_head_has_64_kb_also_if_it_arrives_in_pieces(api):
    async with served(api) as port:
        for end, status in (("\r\n\r\n", b"200"), ("a" * 40_000, b"400")):
            async with Client(port) as slow, Client(port) as other:
                piece = "a" * 30_000
                slow.writer.write(
                    f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {piece}".encode()
                )
                await slow.writer.drain()
                assert await other.ask("/healthz") == 200, "the piece was read before"
                slow.writer.write(f"{piece}{end}".encode())
                assert (await slow.reader.readline()).split()[1] == status


async def test_a_request_whose_head_does_not_arrive_in_time_ends(
    api, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "HEAD_WITHIN", 0.2)
    async with (
        served(api) as port,
        Client(port) as silent,
        Client(port) as half,
        Client(port) as drip,
    ):
        half.writer.write(HALF)
        await silent.ended()
        await half.ended()

        async def dripping() -> None:
            assert await drip.ask("/healthz") == 200
            drip.writer.write(HALF)  # the second request of the connection
            while True:
                drip.writer.write(b"x")
                await asyncio.sleep(0.02)

        writing = asyncio.create_task(dripping())
        await drip.ended()
        writing.cancel()


async def test_half_requests_give_way_to_whole_ones(api, monkeypatch: pytest.MonkeyPatch, caplog):
    """Of one address too: its oldest half request goes."""
    monkeypatch.setattr(connections, "most_connections", lambda: 8)
    monkeypatch.setattr(connections.BoundedProtocol, "_reported_at", -1e9)
    async with served(api) as port, connected(port, 20) as held:
        for each in held:
            each.writer.write(HALF)
        for _ in range(5):
            async with Client(port) as whole:
                assert await whole.ask("/healthz") == 200
        for each in held[:16]:
            await each.ended()
    assert "connections of 127.0.0.1 are closed: there are 5 of them" in caplog.text


async def test_a_connection_whose_request_is_in_work_gives_way_to_none(
    api, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "most_connections", lambda: 8)
    async with served(api) as port, Client(port) as one, Client(port) as two:
        async with Client(port) as three, Client(port) as four:
            for each in (one, two, three, four):
                assert await each.ask(STREAM, Accept="text/event-stream") == 200
            async with Client(port) as refused:
                await refused.ended()
            assert len(api.app.state.followers) == 4
        await eventually(lambda: len(api.app.state.followers) == 2)
        async with Client(port) as taken:
            assert await taken.ask("/healthz") == 200


# --- streams ---


async def test_one_token_does_not_take_the_streams_of_others(api, monkeypatch):
    monkeypatch.setattr(requests, "_STREAMS_OF_ONE", 3)
    tokens = {name: await api.token(name, "read") for name in ("greedy", "other")}

    async def follow(client: Client, name: str) -> int:
        shown = {"Authorization": f"Bearer {tokens[name]}", "Accept": "text/event-stream"}
        return await client.ask(STREAM, **shown)

    async with served(api) as port, connected(port, 8) as clients:
        got = await asyncio.gather(*(follow(client, "greedy") for client in clients[:7]))
        assert sorted(got) == [200] * 3 + [429] * 4, "also of those that come at once"
        assert await follow(clients[7], "other") == 200
    assert not api.app.state.followers


async def test_a_stream_ends_with_its_token_or_its_session(api, monkeypatch: pytest.MonkeyPatch):
    assert access._TRUST + requests._ASKED_AGAIN <= 1.0, "docs/authorization.md promises a second"
    token = await api.token("bot", "read")
    async with api.client() as browser, served(api) as port, connected(port, 4) as clients:
        cookies = []
        for _ in range(3):
            browser.cookies.clear()
            await browser.post("/signin", data={"token": token})
            ((name, value),) = browser.cookies.items()
            cookies.append(f"{name.replace('8230', 'page')}={value}")
        live = {"Accept": "text/event-stream"}
        for client, cookie in zip(clients[:3], cookies, strict=True):
            assert await client.ask("/schedules/filed", Cookie=cookie, **live) == 200
        assert await clients[3].ask(STREAM, Authorization=f"Bearer {token}", **live) == 200
        await api.service.end_session(cookies[0].partition("=")[2])
        await clients[0].stream_ended()
        await eventually(lambda: len(api.app.state.followers) == 3)
        await api.service.revoke_token("bot")
        for each in clients[1:]:
            await each.stream_ended()
