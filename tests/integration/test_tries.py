"""Tries and retries of real runs: reported by their workers, or read from Temporal's histories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import temporalio.workflow
from temporalio import activity
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.workflow import unsafe

from engine import Context, Retry, step, workflow
from engine.ledger import Ledger
from engine.ledger.fires import Fire
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.runs import ends as run_ends
from engine.runtime.tracking import end_reader
from engine.schedules import load_schedules
from tests.waiting import eventually

with unsafe.imports_passed_through():  # the sandbox would load it for each run
    import pytest

FILE = """
schedules:
  - {key: lucky, workflow: tries-lucky, everyMs: 3600000}
  - {key: unlucky, workflow: tries-unlucky, everyMs: 3600000}
  - {key: again, workflow: tries-again, everyMs: 3600000}
  - {key: elsewhere, workflow: tries-elsewhere, everyMs: 3600000}
  - {key: plain, workflow: TriesPlain, everyMs: 3600000, external: true, taskQueue: plain}
"""
AT_ONCE = Retry(max_attempts=2, intervals=[0.01])


class CardDeclined(Exception):
    pass


@step(name="tries-charge", retry=AT_ONCE)
async def charge(times: int) -> None:
    if activity.info().attempt <= times:
        raise CardDeclined("no money")


@workflow(name="tries-lucky")
class Lucky:
    """Its step succeeds at the second attempt."""

    async def run(self, ctx: Context) -> None:
        await ctx.step(charge, 1)
        await ctx.step(charge, 0)


@workflow(name="tries-unlucky", retry=Retry(max_attempts=2, initial_interval=0.01))
class Unlucky:
    """Its step fails at both attempts, in both tries of the run."""

    async def run(self, ctx: Context) -> None:
        await ctx.step(charge, 9)


@workflow(name="tries-again", retry=Retry(max_attempts=2, initial_interval=0.01))
class Again:
    """Completes at its second try."""

    async def run(self, ctx: Context) -> None:
        await ctx.step(charge, 1)
        if temporalio.workflow.info().attempt == 1:
            raise CardDeclined("not yet")


@workflow(name="tries-elsewhere")
class Elsewhere:
    """Its step runs on a worker without the plugin."""

    async def run(self, ctx: Context) -> None:
        await ctx.step(charge, 1, task_queue="plain")


@activity.defn(name="tries-plain-charge")
async def plain_charge() -> None:
    if activity.info().attempt < 3:
        raise CardDeclined("no money")


@temporalio.workflow.defn(name="TriesPlain")
class TriesPlain:
    """An ordinary Temporal workflow, whose worker reports nothing."""

    @temporalio.workflow.run
    async def run(self) -> None:
        await temporalio.workflow.execute_activity(
            "tries-plain-charge", start_to_close_timeout=timedelta(seconds=9),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)),
        )  # fmt: skip


@pytest.fixture
async def ledger(client: Client, database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


async def counted(ledger: Ledger, key: str, status: str) -> Fire:
    """Wait until the newest fire of a key has all its counts."""

    async def found() -> Fire | None:
        fires = await ledger.fires(key=key)
        known = fires and fires[0].closed_at and None not in {fires[0].tries, fires[0].step_retries}
        return fires[0] if known else None

    fire: Fire = await eventually(found, timeout=30)
    assert fire.status == status
    assert fire.duration_ms is not None
    assert 0 < fire.duration_ms < 30_000
    return fire


@pytest.mark.prove
async def test_each_run_has_its_tries_and_retries(
    client: Client, database_url: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
):
    read: list[str] = []

    async def noted(of: Client, workflow_id: str, *rest: Any, **options: Any) -> Any:
        read.append(workflow_id)
        return await run_ends.read_counts(of, workflow_id, *rest, **options)

    monkeypatch.setattr(end_reader, "read_counts", noted)
    plugin = SchedulePlugin(
        load_schedules(FILE), database_url=database_url,
        settings=Settings(track=timedelta(milliseconds=200)),
    )  # fmt: skip
    plain = Worker(
        client, task_queue="plain", workflows=[TriesPlain], activities=[plain_charge, charge],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )  # fmt: skip
    ours = Worker(
        client, task_queue="sched", workflows=[Lucky, Unlucky, Again, Elsewhere],
        activities=[charge], plugins=[plugin],
    )  # fmt: skip
    async with plain, ours:
        lucky = await counted(ledger, "lucky", "completed")
        assert lucky.tries == 1

        async def reported() -> bool:
            fire = await ledger.fire(lucky.workflow_id)
            return fire is not None and fire.step_retries == 1

        await eventually(reported)
        of_plain = await counted(ledger, "plain", "completed")
        assert (of_plain.tries, of_plain.step_retries) == (1, 2)
        elsewhere = await counted(ledger, "elsewhere", "completed")
        assert (elsewhere.tries, elsewhere.step_retries) == (1, 1)
        again = await counted(ledger, "again", "completed")
        assert (again.tries, again.step_retries) == (2, 2)
        first, last = (await ledger.run_details(again.workflow_id)).tried
        assert (first.error, last.error) == ("CardDeclined: not yet", None)
        assert first.closed_at is not None
        assert first.started_at <= first.closed_at <= last.started_at
        unlucky = await counted(ledger, "unlucky", "failed")
        assert (unlucky.tries, unlucky.step_retries) == (2, 2)
    details = await ledger.run_details(unlucky.workflow_id)
    assert unlucky.run_id is not None
    asked = await run_ends.read_counts(client, unlucky.workflow_id, unlucky.run_id, Settings())
    assert asked.tried == details.tried, "what a command reads is what the ledger keeps"
    assert [each.number for each in details.tried] == [1, 2]
    assert {each.error for each in details.tried} == {"step tries-charge: CardDeclined: no money"}
    step_link, cause = details.failure[-2:]
    assert (step_link.step, step_link.attempt) == ("tries-charge", 2)
    assert (cause.type, cause.message) == ("CardDeclined", "no money")
    assert "in charge" in cause.stack
    assert lucky.workflow_id not in read, "its workers have reported"
