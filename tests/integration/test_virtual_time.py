"""Virtual time: all SQL of a ledger reads the clock that a test moves; no worker uses such a one.

The schema of a virtual ledger has clock functions of its own, which come first on the search path.
What is stored with the schema (defaults, views, functions with a parsed body) names a function by
its OID, so that it has to be created after them; whatever is text finds them when it runs.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files

import pytest

from engine.errors import LedgerError
from engine.ledger import Ledger, Subscription
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger, virtual_database
from tests.conformance.conftest import Bench
from tests.postgres import Postgres

THEN = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def virtual_ledger(postgres: Postgres, clock: FrozenClock) -> AsyncIterator[VirtualLedger]:
    """A ledger in a database of the test's own: these tests look at every row of it."""
    async with virtual_database(postgres.url_of("postgres")) as url:
        ledger = await VirtualLedger.open(url, clock)
        yield ledger
        await ledger.close()


CLOCKS = ("clock_timestamp", "statement_timestamp")
"""The clocks of PostgreSQL that the schema has of its own."""
REAL = re.compile(
    r"\b(current_(timestamp|time|date)|localtime(stamp)?)\b"
    r"|\b(now|transaction_timestamp|timeofday)\s*\("
    r"|pg_catalog\s*\.\s*\w*timestamp"
    r"|'(now|today|tomorrow|yesterday)'",
    re.IGNORECASE,
)
"""Readings of PostgreSQL's own clock, which no test moves."""
COMMENT = re.compile(r"--.*")

STORED = """
SELECT 'default of ' || d.adrelid::regclass || '.' || a.attname AS name,
       'pg_attrdef'::regclass AS class, d.oid, pg_get_expr(d.adbin, d.adrelid) AS text
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
JOIN pg_class c ON c.oid = d.adrelid WHERE c.relnamespace = 'sched'::regnamespace
UNION ALL
SELECT 'view ' || c.relname, 'pg_rewrite'::regclass, r.oid, pg_get_viewdef(c.oid)
FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
WHERE c.relnamespace = 'sched'::regnamespace AND c.relkind IN ('v', 'm')
UNION ALL
SELECT 'function ' || p.proname, 'pg_proc'::regclass, p.oid, pg_get_function_sqlbody(p.oid)
FROM pg_proc p WHERE p.pronamespace = 'sched'::regnamespace AND p.prosqlbody IS NOT NULL
UNION ALL
SELECT 'constraint ' || k.conname, 'pg_constraint'::regclass, k.oid, pg_get_constraintdef(k.oid)
FROM pg_constraint k WHERE k.connamespace = 'sched'::regnamespace
UNION ALL
SELECT 'trigger ' || t.tgname, 'pg_trigger'::regclass, t.oid, pg_get_triggerdef(t.oid)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'sched'::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT 'index ' || i.indexrelid::regclass, 'pg_class'::regclass, i.indexrelid,
       pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = 'sched'::regnamespace
"""
"""All that the schema keeps parsed. It is shown with the schema before each name of its own."""
DEPENDS = """
SELECT d.classid::regclass AS class, d.objid AS oid, p.proname AS clock
FROM pg_depend d JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
WHERE p.pronamespace = 'sched'::regnamespace AND p.proname = ANY ($1)
"""
"""What reads a clock of the schema. On functions of PostgreSQL's own nothing is noted to depend."""
FUNCTIONS = """
SELECT p.proname AS name, p.prosrc AS text, p.prorettype = 'trigger'::regtype AS triggers,
       p.proconfig AS settings
FROM pg_proc p WHERE p.pronamespace = 'sched'::regnamespace AND p.proname <> ALL ($1)
"""
READS_NOTHING = {"pass_by", "refuse_cursor_going_back"}
"""Trigger functions that only refuse or return; those of them without a path have the session's."""


