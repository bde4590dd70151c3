"""`retention:` in files, and its settings in the environment."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.errors import ScheduleFileError, SettingsInvalid
from engine.runtime.settings import Settings
from engine.schedules import load_schedules
from engine.schedules.model import Schedule

MINUTELY = "{key: a, workflow: w, everyMs: 60000%s}"


def loaded(more: str = "", head: str = "") -> Schedule:
    (schedule,) = load_schedules(f"{head}\nschedules: [{MINUTELY % more}]").schedules
    return schedule


def test_a_schedule_says_how_long_its_fires_are_kept():
    said = loaded(", retention: {keep: 50, age: 7d, failedAge: 30d, maxAge: 90d}").retention
    assert (said.keep, said.age) == (50, timedelta(days=7))
    assert (said.failed_age, said.max_age) == (timedelta(days=30), timedelta(days=90))


def test_defaults_are_merged_name_by_name():
    said = loaded(", retention: {age: 7d}", "defaults: {retention: {keep: 50, age: 9d}}").retention
    assert (said.keep, said.age, said.max_age) == (50, timedelta(days=7), None)


def test_retention_reads_back_as_it_was_written():
    schedule = loaded(", retention: {keep: 50, failedAge: 30d}")
    assert schedule.to_json()["retention"] == {"keep": 50, "failedAge": "30d"}
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_a_definition_without_retention_is_what_it_was_before():
    assert "retention" not in loaded().to_json()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("90d", "retention is '90d'; write {keep: 1000, age: 90d}"),
        ("{keep: 0}", "retention.keep is 0; write a whole number from 1 to 1000000"),
        ("{age: 90}", "retention.age is 90; write a unit too, for example 90s"),
        ("{failed_age: 90d}", "failed_age is not a field of retention; did you mean failedAge?"),
        ("{days: 90}", "days is not a field of retention"),
    ],
)
def test_a_mistake_is_told_with_its_hint(wrong, said):
    with pytest.raises(ScheduleFileError) as caught:
        loaded(f", retention: {wrong}")
    assert said in str(caught.value)


@pytest.mark.parametrize(("text", "period"), [("off", None), ("1h", timedelta(hours=1))])
def test_the_janitor_can_be_switched_off_or_slowed_down(text, period):
    assert Settings.from_environment({"SCHED_JANITOR": text}).janitor == period


@pytest.mark.parametrize(
    ("variable", "text"),
    [("SCHED_JANITOR", "0s"), ("SCHED_JANITOR", "never"), ("SCHED_RETENTION_KEEP", "0"),
     ("SCHED_RETENTION_AGE", "90")],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(variable, text):
    with pytest.raises(SettingsInvalid, match=variable):
        Settings.from_environment({variable: text})
