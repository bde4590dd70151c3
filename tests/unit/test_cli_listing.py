"""What ``sched list`` says below its table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from engine.cli.inspect import overdue
from engine.cli.output import without_worker
from engine.ledger.schedule_rows import ScheduleRow
from engine.schedules import Schedule

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def row(
    key: str, due: int | None, *, error: str | None = None, kind: str | None = "w@1", **fields: Any
):
    moment = None if due is None else NOW + timedelta(seconds=due)
    return ScheduleRow(
        key=key, project="default", workflow="w",
        schedule=Schedule.from_json({"key": key, "workflow": "w", "everyMs": 1000, **fields}),
        state="active", status="pending", next_fire_at=moment, last_fire_at=None, last_status=None,
        workflow_type=kind, definition_version=1, series=1, effective_from=NOW, error=error,
    )  # fmt: skip


def test_windows_that_nobody_starts_are_told_with_the_hint():
    told = overdue([row("late", -60), row("later", -90), row("next", 5)], NOW)
    assert told.startswith(
        "no worker has started what is due since 2026-11-21T11:58:30Z (later, late):"
    )
    assert "`sched worker`" in told


def test_nothing_is_told_while_a_worker_may_be_at_it_or_the_schedule_says_why():
    rows = [row("now", -5), row("next", 60), row("over", None)]
    rows += [row("broken", -90, error="no paper"), row("unknown", -90, kind=None)]
    assert overdue(rows, NOW) == ""


KIND = frozenset({"w@1"})
SCHED = ("default", "sched")
MAIL = ("default", "mail")


def test_that_no_worker_is_there_is_told_before_anything_is_due():
    rows = [row("a", 3600), row("b", 3600), row("mail", 60, taskQueue="mail"), row("over", None)]
    told = without_worker(rows, {})
    assert "project default, task queue mail (1 schedule)" in told
    assert "project default, task queue sched (2 schedules): start a worker (`sched up`" in told
    assert "mail" in without_worker(rows, {SCHED: KIND})
    assert "task queue sched" not in without_worker(rows, {SCHED: KIND})
    assert without_worker(rows, {SCHED: KIND, MAIL: KIND}) == ""


def test_workers_that_live_and_have_another_version_of_the_workflow_are_told():
    told = without_worker([row("a", 3600)], {SCHED: frozenset({"w@0"})})
    assert "project default, task queue sched, workflow w@1 (1 schedule): start" in told


def test_an_external_schedule_is_served_by_any_worker_of_its_project():
    rows = [row("go", 60, taskQueue="golang", external=True)]
    assert without_worker(rows, {SCHED: KIND}) == ""
    assert without_worker(rows, {("other", "golang"): KIND}).startswith(
        "no worker lives that starts what comes due of project default (1 schedule):"
    )


def test_shadow_mode_has_no_problem_without_the_workflow_until_it_is_to_end():
    shadow = row("a", 60, kind=None, mode="shadow")
    assert shadow.problem is None
    assert without_worker([shadow], {SCHED: frozenset({"other"})}) == ""
    assert without_worker([shadow], {}).startswith("no worker lives that starts what comes due")
    ends = row("a", 60, kind=None, mode="shadow", shadowUntil="2026-11-22T00:00:00Z")
    assert ends.problem == "no worker has announced w yet"


def test_a_schedule_with_a_problem_of_its_own_waits_for_no_worker():
    rows = [row("broken", 60, error="no paper"), row("unknown", 60, kind=None)]
    assert without_worker(rows, {}) == ""
