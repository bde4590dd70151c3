"""The monthly report of docs/chains.md: schedules that follow each other, on real servers.

```
generate-monthly-report
├── extract-sales-data        if it succeeds
├── extract-inventory-data    if it succeeds
│   └── compile-report        if both extracts succeed
└── send-failure-alert        only if it fails
```
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.ledger.fires import OPEN, Fire
from engine.runtime import SchedulePlugin
from engine.schedules import load_schedules
from tests.fundamentals.samples import monthly_report
from tests.waiting import eventually

# An hour stands for the month: an interval that is first seen fires its present window at once.
REPORT = """
schedules:
  - {{key: generate-monthly-report, workflow: generate-monthly-report, everyMs: 3600000,
      input: {fails}}}
  - {{key: extract-sales-data, workflow: extract, input: sales,
      after: {{schedule: generate-monthly-report}}}}
  - {{key: extract-inventory-data, workflow: extract, input: inventory,
      after: {{schedule: generate-monthly-report}}}}
  - {{key: compile-report, workflow: compile-report,
      needs: [extract-sales-data, extract-inventory-data]}}
  - {{key: send-failure-alert, workflow: send-failure-alert,
      after: {{schedule: generate-monthly-report, when: failure}}}}
"""


@pytest.fixture
async def ledger(client: Client, shared_database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.connect(shared_database_url, namespace=client.namespace)
    yield opened
    await opened.close()


async def report(
    client: Client, shared_database_url: str, ledger: Ledger, *, fails: bool
) -> dict[str, Fire]:
    """Let the report run; return what became of the first window of each schedule."""
    file = load_schedules(REPORT.format(fails=str(fails).lower()))
    plugin = SchedulePlugin(file, database_url=shared_database_url)

    async def settled() -> dict[str, Fire]:
        fires = await ledger.fires(limit=100)
        first = min((fire.fire_time for fire in fires), default=None)
        mine = {fire.key: fire for fire in fires if fire.fire_time == first}
        assert len(mine) == len(file.schedules)
        assert not any(fire.status in OPEN for fire in mine.values())
        return mine

    async with Worker(client, task_queue="sched", workflows=monthly_report.ALL, plugins=[plugin]):
        return await eventually(settled, timeout=60, every=0.1)


def assert_in_turn(first: Fire, then: Fire) -> None:
    assert first.closed_at
    assert then.started_at
    assert first.closed_at <= then.started_at


async def test_the_extracts_follow_the_report_the_compilation_both_and_nobody_is_alarmed(
    client: Client, shared_database_url: str, ledger: Ledger
):
    fires = await report(client, shared_database_url, ledger, fails=False)
    ran = ["generate-monthly-report", "extract-sales-data", "extract-inventory-data",
           "compile-report"]  # fmt: skip
    assert [fires[key].status for key in ran] == ["completed"] * 4
    first, sales, inventory, last = (fires[key] for key in ran)
    for extract in (sales, inventory):
        assert_in_turn(first, extract)
        assert_in_turn(extract, last)
    assert len({fire.fire_time for fire in fires.values()}) == 1, "one window of each"
    alert = fires["send-failure-alert"]
    assert (alert.status, alert.run_id) == ("skipped", None)
    assert alert.reason == "dependency: generate-monthly-report completed"


@pytest.mark.prove
async def test_without_the_report_nothing_is_extracted_or_compiled_and_somebody_is_alarmed(
    client: Client, shared_database_url: str, ledger: Ledger
):
    fires = await report(client, shared_database_url, ledger, fails=True)
    assert fires["generate-monthly-report"].status == "failed"
    assert fires["send-failure-alert"].status == "completed"
    skipped = {key: fire.reason for key, fire in fires.items() if fire.status == "skipped"}
    no_extract = "was skipped: dependency: generate-monthly-report failed"
    assert skipped == {
        "extract-sales-data": "dependency: generate-monthly-report failed",
        "extract-inventory-data": "dependency: generate-monthly-report failed",
        "compile-report": f"dependency: extract-sales-data {no_extract}",
    }
