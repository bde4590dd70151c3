"""One schedule of a file: what is wrong with it, where, and what to write."""

from __future__ import annotations

import pytest

from tests.unit.schedule_files import entry, load, only, problems


@pytest.mark.parametrize(
    ("line", "code", "hint"),
    [
        ("everyMs: 5m", "SCHEDULE_FIELD_INVALID", "write 300000"),
        ("everyMs: 1_000", "SCHEDULE_FIELD_INVALID", "write 1000"),
        ("everyMs: 1000.0", "SCHEDULE_FIELD_INVALID", "write 1000"),
        ("everyMs: true", "SCHEDULE_FIELD_INVALID", "whole number"),
        ("everyMs: 0", "SCHEDULE_INTERVAL_TOO_SHORT", "1000"),
        ("everyMs: 99999999999999", "SCHEDULE_FIELD_INVALID", "hundred years"),
        ("everyMs: ~", "SCHEDULE_FIELD_INVALID", "remove the line"),
        ("every: 300000", "SCHEDULE_FIELD_INVALID", "write 5m, or everyMs: 300000"),
        ("every: 15", "SCHEDULE_FIELD_INVALID", "for example 15s"),
        ("every: 5 minutes", "SCHEDULE_FIELD_INVALID", "write 5m"),
        ("every: rate(5 minutes)", "SCHEDULE_FIELD_INVALID", "write 5m"),
        ('every: "*/5 * * * *"', "SCHEDULE_FIELD_INVALID", 'write cron: "*/5 * * * *"'),
        ('every: "@every 1h30m"', "SCHEDULE_FIELD_INVALID", "write 1h30m"),
        ('every: "@every 5 minutes"', "SCHEDULE_FIELD_INVALID", "write 5m"),
        ('every: "@hourly"', "SCHEDULE_FIELD_INVALID", 'write cron: "@hourly"'),
        ("every: 250ms", "SCHEDULE_INTERVAL_TOO_SHORT", "write 1s or more"),
        ("every: 0s", "SCHEDULE_INTERVAL_TOO_SHORT", "write 1s or more"),
        ("every: 15s, everyMs: 15000", "SCHEDULE_KIND_INVALID", "exactly one of every, everyMs"),
        ("every: 15s, cron: '@daily'", "SCHEDULE_KIND_INVALID", "exactly one of every, everyMs"),
        ("every: 15s, timezone: UTC", "SCHEDULE_FIELD_INVALID", "remove it"),
        ("every: 15s, spread: 1m", "SCHEDULE_FIELD_INVALID", "write at most 15s"),
        ("every: 1, offsetMs: 5", "SCHEDULE_FIELD_INVALID", "for example 1s"),
        ("everyMs: 15s", "SCHEDULE_FIELD_INVALID", "write 15000, or every: 15s"),
        ("every: 1h, timeout: 30", "SCHEDULE_FIELD_INVALID", "for example 30s"),
        ("every: 1h, timeout: {task: 5m}", "SCHEDULE_FIELD_INVALID", "write 1s to 2m"),
        ("every: 1h, timeout: {run: 2h, execution: 1h}", "SCHEDULE_FIELD_INVALID", "at most 1h"),
        ("every: 1h, timeout: {runs: 2h}", "SCHEDULE_FIELD_UNKNOWN", "did you mean run?"),
        ("cronExpression: '@daily'", "SCHEDULE_FIELD_UNKNOWN", "did you mean cron?"),
        ("every: 1h, jobPayload: 1", "SCHEDULE_FIELD_UNKNOWN", "did you mean input?"),
        ("every: 1h, maxRetries: 3", "SCHEDULE_FIELD_UNKNOWN", "did you mean retry?"),
        ("every: 1h, timeoutSeconds: 3600", "SCHEDULE_FIELD_UNKNOWN", "did you mean timeout?"),
        ("every: 1h, labels: [a]", "SCHEDULE_FIELD_UNKNOWN", "did you mean tags?"),
        ("interval: 5m", "SCHEDULE_FIELD_UNKNOWN", "did you mean every?"),
        ("suspend: true, everyMs: 5000", "SCHEDULE_FIELD_UNKNOWN", "did you mean enabled?"),
        ("schedule: 0 2 * * *", "SCHEDULE_FIELD_UNKNOWN", "did you mean cron?"),
        ("EveryMS: 5000", "SCHEDULE_FIELD_UNKNOWN", "did you mean everyMs?"),
        ("everyMs: 1000, offsetMs: 1.5", "SCHEDULE_FIELD_INVALID", "whole number"),
        ("everyMs: 1000, timezone: UTC", "SCHEDULE_FIELD_INVALID", "remove it"),
        ("everyMs: 1000, enabled: yes", "SCHEDULE_FIELD_INVALID", "write true"),
        ("everyMs: 1000, enabled: off", "SCHEDULE_FIELD_INVALID", "write false"),
        ("everyMs: 1000, grace: 60", "SCHEDULE_FIELD_INVALID", "60s"),
        ("everyMs: 1000, grace: 1.5h", "SCHEDULE_FIELD_INVALID", "1h30m"),
        ("everyMs: 1000, catchUp: latest", "SCHEDULE_FIELD_INVALID", "policy: latest"),
        ("everyMs: 1000, catchUp: {policy: oldest}", "SCHEDULE_FIELD_INVALID", "write latest, all"),
        ("everyMs: 1000, catchUp: {windw: 2h}", "SCHEDULE_FIELD_UNKNOWN", "did you mean window?"),
        ("everyMs: 1000, maxQueued: many", "SCHEDULE_FIELD_INVALID", "from 1 to 100000"),
        ("everyMs: 1000, catchUp: {rate: 5}", "SCHEDULE_FIELD_INVALID", "5/1m"),
        ("everyMs: 1000, overlap: sometimes", "SCHEDULE_FIELD_INVALID", "write allow"),
        ("everyMs: 1000, overlap: buffer_one", "SCHEDULE_FIELD_INVALID", "write queue_one"),
        ("everyMs: 1000, overlap: BufferAll", "SCHEDULE_FIELD_INVALID", "write queue"),
        (
            "everyMs: 1000, overlap: SCHEDULE_OVERLAP_POLICY_BUFFER_ONE",
            "SCHEDULE_FIELD_INVALID",
            "write queue_one",
        ),
        ("everyMs: 1000, overlap: SomeTimes", "SCHEDULE_FIELD_INVALID", "write allow, skip"),
        ("everyMs: 1000, overlap: BUFFER_ALL", "SCHEDULE_FIELD_INVALID", "write queue"),
        ("everyMs: 1000, overlap: Forbid", "SCHEDULE_FIELD_INVALID", "write skip"),
        ("everyMs: 1000, retry: 3", "SCHEDULE_RETRY_POLICY_INVALID", "write {attempts: 4}, which"),
        ('everyMs: 1000, topic: x, onDead: "a\ufeff"', "SCHEDULE_FIELD_INVALID", "remove it"),
        ("everyMs: 1000, firstFire: later", "SCHEDULE_FIELD_INVALID", "now or next"),
        ("everyMs: 1000, onDead: 5", "SCHEDULE_FIELD_INVALID", "for example alert-team"),
        ("everyMs: 1000, topic: Notifications", "SCHEDULE_TOPIC_INVALID", "one to three segments"),
        ("everyMs: 1000, topic: a.b.c.d", "SCHEDULE_TOPIC_INVALID", "one to three segments"),
        ("everyMs: 1000, topic: a..b", "SCHEDULE_TOPIC_INVALID", "one to three segments"),
        ("everyMs: 1000, topic: 'a\n'", "SCHEDULE_TOPIC_INVALID", "one to three segments"),
        ("everyMs: 1000, topic: 9a", "SCHEDULE_TOPIC_INVALID", "one to three segments"),
        ("everyMs: 1000, tags: billing", "SCHEDULE_FIELD_INVALID", "write [billing]"),
        ("everyMs: 1000, tags: [Billing]", "SCHEDULE_FIELD_INVALID", "use 1 to 64 of a-z"),
        ("everyMs: 1000, tags: [1]", "SCHEDULE_FIELD_INVALID", "put it in quotes"),
        ("everyMs: 1000, tags: [a, b, a]", "SCHEDULE_FIELD_INVALID", "write it once"),
        ("everyMs: 1000, topic: 5", "SCHEDULE_TOPIC_INVALID", "one to three segments"),
        ("everyMs: 1000, taskQueue: ''", "SCHEDULE_FIELD_INVALID", "for example sched"),
        ("everyMs: 1000, metadata: {a: [1]}", "SCHEDULE_FIELD_INVALID", "a text, a number"),
        ("everyMs: 1000, description: [x]", "SCHEDULE_FIELD_INVALID", "write a text"),
        ("everyMs: 1000, wat: 1", "SCHEDULE_FIELD_UNKNOWN", "remove it"),
        ("cron: 5", "SCHEDULE_FIELD_INVALID", "in quotes"),
        ("cron: '* * *'", "SCHEDULE_CRON_INVALID", ""),
        ("cron: '0 0 30 2 *'", "SCHEDULE_CRON_INVALID", ""),
        ("cron: '* * * * *', offsetMs: 5", "SCHEDULE_FIELD_INVALID", "remove it"),
        ("cron: '* * * * *', timezone: EST", "SCHEDULE_TIMEZONE_INVALID", "America/New_York"),
        ("at: soon", "SCHEDULE_FIELD_INVALID", "2027"),
        ("at: 2027-01-01T09:00", "SCHEDULE_FIELD_INVALID", "timezone"),
        ("input: 1", "SCHEDULE_KIND_INVALID", "give one of"),
    ],
)
def test_one_mistake_is_one_problem_with_a_hint(line, code, hint):
    found = only(entry(line))
    assert (found.code, found.key, found.line) == (code, "a", 2)
    assert hint in found.hint


