"""Database schema: migrations and index builds."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import asyncpg

from engine.errors import LedgerTooNew, LedgerUnavailable, ScheduleError
from engine.ledger.postgres.blockers import ORDINARY, Blockers, naming_blockers
from engine.ledger.postgres.connections import Connection, Connections

# --- migrations ---
# Numbered SQL files that bring a ledger's schema up to date while workers run. Each step is a short
# transaction that waits at most a second for its lock, and each file names the oldest code that may
# work beside it. A released file is never edited. CONTRIBUTING.md says how to write one, ADR 24 why
# they are made so.

_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_BESIDE = re.compile(r"^-- beside: (\d+)$", re.MULTILINE)
_STEP = re.compile(r"^-- step\b.*\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_APART = re.compile(
    r"\s*(?P<verb>CREATE|DROP)\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+"
    r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(?P<index>\w+)"
)
_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
_LOCK_NAME = "sched-engine migrations {schema}"
"""The key that code before migration 0011 locks too; that code waits for it in its transaction."""
_LOCK_TIMEOUT = "1s"
"""Ticks queue behind a statement that waits for a lock of their table."""
_STEP_TIMEOUT = 600.0
"""Timeout in seconds of one step. Its long parts, such as VALIDATE CONSTRAINT, block no one."""
PATIENCE = 60.0
"""Seconds after which a migration that waits for another session raises an error."""
# EXECUTE on functions that a migration has just created: PostgreSQL grants it to PUBLIC, and the
# schema's default privileges may grant it to workers. Nobody calls a trigger function: PostgreSQL
# checks its privilege when a trigger is created, and not when it fires.
_FUNCTIONS = """
SELECT array_agg(oid) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
"""
_UNWANTED_GRANTS = """
SELECT p.oid::regprocedure::text AS function,
       CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS role
FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
WHERE p.pronamespace = current_schema()::regnamespace AND p.oid <> ALL (coalesce($1::oid[], '{}'))
  AND (a.grantee = 0 OR (p.prorettype = 'trigger'::regtype AND a.grantee <> p.proowner))
"""
_LONGEST_PAUSE = 5.0
_POLL = 0.05


@dataclass(frozen=True)
class Migration:
    """One migration file.

    Attributes:
        version: its number.
        beside: the newest migration of the oldest code that may work with the ledger afterwards;
            None if code has to know this migration.
        steps: its SQL, in order. Each is done once and recorded.
    """

    version: int
    beside: int | None
    steps: tuple[str, ...]

    @classmethod
    def of(cls, version: int, text: str) -> Migration:
        """Parse a file."""
        beside = _BESIDE.search(text)
        parts = _STEP.split(text)
        steps = tuple(part for part in parts if _COMMENT.sub("", part).strip())
        return cls(version, int(beside[1]) if beside else None, steps)

    @cached_property
    def apart(self) -> Mapping[int, IndexStep]:
        """The index steps by number (from 0): outside transactions, and nothing depends on them."""
        found = {}
        for number, sql in enumerate(self.steps):
            if match := _APART.match(_COMMENT.sub("", sql)):
                drops = match["verb"] == "DROP"
                found[number] = IndexStep(self.version, number, sql, match["index"], drops=drops)
        return found

    @property
    def at_once(self) -> str:
        """All of its SQL for a new ledger, where an index is built faster in a transaction."""
        return "\n;\n".join(
            sql.replace("CONCURRENTLY", "") if number in self.apart else sql
            for number, sql in enumerate(self.steps)
        )


@dataclass(frozen=True, slots=True)
class IndexStep:
    """A step that builds or drops an index while others write to its table."""

    version: int
    number: int
    sql: str
    index: str
    drops: bool


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """The ledger's record of a migration; ``steps`` is None once all of it is done."""

    beside: int | None
    steps: frozenset[int] | None

    def lacks(self, number: int) -> bool:
        """Return whether a step is still to be done."""
        return self.steps is not None and number not in self.steps


_NOTHING = AppliedMigration(None, frozenset())


