"""When cron schedules fire: the specification, one promise a test."""

from __future__ import annotations

import copy
import pickle
import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from engine.errors import CronInvalid, ScheduleError, TimezoneInvalid
from engine.schedules.timing.spec import Cron, Dst, latest

NEW_YORK = "America/New_York"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def five(expression: str, after: str = "2026-01-01T00:00", timezone: str = "UTC") -> list[str]:
    found, at = [], utc(after)
    cron = Cron(expression, timezone)
    for _ in range(5):
        following = cron.next(at)
        assert following is not None
        at = following
        found.append(f"{at:%Y-%m-%dT%H:%M}" + (f":{at:%S}" if at.second else ""))
    return found


def listed(cron: Cron, after: str, until: str) -> list[str]:
    return [f"{fire:%m-%dT%H:%M}" for fire in cron.fires(utc(after), utc(until))]


# --- every example line of the seeds (002, 003, 000 and 004 have no others) ------------------

SEED_EXAMPLES = [
    ("*/5 * * * *", "UTC", "1 00:05, 1 00:10, 1 00:15, 1 00:20, 1 00:25"),
    ("0 * * * *", "UTC", "1 01:00, 1 02:00, 1 03:00, 1 04:00, 1 05:00"),
    ("0 0 * * *", "UTC", "2 00:00, 3 00:00, 4 00:00, 5 00:00, 6 00:00"),
    ("0 2 * * *", "UTC", "1 02:00, 2 02:00, 3 02:00, 4 02:00, 5 02:00"),
    ("0 2 * * *", "America/Sao_Paulo", "1 05:00, 2 05:00, 3 05:00, 4 05:00, 5 05:00"),
    ("0 9 * * MON-FRI", "UTC", "1 09:00, 2 09:00, 5 09:00, 6 09:00, 7 09:00"),
    ("0 0 1 * *", "UTC", "32 00:00, 60 00:00, 91 00:00, 121 00:00, 152 00:00"),
    ("0 0 * * SUN", "UTC", "4 00:00, 11 00:00, 18 00:00, 25 00:00, 32 00:00"),
    ("0 */6 * * *", "UTC", "1 06:00, 1 12:00, 1 18:00, 2 00:00, 2 06:00"),
    ("0 */2 * * *", "UTC", "1 02:00, 1 04:00, 1 06:00, 1 08:00, 1 10:00"),
    ("*/15 * * * *", "UTC", "1 00:15, 1 00:30, 1 00:45, 1 01:00, 1 01:15"),
    ("*/15 9-17 * * MON-FRI", "UTC", "1 09:00, 1 09:15, 1 09:30, 1 09:45, 1 10:00"),
]


@pytest.mark.parametrize(("expression", "timezone", "expected"), SEED_EXAMPLES)
def test_every_example_of_the_seeds_fires_as_it_says(expression, timezone, expected):
    """``expected`` is day of 2026 and clock in UTC; the seeds are read on New Year's Day."""
    cron, start = Cron(expression, timezone), utc("2026-01-01T00:00")
    fires = list(cron.fires(start, start + timedelta(days=160)))[:5]
    assert ", ".join(f"{fire.timetuple().tm_yday} {fire:%H:%M}" for fire in fires) == expected


def test_business_hours_end_at_a_quarter_to_six_and_pause_over_the_weekend():
    assert five("*/15 9-17 * * MON-FRI", "2026-01-02T17:29") == [
        "2026-01-02T17:30",
        "2026-01-02T17:45",
        "2026-01-05T09:00",
        "2026-01-05T09:15",
        "2026-01-05T09:30",
    ]


def test_sao_paulo_kept_its_local_hour_while_it_still_had_summer_time():
    cron = Cron("0 2 * * *", "America/Sao_Paulo")
    assert listed(cron, "2018-11-02T12:00", "2018-11-06T12:00") == [
        "11-03T05:00",
        "11-04T04:00",
        "11-05T04:00",
        "11-06T04:00",
    ]


