"""Database schema: migrations and index builds."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import asyncpg

from engine.errors import LedgerError, LedgerTooNew, LedgerUnavailable, ScheduleError
from engine.ledger.postgres.blockers import ORDINARY, Blockers, naming_blockers
from engine.ledger.postgres.connections import Connection, Connections, search_path_of

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
_SCHEMA_EXISTS = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)"
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
        digest: SHA-256 of its text.
        beside: the newest migration of the oldest code that may work with the ledger afterwards;
            None if code has to know this migration.
        steps: its SQL, in order. Each is done once and recorded.
    """

    version: int
    digest: str
    beside: int | None
    steps: tuple[str, ...]

    @classmethod
    def of(cls, version: int, text: str) -> Migration:
        """Parse a file."""
        beside = _BESIDE.search(text)
        parts = _STEP.split(text)
        steps = tuple(part for part in parts if _COMMENT.sub("", part).strip())
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(version, digest, int(beside[1]) if beside else None, steps)

    @cached_property
    def apart(self) -> Mapping[int, IndexStep]:
        """The index steps by number (from 0): outside transactions, and nothing depends on them."""
        found = {}
        for number, sql in enumerate(self.steps):
            if match := _APART.match(_COMMENT.sub("", sql)):
                drops = match["verb"] == "DROP"
                found[number] = IndexStep(self, number, sql, match["index"], drops=drops)
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

    migration: Migration
    number: int
    sql: str
    index: str
    drops: bool


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """The ledger's record of a migration: its file, and which of its steps are done."""

    digest: str
    beside: int | None
    steps: frozenset[int]


def check_schema_name(schema: str) -> str:
    """Return ``schema`` if PostgreSQL takes it unquoted.

    Raises:
        ScheduleError: it does not.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise ScheduleError(
            f"SCHED_SCHEMA is {schema!r}", hint="use lower-case letters, digits and underscores"
        )
    return schema


_SHADOWS = """
SELECT DISTINCT p.proname AS name FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_proc own ON own.proname = p.proname
    AND own.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
WHERE p.pronamespace = pg_catalog.to_regnamespace($1)
  -- An extension in the same schema has functions of its own types.
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e'
                  AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass)
ORDER BY name
"""


async def refuse_shadows(connections: Connections, schema: str) -> None:
    """Refuse a schema that replaces functions of PostgreSQL in every statement of the ledger.

    Raises:
        LedgerError: it does.
    """
    if rows := await connections.fetch(_SHADOWS, schema):
        names = ", ".join(row["name"] for row in rows)
        raise LedgerError(
            f"the schema {schema} replaces functions of PostgreSQL: {names}",
            hint="set SCHED_SCHEMA to a schema of the ledger's own; no worker uses one of the kit",
        )


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
        LedgerError: the ledger was made by other migrations than those of this code.
        LedgerTooNew: the ledger has a migration that this code may not work beside.
        LedgerUnavailable: a lock could not be acquired in time; finished steps stay done.
    """
    check_schema_name(schema)
    turn = _MigrationRun(connections, schema, migrations() if known is None else known)
    others = Blockers(connections, "a migration", lock=turn.lock, after=ORDINARY)
    deadline = asyncio.get_running_loop().time() + patience
    while not await turn.is_up_to_date():
        if not await _taken(turn, deadline):
            await others.check()
            await asyncio.sleep(_POLL)
            if asyncio.get_running_loop().time() > deadline:
                raise LedgerUnavailable(
                    f"a migration waits for the lock of migrations that {others.last} holds",
                    hint="wait for the other migration, or end that session",
                )
    return turn.completed


async def _taken(turn: _MigrationRun, deadline: float) -> bool:
    """Take the next step; see ``_MigrationRun.take``.

    Raises:
        LedgerError: this role may not.
    """
    try:
        return await turn.take(deadline)
    except LedgerError as error:
        if not isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError):
            raise
        raise LedgerError(
            f"the schema {turn.schema} is not up to date, and this role may not change that:"
            f" {error.__cause__}",
            hint="run `sched migrate` as a role that may",
        ) from error


async def require_up_to_date(connections: Connections, schema: str) -> None:
    """Check that no step is missing but those of indexes.

    Raises:
        LedgerError: one is, or the ledger was made by other migrations than those of this code.
        LedgerTooNew: see ``migrate``.
    """
    if not await _MigrationRun(connections, schema, migrations()).is_up_to_date():
        raise LedgerError(
            f"the schema {schema} is not there, or not up to date",
            hint="`sched migrate` brings it up to date; SCHED_SCHEMA names another one",
        )


async def read_applied(connections: Connections, schema: str) -> dict[int, AppliedMigration] | None:
    """Return the migrations recorded in the ledger; None if it does not exist yet.

    Raises:
        LedgerError: it was made before migrations recorded their digests.
    """
    (row,) = await connections.fetch(
        "SELECT CASE WHEN to_regnamespace($1) IS NULL THEN NULL"
        " ELSE to_regclass($1 || '.migrations') END IS NOT NULL AS made",
        schema,
    )
    return await _applied(connections, schema) if row["made"] else None


