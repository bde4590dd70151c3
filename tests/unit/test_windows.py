from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from engine.schedules.terms import KEY, REQUEST_ID, ParsedId, Window, parse_workflow_id

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


def test_an_id_is_sched_key_bucket():
    assert Window("cache-sync", 1, 5_999_832, NOON).workflow_id(False) == "sched:cache-sync:5999832"


def test_a_suffixed_id_ends_with_the_series():
    assert Window("cache-sync", 3, 42, NOON).workflow_id(True) == "sched:cache-sync:42:s3"


def test_two_series_of_one_bucket_have_different_suffixed_ids():
    ids = {Window("a", series, 42, NOON).workflow_id(True) for series in (1, 2)}
    assert len(ids) == 2


def test_a_naive_fire_time_is_refused():
    with pytest.raises(ValueError, match="naive"):
        Window("a", 1, 1, datetime(2027, 1, 1))  # noqa: DTZ001 - the point of the test


def test_a_fire_time_is_kept_in_utc():
    brasilia = timezone(timedelta(hours=-3))
    window = Window("a", 1, 1, datetime(2027, 1, 1, 9, tzinfo=brasilia))
    assert window.fire_time.tzinfo is UTC
    assert window == Window("a", 1, 1, NOON)


def test_a_window_cannot_be_changed():
    with pytest.raises(AttributeError):
        Window("a", 1, 1, NOON).bucket = 2  # type: ignore[misc]  # the point of the test


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("sched:a:0", ParsedId("a", bucket=0)),
        ("sched:a:-7", ParsedId("a", bucket=-7)),
        ("sched:daily.x_y-z:1798804800000", ParsedId("daily.x_y-z", bucket=1_798_804_800_000)),
        ("sched:a:5:s2", ParsedId("a", bucket=5, series=2)),
        ("sched:a:5:rerun:3", ParsedId("a", bucket=5, rerun=3)),
        ("sched:a:5:s2:rerun:3", ParsedId("a", bucket=5, series=2, rerun=3)),
        ("sched:a:manual:Req_1-x", ParsedId("a", request_id="Req_1-x")),
        ("sched:manual:5", ParsedId("manual", bucket=5)),
        ("sched:a:5:dead", ParsedId("a", bucket=5, handler="dead")),
        ("sched:a:5:s2:rerun:3:undo", ParsedId("a", 5, 2, rerun=3, handler="undo")),
        ("sched:a:manual:x:dead", ParsedId("a", request_id="x", handler="dead")),
        ("sched:a:manual:dead", ParsedId("a", request_id="dead")),
        ("sched:manual:manual:5", ParsedId("manual", request_id="5")),
    ],
)
def test_an_id_of_ours_is_understood(text, parsed):
    assert parse_workflow_id(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", "sched:", "sched:a", "sched:a:", "sched:a:x", "sched:a:07", "sched:a:-0", "sched:A:1",
     "sched:a:1\n", "xsched:a:1", "sched:a:1:s", "sched:a:1:rerun:0", "sched:a:1:rerun:1:s2",
     "sched:a:manual:", "sched:a:manual:" + "x" * 65, "sched:a:manual:a b", "sched:a:\u0661",
     "sched:a:manual:x:rerun:1", "sched::1", "sched:a:b:1", "sched:a:" + "9" * 30],
)  # fmt: skip
def test_any_other_id_is_not_ours(text):
    assert parse_workflow_id(text) is None


@given(
    st.from_regex(KEY, fullmatch=True),
    st.integers(0, 10**6),
    st.integers(-(10**15), 10**15),
    st.booleans(),
)
def test_every_window_is_found_again_from_its_id(key, series, bucket, suffixed):
    text = Window(key, series, bucket, NOON).workflow_id(suffixed)
    assert parse_workflow_id(text) == ParsedId(key, bucket, series if suffixed else None)


@given(st.from_regex(KEY, fullmatch=True), st.from_regex(REQUEST_ID, fullmatch=True))
def test_every_manual_trigger_is_found_again_from_its_id(key, request_id):
    assert parse_workflow_id(f"sched:{key}:manual:{request_id}") == ParsedId(
        key, request_id=request_id
    )


@given(st.text(max_size=40))
def test_no_text_makes_the_parser_fail(text):
    parse_workflow_id(text)
    parse_workflow_id(f"sched:{text}")
