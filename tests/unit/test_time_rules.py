"""New zone rules: a fixed local time fires once, whichever instant it moves to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from engine.schedules import Schedule
from engine.schedules.planner import decisions
from engine.schedules.planner.decisions import cursor_by_new_rules, reading_at
from engine.schedules.timing import spec, zones
from engine.schedules.timing.spec import clock
from engine.schedules.timing.zones import BEGINNING, Zone, tabulate

HOUR = 3600
CHANGE = int(datetime(2027, 3, 14, 7, tzinfo=UTC).timestamp())


def schedule(cron: str) -> Schedule:
    return Schedule.from_json({"key": "k", "workflow": "w", "cron": cron, "timezone": "Test/Zone"})


def rules(*turns: tuple[int, int]) -> Zone:
    return tabulate("Test/Zone", [(BEGINNING, turns[0][1]), *turns[1:]])


@contextmanager
def in_force(zone: Zone) -> Iterator[None]:
    """Let these zone rules hold, as an upgrade of tzdata does."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (zones, decisions, spec):
            patch.setattr(module, "zone", lambda _name: zone)
        clock.cache_clear()
        yield
    clock.cache_clear()


def fires_across(
    cron: str, old: Zone, new: Zone, switch: datetime
) -> tuple[list[datetime], list[datetime]]:
    """What fires by the old rules until ``switch``, and by the new ones from then on."""
    begin, end = switch - timedelta(days=5), switch + timedelta(days=5)
    with in_force(old):
        before = [*schedule(cron).spec.fires(begin, switch)]
        reading = reading_at(schedule(cron), before[-1])
    with in_force(new):
        cursor = cursor_by_new_rules(schedule(cron), before[-1], reading)
        return before, [*schedule(cron).spec.fires(cursor, end)]


def around(found: tuple[list[datetime], list[datetime]]) -> list[str]:
    days = {8, 9, 10, 11, 12}
    return [f"{fire:%d %H}" for fires in found for fire in fires if fire.day in days]


def test_a_local_time_that_has_fired_does_not_fire_again_an_hour_later():
    """02:00 fired; the upgrade says that the clock is one hour further behind."""
    old, new = rules((0, -3 * HOUR)), rules((0, -4 * HOUR))
    switch = datetime(2027, 1, 10, 5, 30, tzinfo=UTC)
    found = fires_across("0 2 * * *", old, new, switch)
    assert around(found) == ["08 05", "09 05", "10 05", "11 06", "12 06"]


def test_a_local_time_that_moved_before_the_change_is_still_owed():
    old, new = rules((0, -3 * HOUR)), rules((0, -2 * HOUR))
    switch = datetime(2027, 1, 10, 4, 30, tzinfo=UTC)
    found = fires_across("0 2 * * *", old, new, switch)
    assert around(found) == ["08 05", "09 05", "10 04", "11 04", "12 04"]


def test_intervals_and_wildcards_have_no_local_time_to_remember():
    hourly = Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 3_600_000})
    starred = Schedule.from_json({"key": "k", "workflow": "w", "cron": "*/5 * * * *"})
    now = datetime(2027, 1, 10, tzinfo=UTC)
    assert reading_at(hourly, now) is reading_at(starred, now) is None
    assert cursor_by_new_rules(hourly, now, None) == now


OFFSETS = st.integers(-11 * 4, 11 * 4).map(lambda quarter: quarter * 900)


@given(
    old=OFFSETS,
    new=OFFSETS,
    turn=st.sampled_from([0, HOUR, -HOUR, HOUR // 2]),
    minutes=st.integers(-3 * 1440, 3 * 1440),
    cron=st.sampled_from(["0 2 * * *", "30 1 * * *", "0 0,12 * * *", "15 23 * * MON-FRI"]),
)
def test_no_local_time_fires_twice_whatever_the_new_rules_say(old, new, turn, minutes, cron):
    before, after = rules((0, old)), rules((0, new), (CHANGE, new + turn))
    switch = datetime.fromtimestamp(CHANGE + minutes * 60, UTC)
    fired, later = fires_across(cron, before, after, switch)
    latest = fired[-1] + timedelta(seconds=old)
    for fire in later:
        assert fire + timedelta(seconds=after.offset(int(fire.timestamp()))) > latest


def test_a_local_time_that_moved_before_one_that_has_fired_is_owed_all_the_same():
    """10:00 fired at 15:00Z; by the new rules 10:45 was at 14:45Z, when nobody looked."""
    old, new = rules((0, -5 * HOUR)), rules((0, -4 * HOUR))
    fired, later = fires_across(
        "0,45 10 * * *", old, new, datetime(2027, 1, 10, 15, 10, tzinfo=UTC)
    )
    assert f"{fired[-1]:%d %H:%M}" == "10 15:00"
    assert f"{later[0]:%d %H:%M}" == "10 14:45"
