"""A ledger as the code before migration 0011 has made it."""

from __future__ import annotations

from importlib.resources import files

import asyncpg

LAST = 10


async def make_old_ledger(database_url: str, *, until: int = LAST) -> None:
    """Make the schema with the migrations up to a number, as that code did."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute(
                "CREATE SCHEMA sched; SET LOCAL search_path = sched;"
                " CREATE TABLE migrations (version integer PRIMARY KEY,"
                " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            )
            folder = files("engine.ledger.postgres") / "migrations"
            for file in sorted(folder.iterdir(), key=lambda each: each.name):
                version = int(file.name[:4])
                if version <= until:
                    await connection.execute(file.read_text(encoding="utf-8"))
                    await connection.execute("INSERT INTO migrations VALUES ($1)", version)
    finally:
        await connection.close()
