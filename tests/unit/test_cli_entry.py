"""A definition as `sched show` prints it, and the links beside it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from engine.cli.output import as_yaml, run_link, runs_link
from engine.schedules import Schedule, load_schedules

# Texts that YAML or the line they stand in could take for something else, and what is no text.
VALUES: tuple[object, ...] = (
    None, "1e3", "0o17", "yes", "true", "null", "~", "", " x ", "- a", "#", "12:30",
    "24h", "0x1F", ".5", "2026-11-21", "it's \"quoted\"", "\u2028\t\\", "\U0001f600 \U000e0001",
    1, 1.5, True, [1, "2", {"on": ["off"]}], {"a b": None, "1": {}, "true": []},
)  # fmt: skip
WHEN = {"key": "k", "workflow": "w", "everyMs": 1000}


def read_back(schedule: Schedule) -> Schedule:
    return load_schedules("schedules:\n" + "\n".join(as_yaml(schedule))).schedules[0]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"offsetMs": 250, "enabled": False, "paused": True, "grace": "1h30m"},
        {"workflow": "report@1.2", "catchUp": {"window": "2d"}},
        {"everyMs": None, "cron": "*/5 * * * *", "timezone": "America/Sao_Paulo"},
        {"everyMs": None, "at": "2027-01-01T09:00:00", "timezone": "UTC"},
        {"everyMs": None, "at": "2027-01-01T09:00:00Z"},
        {"metadata": {"owner": "a: b # c"}, "description": "Line one.\nLine two, ähm: 100 %"},
        {"maxConcurrentRuns": 3},
        {"external": True, "workflow": "Some Type: v2"},
        {"exclude": ["SAT", "2026-12-24..2027-01-01"]},
        *({"input": value} for value in VALUES),
    ],
)  # fmt: skip
def test_a_printed_definition_reads_back_as_it_was(more):
    declared = {name: value for name, value in {**WHEN, **more}.items() if name == "input" or value}
    schedule = Schedule.from_json(declared)
    assert read_back(schedule).to_json() == schedule.to_json()


def test_policies_are_shown_even_where_they_are_the_default():
    shown = as_yaml(Schedule.from_json(WHEN))
    assert shown[0] == "  - key: k"
    assert "    catchUp: {policy: latest, window: 1d}" in shown
    assert {"    overlap: allow", "    grace: 1m"} <= set(shown)
    cron = {"key": "k", "workflow": "w", "cron": "0 2 * * *"}
    assert "    timezone: UTC" in as_yaml(Schedule.from_json(cron))


def test_a_link_encodes_what_an_address_would_take_for_its_own():
    link = run_link("http://ui", "my space", "sched:a.b:12:s2", "0af-1")
    assert link == "http://ui/namespaces/my%20space/workflows/sched%3Aa.b%3A12%3As2/0af-1/history"
    listed = urlsplit(runs_link("http://ui", "default", "a.b"))
    assert listed.path == "/namespaces/default/workflows"
    assert parse_qs(listed.query)["query"] == ['WorkflowId STARTS_WITH "sched:a.b:"']


def test_a_calendar_is_shown_by_its_name_and_not_by_its_thousand_days():
    days = [f"2{number // 365:03}-01-{number % 28 + 1:02}" for number in range(1000)]
    declared = {**WHEN, "exclude": [{"name": "holidays", "dates": days}, "SAT"]}
    shown = as_yaml(Schedule.from_json(declared))
    assert "    exclude: [holidays, SAT]  # holidays: 1000 items; --json has them" in shown
