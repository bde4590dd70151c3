"""The steps of ``cache-sync`` and ``heartbeat``: ordinary functions that touch the world.

A step runs at least once, so each of them may be repeated without harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from activities.database import database, transaction
from engine import Retry, given, step

CUSTOMERS = (
    "Alder & Co",
    "Birch Books",
    "Cedar Cycles",
    "Dogwood Dairy",
    "Elm Electric",
    "Fir Foods",
    "Gingko Games",
    "Hazel Homes",
    "Ironwood Inks",
    "Juniper Jams",
    "Kapok Kites",
    "Larch Lamps",
)
ORDERS = 400


@dataclass
class Summary:
    customers: int
    orders: int


@dataclass
class Beat:
    name: str
    fire_time: datetime


@step(timeout=60, retry=Retry(max_attempts=5))
async def seed_orders(*, pool: asyncpg.Pool = given(database)) -> int:
    """Put the sample orders in place, always the same ones, and return how many there are."""
    async with transaction(pool) as connection:
        await connection.execute(
            """
            INSERT INTO example.orders (id, customer, amount, ordered_at)
            SELECT n,
                   ($1::text[])[1 + least(n * 7 % cardinality($1::text[]), n * 5 % 17)],
                   5 + (n * 7919 % 45000) / 100.0,
                   timestamptz '2026-01-01 08:00:00Z' + n * interval '97 minutes'
            FROM generate_series(1, $2::integer) AS n
            ON CONFLICT (id) DO NOTHING
            """,
            CUSTOMERS,
            ORDERS,
        )
        count: int = await connection.fetchval("SELECT count(*) FROM example.orders")
        return count


@step(timeout=60, retry=Retry(max_attempts=5))
async def refresh_order_summary(
    fire_time: datetime, *, pool: asyncpg.Pool = given(database)
) -> Summary:
    """Bring the summary per customer up to date; a late window never undoes a newer one."""
    async with transaction(pool) as connection:
        await connection.execute(
            """
            INSERT INTO example.order_summary AS known (customer, orders, total, fire_time)
            SELECT customer, count(*), sum(amount), $1::timestamptz
            FROM example.orders
            GROUP BY customer
            ON CONFLICT (customer) DO UPDATE
            SET orders = excluded.orders,
                total = excluded.total,
                fire_time = excluded.fire_time,
                refreshed_at = now()
            WHERE known.fire_time <= excluded.fire_time
            """,
            fire_time,
        )
        rows = await connection.fetch("SELECT orders FROM example.order_summary")
        return Summary(customers=len(rows), orders=sum(row["orders"] for row in rows))


@step(timeout=10, retry=Retry(max_attempts=3))
async def record_beat(beat: Beat, *, pool: asyncpg.Pool = given(database)) -> int:
    """Count one beat and return how many there were; the same fire time counts once."""
    async with transaction(pool) as connection:
        await connection.execute(
            """
            INSERT INTO example.heartbeat AS known (name, beats, fire_time)
            VALUES ($1, 1, $2::timestamptz)
            ON CONFLICT (name) DO UPDATE
            SET beats = known.beats + 1,
                fire_time = excluded.fire_time,
                beaten_at = now()
            WHERE known.fire_time < excluded.fire_time
            """,
            beat.name,
            beat.fire_time,
        )
        beats: int = await connection.fetchval(
            "SELECT beats FROM example.heartbeat WHERE name = $1",
            beat.name,
        )
        return beats
