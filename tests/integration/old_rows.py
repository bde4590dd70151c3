"""Ledgers with a past: rows written as of long ago, and what became of them afterwards."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.runtime.retention.archive import Archive
from engine.runtime.retention.janitor import Janitor
from engine.runtime.settings import Settings
from engine.schedules import load_schedules
from tests.reasons import code_of_sentence

SERVING = Serving("one", "default", "sched", frozenset({"noop@1"}))
NOW = datetime.now(UTC)
TODAY = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
_WRITE = """
INSERT INTO sched.fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
    windows, definition_version, workflow_id, workflow_type, task_queue, status, reason,
    reason_code, timing, run_id, started_at, closed_at, decided_at, error, kind, lost_at)
SELECT $7, 'default', $1, 1, extract(epoch FROM t)::bigint * 1000, t, t, 1, 1,
       'sched:' || $1 || ':' || CASE WHEN $6 = 'window' THEN '' ELSE $6 || ':' END
           || extract(epoch FROM t)::bigint * 1000,
       'noop@1', 'sched', $3, $4, $8, CASE WHEN $5 THEN 'on_time' END,
       CASE WHEN $5 THEN gen_random_uuid()::text END,
       CASE WHEN $5 THEN t + interval '250 milliseconds' END,
       CASE WHEN $5 AND $3 <> 'started' THEN t + interval '2 seconds' END, t,
       CASE WHEN $3 = 'failed' THEN 'boom' END, $6, CASE WHEN $3 = 'started' THEN t END
FROM unnest($2::timestamptz[]) AS t
"""
_RAN = {"completed", "failed", "cancelled", "terminated", "timed_out", "started"}


class Past:
    """A ledger whose rows are old, and a janitor for it."""

    def __init__(
        self, ledger: Ledger, url: str, archive: Path | None, namespace: str = "test"
    ) -> None:
        self.ledger, self.url, self.archive, self.namespace = ledger, url, archive, namespace
        self.heard: list[Any] = []
        self.serving = SERVING

    async def declare(self, text: str) -> None:
        await apply(self.ledger, load_schedules(text), by="test")
        await self.sql("UPDATE sched.schedules SET cursor = now() + interval '1 day'")

    async def sql(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        found: list[asyncpg.Record] = await self.ledger._connections.fetch(text, *arguments)
        return found

    async def had(self, key, moments, status="completed", reason=None, kind="window") -> None:
        """Write the rows of these windows, as they were left long ago."""
        ran = status in _RAN
        await self.sql(
            _WRITE, key, list(moments), status, reason, ran, kind, self.namespace,
            code_of_sentence(reason),
        )  # fmt: skip

    def janitor(self, **settings: Any) -> Janitor:
        keeps = None
        if self.archive is not None:
            keeps = Archive(self.archive, ledger_id="the-ledger", namespace=self.namespace)
        chosen = Settings(**{"retention_keep": 1, **settings})
        return Janitor(self.ledger, keeps, SERVING, chosen, on_event=self.heard.append)

    async def round(self, **settings: Any) -> None:
        """One whole round of a janitor that has just come up."""
        await finish(self.janitor(**settings))

    async def rows(self, key: str | None = None) -> list[asyncpg.Record]:
        return await self.sql(
            "SELECT * FROM sched.fires WHERE $1::text IS NULL OR key = $1 ORDER BY key, fire_time",
            key,
        )

    async def account(self) -> Counter[str]:
        """Windows by class: what the ledger has, and what the archive says has left it."""
        found: Counter[str] = Counter()
        rows = await self.rows()
        for row in rows:
            found[row["status"]] += row["windows"]
        here = {row["id"] for row in rows}
        gone = {line["id"]: line for line in self.lines() if line["removed"]}
        for number, line in gone.items():
            if number not in here:
                found[line["status"]] += line["windows"]
        return found

    async def counted(self) -> Counter[str]:
        """Windows by class, as the daily counts have them."""
        names = ("completed", "failed", "cancelled", "terminated", "timed_out", "skipped",
                 "expired", "rejected", "unvouched")  # fmt: skip
        sums = ", ".join(f"sum({name})::int AS {name}" for name in names)
        (row,) = await self.sql(f"SELECT {sums}, sum(open)::int AS started FROM sched.daily")
        return Counter({name: count for name, count in row.items() if count})

    def lines(self) -> list[dict[str, Any]]:
        if self.archive is None or not self.archive.is_dir():
            return []
        return [
            json.loads(line)
            for path in sorted(self.archive.rglob("*.jsonl.gz"))
            for line in gzip.decompress(path.read_bytes()).decode().splitlines()
        ]


async def finish(janitor: Janitor) -> None:
    """Let a janitor work until it rests."""
    for _ in range(10_000):
        if await janitor.run_once() >= timedelta(minutes=10):
            return
    raise AssertionError("the round never ended")


def hours(day: datetime, count: int = 24, *, every: timedelta = timedelta(hours=1)):
    return [day + every * number for number in range(count)]
