"""The fire: every run knows which window of which schedule it stands for (``FireInfo``)."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from importlib import resources
from pathlib import Path

import pytest

from engine import EngineError, FireInfo


def fire(**changes: object) -> FireInfo:
    plain = FireInfo(
        key="nightly-report",
        series=0,
        bucket=1795237200000,
        fire_time=datetime(2026, 11, 21, 5, tzinfo=UTC),
        timezone="America/Sao_Paulo",
        timing="on_time",
        definition_version=3,
        project="default",
        ledger="0b8f",
        token="t-1",  # noqa: S106 - a claim's number, not a secret
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def test_the_memo_is_versioned_json():
    assert json.loads(json.dumps(fire().to_memo())) == {
        "v": 1,
        "key": "nightly-report",
        "series": 0,
        "bucket": 1795237200000,
        "fire_time": "2026-11-21T05:00:00Z",
        "timezone": "America/Sao_Paulo",
        "timing": "on_time",
        "definition_version": 3,
        "project": "default",
        "ledger": "0b8f",
        "token": "t-1",
        "missed": 0,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"timing": "caught_up", "missed": 137},
        {"fire_time": datetime(2026, 11, 21, 5, 0, 0, 250_000, tzinfo=UTC)},
        {"fire_time": datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "bucket": -1},
    ],
)
def test_what_is_read_from_a_memo_is_what_was_written(changes: dict[str, object]):
    written = fire(**changes)
    assert FireInfo.from_memo(json.loads(json.dumps(written.to_memo()))) == written


def test_milliseconds_appear_where_there_are_some():
    fraction = fire(fire_time=datetime(2026, 11, 21, 5, 0, 0, 40_999, tzinfo=UTC))
    assert fraction.to_memo()["fire_time"] == "2026-11-21T05:00:00.040Z"
    assert fraction.fire_time.microsecond == 40_000


def test_the_fire_time_is_kept_in_utc():
    east = timezone(timedelta(hours=2))
    assert fire(fire_time=datetime(2026, 11, 21, 7, tzinfo=east)) == fire()


@pytest.mark.parametrize("name", ["fire_time", "data_from"])
def test_a_naive_moment_is_refused(name: str):
    with pytest.raises(ValueError, match=f"{name} has no timezone"):
        fire(**{name: datetime(2026, 11, 21, 5)})  # noqa: DTZ001 - the mistake under test


def test_an_unknown_timing_is_refused():
    with pytest.raises(ValueError, match="timing 'early' is not one of: on_time, late"):
        fire(timing="early")


def test_fields_of_a_newer_minor_version_are_ignored():
    assert FireInfo.from_memo({**fire().to_memo(), "colour": "blue"}) == fire()


def test_the_data_of_successive_runs_meet_at_their_fire_times():
    began = datetime(2027, 1, 1, tzinfo=UTC)
    info = fire(data_from=began)
    assert (info.data_from, info.data_to) == (began, info.fire_time)
    assert FireInfo.from_memo(info.to_memo()) == info
    assert "data_from" not in fire().to_memo()


def test_topic_and_metadata_are_in_the_memo_of_a_schedule_that_has_them():
    names = {"ownerId": "ada", "tenantId": "acme", "correlationId": "c-1", "clientRequestId": "r-1"}
    info = fire(topic="notifications.task-reminder", metadata={**names, "attempts": 3})
    assert FireInfo.from_memo(json.loads(json.dumps(info.to_memo()))) == info
    assert [info.owner_id, info.tenant_id, info.correlation_id] == ["ada", "acme", "c-1"]
    assert info.client_request_id == "r-1"


def test_the_memo_of_a_schedule_without_topic_and_metadata_has_neither():
    assert not {"topic", "metadata"} & fire().to_memo().keys()
    read = FireInfo.from_memo(fire().to_memo())
    assert (read.topic, read.metadata, read.owner_id) == (None, {}, None)


def test_what_is_of_the_run_and_not_of_the_window_is_not_in_the_memo():
    began = fire(fired_at=datetime(2026, 11, 21, 5, 0, 1, tzinfo=UTC), attempt=2, max_attempts=5)
    assert began.to_memo() == fire().to_memo()
    assert began == fire()


@pytest.mark.parametrize(
    "memo",
    [
        None,
        "nightly-report",
        [],
        {},
        {**fire().to_memo(), "v": 2},
        {**fire().to_memo(), "v": True},
        {**fire().to_memo(), "v": "1"},
        {**fire().to_memo(), "key": ""},
        {**fire().to_memo(), "key": None},
        {**fire().to_memo(), "bucket": "7"},
        {**fire().to_memo(), "series": True},
        {**fire().to_memo(), "fire_time": "yesterday"},
        {**fire().to_memo(), "fire_time": "2026-11-21T05:00:00"},
        {**fire().to_memo(), "timing": "early"},
        {**fire().to_memo(), "missed": None},
        {**fire().to_memo(), "topic": 5},
        {**fire().to_memo(), "metadata": ["ownerId"]},
    ],
)
def test_what_is_not_a_fire_of_ours_is_a_value_error(memo: object):
    with pytest.raises(ValueError, match=r"not a fire|fire_time has no|is not one of"):
        FireInfo.from_memo(memo)


def test_local_time_is_the_wall_clock_of_the_schedules_zone():
    assert fire().local_time.isoformat() == "2026-11-21T02:00:00-03:00"
    assert str(fire().local_time.tzinfo) == "America/Sao_Paulo"
    assert fire(timezone="UTC").local_time == fire().fire_time


def test_local_time_tells_the_two_readings_of_a_repeated_hour_apart():
    first = fire(timezone="America/New_York", fire_time=datetime(2026, 11, 1, 5, 30, tzinfo=UTC))
    second = fire(timezone="America/New_York", fire_time=datetime(2026, 11, 1, 6, 30, tzinfo=UTC))
    assert first.local_time.isoformat() == "2026-11-01T01:30:00-04:00"
    assert second.local_time.isoformat() == "2026-11-01T01:30:00-05:00"


@pytest.mark.parametrize("zone", ["Mars/Base", "America", "../../etc/passwd", "zone.tab", "", "/"])
def test_an_unknown_timezone_is_an_error_only_when_the_local_time_is_asked_for(zone: str):
    strange = fire(timezone=zone)
    with pytest.raises(EngineError, match="unknown timezone"):
        _ = strange.local_time


def test_zone_rules_come_from_the_pinned_package_not_from_the_system(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    kathmandu = resources.files("tzdata").joinpath("zoneinfo", "Asia", "Kathmandu").read_bytes()
    (tmp_path / "zoneinfo").mkdir()
    (tmp_path / "zoneinfo" / "Atlantis").write_bytes(kathmandu)
    packages = {"tzdata": tmp_path}
    monkeypatch.setattr("engine.flow.zones.resources.files", packages.__getitem__)
    local = fire(timezone="Atlantis").local_time
    assert local.isoformat() == "2026-11-21T10:45:00+05:45"
