"""Days off: which windows an ``exclude:`` skips, on whichever clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from importlib import resources
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from engine.schedules import Schedule
from engine.schedules.timing.calendars import Calendar, check_item, exclusions

ZONES = (
    *("UTC", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "Antarctica/Troll"),
    *("Asia/Kathmandu", "America/Sao_Paulo", "Atlantic/Azores", "America/Havana"),
)
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def clock(zone: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=zone)


def expected(items, zone: str, at: datetime) -> str | None:
    """The rule, read item by item: dates, then weekdays, then stretches."""
    today = at.astimezone(clock(zone)).date()
    flat = [
        (item if isinstance(item, str) else item.name, text)
        for item in items
        for text in ([item] if isinstance(item, str) else item.dates)
    ]
    weekday = WEEKDAYS[today.weekday()]
    names: dict[str, list[str]] = {"day": [], "weekday": [], "stretch": []}
    for label, text in flat:
        first, _, last = text.partition("..")
        if text in WEEKDAYS:
            names["weekday"] += [label] * (text == weekday)
        elif "T" in text:
            covered = datetime.fromisoformat(first) <= at < datetime.fromisoformat(last)
            names["stretch"] += [label] * covered
        else:
            covered = date.fromisoformat(first) <= today <= date.fromisoformat(last or first)
            names["day"] += [label] * covered
    return next(iter((*names["day"], *names["weekday"], *names["stretch"])), None)


DAYS = st.dates(date(2010, 1, 1), date(2012, 12, 31))
RANGES = st.tuples(DAYS, st.integers(0, 40)).map(
    lambda pair: f"{pair[0]}..{pair[0] + timedelta(days=pair[1])}"
)
INSTANTS = st.integers(0, 3 * 365 * 86_400).map(
    lambda second: datetime(2010, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
)
TEXTS = st.one_of(st.sampled_from(WEEKDAYS), DAYS.map(str), RANGES)
ITEMS = st.lists(
    st.one_of(TEXTS, st.lists(TEXTS, max_size=3).map(lambda dates: Calendar("cal", tuple(dates)))),
    max_size=4,
).map(tuple)
STRETCH = st.tuples(INSTANTS, st.integers(1, 400_000)).map(
    lambda pair: (
        f"{pair[0]:%Y-%m-%dT%H:%M:%SZ}..{pair[0] + timedelta(seconds=pair[1]):%Y-%m-%dT%H:%M:%SZ}"
    )
)


@given(items=ITEMS, stretch=STRETCH, zone=st.sampled_from(ZONES), at=INSTANTS)
def test_a_window_is_excluded_by_the_day_its_local_clock_shows(items, stretch, zone, at):
    items = (*items, stretch)
    assert exclusions(items, zone).reason(at) == expected(items, zone, at)


@given(
    items=ITEMS,
    stretch=STRETCH,
    zone=st.sampled_from(ZONES),
    start=INSTANTS,
    length=st.timedeltas(timedelta(seconds=1), timedelta(days=9)),
)
def test_stretches_cover_a_span_without_gap_and_agree_with_single_windows(
    items, stretch, zone, start, length
):
    excluded = exclusions((*items, stretch), zone)
    first, end = int(start.timestamp()), int((start + length).timestamp())
    found = list(excluded.stretches(first, end))
    assert [found[0].first, *[s.end for s in found]] == [*[s.first for s in found], max(end, first)]
    for before, after in pairwise(found):
        assert before.reason != after.reason
    for each in found:
        for moment in (each.first, (each.first + each.end) // 2, each.end - 1):
            assert excluded.reason(EPOCH + timedelta(seconds=moment)) == each.reason


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("2026-02-30", "no day of the calendar"),
        ("2026-12-25..2026-12-24", "ends before it begins"),
        ("2020-01-01..2026-01-01", "longer than a year"),
        ("Someday", "no date, weekday or calendar"),
        ("2026-12-25T00:00:00Z", "no date, weekday or calendar"),
        ("2026-12-25T25:00:00Z..2026-12-26T00:00:00Z", "no moment"),
    ],
)
def test_what_is_no_day_is_refused_with_a_hint(text, what):
    with pytest.raises(ValueError, match=what) as caught:
        check_item(text)
    assert caught.value.args[1]


def test_weekdays_may_be_written_in_any_case():
    friday = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert exclusions(("fri",), "UTC").reason(friday) == "fri"


ASKS = st.tuples(st.integers(0, 400), st.booleans())


@given(st.lists(ASKS, min_size=2, max_size=8), st.sampled_from([[], ["SAT"]]))
def test_the_first_window_does_not_depend_on_what_was_asked_before(asks, exclude):
    schedule = Schedule(key="k", workflow="w", cron="0 */5 * * *", exclude=exclude)
    begin = datetime(2026, 11, 20, tzinfo=UTC)
    for half_hours, skips in asks:
        at = begin + timedelta(minutes=30 * half_hours)
        first = [
            moment for moment in (at + timedelta(minutes=30 * n) for n in range(200))
            if moment.minute == 0 and moment.hour % 5 == 0
            and WEEKDAYS[moment.weekday()] not in exclude
        ]  # fmt: skip
        but = first[:1] if skips else []
        assert schedule.first_start(at, but=but) == first[len(but)]
