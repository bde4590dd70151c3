from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from engine.schedules import At, Cron, Interval, Schedule


def schedule(**fields) -> Schedule:
    if not fields.keys() & {"every_ms", "cron", "at"}:
        fields["every_ms"] = 60_000
    return Schedule(**{"key": "a", "workflow": "b", **fields})


def refusal(**fields) -> str:
    with pytest.raises(ValidationError) as caught:
        schedule(**fields)
    return "\n".join(line["msg"] for line in caught.value.errors())


# --- when ---


def test_an_interval_has_every_and_offset():
    made = schedule(every_ms=300_000, offset_ms=30_000)
    assert (made.kind, made.spec) == ("interval", Interval(300_000, 30_000))
    assert made.when == "every 5m offset 30s"


def test_a_cron_fires_in_utc_unless_told_otherwise():
    assert schedule(cron="0 2 * * *").spec == Cron("0 2 * * *", timezone="UTC", key="a")
    made = schedule(cron="0 2 * * *", timezone="America/Sao_Paulo")
    assert made.spec == Cron("0 2 * * *", timezone="America/Sao_Paulo", key="a")
    assert (made.kind, made.when) == ("cron", "0 2 * * *")


def test_a_local_moment_needs_its_timezone():
    made = schedule(at="2027-01-01T09:00", timezone="America/Sao_Paulo")
    assert (made.kind, made.spec) == ("at", At("2027-01-01T09:00", timezone="America/Sao_Paulo"))
    assert made.when == "at 2027-01-01T09:00 America/Sao_Paulo"
    assert "no offset and no timezone" in refusal(at="2027-01-01T09:00")


def test_a_moment_with_an_offset_has_no_timezone():
    assert schedule(at="2027-01-01T09:00:00Z").when == "at 2027-01-01T09:00:00Z"
    assert "timezone" in refusal(at="2027-01-01T09:00:00Z", timezone="UTC")


def test_exactly_one_kind_is_given():
    assert "does not say when" in refusal(every_ms=None)
    assert "everyMs and cron are given together" in refusal(every_ms=1000, cron="* * * * *")


def test_offset_belongs_to_intervals_and_timezone_to_clocks():
    assert "offsetMs does not belong" in refusal(cron="* * * * *", offset_ms=0)
    assert "an interval without start, end or exclude has no timezone" in refusal(
        every_ms=1000, timezone="UTC"
    )


def test_cron_and_timezone_are_both_reported():
    found = refusal(cron="61 * * * *", timezone="Mars/Olympus")
    assert "61" in found
    assert "Mars/Olympus" in found


def test_a_second_is_the_shortest_interval():
    assert schedule(every_ms=1000).every_ms == 1000
    assert "below 1000" in refusal(every_ms=999)


# --- fields ---


@pytest.mark.parametrize("key", ["a", "0", "nightly-report", "a.b_c-d", "x" * 200])
def test_a_key_is_lower_case_letters_digits_and_three_signs(key):
    assert schedule(key=key).key == key


@pytest.mark.parametrize("key", ["", "A", "-a", ".a", "a:b", "a b", "ä", "x" * 201, "a\n", 5, None])
def test_any_other_key_is_refused(key):
    assert "key is" in refusal(key=key)


@pytest.mark.parametrize(
    "workflow", ["daily-report", "daily-report@1", "a@1.10", "My Workflow", "com.acme.Job::Run"]
)
def test_a_workflow_is_a_name_perhaps_with_a_version(workflow):
    assert schedule(workflow=workflow).workflow == workflow


@pytest.mark.parametrize(
    "workflow", ["a@", "a@v1", "@1", "a@1.", "a@1@2", "a@1.x", "a@" + "1" * 20]
)
def test_a_version_is_dotted_numbers(workflow):
    assert "dotted numbers" in refusal(workflow=workflow)
    assert schedule(workflow=workflow, external=True).workflow == workflow


@pytest.mark.parametrize("workflow", ["", " a", "a\n", "a\0b", "x" * 1001, 5, None])
def test_a_workflow_is_never_empty_or_unprintable(workflow):
    assert "workflow" in refusal(workflow=workflow, external=True)


def test_an_absent_input_is_not_a_null_input():
    assert not schedule().has_input
    assert schedule(input=None).has_input
    assert schedule() != schedule(input=None)
    assert schedule().digest != schedule(input=None).digest


