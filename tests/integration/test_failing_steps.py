"""A step that keeps failing is told while its run is open, and named when the run has failed."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import asyncpg
import pytest
from temporalio.worker import Worker
from temporalio.workflow import unsafe

from engine import Context, Retry, step, workflow
from engine.ledger import UNREAD, Ledger
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.events import Alert, Notice
from engine.runtime.tracking import tracker
from engine.schedules import load_schedules
from tests.waiting import eventually

with unsafe.imports_passed_through():  # the sandbox would load it for each run
    import pytest

FILE = """
schedules:
  - {{key: {0}, workflow: failing-{0}, everyMs: 3600000}}
"""

works = asyncio.Event()


class CardDeclined(Exception):
    pass


@step(name="failing-charge")
async def charge() -> None:
    if not works.is_set():
        raise CardDeclined("no money\nand a second line")


@step(name="failing-silent", retry=Retry(max_attempts=1))
async def silent() -> None:
    raise CardDeclined


@workflow(name="failing-patient")
class Patient:
    async def run(self, ctx: Context) -> None:
        await ctx.step(charge, retry=Retry(max_attempts=50, intervals=[0.2]))
        await ctx.wait_for("go", timeout=timedelta(hours=1))


@workflow(name="failing-grandparent")
class Grandparent:
    async def run(self, ctx: Context) -> None:
        await ctx.child(Parent)


@workflow(name="failing-parent")
class Parent:
    async def run(self, ctx: Context) -> None:
        await ctx.child(Patient, id="patient")


@workflow(name="failing-child")
class Child:
    async def run(self, ctx: Context) -> None:
        await ctx.step(silent)


@workflow(name="failing-family")
class Family:
    async def run(self, ctx: Context) -> None:
        await ctx.child(Child)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are looked at after a second, instead of a minute."""
    monkeypatch.setattr(tracker, "VISIBILITY_LAG", timedelta(seconds=1))


def worker(client, database_url: str, key: str, told: list[object]) -> Worker:
    plugin = SchedulePlugin(
        load_schedules(FILE.format(key)), database_url=database_url, on_event=told.append,
        settings=Settings(track=timedelta(milliseconds=200), failing_attempts=2),
    )  # fmt: skip
    return Worker(
        client, task_queue="sched", workflows=[Patient, Family, Child, Grandparent, Parent],
        activities=[charge, silent], plugins=[plugin],
    )  # fmt: skip


async def looked_at(database_url: str) -> datetime:
    """When the tracker looked at the run last."""
    connection = await asyncpg.connect(database_url)
    moment: datetime = await connection.fetchval("SELECT open_at FROM sched.fires")
    await connection.close()
    return moment


async def looked_later(database_url: str, than: datetime) -> bool:
    return await looked_at(database_url) > than


async def test_it_is_told_once_and_in_the_ledger_until_it_succeeds(client, database_url, soon):
    works.clear()
    told: list[object] = []

    def alerts() -> list[Alert]:
        return [event for event in told if isinstance(event, Alert)]

    def over() -> list[Notice]:
        return [each for each in told if isinstance(each, Notice) and "failing-ch" in each.text]

    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    async with worker(client, database_url, "patient", told):
        (alert,) = await eventually(alerts, timeout=40)
        (fire,) = await ledger.failing()
        first = await looked_at(database_url)
        await eventually(lambda: looked_later(database_url, first), timeout=40)
        works.set()
        (notice,) = await eventually(over, timeout=60)
    assert await ledger.failing() == []
    await ledger.close()
    assert alerts() == [alert]
    assert alert.code == "SCHEDULE_STEP_FAILING"
    assert alert.text.startswith(
        f"{fire.workflow_id} (failing-patient@1, run {fire.run_id}):"
        " step failing-charge (failing-charge/1) has failed "
    )
    assert alert.text.endswith(": CardDeclined: no money")
    (step,) = fire.failing
    assert (step.step, step.place, step.run_id) == (
        "failing-charge",
        "failing-charge/1",
        fire.run_id,
    )
    assert step.attempts >= 2
    assert (step.max_attempts, step.error) == (50, "CardDeclined: no money")
    over_now = "step failing-charge (failing-charge/1) is not retried any more"
    assert notice.text.startswith(f"{fire.workflow_id}: {over_now}, after ")


@pytest.mark.prove
async def test_a_step_of_a_childs_child_is_told_with_the_run_of_the_schedule(
    client, database_url, soon
):
    works.clear()
    told: list[object] = []

    def alerts() -> list[str]:
        return [event.text for event in told if isinstance(event, Alert)]

    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    async with worker(client, database_url, "grandparent", told):
        (text,) = await eventually(alerts, timeout=40)
        (fire,) = await ledger.failing()
        works.set()
    await ledger.close()
    assert text.startswith(
        f"{fire.workflow_id} (failing-grandparent@1):"
        " step failing-charge (failing-charge/1) of the child patient has failed "
    )
    (step,) = fire.failing
    assert (step.child, step.step) == ("patient", "failing-charge")
    assert step.run_id != fire.run_id


async def test_the_failure_of_a_run_names_the_child_the_step_and_the_type_of_an_error_without_text(
    client, database_url
):
    ledger = await Ledger.connect(database_url, namespace=client.namespace)

    async def failed() -> list[str | None]:
        fires = await ledger.fires(status="failed")
        return [fire.error for fire in fires if fire.error != UNREAD]

    async with worker(client, database_url, "family", []):
        (error,) = await eventually(failed, timeout=40)
    await ledger.close()
    assert error == "child failing-child@1: step failing-silent: CardDeclined"
