"""Runs with sealed inputs get them in plain, whether the replica that starts them has the codec."""

from __future__ import annotations

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.runtime.plugin import SchedulePlugin
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.conformance.test_sealed_inputs import CONVERTER
from tests.encrypted_team import MARKER, SealedEcho
from tests.waiting import eventually

TEAM = f"""
project: team
schedules:
  - {{key: echo, workflow: sealed-echo@1, external: true, taskQueue: team, everyMs: 86400000,
     firstFire: now, input: {MARKER}}}
"""


@pytest.mark.parametrize("codec", ["with", "without"])
async def test_a_run_gets_its_sealed_input_from_any_replica(
    client: Client, database_url: str, codec: str
):
    encrypting = await Client.connect(
        client.service_client.config.target_host,
        namespace=client.namespace,
        data_converter=CONVERTER,
    )
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    team = ScheduleService(ledger, actor="team", data_converter=CONVERTER)
    await team.apply(load_schedules(TEAM))
    plugin = SchedulePlugin(None, project="team", database_url=database_url)
    starter = encrypting if codec == "with" else client
    async with (
        Worker(encrypting, task_queue="team", workflows=[SealedEcho]),
        Worker(starter, task_queue="other", workflows=[SealedEcho], plugins=[plugin]),
    ):

        async def started():
            return [each for each in await ledger.fires(key="echo") if each.run_id]

        (fire,) = await eventually(started, timeout=30)
        assert await encrypting.get_workflow_handle(fire.workflow_id).result() == MARKER
    history = await client.get_workflow_handle(fire.workflow_id).fetch_history()
    assert MARKER not in history.to_json()
    await ledger.close()
