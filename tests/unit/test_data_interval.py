"""The data interval of a run: where the one before it ended, whatever lay between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from engine.ledger.fires import Claim
from engine.runtime.dispatch.starter import fire_info
from engine.schedules import Schedule

MONDAY = datetime(2026, 11, 23, 2, tzinfo=UTC)


def interval(declared: dict[str, object], missed_from: datetime | None = None):
    schedule = Schedule.from_json({"key": "k", "workflow": "w", **declared})
    claim = Claim(
        fire_id=1, key="k", project="default", series=1, bucket=1, fire_time=MONDAY,
        schedule=schedule, definition_version=1, workflow_id="sched:k:1", workflow_type="w@1",
        task_queue="sched", timing="on_time", missed=0, reason=None, token=uuid4(), attempts=1,
        starting_at=MONDAY, missed_from=missed_from,
    )  # fmt: skip
    info = fire_info(claim, ledger="l", timing="on_time")
    return info.data_from, info.data_to


def test_an_ordinary_run_covers_the_time_since_the_window_before_it():
    assert interval({"everyMs": 3_600_000}) == (MONDAY - timedelta(hours=1), MONDAY)
    assert interval({"cron": "0 2 * * *"}) == (MONDAY - timedelta(days=1), MONDAY)


def test_after_days_off_a_run_covers_them_too():
    friday = MONDAY - timedelta(days=3)
    assert interval({"cron": "0 2 * * *", "exclude": ["SAT", "SUN"]}) == (friday, MONDAY)


def test_a_caught_up_run_covers_what_it_stands_for():
    missed_from = MONDAY - timedelta(days=2)
    assert interval({"cron": "0 2 * * *"}, missed_from) == (MONDAY - timedelta(days=3), MONDAY)


def test_a_first_window_has_no_beginning():
    assert interval({"at": "2026-11-23T02:00:00Z"}) == (None, MONDAY)