def readings(text: str) -> list[str]:
    """The clocks that a text reads."""
    return re.findall(rf"(?:\w+\.)?\b(?:{'|'.join(CLOCKS)})\b", text)


async def test_what_the_schema_keeps_parsed_reads_the_clock_of_the_schema_alone(virtual_ledger):
    async with virtual_ledger._connections.transaction() as connection:
        await connection.execute("SET LOCAL search_path = pg_catalog")
        stored = await connection.fetch(STORED)
        depends = await connection.fetch(DEPENDS, list(CLOCKS))
    bound: dict[tuple[str, int], set[str]] = {}
    for row in depends:
        bound.setdefault((row["class"], row["oid"]), set()).add(row["clock"])
    read: dict[tuple[str, int], set[str]] = {}
    for row in stored:
        assert not REAL.search(row["text"]), row["name"]
        for reading in readings(row["text"]):
            schema, _, clock = reading.rpartition(".")
            assert schema == "sched", f"{row['name']} reads PostgreSQL's own {clock}"
            read.setdefault((row["class"], row["oid"]), set()).add(clock)
    assert read == bound
    kinds = {row["name"].split()[0] for row in stored if (row["class"], row["oid"]) in read}
    assert kinds >= {"default", "view"}, "the test has found what there is"


async def test_functions_find_the_clock_of_the_schema_before_that_of_postgresql(virtual_ledger):
    functions = await virtual_ledger._connections.fetch(FUNCTIONS, list(CLOCKS))
    assert sum(each["triggers"] for each in functions) > 5, "the test has found what there is"
    for each in functions:
        assert not REAL.search(COMMENT.sub("", each["text"])), each["name"]
        paths = [
            value.replace('"', "")
            for name, _, value in (setting.partition("=") for setting in each["settings"] or ())
            if name == "search_path"
        ]
        if paths or (each["triggers"] and each["name"] not in READS_NOTHING):
            assert paths == ["sched, pg_catalog, pg_temp"], each["name"]
        elif each["triggers"]:
            assert not readings(each["text"]), each["name"]


def test_no_statement_of_the_ledger_reads_a_clock_that_a_test_cannot_move():
    folder = files("engine.ledger.postgres")
    texts = {
        file.name: file.read_text(encoding="utf-8")
        for part in ("queries", "migrations")
        for file in (folder / part).iterdir()
        if file.name.endswith(".sql")
    }
    assert any(map(readings, texts.values())), "the test has found what there is"
    found = {
        name: match[0]
        for name, text in texts.items()
        if (match := REAL.search(COMMENT.sub("", text)))
    }
    assert found == {}


async def test_every_default_is_of_the_time_to_which_the_clock_was_moved(virtual_ledger, clock):
    clock.move_to(THEN)
    connections, count = virtual_ledger._connections, 0
    tables = await connections.fetch(
        "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p')"
        " AND relnamespace = 'sched'::regnamespace AND relname <> 'virtual_clock'"
    )
    for table in tables:
        of_it = f"pg_temp.one_of_{table['name']}"
        async with connections.transaction() as connection:
            await connection.execute(
                f'CREATE TABLE {of_it} (LIKE "{table["name"]}" INCLUDING DEFAULTS) ON COMMIT DROP'
            )
            needed = await connection.fetch(
                "SELECT attname AS name FROM pg_attribute"
                " WHERE attrelid = $1::text::regclass AND attnum > 0 AND attnotnull",
                of_it,
            )
            for column in needed:
                await connection.execute(
                    f'ALTER TABLE {of_it} ALTER "{column["name"]}" DROP NOT NULL'
                )
            (row,) = await connection.fetch(f"INSERT INTO {of_it} DEFAULT VALUES RETURNING *")
        for name, value in row.items():
            if isinstance(value, datetime) and value.year not in {1, 9999}:  # for ever
                assert value == THEN, f"{table['name']}.{name}"
                count += 1
    assert count > 10, "the test has found what there is"


