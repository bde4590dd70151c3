"""``cache-sync``: an interval, and steps that write to a database."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg

from activities.example_data import CUSTOMERS, ORDERS, Summary, refresh_order_summary, seed_orders
from tests.fundamentals.example_app import MORNING, ExampleApp, fire


async def test_it_sums_up_the_orders_it_seeded(app: ExampleApp):
    result = await app.run("cache-sync@1", fire("cache-sync"))
    assert result == Summary(len(CUSTOMERS), ORDERS)

    summary = await app.rows("SELECT customer, orders, total FROM example.order_summary")
    counted = await app.rows(
        "SELECT customer, count(*), sum(amount) FROM example.orders GROUP BY customer"
    )
    assert sorted(summary) == sorted(counted)
    assert {row[0] for row in summary} == set(CUSTOMERS)
    assert await _fire_times(app) == [(MORNING,)]


async def test_it_sees_what_has_changed_since_the_window_before(app: ExampleApp):
    await app.run("cache-sync@1", fire("cache-sync", 1))
    await app.rows("DELETE FROM example.order_summary WHERE customer = 'Fir Foods'")
    await app.rows(
        "INSERT INTO example.orders VALUES (9001, 'Zelkova Zips', 10.50, '2026-11-21 05:03Z')"
    )
    following = fire("cache-sync", 2, MORNING + timedelta(minutes=5))
    result = await app.run("cache-sync@1", following)
    assert result == Summary(len(CUSTOMERS) + 1, ORDERS + 1)


async def test_it_can_be_started_by_hand(app: ExampleApp):
    assert (await app.run("cache-sync@1", None)).orders == ORDERS


async def test_its_steps_may_be_repeated_without_harm(pool: asyncpg.Pool):
    assert [await seed_orders(pool=pool) for _ in range(2)] == [ORDERS, ORDERS]
    expected = Summary(len(CUSTOMERS), ORDERS)
    assert [await refresh_order_summary(MORNING, pool=pool) for _ in range(2)] == [
        expected,
        expected,
    ]


async def test_a_late_window_does_not_undo_a_newer_one(app: ExampleApp, pool: asyncpg.Pool):
    await seed_orders(pool=pool)
    await refresh_order_summary(MORNING, pool=pool)
    await refresh_order_summary(MORNING - timedelta(minutes=5), pool=pool)
    assert await _fire_times(app) == [(MORNING,)]


async def test_the_first_runs_of_many_replicas_may_come_at_once(pool: asyncpg.Pool):
    counts = await asyncio.gather(*(seed_orders(pool=pool) for _ in range(10)))
    assert counts == [ORDERS] * 10


async def _fire_times(app: ExampleApp) -> list[tuple[object, ...]]:
    return await app.rows("SELECT DISTINCT fire_time FROM example.order_summary")
