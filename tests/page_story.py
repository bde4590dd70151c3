"""A week of a small company in a ledger, for tests and pictures of the page.

``python -m tests.page_story`` serves it at a port and prints the address.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.embedded import PostgresServer
from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import Schedule, load_schedules
from engine.service import ScheduleService
from tests.postgres import Postgres
from tests.servers import shared_folder

SCRIPT = "<script>document.title = 'stolen'</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
FILE = (
    f"""
schedules:
  - {{key: cache.warm, workflow: warm_cache, cron: "H * * * *", overlap: skip}}
  - {{key: heartbeat, workflow: beat, every: 1m}}
  - {{key: invoices.nightly, workflow: invoices, cron: "0 2 * * *", timezone: America/Sao_Paulo}}
  - {{key: invoices.reminders, workflow: remind, cron: "30 9 * * MON-FRI", timezone: Europe/Berlin}}
  - {{key: ledger.reconcile, workflow: reconcile, cron: "15 */2 * * *", input: {{n: "{SCRIPT}"}}}}
  - {{key: orders.sync, workflow: sync_orders, every: 5m, overlap: skip}}
  - {{key: payments.settle, workflow: settle, cron: "5 * * * *", timezone: Europe/Berlin}}
  - {{key: prices.import, workflow: import_prices, every: 15m}}
  - {{key: report.weekly, workflow: report, cron: "0 6 * * MON", timezone: America/New_York}}
  - {{key: tax.spring, workflow: tax, cron: "30 2 28 3 *", timezone: Europe/Berlin}}
  - {{key: warehouse.vacuum, workflow: vacuum, cron: "0 4 * * SUN"}}
""".replace("every: 1m", "everyMs: 60000")
    .replace("every: 5m", "everyMs: 300000")
    .replace("every: 15m", "everyMs: 900000")
)
SERVED = ["warm_cache", "beat", "invoices", "remind", "reconcile", "sync_orders", "settle",
          "import_prices", "report", "tax", "vacuum"]  # fmt: skip
SECONDS = {"heartbeat": 0.2, "invoices.nightly": 840, "orders.sync": 41, "cache.warm": 12,
           "payments.settle": 95, "prices.import": 7, "ledger.reconcile": 260}  # fmt: skip
ERRORS = [
    "PaymentGatewayUnavailable: 503 from acquirer after 4 attempts",
    "psycopg.errors.LockNotAvailable: canceling statement due to lock timeout",
    f"ValueError: unexpected row {SCRIPT}",
]
_INSERT = """
INSERT INTO sched.fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
    kind, definition_version, workflow_id, workflow_type, task_queue, status, reason, timing,
    run_id,
    started_at, closed_at, error, dealt_at, followed_at, counted)
SELECT $1, 'default', key, 1, bucket, fire_time, fire_time, 'window', 1,
    'sched:' || key || ':' || bucket, workflow_type, 'sched', status, reason, timing, run_id,
    started_at, closed_at, error, dealt_at, fire_time, 'reported'
FROM jsonb_to_recordset($2::jsonb) AS f (key text, bucket bigint, fire_time timestamptz,
    workflow_type text, status text, reason text, timing text, run_id text,
    started_at timestamptz, closed_at timestamptz, error text, dealt_at timestamptz)
"""


@dataclass
class Story:
    """The story, told by ``rows``: the fires of the last days, from the definitions.

    Attributes:
        now: when it is told.
        days: how far it goes back.
    """

    now: datetime
    days: int = 7
    dice: random.Random = field(default_factory=lambda: random.Random(20))

    def rows(self, schedules: list[Schedule]) -> Iterator[dict[str, Any]]:
        """Yield the fires as they are inserted."""
        begin = self.now - timedelta(days=self.days)
        for schedule in schedules:
            times = [*schedule.spec.fires(begin, self.now - timedelta(seconds=5))][-2500:]
            for number, at in enumerate(times):
                yield self._row(schedule, at, is_last=number == len(times) - 1)

    def _row(self, schedule: Schedule, at: datetime, *, is_last: bool) -> dict[str, Any]:
        seconds = SECONDS.get(schedule.key, 30) * self.dice.lognormvariate(0, 0.35)
        lag = self.dice.expovariate(12)
        draw = self.dice.random()
        bad = {"payments.settle": 0.07, "ledger.reconcile": 0.04, "prices.import": 0.02}
        status, reason, error = "completed", None, None
        dealt: datetime | None = at
        if draw < bad.get(schedule.key, 0.002):
            status, error = "failed", self.dice.choice(ERRORS)
            dealt = None if self.now - at < timedelta(days=1) else at
        elif schedule.overlap == "skip" and draw > 0.975:
            status, reason = "skipped", f"overlap: the run of sched:{schedule.key} is open"
        elif is_last and schedule.key in {"orders.sync", "payments.settle"}:
            status = "started"
        started = None if status == "skipped" else at + timedelta(seconds=lag)
        closed = started + timedelta(seconds=seconds) if started and status != "started" else None
        if closed and closed > self.now:
            closed = self.now
        return {
            "key": schedule.key, "bucket": schedule.spec.bucket(at), "fire_time": at.isoformat(),
            "workflow_type": f"{schedule.workflow}@1", "status": status, "reason": reason,
            "timing": "on_time" if started else None,
            "run_id": f"run-{schedule.key}-{schedule.spec.bucket(at)}" if started else None,
            "started_at": started and started.isoformat(),
            "closed_at": closed and closed.isoformat(),
            "error": error, "dealt_at": dealt and dealt.isoformat(),
        }  # fmt: skip


async def tell(ledger: Ledger, url: str, *, days: int = 7) -> None:
    """Write the story into a ledger."""
    import asyncpg

    for task_queue in ("sched", "reports"):
        types = frozenset(f"{name}@1" for name in SERVED)
        serving = Serving(f"worker-{task_queue}:{4100 + days}:8f2c", "default", task_queue, types)
        await ledger.announce(serving, engine="0.1.0", tzdata="2026.1", retention=None)
    file = load_schedules(FILE)
    await apply(ledger, file, by="story")
    rows = [*Story(datetime.now(UTC), days).rows([*file.schedules])]
    connection = await asyncpg.connect(url, ssl=False)
    try:
        namespace = ledger.namespace
        await connection.execute(_INSERT, namespace, json.dumps(rows))
    finally:
        await connection.close()
    service = ScheduleService(ledger, actor="ann")
    await service.pause("invoices.reminders", reason=f"holidays, see {IMAGE}")


async def serve(port: int) -> None:
    """Serve the story until interrupted."""
    from engine.api.app import create_app, listening, serving
    from engine.api.requests import ApiOptions

    with shared_folder() as folder:
        server = PostgresServer(folder / "pg")
        await server.start()
        url = await Postgres(server.url_of("postgres")).create_database("story")
        ledger = await Ledger.connect(url, namespace="default", connections=5)
        await tell(ledger, url)
        app = create_app(ledger, ApiOptions(open_door=True, ui_url="http://127.0.0.1:8233"))
        place = listening("127.0.0.1", port)
        try:
            async with serving(app, place):
                sys.stdout.write(f"http://127.0.0.1:{place.getsockname()[1]}/\n")
                sys.stdout.flush()
                await asyncio.Event().wait()
        finally:
            await ledger.close()
            await server.stop()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