def missing_indexes(
    known: Sequence[Migration], have: Mapping[int, AppliedMigration]
) -> list[IndexStep]:
    """Return the index steps that are not done yet, in order."""
    return [
        step
        for each in known
        for number, step in each.apart.items()
        if each.version not in have or number not in have[each.version].steps
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
        _require_known(have, self.known, self.schema)
        return _next(self.known, have) is None

    async def take(self, deadline: float) -> bool:
        """Do the next step, or all of a new ledger; return False while another process does one."""
        async with self.connections.transaction(long=True) as connection:
            if not await connection.fetchval(_LOCK, self.lock):
                return False
            # Triggers keep this path: see 0001_ledger.sql.
            await connection.execute(f"SET LOCAL search_path = {search_path_of(self.schema)}")
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            if await self._is_new(connection):
                self.completed += await self._make(connection)
                return True
            await self._ask_again_until(deadline, connection)
        return True

    async def _is_new(self, connection: Connection) -> bool:
        # From the table: to_regnamespace may answer as it was before the lock, when another process
        # had not committed the schema yet.
        if not await connection.fetchval(_SCHEMA_EXISTS, self.schema):
            await connection.execute(f"CREATE SCHEMA {self.schema}")
        place = f"{self.schema}.migrations"
        return await connection.fetchval("SELECT to_regclass($1)", place) is None

    async def _make(self, connection: Connection) -> list[int]:
        """Create a new ledger in one transaction, because it is not in use yet."""
        await connection.execute(
            "CREATE TABLE migrations (version integer PRIMARY KEY, digest text NOT NULL,"
            " beside integer, steps integer[] NOT NULL,"
            " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        for each in self.known:
            await _execute(connection, each.at_once)
        await connection.executemany(
            "INSERT INTO migrations (version, digest, beside, steps) VALUES ($1, $2, $3, $4)",
            [(m.version, m.digest, m.beside, [*range(len(m.steps))]) for m in self.known],
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
                            hint="end that session, or wait: the steps that are done stay done",
                        ) from error
                    await asyncio.sleep(pause)
                else:
                    return

    async def _next_step(self, connection: Connection) -> None:
        """Do the next step, read again because another process may have done one meanwhile."""
        have = await _applied(connection, self.schema)
        _require_known(have, self.known, self.schema)
        following = _next(self.known, have)
        if following is None:
            return
        migration, number = following
        if number is not None:
            await _execute(connection, migration.steps[number])
        await note_step(connection, migration, number)
        done = have[migration.version].steps if migration.version in have else frozenset()
        if not _left(migration, done if number is None else done | {number}):
            self.completed.append(migration.version)


async def _execute(connection: Connection, sql: str) -> None:
    """Run SQL of a migration, and leave its new functions to the owner and the workers alone."""
    before = await connection.fetchval(_FUNCTIONS)
    await connection.execute(sql, timeout=_STEP_TIMEOUT)
    for function, role in await connection.fetch(_UNWANTED_GRANTS, before):
        await connection.execute(f"REVOKE ALL ON ROUTINE {function} FROM {role}")


async def note_step(
    connection: Connection | asyncpg.Connection[asyncpg.Record],
    migration: Migration,
    number: int | None,
) -> None:
    """Record that a step is done, or without ``number`` that no transactional step is left."""
    await connection.execute(
        "INSERT INTO migrations AS m (version, digest, beside, steps) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (version) DO UPDATE"
        " SET steps = m.steps || excluded.steps, applied_at = clock_timestamp()",
        migration.version,
        migration.digest,
        migration.beside,
        [] if number is None else [number],
    )


async def _applied(
    connection: Connections | Connection, schema: str
) -> dict[int, AppliedMigration]:
    try:
        rows = await connection.fetch(
            # As text: asyncpg would look up an array of integers, half of the time of a connect.
            f"SELECT version, digest, beside, steps::text[] FROM {schema}.migrations"  # noqa: S608 - a checked name
        )
    except asyncpg.UndefinedColumnError as error:
        raise _made_by_another(schema) from error
    return {
        row["version"]: AppliedMigration(
            row["digest"], row["beside"], frozenset(map(int, row["steps"]))
        )
        for row in rows
    }


def _made_by_another(schema: str) -> LedgerError:
    return LedgerError(
        f"the schema {schema} has the ledger of an unreleased version of sched-engine",
        hint=f"set SCHED_SCHEMA to a new schema, or drop this one: DROP SCHEMA {schema} CASCADE",
    )


def _require_known(
    have: Mapping[int, AppliedMigration], known: Sequence[Migration], schema: str
) -> None:
    """Raise an error unless this code may work with a ledger of these migrations."""
    mine = {each.version: each.digest for each in known}
    newest = max(mine)
    if any(each.digest != mine.get(version, each.digest) for version, each in have.items()):
        raise _made_by_another(schema)
    unknown = {version: each for version, each in have.items() if version not in mine}
    if any(each.beside is None or each.beside > newest for each in unknown.values()):
        raise LedgerTooNew(
            f"the ledger is at version {max(unknown)}, this sched-engine knows {newest}",
            hint="run the newer sched-engine, or point SCHED_DATABASE_URL elsewhere",
        )


def _next(
    known: Sequence[Migration], have: Mapping[int, AppliedMigration]
) -> tuple[Migration, int | None] | None:
    """Return the next step to do; a migration of indexes alone is only recorded."""
    for each in known:
        left = _left(each, have[each.version].steps if each.version in have else frozenset())
        if left:
            return each, left[0]
        if each.version not in have:
            return each, None
    return None


def _left(migration: Migration, done: frozenset[int]) -> list[int]:
    """Return the steps to be done before workers use it."""
    numbers = range(len(migration.steps))
    return [n for n in numbers if n not in migration.apart and n not in done]


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
            await note_step(connection, missing[0].migration, missing[0].number)
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
    what = f"the index {step.index} of migration {step.migration.version:04}"
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