def test_all_mistakes_of_one_schedule_are_reported_together():
    found = problems("""\
        schedules:
          - key: a
            workflow: b@x
            cron: "61 * * * *"
            timezone: Mars
            overlap: jump
            grace: 5
            catchUp: {policy: both, window: soon}
            nmae: x
        """)
    assert [problem.line for problem in found] == [3, 4, 5, 6, 7, 8, 8, 9]


def test_a_problem_inside_a_field_is_located_there():
    found = problems("""\
        schedules:
          - key: a
            workflow: b
            everyMs: 1000
            catchUp:
              policy: latest
              window: soon
              when: x
        """)
    assert [(problem.line, problem.column) for problem in found] == [(7, 15), (8, 7)]


def test_a_key_is_taken_even_by_a_schedule_that_is_wrong():
    found = problems("- {key: a, workflow: b}\n- {key: a, workflow: b, everyMs: 1000}\n")
    assert [problem.code for problem in found] == [
        "SCHEDULE_KIND_INVALID",
        "SCHEDULE_KEY_DUPLICATE",
    ]
    assert "line 1" in found[1].message


def test_input_null_is_an_input_and_no_input_is_none():
    text = (
        "- {key: a, workflow: b, everyMs: 1000, input: }\n- {key: c, workflow: b, everyMs: 1000}\n"
    )
    assert [schedule.has_input for schedule in load(text).schedules] == [True, False]


