"""What ``sched show`` says of one schedule."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from engine.cli.output import as_yaml
from engine.cli.show import Page
from engine.cli.target import Target
from engine.ledger.fires import DataGap
from engine.ledger.records import Backfill, Start
from engine.ledger.schedule_rows import ScheduleRow
from engine.page.layout import _environment
from engine.schedules import Schedule
from engine.schedules.terms import Sealed

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ROW = ScheduleRow(
    key="k", project="default", workflow="w",
    schedule=Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 1000}), state="active",
    status="pending", next_fire_at=NOW, last_fire_at=None, last_status=None, workflow_type="w@1",
    definition_version=1, series=1, effective_from=NOW, error=None,
)  # fmt: skip
TARGET = Target("postgresql://host/db", "default")


def test_windows_that_a_full_queue_has_cost_are_counted(capsys):
    page = Page(ROW, [], [], [], TARGET, NOW, "", (57, NOW))
    page.print()
    assert (
        "skipped because the queue was full: 57 windows, last 2026-11-21T12:00:00Z"
        in capsys.readouterr().out
    )
    assert page.as_json()["queueFull"] == {"windows": 57, "last": NOW}


def test_nothing_is_said_of_a_queue_that_was_never_full(capsys):
    Page(ROW, [], [], [], TARGET, NOW, "").print()
    assert "queue" not in capsys.readouterr().out


def test_data_that_no_run_has_are_shown_with_what_to_do(capsys):
    gaps = (DataGap("k", 42, None, NOW), DataGap("k", 7, NOW, NOW))
    page = Page(ROW, [], [], [], TARGET, NOW, "", data_gaps=gaps)
    page.print()
    said = " ".join(capsys.readouterr().out.split())
    assert "no run of k has the data from the beginning to 2026-11-21T12:00:00Z" in said
    assert "`sched rerun k 42`" in said
    assert page.as_json()["dataGaps"] == [
        {"bucket": 42, "dataFrom": None, "dataTo": NOW},
        {"bucket": 7, "dataFrom": NOW, "dataTo": NOW},
    ]


def test_starts_of_applications_are_shown_without_a_definition(capsys):
    """It is the ledger's own, and would say that they fire in 1970."""
    row = replace(ROW, key="@w", schedule=Start.definition_of("w"), state="ended")
    Page(row, [], [], [], TARGET, NOW, "").print()
    said = capsys.readouterr().out
    assert "@w: runs of w that applications start" in said
    assert "1970" not in said


def a_backfill(**fields) -> Backfill:
    said = {
        "id": 7, "project": "default", "key": "k", "series": 1, "definition_version": 1,
        "first": NOW, "last": NOW, "cursor": NOW, "overlap": "allow", "include": ("skipped",),
        "requested_by": "ops", "requested_at": NOW, "next_at": NOW, "windows": 100, **fields,
    }  # fmt: skip
    return Backfill(**said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"laid": 30, "left_alone": {"started": 5}}, "35 of 100 windows done, 30 laid, 5 left"),
        ({"error": "E: no"}, "0 of 100 windows done, 0 laid, 0 left alone; it waits: E: no"),
        ({"state": "done", "laid": 100}, "done, 100 laid, 0 left alone"),
        (
            {"state": "ended", "laid": 4, "ended_reason": "user: x"},
            "ended (user: x), 4 laid, 0 left alone, 96 not laid",
        ),
    ],
)
def test_how_far_a_backfill_is_or_what_became_of_it_is_said(fields, said, capsys):
    page = Page(ROW, [], [], [], TARGET, NOW, "", backfills=(a_backfill(**fields),))
    page.print()
    assert f"backfill 7 from 2026-11-21T12:00:00Z to 2026-11-21T12:00:00Z: {said}" in (
        capsys.readouterr().out.replace("\n", " ")
    )
    (shown,) = cast("list[dict[str, object]]", page.as_json()["backfills"])
    assert (shown["id"], shown["state"]) == (7, fields.get("state", "laying"))


@pytest.mark.parametrize(
    ("fields", "most", "line"),
    [
        ({}, None, "    overlap: allow"),
        ({"overlap": "skip"}, 1, "    overlap: skip"),
        ({"maxConcurrentRuns": 3}, 3, "    overlap: queue\n    maxConcurrentRuns: 3\n"),
    ],
)
def test_how_many_runs_may_be_open_stands_beside_what_becomes_of_more(fields, most, line, capsys):
    declared = Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 1000, **fields})
    page = Page(replace(ROW, schedule=declared), [], [], [], TARGET, NOW, "")
    page.print()
    assert line in capsys.readouterr().out
    assert page.as_json()["maxConcurrentRuns"] == most


def test_a_schedule_that_follows_others_names_them_and_those_that_follow_it(capsys):
    fields = {"after": {"schedule": "a", "when": "always", "window": "latest"}, "needs": ["b"]}
    declared = Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 1000, **fields})
    page = Page(replace(ROW, schedule=declared), [], [], [], TARGET, NOW, "", children=("c", "d"))
    page.print()
    printed = capsys.readouterr().out
    assert "follows a (always, latest), b (success)" in printed
    assert "followed by c, d" in printed
    shown = page.as_json()
    assert shown["children"] == ["c", "d"]
    assert shown["parents"] == [
        {"parent": "a", "when": "always", "window": "latest"},
        {"parent": "b", "when": "success", "window": "same"},
    ]


def test_an_input_that_cannot_be_read_here_is_one_word():
    fields = {
        "key": "k",
        "workflow": "noop",
        "everyMs": 60_000,
        "input": Sealed("cipher", "digest"),
    }
    schedule = Schedule.from_json(Schedule.from_json(fields).to_json())
    assert schedule.to_json()["sealedInput"]["payload"] == "cipher", "as it is stored"
    text = "\n".join(as_yaml(schedule))
    assert "input: sealed" in text
    assert "cipher" not in text


def test_a_schedule_in_shadow_mode_says_that_nothing_starts_and_since_which_window_it_does(capsys):
    fields = {"mode": "shadow", "shadowUntil": "2026-11-21T12:00:02Z"}
    shadowed = Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 1000, **fields})
    page = Page(replace(ROW, schedule=shadowed), [], [], [], TARGET, NOW, "")
    page.print()
    said = capsys.readouterr().out
    assert "in shadow mode until 2026-11-21T12:00:02Z: windows are recorded" in said
    assert [bool(each.remark) for each in page.next][:3] == [True, False, False]
    state_of = vars(_environment().get_template("parts.html").module)["state_of"]
    assert "shadow" in state_of(page.row), "so does the page in the browser"
    assert "shadow" not in state_of(ROW)


def test_what_is_left_of_a_limit_is_shown(capsys):
    limited = Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 1000, "limit": 5})
    page = Page(replace(ROW, schedule=limited, started=3), [], [], [], TARGET, NOW, "")
    page.print()
    assert "2 of 5 windows are left to start" in capsys.readouterr().out
    assert page.as_json()["limitLeft"] == 2
    assert "limit_left" not in Page(ROW, [], [], [], TARGET, NOW, "").as_json()