async def test_no_row_of_a_life_of_the_ledger_is_of_the_time_of_the_machine(virtual_ledger, clock):
    """Nor is what triggers write: events, positions, lines."""
    clock.move_to(THEN)
    bench = Bench(virtual_ledger)
    await bench.announce()
    listens = Subscription(name="a", kind="listener", events=("*",), project="default")
    await virtual_ledger.events.subscribe(listens, lasts=timedelta(days=7), by="a")
    entry = "{key: k, workflow: noop, everyMs: 60000, overlap: queue, description: %s}"
    for words in ("one", "two"):
        await bench.declare(f"schedules: [{entry % words}]")
    for _ in range(3):
        await bench.claim()
        clock.advance(MINUTE)
    await virtual_ledger.events.place(100)
    events = await virtual_ledger.events.read(0, 100)
    assert {event.at for event in events} == {THEN}
    columns = await virtual_ledger._connections.fetch(
        "SELECT c.relname AS table, quote_ident(a.attname) AS column FROM pg_attribute a"
        " JOIN pg_class c ON c.oid = a.attrelid WHERE c.relkind IN ('r', 'p')"
        " AND c.relnamespace = 'sched'::regnamespace AND a.atttypid = 'timestamptz'::regtype"
    )
    for each in columns:
        rows = await virtual_ledger._connections.fetch(
            f"SELECT {each['column']} AS at FROM {each['table']}"
            f" WHERE isfinite({each['column']})"
            f" AND NOT {each['column']} BETWEEN '1999-12-31' AND '2001-12-31'"
        )
        assert rows == [], f"{each['table']}.{each['column']}"


async def test_a_view_follows_the_clock(virtual_ledger, clock):
    clock.move_to(THEN)
    bench = Bench(virtual_ledger)
    await bench.announce()
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 3600000, grace: 1m}]")
    await bench.claim()

    async def overdue() -> list[timedelta]:
        rows = await virtual_ledger._connections.fetch("SELECT late FROM overdue")
        return [row["late"] for row in rows if row["late"] < timedelta(hours=1)]

    (row,) = await virtual_ledger.schedules()
    clock.move_to(row.next_fire_at)
    assert await overdue() == []
    clock.advance(MINUTE * 2)
    assert await overdue() == [MINUTE * 2]


async def test_a_worker_refuses_a_ledger_of_the_testing_kit(postgres):
    async with virtual_database(postgres.url_of("postgres")) as url:
        with pytest.raises(
            LedgerError, match=r"sched replaces .*: clock_timestamp, statement_timestamp; set SCHED"
        ):
            await Ledger.connect(url)


@pytest.mark.parametrize(
    "shadow",
    [
        "FUNCTION sched.lower(text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$",
        "FUNCTION sched.count(real) RETURNS real LANGUAGE sql AS $$ SELECT 1.0 $$",
        "AGGREGATE sched.max(real) (SFUNC = float4larger, STYPE = real)",
    ],
)
async def test_a_worker_refuses_a_schema_that_shadows_a_function_of_postgresql(
    database_url, shadow
):
    ledger = await Ledger.connect(database_url)
    await ledger._connections.fetch(f"CREATE {shadow}")
    await ledger.close()
    name = shadow.partition("(")[0].rpartition(".")[2]
    with pytest.raises(LedgerError, match=f"functions of PostgreSQL: {name};"):
        await Ledger.connect(database_url)


async def test_an_extension_in_the_schema_of_the_ledger_shadows_nothing(database_url):
    ledger = await Ledger.connect(database_url)
    # As citext has them, of its own type.
    for statement in (
        "CREATE FUNCTION sched.lower(sched.fires) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$",
        "ALTER EXTENSION plpgsql ADD FUNCTION sched.lower(sched.fires)",
    ):
        await ledger._connections.fetch(statement)
    await ledger.close()
    await (await Ledger.connect(database_url)).close()
