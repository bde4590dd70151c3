"""Schedules without a file: beside the workflow that they start, and given to the plugin."""

from __future__ import annotations

from temporalio.worker import Worker

from engine.ledger import Fire, Ledger
from engine.runtime import SchedulePlugin
from engine.schedules import Schedule
from tests.fundamentals.samples.declared import DeclaredReport
from tests.waiting import eventually


async def test_a_worker_fires_what_stands_beside_its_workflow_and_in_its_plugin(
    client, shared_database_url
):
    """Seed 002: schedules inline in the module's options."""
    given = Schedule(key="inline", workflow="declared-report", every="1d", input={"rows": 4})
    plugin = SchedulePlugin([given], project="shop", database_url=shared_database_url)
    ledger = await Ledger.connect(shared_database_url, namespace=client.namespace)

    async def both() -> dict[str, Fire]:
        fires = {fire.key: fire for fire in await ledger.fires() if fire.run_id}
        assert fires.keys() == {"declared-report", "inline"}
        return fires

    async with Worker(client, task_queue="sched", workflows=[DeclaredReport], plugins=[plugin]):
        fires = await eventually(both, timeout=30)
        results = {
            key: await client.get_workflow_handle(fire.workflow_id).result()
            for key, fire in fires.items()
        }
    assert results == {"declared-report": 3, "inline": 4}
    rows = await ledger.schedules()
    assert {row.key: (row.project, row.state) for row in rows} == {
        "declared-nightly": ("shop", "active"),
        "declared-report": ("shop", "active"),
        "declared-report-3": ("shop", "disabled"),
        "inline": ("shop", "active"),
    }
    await ledger.close()
