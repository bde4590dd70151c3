"""The shipped ``schedules.yaml``: it names what exists, and says what the README says."""

from __future__ import annotations

from pathlib import Path

from engine.flow import registered_workflows
from engine.schedules import Cron, Interval, load_schedules
from tests.fundamentals.example_app import WORKFLOWS

ROOT = Path(__file__).parents[2]


def test_the_shipped_schedules_name_workflows_that_exist():
    schedules = load_schedules((ROOT / "schedules.yaml").read_text()).schedules
    names = {each.name for each in registered_workflows().values() if each.cls in WORKFLOWS}
    assert [(each.key, each.spec) for each in schedules] == [
        ("heartbeat", Interval(every_ms=10_000)),
        ("cache-sync", Interval(every_ms=300_000)),
        ("invoice-run", Interval(every_ms=120_000)),
        ("nightly-report", Cron("0 2 * * *", timezone="America/Sao_Paulo", key="nightly-report")),
    ]
    assert {each.workflow for each in schedules} == names