def check_schema_name(schema: str) -> str:
    """Return ``schema`` if PostgreSQL takes it unquoted.

    Raises:
        ScheduleError: it does not.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise ScheduleError(
            f"SCHED_SCHEMA is {schema!r}", cure="use lower-case letters, digits and underscores"
        )
    return schema


@cache
def migrations() -> list[Migration]:
    """Return every migration of this code, in order."""
    folder = files("engine.ledger.postgres") / "migrations"
    found = [
        Migration.of(int(match[1]), file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _NAME.match(file.name))
    ]
    return sorted(found, key=lambda each: each.version)


@cache
def version_of(what: str) -> int:
    """Return the number of the migration in ``<number>_<what>.sql``."""
    folder = files("engine.ledger.postgres") / "migrations"
    (version,) = (
        int(match[1])
        for file in folder.iterdir()
        if (match := _NAME.match(file.name)) and file.name[len("0000_") :] == f"{what}.sql"
    )
    return version


async def migrate(
    connections: Connections,
    schema: str = "sched",
    *,
    known: Sequence[Migration] | None = None,
    patience: float = PATIENCE,
) -> list[int]:
    """Do every missing step except those of indexes; return the versions completed here.

    Any number of replicas may start at once: each step is done by one of them.

    Args:
        connections: to the database.
        schema: of the ledger.
        known: the migrations of this code; tests pass others.
        patience: seconds for which a lock that another session holds is retried.

    Raises:
        LedgerTooNew: the ledger has a migration that this code may not work beside.
        LedgerUnavailable: a lock could not be acquired in time; finished steps stay done.
    """
    check_schema_name(schema)
    turn = _MigrationRun(connections, schema, migrations() if known is None else known)
    others = Blockers(connections, "a migration", lock=turn.lock, after=ORDINARY)
    deadline = asyncio.get_running_loop().time() + patience
    while not await turn.is_up_to_date():
        if not await turn.take(deadline):
            await others.check()
            await asyncio.sleep(_POLL)
            if asyncio.get_running_loop().time() > deadline:
                raise LedgerUnavailable(
                    f"a migration waits for the lock of migrations that {others.last} holds",
                    cure="wait for the other migration, or end that session",
                )
    return turn.completed


async def read_applied(connections: Connections, schema: str) -> dict[int, AppliedMigration] | None:
    """Return the migrations recorded in the ledger; None if it does not exist yet."""
    (row,) = await connections.fetch(
        "SELECT CASE WHEN to_regnamespace($1) IS NULL THEN NULL"
        " ELSE to_regclass($1 || '.migrations') END IS NOT NULL AS made",
        schema,
    )
    return _as_applied(await connections.fetch(_read(schema))) if row["made"] else None


def missing_indexes(
    known: Sequence[Migration], have: Mapping[int, AppliedMigration]
) -> list[IndexStep]:
    """Return the index steps that are not done yet, in order."""
    return [
        step
        for each in known
        for number, step in each.apart.items()
        if have.get(each.version, _NOTHING).lacks(number)
    ]


@dataclass
class _MigrationRun:
    """A migration by one process: one transaction at a time, under a lock that ends with it.

    No process waits *in* that lock: a waiting statement has a snapshot, and the build of an index
    would wait for that.
    """

    connections: Connections
    schema: str
    known: Sequence[Migration]
    completed: list[int] = field(default_factory=list)

    @property
    def lock(self) -> str:
        """Name of the advisory lock."""
        return _LOCK_NAME.format(schema=self.schema)

    async def is_up_to_date(self) -> bool:
        """Return whether no step is left, so that a role without CREATE can use such a ledger."""
        have = await read_applied(self.connections, self.schema)
        if have is None:
            return False
        _require_not_newer(have, self.known)
        return _next(self.known, have) is None

    async def take(self, deadline: float) -> bool:
        """Do the next step, or all of a new ledger; return False while another process does one."""
        async with self.connections.transaction(long=True) as connection:
            if not await connection.fetchval(_LOCK, self.lock):
                return False
            await connection.execute(f"SET LOCAL search_path = {self.schema}")
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            if await self._is_new(connection):
                self.completed += await self._make(connection)
                return True
            await self._ask_again_until(deadline, connection)
        return True

    async def _is_new(self, connection: Connection) -> bool:
        if await connection.fetchval("SELECT to_regnamespace($1)", self.schema) is None:
            await connection.execute(f"CREATE SCHEMA {self.schema}")
        place = f"{self.schema}.migrations"
        return await connection.fetchval("SELECT to_regclass($1)", place) is None

    async def _make(self, connection: Connection) -> list[int]:
        """Create a new ledger in one transaction, because it is not in use yet."""
        await connection.execute(
            "CREATE TABLE migrations (version integer PRIMARY KEY,"
            " applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),"
            " beside integer, steps integer[], filled_from bigint)"
        )
        for each in self.known:
            await _execute(connection, each.at_once)
        await connection.executemany(
            "INSERT INTO migrations (version, beside, steps, filled_from) VALUES ($1, $2, $3, 0)",
            [(each.version, each.beside, [*range(len(each.steps))]) for each in self.known],
        )
        return [each.version for each in self.known]

    async def _ask_again_until(self, deadline: float, connection: Connection) -> None:
        """Retry the next step until its lock is acquired, with pauses in which ticks get theirs.

        The pauses are part of the transaction, which then has neither a snapshot nor a table lock.
        Its advisory lock keeps other starting replicas from trying in the pauses.
        """
        tries = 0
        loop = asyncio.get_running_loop()
        async with naming_blockers(self.connections, connection, "a migration") as named:
            while True:
                try:
                    async with connection.transaction():
                        await self._next_step(connection)
                except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
                    tries += 1
                    pause = min(1.0 + tries, _LONGEST_PAUSE)
                    if loop.time() + pause > deadline:
                        raise LedgerUnavailable(
                            f"a migration waits for a lock that {named.last} holds",
                            cure="end that session, or wait: the steps that are done stay done",
                        ) from error
                    await asyncio.sleep(pause)
                else:
                    return

    async def _next_step(self, connection: Connection) -> None:
        """Do the next step, read again because another process may have done one meanwhile."""
        columns = await connection.fetchval(
            "SELECT count(*) FROM pg_attribute WHERE attrelid = 'migrations'::regclass"
            " AND attname IN ('beside', 'steps', 'filled_from')"
        )
        if columns < len(("beside", "steps", "filled_from")):
            await connection.execute(
                "ALTER TABLE migrations ADD COLUMN IF NOT EXISTS beside integer,"
                " ADD COLUMN IF NOT EXISTS steps integer[],"
                " ADD COLUMN IF NOT EXISTS filled_from bigint"
            )
            return
        have = _as_applied(await connection.fetch(_read(self.schema)))
        _require_not_newer(have, self.known)
        following = _next(self.known, have)
        if following is None:
            return
        migration, number = following
        if number is not None:
            await _execute(connection, migration.steps[number])
        await note_step(connection, migration.version, number, migration.beside)
        done = have.get(migration.version, _NOTHING).steps or frozenset()
        if (
            _left(
                migration, AppliedMigration(None, done | {number} if number is not None else done)
            )
            == []
        ):
            self.completed.append(migration.version)


async def _execute(connection: Connection, sql: str) -> None:
    """Run SQL of a migration, and leave its new functions to the owner and the workers alone."""
    before = await connection.fetchval(_FUNCTIONS)
    await connection.execute(sql, timeout=_STEP_TIMEOUT)
    for function, role in await connection.fetch(_UNWANTED_GRANTS, before):
        await connection.execute(f"REVOKE ALL ON ROUTINE {function} FROM {role}")


async def note_step(
    connection: Connection | asyncpg.Connection[asyncpg.Record],
    version: int,
    number: int | None,
    beside: int | None = None,
) -> None:
    """Record that a step is done, or without ``number`` that no transactional step is left."""
    await connection.execute(
        "INSERT INTO migrations AS m (version, beside, steps) VALUES ($1, $2, $3)"
        " ON CONFLICT (version) DO UPDATE"
        " SET steps = m.steps || excluded.steps, applied_at = clock_timestamp()",
        version,
        beside,
        [] if number is None else [number],
    )


def _read(schema: str) -> str:
    # Via JSON, because code before migration 0011 created the table without these columns.
    return (
        "SELECT version, (to_jsonb(m) ->> 'beside')::int AS beside,"  # noqa: S608 - a checked name
        f" to_jsonb(m) ->> 'steps' AS steps FROM {schema}.migrations m"
    )


def _as_applied(rows: Sequence[asyncpg.Record]) -> dict[int, AppliedMigration]:
    return {
        row["version"]: AppliedMigration(
            row["beside"], frozenset(json.loads(row["steps"])) if row["steps"] else None
        )
        for row in rows
    }


def _require_not_newer(have: Mapping[int, AppliedMigration], known: Sequence[Migration]) -> None:
    mine = {each.version for each in known}
    newest = max(mine)
    unknown = {version: each for version, each in have.items() if version not in mine}
    if any(each.beside is None or each.beside > newest for each in unknown.values()):
        raise LedgerTooNew(
            f"the ledger is at version {max(unknown)}, this sched-engine knows {newest}",
            cure="run the newer sched-engine, or point SCHED_DATABASE_URL elsewhere",
        )


def _next(
    known: Sequence[Migration], have: Mapping[int, AppliedMigration]
) -> tuple[Migration, int | None] | None:
    """Return the next step to do; a migration of indexes alone is only recorded."""
    for each in known:
        left = _left(each, have.get(each.version))
        if left is None:
            return each, None
        if left:
            return each, left[0]
    return None


def _left(migration: Migration, applied: AppliedMigration | None) -> list[int] | None:
    """Return the steps to be done before workers use it; None if it only has to be recorded."""
    numbers = [n for n in range(len(migration.steps)) if n not in migration.apart]
    if applied is None:
        return numbers or None
    return [number for number in numbers if applied.lacks(number)]


# --- index builds ---
# Migration steps that no transaction may hold, done while others write. Nothing depends on them for
# correctness, so workers do not wait but build in the background: a concurrent build waits for
# every transaction that was open before it, such as a dump that runs for hours.

_BUILD_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('sched-engine indexes ' || $1, 0))"
"""A session lock: its holder knows that no other process is building an invalid index."""
_UNLIMITED = (
    "SELECT set_config($1, '0', false), set_config('lock_timeout', '0', false),"
    " set_config('statement_timeout', '0', false),"
    " set_config('application_name', 'sched-engine indexes', false)"
)
_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
_LONG = 7 * 86_400.0
"""Timeout in seconds of one build, which blocks no one while it waits."""
_LOOK = 0.5


async def build_indexes(
    connections: Connections,
    schema: str,
    *,
    known: Sequence[Migration] | None = None,
    patience: float | None = None,
) -> list[str]:
    """Build and drop the indexes of migrations; return the names of those that are left.

    One process at a time does so; the others leave it to that one. A build that was interrupted, by
    a crash or by ``patience``, starts over.

    Args:
        connections: to the database.
        schema: of the ledger.
        known: the migrations of this code; tests pass others.
        patience: seconds to wait for other sessions without a break; None waits without limit.

    Raises:
        LedgerError: the role does not own the tables.
    """
    known = migrations() if known is None else known
    if not (missing := missing_indexes(known, await read_applied(connections, schema) or {})):
        return []
    async with connections.apart() as connection:
        if not await connection.fetchval(_BUILD_LOCK, schema):
            return [step.index for step in missing]
        await connection.execute(_UNLIMITED, connections.limit)
        # Another process may have finished between the check and the lock.
        missing = missing_indexes(known, await read_applied(connections, schema) or {})
        while missing and await _do(connections, connection, schema, missing[0], patience):
            await note_step(connection, missing[0].version, missing[0].number)
            del missing[0]
    return [step.index for step in missing]


async def _do(
    connections: Connections,
    connection: asyncpg.Connection[Any],
    schema: str,
    step: IndexStep,
    patience: float | None,
) -> bool:
    """Do one step, even after an interrupted try; return False if ``patience`` ended."""
    valid = await connection.fetchval(_VALID, f"{schema}.{step.index}")
    if valid and not step.drops:
        return True
    what = f"the index {step.index} of migration {step.version:04}"
    async with naming_blockers(connections, connection, what) as blockers:
        drop = f"DROP INDEX CONCURRENTLY IF EXISTS {schema}.{step.index}"
        for sql in [drop] if step.drops else [drop, step.sql]:
            work = asyncio.create_task(connection.execute(sql, timeout=_LONG))
            try:
                while not work.done():
                    await asyncio.wait({work}, timeout=_LOOK)
                    if patience is not None and blockers.lasted > patience:
                        return False
            finally:
                if not work.done():
                    work.cancel()
                    with suppress(asyncio.CancelledError, asyncpg.QueryCanceledError):
                        await work
            await work
    return True
