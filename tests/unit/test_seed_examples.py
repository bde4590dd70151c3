"""Every example line of the first documents, with its next five fires around both clock changes.

The instants were reasoned by hand and are written out; a brute-force walk over the zone's clock
then has to find the same. New York: on 2026-03-08 at 07:00 UTC 02:00 EST becomes 03:00 EDT, on
2026-11-01 at 06:00 UTC 02:00 EDT becomes 01:00 EST. São Paulo had its last two changes on
2018-11-04 at 03:00 UTC and on 2019-02-17 at 02:00 UTC, both at local midnight.
("3 days after delivery" is one moment, not a schedule.)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime

import pytest

from engine.schedules import Cron, Interval
from engine.schedules.timing.spec import Spec
from tests.unit.cron_oracle import DAY, Meaning, fires_of, inside, scan

NEW_YORK, SAO_PAULO = "America/New_York", "America/Sao_Paulo"
EVERY_MINUTE, EVERY_HOUR = set(range(60)), set(range(24))


@dataclass(frozen=True)
class Five:
    """Five fires in UTC, ``month-day hour:minute``, and the moment they are asked for."""

    after: str
    fires: str


@dataclass(frozen=True)
class Example:
    lines: str
    expression: str
    minutes: set[int]
    hours: set[int]
    spring: Five
    autumn: Five
    weekdays: str = "1234567"  # as isoweekday counts
    first_of_month: bool = False
    zone: str = NEW_YORK

    @property
    def meaning(self) -> Meaning:
        def matches(day: date) -> bool:
            first = day.day == 1 or not self.first_of_month
            return first and str(day.isoweekday()) in self.weekdays

        wildcard = "*" in (self.expression[0], self.expression.split()[1][0])
        return Meaning(self.expression, {0}, self.minutes, self.hours, matches, wildcard)


EXAMPLES = [
    Example(
        "Database connectivity tests (every 5 minutes)", "*/5 * * * *",
        set(range(0, 60, 5)), EVERY_HOUR,
        Five("2026-03-08T06:48", "03-08 06:50, 03-08 06:55, 03-08 07:00, 03-08 07:05, 03-08 07:10"),
        Five("2026-11-01T05:48", "11-01 05:50, 11-01 05:55, 11-01 06:00, 11-01 06:05, 11-01 06:10"),
    ),
    Example(
        "API endpoint health checks (every minute)", "* * * * *", EVERY_MINUTE, EVERY_HOUR,
        Five("2026-03-08T06:57", "03-08 06:58, 03-08 06:59, 03-08 07:00, 03-08 07:01, 03-08 07:02"),
        Five("2026-11-01T05:57", "11-01 05:58, 11-01 05:59, 11-01 06:00, 11-01 06:01, 11-01 06:02"),
    ),
    Example(
        "Process pending payments, disk space (every 15 minutes)", "*/15 * * * *",
        {0, 15, 30, 45}, EVERY_HOUR,
        Five("2026-03-08T06:20", "03-08 06:30, 03-08 06:45, 03-08 07:00, 03-08 07:15, 03-08 07:30"),
        Five("2026-11-01T05:20", "11-01 05:30, 11-01 05:45, 11-01 06:00, 11-01 06:15, 11-01 06:30"),
    ),
    Example(
        "Warm popular product caches, update search indexes (every 30 minutes)", "*/30 * * * *",
        {0, 30}, EVERY_HOUR,
        Five("2026-03-08T05:50", "03-08 06:00, 03-08 06:30, 03-08 07:00, 03-08 07:30, 03-08 08:00"),
        Five("2026-11-01T04:50", "11-01 05:00, 11-01 05:30, 11-01 06:00, 11-01 06:30, 11-01 07:00"),
    ),
    Example(
        "Every 15 minutes during business hours", "*/15 9-17 * * MON-FRI",
        {0, 15, 30, 45}, set(range(9, 18)),
        Five("2026-03-06T22:20", "03-06 22:30, 03-06 22:45, 03-09 13:00, 03-09 13:15, 03-09 13:30"),
        Five("2026-10-30T21:20", "10-30 21:30, 10-30 21:45, 11-02 14:00, 11-02 14:15, 11-02 14:30"),
        weekdays="12345",
    ),
    Example(
        "Every hour at minute 0", "0 * * * *", {0}, EVERY_HOUR,
        Five("2026-03-08T04:30", "03-08 05:00, 03-08 06:00, 03-08 07:00, 03-08 08:00, 03-08 09:00"),
        Five("2026-11-01T03:30", "11-01 04:00, 11-01 05:00, 11-01 06:00, 11-01 07:00, 11-01 08:00"),
    ),
    Example(
        "Aggregate hourly metrics (hourly at minute 5)", "5 * * * *", {5}, EVERY_HOUR,
        Five("2026-03-08T05:00", "03-08 05:05, 03-08 06:05, 03-08 07:05, 03-08 08:05, 03-08 09:05"),
        Five("2026-11-01T04:00", "11-01 04:05, 11-01 05:05, 11-01 06:05, 11-01 07:05, 11-01 08:05"),
    ),
    Example(
        # There is no 02:00 in spring, and in autumn 00:00 and 02:00 are three hours apart.
        "Every 2 hours", "0 */2 * * *", {0}, set(range(0, 24, 2)),
        Five("2026-03-08T02:30", "03-08 03:00, 03-08 05:00, 03-08 08:00, 03-08 10:00, 03-08 12:00"),
        Five("2026-11-01T01:30", "11-01 02:00, 11-01 04:00, 11-01 07:00, 11-01 09:00, 11-01 11:00"),
    ),
    Example(
        "Every 6 hours; pre-generate search indexes", "0 */6 * * *", {0}, {0, 6, 12, 18},
        Five("2026-03-07T20:00", "03-07 23:00, 03-08 05:00, 03-08 10:00, 03-08 16:00, 03-08 22:00"),
        Five("2026-10-31T20:00", "10-31 22:00, 11-01 04:00, 11-01 11:00, 11-01 17:00, 11-01 23:00"),
    ),
    Example(
        "Daily at midnight; rotate log files, certificate expiration", "0 0 * * *", {0}, {0},
        Five("2026-03-06T12:00", "03-07 05:00, 03-08 05:00, 03-09 04:00, 03-10 04:00, 03-11 04:00"),
        Five("2026-10-30T12:00", "10-31 04:00, 11-01 04:00, 11-02 05:00, 11-03 05:00, 11-04 05:00"),
    ),
    Example(
        # In autumn 01:00 comes twice and fires at the first of the two.
        "Calculate daily statistics (daily at 1 AM)", "0 1 * * *", {0}, {1},
        Five("2026-03-06T12:00", "03-07 06:00, 03-08 06:00, 03-09 05:00, 03-10 05:00, 03-11 05:00"),
        Five("2026-10-30T12:00", "10-31 05:00, 11-01 05:00, 11-02 06:00, 11-03 06:00, 11-04 06:00"),
    ),
    Example(
        # In spring there is no 02:00: it fires at 03:00 EDT, the first instant after the gap.
        "Daily at 2 AM; archive old orders", "0 2 * * *", {0}, {2},
        Five("2026-03-06T12:00", "03-07 07:00, 03-08 07:00, 03-09 06:00, 03-10 06:00, 03-11 06:00"),
        Five("2026-10-30T12:00", "10-31 06:00, 11-01 07:00, 11-02 07:00, 11-03 07:00, 11-04 07:00"),
    ),
    Example(
        "Nightly report at 02:00 in São Paulo", "0 2 * * *", {0}, {2},
        Five("2018-11-02T12:00", "11-03 05:00, 11-04 04:00, 11-05 04:00, 11-06 04:00, 11-07 04:00"),
        Five("2019-02-14T12:00", "02-15 04:00, 02-16 04:00, 02-17 05:00, 02-18 05:00, 02-19 05:00"),
        zone=SAO_PAULO,
    ),
    Example(
        "Generate daily sales reports, birthday wishes (daily at 9 AM)", "0 9 * * *", {0}, {9},
        Five("2026-03-06T12:00", "03-06 14:00, 03-07 14:00, 03-08 13:00, 03-09 13:00, 03-10 13:00"),
        Five("2026-10-30T12:00", "10-30 13:00, 10-31 13:00, 11-01 14:00, 11-02 14:00, 11-03 14:00"),
    ),
    Example(
        "Weekdays at 9 AM", "0 9 * * MON-FRI", {0}, {9},
        Five("2026-03-05T00:00", "03-05 14:00, 03-06 14:00, 03-09 13:00, 03-10 13:00, 03-11 13:00"),
        Five("2026-10-29T00:00", "10-29 13:00, 10-30 13:00, 11-02 14:00, 11-03 14:00, 11-04 14:00"),
        weekdays="12345",
    ),
    Example(
        "Send payment reminders (daily at 10 AM)", "0 10 * * *", {0}, {10},
        Five("2026-03-06T12:00", "03-06 15:00, 03-07 15:00, 03-08 14:00, 03-09 14:00, 03-10 14:00"),
        Five("2026-10-30T12:00", "10-30 14:00, 10-31 14:00, 11-01 15:00, 11-02 15:00, 11-03 15:00"),
    ),
    Example(
        "Generate weekly reports (Mondays at 7 AM)", "0 7 * * MON", {0}, {7},
        Five("2026-03-01T00:00", "03-02 12:00, 03-09 11:00, 03-16 11:00, 03-23 11:00, 03-30 11:00"),
        Five("2026-10-25T00:00", "10-26 11:00, 11-02 12:00, 11-09 12:00, 11-16 12:00, 11-23 12:00"),
        weekdays="1",
    ),
    Example(
        "Weekly newsletter (Mondays at 8 AM)", "0 8 * * MON", {0}, {8},
        Five("2026-03-01T00:00", "03-02 13:00, 03-09 12:00, 03-16 12:00, 03-23 12:00, 03-30 12:00"),
        Five("2026-10-25T00:00", "10-26 12:00, 11-02 13:00, 11-09 13:00, 11-16 13:00, 11-23 13:00"),
        weekdays="1",
    ),
    Example(
        "Every Sunday at midnight; vacuum database tables (weekly)", "0 0 * * SUN", {0}, {0},
        Five("2026-02-24T00:00", "03-01 05:00, 03-08 05:00, 03-15 04:00, 03-22 04:00, 03-29 04:00"),
        Five("2026-10-20T00:00", "10-25 04:00, 11-01 04:00, 11-08 05:00, 11-15 05:00, 11-22 05:00"),
        weekdays="7",
    ),
    Example(
        "Monthly on the 1st at midnight; calculate commission", "0 0 1 * *", {0}, {0},
        Five("2026-02-15T00:00", "03-01 05:00, 04-01 04:00, 05-01 04:00, 06-01 04:00, 07-01 04:00"),
        Five("2026-09-15T00:00", "10-01 04:00, 11-01 04:00, 12-01 05:00, 01-01 05:00, 02-01 05:00"),
        first_of_month=True,
    ),
]  # fmt: skip
EVERY_FIVE_MINUTES = Interval(every_ms=5 * 60 * 1000)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def next_five(spec: Spec, after: str) -> str:
    fires: list[datetime] = []
    for _ in range(5):
        following = spec.next(fires[-1] if fires else utc(after))
        assert following is not None
        fires.append(following)
    return ", ".join(f"{fire:%m-%d %H:%M}" for fire in fires)


def walked_five(example: Example, after: str) -> str:
    """Ask the zone's clock itself, in steps of a minute, or of an hour where that is enough."""
    step, days = (3600, 160) if example.minutes == {0} else (60, 4)
    begin = int(utc(after).timestamp())
    walk = scan(example.zone, begin // step * step - DAY, begin + days * DAY, step)
    fires = inside(fires_of(example.meaning, walk, step), begin, begin + days * DAY)[:5]
    return ", ".join(f"{datetime.fromtimestamp(at, UTC):%m-%d %H:%M}" for at in fires)


@pytest.mark.parametrize("change", ["spring", "autumn"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.lines)
def test_every_example_fires_as_written_around_both_changes_of_the_clock(example, change):
    stretch = getattr(example, change)
    assert next_five(Cron(example.expression, example.zone), stretch.after) == stretch.fires
    assert walked_five(example, stretch.after) == stretch.fires


@pytest.mark.parametrize("change", ["spring", "autumn"])
def test_sync_the_cache_every_five_minutes_as_the_cron_line_does(change):
    stretch = getattr(EXAMPLES[0], change)
    assert next_five(EVERY_FIVE_MINUTES, stretch.after) == stretch.fires


@pytest.mark.parametrize(
    ("macro", "expression"),
    [("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"),
     ("@weekly", "0 0 * * SUN"), ("@monthly", "0 0 1 * *")],
)  # fmt: skip
def test_the_words_daily_weekly_and_monthly_may_be_written_as_macros(macro, expression):
    for after in ("2026-03-01T00:00", "2026-10-25T00:00"):
        cron = Cron(expression, NEW_YORK)
        assert next_five(Cron(macro, NEW_YORK), after) == next_five(cron, after)
