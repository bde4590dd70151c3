"""What a schedule is when it is stored: its JSON, its digest, its equality."""

from __future__ import annotations

import hashlib
import json
import pickle
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from engine.errors import CronInvalid, IntervalTooShort, ScheduleError, TimezoneInvalid
from engine.schedules import Schedule


def schedule(**fields) -> Schedule:
    if not fields.keys() & {"every_ms", "cron", "at"}:
        fields["every_ms"] = 60_000
    return Schedule(**{"key": "a", "workflow": "b", **fields})


def test_json_holds_what_differs_from_the_defaults():
    made = schedule(grace=timedelta(seconds=90), catch_up={"window": "2h"}, enabled=True)
    assert made.to_json() == {
        "key": "a",
        "workflow": "b",
        "everyMs": 60_000,
        "catchUp": {"window": "2h"},
        "grace": "1m30s",
    }


def test_a_default_written_out_is_no_other_definition():
    plain = schedule(cron="0 2 * * *")
    spelled = schedule(
        cron="0 2 * * *", timezone="UTC", enabled=True, task_queue="sched", grace="60s",
        overlap="allow", catch_up={"policy": "latest", "window": "24h"}, metadata={},
    )  # fmt: skip
    assert plain == spelled
    assert plain.digest == spelled.digest


def test_an_interval_has_one_definition_however_it_is_written():
    plain = schedule(every_ms=90_000)
    several = [
        Schedule(key="a", workflow="b", every=every)
        for every in ("1m30s", "90s", timedelta(seconds=90))
    ]
    assert {(made, made.digest, made.every) for made in several} == {(plain, plain.digest, None)}
    made = several[0]
    assert Schedule.from_json({**made.to_json(), "grace": "5m"}).every_ms == 90_000
    assert made.model_copy(update={"every_ms": 5_000}).every_ms == 5_000


def test_a_timeout_of_one_value_is_that_of_a_run():
    assert schedule(timeout="30s").digest == schedule(timeout={"run": "30s"}).digest


def test_paused_is_a_state_and_no_part_of_the_digest():
    assert schedule(paused=True).digest == schedule().digest
    assert schedule(paused=True) != schedule()
    assert schedule(paused=True).to_json()["paused"] is True


def test_enabled_is_part_of_the_digest():
    assert schedule(enabled=False).digest != schedule().digest


def test_the_order_of_names_and_the_spelling_of_numbers_do_not_change_the_digest():
    first = schedule(input={"a": 1, "b": 2.0})
    second = schedule(input={"b": 2, "a": 1})
    assert first.digest == second.digest


def test_the_digest_is_pinned():
    """A changed digest means: every deploy edits every schedule. Never change it by accident."""
    made = schedule(cron="0 2 * * *", timezone="America/Sao_Paulo", input={"format": "html"})
    text = (
        '{"cron":"0 2 * * *","input":{"format":"html"},"key":"a",'
        '"timezone":"America/Sao_Paulo","workflow":"b"}'
    )
    assert made.digest == hashlib.sha256(text.encode()).hexdigest()


def test_a_definition_that_is_no_longer_valid_is_a_schedule_error():
    for broken, error in (
        ({"key": "a", "workflow": "b", "cron": "61 * * * *"}, CronInvalid),
        ({"key": "a", "workflow": "b", "cron": "* * * * *", "timezone": "X"}, TimezoneInvalid),
        ({"key": "a", "workflow": "b", "everyMs": 1}, IntervalTooShort),
        ({"key": "a", "workflow": "b", "every_ms": 1000}, ScheduleError),
        ({}, ScheduleError),
    ):
        with pytest.raises(error):
            Schedule.from_json(broken)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda children: st.lists(children) | st.dictionaries(st.sampled_from("abc"), children),
    max_leaves=8,
)
WHEN = st.one_of(
    st.builds(
        lambda every, offset: {"everyMs": every, "offsetMs": offset},
        st.integers(1000, 10**12),
        st.integers(-(10**6), 10**6),
    ),
    st.sampled_from(
        [
            {"cron": "0 2 * * *"},
            {"cron": "H H * * *", "timezone": "Europe/Paris"},
            {"at": "2027-01-01T09:00:00+01:00"},
            {"at": "2027-01-01T09:00", "timezone": "UTC"},
            {"at": "2027-01-01T09:00", "timezone": "Asia/Tokyo"},
        ]
    ),
)
REST = st.fixed_dictionaries(
    {"key": st.just("a"), "workflow": st.sampled_from(["b", "b@1.2"])},
    optional={
        "input": JSON_VALUES,
        "taskQueue": st.sampled_from(["sched", "other"]),
        "external": st.booleans(),
        "enabled": st.booleans(),
        "paused": st.booleans(),
        "firstFire": st.sampled_from([None, "now", "next"]),
        "overlap": st.just("allow"),
        "catchUp": st.sampled_from([{}, {"policy": "latest"}, {"window": "2h30m"}]),
        "grace": st.sampled_from(["0s", "60s", "1m", "250ms", "36525d"]),
        "description": st.none() | st.just("why"),
        "metadata": st.dictionaries(st.sampled_from("ab"), st.integers() | st.booleans()),
    },
)


@given(REST, WHEN)
def test_every_schedule_is_read_back_as_it_was_written(rest, when):
    made = Schedule.model_validate({**rest, **when})
    dump = made.to_json()
    again = Schedule.from_json(json.loads(json.dumps(dump)))
    assert again == made
    assert again.to_json() == dump
    assert (again.digest, again.paused, again.has_input) == (
        made.digest,
        made.paused,
        made.has_input,
    )
    assert again.spec == made.spec
    assert hash(again) == hash(made)
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own bytes
