"""``start:`` and ``end:``: nothing fires outside, and inside nothing changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from engine.errors import ScheduleError
from engine.schedules import Cron, Interval
from engine.schedules.timing.spec import bounded, latest

BEGIN = datetime(2026, 10, 20, tzinfo=UTC)
SECONDS = st.integers(0, 20 * 86_400)
SPECS = st.sampled_from(
    [
        Interval(3_600_000),
        Interval(7_000_000, offset_ms=1234),
        Cron("0 */4 * * *", timezone="Europe/Berlin"),
        Cron("30 2 * * *", timezone="Europe/Berlin"),
    ]
)


def instant(second: int) -> datetime:
    return BEGIN + timedelta(seconds=second)


@given(spec=SPECS, start=SECONDS, length=SECONDS, after=SECONDS, span=SECONDS, at=SECONDS)
def test_the_fires_are_those_of_the_schedule_that_lie_between(spec, start, length, after, span, at):
    first, last = instant(start), instant(start + 100_000 + length)
    found = bounded(spec, f"{first:%Y-%m-%dT%H:%M:%SZ}", f"{last:%Y-%m-%dT%H:%M:%SZ}", "UTC")
    low, high, moment = instant(after), instant(after + span), instant(at)
    every = [*spec.fires(BEGIN - timedelta(days=9), instant(90 * 86_400))]
    inside = [fire for fire in every if first <= fire <= last]
    assert [*found.fires(low, high)] == [fire for fire in inside if low < fire <= high]
    assert found.count(low, high) == len([*found.fires(low, high)])
    assert found.next(moment) == min((f for f in inside if f > moment), default=None)
    assert found.previous(moment) == max((f for f in inside if f <= moment), default=None)
    assert latest(found, moment, 3) == [f for f in inside if f <= moment][-3:][::-1]
    assert [found.bucket(fire) for fire in inside] == [spec.bucket(fire) for fire in inside]


def test_a_date_is_its_whole_day_on_the_local_clock():
    daily = bounded(Cron("0 */12 * * *", timezone="America/Sao_Paulo"), "2027-01-01", "2027-01-02",
                    "America/Sao_Paulo")  # fmt: skip
    fires = [*daily.fires(BEGIN, instant(400 * 86_400))]
    assert [f"{fire:%d %H}" for fire in fires] == ["01 03", "01 15", "02 03", "02 15"]


@pytest.mark.parametrize(
    ("start", "end", "what"),
    [
        ("soon", None, 'start "soon" is not a date and time'),
        (None, "2026-02-30", "end 2026-02-30 is no day of the calendar"),
        ("2027-01-02", "2027-01-01", "nothing ever fires with start 2027-01-02 and end 2027-01-01"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(start, end, what):
    with pytest.raises(ScheduleError, match=what):
        bounded(Interval(60_000), start, end, "UTC")
