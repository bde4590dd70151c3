"""Intervals and one-shots: arithmetic that never drifts, moments that mean one instant."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from engine.errors import IntervalTooShort, ScheduleError, TimezoneInvalid
from engine.schedules.timing.spec import At, Cron, Interval, Spec, latest

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what must be refused


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize("spec", [Cron("0 2 * * *"), Interval(60_000), At("2027-01-01T00:00:00Z")])
def test_all_three_kinds_keep_one_contract(spec: Spec):
    start, end = utc("2026-12-30T00:00"), utc("2027-01-02T00:00")
    fires = list(spec.fires(start, end))
    assert fires[0] == spec.next(start)
    assert fires[-1] == spec.previous(end)
    assert fires == sorted(set(fires))
    assert spec.count(start, end) == len(fires)
    assert latest(spec, end, len(fires)) == fires[::-1]
    assert [spec.fire_time(spec.bucket(fire)) for fire in fires] == fires
    assert all(fire.tzinfo is UTC for fire in fires)
    for call in (spec.next, spec.previous, spec.bucket):
        with pytest.raises(ValueError, match="naive"):
            call(NAIVE)
    with pytest.raises(ValueError, match="naive"):
        spec.fires(start, NAIVE)
    with pytest.raises(ValueError, match="naive"):
        spec.count(NAIVE, end)


def test_each_kind_says_its_name():
    kinds = [Cron("0 2 * * *").kind, Interval(1000).kind, At("2027-01-01T00:00:00Z").kind]
    assert kinds == ["cron", "interval", "at"]


# --- intervals ------------------------------------------------------------------------------


def test_the_bucket_is_the_floor_of_now_over_every():
    spec = Interval(every_ms=300_000)
    now = utc("2026-01-01T00:07:31.250")
    assert spec.bucket(now) == int(now.timestamp() * 1000) // 300_000
    assert spec.fire_time(spec.bucket(now)) == utc("2026-01-01T00:05")


def test_an_interval_is_aligned_to_the_epoch():
    spec = Interval(every_ms=7000)
    assert spec.next(utc("1970-01-01T00:00")) == utc("1970-01-01T00:00:07")
    assert spec.previous(utc("1970-01-01T00:00")) == utc("1970-01-01T00:00")


def test_an_offset_moves_every_window():
    spec = Interval(every_ms=3_600_000, offset_ms=900_000)
    assert spec.next(utc("2026-01-01T00:00")) == utc("2026-01-01T00:15")
    assert spec.bucket(utc("2026-01-01T00:15")) == spec.bucket(utc("2026-01-01T01:14:59.999"))


def test_offsets_a_whole_interval_apart_fire_together_but_number_differently():
    one, two = Interval(60_000, 5_000), Interval(60_000, 65_000)
    at = utc("2026-01-01T00:00")
    assert one.next(at) == two.next(at)
    assert one.bucket(at) == two.bucket(at) + 1


def test_a_negative_offset_is_a_shift_to_the_left():
    assert Interval(60_000, -1_000).next(utc("2026-01-01T00:00")) == utc("2026-01-01T00:00:59")


def test_an_interval_may_be_finer_than_whole_seconds():
    spec = Interval(every_ms=1_500)
    assert spec.next(utc("2026-01-01T00:00")) == utc("2026-01-01T00:00:01.500")


@pytest.mark.parametrize("every_ms", [999, 1, 0, -5000])
def test_an_interval_below_a_second_is_refused(every_ms):
    with pytest.raises(IntervalTooShort) as caught:
        Interval(every_ms)
    assert caught.value.code == "SCHEDULE_INTERVAL_TOO_SHORT"
    assert "1000" in str(caught.value)


@pytest.mark.parametrize(("every", "offset"), [(1000.0, 0), ("1000", 0), (True, 0), (1000, 0.5)])
def test_an_interval_wants_whole_numbers(every, offset):
    with pytest.raises(ScheduleError, match="whole number"):
        Interval(every, offset)


def test_no_interval_fires_before_1970_or_after_2100():
    spec = Interval(every_ms=86_400_000)
    assert spec.next(utc("2100-12-31T00:00")) is None
    assert spec.previous(utc("1969-12-31T00:00")) is None
    assert spec.next(utc("1950-01-01T00:00")) == utc("1970-01-01T00:00")
    assert spec.previous(utc("2150-01-01T00:00")) == utc("2100-12-31T00:00")
    assert Interval(10**18).next(utc("2026-01-01T00:00")) is None
    assert Interval(1000, 10**30).next(utc("2026-01-01T00:00")) == utc("2026-01-01T00:00:01")


instants = st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds are naive by API
intervals = st.builds(Interval, st.integers(1000, 10**9), st.integers(-(10**12), 10**12))
spans = st.integers(0, 10**8).map(lambda ms: timedelta(milliseconds=ms))


@given(spec=intervals, at=instants)
def test_windows_of_an_interval_are_numbered_without_a_hole(spec, at):
    following, current = spec.next(at), spec.previous(at)
    assert current <= at < following
    assert following - current == timedelta(milliseconds=spec.every_ms)
    assert spec.bucket(following) == spec.bucket(at) + 1
    assert spec.fire_time(spec.bucket(at)) == current
    assert spec.previous(following) == following


@given(spec=intervals, at=instants, one=spans, two=spans)
def test_counts_of_an_interval_add_up(spec, at, one, two):
    whole = spec.count(at, at + one + two)
    assert spec.count(at, at + one) + spec.count(at + one, at + one + two) == whole
    assert whole == spec.bucket(at + one + two) - spec.bucket(at)


@given(spec=st.builds(Interval, st.integers(10**6, 10**7)), at=instants, span=spans)
def test_latest_of_an_interval_is_the_tail_of_its_list(spec, at, span):
    fires = list(spec.fires(at, at + span))
    assert latest(spec, at + span, len(fires)) == fires[::-1]
    assert latest(spec, at + span, 2)[: len(fires)] == fires[::-1][:2]


# --- one moment -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "timezone", "expected"),
    [
        ("2027-01-01T09:00:00", "America/Sao_Paulo", "2027-01-01T12:00"),
        ("2027-01-01T09:00:00Z", None, "2027-01-01T09:00"),
        ("2027-01-01 09:00:00+02:00", None, "2027-01-01T07:00"),
        ("2027-01-01T09:00", "UTC", "2027-01-01T09:00"),
        ("2026-03-08T02:30:00.5", "America/New_York", "2026-03-08T07:00"),
        ("2026-11-01T01:30:00.5", "America/New_York", "2026-11-01T05:30:00.500"),
        ("2011-12-30T12:00:00", "Pacific/Apia", "2011-12-30T10:00"),
        (NAIVE, "Asia/Tokyo", "2025-12-31T15:00"),
        (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), None, "2025-12-31T23:00"),
    ],
)
def test_a_moment_means_one_instant(moment, timezone, expected):
    assert At(moment, timezone).instant == utc(expected)


def test_a_moment_fires_once():
    spec, fire = At("2027-01-01T09:00:00Z"), utc("2027-01-01T09:00")
    before = fire - timedelta(seconds=1)
    assert list(spec.fires(before, fire)) == [fire]
    assert list(spec.fires(fire, fire + timedelta(days=9))) == []
    assert (spec.next(before), spec.next(fire)) == (fire, None)
    assert (spec.previous(before), spec.previous(fire)) == (None, fire)
    assert (latest(spec, fire, 5), latest(spec, fire, 0), latest(spec, before, 5)) == (
        [fire],
        [],
        [],
    )
    assert spec.bucket(fire) == 1_798_794_000_000


def test_a_local_moment_needs_a_timezone():
    with pytest.raises(ScheduleError, match="no offset and no timezone; append Z"):
        At("2027-01-01T09:00:00")


def test_a_naive_datetime_without_timezone_is_a_value_error():
    with pytest.raises(ValueError, match="naive"):
        At(NAIVE)


def test_a_moment_with_an_offset_must_not_have_a_timezone():
    for moment in ("2027-01-01T09:00:00Z", utc("2027-01-01T09:00")):
        with pytest.raises(ScheduleError, match="remove one"):
            At(moment, "UTC")


@pytest.mark.parametrize(
    "moment",
    ["", "tomorrow", "2027-01-01", "2027-02-30T00:00:00Z", "20270101T000000Z", "09:00", 5, None],
)
def test_what_is_not_a_date_and_time_is_refused(moment):
    with pytest.raises(ScheduleError, match="is not a date and time"):
        At(moment, "UTC")


def test_a_moment_outside_1970_to_2100_is_refused():
    for moment in ("1969-12-31T23:59:59Z", "2101-01-01T00:00:00Z"):
        with pytest.raises(ScheduleError, match="1970 to 2100"):
            At(moment)


def test_a_moment_wants_an_iana_name():
    with pytest.raises(TimezoneInvalid):
        At("2027-01-01T09:00:00", "CET")


def test_moments_and_intervals_compare_by_their_arguments_and_survive_pickle():
    assert At("2027-01-01T09:00:00Z") == At("2027-01-01T09:00:00Z")
    assert len({Interval(1000), Interval(1000, 0), Interval(1000, 1)}) == 2
    for spec in (At("2027-01-01T09:00:00", "Asia/Tokyo"), Interval(1000, 5)):
        assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301 - our own bytes
