"""What ``daily-report`` counts: which fires belong to which day, hour and schedule."""

from __future__ import annotations

import dataclasses
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from temporalio.testing import ActivityEnvironment

from activities.database import database
from activities.report_data import Day, DayWanted, borders, gather_day
from tests.fundamentals.example_app import ExampleApp
from tests.fundamentals.fire_rows import FireRows, fire_rows

SAO_PAULO = "America/Sao_Paulo"  # three hours behind UTC, all year
TWO_O_CLOCK = datetime(2026, 10, 21, 5, tzinfo=UTC)


async def gathered(app: ExampleApp, at: datetime, timezone: str = SAO_PAULO) -> Day:
    """Call the step as a function; only its surroundings are made up."""
    surroundings = ActivityEnvironment()
    surroundings.info = dataclasses.replace(
        ActivityEnvironment.default_info(), namespace=app.client.namespace
    )
    async with asynccontextmanager(database)() as pool:
        return await surroundings.run(partial(gather_day, pool=pool), DayWanted(at, timezone))


@pytest.mark.parametrize(
    ("timezone", "at", "start", "hours"),
    [
        (SAO_PAULO, "2026-10-21T05:00Z", "2026-10-20T03:00Z", 24),
        # Clocks go forward at 02:00 on the 8th of March 2026, and back on the 1st of November.
        ("America/New_York", "2026-03-09T06:00Z", "2026-03-08T05:00Z", 23),
        ("America/New_York", "2026-11-02T07:00Z", "2026-11-01T04:00Z", 25),
        # The window of the day itself: that day has 23 hours, the one before it 24.
        ("America/New_York", "2026-03-08T07:30Z", "2026-03-07T05:00Z", 24),
        # 00:00 to 01:00 does not exist: the day begins at 01:00.
        ("Africa/Cairo", "2026-04-25T00:00Z", "2026-04-23T22:00Z", 23),
        ("Australia/Lord_Howe", "2026-04-05T16:00Z", "2026-04-04T13:00Z", 24.5),
        # At midnight itself the new day has begun.
        ("UTC", "2026-10-21T00:00Z", "2026-10-20T00:00Z", 24),
    ],
)
def test_yesterday_is_a_day_of_the_zone_whatever_its_clocks_did(timezone, at, start, hours):
    found = borders(DayWanted(datetime.fromisoformat(at), timezone))
    assert found[0] == datetime.fromisoformat(start)
    assert found[1] - found[0] == timedelta(hours=hours)


async def test_a_repeated_hour_has_two_bars(app: ExampleApp, fires: FireRows):
    await fires.add("beat", "2026-11-01T05:30:00Z")  # 01:30, the first time
    await fires.add("beat", "2026-11-01T06:30:00Z", "failed")  # 01:30, the second time
    day = await gathered(app, datetime(2026, 11, 2, 7, tzinfo=UTC), "America/New_York")
    assert [hour.label for hour in day.hours[:4]] == ["00:00", "01:00", "01:00", "02:00"]
    assert [hour.counts for hour in day.hours[:4]] == [{}, {"completed": 1}, {"failed": 1}, {}]
    assert len(day.hours) == 25


async def test_of_a_row_of_many_windows_those_of_the_day_are_counted(
    app: ExampleApp, fires: FireRows
):
    # Every minute from 02:30:20 UTC: half an hour of the 19th, and 90 windows of the 20th.
    last = datetime(2026, 10, 20, 4, 29, 20, tzinfo=UTC)
    await fires.add("sync", "2026-10-20T02:30:20Z", "skipped", windows=120, last_fire_time=last)
    day = await gathered(app, TWO_O_CLOCK)
    assert [hour.counts for hour in day.hours[:3]] == [{"skipped": 60}, {"skipped": 30}, {}]
    assert day.counts == {"skipped": 90}
    before = await gathered(app, TWO_O_CLOCK - timedelta(days=1))
    assert before.counts == {"skipped": 30}


async def test_schedules_with_problems_come_first_with_their_lags(app: ExampleApp, fires: FireRows):
    start = datetime(2026, 10, 20, 12, tzinfo=UTC)
    for n in range(1, 101):
        at = start + timedelta(seconds=10 * n)
        await fires.add("beat", at.isoformat(), started_at=at + timedelta(milliseconds=n))
    await fires.add("sync", start.isoformat(), "rejected", reason="unknown workflow")
    await fires.add("sync", "2026-10-20T12:01:00Z", "rejected", reason="unknown workflow")
    day = await gathered(app, TWO_O_CLOCK)
    sync, beat = day.schedules
    assert (sync.key, sync.counts, sync.median_ms) == ("sync", {"never started": 2}, None)
    assert (beat.key, beat.counts) == ("beat", {"completed": 100})
    assert (beat.median_ms, beat.p95_ms) == pytest.approx((50.5, 95.05))
    [problem] = day.problems
    assert (problem.times, problem.why) == (2, "unknown workflow")
    assert problem.last == datetime(2026, 10, 20, 12, 1, tzinfo=UTC)


async def test_a_first_sight_and_a_catch_up_are_in_no_lag(app: ExampleApp, fires: FireRows):
    async def add(key: str, at: str, lag: timedelta, **columns: str) -> None:
        await fires.add(key, at, started_at=datetime.fromisoformat(at) + lag, **columns)

    outage = timedelta(minutes=4)
    await add("beat", "2026-10-20T12:00:00Z", outage, timing="late", reason="first sight")
    await add("beat", "2026-10-20T12:10:00Z", outage, timing="caught_up")
    await add("beat", "2026-10-20T12:20:00Z", timedelta(seconds=90), timing="late")
    await add("sync", "2026-10-20T12:00:00Z", outage, timing="late", reason="first sight")
    day = await gathered(app, TWO_O_CLOCK)
    beat, sync = day.schedules
    assert (beat.median_ms, beat.p95_ms) == (90_000, 90_000), "its own lateness is counted"
    assert (sync.median_ms, sync.counts) == (None, {"completed": 1})
    assert day.lags_left_out == 3


async def test_another_namespace_of_the_same_ledger_is_not_its_business(
    app: ExampleApp, fires: FireRows
):
    await fires.add("beat", "2026-10-20T12:00:00Z")
    at = datetime(2026, 10, 20, 12, tzinfo=UTC)
    async with fire_rows(app.database, "other") as other:
        await other.add("beat", at.isoformat(), "failed", started_at=at + timedelta(hours=1))
    day = await gathered(app, TWO_O_CLOCK)
    [beat] = day.schedules
    assert (beat.counts, beat.median_ms, day.problems) == ({"completed": 1}, 40, [])


async def test_the_ledger_may_be_in_another_schema(app: ExampleApp, monkeypatch):
    monkeypatch.setenv("SCHED_SCHEMA", "other_schema")
    async with fire_rows(app.database, app.client.namespace, "other_schema") as fires:
        await fires.add("beat", "2026-10-20T12:00:00Z")
    assert (await gathered(app, TWO_O_CLOCK)).counts == {"completed": 1}