# --- days -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]),
        ("0 0 L-2 * *", ["2026-01-29", "2026-02-26", "2026-03-29", "2026-04-28", "2026-05-29"]),
        ("0 0 L-30 * *", ["2026-03-01", "2026-05-01", "2026-07-01", "2026-08-01", "2026-10-01"]),
        ("0 0 LW * *", ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30", "2026-05-29"]),
        ("0 0 1W * *", ["2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01", "2026-06-01"]),
        ("0 0 15W * *", ["2026-01-15", "2026-02-16", "2026-03-16", "2026-04-15", "2026-05-15"]),
        ("0 0 31W * *", ["2026-01-30", "2026-03-31", "2026-05-29", "2026-07-31", "2026-08-31"]),
        ("0 0 * * 5L", ["2026-01-30", "2026-02-27", "2026-03-27", "2026-04-24", "2026-05-29"]),
        ("0 0 * * fril", ["2026-01-30", "2026-02-27", "2026-03-27", "2026-04-24", "2026-05-29"]),
        ("0 0 * * MON#5", ["2026-03-30", "2026-06-29", "2026-08-31", "2026-11-30", "2027-03-29"]),
        ("0 0 * * MON#1", ["2026-01-05", "2026-02-02", "2026-03-02", "2026-04-06", "2026-05-04"]),
        ("0 0 * * SUN#5", ["2026-03-29", "2026-05-31", "2026-08-30", "2026-11-29", "2027-01-31"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29", "2040-02-29", "2044-02-29"]),
        ("0 0 29 * 6#5", ["2026-01-29", "2026-01-31", "2026-03-29", "2026-04-29", "2026-05-29"]),
        ("0 0 */28 2 */7", ["2026-02-01", "2032-02-01", "2032-02-29", "2037-02-01", "2043-02-01"]),
    ],
)
def test_special_days_fall_where_the_calendar_has_them(expression, expected):
    assert five(expression) == [f"{day}T00:00" for day in expected]


def test_two_restricted_day_fields_fire_on_either():
    assert five("0 0 13 * FRI", "2026-02-06T12:00") == [
        "2026-02-13T00:00",
        "2026-02-20T00:00",
        "2026-02-27T00:00",
        "2026-03-06T00:00",
        "2026-03-13T00:00",
    ]


def test_a_day_field_that_starts_with_a_star_must_match_together_with_the_weekday():
    assert five("0 0 */2 * FRI", "2026-01-01T00:00") == [
        "2026-01-09T00:00",
        "2026-01-23T00:00",
        "2026-02-13T00:00",
        "2026-02-27T00:00",
        "2026-03-13T00:00",
    ]


def test_six_fields_fire_on_seconds():
    assert five("*/20 59 23 * * *", "2026-01-01T12:00") == [
        "2026-01-01T23:59",
        "2026-01-01T23:59:20",
        "2026-01-01T23:59:40",
        "2026-01-02T23:59",
        "2026-01-02T23:59:20",
    ]


# --- daylight saving, standard policy --------------------------------------------------------


def test_a_fixed_time_in_a_gap_fires_once_at_the_first_instant_after_it():
    cron = Cron("30 2 * * *", NEW_YORK)
    assert listed(cron, "2026-03-07T12:00", "2026-03-09T12:00") == ["03-08T07:00", "03-09T06:30"]


def test_a_fixed_time_in_a_fold_fires_once_at_the_first_of_the_two():
    cron = Cron("30 1 * * *", NEW_YORK)
    assert listed(cron, "2026-10-31T12:00", "2026-11-02T12:00") == ["11-01T05:30", "11-02T06:30"]


def test_several_fixed_times_that_land_on_one_instant_are_one_fire():
    cron = Cron("0,20,40 2,3 * * *", NEW_YORK)
    fires = listed(cron, "2026-03-08T05:00", "2026-03-08T12:00")
    assert fires == ["03-08T07:00", "03-08T07:20", "03-08T07:40"]
    assert cron.count(utc("2026-03-08T05:00"), utc("2026-03-08T12:00")) == 3


def test_a_wildcard_loses_and_doubles_no_elapsed_minute():
    cron = Cron("*/30 * * * *", NEW_YORK)
    for day in ("2026-03-08", "2026-11-01"):
        start = utc(f"{day}T00:00")
        fires = list(cron.fires(start, start + timedelta(days=1)))
        assert fires == [start + timedelta(minutes=30 * n) for n in range(1, 49)]


def test_a_wildcard_does_not_invent_a_reading_that_was_skipped():
    cron = Cron("5 */2 * * *", NEW_YORK)
    assert listed(cron, "2026-03-08T05:00", "2026-03-08T10:00") == ["03-08T05:05", "03-08T08:05"]


def test_a_wildcard_hour_repeats_with_the_clock():
    cron = Cron("*/30 1 * * *", NEW_YORK)
    assert listed(cron, "2026-11-01T00:00", "2026-11-01T12:00") == [
        "11-01T05:00",
        "11-01T05:30",
        "11-01T06:00",
        "11-01T06:30",
    ]


def test_half_an_hour_on_lord_howe_is_a_gap_like_any_other():
    cron = Cron("15 2 * * *", "Australia/Lord_Howe")
    assert listed(cron, "2026-10-02T20:00", "2026-10-05T00:00") == ["10-03T15:30", "10-04T15:15"]


def test_two_hours_in_antarctica_are_a_gap_like_any_other():
    cron = Cron("30 1,2 * * *", "Antarctica/Troll")
    assert listed(cron, "2026-03-28T12:00", "2026-03-29T12:00") == ["03-29T01:00"]


def test_a_day_that_was_skipped_fires_once_at_its_end():
    cron = Cron("0 9 30 12 *", "Pacific/Apia")
    assert listed(cron, "2011-12-01T00:00", "2011-12-31T23:00") == ["12-30T10:00"]
    assert listed(Cron("0 * 30 12 *", "Pacific/Apia"), "2011-12-01T00:00", "2011-12-31T23:00") == []


def test_dublin_counts_winter_as_the_exception_and_fires_all_the_same():
    cron = Cron("30 1 * * *", "Europe/Dublin")
    assert listed(cron, "2026-03-28T12:00", "2026-03-30T12:00") == ["03-29T01:00", "03-30T00:30"]
    assert listed(cron, "2026-10-24T12:00", "2026-10-26T12:00") == ["10-25T00:30", "10-26T01:30"]


def test_a_gap_at_midnight_moves_the_daily_run_to_one_o_clock():
    cron = Cron("@daily", "America/Santiago")
    assert listed(cron, "2026-09-05T12:00", "2026-09-07T12:00") == ["09-06T04:00", "09-07T03:00"]


# --- daylight saving, overrides --------------------------------------------------------------


@pytest.mark.parametrize(
    ("dst", "expected"),
    [
        ({"gap": "skip"}, ["03-07T07:30", "03-09T06:30"]),
        ({"gap": "shift"}, ["03-07T07:30", "03-08T07:00", "03-09T06:30"]),
    ],
)
def test_gap_says_whether_a_skipped_time_fires(dst, expected):
    cron = Cron("30 2 * * *", NEW_YORK, dst=dst)
    assert listed(cron, "2026-03-07T00:00", "2026-03-09T12:00") == expected


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("first", ["11-01T05:30"]),
        ("last", ["11-01T06:30"]),
        ("both", ["11-01T05:30", "11-01T06:30"]),
    ],
)
def test_fold_says_which_of_two_equal_times_fires(fold, expected):
    cron = Cron("30 1 * * *", NEW_YORK, dst={"fold": fold})
    assert listed(cron, "2026-11-01T00:00", "2026-11-01T12:00") == expected