def test_a_second_reader_must_agree_with_every_expression(monkeypatch):
    asked = []

    def doubt(expression):
        asked.append(expression)
        return "croniter reads the hour differently" if expression.startswith("7") else None

    monkeypatch.setattr("engine.schedules.timing.croniter_check.disagreement", doubt)
    found = only(
        "- {key: a, workflow: b, cron: 7 1 * * *}\n- {key: c, workflow: b, cron: 8 1 * * *}\n"
    )
    assert (found.code, found.line, found.column) == ("SCHEDULE_CRON_INVALID", 1, 31)
    assert asked == ["7 1 * * *", "8 1 * * *"]


def test_a_long_value_is_cut():
    found = only(entry(f"everyMs: {'x' * 500}"))
    assert len(found.value or "") == 60
    assert len(found.message) < 100


def test_a_syntax_error_does_not_hide_the_mistakes_before_it():
    found = problems("- {key: A, workflow: b, everyMs: 1000}\n- {key: b, workflow: 'c\n")
    assert [problem.code for problem in found] == ["SCHEDULE_KEY_INVALID", "SCHEDULE_YAML_INVALID"]


def test_a_number_with_zeros_is_a_warning():
    [warning] = load(entry("everyMs: 1000, input: {account: 0042}")).warnings
    assert warning.line == 2


