"""Fixtures of every test ring: real servers, one of each for all processes of a run."""

from __future__ import annotations

import ast
import asyncio
import fcntl
import gc
import os
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from itertools import chain, groupby
from pathlib import Path

import asyncpg
import pytest
from hypothesis import settings
from temporalio.client import Client

import engine.runtime.clock
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger, virtual_template
from tests.bridge import Bridge, bridged
from tests.examples import examples
from tests.passed_through import pass_through
from tests.postgres import Postgres
from tests.servers import SOCKET, Servers, Temporal, asked_for, register_namespace, run_apart

# A property is about what is true. How long an example takes belongs into benchmarks.
settings.register_profile("properties", deadline=None, max_examples=examples(100))
settings.load_profile("properties")


_SLOW = 60
"""Seconds that a test marked `slow` may take, roughly; others have `timeout`."""


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


def pytest_configure(config: pytest.Config) -> None:
    """Own the servers of this run, unless a process above this one does."""
    pass_through()
    if SOCKET not in os.environ:
        config.add_cleanup(Servers().close)


@contextmanager
def first_alone(file: Path) -> Iterator[None]:
    """Let one process begin, and the others when it is done: it compiles all tests of a clone."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector off what lives as long as the process.

    6,700 tests and what they import: to look through it again and again took a twelfth of the time.
    """
    gc.disable()
    try:
        with first_alone(Path(os.environ[SOCKET]).with_name("collecting")):
            return (yield)
    finally:
        gc.collect()
        gc.freeze()
        # What tests load besides is still much to look through, each time for next to nothing.
        gc.set_threshold(5_000, 10, 20)
        gc.enable()


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
    """Give each process of the run as many tests, and let it begin with what may take longest.

    Processes begin with equal shares of the list, and later take from the end of another's share.
    """
    modules = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    modules.sort(key=lambda tests: max(map(_longest, tests)), reverse=True)
    shares: list[list[pytest.Item]] = [
        [] for _ in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    ]
    for tests in modules:
        min(shares, key=len).extend(tests)
    items[:] = chain.from_iterable(shares)


def _longest(item: pytest.Item) -> int:
    mark = item.get_closest_marker("timeout")
    if mark:
        return int(mark.args[0])
    return _SLOW if item.get_closest_marker("slow") else 0


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    """The run's PostgreSQL; it does not wait for the disk. SCHED_TEST_POSTGRES: which."""
    return Postgres(asked_for("postgres"))


@pytest.fixture
async def empty_database_url(postgres: Postgres) -> AsyncIterator[str]:
    """Address of an empty database of the test's own."""
    name = f"test_{uuid.uuid4().hex}"
    yield await postgres.create_database(name)
    await postgres.drop_database(name)


@pytest.fixture(scope="session")
def migrated() -> str:
    """The name of a database that has a ledger: to copy it takes a tenth of making one."""
    return asked_for("migrated")


@pytest.fixture
async def database_url(postgres: Postgres, migrated: str) -> AsyncIterator[str]:
    """Address of a database of the test's own that has an empty ledger."""
    name = f"test_{uuid.uuid4().hex}"
    yield await postgres.create_database(name, migrated)
    await postgres.drop_database(name)


@pytest.fixture
async def documented_roles(
    postgres: Postgres, empty_database_url: str
) -> AsyncIterator[asyncpg.Connection]:
    """The administrator of an empty database, alone with the roles that docs/deploy.md names.

    Roles belong to the server that all processes of the run share, so their tests take turns.
    """
    turn = await asyncpg.connect(postgres.url_of("postgres"))
    await turn.execute("SELECT pg_advisory_lock(hashtext('documented_roles'))")
    admin = await asyncpg.connect(empty_database_url)
    yield admin
    for role in ("sched_reader", "sched_worker", "sched_owner"):
        if await admin.fetchval("SELECT to_regrole($1)", role):
            await admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
    await admin.close()
    await turn.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FrozenClock:
    """The time of a test: that of its virtual ledger, and of ``boottime``."""
    found = FrozenClock("2000-01-01T00:00Z")
    stopwatch = ContextVar("stopwatch", default=lambda: found.now().timestamp())
    monkeypatch.setattr(engine.runtime.clock, "STOPWATCH", stopwatch)
    return found


@pytest.fixture(scope="session")
def virtual_database_url(postgres: Postgres) -> str:
    """Address of a ledger in virtual time, for tests of this process that take a namespace each."""
    template = run_apart(virtual_template(postgres.url_of("postgres")))
    return run_apart(postgres.create_database(f"virtual_{uuid.uuid4().hex}", template))


@pytest.fixture
async def virtual_ledger(
    virtual_database_url: str, clock: FrozenClock
) -> AsyncIterator[VirtualLedger]:
    """An empty namespace of a ledger in which only ``clock`` moves the time."""
    ledger = await VirtualLedger.open(virtual_database_url, clock, namespace=uuid.uuid4().hex)
    yield ledger
    await ledger.close()


@pytest.fixture(scope="session")
def bridge(postgres: Postgres) -> Iterator[Bridge]:
    """The session's bridge from loops in virtual time to a real ledger."""
    with bridged(postgres.url_of("postgres")) as found:
        yield found


@pytest.fixture(scope="session")
def shared_database_url(postgres: Postgres, migrated: str) -> str:
    """Address of a database for tests that take a namespace each, which costs less than a copy."""
    return run_apart(postgres.create_database(f"shared_{uuid.uuid4().hex}", migrated))


@pytest.fixture(scope="session")
def temporal() -> Temporal:
    """The run's Temporal server; modules that need native schedules use the next one."""
    return Temporal(asked_for("temporal"))


@pytest.fixture(scope="session")
def native_temporal() -> Temporal:
    """A Temporal server that runs native schedules."""
    return Temporal(asked_for("native"))


@pytest.fixture
async def namespace(temporal: Temporal) -> str:
    """A namespace of the test's own with a retention of 24 hours."""
    name = f"test-{uuid.uuid4().hex}"
    await register_namespace(await Client.connect(temporal.address), name)
    return name


@pytest.fixture
async def client(temporal: Temporal, namespace: str) -> Client:
    """A client connected to the test's own namespace."""
    return await Client.connect(temporal.address, namespace=namespace)
