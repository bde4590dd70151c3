"""Whatever a ledger's past is: a round of the janitor keeps each rule of retention."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from engine.ledger import Ledger
from engine.runtime.retention.compaction import BatchSizer, BatchSizers
from tests.examples import examples
from tests.integration.janitor_oracle import (
    OPEN,
    Law,
    Row,
    by_day,
    may_change,
    must_keep_details,
    must_leave,
    must_stay,
)  # fmt: skip
from tests.integration.old_rows import SERVING, Past, finish
from tests.servers import run_apart

HOUR = timedelta(hours=1)
CLASSES = ("completed", "failed", "cancelled", "terminated", "timed_out", "skipped", "expired",
           "rejected", "unvouched", "started", "queued")  # fmt: skip
RAN = {"completed", "failed", "cancelled", "terminated", "timed_out", "started"}
# Days ago, close to every limit and far from each.
AGES = (0, 1, 2, 30, 89, 90, 91, 92, 200, 364, 365, 366, 367, 500, 729, 730, 731, 732, 900)
KEYS = ("hourly", "other", "once")
TEXT = """
schedules:
  - {{key: hourly, workflow: noop, everyMs: 3600000, retention: {{keep: {keep}}}}}
  - {{key: other, workflow: noop, everyMs: 3600000}}
  - {{key: once, workflow: noop, at: "{at}"}}
"""
INSERT = """
INSERT INTO sched.fires (namespace, project, key, series, bucket, fire_time, last_fire_time, kind,
    definition_version, workflow_id, workflow_type, task_queue, status, reason, timing, missed,
    run_id, started_at, closed_at, decided_at, error)
SELECT 'test', 'default', r.key, r.series, 0, r.fire_time, r.fire_time, r.kind, 1, r.id, 'noop@1',
       'sched', r.status, r.reason, r.timing, r.missed, r.run, r.started_at, r.closed_at,
       r.decided_at, r.error
FROM jsonb_to_recordset($1::jsonb) AS r (key text, series int, fire_time timestamptz, kind text,
    id text, status text, reason text, timing text, missed int, run text, started_at timestamptz,
    closed_at timestamptz, decided_at timestamptz, error text)
