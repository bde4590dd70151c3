"""The example application on real servers: a model for tests of your own workflows.

The testing kit, a real Temporal server, a real database. Every run is replayed afterwards, so that
a workflow which is not deterministic fails its first test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import asyncpg
from temporalio.client import Client

from activities import example_data, invoicing, report_data, report_page
from engine import FireInfo
from engine.testing import DevServer, RunResult, fire_for, run_workflow
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
    return fire_for(key, fire_time, bucket=bucket, timezone=timezone)


@dataclass
class ExampleApp:
    client: Client
    server: DevServer
    database: str
    reports: Path
    steps: list[str] = field(default_factory=list)
    """The steps that the last run called, in this order."""

    async def run(self, workflow_type: str, window: FireInfo | None, *args: Any) -> Any:
        """Run a workflow to its end, as a schedule would (or by hand); returns its result."""
        ended = await self._ended(workflow_type, window, *args)
        assert ended.status == "completed", ended.error
        return ended.result

    async def failure(self, workflow_type: str, window: FireInfo | None, *args: Any) -> Any:
        """Run a workflow that fails; returns what its failing step, or it itself, raised."""
        ended = await self._ended(workflow_type, window, *args)
        assert ended.status == "failed", ended.result
        return ended.error

    async def rows(self, query: str, *args: object) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(self.database)
        try:
            return [tuple(row) for row in await connection.fetch(query, *args)]
        finally:
            await connection.close()

    def files(self) -> list[str]:
        return [path.name for path in self.reports.iterdir()]

    async def _ended(self, workflow_type: str, window: FireInfo | None, *args: Any) -> RunResult:
        ended = await run_workflow(
            workflow_type, *args, fire=window, server=self.server, workflows=WORKFLOWS, steps=STEPS
        )
        self.steps = list(ended.steps)
        return ended