def test_an_override_does_not_change_a_wildcard():
    plain, other = Cron("*/7 * * * *", NEW_YORK), Cron("*/7 * * * *", NEW_YORK, dst=Dst("skip"))
    start, end = utc("2026-10-31T00:00"), utc("2026-11-03T00:00")
    assert list(plain.fires(start, end)) == list(other.fires(start, end))


@pytest.mark.parametrize(
    "dst", ["vixie", {"gap": "jump"}, {"fold": []}, {"spring": "shift"}, None, 5, ["shift"]]
)
def test_an_unknown_policy_is_refused(dst):
    with pytest.raises(ScheduleError, match=r"gap: shift \| skip, fold: first \| last \| both"):
        Cron("30 2 * * *", dst=dst)


def test_the_standard_may_be_written_out():
    assert Cron("0 2 * * *", dst={"gap": "shift", "fold": "first"}) == Cron("0 2 * * *")
    assert Cron("0 2 * * *", dst=Dst()).dst == "standard"


# --- the contract ---------------------------------------------------------------------------


def test_next_is_strictly_after_and_previous_includes_its_argument():
    cron, fire = Cron("0 2 * * *"), utc("2026-01-05T02:00")
    assert cron.next(fire) == utc("2026-01-06T02:00")
    assert cron.previous(fire) == fire
    assert cron.next(fire - timedelta(microseconds=1)) == fire
    assert cron.previous(fire - timedelta(microseconds=1)) == utc("2026-01-04T02:00")
    assert cron.previous(fire + timedelta(microseconds=1)) == fire