"""


@st.composite
def stretches(draw: st.DrawFn) -> dict[str, Any]:
    """Some adjacent windows of a key that became the same, or requests beside them."""
    status = draw(st.sampled_from(CLASSES))
    return {
        "key": draw(st.sampled_from(KEYS[:2])),
        "days": draw(st.sampled_from(AGES)),
        "hour": draw(st.integers(0, 23)),
        "count": draw(st.integers(1, 6)),
        "kind": draw(st.sampled_from(["window", "window", "window", "manual", "rerun"])),
        "status": status,
        "reason": draw(st.sampled_from([None, "paused"])) if status == "skipped" else None,
        "missed": draw(st.sampled_from([0, 0, 0, 2])) if status in RAN else 0,
        "ran_for": draw(st.sampled_from([0, 0, 0, 1, 3, 200])),
    }


def written(stretch: dict[str, Any], today: datetime) -> list[dict[str, Any]]:
    """The rows of a stretch."""
    ran, rows = stretch["status"] in RAN, []
    for number in range(stretch["count"]):
        at = today - timedelta(days=stretch["days"]) + HOUR * (stretch["hour"] + number)
        closed = at + timedelta(days=stretch["ran_for"], seconds=2)
        rows.append({
            "key": stretch["key"], "series": 1, "fire_time": at.isoformat(),
            "kind": stretch["kind"], "status": stretch["status"], "reason": stretch["reason"],
            "timing": "on_time" if ran else None, "missed": stretch["missed"],
            "id": f"{stretch['key']}:{stretch['kind']}:{at:%Y%m%d%H}",
            "run": "r" if ran else None, "started_at": at.isoformat() if ran else None,
            "closed_at": closed.isoformat() if ran and stretch["status"] != "started" else None,
            "decided_at": at.isoformat(),
            "error": "boom" if stretch["status"] == "failed" else None,
        })  # fmt: skip
    return rows


class Books:
    """A ledger, asked before and after a round."""

    def __init__(self, past: Past) -> None:
        self.past = past

    async def rows(self) -> list[Row]:
        return [dict(row) for row in await self.past.rows()]

    async def schedules(self) -> list[Row]:
        found = await self.past.sql("SELECT * FROM sched.schedules ORDER BY key")
        return [dict(row) for row in found]

    async def days(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for row in await self.past.sql("SELECT * FROM sched.daily"):
            for status in ("open", *CLASSES[:9]):
                if row[status]:
                    found[row["key"], row["day"], status] += row[status]
        return found

    async def chores(self) -> dict[str, datetime | None]:
        found = await self.past.sql("SELECT key, forgotten_until FROM sched.chores")
        return {row["key"]: row["forgotten_until"] for row in found}


def stands_for(left: Row, row: Row) -> bool:
    """Whether a row that is left is the range that a window became part of."""
    same = all(left[name] == row[name] for name in ("key", "series", "status", "reason", "timing"))
    within = left["fire_time"] <= row["fire_time"] <= left["last_fire_time"]
    return same and within and left["merged_at"] is not None and row["kind"] == "window"


def check(before: list[Row], after: list[Row], lines: list[Row], law: Law, today: datetime) -> None:
    """Hold the rows of one key against the rules."""
    here = {row["id"]: row for row in after}
    gone = {line["id"] for line in lines if line["removed"]}
    told = {line["id"] for line in lines}
    for row in before:
        same = here.get(row["id"]) == row
        ranges = [left for left in after if stands_for(left, row)]
        assert same + len(ranges) + (row["id"] in gone) == 1, "one place, and no other"
        assert same or row["id"] in told, "its details are in the archive"
        assert not (must_stay(row, before, law, today) and row["id"] in gone), row
        assert not must_keep_details(row, before, law, today) or same, row
        assert not must_leave(row, before, law, today) or row["id"] in gone, row
    for left in after:
        covered = [row for row in before if left["merged_at"] and stands_for(left, row)]
        assert left["merged_at"] is None or left["windows"] == len(covered) > 1
        assert len({row["fire_time"].date() for row in covered}) <= 1, "within one day"
    for one, two in zip(mergeable := may_merge(before, law, today), mergeable[1:], strict=False):
        if adjacent(one, two) and not {one["id"], two["id"]} & gone:
            assert [left for left in after if stands_for(left, one) and stands_for(left, two)]


def may_merge(rows: list[Row], law: Law, today: datetime) -> list[Row]:
    """The windows, in order, whose details need not be kept."""
    found = [row for row in rows if row["kind"] == "window" and may_change(row, law)]
    return [row for row in found if not must_keep_details(row, rows, law, today)]


def adjacent(one: Row, two: Row) -> bool:
    same = all(one[name] == two[name] for name in ("status", "reason", "timing", "series"))
    by_day = one["fire_time"].date() == two["fire_time"].date()
    return same and by_day and two["fire_time"] - one["fire_time"] == HOUR


@pytest.fixture
def address(postgres: Any, tmp_path: Path) -> Iterator[str]:
    name = "janitor_properties"
    yield run_apart(postgres.create_database(name))
    run_apart(postgres.drop_database(name))


# A round takes a second, so a failing example is shown as it was drawn.
@settings(
    max_examples=examples(40),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    drawn=st.lists(stretches(), min_size=1, max_size=12),
    keep=st.integers(1, 8),
    shot=st.tuples(st.sampled_from(AGES), st.sampled_from(CLASSES)),
    cursor=st.sampled_from([-1, 0, 100, 365, 731]),
    at_once=st.sampled_from([4, 7, 2000]),
)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_round_keeps_every_rule_of_retention_and_loses_no_window(
    address: str, tmp_path: Path, drawn, keep, shot, cursor, at_once
) -> None:
    folder = tmp_path / "archive"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    asyncio.run(example(address, folder, today, (drawn, keep, shot, cursor, at_once)))


async def example(url: str, folder: Path, today: datetime, drawn_all: tuple[Any, ...]) -> None:
    drawn, keep, (age, status), cursor_days, at_once = drawn_all
    ledger = await Ledger.connect(url, namespace="test", connections=2)
    past = Past(ledger, url, folder)
    books = Books(past)
    cursor = today - timedelta(days=cursor_days)
    try:
        await prepare(past, keep, cursor)
        single = {"key": "once", "days": age, "hour": 9, "count": 1, "kind": "window",
                  "status": status, "reason": None, "missed": 0, "ran_for": 0}  # fmt: skip
        rows = {row["id"]: row for each in [*drawn, single] for row in written(each, today)}
        await past.sql(INSERT, json.dumps([*rows.values()]))
        before, schedules = await books.rows(), await books.schedules()
        laws = [Law(key, keep, key == "once", 1, cursor) for key in KEYS]
        await round_of(past, at_once, keep)
        after, days, lines = await books.rows(), await books.days(), past.lines()
        for law in laws:
            mine = [[row for row in each if row["key"] == law.key] for each in (before, after)]
            check(mine[0], mine[1], [each for each in lines if each["key"] == law.key], law, today)
        assert await books.schedules() == schedules, "the cursor is nobody's but the tick's"
        assert days == due(before, today), "each day that is over has been counted as it was"
        guard(before, after, await books.chores())
        await round_of(past, at_once, keep)
        again = await books.rows()
        assert [row for row in after if row not in again] == [], "a second round changes nothing"
        assert again == after
        assert (await books.days(), past.lines()) == (days, lines)
    finally:
        await ledger.close()


async def prepare(past: Past, keep: int, cursor: datetime) -> None:
    """Three schedules that have come as far as the cursor, and no fire."""
    await past.sql("TRUNCATE sched.fires, sched.chores, sched.days, sched.schedules CASCADE")
    await past.sql("TRUNCATE sched.projects, sched.definitions CASCADE")
    await past.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    at = datetime.now(UTC) + timedelta(days=30)
    await past.declare(TEXT.format(keep=keep, at=f"{at:%Y-%m-%dT%H:%M:%SZ}"))
    await past.sql("TRUNCATE sched.fires")
    await past.sql("ALTER TABLE sched.schedules DISABLE TRIGGER cursor_moves_forward")
    await past.sql("UPDATE sched.schedules SET cursor = $1, next_fire_at = now()", cursor)


async def round_of(past: Past, at_once: int, keep: int) -> None:
    janitor = past.janitor(retention_keep=keep)
    janitor._sizers = BatchSizers(
        BatchSizer(at_once, most=at_once), BatchSizer(at_once, most=at_once)
    )
    await finish(janitor)


def due(rows: list[Row], today: datetime) -> Counter[Any]:
    """The counts of the days that were over an hour ago, or that a row has left."""
    over = today if datetime.now(UTC) >= today + HOUR else today - timedelta(days=1)
    return Counter({each: n for each, n in by_day(rows).items() if each[1] < over.date()})


def guard(before: list[Row], after: list[Row], forgotten: dict[str, datetime | None]) -> None:
    """A window without a row lies before a moment up to which nothing is started again."""
    for row in before:
        if row["kind"] == "window" and not any(
            left["key"] == row["key"] and left["fire_time"] <= row["fire_time"]
            and row["fire_time"] <= left["last_fire_time"] for left in after
        ):  # fmt: skip
            until = forgotten[row["key"]]
            assert until is not None
            assert until >= row["fire_time"]
        assert row["status"] not in OPEN or row in after
