"""The example application on real servers: a model for tests of your own workflows.

A plain worker, a real Temporal server, a real database. Every run is replayed afterwards, so that
a workflow which is not deterministic fails its first test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError
from temporalio.worker import Replayer, Worker

from activities import example_data, invoicing, report_data, report_page
from engine import FireInfo
from engine.flow import MEMO_KEY
from workflows.cache_sync import CacheSync
from workflows.daily_report import DailyReport
from workflows.heartbeat import Heartbeat
from workflows.invoice_run import InvoiceRun

WORKFLOWS: Final = [CacheSync, Heartbeat, InvoiceRun, DailyReport]
STEPS: Final[list[Callable[..., Any]]] = [
    example_data.seed_orders,
    example_data.refresh_order_summary,
    example_data.record_beat,
    invoicing.draft_invoice,
    invoicing.reserve_credit,
    invoicing.release_credit,
    invoicing.charge_card,
    invoicing.refund_card,
    invoicing.notify_customer,
    invoicing.apologise,
    report_data.gather_day,
    report_page.write_report,
]
MORNING: Final = datetime(2026, 11, 21, 5, tzinfo=UTC)


def fire(
    key: str, bucket: int = 1, fire_time: datetime = MORNING, timezone: str = "UTC"
) -> FireInfo:
    """The window that a schedule would hand to a run."""
    return FireInfo(
        key=key,
        series=1,
        bucket=bucket,
        fire_time=fire_time,
        timezone=timezone,
        timing="on_time",
        definition_version=1,
        project="default",
        ledger="ledger-1",
        token="token-1",  # noqa: S106 - a claim's number, not a secret
    )


@dataclass
class ExampleApp:
    client: Client
    database: str
    reports: Path
    steps: list[str] = field(default_factory=list)
    """The steps that the last run called, in this order."""

    async def run(self, workflow_type: str, window: FireInfo | None, *args: Any) -> Any:
        """Run a workflow to its end, as a schedule would (or by hand); returns its result."""
        async with self._worker():
            handle = await self._start(workflow_type, window, *args)
            result = await handle.result()
            await self._replay(handle)
            return result

    async def failure(self, workflow_type: str, window: FireInfo | None, *args: Any) -> Any:
        """Run a workflow that fails; returns what its failing step, or it itself, raised."""
        async with self._worker():
            handle = await self._start(workflow_type, window, *args)
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
            await self._replay(handle)
            cause = failed.value.cause
            return cause.cause if isinstance(cause, ActivityError) else cause

    async def rows(self, query: str, *args: object) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(self.database)
        try:
            return [tuple(row) for row in await connection.fetch(query, *args)]
        finally:
            await connection.close()

    def files(self) -> list[str]:
        return [path.name for path in self.reports.iterdir()]

    def _worker(self) -> Worker:
        return Worker(self.client, task_queue="examples", workflows=WORKFLOWS, activities=STEPS)

    async def _start(
        self, workflow_type: str, window: FireInfo | None, *args: Any
    ) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            workflow_type,
            args=args,
            id=f"sched:{window.key}:{window.bucket}" if window else "by-hand",
            task_queue="examples",
            memo={MEMO_KEY: window.to_memo()} if window else None,
        )

    async def _replay(self, handle: WorkflowHandle[Any, Any]) -> None:
        history = await handle.fetch_history()
        replayed = await Replayer(workflows=WORKFLOWS).replay_workflow(history)
        assert replayed.replay_failure is None
        scheduled = (event.activity_task_scheduled_event_attributes for event in history.events)
        self.steps = [each.activity_type.name for each in scheduled if each.activity_id]
