"""``calendars:`` of a file, from lists and from .ics files."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.errors import ScheduleFileError
from engine.runtime.apply.source import read_file
from engine.schedules import Schedule, load_schedules
from engine.schedules.timing.ics import read_ics

EVENT = """BEGIN:VEVENT
UID:{uid}
DTSTAMP:20260101T000000Z
{lines}
END:VEVENT
"""


def ics(*events: str) -> str:
    body = "".join(EVENT.format(uid=n, lines=lines) for n, lines in enumerate(events))
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test//EN\n{body}END:VCALENDAR\n"


ONE_DAY = "DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261226"


@pytest.mark.parametrize(
    ("lines", "items"),
    [
        (ONE_DAY, ("2026-12-25",)),
        ("DTSTART;VALUE=DATE:20261225", ("2026-12-25",)),
        ("DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261225", ("2026-12-25",)),
        ("DTSTART;VALUE=DATE:20270208\nDTEND;VALUE=DATE:20270210", ("2027-02-08..2027-02-09",)),
        (
            "DTSTART;TZID=America/Sao_Paulo:20261224T120000\nDURATION:PT6H",
            ("2026-12-24T15:00:00Z..2026-12-24T21:00:00Z",),
        ),
        (
            "DTSTART;TZID=CET:20261224T120000\nDURATION:PT6H",  # a schedule may not use this name
            ("2026-12-24T11:00:00Z..2026-12-24T17:00:00Z",),
        ),
        (
            ONE_DAY + "\nRRULE:FREQ=YEARLY;UNTIL=20281231\nEXDATE;VALUE=DATE:20271225",
            ("2026-12-25", "2028-12-25"),
        ),
    ],
)
def test_events_become_days_off(lines, items):
    assert read_ics(ics(lines)) == items


def test_a_cancelled_event_is_no_day_off():
    kept = "DTSTART;VALUE=DATE:20270101"
    assert read_ics(ics(f"{ONE_DAY}\nSTATUS:CANCELLED", kept)) == ("2027-01-01",)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "this is no calendar"),
        ("<html>", "this is no calendar"),
        ("root:x:0:0", "this is no calendar: .*[^.]$"),
        (ics(), "the calendar has no events"),
        (ics("DTSTART:soon"), "this is no calendar"),
        (ics(f"{ONE_DAY}\nRRULE:FREQ=DAILY"), "more than 5,000 days off"),
        (ics(f"{ONE_DAY}\nRRULE:FREQ=SECONDLY"), "more often than daily"),
        (ics("DTSTART:20261224T120000\nDTEND:20261224T130000"), "has no time zone"),
        (
            ics("DTSTART;VALUE=DATE:20260101\nDTEND;VALUE=DATE:20280101"),
            "the event of 2026-01-01 is longer than a year",
        ),
        (ics("DTSTART:20260101T000000Z\nDTEND:20280101T000000Z"), "longer than a year"),
    ],
)
def test_a_calendar_that_cannot_be_used_says_why_and_what_to_do(text, what):
    with pytest.raises(ValueError, match=what) as caught:
        read_ics(text)
    assert caught.value.args[1]


def test_a_definition_holds_its_calendars_and_needs_no_file(tmp_path):
    (tmp_path / "team.ics").write_text(ics(ONE_DAY))
    (tmp_path / "schedules.yaml").write_text(
        "calendars: {team: {ics: team.ics}, inventory: [2027-01-04..2027-01-05]}\n"
        "defaults: {exclude: [team], timezone: America/Sao_Paulo}\n"
        "schedules:\n"
        "  - {key: a, workflow: w, cron: '0 9 * * *', exclude: [sat, inventory, 2027-01-07]}\n"
        "  - {key: b, workflow: w, everyMs: 60000}\n"
        "  - {key: c, workflow: w, at: 2027-01-01T00:00:00Z}\n"
    )
    a, b, c = read_file(tmp_path / "schedules.yaml").schedules
    assert a.to_json()["exclude"] == [
        "SAT", {"name": "inventory", "dates": ["2027-01-04..2027-01-05"]}, "2027-01-07",
    ]  # fmt: skip
    assert b.exclusions
    assert b.exclusions.reason(datetime(2026, 12, 26, 2, tzinfo=UTC)) == "team", "São Paulo's 25th"
    assert b.exclusions.reason(datetime(2026, 12, 26, 3, tzinfo=UTC)) is None
    assert c.exclusions is None, "a single moment has none"
    assert Schedule.from_json(a.to_json()) == a


def problems(text: str) -> list[str]:
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(text)
    return [f"{each.line}: {each.message}" for each in caught.value.problems]


def test_every_fault_of_the_calendars_is_named_at_its_line():
    found = problems(
        "calendars:\n"
        "  SAT: [2026-12-25]\n"
        "  two words: []\n"
        "  odd: [2026-99-99]\n"
        "  file: {ics: holidays.ics}\n"
        "  foo: {icz: a}\n"
        "  web: {ics: 'https://example.org/a.ics'}\n"
        "schedules:\n"
        "  - {key: a, workflow: w, cron: '0 9 * * *', exclude: [holiday]}\n"
    )
    assert found == [
        "2: a calendar is called SAT",
        "3: the name of a calendar is 'two words'",
        "4: 2026-99-99 is no day of the calendar",
        "5: calendar file names a file",
        "6: calendar foo is a mapping",
        "7: https://example.org/a.ics is an address",
        "9: 'holiday' is no date, weekday or calendar of this file",
    ]


def test_an_odd_name_of_a_calendar_is_shown_on_one_short_line():
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules('calendars: {"a\\tb": nothing, ' + "c" * 5000 + ": 1}\nschedules: []")
    for problem in caught.value.problems:
        assert problem.message.isprintable()
        assert len(problem.message) < 200


def test_a_schedule_whose_every_window_is_excluded_is_refused():
    found = problems(
        "schedules:\n"
        "  - {key: a, workflow: w, cron: '0 9 * * SUN', exclude: [SUN]}\n"
        "  - {key: b, workflow: w, everyMs: 1000, exclude: [SUN, MON, TUE, WED, THU, FRI, SAT]}\n"
    )
    assert found == ["2: every window is excluded", "3: every window is excluded"]


def test_the_days_of_all_exclusions_of_a_schedule_are_limited_together():
    years = ", ".join(f"{1800 + n}-01-01..{1800 + n}-12-31" for n in range(80))
    text = (
        f"calendars: {{one: [{years}], two: [{years}]}}\nschedules:\n"
        "  - {key: a, workflow: w, everyMs: 60000, exclude: [one]}\n"
        "  - {key: b, workflow: w, everyMs: 60000, exclude: [one, two, 2026-12-25]}\n"
    )
    assert problems(text) == ["4: exclude covers 58,439 days in all"]


def test_the_zone_of_an_intervals_days_off_is_checked_like_any_other():
    found = problems(
        "schedules:\n"
        "  - {key: a, workflow: w, everyMs: 60000, timezone: Mars/X, exclude: [SAT]}\n"
        "  - {key: b, workflow: w, everyMs: 60000, timezone: Mars/X, start: 2027-01-01T00:00:00Z}\n"
        "  - {key: c, workflow: w, everyMs: 60000, end: 9999-12-31}\n"
    )
    assert [line.partition(":")[0] for line in found] == ["2", "3", "4"]
    assert "Mars/X" in found[0]
    assert "outside 1970 to 2100" in found[2]


def test_beside_a_broken_calendar_the_rest_of_the_list_is_judged():
    found = problems(
        "calendars: {team: {ics: team.ics}}\n"
        "schedules:\n"
        "  - {key: a, workflow: w, cron: '0 9 * * *', exclude: [team, holiday]}\n"
        "  - {key: b, workflow: w, cron: '0 9 * * *', exclude: [team]}\n"
    )
    assert found == [
        "1: calendar team names a file",
        "3: 'holiday' is no date, weekday or calendar of this file",
    ]


def test_what_repeats_is_counted_as_it_is_written_out_also_where_it_names_one_day_twice(
    monkeypatch,
):
    monkeypatch.setattr("engine.schedules.timing.ics.MOST_EVENTS", 300)
    weekly = ics(*[f"{ONE_DAY}\nRRULE:FREQ=WEEKLY" for _ in range(50)])
    with pytest.raises(ValueError, match="its events repeat more than 300 times up to 2100"):
        read_ics(weekly)
    assert len(read_ics(ics(f"{ONE_DAY}\nRRULE:FREQ=WEEKLY;COUNT=300"))) == 300
