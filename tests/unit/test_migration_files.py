"""No migration holds up a running fleet: what its SQL may not say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from engine.ledger.postgres.schema import Migration, migrations

_BODY = re.compile(r"(\$\w*\$).*?\1", re.DOTALL)
_STRING = re.compile(r"'(?:[^']|'')*'")
_COMMENT = re.compile(r"--.*$", re.MULTILINE)
_ON_ROWS = re.compile(r"(UPDATE|DELETE|MERGE|TRUNCATE)\b|(WITH|DO|EXPLAIN|CLUSTER|VACUUM|LOCK)\b")
_CREATES = re.compile(r"CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(\w+)")
_INDEX = re.compile(r"(?:CREATE (?:UNIQUE )?INDEX|DROP INDEX) (CONCURRENTLY )?.*?(?: ON (\w+))?")
_TOUCHES = re.compile(
    r"(?:ALTER TABLE|DROP TABLE|(?:ALTER|DROP) VIEW|CREATE (?:OR REPLACE )?VIEW)"
    r" (?:IF (?:NOT )?EXISTS )?(?:ONLY )?(\w+)"
    r"|(?:CREATE|DROP)(?: OR REPLACE)?(?: CONSTRAINT)? TRIGGER .*? ON (\w+)"
)
_LITERAL = re.compile(r"DEFAULT (''|-?\d+(?:\.\d+)?|true|false|NULL)(::\w+(\[\])?)?(?=[ ,;)]|$)")
_OTHER_CLOCKS = re.compile(
    r"(?<![\w.])(?:now|transaction_timestamp|timeofday) *\(|\bCURRENT_(?:TIMESTAMP|DATE|TIME)\b"
    r"|\bLOCALTIME(?:STAMP)?\b|'now'|pg_catalog\.\w*(?:timestamp|now)",
    re.IGNORECASE,
)
_ALTERS = {
    r"ADD COLUMN [^,]*\b(CHECK|REFERENCES|UNIQUE|PRIMARY KEY)\b": "scans: add the constraint apart",
    r"ADD COLUMN [^,]*\bGENERATED\b": "rewrites the table",
    r"ADD COLUMN (?![^,]*\bDEFAULT\b)[^,]*\bNOT NULL\b": "fails where there are rows",
    r"\bALTER COLUMN \w+ (SET DATA )?TYPE\b": "rewrites the table",
    r"\bALTER COLUMN \w+ SET NOT NULL\b": "scans: use CHECK … NOT VALID",
    r"\bSET (UN)?LOGGED\b|\bSET TABLESPACE\b|\bSET ACCESS METHOD\b": "rewrites the table",
}


def complaints(migration: Migration) -> Iterator[str]:
    """What of a file a running fleet would not survive."""
    made: set[str] = set()
    for number, step in enumerate(migration.steps):
        every = [*statements(step)]
        if number in migration.apart and len(every) > 1:
            yield "an index that is built concurrently is a step of its own"
        touched: set[str] = set()
        for statement in every:
            made.update(_CREATES.findall(statement))
            touched |= {name for pair in _TOUCHES.findall(statement) for name in pair if name}
            yield from (f"{each}: {statement[:80]}" for each in _of_statement(statement, made))
        if len(touched - made) > 1:
            yield f"one step locks {', '.join(sorted(touched - made))}, each for a second"


def _of_statement(statement: str, made: set[str]) -> Iterator[str]:
    if _ON_ROWS.match(statement):
        yield "rows are the janitor's to write"
    if (
        (index := _INDEX.fullmatch(statement.split(" (", maxsplit=1)[0]))
        and not index[1]
        and (index[2] not in made)
    ):
        yield "an index of a table in use is built CONCURRENTLY"
    altered = re.match(r"ALTER TABLE (?:IF EXISTS )?(?:ONLY )?(\w+)", statement)
    if altered is None or altered[1] in made:
        return
    for pattern, why in _ALTERS.items():
        if re.search(pattern, statement):
            yield why
    if "DEFAULT" in _LITERAL.sub("", statement):
        yield "a default that is no literal rewrites the table"
    for constraint in re.split(r",(?![^(]*\))", statement):
        adds = re.search(r"ADD (CONSTRAINT \w+ )?(CHECK|FOREIGN KEY)\b", constraint)
        if adds and not constraint.rstrip().endswith("NOT VALID"):
            yield "a constraint that scans is added NOT VALID and validated in a step of its own"
        if re.search(r"ADD (CONSTRAINT \w+ )?(UNIQUE|PRIMARY KEY|EXCLUDE) ?\(", constraint):
            yield "a key is added USING INDEX"


def statements(step: str) -> Iterator[str]:
    """Each statement on one line, without comments, texts and bodies of functions."""
    text = _COMMENT.sub("", _STRING.sub("''", _BODY.sub("''", _COMMENT.sub("", step))))
    for statement in text.split(";"):
        if said := " ".join(statement.split()):
            yield said


def test_a_running_fleet_survives_every_migration():
    # The first makes a ledger that nobody uses yet.
    found = {each.version: [*complaints(each)] for each in migrations()[1:]}
    assert [*filter(None, found.values())] == []


def test_a_migration_says_the_oldest_code_that_may_work_beside_it():
    """One that says nothing stops every older worker from starting: a contraction does."""
    for migration in migrations()[1:]:
        assert migration.beside is not None
        assert migration.beside < migration.version


def test_the_schema_reads_no_clock_but_those_of_its_search_path():
    """Tests put clocks of their own in front; the time of a transaction is that of its begin."""
    folder = files("engine.ledger.postgres")
    texts = [
        (file.name, _COMMENT.sub("", file.read_text(encoding="utf-8")))
        for part in ("migrations", "queries")
        for file in (folder / part).iterdir()
    ]
    assert [(name, found) for name, text in texts for found in _OTHER_CLOCKS.findall(text)] == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE fires SET reason = NULL", "rows are the janitor's"),
        ("DELETE FROM fires WHERE false", "rows are the janitor's"),
        ("WITH gone AS (DELETE FROM fires RETURNING 1) SELECT 1", "rows are the janitor's"),
        ("DO $$ BEGIN UPDATE fires SET reason = NULL; END $$", "rows are the janitor's"),
        ("CREATE INDEX fires_x ON fires (x)", "built CONCURRENTLY"),
        ("CREATE UNIQUE INDEX fires_x ON fires (x) WHERE x > 0", "built CONCURRENTLY"),
        ("DROP INDEX fires_recent", "built CONCURRENTLY"),
        (
            "CREATE INDEX CONCURRENTLY a ON fires (x); CREATE INDEX CONCURRENTLY b ON fires (x)",
            "a step of its own",
        ),
        ("ALTER TABLE fires ADD COLUMN x uuid DEFAULT gen_random_uuid()", "no literal"),
        ("ALTER TABLE fires ADD COLUMN x timestamptz DEFAULT clock_timestamp()", "no literal"),
        ("ALTER TABLE fires ADD COLUMN x int NOT NULL", "fails where there are rows"),
        ("ALTER TABLE fires ADD COLUMN x int GENERATED ALWAYS AS (1) STORED", "rewrites"),
        ("ALTER TABLE fires ADD COLUMN x int CHECK (x > 0)", "add the constraint apart"),
        ("ALTER TABLE fires ALTER COLUMN reason SET NOT NULL", "NOT VALID"),
        ("ALTER TABLE fires ALTER COLUMN id TYPE numeric", "rewrites"),
        ("ALTER TABLE fires ADD CONSTRAINT x CHECK (missed IN (1, 2))", "NOT VALID"),
        ("ALTER TABLE fires ADD FOREIGN KEY (key) REFERENCES schedules (key)", "NOT VALID"),
        ("ALTER TABLE fires ADD CONSTRAINT x UNIQUE (key)", "USING INDEX"),
        ("ALTER TABLE fires ADD x int; ALTER TABLE schedules ADD x int", "locks fires, schedules"),
    ],
)  # fmt: skip
def test_what_stops_a_fleet_is_found(sql: str, said: str):
    found = [*complaints(Migration.of(99, sql))]
    assert any(said in each for each in found), found


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE fires ADD COLUMN x text",
        "ALTER TABLE fires ADD COLUMN x int NOT NULL DEFAULT 0, ADD COLUMN y text DEFAULT 'a;b'",
        "ALTER TABLE fires ADD COLUMN x text[] NOT NULL DEFAULT '{}'::text[]",
        "ALTER TABLE fires ADD CONSTRAINT x CHECK (missed IN (1, 2)) NOT VALID",
        "ALTER TABLE fires VALIDATE CONSTRAINT x",
        "CREATE INDEX CONCURRENTLY fires_x ON fires (x) WHERE status IN ('a')",
        "DROP INDEX CONCURRENTLY fires_recent",
        (
            "CREATE TABLE more (x int PRIMARY KEY CHECK (x > 0), y timestamptz DEFAULT now());\n"
            "CREATE INDEX more_y ON more (y); ALTER TABLE more ADD z int UNIQUE"
        ),
        "CREATE TRIGGER x BEFORE INSERT OR UPDATE OF reason ON fires FOR EACH ROW EXECUTE f()",
        (
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE t SET x = 1; "
            "END $$"
        ),
        (
            "CREATE TABLE a (x int);\n-- step\nALTER TABLE fires ADD x int;\n"
            "-- step\nALTER TABLE schedules ADD x int"
        ),
    ],
)
def test_what_a_fleet_survives_is_let_pass(sql: str):
    assert [*complaints(Migration.of(99, sql))] == []


def test_a_file_is_divided_into_steps():
    migration = Migration.of(
        99,
        "-- beside: 12\n-- Why.\nALTER TABLE a ADD x int;\n-- step\n-- An index.\n"
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS a_x ON a (x);\n-- step: the last\n"
        "DROP INDEX CONCURRENTLY a_y;\n",
    )
    assert migration.beside == 12
    assert len(migration.steps) == 3
    found = [(step.number, step.index, step.drops) for step in migration.apart.values()]
    assert found == [(1, "a_x", False), (2, "a_y", True)]
    assert "CONCURRENTLY" not in migration.at_once
