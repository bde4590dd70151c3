"""docker-compose.yml at work: its commands, environments and health checks, by hand.

No container engine is needed: each service's command runs as a process, and the two servers are
those of the tests. What only Temporal's images have is in test_compose_file.py.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from engine.embedded import free_port
from engine.ledger.postgres.schema import migrations
from tests.acceptance.compose_file import ComposeFile
from tests.acceptance.containers import Containers, Gate, postgres_programs
from tests.acceptance.fleet import ROOT, Books, Replica
from tests.links import link_to
from tests.postgres import Postgres
from tests.servers import Temporal
from tests.waiting import eventually

MIGRATED = f"applied {', '.join(f'{each.version:04}' for each in migrations())}\n"
LEDGER, TEMPORAL = "@postgres:5432/sched", "temporal:7233"  # as the file has them
ROLES = ("sched_worker", "sched_owner")
APPLIES = {"SCHED_APPLY": "on-start"}
"""In place of the service ``apply``, where that is not what is tested."""


@pytest.fixture
def database_url(empty_database_url: str) -> str:
    """As PostgreSQL's image makes it: without a ledger."""
    return empty_database_url


@pytest.fixture
def file(namespace: str) -> ComposeFile:
    return ComposeFile.read(TEMPORAL_NAMESPACE=namespace)


@pytest.fixture
async def ledger(
    database_url: str, file: ComposeFile, documented_roles: asyncpg.Connection
) -> asyncpg.Connection:
    """A database with the roles that PostgreSQL's image makes when its volume is new."""
    image = file["postgres"]
    (script,) = (at for to, at in image.mounts.items() if "/docker-entrypoint-initdb.d/" in to)
    psql = await asyncio.create_subprocess_exec(
        postgres_programs() / "psql", "-v", "ON_ERROR_STOP=1", "--no-psqlrc", "--quiet",
        "--dbname", database_url, "--file", ROOT / script, env=image.environment,
    )  # fmt: skip
    assert await psql.wait() == 0
    return documented_roles


@pytest.fixture
def books(ledger: asyncpg.Connection, client: Client) -> Books:
    return Books(ledger, client)


@pytest.fixture
def here(postgres: Postgres, temporal: Temporal, database_url: str) -> dict[str, str]:
    """Where the file's addresses lead to in these tests; the database has the test's name."""
    return {
        LEDGER: f"@127.0.0.1:{postgres.port}/{database_url.rpartition('/')[2]}",
        TEMPORAL: temporal.address,
    }


@pytest.fixture
async def containers(
    tmp_path: Path, file: ComposeFile, here: dict[str, str], ledger: asyncpg.Connection
) -> AsyncIterator[Containers]:
    async with Containers(file, tmp_path, here) as made:
        yield made


@pytest.fixture
async def migrated(containers: Containers) -> Containers:
    """The job has made the ledger: a worker may not."""
    assert await containers.run("migrate") == MIGRATED
    return containers


@pytest.fixture
def every_second(tmp_path: Path) -> dict[str, str]:
    """A worker's environment with a schedule that fires often, and no tables of its own."""
    path = tmp_path / "schedules.yaml"
    path.write_text("schedules: [{key: s1, workflow: noop, everyMs: 1000}]")
    return {
        "SCHED_SCHEDULES": str(path),
        "SCHED_IMPORTS": "tests.sample_noop,tests.sample_workflows",
        **APPLIES,
    }


@pytest.mark.slow
@pytest.mark.prove
async def test_three_workers_run_what_is_due_and_leave_in_time_when_they_are_stopped(
    containers: Containers, books: Books, postgres: Postgres
):
    assert await containers.healthy("postgres", PGPORT=str(postgres.port))
    assert await containers.run("migrate") == MIGRATED
    await containers.run("temporal-namespace")
    assert not await containers.healthy("worker")
    count = containers.file["worker"].spec["deploy"]["replicas"]
    workers = [await containers.start("worker") for _ in range(count)]

    async def applied() -> bool:  # not before a worker has announced its workflows
        return await (await containers.start("apply")).gone() == 0

    await eventually(applied, timeout=60, every=0.5)
    await books.until_fired(["heartbeat", "cache-sync"], 1, timeout=60)

    async def finished() -> bool:
        rows = await books.fires()
        return {row["key"] for row in rows if row["status"] == "completed"} >= {
            "heartbeat",
            "cache-sync",
        }

    await eventually(finished, timeout=30, every=0.2)
    assert await containers.healthy("worker")
    assert await containers.ready("worker")
    for worker in workers:
        worker.send(signal.SIGTERM)
    patience = containers.file["worker"].patience.total_seconds()
    assert [await worker.gone(patience) for worker in workers] == [0] * count
    assert not await containers.healthy("worker")
    runs = await books.runs()
    assert set(runs.values()) == {1}


async def test_a_second_start_finds_everything_in_place(
    containers: Containers, client: Client, file: ComposeFile
):
    assert await containers.run("migrate") == MIGRATED
    assert await containers.run("migrate") == "the ledger is up to date\n"
    fresh = f"{client.namespace}-fresh"
    assert file["temporal-namespace"].environment["RETENTION"] == "72h"
    for retention in ("48h", "24h"):
        await containers.run("temporal-namespace", TEMPORAL_NAMESPACE=fresh, RETENTION=retention)
        assert await _retention(client, fresh) == timedelta(hours=48)


async def _retention(client: Client, namespace: str) -> timedelta:
    request = DescribeNamespaceRequest(namespace=namespace)
    answer = await client.workflow_service.describe_namespace(request)
    return answer.config.workflow_execution_retention_ttl.ToTimedelta()


