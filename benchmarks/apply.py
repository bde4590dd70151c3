"""Applying a schedule file to a ledger in PostgreSQL: time, and the loop's longest pause.

The floor is a ``COPY`` of the very rows that the apply wrote, into the same tables with the same
indexes, in one transaction: what PostgreSQL takes if nobody thinks about schedules at all. Every
sample has a database of its own. *again* is the same file once more, *edit* one field of every
schedule changed, *plan* what `sched plan` does before that edit. A worker's loop is the one that is
held up, so its longest pause is measured meanwhile; reading the file is ``load``'s to measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import asyncpg

from benchmarks.arena import connected, postgres
from benchmarks.crowd import SERVING
from benchmarks.report import Measured, Row
from benchmarks.spread import median
from engine.embedded import PostgresServer
from engine.ledger import Ledger
from engine.runtime.apply.apply import apply, dry_run
from engine.schedules import Schedule, ScheduleFile, load_schedules
from tests.postgres import Postgres

SIZES = (1_000, 10_000)
SAMPLES = 5
MOVES = ("first", "again", "plan", "edit")
_ZONES = ("UTC", "America/Sao_Paulo", "Europe/Berlin", "Asia/Tokyo")
_NO_LANE = "lane"
"""A column that PostgreSQL computes."""


async def run(*, quick: bool = False) -> Measured:
    """Measure every size, each sample on an empty database."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    async with postgres() as server:
        for size in (500,) if quick else SIZES:
            found = [await _sample(server, size) for _ in range(1 if quick else SAMPLES)]
            for name in found[0]:
                samples[f"{name} {size}"] = [value[name] for value in found]
            rows.append(_row(size, found))
    return Measured("apply", rows, samples)


def _row(size: int, found: list[dict[str, float]]) -> Row:
    def of(name: str) -> float:
        return median(value[name] for value in found)

    return {
        "schedules": f"{size:,}",
        "COPY s": round(of("floor s"), 2),
        "first s": round(of("first s"), 2),
        "first / COPY": round(of("first s") / of("floor s"), 1),
        "again s": round(of("again s"), 3),
        "edit s": round(of("edit s"), 2),
        "plan s": round(of("plan s"), 2),
        "longest pause ms": round(max(of(f"{move} pause ms") for move in MOVES)),
    }


async def _sample(server: PostgresServer, size: int) -> dict[str, float]:
    name = f"bench_{uuid.uuid4().hex}"
    url = await Postgres(server.url_of("postgres")).create_database(name)
    ledger = await Ledger.connect(url, connections=2)
    try:
        known = replace(SERVING, types=frozenset({"noop@1"}))  # or each schedule would be refused
        await ledger.announce(known, engine="0", tzdata="0", retention=None)
        values = await _moves(ledger, size)
        async with connected(url) as connection:
            return {**values, "floor s": await _floor(connection)}
    finally:
        await ledger.close()
        await Postgres(server.url_of("postgres")).drop_database(name)


async def _moves(ledger: Ledger, size: int) -> dict[str, float]:
    file, edited = _file(size, 1), _file(size, 2)
    values: dict[str, float] = {}
    for move, declared in zip(MOVES, (file, file, edited, edited), strict=True):
        act = partial(dry_run if move == "plan" else apply, ledger, _unread(declared))
        found = await _timed(lambda: act(by="benchmark"))  # noqa: B023 - called at once
        values |= {f"{move} {what}": value for what, value in found.items()}
    return values


async def _timed(act: Callable[[], Awaitable[object]]) -> dict[str, float]:
    async with _watched() as pauses:
        begin = time.perf_counter()
        await act()
        seconds = time.perf_counter() - begin
    return {"s": seconds, "pause ms": max(pauses) * 1000}


@contextlib.asynccontextmanager
async def _watched() -> AsyncIterator[list[float]]:
    """Let something else want the loop every millisecond; tell how long it had to wait."""
    pauses = [0.0]

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - before - 0.001)

    watching = asyncio.create_task(watch())
    try:
        yield pauses
    finally:
        watching.cancel()


async def _floor(connection: asyncpg.Connection) -> float:
    """Copy what was applied first, under another namespace, as fast as PostgreSQL takes it."""
    tables: dict[str, tuple[list[str], list[tuple[Any, ...]]]] = {}
    for table, which in (("schedules", "true"), ("definitions", "version = 1")):
        rows = await connection.fetch(f"SELECT * FROM {table} WHERE {which}")  # noqa: S608 - our names
        columns = [name for name, _ in rows[0].items() if name not in {_NO_LANE, "namespace"}]
        records = [("floor", *(row[name] for name in columns)) for row in rows]
        tables[table] = ["namespace", *columns], records
    begin = time.perf_counter()
    async with connection.transaction():
        for table, (columns, records) in tables.items():
            await connection.copy_records_to_table(
                table, columns=columns, records=records, schema_name="sched"
            )
    return time.perf_counter() - begin


def _file(size: int, revision: int) -> ScheduleFile:
    entries = ", ".join(_entry(number, revision) for number in range(size))
    return load_schedules(f"schedules: [{entries}]")


def _entry(number: int, revision: int) -> str:
    when = (
        f"cron: '{number % 60} {number // 60 % 24} * * *', timezone: {_ZONES[number // 2 % 4]}"
        if number % 2
        else f"everyMs: {300_000 + 1_000 * (number % 600)}"
    )
    given = f"input: {{tenant: {number}, revision: {revision}}}"
    return f"{{key: tenant-{number:06d}, workflow: noop, {when}, {given}}}"


def _unread(file: ScheduleFile) -> ScheduleFile:
    """Return the file as just read: nothing of it is computed yet, as in a fresh process."""
    fresh = tuple(Schedule.from_json(schedule.to_json()) for schedule in file.schedules)
    return replace(file, schedules=fresh)
