"""Charts of the page: what stands where, without a browser."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from engine.page.charts import SHADES, Lane, durations, lane, strip, week_map
from engine.page.week import WeekLoads, coming_by_hour
from engine.runtime.apply.apply import apply
from engine.schedules import Schedule, load_schedules
from engine.service import Fire, ScheduleService, Status

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
HOUR = timedelta(hours=1)


def schedule(**fields: object) -> Schedule:
    return Schedule.from_json({"key": "k", "workflow": "w", **fields})


def fire(at: datetime, status: Status, seconds: float | None = None) -> Fire:
    return Fire(
        project="default", key="k", series=1, bucket=1, fire_time=at, workflow_id=f"sched:k:{at}",
        windows=1, last_fire_time=at, run_id=None, decided_at=at,
        status=status, reason=None, timing=None,
        started_at=None, closed_at=None, lag_ms=None, error=None, replica=None,
        definition_version=1, duration_ms=None if seconds is None else round(seconds * 1000),
    )  # fmt: skip


def test_a_strip_ends_with_the_newest_window_and_a_look_is_one_path():
    drawn = strip(["failed", "completed", "completed"])
    paths = dict(drawn.paths)
    assert paths["bad"].startswith("M133 0h5v16"), "at the right end, of the whole height"
    assert paths["ok"].count("M") == 2
    assert drawn.words == "1 failed, 2 completed"
    assert strip([]).words == "no window yet"
    assert len(strip(["completed"] * 50).paths[0][1].split("M")) - 1 == 20


def test_every_look_has_a_height_of_its_own_so_that_it_is_told_without_colour():
    drawn = {shade: strip([status]).paths[0][1] for status, shade in SHADES.items()}
    assert len(set(drawn.values())) == len(set(SHADES.values())) == 6


def test_the_longest_run_has_the_whole_height_and_a_short_one_is_seen():
    bars = durations(
        [fire(MONDAY, "completed", 3600), fire(MONDAY, "failed", 1), fire(MONDAY, "skipped")],
        ["a", "b", "c"],
    )
    assert [bar.title for bar in bars.bars] == ["a", "b", "c"]
    assert bars.bars[0].height == bars.HEIGHT
    assert all(bar.height >= 3 for bar in bars.bars)
    assert bars.bars[0].x > bars.bars[1].x > bars.bars[2].x == 47 * 11
    assert bars.longest == "1 h"


def test_a_week_has_its_levels_and_marks_the_hours_that_went_wrong():
    past: dict[datetime, dict[Status, int]] = {
        MONDAY: {"completed": 90, "failed": 10}, MONDAY + HOUR: {"completed": 1},
    }  # fmt: skip
    drawn = week_map(MONDAY, past, {MONDAY + 30 * HOUR: 50})
    first, second = drawn.days[0][:2]
    assert (first.number, first.level, first.is_bad) == (100, 5, True)
    assert (second.level, second.is_bad) == (1, False)
    assert drawn.days[1][6].title == "Tue 24 Nov 06:00 UTC: 50 to come"
    assert (drawn.total, drawn.most, drawn.fullest[0]) == (151, 100, first)
    assert week_map(MONDAY, {}, {}).most == 0


def test_a_lane_draws_what_there_is_and_a_band_for_what_it_leaves_out():
    now = MONDAY + 72 * HOUR
    past = [fire(MONDAY + 48 * HOUR, "completed"), fire(MONDAY + 24 * HOUR, "failed")]
    coming = [MONDAY + 96 * HOUR, MONDAY + 120 * HOUR]
    whole = lane("k", MONDAY, past, coming, most=3, now=now)
    assert whole.bands == []
    assert whole.words == "1 completed, 1 failed; 2 windows to come"
    assert dict(whole.paths)["next"].startswith("M576 ")
    cut = lane("k", MONDAY, past, coming, most=2, now=now)
    assert cut.bands == [(0.0, 144.0), (720.0, Lane.WIDTH - 720.0)]


@pytest.mark.parametrize(
    "fields",
    [
        {"everyMs": 60_000}, {"everyMs": 3_600_000, "offsetMs": 1000}, {"cron": "0 2 * * *"},
        {"cron": "*/5 * * * *", "timezone": "Asia/Kolkata"}, {"at": "2026-11-25T10:30:00Z"},
        {"cron": "0 9 * * *", "exclude": ["SAT", "SUN"]},
    ],
    ids=str,
)  # fmt: skip
def test_windows_to_come_are_counted_in_the_hour_in_which_they_open(fields):
    one = schedule(**fields)
    after, until = MONDAY + timedelta(minutes=17), MONDAY + timedelta(days=7, milliseconds=-1)
    expected = Counter(
        at.replace(minute=0, second=0, microsecond=0) for at in one.starts(after, until)
    )
    assert Counter(dict(coming_by_hour(one, after, until))) == expected
    assert expected


async def test_a_week_is_counted_once_for_all_who_look_and_for_their_keys_alone(
    virtual_ledger, clock
):
    hourly = "{key: a.x, workflow: w, everyMs: 3600000}, {key: b, workflow: w, cron: '30 * * * *'}"
    await apply(virtual_ledger, load_schedules(f"schedules: [{hourly}]"), by="test")
    loads = WeekLoads(ScheduleService(virtual_ledger, actor="test"))
    now = clock.move_to(MONDAY + 30 * HOUR)
    following = MONDAY + timedelta(days=7)
    both, counts = await loads.week(following, (), now)
    assert (both.total, counts.done, counts.schedules) == (2 * 168, True, 2)
    _, again = await loads.week(following, (), now)
    assert again is counts
    mine, _ = await loads.week(following, ("a.*",), now)
    assert mine.total == 168
    gone, _ = await loads.week(MONDAY - timedelta(days=70), (), now)
    assert gone.total == 0
