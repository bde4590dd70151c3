"""What laying a backfill costs, and how it goes on after its replica was killed."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from engine.ledger import Ledger
from engine.ledger.postgres.connections import query
from engine.ledger.postgres.rows import Statements
from engine.ledger.records import Serving
from engine.runtime.settings import Settings
from engine.runtime.tick.backfills import Backfills
from engine.schedules.terms import TICK
from engine.service import ScheduleService
from tests.blind import BLIND
from tests.conformance.conftest import Bench
from tests.conformance.past import declare_ago
from tests.integration.test_idle import nodes

SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
STEP = timedelta(seconds=10)
DAY = timedelta(days=1)
DAYS = 3

_LAID = """
INSERT INTO sched.fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
    definition_version, workflow_id, workflow_type, task_queue, status, timing, run_id, started_at)
SELECT 'test', 'default', 'k', 1, b, to_timestamp(b * 10), to_timestamp(b * 10), 1,
       'sched:k:' || b, 'noop@1', 'sched', 'completed', 'backfill', 'run', now()
FROM generate_series($1::bigint, $2::bigint) AS b
"""


@pytest.fixture
async def ledger(database_url):
    opened = await Ledger.connect(database_url, namespace="test")
    await opened.announce(SERVING, engine="0", tzdata="0", retention=DAY)
    yield opened
    await opened.close()


@pytest.fixture
async def three_days(ledger, database_url):
    """A backfill of three days of windows that one row says were paused; yields its first."""
    await declare_ago(Bench(ledger), "everyMs: 10000, firstFire: next", DAYS * DAY, paused=True)
    service = ScheduleService(ledger, actor="ops")
    await service.resume("k")
    (span,) = await ledger.fires()
    asked = await service.backfill("k", span.fire_time, span.last_fire_time)
    assert asked.would_start == span.windows >= DAYS * (DAY // STEP) - 1
    return span.fire_time


class Cost:
    """What the statements of a transaction come to."""

    def __init__(self) -> None:
        self.statements: Counter[str] = Counter()
        self.rows = 0


async def laid(ledger, monkeypatch) -> Cost:
    """Lay 25 windows; returns what it cost."""
    cost, run = Cost(), Statements.run

    async def counted(self, name, *arguments):
        rows = await run(self, name, *arguments)
        cost.statements[name] += 1
        cost.rows += len(rows)
        return rows

    claims: list = []
    with monkeypatch.context() as patched:
        patched.setattr(Statements, "run", counted)
        await Backfills(ledger, SERVING, Settings(), on_event=print, **BLIND).lay(claims, 25, None)
    assert len(claims) == 25
    return cost


async def read_for(database_url: str, begin: datetime) -> int:
    """How many rows the question for those of a part of a backfill goes through."""
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    await connection.execute("ANALYZE fires")
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    until = begin + 200 * STEP
    (row,) = await connection.fetch(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {query('fires_between')}",
        *("test", "k", begin, until, None, None, 2**31 - 1),
    )
    await connection.close()
    scans = [node for node in nodes(json.loads(row[0])[0]["Plan"]) if "Relation Name" in node]
    assert all("Index" in node["Node Type"] for node in scans), scans
    read: int = sum(
        round(node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0))
        for node in scans
    )
    return read


async def skip_ahead(database_url: str, first: datetime, to: datetime) -> None:
    """Let all windows before ``to`` have been laid, and their runs have ended."""
    connection = await asyncpg.connect(database_url)
    one, last = (int(moment.timestamp()) // 10 for moment in (first, to - STEP))
    await connection.execute("DELETE FROM sched.fires WHERE fire_time < $1 AND windows = 1", to)
    await connection.execute(
        "UPDATE sched.fires SET fire_time = $1, bucket = $2::bigint,"
        " workflow_id = 'sched:k:' || $2::bigint,"
        " windows = windows - ($2::bigint - extract(epoch FROM fire_time)::bigint / 10)"
        " WHERE windows > 1",
        to, last + 1,
    )  # fmt: skip
    await connection.execute(_LAID, one, last)
    await connection.execute(
        "UPDATE sched.backfills SET cursor = $1, laid = $2", to - TICK, last - one + 1
    )
    await connection.close()


async def test_laying_costs_the_same_statements_on_the_third_day_as_on_the_first(
    ledger, three_days, database_url, monkeypatch
):
    first_day = await laid(ledger, monkeypatch)
    assert sum(first_day.statements.values()) < 20, "a statement for each window"
    to = three_days + 2 * DAY + timedelta(hours=20)
    await skip_ahead(database_url, three_days, to)
    third_day = await laid(ledger, monkeypatch)
    assert third_day.statements == first_day.statements
    assert third_day.rows == first_day.rows
    assert await read_for(database_url, to + 25 * STEP) < 30, "what lies behind is read, too"
    (row,) = await ledger.backfills("k")
    assert row.cursor == to + 24 * STEP


async def test_a_range_that_reaches_over_the_part_to_be_laid_is_read(ledger, three_days):
    """An older janitor, or a run that was found, may have written rows of any shape."""
    async with ledger.transaction() as transaction:
        rows = await transaction.between("k", three_days + DAY, three_days + DAY + STEP)
    assert [row.fire_time for row in rows] == [three_days]
    now = datetime.now(UTC)
    async with ledger.transaction() as transaction:
        assert await transaction.between("k", now + DAY, now + 2 * DAY) == []
