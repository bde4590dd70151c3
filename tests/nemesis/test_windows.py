from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.schedules import load_schedules
from tests.nemesis.plan import KEYS
from tests.nemesis.schedules import at_rest, entries, text
from tests.nemesis.windows import bucket, is_excluded, windows

BEGIN = datetime(2026, 11, 22, 10, 59, 57, 500_000, tzinfo=UTC)
UNTIL = BEGIN + timedelta(minutes=3)


@pytest.mark.parametrize("pace", [1, 2, 2.5])
def test_the_engine_and_its_judge_count_the_same_windows(pace: float) -> None:
    file = entries(BEGIN, pace)
    assert set(file) == set(KEYS)
    for schedule in load_schedules(text(file)).schedules:
        counted = windows(file[schedule.key], BEGIN, UNTIL)
        assert counted == [*schedule.spec.fires(BEGIN, UNTIL)]
        assert counted
        numbers = [bucket(file[schedule.key], moment) for moment in counted]
        assert numbers == [schedule.spec.bucket(moment) for moment in counted]


def test_twelve_seconds_of_each_minute_are_off() -> None:
    entry = entries(BEGIN)["excluded"]
    counted = windows(entry, BEGIN, UNTIL)
    off = [moment for moment in counted if is_excluded(entry, moment)]
    assert {moment.second for moment in off} == {20, 22, 24, 26, 28, 30}


def test_a_file_at_rest_fires_nothing_for_an_hour() -> None:
    file = at_rest(entries(BEGIN))
    load_schedules(text(file))
    for entry in file.values():
        assert windows(entry, BEGIN, BEGIN + timedelta(hours=1)) == []
