"""Brings a ledger's schema up to the version this code knows.

Migrations are numbered SQL files, applied in order, all in one transaction under an advisory
lock, so any number of replicas may start at once. They are never edited after a release.
"""

from __future__ import annotations

import re
from importlib.resources import files

from engine.errors import LedgerTooNew, ScheduleError
from engine.ledger.connections import PATIENCE_LONG, Connection

_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")


def check_schema_name(schema: str) -> str:
    """Return ``schema`` if PostgreSQL takes it unquoted.

    Raises:
        ScheduleError: when it does not.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise ScheduleError(
            f"SCHED_SCHEMA is {schema!r}", cure="use lower-case letters, digits and underscores"
        )
    return schema


def migrations() -> list[tuple[int, str]]:
    """Return (version, SQL) of every migration this code carries, in order."""
    folder = files("engine.ledger") / "migrations"
    return sorted(
        (int(match[1]), file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _NAME.match(file.name))
    )


async def migrate(
    connection: Connection,
    schema: str = "sched",
) -> list[int]:
    """Apply what is missing and return the versions applied.

    Raises:
        LedgerTooNew: when the database has a version this code does not know.
    """
    check_schema_name(schema)
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '60s'")
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('sched-engine migrations ' || $1, 0))",
            schema,
            timeout=PATIENCE_LONG,
        )
        # Asked first, so that a role without CREATE can use a ledger that is up to date.
        if await connection.fetchval("SELECT to_regnamespace($1)", schema) is None:
            await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(f"SET LOCAL search_path = {schema}")
        if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.migrations") is None:
            await connection.execute(
                "CREATE TABLE migrations (version integer PRIMARY KEY,"
                " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            )
        have = {row["version"] for row in await connection.fetch("SELECT version FROM migrations")}
        known = migrations()
        if newer := have - {version for version, _ in known}:
            raise LedgerTooNew(
                f"the ledger is at version {max(newer)}, this sched-engine knows {known[-1][0]}",
                cure="run the newer sched-engine, or point SCHED_DATABASE_URL elsewhere",
            )
        applied = []
        for version, statements in known:
            if version not in have:
                await connection.execute(statements, timeout=PATIENCE_LONG)
                await connection.execute("INSERT INTO migrations (version) VALUES ($1)", version)
                applied.append(version)
    return applied