def test_fires_excludes_its_start_and_includes_its_end():
    cron = Cron("0 * * * *")
    assert listed(cron, "2026-01-01T00:00", "2026-01-01T02:00") == ["01-01T01:00", "01-01T02:00"]
    assert listed(cron, "2026-01-01T02:00", "2026-01-01T02:00") == []
    assert listed(cron, "2026-01-01T03:00", "2026-01-01T02:00") == []


def test_a_naive_instant_is_a_value_error_everywhere():
    cron, naive = Cron("0 2 * * *"), datetime(2026, 1, 1)  # noqa: DTZ001 - what must be refused
    for call in (
        lambda: cron.next(naive),
        lambda: cron.previous(naive),
        lambda: cron.fires(naive, utc("2026-01-01T00:00")),
        lambda: cron.fires(utc("2026-01-01T00:00"), naive),
        lambda: cron.bucket(naive),
        lambda: cron.count(naive, naive),
        lambda: latest(cron, naive, 1),
    ):
        with pytest.raises(ValueError, match="naive"):
            call()


def test_any_zone_goes_in_and_utc_comes_out():
    cron = Cron("0 2 * * *")
    for zone in (timezone(timedelta(hours=5)), ZoneInfo("Asia/Tokyo")):
        following = cron.next(utc("2026-01-05T00:00").astimezone(zone))
        assert following == utc("2026-01-05T02:00")
        assert following.tzinfo is UTC


def test_an_argument_in_the_repeated_hour_keeps_its_fold():
    cron = Cron("*/30 * * * *", NEW_YORK)
    zone = ZoneInfo(NEW_YORK)
    second = datetime(2026, 11, 1, 1, 15, fold=1, tzinfo=zone)
    assert cron.next(second.replace(fold=0)) == utc("2026-11-01T05:30")
    assert cron.next(second) == utc("2026-11-01T06:30")


def test_the_bucket_is_the_fire_time_in_milliseconds_and_leads_back():
    cron, fire = Cron("0 2 * * *"), utc("2026-01-05T02:00")
    assert cron.bucket(fire) == 1_767_578_400_000
    assert cron.fire_time(cron.bucket(fire)) == fire


def test_nothing_fires_beyond_2100_or_before_1970():
    cron = Cron("0 0 * * *")
    assert cron.next(utc("2100-12-31T00:00")) is None
    assert cron.next(utc("2500-01-01T00:00")) is None
    assert cron.previous(utc("2500-01-01T00:00")) == utc("2100-12-31T00:00")
    assert cron.next(utc("1901-01-01T00:00")) == utc("1970-01-01T00:00")
    assert cron.previous(utc("1969-12-31T23:59")) is None
    assert cron.count(utc("0002-01-01T00:00"), utc("9999-01-01T00:00")) == 47_847
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12", "Pacific/Auckland"):
        edge = Cron("* * * * *", zone)
        assert edge.next(utc("1960-01-01T00:00")) == utc("1970-01-01T00:00")
        assert edge.previous(utc("2200-01-01T00:00")) == utc("2100-12-31T23:59")


def test_latest_walks_backwards_newest_first():
    cron = Cron("0 2 * * *")
    assert latest(cron, utc("2026-01-05T02:00"), 3) == [
        utc("2026-01-05T02:00"),
        utc("2026-01-04T02:00"),
        utc("2026-01-03T02:00"),
    ]
    assert latest(cron, utc("2026-01-05T02:00"), 0) == []
    assert len(latest(cron, utc("1970-01-02T12:00"), 10)) == 2


def test_equal_arguments_make_equal_objects():
    assert Cron("0 2 * * *", NEW_YORK) == Cron("0 2 * * *", NEW_YORK)
    assert hash(Cron("0 2 * * *")) == hash(Cron("0 2 * * *", "UTC"))
    assert hash(Cron("0 2 * * *", dst={"gap": "skip"})) == hash(Cron("0 2 * * *", dst=Dst("skip")))
    assert Cron("0 2 * * *") != Cron("0 2 * * *", NEW_YORK)
    assert Cron("H 2 * * *", key="a") != Cron("H 2 * * *", key="b")


