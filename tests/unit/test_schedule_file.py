"""A whole file: its frame, its defaults, and the ways to write it."""

from __future__ import annotations

import json

import pytest

from engine.schedules import Interval, load_schedules
from tests.unit.schedule_files import GOOD, TEN_MISTAKES, entry, load, only, problems


def test_the_file_of_the_design_is_read():
    file = load_schedules(GOOD)
    assert [schedule.key for schedule in file.schedules] == ["nightly-report", "cache-sync"]
    assert (file.project, file.revision, file.name, file.warnings) == (
        "default",
        None,
        "schedules.yaml",
        (),
    )
    assert file.digest == load(GOOD, "elsewhere.yaml").digest != load(GOOD + "\n").digest
    assert dict(file.queues) == {}
    assert file.schedules[0].timezone == "America/Sao_Paulo"
    assert file.schedules[1].spec == Interval(300_000)


def test_a_file_with_ten_mistakes_gives_ten_located_problems():
    found = problems(TEN_MISTAKES)
    assert [(problem.line, problem.column, problem.code, problem.key) for problem in found] == [
        (4, 10, "SCHEDULE_KEY_INVALID", "Nightly Report"),
        (9, 14, "SCHEDULE_FIELD_INVALID", "soon"),
        (12, 14, "SCHEDULE_INTERVAL_TOO_SHORT", "fast"),
        (15, 5, "SCHEDULE_FIELD_UNKNOWN", "misspelt"),
        (16, 5, "SCHEDULE_FIELD_MISSING", "nothing-to-do"),
        (18, 61, "SCHEDULE_KIND_INVALID", "both"),
        (21, 11, "SCHEDULE_CRON_INVALID", "bad-cron"),
        (25, 15, "SCHEDULE_TIMEZONE_INVALID", "nowhere"),
        (26, 10, "SCHEDULE_KEY_DUPLICATE", "soon"),
        (31, 11, "SCHEDULE_YAML_INVALID", "unquoted"),
    ]
    assert all(problem.hint for problem in found)
    assert found[1].located("s.yaml") == (
        "s.yaml:9:14: SCHEDULE_FIELD_INVALID: everyMs is 'soon'; "
        "write a whole number of milliseconds, for example 300000"
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("NightlyReport", "nightly-report"),
        ("Nightly Report", "nightly-report"),
        ("billing/Sync2S3", "billing-sync2-s3"),
    ],
)
def test_a_key_that_is_none_is_proposed_as_it_could_be_written(key, meant):
    (found,) = problems(f"schedules: [{{key: {key}, workflow: b, everyMs: 1000}}]")
    assert found.hint.endswith(f"for example {meant}")


# --- the frame ---


def test_a_bare_list_is_the_schedules():
    assert len(load("- {key: a, workflow: b, everyMs: 1000}").schedules) == 1


def test_project_and_revision_are_read():
    file = load("project: billing\nrevision: 7\nschedules: [{key: a, workflow: b, everyMs: 1000}]")
    assert (file.project, file.revision) == ("billing", 7)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("version: 2", "SCHEDULE_FIELD_INVALID"),
        ("version: '1'", "SCHEDULE_FIELD_INVALID"),
        ("version: true", "SCHEDULE_FIELD_INVALID"),
        ("project: My Project", "SCHEDULE_KEY_INVALID"),
        ("project: 5", "SCHEDULE_KEY_INVALID"),
        ("revision: -1", "SCHEDULE_FIELD_INVALID"),
        ("revision: 1.5", "SCHEDULE_FIELD_INVALID"),
        ("revision: 9223372036854775808", "SCHEDULE_FIELD_INVALID"),
        ("queues: {a: 1}", "SCHEDULE_FIELD_INVALID"),
        ("defaults: [a]", "SCHEDULE_FIELD_INVALID"),
        ("defaults: UTC", "SCHEDULE_FIELD_INVALID"),
        ("defaults: {overlap: jump}", "SCHEDULE_FIELD_INVALID"),
        ("defaults: {timezone: Mars}", "SCHEDULE_TIMEZONE_INVALID"),
        ("defaults: {cron: x}", "SCHEDULE_FIELD_UNKNOWN"),
        ("defaults: {task_queue: x}", "SCHEDULE_FIELD_UNKNOWN"),
        ("revison: 1", "SCHEDULE_FIELD_UNKNOWN"),
        ("timezone: UTC", "SCHEDULE_FIELD_UNKNOWN"),
    ],
)
def test_a_mistake_at_the_top_is_reported_once_however_many_schedules_there_are(line, code):
    found = only(
        line
        + "\nschedules:\n- {key: a, workflow: b, cron: 0 2 * * *}\n"
        + "- {key: c, workflow: b, cron: 0 2 * * *}\n"
    )
    assert (found.code, found.line) == (code, 1)


