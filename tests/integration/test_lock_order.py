"""Whoever writes to several schedules or fires locks them in one order and at once: no deadlock.

An editor that waits for the first key must not hold a later one: whoever has the first one and
wants the later one next, as every other editor does, would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from engine.ledger import Ledger
from engine.ledger.failures import FailingNote
from engine.ledger.fires import Evidence, Outcome
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply, retire_absent
from engine.runtime.apply.edits import recompute_outdated
from engine.schedules import load_schedules
from tests.waiting import until_one_waits

SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
NEWER = Serving("replica-a", "default", "sched", frozenset({"noop@2"}))


def file(**every_ms: int):
    entries = (f"{{key: {k}, workflow: noop, everyMs: {ms}}}" for k, ms in every_ms.items())
    return load_schedules(f"schedules: [{', '.join(entries)}]")


ALL = file(a=3_600_000, b=3_600_000, c=3_600_000)
WITHOUT_A = file(b=60_000, c=3_600_000)


@pytest.fixture
async def ledger(database_url):
    # As in a large table, where the rows of a project are read as they lie.
    name = database_url.rpartition("/")[2]
    setting = await asyncpg.connect(database_url)
    for scan in ("indexscan", "bitmapscan"):
        await setting.execute(f"ALTER DATABASE {name} SET enable_{scan} = off")
    await setting.close()
    opened = await Ledger.connect(database_url, namespace="test")
    await announced(opened, SERVING)
    await apply(opened, ALL, by="test")
    yield opened
    await opened.close()


@pytest.fixture
async def other(database_url, ledger):
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    # The later keys lie before the first one in the table.
    await connection.execute("UPDATE schedules SET failures = 0 WHERE key = 'a'")
    yield connection
    await connection.close()


async def announced(ledger: Ledger, serving: Serving) -> None:
    await ledger.announce(serving, engine="0", tzdata="0", retention=timedelta(days=1))


async def holds_no_later_key_while_it_waits(
    other: asyncpg.Connection,
    edit: Callable[[], Awaitable[object]],
    *,
    table: str = "schedules",
    order: str = "key",
) -> None:
    async with other.transaction():
        await other.execute(f"SELECT 1 FROM {table} WHERE key = 'a' FOR UPDATE")
        editing = asyncio.ensure_future(edit())
        try:
            await until_one_waits(other)
            await other.execute(
                f"SELECT 1 FROM {table} WHERE key IN ('b', 'c') ORDER BY {order} FOR UPDATE NOWAIT"
            )
        except BaseException:
            editing.cancel()
            raise
    await editing


async def test_an_apply_with_absent_keys_holds_no_later_key_while_it_waits(ledger, other):
    await holds_no_later_key_while_it_waits(other, lambda: apply(ledger, WITHOUT_A, by="test"))


async def test_an_apply_that_brings_a_key_back_holds_no_later_key_while_it_waits(ledger, other):
    await apply(ledger, WITHOUT_A, by="test")
    await holds_no_later_key_while_it_waits(other, lambda: apply(ledger, ALL, by="test"))


async def test_a_prune_holds_no_later_key_while_it_waits(ledger, other):
    alone = file(d=3_600_000)
    await apply(ledger, alone, by="test")

    def prune() -> Awaitable[object]:
        return retire_absent(ledger, alone, by="test", absent_for=timedelta(0), force=True)

    await holds_no_later_key_while_it_waits(other, prune)


async def test_an_announcement_holds_no_later_key_while_it_waits(ledger, other):
    await holds_no_later_key_while_it_waits(other, lambda: announced(ledger, NEWER))
    assert {row.workflow_type for row in await ledger.schedules()} == {"noop@2"}


async def test_an_adoption_holds_no_later_key_while_it_waits(ledger, other):
    await other.execute("UPDATE schedules SET rules = '0000/1999a'")
    await holds_no_later_key_while_it_waits(other, lambda: recompute_outdated(ledger, SERVING))


STARTING = """
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, status, token,
                   starting_at, lease_until, run_id, started_at)
SELECT namespace, project, key, 1, 1, now(), now(), 1, key, 'noop@1', 'sched', $1,
       CASE $1 WHEN 'starting' THEN gen_random_uuid() END, now(), now() + interval '1 hour',
       CASE $1 WHEN 'started' THEN 'run' END, CASE $1 WHEN 'started' THEN now() END
FROM schedules ORDER BY key RETURNING id, token
"""
NOW = datetime.now(UTC)


async def fires(other: asyncpg.Connection, status: str) -> list[asyncpg.Record]:
    """A fire of each key; the later ones lie before the first one in the table."""
    rows = await other.fetch(STARTING, status)
    await other.execute("UPDATE fires SET attempts = attempts + 1 WHERE key = 'a'")
    return rows[::-1]


async def holds_no_later_fire(
    other: asyncpg.Connection, edit: Callable[[], Awaitable[object]]
) -> None:
    await holds_no_later_key_while_it_waits(other, edit, table="fires", order="id")


async def test_outcomes_that_are_written_hold_no_later_fire_while_they_wait(ledger, other):
    outcomes = [
        Outcome(row["id"], row["token"], "started", "on_time", "run", started_at=NOW)
        for row in await fires(other, "starting")
    ]
    await holds_no_later_fire(other, lambda: ledger.settle(outcomes))
    assert {fire.status for fire in await ledger.fires()} == {"started"}


async def test_closes_that_are_written_hold_no_later_fire_while_they_wait(ledger, other):
    await fires(other, "started")
    closes = [Evidence(key, "run", NOW, "completed", NOW) for key in "cba"]
    await holds_no_later_fire(other, lambda: ledger.record_evidence(closes))
    assert {fire.status for fire in await ledger.fires()} == {"completed"}


async def test_looks_that_are_written_hold_no_later_fire_while_they_wait(ledger, other):
    await fires(other, "started")
    await holds_no_later_fire(other, lambda: ledger.seen_open(["c", "b", "a"], NOW))


async def test_failing_steps_that_are_noted_hold_no_later_fire_while_they_wait(ledger, other):
    await fires(other, "started")
    notes = [FailingNote(name, None, "[]") for name in ("c", "b", "a")]
    await holds_no_later_fire(other, lambda: ledger.note_failing(notes))


async def test_losses_that_are_written_hold_no_later_fire_while_they_wait(ledger, other):
    await fires(other, "started")
    await holds_no_later_fire(other, lambda: ledger.lose(["c", "b", "a"], "gone"))


async def test_replicas_that_were_suspended_for_a_day_do_not_wait_for_each_other(ledger, other):
    """Each writes its own row, and removes those that are old: that of the other, which does so."""
    second = Serving("replica-b", "default", "sched", frozenset({"noop@1"}))
    await announced(ledger, second)
    await other.execute("UPDATE replicas SET seen_at = seen_at - interval '25 hours'")
    async with other.transaction():
        await other.execute("UPDATE replicas SET seen_at = now() WHERE replica = 'replica-b'")
        async with asyncio.timeout(20):
            await announced(ledger, SERVING)
    names = [row["replica"] for row in await other.fetch("SELECT replica FROM replicas ORDER BY 1")]
    assert names == ["replica-a", "replica-b"]
    await other.execute("UPDATE replicas SET seen_at = seen_at - interval '25 hours'")
    await announced(ledger, SERVING)
    assert await other.fetchval("SELECT array_agg(replica) FROM replicas") == ["replica-a"]
