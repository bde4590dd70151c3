"""Old rows become ranges, are archived and leave; nothing is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.ledger import Ledger
from engine.ledger.fires import Evidence, Outcome
from engine.runtime.events import Alert, Notice
from engine.runtime.retention import janitor
from engine.runtime.retention.compaction import AIM
from engine.schedules.terms import Reason
from tests.conformance.conftest import Bench
from tests.conformance.past import backfilled, declare_ago, operator
from tests.integration.old_rows import NOW, SERVING, TODAY, Past, finish, hours
from tests.waiting import eventually

HOURLY = "schedules: [{key: hourly, workflow: noop, everyMs: 3600000}]"
OLD = TODAY - timedelta(days=100)
ANCIENT = TODAY - timedelta(days=800)


@pytest.fixture
async def past(database_url: str, tmp_path: Path) -> AsyncIterator[Past]:
    ledger = await Ledger.connect(database_url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    folder = tmp_path / "archive"
    folder.mkdir()
    made = Past(ledger, database_url, folder)
    yield made
    await ledger.close()


async def shape(past: Past, key: str = "hourly"):
    return [(row["status"], row["windows"]) for row in await past.rows(key)]


async def test_old_rows_of_a_day_become_one_that_still_says_what_they_became(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD), TODAY])
    await past.round()
    row, _ = await past.rows()
    assert (row["status"], row["windows"]) == ("completed", 24)
    assert (row["fire_time"], row["last_fire_time"]) == (OLD, OLD + timedelta(hours=23))
    assert row["run_id"] is None


async def test_a_range_has_nothing_of_the_one_run_whose_row_it_was(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD), TODAY])
    details = {
        "duration_ms": "1", "tries": "2", "step_retries": "3", "counted": "'wanted'",
        "given_up": "'fatal'", "failure": "'[]'", "tried": "'[]'",
    }  # fmt: skip
    written = ", ".join(f"{name} = {value}" for name, value in details.items())
    await past.sql(f"UPDATE sched.fires SET {written}")
    await past.round()
    merged, one = await past.rows()
    assert (merged["windows"], one["windows"]) == (24, 1)
    assert [name for name in details if merged[name] is not None] == []
    assert [name for name in details if one[name] is None] == []


async def test_a_range_stays_within_one_day(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD, 48), TODAY])
    await past.round()
    assert await shape(past) == [("completed", 24), ("completed", 24), ("completed", 1)]


async def test_windows_with_another_between_them_do_not_become_one_row(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD, 3), *hours(OLD + timedelta(hours=4), 3), TODAY])
    await past.round()
    assert await shape(past) == [("completed", 3), ("completed", 3), ("completed", 1)]


async def test_boring_rows_merge_by_their_reason(past):
    await past.declare(HOURLY)
    await past.had("hourly", hours(OLD, 3), "skipped", "paused")
    await past.had("hourly", hours(OLD + timedelta(hours=3), 3), "skipped", "disabled")
    await past.had("hourly", [*hours(OLD + timedelta(hours=6), 3)], "expired", "too old")
    await past.had("hourly", [TODAY])
    await past.round()
    assert await shape(past) == [("skipped", 3), ("skipped", 3), ("expired", 3), ("completed", 1)]


@pytest.mark.parametrize("status", ["started", "unvouched", "queued"])
async def test_what_has_no_verdict_is_never_merged_or_removed(past, status):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD, 4)], status)
    await past.had("hourly", [TODAY])
    await past.round()
    assert await shape(past) == [(status, 1)] * 4 + [("completed", 1)]


async def test_failed_runs_keep_their_details_longer(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD, 4), *hours(TODAY - timedelta(days=400), 4)], "failed")
    await past.had("hourly", [TODAY])
    await past.round()
    assert await shape(past) == [("failed", 4)] + [("failed", 1)] * 4 + [("completed", 1)]


async def test_a_failure_is_merged_only_when_its_details_are_archived(past):
    past.archive = None
    await past.declare(HOURLY)
    await past.had("hourly", hours(TODAY - timedelta(days=400), 4), "failed")
    await past.had("hourly", [*hours(OLD, 4), TODAY])
    await past.round()
    assert await shape(past) == [("failed", 1)] * 4 + [("completed", 4), ("completed", 1)]


async def test_the_newest_rows_keep_their_details_whatever_their_age(past):
    await past.declare(HOURLY)
    await past.had("hourly", hours(OLD, 10))
    await past.round(retention_keep=4)
    assert await shape(past) == [("completed", 6)] + [("completed", 1)] * 4


async def test_a_schedule_says_its_own_retention(past):
    await past.declare(
        "schedules: [{key: hourly, workflow: noop, everyMs: 3600000,"
        " retention: {keep: 2, age: 3d, maxAge: 20d}}]"
    )
    await past.had("hourly", [*hours(OLD, 3), *hours(TODAY - timedelta(days=5), 5)])
    await past.round(retention_keep=1000)
    assert await shape(past) == [("completed", 3), ("completed", 1), ("completed", 1)]
    assert [line["removed"] for line in past.lines()].count(True) == 3


async def test_what_leaves_is_in_the_archive_with_all_its_details(past):
    await past.declare(HOURLY)
    await past.had("hourly", hours(ANCIENT), "failed")
    await past.had("hourly", [TODAY])
    before = {row["id"]: row for row in await past.rows()}
    await past.round()
    assert await shape(past) == [("completed", 1)]
    lines = past.lines()
    assert len(lines) == 24
    for line in lines:
        row = before[line["id"]]
        assert (line["removed"], line["error"], line["windows"]) == (True, "boom", 1)
        assert (line["run_id"], line["workflow_id"]) == (row["run_id"], row["workflow_id"])


async def test_the_newest_row_of_a_key_is_never_removed(past):
    await past.declare(HOURLY)
    await past.had("hourly", hours(ANCIENT, 3))
    await past.round()
    await past.round()
    assert await shape(past) == [("completed", 1)]


async def test_a_window_that_is_still_to_come_stays_skipped(past):
    await past.declare(HOURLY)
    await past.had("hourly", hours(ANCIENT, 5), "skipped", "user")
    await past.had("hourly", [TODAY])
    # A schedule that has stood still for longer than anything is kept.
    cursor = ANCIENT + timedelta(hours=1)
    await past.sql("ALTER TABLE sched.schedules DISABLE TRIGGER cursor_moves_forward")
    await past.sql("UPDATE sched.schedules SET cursor = $1", cursor)
    await past.round()
    left = [row["fire_time"] for row in await past.rows()]
    assert left == [*hours(ANCIENT, 5)[2:], TODAY]


async def test_what_temporal_may_still_remember_stays(past):
    await past.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=900))
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(ANCIENT, 3), *hours(OLD, 3), TODAY])
    await past.round()
    assert await shape(past) == [("completed", 1)] * 7


async def test_a_one_shot_leaves_after_its_time_and_never_runs_again(past):
    moment = OLD + timedelta(hours=9)
    text = f'schedules: [{{key: once, workflow: noop, at: "{moment:%Y-%m-%dT%H:%M:%SZ}"}}]'
    await past.declare(text)
    await past.sql("DELETE FROM sched.fires")
    await past.had("once", [moment])
    await past.round()
    assert await past.rows() == []
    assert len(past.lines()) == 1
    done, claims = await backfilled(past, moment, moment, "once")
    assert (claims, done.left_alone) == ([], {"forgotten, see the archive": 1})


async def test_a_manual_run_leaves_by_itself(past):
    await past.declare(HOURLY)
    await past.had("hourly", hours(OLD + timedelta(minutes=7), 2), kind="manual")
    await past.had("hourly", [*hours(OLD, 3), TODAY])
    await past.round()
    assert await shape(past) == [("completed", 3), ("completed", 1)]


async def test_backfill_knows_that_the_windows_of_a_range_have_run(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD), TODAY])
    await past.round()
    first, last = OLD + timedelta(hours=4), OLD + timedelta(hours=5)
    done, claims = await backfilled(past, first, last, "hourly")
    assert (claims, done.left_alone) == ([], {"completed": 2})
    assert await shape(past) == [("completed", 24), ("completed", 1)]


async def test_the_janitor_leaves_what_a_backfill_may_still_lay(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD), TODAY], status="skipped")
    await operator(past).backfill("hourly", OLD + timedelta(hours=6), OLD + timedelta(hours=9))
    await past.round()
    assert await shape(past) == [
        ("skipped", 6), *[("skipped", 1)] * 4, ("skipped", 14), ("skipped", 1),
    ]  # fmt: skip


async def booked(past: Past, at, closed):
    from engine.flow.fire import FireInfo
    from engine.runtime.tracking.runs import reconcile_runs

    workflow_id = f"sched:hourly:{at.timestamp() // 3600:.0f}"
    seen = Evidence(workflow_id, "run-x", at, closed, at + timedelta(seconds=1) if closed else None)
    fields: dict[str, Any] = dict.fromkeys(FireInfo.__dataclass_fields__)
    fields |= {"key": "hourly", "series": 1, "fire_time": at, "timing": "on_time",
               "bucket": int(at.timestamp() // 3600), "definition_version": 1}  # fmt: skip
    info = FireInfo(**fields)
    await reconcile_runs(past.ledger, [(seen, info)], by="test", on_event=past.heard.append)


async def test_a_run_seen_again_leaves_the_range_that_says_the_same(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD), TODAY])
    await past.round()
    past.heard.clear()
    await booked(past, OLD + timedelta(hours=4), "completed")
    assert await shape(past) == [("completed", 24), ("completed", 1)]
    assert past.heard == []


async def test_a_run_that_tells_otherwise_is_taken_out_of_its_range(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD, 3), TODAY])
    await past.round()
    await booked(past, OLD + timedelta(hours=1), None)
    assert await shape(past) == [
        ("completed", 1),
        ("started", 1),
        ("completed", 1),
        ("completed", 1),
    ]
    assert [event.code for event in past.heard if isinstance(event, Alert)] == [
        "SCHEDULE_RUN_FOUND"
    ]


async def test_a_day_is_remembered_when_its_rows_are_gone(past):
    await past.declare(HOURLY)
    await past.had("hourly", hours(ANCIENT, 20))
    await past.had("hourly", hours(ANCIENT + timedelta(hours=20), 4), "failed")
    await past.had("hourly", [TODAY])
    await past.round()
    await past.round()
    (day,) = await past.sql("SELECT * FROM sched.daily WHERE day = $1", ANCIENT.date())
    assert (day["windows"], day["runs"], day["completed"], day["failed"]) == (24, 24, 20, 4)
    assert (day["lag_p50_ms"], day["lag_p95_ms"], day["lag_max_ms"]) == (250, 250, 250)


async def test_a_day_counts_neither_reruns_nor_handlers(past):
    await past.declare(HOURLY)
    await past.had("hourly", hours(OLD, 3), "failed")
    await past.had("hourly", hours(OLD, 2), kind="rerun")
    await past.had("hourly", hours(OLD, 3), kind="handler")
    await past.round()
    (day,) = await past.sql("SELECT * FROM sched.daily WHERE day = $1", OLD.date())
    assert (day["windows"], day["runs"], day["completed"], day["failed"]) == (3, 3, 0, 3)


async def test_a_day_keeps_its_lags_when_its_rows_are_ranges(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD), TODAY])
    await past.round()
    await past.round()
    (day,) = await past.sql("SELECT * FROM sched.daily WHERE day = $1", OLD.date())
    assert (day["completed"], day["lag_p50_ms"]) == (24, 250)


async def test_a_row_over_several_days_counts_to_each_of_them(past):
    await past.declare(HOURLY)
    await past.had("hourly", [OLD + timedelta(hours=20)], "skipped", "paused")
    await past.sql(
        "UPDATE sched.fires SET windows = 30, last_fire_time = fire_time + interval '29 hours'"
    )
    await past.round()
    days = await past.sql("SELECT day, skipped FROM sched.daily ORDER BY day")
    assert [day["skipped"] for day in days] == [4, 24, 2]


async def test_a_run_that_was_open_at_midnight_is_counted_when_it_has_closed(past):
    await past.declare(HOURLY)
    await past.had("hourly", [TODAY - timedelta(days=2)], "started")
    await past.round()
    await past.sql("UPDATE sched.fires SET status = 'failed', closed_at = now(), lost_at = NULL")
    await past.round()
    (day,) = await past.sql("SELECT open, failed FROM sched.daily")
    assert (day["open"], day["failed"]) == (0, 1)


async def mixed(past: Past) -> None:
    """A past with every class in it."""
    await past.declare(
        "schedules: [{key: hourly, workflow: noop, everyMs: 3600000},"
        " {key: quick, workflow: noop, everyMs: 60000}]"
    )
    for day in (ANCIENT, TODAY - timedelta(days=400), OLD):
        await past.had("hourly", hours(day, 8))
        await past.had("hourly", hours(day + timedelta(hours=8), 4), "failed")
        await past.had("hourly", hours(day + timedelta(hours=12), 4), "skipped", "paused")
        await past.had("hourly", hours(day + timedelta(hours=16), 2), "unvouched")
        await past.had("hourly", hours(day + timedelta(hours=18), 2), "started")
        await past.had("hourly", hours(day + timedelta(hours=20), 4), "rejected", "unknown")
        await past.had("hourly", hours(day + timedelta(minutes=9), 3), kind="manual")
        await past.had("quick", hours(day, 300, every=timedelta(minutes=1)))
    counted = TODAY - timedelta(days=2)  # yesterday is not counted before one o'clock
    await past.had("hourly", [counted])
    await past.had("quick", [counted])


async def test_no_window_is_lost_in_any_number_of_rounds(past):
    await mixed(past)
    before = await past.account()
    for _ in range(3):
        await past.round()
        assert await past.account() == before
        assert await past.counted() == before


async def test_no_window_is_lost_when_retention_shrinks_round_by_round(past):
    await mixed(past)
    before = await past.account()
    ages = [timedelta(days=days) for days in (900, 500, 300, 90, 30, 2)]
    for failed, age in pairwise(ages):
        await past.round(retention_age=age, retention_failed_age=failed, retention_max_age=failed)
        assert await past.account() == before
        assert await past.counted() == before


async def test_a_janitor_that_dies_at_any_turn_loses_no_window(past):
    await mixed(past)
    before = await past.account()
    for turns in range(1, 14):
        janitor = past.janitor()
        for _ in range(turns):
            await janitor.run_once()
        assert await past.account() == before
    await past.round()
    assert await past.account() == before
    assert await past.counted() == before


async def test_a_delete_that_does_not_commit_leaves_the_rows_where_they_are(past, monkeypatch):
    from engine.ledger.postgres.maintenance import Upkeep

    await mixed(past)
    before = await past.account()

    async def fails(*_, **__):
        raise RuntimeError("killed before the commit")

    with monkeypatch.context() as patch:
        patch.setattr(Upkeep, "done", fails)
        with pytest.raises(RuntimeError, match="killed"):
            await past.round()
    assert past.archive is not None
    assert await past.account() == before
    await past.round()
    assert await past.account() == before
    assert await past.counted() == before


async def test_two_janitors_at_once_lose_no_window(past, monkeypatch):
    await mixed(past)
    before = await past.account()

    async def everybody(*_):
        return NOW

    monkeypatch.setattr(past.ledger, "hold_duty", everybody)
    await asyncio.gather(*(finish(past.janitor()) for _ in range(3)))
    assert await past.account() == before
    assert await past.counted() == before


async def test_a_slow_ledger_is_asked_for_less_in_one_transaction(past, monkeypatch):
    from engine.ledger.postgres.maintenance import Upkeep

    await past.declare("schedules: [{key: quick, workflow: noop, everyMs: 60000}]")
    await past.had("quick", [*hours(OLD, 1440, every=timedelta(minutes=1)), TODAY])
    unchanged, changed, passed = Upkeep.unchanged, [], 0.0

    async def slow(upkeep, rows):
        nonlocal passed
        passed += 0.001 * len(rows)
        changed.append(len(rows))
        return await unchanged(upkeep, rows)

    monkeypatch.setattr(Upkeep, "unchanged", slow)
    monkeypatch.setattr("engine.runtime.retention.compaction.boottime", lambda: passed)
    await past.round()
    assert max(changed[1:]) * 0.001 <= 2 * AIM
    assert await shape(past, "quick") == [("completed", 1440), ("completed", 1)]


async def test_a_row_that_somebody_writes_to_stays_as_it_is(past):
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD, 3), *hours(ANCIENT, 3), TODAY])
    writer = await asyncpg_connect(past)
    async with writer.transaction():
        await writer.execute(
            "SELECT 1 FROM sched.fires WHERE fire_time IN ($1, $2) FOR UPDATE", OLD, ANCIENT
        )
        await past.round()
    await writer.close()
    assert await shape(past) == [("completed", 1)] * 5


async def test_a_row_that_changes_while_it_is_archived_leaves_only_as_it_became(past, monkeypatch):
    from engine.ledger.postgres.maintenance import Upkeep

    await past.declare(HOURLY)
    await past.had("hourly", [*hours(OLD, 3), *hours(ANCIENT, 3), TODAY])
    unchanged = Upkeep.unchanged

    async def late(upkeep, rows):
        await past.sql("UPDATE sched.fires SET error = 'seen late' WHERE fire_time < $1", TODAY)
        return await unchanged(upkeep, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Upkeep, "unchanged", late)
        await past.round()
    assert await shape(past) == [("completed", 1)] * 7
    await past.round()
    assert "seen late" in {line.get("error") for line in past.lines() if line["removed"]}


async def asyncpg_connect(past: Past):
    import asyncpg

    return await asyncpg.connect(past.url)


@pytest.mark.parametrize("hostile", ["missing", "a file", "full", "reads back otherwise"])
async def test_without_a_sound_archive_nothing_is_deleted_and_somebody_is_told(
    past, hostile, monkeypatch
):
    await mixed(past)
    before = await past.rows()
    if hostile == "missing":
        past.archive = past.archive / "not-mounted"
    elif hostile == "a file":
        (past.archive / "test").write_text("in the way")
    elif hostile == "full":

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("engine.runtime.retention.archive.os.fsync", full)
    else:
        monkeypatch.setattr("engine.runtime.retention.archive.gzip.decompress", lambda _: b"")
    janitor = past.janitor()
    await finish(janitor)
    await finish(janitor)
    assert await past.rows() == before
    alerts = [event.code for event in past.heard if isinstance(event, Alert)]
    assert alerts == ["SCHEDULE_ARCHIVE_FAILED"]
    assert not list(past.archive.rglob("*.part"))


async def test_without_an_archive_nothing_leaves_and_it_is_said_once(past):
    past.archive = None
    await past.declare(HOURLY)
    await past.had("hourly", [*hours(ANCIENT, 3), TODAY])
    before = await past.account()
    janitor = past.janitor()
    await finish(janitor)
    await finish(janitor)
    assert await past.account() == before
    said = [event.text for event in past.heard if isinstance(event, Notice)]
    assert sum("SCHED_ARCHIVE" in text for text in said) == 1


@pytest.mark.parametrize("wrong", ["NULL", "now() + interval '1 year'"])
async def test_a_next_fire_time_that_is_lost_is_found_again_and_told(past, wrong):
    await apply_hourly(past)
    (before,) = await past.sql("SELECT next_fire_at FROM sched.positions")
    await past.sql(f"UPDATE sched.positions SET next_fire_at = {wrong}, due_at = {wrong}")
    await past.round()
    (after,) = await past.sql("SELECT next_fire_at FROM sched.positions")
    soon = datetime.now(UTC) + timedelta(minutes=1)
    assert after["next_fire_at"] <= max(before["next_fire_at"], soon)
    (alert,) = [event for event in past.heard if isinstance(event, Alert)]
    assert alert.code == "SCHEDULE_NEXT_FIRE_REPAIRED"
    assert "hourly" in alert.text


async def test_a_day_off_is_no_next_fire_time_to_repair_before_its_last_window(past):
    now = datetime.now(UTC).replace(microsecond=0)
    off = "..".join(f"{now + number * timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}" for number in (-1, 1))
    fields = f'everyMs: 60000, firstFire: next, exclude: ["{off}"]'
    await declare_ago(Bench(past.ledger), fields, timedelta(hours=2))
    ((right,),) = await past.sql("SELECT next_fire_at FROM sched.positions")
    assert (right.minute, right.second) == (59, 0), "the last window of the day"
    await past.round()
    assert past.heard == []
    await past.sql("UPDATE sched.positions SET next_fire_at = NULL, due_at = NULL")
    await past.round()
    ((repaired,),) = await past.sql("SELECT next_fire_at FROM sched.positions")
    assert repaired == right
    assert [event.code for event in past.heard] == ["SCHEDULE_NEXT_FIRE_REPAIRED"]


async def test_a_limited_schedule_whose_last_window_was_rejected_goes_on(past):
    limited = "schedules: [{key: k, workflow: noop, everyMs: 1000, grace: 1h, limit: 1}]"
    bench = Bench(past.ledger)
    await bench.declare(limited)
    (first,) = await eventually(bench.claim)
    refused = Reason("payload_too_large", "payload too large")
    await past.ledger.settle([Outcome(first.fire_id, first.token, "rejected", reason=refused)])
    assert (await operator(bench).schedule("k")).state == "ended"
    await past.round()
    assert [each.text for each in past.heard] == ["k goes on: its limit of 1 has 1 left"]
    (another,) = await eventually(bench.claim)
    assert another.fire_time > first.fire_time
    assert (await operator(bench).schedule("k")).state == "ended"


async def test_a_paused_schedule_has_no_next_fire_time_to_repair(past):
    await apply_hourly(past)
    await past.sql("UPDATE sched.schedules SET paused_at = now(), next_fire_at = NULL")
    await past.round()
    assert past.heard == []


async def test_a_schedule_that_somebody_has_locked_is_not_waited_for(past):
    await apply_hourly(past)
    await past.sql("UPDATE sched.schedules SET next_fire_at = NULL")
    holder = await asyncpg_connect(past)
    async with holder.transaction():
        await holder.execute("SELECT 1 FROM sched.schedules FOR UPDATE")
        async with asyncio.timeout(2):
            await past.round()
    await holder.close()
    assert past.heard == []


async def test_a_session_with_an_old_snapshot_is_named_once_with_its_hint(past, monkeypatch):
    monkeypatch.setattr(janitor, "_OLD", timedelta(0))
    monkeypatch.setattr(janitor, "_DEAD", 0)
    await apply_hourly(past)
    kept, forgotten = past.janitor(), await asyncpg_connect(past)
    await forgotten.execute("SET application_name = 'a dump'")
    async with forgotten.transaction(isolation="repeatable_read"):
        pid = await forgotten.fetchval("SELECT pg_backend_pid() FROM sched.schedules")
        await finish(kept)
        await finish(kept)

    def told() -> list[Alert]:  # sessions of other tests keep dead rows of the server, too
        alerts = [event for event in past.heard if isinstance(event, Alert)]
        return [each for each in alerts if f"the session {pid} (a dump)" in each.text]

    (alert,) = told()
    assert alert.code == "SCHEDULE_OLD_SNAPSHOT"
    assert f"pg_terminate_backend({pid})" in alert.text
    await finish(kept)
    async with forgotten.transaction(isolation="repeatable_read"):
        await forgotten.fetch("SELECT 1 FROM sched.schedules")
        await finish(kept)
    await forgotten.close()
    assert len(told()) == 2


async def apply_hourly(past: Past) -> None:
    from engine.runtime.apply.apply import apply
    from engine.schedules import load_schedules

    await apply(past.ledger, load_schedules(HOURLY), by="test")
