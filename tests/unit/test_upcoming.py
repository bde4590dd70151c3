"""The next fires, of one schedule or the next of each, and how they are written for people."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from engine.cli.next import LAST, FireSource, one_of_each, upcoming
from engine.cli.output import clock, relative
from engine.schedules import At, Cron, Interval, exact_text

START = datetime(2026, 11, 21, 23, 59, 57, tzinfo=UTC)


def source(key: str, spec: object, timezone: str = "UTC") -> FireSource:
    return FireSource(key, spec, timezone)  # type: ignore[arg-type]  # any of the three kinds


def test_of_many_schedules_each_comes_once_in_the_order_of_time_and_at_one_instant_by_key():
    rows = one_of_each(
        [
            source("z", Interval(1000)),
            source("daily", Cron("0 0 * * *")),
            source("a", Interval(1000)),
            source("over", At("2026-11-21T12:00:00Z")),
        ],
        START,
    )
    assert [(row.fire_time - START, row.source.key) for row in rows] == [
        (timedelta(seconds=1), "a"),
        (timedelta(seconds=1), "z"),
        (timedelta(seconds=3), "daily"),
    ]


def test_what_is_over_gives_fewer_rows_and_the_last_one_says_so():
    rows = upcoming(source("once", At("2026-11-22T12:00:00Z")), START, 5)
    assert [row.note for row in rows] == [LAST]
    assert upcoming(source("once", At("2026-11-21T12:00:00Z")), START, 5) == []
    assert {row.note for row in upcoming(source("k", Interval(1000)), START, 3)} == {""}


def test_of_ten_thousand_schedules_the_next_fires_are_found_without_listing_the_others():
    sources = [source(f"k{n}", Interval(1000 + n)) for n in range(5000)]
    sources += [source(f"c{n}", Cron(f"{n % 60} * * * *")) for n in range(5000)]
    began = time.process_time()
    rows = one_of_each(sources, START)
    assert len(rows) == 10_000
    assert rows == sorted(rows, key=lambda row: (row.fire_time, row.source.key))
    assert time.process_time() - began < 2, "all of 75 years were computed"


def test_json_has_the_key_and_the_local_time_with_its_offset():
    (row,) = upcoming(source("nightly", Cron("0 2 * * *"), "America/Sao_Paulo"), START, 1)
    shown = row.as_json()
    assert shown["key"] == "nightly"
    assert list(shown)[1:] == ["fireTime", "localTime", "timezone", "bucket", "note"]
    assert (exact_text(shown["fireTime"]), shown["localTime"]) == (
        "2026-11-22T02:00:00Z", "2026-11-21T23:00:00-03:00",
    )  # fmt: skip
    assert shown["bucket"] == 1795312800000


@pytest.mark.parametrize(
    ("moment", "timezone", "shown"),
    [
        ("2026-11-22T05:00:00+00:00", "America/Sao_Paulo", "2026-11-22 02:00 -03"),
        ("2026-11-22T05:00:01+00:00", "Asia/Kathmandu", "2026-11-22 10:45:01 +05:45"),
        ("2026-11-22T05:00:00.250+00:00", "UTC", "2026-11-22 05:00:00.250 UTC"),
        # The hour that comes twice, and an offset with seconds.
        ("2026-11-01T05:30:00+00:00", "America/New_York", "2026-11-01 01:30 -04"),
        ("2026-11-01T06:30:00+00:00", "America/New_York", "2026-11-01 01:30 -05"),
        ("1971-06-01T00:00:00+00:00", "Africa/Monrovia", "1971-05-31 23:15:30 -00:44:30"),
    ],
)
def test_a_local_time_carries_its_offset(moment, timezone, shown):
    assert clock(datetime.fromisoformat(moment), timezone) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "now"),
        (7, "in 7 s"),
        (60, "in 1 min"),
        (3 * 3600 + 12 * 60 + 59, "in 3 h 12 min"),
        (86_400 + 5, "in 1 d"),
        (-90, "1 min 30 s ago"),
    ],
)
def test_a_distance_in_time_is_told_in_its_two_largest_units(seconds, shown):
    assert relative(START + timedelta(seconds=seconds), START) == shown


def test_a_window_that_was_skipped_is_passed_over_and_noted_beside_the_next():
    skips = {START + timedelta(seconds=3): "user: holiday", START: "user: long over"}
    skipping = FireSource("k", Cron("0 0 * * *"), "UTC", None, skips)
    note = "2026-11-22T00:00:00Z is skipped (user: holiday)"
    first, second = upcoming(skipping, START, 2)
    assert first.fire_time == START + timedelta(days=1, seconds=3)
    assert (first.note, second.note) == (note, "")
    (each,) = one_of_each([skipping], START)
    assert (each.fire_time, each.note) == (first.fire_time, note)


def test_a_single_moment_that_was_skipped_is_not_to_come():
    moment = datetime(2026, 11, 22, 12, tzinfo=UTC)
    once = FireSource("once", At("2026-11-22T12:00:00Z"), "UTC", None, {moment: "user"})
    assert upcoming(once, START, 5) == []
