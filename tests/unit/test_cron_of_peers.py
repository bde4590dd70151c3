"""Facts of peers' test suites: what users of other schedulers expect an expression to mean.

Each is an expression, the local moment after which is asked, and the local times that follow. The
peers: robfig/cron (Go), cronsim (Debian's cron and its rules for changes of the clocks), croner
(JavaScript), Quartz (Java).
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from engine.errors import CronInvalid
from engine.schedules.timing.spec import Cron

FACTS = [
    # robfig/cron: names, steps, and wrapping of each field.
    ("0/15 * * * *", "UTC 2012-07-09 14:59", "09 15:00, 09 15:15, 09 15:30"),
    ("5/15 * * * *", "UTC 2012-07-09 15:04", "09 15:05, 09 15:20, 09 15:35, 09 15:50"),
    ("20-35/15 * * * *", "UTC 2012-07-09 15:45", "09 16:20, 09 16:35"),
    ("20-35/15 * * * *", "UTC 2012-07-09 23:45", "10 00:20"),
    ("15/35 20-35/15 * * * *", "UTC 2012-07-09 23:35:51", "10 00:20:15, 10 00:20:50"),
    ("15/35 20-35/15 10-12 * * *", "UTC 2012-07-09 23:35:51", "10 10:20:15"),
    ("15/35 20-35/15 1/2 */2 * *", "UTC 2012-07-09 23:35:51", "11 01:20:15"),
    ("15/35 20-35/15 * 9-20 Jul *", "UTC 2012-07-09 23:35:51", "10 00:20:15"),
    ("0 0 9 Apr-Oct ?", "UTC 2012-07-09 23:35", "08-09 00:00"),
    ("0 0 * Feb Mon", "UTC 2012-07-09 23:35", "2013-02-04 00:00"),
    ("0 0 29 Feb ?", "UTC 2012-07-09 23:35", "2016-02-29 00:00"),
    ("30 08 15 Jul ?", "UTC 2012-07-15 08:29", "15 08:30, 2013-07-15 08:30"),
    ("* * * * *", "UTC 2012-12-31 23:59:45", "2013-01-01 00:00"),
    # robfig/cron: two days that are both given are joined by "or".
    ("0 0 1,15 * Sun", "UTC 2012-07-14 12:00", "15 00:00, 22 00:00, 29 00:00, 08-01 00:00"),
    ("@hourly", "UTC 2012-07-09 15:04", "09 16:00"),
    ("@weekly", "UTC 2012-07-08 00:00", "15 00:00"),
    ("@monthly", "UTC 2012-07-08 00:00", "08-01 00:00"),
    # cronsim: a day field that begins with a star is joined by "and".
    ("1 1 1-7 * */7", "UTC 2020-01-01 00:00", "05 01:01, 02-02 01:01, 03-01 01:01"),
    # cronsim and Quartz: the last days, and the n-th.
    ("1 1 L * *", "UTC 2020-01-01 00:00", "31 01:01, 02-29 01:01, 03-31 01:01"),
    ("1 1 * * 5L", "UTC 2020-01-01 00:00", "31 01:01, 02-28 01:01, 03-27 01:01, 04-24 01:01"),
    ("1 1 * * 0L", "UTC 2020-01-01 00:00", "26 01:01"),
    ("1 1 * * 7L", "UTC 2020-01-01 00:00", "26 01:01"),
    ("1 1 * * 1#2", "UTC 2020-01-01 00:00", "13 01:01, 02-10 01:01"),
    # croner: the last weekday of a month.
    ("0 0 * * FRI#L", "UTC 2021-10-01 00:00", "29 00:00, 11-26 00:00, 12-31 00:00"),
    ("0 0 * * MON#1", "UTC 2021-10-01 00:00", "04 00:00, 11-01 00:00"),
    # Quartz: the workday nearest to a day, never in another month.
    ("0 0 15W * ?", "UTC 2026-08-01 00:00", "14 00:00, 09-15 00:00, 10-15 00:00"),
    ("0 0 1W * ?", "UTC 2026-07-31 12:00", "08-03 00:00"),
    ("0 0 LW * ?", "UTC 2026-05-01 00:00", "29 00:00, 06-30 00:00"),
    # cronsim: what the change of clocks skips runs right after it, what it repeats runs once.
    ("0 * * * *", "Europe/Riga 2021-03-28 01:30", "28 02:00, 28 04:00"),
    ("*/30 * * * *", "Europe/Riga 2021-03-28 02:10", "28 02:30, 28 04:00, 28 04:30"),
    ("0 */2 * * *", "Europe/Riga 2021-03-28 01:30", "28 02:00, 28 04:00, 28 06:00"),
    ("30 */2 * * *", "Europe/Riga 2021-03-28 01:30", "28 02:30, 28 04:30"),
    ("0 2 * * *", "Europe/Riga 2021-03-28 01:30", "28 02:00, 29 02:00"),
    ("30 1,2,3,4,5 * * *", "Europe/Riga 2021-03-28 01:30", "28 02:30, 28 04:00, 28 04:30"),
    ("0 * * * *", "Europe/Riga 2021-10-31 01:30", "31 02:00, 31 03:00, 31 03:00, 31 04:00"),
    ("0 */2 * * *", "Europe/Riga 2021-10-31 01:30", "31 02:00, 31 04:00, 31 06:00"),
    ("0 1,2,3,4,5 * * *", "Europe/Riga 2021-10-31 01:30", "31 02:00, 31 03:00, 31 04:00"),
    ("30 1,2,3,4,5 * * *", "Europe/Riga 2021-10-31 01:30", "31 02:30, 31 03:30, 31 04:30"),
]
NEVER = [
    ("0 0 30 Feb ?", "robfig/cron"),
    ("0 0 31 Apr ?", "robfig/cron"),
    ("* * * * 1#6", "cronsim"),
]


def local(text: str) -> datetime:
    """Return the moment of ``ZONE YYYY-MM-DD HH:MM``, the first of two."""
    zone, _, moment = text.partition(" ")
    return datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize(("expression", "after", "expected"), FACTS)
def test_an_expression_means_what_it_means_to_peers(expression, after, expected):
    at = begun = local(after)
    cron = Cron(expression, after.partition(" ")[0])
    for told in expected.split(", "):
        following = cron.next(at)
        assert following is not None
        at = following
        date, clock = told.split()
        whole = f"{begun:%Y-%m-%d}"[: -len(date)] + date  # year and month only where they change
        assert f"{at.astimezone(begun.tzinfo):%Y-%m-%d %H:%M:%S}".removesuffix(":00") == (
            f"{whole} {clock}"
        )


@pytest.mark.parametrize(("expression", "peer"), NEVER)
def test_what_never_comes_is_refused_and_not_found_out_at_run_time(expression, peer):
    with pytest.raises(CronInvalid):
        Cron(expression, "UTC")
    assert peer