async def test_a_database_that_is_away_is_not_healthy(containers: Containers):
    assert not await containers.healthy("postgres", PGPORT=str(free_port()))


@pytest.mark.prove
async def test_a_worker_that_is_there_before_its_servers_waits_for_them(
    migrated: Containers,
    tmp_path: Path,
    file: ComposeFile,
    here: dict[str, str],
    postgres: Postgres,
    books: Books,
):
    temporal, ledger = Gate(int(here[TEMPORAL].rpartition(":")[2])), Gate(postgres.port)
    address = temporal.link.way(here[TEMPORAL])
    closed = {LEDGER: ledger.link.way(here[LEDGER]), TEMPORAL: address}
    async with temporal, ledger, Containers(file, tmp_path, closed) as early:
        worker = await early.start("worker", **APPLIES)
        job = await early.start("temporal-namespace")
        await _says(worker, f"waiting: no Temporal server answers at {address}")
        assert await early.healthy("worker")
        assert not await early.ready("worker")
        await temporal.open()
        assert await job.gone() == 0, job.log.read_text()
        # The steps of the shipped example need it, so the worker takes no work without.
        await _says(worker, "resources suspended: the resource database")
        assert await early.healthy("worker")
        assert not await early.ready("worker")
        await ledger.open()
        await books.until_fired(["heartbeat"], 1, timeout=60)
        assert await early.ready("worker")
        worker.send(signal.SIGTERM)
        assert await worker.gone(file["worker"].patience.total_seconds()) == 0


async def _says(replica: Replica, text: str) -> None:
    def said() -> bool:
        log = replica.log.read_text()
        assert text in log, log
        return True

    await eventually(said, timeout=30)


async def test_a_worker_that_waits_for_a_server_leaves_when_it_is_asked(
    tmp_path: Path, file: ComposeFile, here: dict[str, str], ledger: asyncpg.Connection
):
    async with Containers(file, tmp_path, here | {TEMPORAL: "127.0.0.1:1"}) as alone:
        worker = await alone.start("worker", **APPLIES)
        await _says(worker, "waiting: no Temporal server answers")
        worker.send(signal.SIGTERM)
        assert await worker.gone(10) == 0


@pytest.mark.prove
async def test_a_worker_that_stands_still_is_unhealthy_until_it_moves_again(
    migrated: Containers, books: Books
):
    worker = await migrated.start("worker", **APPLIES)
    await books.until_fired(["heartbeat"], 1, timeout=60)
    assert await migrated.healthy("worker")
    worker.send(signal.SIGSTOP)
    assert not await migrated.healthy("worker")
    worker.send(signal.SIGCONT)
    await eventually(lambda: migrated.healthy("worker"), timeout=60)


@pytest.mark.prove
async def test_a_worker_whose_ledger_is_away_is_healthy_and_not_ready_until_it_is_back(
    migrated: Containers,
    tmp_path: Path,
    file: ComposeFile,
    here: dict[str, str],
    postgres: Postgres,
    books: Books,
):
    """A restart of the workers would not bring it back."""
    async with (
        link_to(postgres.port) as link,
        Containers(file, tmp_path, here | {LEDGER: link.way(here[LEDGER])}) as containers,
    ):
        worker = await containers.start("worker", SCHED_HEARTBEAT="1s", **APPLIES)
        await books.until_fired(["heartbeat"], 1, timeout=60)
        await eventually(lambda: containers.ready("worker"), timeout=60)

        async def unready() -> bool:
            return not await containers.ready("worker")

        with link.harmed("cut"):
            await eventually(unready, timeout=60)
            assert await containers.healthy("worker")
        await eventually(lambda: containers.ready("worker"), timeout=60)
        worker.send(signal.SIGTERM)
        assert await worker.gone(file["worker"].patience.total_seconds()) == 0


@pytest.mark.prove
async def test_workers_of_the_version_before_go_on_after_a_migration_but_none_starts(
    migrated: Containers, books: Books, ledger: asyncpg.Connection, every_second: dict[str, str]
):
    old = await migrated.start("worker", **every_second)
    await books.until_fired(["s1"], 1, timeout=60)
    await ledger.execute("INSERT INTO sched.migrations VALUES (9999, '', NULL, '{}')")
    late = await migrated.start("worker", **every_second)
    assert await late.gone() == 2
    assert "SCHEDULE_LEDGER_TOO_NEW" in late.log.read_text()
    seen = sum(bool(row["run_id"]) for row in await books.fires())
    await books.until_fired(["s1"], seen + 2, timeout=30)
    assert old.process.returncode is None


async def test_nobody_who_runs_the_engine_is_a_superuser_or_owns_more_than_it_needs(
    migrated: Containers, ledger: asyncpg.Connection, books: Books, every_second: dict[str, str]
):
    await migrated.start("worker", **every_second)
    await books.until_fired(["s1"], 1, timeout=60)
    rows = await ledger.fetch(
        "SELECT DISTINCT usename AS role, usesuper AS super FROM pg_stat_activity"
        " JOIN pg_user USING (usename)"
        " WHERE datname = current_database() AND application_name LIKE 'sched-engine%'"
    )
    assert [tuple(row) for row in rows] == [("sched_worker", False)]
    owners = await ledger.fetch(
        "SELECT nspname, pg_get_userbyid(nspowner) FROM pg_namespace"
        " WHERE pg_get_userbyid(nspowner) = ANY ($1) ORDER BY 1",
        ROLES,
    )
    assert [tuple(row) for row in owners] == [("example", "sched_worker"), ("sched", "sched_owner")]
    assert not await ledger.fetchval(
        "SELECT bool_or(has_database_privilege(role, current_database(), 'CREATE'))"
        " FROM unnest($1::text[]) AS role",
        ROLES,
    )