@pytest.mark.parametrize(
    "value",
    [object(), {1: 2}, float("nan"), float("inf"), {"a": {1, 2}}, "\0", "\ud800", b"x", 10**400],
)
def test_an_input_is_what_json_and_the_database_can_carry(value):
    assert "input" in refusal(input=value)


def test_an_input_that_contains_itself_is_refused():
    endless: list[object] = []
    endless.append(endless)
    assert "nested" in refusal(input=endless)


def test_changing_what_a_schedule_was_made_from_does_not_change_it():
    value = {"rows": [1]}
    made = schedule(input=value)
    value["rows"].append(2)
    assert made.input == {"rows": [1]}


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"overlap": "Cancel-Previous"}, "write cancel_previous"),
        ({"overlap": None}, "write allow, skip, queue, queue_one, cancel_previous or terminate"),
        ({"max_queued": 0}, "from 1 to 100000"),
        ({"max_queued": True}, "from 1 to 100000"),
        ({"cancel_grace": 60}, "write a unit too, for example 60s"),
        ({"catch_up": "all"}, "write {policy: all, window: 24h}"),
        ({"catch_up": {"policy": "newest"}}, "write latest, all or none"),
        ({"catch_up": {"pause": "no"}}, "write latest, all or none"),
        ({"catch_up": {"deploy": "ALL"}}, "write all"),
        ({"catch_up": {"max": 1501}}, "from 1 to 1500"),
        ({"catch_up": {"order": "first"}}, "write oldest or newest"),
        ({"catch_up": {"rate": 5}}, "for example 5/1m"),
        ({"catch_up": {"rate": "5 per minute"}}, "write 5/1m"),
        ({"catch_up": {"rate": "0/1m"}}, "for example 5/1m"),
        ({"catch_up": {"rate": "1/2d"}}, "at most a day"),
    ],
)
def test_a_policy_that_is_none_is_refused_with_what_to_write(fields, hint):
    assert hint in refusal(**fields)


@pytest.mark.parametrize(
    "dump",
    [
        {"overlap": "queue", "maxQueued": 5},
        {"overlap": "cancel_previous", "cancelGrace": "1m30s"},
        {"catchUp": {"policy": "all", "max": 50, "order": "newest", "rate": "5/1s"}},
        {"catchUp": {"pause": "latest", "deploy": "all"}},
    ],
)
def test_policies_survive_the_way_to_the_ledger_and_back(dump):
    declared = {"key": "a", "workflow": "b", "everyMs": 60_000, **dump}
    assert Schedule.from_json(declared).to_json() == declared


def test_the_defaults_are_those_of_the_design():
    made = schedule()
    assert (made.task_queue, made.enabled, made.paused, made.external) == (
        "sched",
        True,
        False,
        False,
    )
    assert (made.overlap, made.catch_up.policy) == ("allow", "latest")
    assert (made.grace, made.catch_up.window) == (timedelta(minutes=1), timedelta(hours=24))
    assert (made.timezone, made.offset_ms, made.first_fire, made.metadata) == ("UTC", 0, None, {})


@pytest.mark.parametrize("value", [60, "60", "soon", None, -1, timedelta(microseconds=1)])
def test_a_grace_is_a_duration(value):
    assert "grace is" in refusal(grace=value)


@pytest.mark.parametrize("value", ["yes", "true", 1, 0, None])
def test_a_switch_is_true_or_false_and_nothing_like_it(value):
    assert "enabled is" in refusal(enabled=value)


def test_metadata_holds_scalars_under_names():
    given = {"tenantId": "t-1", "n": 1, "f": 1.5, "b": True, "none": None}
    assert schedule(metadata=given).metadata == given
    assert "metadata 'a' is a list" in refusal(metadata={"a": []})
    assert "metadata is a list" in refusal(metadata=[])


def test_unknown_fields_are_refused():
    with pytest.raises(ValidationError):
        schedule(evryMs=5)


def test_a_schedule_cannot_be_changed():
    with pytest.raises(ValidationError):
        schedule().key = "b"


def test_a_changed_copy_is_checked_and_has_its_own_digest():
    made = schedule()
    other = made.model_copy(update={"every_ms": 120_000})
    assert other.spec == Interval(120_000)
    assert other.digest != made.digest
    with pytest.raises(ValidationError):
        made.model_copy(update={"every_ms": 5})
