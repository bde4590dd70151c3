"""API: a page of schedules over HTTP, beside the statement that reads the same rows.

**Contestants.** *SQL*: the statement of the page, sent by asyncpg on a connection of its own, with
the answer read and nothing made of it. *service*: ``ScheduleService.list``, which makes rows of it.
*HTTP*: ``GET /api/v1/schedules`` of ``sched api`` in a process of its own, with a token, on one
connection that is kept open.

**What is measured.** The time of one page on a ledger with 10,000 schedules, in milliseconds: of
the 50 rows that are the default and of the 500 that are the most, each page behind the one before.

**Fairness.** Every page was read once before, so that definitions are parsed, as they are in a
process that serves the API. Contestants take turns, page by page, so that what else happens on the
machine meets all alike. Ratios are of medians. Target: HTTP at most 3 times the SQL.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import httpx

from benchmarks.arena import connected, postgres
from benchmarks.children import ROOT
from benchmarks.crowd import fill
from benchmarks.report import Measured, Row
from benchmarks.spread import median
from engine.ledger import Ledger
from engine.ledger.postgres.connections import filtered_query
from engine.schedules import STARTS
from engine.service import ScheduleService
from tests.postgres import Postgres

SCHEDULES, PAGES, PAGES_QUICK = 10_000, 200, 10
SIZES = (50, 500)
_SQL, _SERVICE, _HTTP = "SQL", "service", "HTTP"


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes about a minute."""
    pages = PAGES_QUICK if quick else PAGES
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    async with postgres() as server:
        url = await Postgres(server.url_of("postgres")).create_database("api")
        ledger = await Ledger.connect(url, connections=2)
        async with connected(url) as connection:
            await fill(ledger, connection, SCHEDULES)
        service = ScheduleService(ledger, actor="benchmark")
        token = (await service.create_token("benchmark", scope="read")).secret
        async with served(url, token) as ask:
            await _pages(url, service, ask, max(SIZES), SCHEDULES // max(SIZES))
            for size in SIZES:
                found = await _pages(url, service, ask, size, pages)
                rows.append(_row(size, found))
                samples |= {f"{size} rows, {who}, ms": times for who, times in found.items()}
        await ledger.close()
    return Measured("api", rows, samples)


def _row(size: int, found: dict[str, list[float]]) -> Row:
    sql, service, http = (median(found[who]) for who in (_SQL, _SERVICE, _HTTP))
    return {
        "page": f"{size} of {SCHEDULES:,}",
        "SQL ms": round(sql, 2),
        "service ms": round(service, 2),
        "HTTP ms": round(http, 2),
        "HTTP / SQL": round(http / sql, 2),
    }


async def _pages(
    url: str, service: ScheduleService, ask: Callable[[str], Awaitable[str]], size: int, pages: int
) -> dict[str, list[float]]:
    text, order = filtered_query("list_schedules", frozenset({"but", "after", "limit"}))
    found: defaultdict[str, list[float]] = defaultdict(list)
    async with connected(url) as connection:
        after, cursor, place = "", None, ""
        for number in range(pages + 5):
            given = {"but": STARTS, "after": after, "limit": size + 1}
            began = time.perf_counter()
            read = await connection.fetch(text, "default", *(given[name] for name in order))
            times = {_SQL: time.perf_counter() - began}
            began = time.perf_counter()
            page = await service.list(limit=size, cursor=cursor)
            times[_SERVICE] = time.perf_counter() - began
            began = time.perf_counter()
            body = await ask(f"/api/v1/schedules?limit={size}{place}")
            times[_HTTP] = time.perf_counter() - began
            answer = json.loads(body)
            keys = [row.key for row in page.schedules]
            assert keys == [row["key"] for row in read[:size]]
            assert keys == [each["key"] for each in answer["schedules"]]
            if number >= 5:  # noqa: PLR2004 - the first ones warm up
                for who, seconds in times.items():
                    found[who].append(round(seconds * 1000, 3))
            at_end = page.cursor is None
            after, cursor = ("", None) if at_end else (keys[-1], page.cursor)
            place = "" if at_end else f"&cursor={answer['nextCursor']}"
    return found


# --- the server, and a client that adds little of its own ---


@asynccontextmanager
async def served(url: str, token: str) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Run ``sched api``; yield a function that returns the body of an answer."""
    process = await asyncio.create_subprocess_exec(
        ROOT / ".venv/bin/sched", "api", "--port", "0", stdout=PIPE,
        env={**os.environ, "SCHED_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        address = urlsplit(await _address(process))
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        async with httpx.AsyncClient(base_url=f"http://{address.netloc}") as client:
            signed_in = await client.post("/signin", data={"token": token})
        cookie = signed_in.headers["set-cookie"].partition(";")[0].partition("=")[2]
        shown = f"Authorization: Bearer {token}\r\nCookie: sched-session-page={cookie}"
        yield lambda path: _answer(reader, writer, path, shown)
        writer.close()
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _address(process: Process) -> str:
    assert process.stdout
    line = (await process.stdout.readline()).decode()
    assert line.startswith("API at "), line
    return line.split()[2].removesuffix(",")


async def _answer(reader: StreamReader, writer: StreamWriter, path: str, shown: str) -> str:
    host = writer.get_extra_info("peername")[0]
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{shown}\r\n\r\n"
    writer.write(request.encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert head.startswith("http/1.1 200"), head
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return (await reader.readexactly(length)).decode()