def test_a_default_that_a_schedule_cannot_fit_is_named_with_its_line_and_the_way_out():
    text = (
        "defaults:\n  exclude: [SUN]\n  spread: 10m\nschedules:\n"
        "- {key: a, workflow: w, everyMs: 60000}\n"
        "- {key: b, workflow: w, cron: '0 2 * * SUN'}\n"
        "- {key: c, workflow: w, everyMs: 60000, spread: 0s, exclude: []}\n"
        "- {key: d, workflow: w, everyMs: 60000, spread: 2m}\n"
    )
    assert [(each.line, each.message, each.hint) for each in problems(text)] == [
        (
            5,
            "spread is longer than the interval, by defaults on line 3",
            "write spread: 0s here, or change the defaults",
        ),
        (
            6,
            "every window is excluded, by defaults on line 2",
            "write exclude: [] here, or change the defaults",
        ),
        (8, "spread is longer than the interval", "write at most 1m"),
    ]


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("exclude: [saturday]", "'saturday' is no date", "write SAT"),
        ("exclude: [FRI-MON]", "'FRI-MON' is no date", "name each day: FRI, SAT, SUN, MON"),
        (
            "exclude: [2026-12-24/2026-12-26]",
            "'2026-12-24/2026-12-26' is no date",
            "write 2026-12-24..2026-12-26",
        ),
        ("exclude: [holiday]", "'holiday' is no date", "did you mean holidays?"),
        ("exclude: [Holidays]", "'Holidays' is no date", "did you mean holidays?"),
        (
            "exclude: [2026-12-24T12:00:00..2026-12-25T00:00:00]",
            "'2026-12-24T12:00:00..2026-12-25T00:00:00' is no date",
            "write both ends in UTC, as 2026-12-24T12:00:00Z..2026-12-25T00:00:00Z",
        ),
        ("expect: [{on: 2027-03-14, fires: [9:00]}]", "fires holds '9:00'", 'write "09:00"'),
        (
            "dst: {gap: later}",
            "dst {gap: later} is not a policy",
            "write standard, or {gap: shift | skip, fold: first | last | both}",
        ),
    ],
)
def test_the_hint_for_a_slip_is_what_was_meant(line, message, hint):
    head = "calendars: {holidays: [2026-12-25]}\nschedules:\n"
    found = only(head + f"- {{key: a, workflow: w, cron: '0 9 * * *', {line}}}\n")
    assert found.message.startswith(message)
    assert found.hint == hint


def test_a_calendar_that_is_the_bare_name_of_a_file_is_told_how_to_name_it():
    found = only("calendars: {team: team.ics}\n" + entry("everyMs: 1000"))
    assert (found.line, found.hint) == (1, "write {ics: team.ics}")


def test_a_part_that_is_missing_is_named_beside_what_else_is_wrong():
    found = problems(entry("cron: '0 9 * * *', expect: [{on: x, fires: []}, {on: 2027-03-14}]"))
    assert [each.code for each in found] == ["SCHEDULE_FIELD_INVALID", "SCHEDULE_FIELD_MISSING"]