def test_a_cron_cannot_be_changed():
    with pytest.raises(AttributeError):
        Cron("0 2 * * *").expression = "0 3 * * *"  # type: ignore[misc]  # the promise


def test_a_cron_shows_what_it_was_made_of():
    assert repr(Cron("0 2 * * *")) == "Cron('0 2 * * *', 'UTC')"
    assert repr(Cron("H 2 * * *", dst=Dst("skip"), key="a")) == (
        "Cron('H 2 * * *', 'UTC', dst=Dst(gap='skip', fold='first'), key='a')"
    )


def test_a_cron_survives_pickle_and_copy():
    cron = Cron("H 2 * * *", NEW_YORK, dst={"fold": "both"}, key="a")
    assert pickle.loads(pickle.dumps(cron)) == cron  # noqa: S301 - our own bytes
    assert copy.deepcopy(cron).next(utc("2026-01-01T00:00")) == cron.next(utc("2026-01-01T00:00"))


def test_a_wrong_zone_is_refused_with_its_code():
    with pytest.raises(TimezoneInvalid) as caught:
        Cron("0 2 * * *", "EST")
    assert caught.value.code == "SCHEDULE_TIMEZONE_INVALID"


def test_hash_keeps_a_key_at_its_minute_and_spreads_keys():
    start = utc("2026-01-01T00:00")
    minutes = {Cron("H * * * *", key=f"key-{n}").next(start) for n in range(500)}
    assert len(minutes) == 60
    assert Cron("H * * * *", key="a").next(start) == Cron("H * * * *", key="a").next(start)


# --- cost -----------------------------------------------------------------------------------


def best_of(times: int, call) -> float:
    """Return the fastest run in seconds; other processes only ever slow one down."""

    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(times))


@pytest.mark.parametrize(
    ("expression", "timezone", "at"),
    [
        ("0 9 30 12 *", "Pacific/Apia", "2011-12-30T10:00"),
        ("30 2 * * *", NEW_YORK, "2026-03-08T07:00"),
        ("0 0 29 2 *", NEW_YORK, "1996-03-01T00:00"),
        ("0 0 29 2 */7", "Europe/Dublin", "2004-03-01T00:00"),
        ("* * */31 2,12 */7", "America/Santiago", "2037-01-01T00:00"),
        ("0 0 29 2 *", NEW_YORK, "2096-03-01T00:00"),
    ],
)
def test_no_call_costs_more_than_five_milliseconds(expression, timezone, at):
    cron, instant = Cron(expression, timezone), utc(at)
    assert best_of(5, lambda: cron.next(instant)) < 0.005
    assert best_of(5, lambda: cron.previous(instant)) < 0.005


def test_a_hundred_years_are_counted_without_listing_them():
    cron = Cron("* * * * * *", NEW_YORK)
    start, end = utc("1990-01-01T00:00"), utc("2090-01-01T00:00")
    assert cron.count(start, end) == (end - start).total_seconds()
    assert best_of(3, lambda: cron.count(start, end)) < 0.05


def test_schedules_of_one_expression_share_its_plan():
    first, second = Cron("0 2 * * *", NEW_YORK), Cron("0 2 * * *", "Asia/Tokyo")
    assert first._readings is second._readings
    assert Cron("0 2 * * *", key="a")._readings is Cron("0 2 * * *", key="b")._readings
    assert first._clock is Cron("5 5 * * MON", NEW_YORK)._clock


@pytest.mark.parametrize("expression", ["0 2 * * THU", "0 2 * * mon-thu", "@hourly", "@Monthly"])
def test_the_h_of_thursday_and_of_macros_is_no_hash_that_parts_two_keys(expression):
    assert Cron(expression, key="a")._readings is Cron(expression, key="b")._readings


def test_a_hashed_minute_does_not_part_what_two_keys_share_of_the_days():
    first, second = Cron("H 2 * * MON-FRI", key="a"), Cron("H 2 * * MON-FRI", key="b")
    assert first._readings is not second._readings
    assert first._readings.calendar is second._readings.calendar


def test_a_refused_expression_does_not_poison_the_cache():
    for _ in range(2):
        with pytest.raises(CronInvalid):
            Cron("0 0 30 2 *")