@pytest.mark.parametrize("text", ["", " \n", "# nothing\n", "---\n", "~", "\ufeff"])
def test_an_empty_file_is_one_problem(text):
    assert only(text).code == "SCHEDULE_FILE_EMPTY"


@pytest.mark.parametrize(
    "text", ["schedules: []", "schedules:", "[]", "version: 1", "{}", "project: a"]
)
def test_a_file_without_schedules_is_one_problem(text):
    found = only(text)
    assert (found.code, found.line) == ("SCHEDULE_FILE_EMPTY", 1)


@pytest.mark.parametrize(
    "text", ["hello", "5", "schedules: soon", "schedules: {a: {workflow: b}}", "- 5", "- []"]
)
def test_another_shape_is_one_problem(text):
    assert only(text).code == "SCHEDULE_FIELD_INVALID"


def test_a_misspelt_list_is_one_problem():
    found = only("schedule: [{key: a, workflow: b, everyMs: 1000}]")
    assert (found.code, found.hint) == ("SCHEDULE_FIELD_UNKNOWN", "did you mean schedules?")


# --- defaults ---


def test_defaults_fill_what_a_schedule_does_not_say():
    file = load("""\
        defaults: {taskQueue: q, grace: 5s, enabled: false, external: true, firstFire: next,
                   metadata: {team: x, tier: 1}, catchUp: {window: 2h}}
        schedules:
          - {key: a, workflow: W, everyMs: 1000}
          - {key: b, workflow: W, everyMs: 1000, taskQueue: r, enabled: true, metadata: {tier: 2},
             catchUp: {policy: latest}}
        """)
    first, second = file.schedules
    assert (first.task_queue, first.grace.seconds, first.enabled, first.external) == (
        "q",
        5,
        False,
        True,
    )
    assert (first.first_fire, first.metadata) == ("next", {"team": "x", "tier": 1})
    assert (second.task_queue, second.enabled) == ("r", True)
    assert second.metadata == {"team": "x", "tier": 2}
    assert second.catch_up.window.total_seconds() == 7200


def test_the_default_timezone_is_for_cron_and_local_moments_only():
    file = load("""\
        defaults: {timezone: Asia/Tokyo}
        schedules:
          - {key: a, workflow: b, cron: "0 2 * * *"}
          - {key: b, workflow: b, cron: "0 2 * * *", timezone: UTC}
          - {key: c, workflow: b, at: "2027-01-01T09:00"}
          - {key: d, workflow: b, at: "2027-01-01T09:00:00Z"}
          - {key: e, workflow: b, everyMs: 1000}
        """)
    zones = [schedule.timezone for schedule in file.schedules]
    assert zones == ["Asia/Tokyo", "UTC", "Asia/Tokyo", "UTC", "UTC"]


def test_a_timestamp_without_quotes_is_a_moment():
    assert load(entry("at: 2027-01-01T09:00:00Z")).schedules[0].kind == "at"


# --- JSON, bytes, line ends ---


def test_json_is_accepted_under_both_names():
    text = json.dumps(
        {"schedules": [{"key": "a", "workflow": "b\ud83d\ude00", "everyMs": 1000}]}, indent="\t"
    )
    for name in ("a.json", "a.yaml", "A.JSON"):
        assert load_schedules(text, name).schedules[0].workflow == "b😀"


def test_problems_in_json_are_located():
    text = '{\n\t"schedules": [\n\t\t{"key": "a", "workflow": "b",\n\t\t "everyMs": "soon"}\n\t]\n}'
    for name in ("a.json", "a.yaml"):
        found = only(text, name)
        assert (found.line, found.column, found.key) == (4, 15, "a")


def test_yaml_is_no_json():
    assert only(GOOD, "a.json").code == "SCHEDULE_YAML_INVALID"


def test_yaml_in_flow_style_need_not_be_json():
    assert len(load("{schedules: [{key: a, workflow: b, everyMs: 1000}]}").schedules) == 1


def test_bytes_bom_and_crlf_are_fine():
    for text in (
        GOOD.encode(),
        "\ufeff" + GOOD,
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.replace("\n", "\r\n"),
    ):
        assert len(load_schedules(text).schedules) == 2
    found = only("\ufeff" + entry("everyMs: 1").replace("\n", "\r\n"))
    assert (found.line, found.column) == (2, 36)
