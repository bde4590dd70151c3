"""The roles of docs/deploy.md: each can do its work, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.errors import LedgerError
from engine.ledger import Ledger
from engine.ledger.postgres.connections import Connections
from engine.ledger.postgres.schema import Migration, migrate, migrations
from engine.runtime import SchedulePlugin
from engine.schedules import load_schedules
from tests.sample_workflows import Fails, Noop, Rests
from tests.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs/deploy.md"
ROLES = ("sched_reader", "sched_worker", "sched_owner")
VIEWS = ("fire_history", "dead_letters", "overdue", "daily")
DENIED = "permission denied for function"
FILE = """
schedules:
  - {key: pulse, workflow: noop, everyMs: 1000}
  - {key: unlucky, workflow: fails, everyMs: 1000}
  - {key: line, workflow: rests, everyMs: 1000, overlap: queue, input: 1.5}
"""
FUNCTIONS = """
SELECT p.oid::regprocedure::text AS name, pg_get_userbyid(p.proowner) AS owner,
       p.prosecdef AS definer, p.prorettype = 'trigger'::regtype AS is_trigger,
       p.proconfig AS settings,
       p.prosqlbody IS NOT NULL OR (l.lanname = 'sql' AND p.provolatile = 'i') AS needs_no_path,
       ARRAY(SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee) END
             FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a ORDER BY 1)
           AS callers
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'sched'::regnamespace ORDER BY 1
"""


@pytest.fixture
def admin(documented_roles: asyncpg.Connection) -> asyncpg.Connection:
    return documented_roles


@pytest.fixture
async def roles(admin: asyncpg.Connection, empty_database_url: str) -> Mapping[str, str]:
    """The address for each role, after the statements of the page were executed as it says."""
    before, after, _ = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    scheme, _, place = empty_database_url.partition("://")
    passwords = dict(re.findall(r"CREATE ROLE (\w+) LOGIN PASSWORD '(.*)'", before + after))
    assert set(passwords) == set(ROLES)
    addresses = {
        role: f"{scheme}://{role}:{password}@{place.partition('@')[2]}"
        for role, password in passwords.items()
    }
    await admin.execute(before)
    await (await Ledger.connect(addresses["sched_owner"])).close()
    await admin.execute(after)
    return addresses


@pytest.fixture
async def reader(roles: Mapping[str, str]) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(roles["sched_reader"])
    yield opened
    await opened.close()


async def functions(admin: asyncpg.Connection) -> list[asyncpg.Record]:
    """The functions of the schema, after each was found to be as the page says."""
    found: list[asyncpg.Record] = await admin.fetch(FUNCTIONS)
    for each in found:
        name = each["name"]
        assert each["owner"] == "sched_owner", name
        assert not each["definer"], name
        # PostgreSQL asks for no privilege when a trigger fires.
        callers = ["sched_owner"] if each["is_trigger"] else ["sched_owner", "sched_worker"]
        assert each["callers"] == callers, name
        path = ["search_path=sched, pg_catalog, pg_temp"]
        assert each["needs_no_path"] or each["settings"] == path, name
    return found


async def test_a_role_that_may_not_migrate_is_sent_to_the_command_that_does(
    admin, empty_database_url
):
    before, *_ = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    await admin.execute(before)
    scheme, _, place = empty_database_url.partition("://")
    (password,) = re.findall(r"CREATE ROLE sched_worker LOGIN PASSWORD '(.*)'", before)
    worker = f"{scheme}://sched_worker:{password}@{place.partition('@')[2]}"
    with pytest.raises(LedgerError, match="this role may not change that") as told:
        await Ledger.connect(worker)
    assert told.value.hint == "run `sched migrate` as a role that may"


async def test_no_function_runs_as_its_owner_or_is_open_to_everybody(admin, roles):
    found = await functions(admin)
    assert {each["is_trigger"] for each in found} == {True, False}


async def test_functions_and_tables_of_a_later_migration_have_the_same_grants(admin, roles):
    text = """
    CREATE TABLE later (x int);
    CREATE FUNCTION later_one(odd text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT odd';
    -- step
    CREATE FUNCTION later_trigger() RETURNS trigger LANGUAGE plpgsql
        SET search_path = sched, pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER later AFTER INSERT ON later FOR EACH ROW EXECUTE FUNCTION later_trigger();
    """
    await admin.execute("CREATE FUNCTION sched.of_another_owner() RETURNS int RETURN 1")
    before = await admin.fetchval("SELECT proacl FROM pg_proc WHERE proname = 'of_another_owner'")
    connections = await Connections.open(roles["sched_owner"], schema="sched", most=2)
    number = migrations()[-1].version + 1
    assert await migrate(connections, known=[*migrations(), Migration.of(number, text)])
    await connections.close()
    after = await admin.fetchval("SELECT proacl FROM pg_proc WHERE proname = 'of_another_owner'")
    assert after == before, "a migration changed a function that is not its own"
    await admin.execute("DROP FUNCTION sched.of_another_owner()")
    names = {each["name"] for each in await functions(admin)}
    assert {"sched.later_one(text)", "sched.later_trigger()"} <= names
    worker = await asyncpg.connect(roles["sched_worker"])
    await worker.execute("INSERT INTO sched.later VALUES (1)")
    assert await worker.fetchval("SELECT sched.later_one('yes')") == "yes"
    await worker.close()


async def test_a_reader_calls_no_function_of_the_ledger(admin, roles, reader):
    """A trigger of a table of its own would hand a function of ours a row of any shape."""
    await reader.execute(
        "CREATE TEMP TABLE fake (namespace text, key text, id bigint, status text, awaits text)"
    )
    for each in await functions(admin):
        name, _, kinds = each["name"].rstrip(")").partition("(")
        call = f"SELECT {name}({', '.join(f'NULL::{kind}' for kind in kinds.split(',') if kind)})"
        trigger = f"CREATE TRIGGER t AFTER INSERT ON fake FOR EACH ROW EXECUTE FUNCTION {name}()"
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match=DENIED):
            await reader.execute(trigger if each["is_trigger"] else call)
    await reader.execute("INSERT INTO fake VALUES ('default', 'victim.key', 1, 'queued', NULL)")
    assert not await admin.fetchval("SELECT count(*) FROM sched.line")
    assert not await admin.fetchval("SELECT count(*) FROM sched.line_changes")


async def test_a_trigger_of_a_worker_runs_no_function_of_the_ledger(admin, roles):
    worker = await asyncpg.connect(roles["sched_worker"])
    await worker.execute("CREATE TEMP TABLE fake (x int)")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=DENIED):
        await worker.execute(
            "CREATE TRIGGER t AFTER INSERT ON fake FOR EACH ROW EXECUTE FUNCTION sched.keep_line()"
        )
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await worker.execute("CREATE TABLE sched.mine (x int)")
    await worker.close()


async def test_a_reader_reads_the_four_views_and_nothing_else(admin, roles, reader):
    for view in VIEWS:
        await reader.fetch(f"SELECT * FROM sched.{view}")
    tables = await admin.fetch(
        "SELECT relname AS name FROM pg_class WHERE relnamespace = 'sched'::regnamespace"
        " AND relkind IN ('r', 'v') AND relname <> ALL ($1)",
        VIEWS,
    )
    assert tables
    for table in tables:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await reader.fetch(f"SELECT * FROM sched.{table['name']}")
    with pytest.raises(LedgerError, match="permission denied"):
        await Ledger.connect(roles["sched_reader"])


async def test_a_worker_that_owns_nothing_claims_queues_and_settles(
    client: Client, roles: Mapping[str, str], reader: asyncpg.Connection
):
    plugin = SchedulePlugin(load_schedules(FILE), database_url=roles["sched_worker"])
    workflows = [Noop, Fails, Rests]
    async with Worker(client, task_queue="sched", workflows=workflows, plugins=[plugin]):

        async def all_seen() -> bool:
            """Of the line, one waits and a second run has ended."""
            history = await reader.fetch("SELECT key, status FROM sched.fire_history")
            seen = [tuple(row) for row in history]
            expected = {("pulse", "completed"), ("unlucky", "failed"), ("line", "queued")}
            return expected <= {*seen} and seen.count(("line", "completed")) > 1

        await eventually(all_seen, timeout=60)
        letters = "SELECT count(*) FROM sched.dead_letters WHERE key = 'unlucky'"
        assert await reader.fetchval(letters)
