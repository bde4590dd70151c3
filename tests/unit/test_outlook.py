"""Which starts appear and vanish: counted by arithmetic, named by walking, and both agree."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.schedules import Schedule
from engine.schedules.diff import AHEAD, Moved, Starts, View, outlook

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)
UNTIL = NOW + AHEAD
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def view(after: datetime = NOW, skipped: tuple[datetime, ...] = (), **fields: Any) -> View:
    declared = Schedule.from_json({"key": "k", "workflow": "w", **fields})
    return View(declared, after, frozenset(skipped))


def test_the_last_start_of_a_limit_is_the_last_that_appears_or_vanishes():
    endless, limited = view(every="1h"), view(every="1h")
    limited = replace(limited, last=limited.schedule.last_start(NOW, 3))
    assert outlook(None, limited, UNTIL).appear == Starts(3, tuple(limited.starts(UNTIL)))
    assert outlook(endless, limited, UNTIL) == Moved(
        vanish=Starts(
            7 * 24 - 3, tuple(NOW.replace(second=0) + n * HOUR for n in range(4, 24))
        )
    )  # fmt: skip


def test_where_only_the_timezone_changes_every_fire_that_moves_is_named():
    old = view(cron="0 2 * * *", timezone="America/Sao_Paulo")
    new = view(cron="0 2 * * *", timezone="Europe/Berlin")
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    week = [midnight + n * DAY for n in range(7)]
    moved = outlook(old, new, UNTIL)
    assert moved.vanish == Starts(7, tuple(day + 5 * HOUR for day in week))
    assert moved.appear == Starts(7, tuple(day + HOUR for day in week))


def test_a_timezone_with_the_same_clock_moves_nothing():
    old = view(cron="0 2 * * *", timezone="Europe/Berlin")
    assert outlook(old, view(cron="0 2 * * *", timezone="Europe/Paris"), UNTIL) == Moved()


def test_an_edit_that_says_nothing_of_when_moves_nothing():
    assert outlook(view(everyMs=1000), view(everyMs=1000, input=7), UNTIL) == Moved()


def test_all_starts_of_what_comes_or_goes_are_counted_and_the_first_are_named():
    moved = outlook(None, view(everyMs=1000), UNTIL, named=3)
    first = tuple(NOW + timedelta(seconds=n) for n in (1, 2, 3))
    assert moved == Moved(appear=Starts(604_800, first))
    assert outlook(view(everyMs=1000), None, UNTIL, named=3) == Moved(vanish=moved.appear)


def test_windows_of_a_new_series_that_open_when_the_old_ones_did_are_not_moved():
    moved = outlook(view(everyMs=60_000), view(everyMs=120_000), UNTIL, named=2)
    first = datetime(2026, 11, 21, 12, 1, tzinfo=UTC)
    assert moved == Moved(vanish=Starts(5040, (first, first + timedelta(minutes=2))))


def test_what_is_excluded_or_skipped_is_no_start():
    skipped = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
    new = view(everyMs=3_600_000, exclude=["2026-11-23"], skipped=(skipped,))
    moved = outlook(view(everyMs=3_600_000), new, UNTIL, named=2)
    midnight = datetime(2026, 11, 23, tzinfo=UTC)
    assert moved == Moved(vanish=Starts(25, (skipped, midnight)))


def test_a_skip_of_what_is_excluded_anyway_counts_once():
    midnight = datetime(2026, 11, 23, tzinfo=UTC)
    both = view(everyMs=3_600_000, exclude=["2026-11-23"], skipped=(midnight,))
    assert both.count(UNTIL) == len([*both.starts(UNTIL)]) == 7 * 24 - 24


def test_a_pause_that_ends_within_the_week_lets_the_rest_of_it_start():
    paused = view(after=NOW + DAY, everyMs=3_600_000)
    moved = outlook(paused, view(everyMs=3_600_000), UNTIL)
    assert (moved.appear.count, moved.vanish.count) == (24, 0)


WHENS = st.one_of(
    st.builds(
        lambda every, offset: {"everyMs": every * 60_000, "offsetMs": offset * 1000},
        st.integers(1, 300), st.integers(-5000, 5000),
    ),
    st.sampled_from([
        {"cron": "*/7 * * * *"}, {"cron": "30 2 * * *", "timezone": "America/New_York"},
        {"at": "2026-11-21T18:00:00Z"},
        {"everyMs": 420_000, "exclude": ["2026-11-22"]},
        {"everyMs": 420_000, "start": "2026-11-22T00:00:00Z"},
    ]),
)  # fmt: skip


@given(WHENS, WHENS, st.integers(0, 100), st.integers(0, 2))
def test_it_says_what_the_difference_of_both_sets_says(old, new, later, named):
    one, other = view(**old), view(after=NOW + later * timedelta(minutes=1), **new)
    until = NOW + 2 * DAY
    olds, news = set(one.starts(until)), set(other.starts(until))
    moved = outlook(one, other, until, named)
    assert moved.appear == Starts(len(news - olds), tuple(sorted(news - olds)[:named]))
    assert moved.vanish == Starts(len(olds - news), tuple(sorted(olds - news)[:named]))


@pytest.mark.parametrize("every", [1000, 1500])
def test_intervals_of_seconds_are_compared_by_arithmetic(every):
    moved = outlook(view(everyMs=1000), view(everyMs=every, offsetMs=500), UNTIL, named=1)
    assert moved.vanish.count + moved.appear.count > 600_000
