"""Reason codes in ranges and in the archive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine.ledger import Ledger
from tests.integration.old_rows import SERVING, TODAY, Past, hours

HOURLY = "schedules: [{key: hourly, workflow: noop, everyMs: 3600000}]"
OLD = TODAY - timedelta(days=100)


async def opened(url: str, folder: Path) -> Past:
    ledger = await Ledger.connect(url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    return Past(ledger, url, folder)


@pytest.fixture
async def past(database_url: str, tmp_path: Path) -> AsyncIterator[Past]:
    made = await opened(database_url, tmp_path)
    await made.declare(HOURLY)
    yield made
    await made.ledger.close()


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


async def test_what_leaves_is_in_the_archive_with_its_code(past):
    await past.had("hourly", hours(OLD, 30), "skipped", "paused")
    await past.had("hourly", [TODAY])
    await past.round(retention_max_age=timedelta(days=95))
    lines = [line for line in past.lines() if line["status"] == "skipped"]
    assert len(lines) == 30
    assert {line["reason_code"] for line in lines} == {"paused"}
