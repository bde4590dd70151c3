"""Fixtures of every test ring: real servers, started when the first test asks for them."""

from __future__ import annotations

import ast
import asyncio
import gc
import os
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from pathlib import Path

import pytest
from hypothesis import settings
from temporalio.client import Client

import engine.runtime.clock
from engine.embedded import PostgresServer, TemporalServer
from engine.ledger import Ledger
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger, virtual_database
from tests.postgres import NEWEST, OtherPostgres, programs_of
from tests.servers import (
    FAST_AND_FORGETFUL,
    WITHOUT_NATIVE_SCHEDULES,
    register_namespace,
    run_apart,
    running_temporal,
    shared_folder,
)

# A property is about what is true. How long an example takes belongs into benchmarks.
settings.register_profile("properties", deadline=None)
settings.load_profile("properties")


def _one_at_a_time(parse: Callable[..., ast.AST]) -> Callable[..., ast.AST]:
    lock = threading.RLock()

    @wraps(parse)
    def locked(*args: object, **kwargs: object) -> ast.AST:
        with lock:
            return parse(*args, **kwargs)

    return locked


# Before 3.11.8 two threads that parse at once (pytest rewrites what Temporal's sandbox imports)
# may fail with "AST constructor recursion depth mismatch": they count in one place.
if sys.version_info < (3, 11, 8):
    ast.parse = _one_at_a_time(ast.parse)  # type: ignore[assignment]  # its overloads


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector off what lives as long as the process.

    6,700 tests and what they import: to look through it again and again took a twelfth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """A folder for servers that lives as long as the session."""
    with shared_folder() as folder:
        yield folder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Of a test that hangs in an event loop, print what each task waits for."""
    try:
        yield
    except pytest.fail.Exception as error:
        if "Timeout" in str(error):
            for each in gc.get_objects():
                if isinstance(each, asyncio.Task) and not each.done():
                    each.print_stack()
        raise


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What may take longest begins first, or all processes but one would wait for it at the end.

    Tests that wait are given to processes in pairs, and no two of the longest may be one.
    """
    items.sort(key=_longest, reverse=True)
    if all(item.get_closest_marker("waits") for item in items):
        half = (len(items) + 1) // 2
        items[::2], items[1::2] = items[:half], items[half:]


def _longest(item: pytest.Item) -> int:
    mark = item.get_closest_marker("timeout")
    return int(mark.args[0]) if mark else 0


@pytest.fixture(scope="session")
def postgres(server_folder: Path) -> Iterator[PostgresServer | OtherPostgres]:
    """The session's PostgreSQL; it does not wait for the disk. SCHED_TEST_POSTGRES: which."""
    server: PostgresServer | OtherPostgres = PostgresServer(server_folder / "pg", durable=False)
    major = int(os.environ.get("SCHED_TEST_POSTGRES", NEWEST))
    if major != NEWEST:
        programs = programs_of(major)
        assert programs, f"PostgreSQL {major} is not installed"
        server = OtherPostgres(server_folder / "pg", programs)
    run_apart(server.start())
    yield server
    run_apart(server.stop())


@pytest.fixture
async def empty_database_url(postgres: PostgresServer | OtherPostgres) -> AsyncIterator[str]:
    """Address of an empty database of the test's own."""
    name = f"test_{uuid.uuid4().hex}"
    yield await postgres.create_database(name)
    await postgres.drop_database(name)


@pytest.fixture(scope="session")
def migrated(postgres: PostgresServer | OtherPostgres) -> str:
    """The name of a database that has a ledger: to copy it takes a tenth of making one."""
    name = f"migrated_{uuid.uuid4().hex}"

    async def migrate() -> None:
        await (await Ledger.connect(await postgres.create_database(name))).close()

    run_apart(migrate())
    return name


@pytest.fixture
async def database_url(
    postgres: PostgresServer | OtherPostgres, migrated: str
) -> AsyncIterator[str]:
    """Address of a database of the test's own that has an empty ledger."""
    name = f"test_{uuid.uuid4().hex}"
    yield await postgres.create_database(name, migrated)
    await postgres.drop_database(name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FrozenClock:
    """The time of a test: that of its virtual ledger, and of ``boottime``."""
    found = FrozenClock("2000-01-01T00:00Z")
    stopwatch = ContextVar("stopwatch", default=lambda: found.now().timestamp())
    monkeypatch.setattr(engine.runtime.clock, "STOPWATCH", stopwatch)
    return found


@pytest.fixture
async def virtual_ledger(
    postgres: PostgresServer | OtherPostgres, clock: FrozenClock
) -> AsyncIterator[VirtualLedger]:
    """An empty ledger of the test's own, in which only ``clock`` moves the time."""
    async with virtual_database(postgres.url_of("postgres")) as url:
        ledger = await VirtualLedger.open(url, clock)
        yield ledger
        await ledger.close()


@pytest.fixture(scope="session")
def shared_database_url(postgres: PostgresServer | OtherPostgres, migrated: str) -> str:
    """Address of a database for tests that take a namespace each, which costs less than a copy."""
    return run_apart(postgres.create_database(f"shared_{uuid.uuid4().hex}", migrated))


@pytest.fixture(scope="session")
def temporal(server_folder: Path) -> Iterator[TemporalServer]:
    """The session's Temporal server; modules that need native schedules use the next one."""
    with running_temporal(server_folder / "temporal", WITHOUT_NATIVE_SCHEDULES) as server:
        yield server


@pytest.fixture(scope="session")
def native_temporal(server_folder: Path) -> Iterator[TemporalServer]:
    """A Temporal server of the session that runs native schedules."""
    with running_temporal(server_folder / "native", FAST_AND_FORGETFUL) as server:
        yield server


@pytest.fixture
async def namespace(temporal: TemporalServer) -> str:
    """A namespace of the test's own with a retention of 24 hours."""
    name = f"test-{uuid.uuid4().hex}"
    await register_namespace(await Client.connect(temporal.address), name)
    return name


@pytest.fixture
async def client(temporal: TemporalServer, namespace: str) -> Client:
    """A client connected to the test's own namespace."""
    return await Client.connect(temporal.address, namespace=namespace)
