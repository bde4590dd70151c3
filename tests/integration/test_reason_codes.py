"""Reason codes in the ledger: of whoever writes, of old rows, in ranges, archive and history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from engine.ledger import PostgresLedger
from engine.runtime.events import Notice
from tests.integration.old_ledger import make_old_ledger
from tests.integration.old_rows import SERVING, TODAY, Past, finish, hours
from tests.reasons import BEGINNINGS, code_of_sentence

HOURLY = "schedules: [{key: hourly, workflow: noop, everyMs: 3600000}]"
OLD = TODAY - timedelta(days=100)
CODES = "SELECT reason, reason_code FROM sched.fires ORDER BY fire_time"


async def opened(url: str, folder: Path) -> Past:
    ledger = await PostgresLedger.connect(url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    return Past(ledger, url, folder)


@pytest.fixture
async def past(database_url: str, tmp_path: Path) -> AsyncIterator[Past]:
    made = await opened(database_url, tmp_path)
    await made.declare(HOURLY)
    yield made
    await made.ledger.close()


@pytest.fixture
async def old(empty_database_url: str, tmp_path: Path) -> AsyncIterator[Past]:
    """A ledger that code from before reason codes has written, and that was then migrated."""
    await make_old_ledger(empty_database_url)
    before = await asyncpg.connect(empty_database_url)
    await before.execute(
        """
        INSERT INTO sched.schedules (namespace, key, project, definition_version, digest, series,
            suffixed, effective_from, cursor, workflow, task_queue, external, grace, enabled)
        VALUES ('test', 'hourly', 'default', 1, '', 1, false, now(), now(), 'noop', 'sched', false,
            '60s', true);
        INSERT INTO sched.definitions
        VALUES ('test', 'hourly', 1, 1, 'default',
            '{"key": "hourly", "workflow": "noop", "everyMs": 3600000}', '', now(), now(), 'old')
        """
    )
    await before.close()
    early = Past(None, empty_database_url, None)  # type: ignore[arg-type] # it only writes rows
    await early.had("hourly", hours(OLD, 30), "skipped", "paused")
    await early.had("hourly", hours(OLD + timedelta(days=2), 30))
    await early.had("hourly", hours(OLD + timedelta(days=4), 2), "expired", "of another version")
    made = await opened(empty_database_url, tmp_path)
    yield made
    await made.ledger.close()


async def test_postgresql_and_python_agree_about_every_sentence(past):
    sentences = ["", "user's", "overlapping", "overlap: the queue", "no worker", "é", "%", "_user"]
    for begins, _ in BEGINNINGS:
        sentences += [begins, f"{begins}: more", begins[:-1], f" {begins}", begins.upper()]
    rows = await past.sql(
        "SELECT r AS reason, sched.reason_code_of(r) AS code FROM unnest($1::text[]) AS r",
        sentences,
    )
    assert [row["code"] for row in rows] == [code_of_sentence(text) for text in sentences]
    assert sum(row["code"] is None for row in rows) > 20


async def test_who_gives_no_code_has_it_derived_and_who_gives_one_keeps_it(past):
    await past.had("hourly", [TODAY], "skipped", "user: holiday")
    await past.had("hourly", [TODAY + timedelta(hours=1)])
    said = [tuple(row) for row in await past.sql(CODES)]
    assert said == [("user: holiday", "user"), (None, None)]
    change = "UPDATE sched.fires SET {} WHERE fire_time = $1"
    for writes, code in [
        ("reason = 'paused'", "paused"),
        ("reason = 'paused', status = 'skipped'", "paused"),
        ("reason = 'in other words', reason_code = 'user'", "user"),
        ("reason_code = 'expired'", "expired"),
        ("reason = 'overlap: x'", "overlap"),
        ("reason = NULL", None),
    ]:
        await past.sql(change.format(writes), TODAY)
        (row,) = await past.sql("SELECT reason_code FROM sched.fires WHERE fire_time = $1", TODAY)
        assert row["reason_code"] == code, writes


async def test_old_rows_have_their_code_in_time(old):
    assert {row["reason_code"] for row in await old.sql(CODES)} == {None}
    janitor = old.janitor(retention_keep=1000)
    await finish(janitor)
    assert {tuple(row) for row in await old.sql(CODES)} == {
        ("paused", "paused"), (None, None), ("of another version", None),
    }  # fmt: skip
    said = [event.text for event in old.heard if isinstance(event, Notice)]
    assert said.count("filled what migration 0011 has added in 30 older fires") == 1
    (row,) = await old.sql("SELECT filled_from FROM sched.migrations WHERE version = 11")
    assert row["filled_from"] == 0
    await finish(janitor)
    assert len([event for event in old.heard if "filled" in str(event)]) == 1, "it looks again"


async def test_a_row_that_somebody_writes_to_is_filled_in_a_later_round(old):
    holder = await asyncpg.connect(old.url)
    async with holder.transaction():
        await holder.execute(
            "SELECT 1 FROM sched.fires WHERE reason IS NOT NULL LIMIT 1 FOR UPDATE"
        )
        await finish(old.janitor(retention_keep=1000))
        rows = await old.sql(CODES)
        assert sum((row["reason"], row["reason_code"]) == ("paused", None) for row in rows) == 1
    await holder.close()
    await finish(old.janitor(retention_keep=1000))
    assert ("paused", None) not in {tuple(row) for row in await old.sql(CODES)}


async def test_rows_become_one_range_only_where_their_codes_agree(past):
    await past.had("hourly", hours(OLD, 6), "skipped", "held")
    await past.had("hourly", [TODAY])
    late = OLD + timedelta(hours=3)
    await past.sql("UPDATE sched.fires SET reason_code = 'paused' WHERE fire_time < $1", late)
    await past.sql(
        "UPDATE sched.fires SET reason_code = 'disabled' WHERE fire_time >= $1 AND reason <> ''",
        late,
    )
    await past.round()
    rows = [(row["windows"], row["reason_code"]) for row in await past.rows("hourly")]
    assert rows == [(3, "paused"), (3, "disabled"), (1, None)]


async def test_what_leaves_is_in_the_archive_with_its_code(old):
    """Also where the janitor has not filled it yet."""
    await old.sql("UPDATE sched.schedules SET cursor = now()")
    await old.sql("UPDATE sched.migrations SET filled_from = 0 WHERE version = 11")
    await old.had("hourly", [TODAY])
    await old.round(retention_max_age=timedelta(days=95))
    lines = [line for line in old.lines() if line["status"] == "skipped"]
    assert len(lines) == 30
    assert {line["reason_code"] for line in lines} == {"paused"}
