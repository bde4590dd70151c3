"""``expect:`` is checked against the same instants that fire."""

from __future__ import annotations

import pytest

from engine.errors import ScheduleFileError
from engine.schedules import load_schedules

NEW_YORK = "timezone: America/New_York"


def file(*fields: str) -> str:
    return "\n".join(["schedules:", "  - key: a", "    workflow: w", *(f"    {f}" for f in fields)])


@pytest.mark.parametrize(
    "fields",
    [
        ('cron: "30 2 * * *"', NEW_YORK, 'expect: [{on: 2027-03-14, fires: ["03:00"]}]'),
        ('cron: "30 1 * * *"', NEW_YORK, 'expect: [{on: 2027-11-07, fires: ["01:30"]}]'),
        (
            'cron: "*/30 1 * * *"',
            NEW_YORK,
            'expect: [{on: 2027-11-07, fires: ["01:00", "01:30", "01:00", "01:30"]}]',
        ),
        (
            'cron: "30 1 * * *"',
            NEW_YORK,
            "dst: {fold: both}",
            'expect: [{on: 2027-11-07, fires: ["01:30", "01:30:00"]}]',
        ),
        ('cron: "0 12 30 12 *"', "timezone: Pacific/Apia", "expect: [{on: 2011-12-30, fires: []}]"),
        ('cron: "0 9 * * *"', "exclude: [2027-01-01]", "expect: [{on: 2027-01-01, fires: []}]"),
        ("everyMs: 43200000", 'expect: [{on: 2027-01-01, fires: ["00:00", "12:00"]}]'),
    ],
)
def test_an_expectation_that_comes_true_is_no_problem(fields):
    assert load_schedules(file(*fields), expectations=True).schedules


def test_one_that_does_not_is_named_at_its_line_with_what_happens_instead():
    text = file(
        'cron: "30 2 * * *"',
        NEW_YORK,
        "expect:",
        '  - {on: 2027-03-13, fires: ["02:30"]}',
        '  - {on: 2027-03-14, fires: ["02:30"]}',
        "  - {on: 2027-03-15, fires: []}",
    )
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(text, expectations=True)
    assert [(each.line, each.code, each.message) for each in caught.value.problems] == [
        (8, "SCHEDULE_EXPECTATION_FAILED", "on 2027-03-14 it fires at 03:00, not at 02:30"),
        (9, "SCHEDULE_EXPECTATION_FAILED", "on 2027-03-15 it fires at 02:30, not never"),
    ]
    assert load_schedules(text).schedules, "nobody stops firing for it"


def test_an_expectation_is_no_edit():
    plain = load_schedules(file('cron: "30 2 * * *"'))
    expecting = load_schedules(file('cron: "30 2 * * *"', "expect: [{on: 2027-03-14, fires: []}]"))
    assert plain.schedules[0].digest == expecting.schedules[0].digest
