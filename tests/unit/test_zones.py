"""Zones come from the pinned wheel, and say what zoneinfo says."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
import tzdata  # type: ignore[import-untyped]  # it ships data, not types

from engine.errors import TimezoneInvalid
from engine.schedules.timing import zones
from engine.schedules.timing.zones import TZDATA_VERSION, zone, zone_names


def offset_by_zoneinfo(name: str, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, zone(name).tzinfo).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def test_every_zone_agrees_with_zoneinfo_around_each_of_its_transitions():
    for name in zone_names():
        table = zone(name)
        for start in table.starts[1:]:
            if datetime(1902, 1, 1, tzinfo=UTC).timestamp() < start:
                for instant in (start - 1, start, start + 1):
                    assert table.offset(instant) == offset_by_zoneinfo(name, instant), (name, start)


def test_every_zone_agrees_with_zoneinfo_at_random_instants_until_2101():
    rng = random.Random(1)
    for name in zone_names():
        table = zone(name)
        for _ in range(40):
            instant = rng.randrange(0, 4_133_980_800)
            assert table.offset(instant) == offset_by_zoneinfo(name, instant), (name, instant)


def test_no_transition_is_missing_between_two_days_of_a_footer_year():
    for name in ("America/New_York", "Europe/Dublin", "America/Santiago", "Asia/Gaza"):
        table, day = zone(name), int(datetime(2095, 1, 1, tzinfo=UTC).timestamp())
        for instant in range(day, day + 366 * 86_400, 3600):
            assert table.offset(instant) == offset_by_zoneinfo(name, instant)


def test_zones_do_not_come_from_the_system(tmp_path, monkeypatch):
    import zoneinfo

    fake = tmp_path / "Europe"
    fake.mkdir()
    (fake / "Vienna").write_bytes(b"not a zone file")
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))
    zones._zone.cache_clear()
    summer = int(datetime(2026, 7, 1, tzinfo=UTC).timestamp())
    assert zone("Europe/Vienna").offset(summer) == 7200
    assert zone("Europe/Vienna").tzinfo.key == "Europe/Vienna"


def test_the_version_of_the_zone_rules_is_known():
    assert tzdata.IANA_VERSION == TZDATA_VERSION


def test_one_zone_is_read_once():
    assert zone("Europe/Paris") is zone("Europe/Paris")


@pytest.mark.parametrize("name", ["UTC", "Etc/UTC", "Etc/GMT+3", "America/Sao_Paulo", "Japan"])
def test_iana_names_are_accepted(name):
    assert zone(name).name == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("EST", "America/New_York"),
        ("MST", "America/Phoenix"),
        ("EST5EDT", "America/New_York"),
        ("CET", "Europe/Paris"),
        ("GMT", "Europe/London"),
        ("PST", "America/Los_Angeles"),
        ("ist", "Asia/Kolkata"),
    ],
)
def test_an_abbreviation_is_refused_and_a_place_offered(name, hint):
    with pytest.raises(TimezoneInvalid, match="is an abbreviation") as caught:
        zone(name)
    assert hint in str(caught.value)
    assert caught.value.code == "SCHEDULE_TIMEZONE_INVALID"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("America/Sao Paulo", "America/Sao_Paulo"),
        ("america/new_york", "America/New_York"),
        ("Europe/Pariss", "Europe/Paris"),
        ("Sao_Paulo", "America/Sao_Paulo"),
        ("UTC+3", "Etc/GMT-3"),
        ("-05:00", "Etc/GMT+5"),
        ("+00:00", "write UTC"),
        ("Factory", "Europe/Paris"),
        ("../../etc/passwd", "Europe/Paris"),
        ("", "Europe/Paris"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_names_as_hint(name, hint):
    with pytest.raises(TimezoneInvalid) as caught:
        zone(name)
    assert hint in str(caught.value)


@pytest.mark.parametrize("name", [3, None, ["UTC"], {"name": "UTC"}])
def test_a_name_that_is_not_text_is_refused(name):
    with pytest.raises(TimezoneInvalid, match="is not text"):
        zone(name)


def test_a_skipped_local_time_is_the_first_instant_after_the_gap():
    table = zone("America/New_York")
    reading = int(datetime(2026, 3, 8, 2, 30, tzinfo=UTC).timestamp())
    assert table.first_instant(reading) == datetime(2026, 3, 8, 7, tzinfo=UTC).timestamp()


def test_a_repeated_local_time_is_the_first_of_the_two():
    table = zone("America/New_York")
    reading = int(datetime(2026, 11, 1, 1, 30, tzinfo=UTC).timestamp())
    assert table.first_instant(reading) == datetime(2026, 11, 1, 5, 30, tzinfo=UTC).timestamp()


def test_the_day_that_samoa_skipped_is_one_long_gap():
    table = zone("Pacific/Apia")
    noon = datetime(2011, 12, 30, 12, tzinfo=UTC)
    instants = {
        table.first_instant(int((noon + timedelta(hours=h)).timestamp())) for h in range(12)
    }
    assert instants == {int(datetime(2011, 12, 30, 10, tzinfo=UTC).timestamp())}
