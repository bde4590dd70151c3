"""``ctx.fire``: a run reads from its memo which window it stands for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from engine import FireInfo
from engine.flow import MEMO_KEY
from tests.fundamentals.samples import fires as samples

QUEUE = "fires"
FIRE = FireInfo(
    key="nightly-report",
    series=0,
    bucket=1795237200000,
    fire_time=datetime(2026, 11, 21, 5, tzinfo=UTC),
    timezone="America/Sao_Paulo",
    timing="late",
    definition_version=3,
    project="default",
    ledger="0b8f",
    token="t-1",  # noqa: S106 - a claim's number, not a secret
)


async def run(client: Client, workflow_type: str, memo: object = None, **options):
    async with Worker(client, task_queue=QUEUE, workflows=samples.ALL, **options):
        handle = await client.start_workflow(
            workflow_type,
            id="fire",
            task_queue=QUEUE,
            memo=None if memo is None else {MEMO_KEY: memo},
        )
        return await handle.result(), await handle.fetch_history()


async def test_a_run_reads_its_fire_from_its_memo(client: Client):
    result, history = await run(client, "tells-its-fire@1", FIRE.to_memo())
    assert result == ["nightly-report", "late", "2026-11-21T02:00:00-03:00"]
    replayed = await Replayer(workflows=samples.ALL).replay_workflow(history)
    assert replayed.replay_failure is None


async def test_it_does_so_too_where_the_worker_passes_the_engine_through(client: Client):
    through = SandboxRestrictions.default.with_passthrough_modules("engine")
    runner = SandboxedWorkflowRunner(restrictions=through)
    result, _ = await run(client, "tells-its-fire@1", FIRE.to_memo(), workflow_runner=runner)
    assert result == ["nightly-report", "late", "2026-11-21T02:00:00-03:00"]


async def test_a_child_has_the_window_of_its_parent_and_tries_of_its_own(client: Client):
    fire = replace(FIRE, metadata={"tenantId": "acme"}, retry_intervals=(3600.0,))
    result, _ = await run(client, "has-a-child-of-its-window@1", fire.to_memo())
    assert result == ["nightly-report", "acme", 2, []]


async def test_a_run_started_by_hand_can_tell(client: Client):
    assert (await run(client, "works-by-hand-too@1"))[0] == "by hand"
    assert (await run(client, "works-by-hand-too@1", {"v": 99}))[0] == "by hand"
    assert (await run(client, "works-by-hand-too@1", FIRE.to_memo()))[0] == "nightly-report"


async def test_asking_for_a_fire_that_is_not_there_fails_the_run_with_a_sentence(client: Client):
    with pytest.raises(WorkflowFailureError) as failure:
        await run(client, "tells-its-fire@1")
    assert "no schedule started the run 'fire'" in str(failure.value.cause)
    assert "ask ctx.scheduled first" in str(failure.value.cause)
