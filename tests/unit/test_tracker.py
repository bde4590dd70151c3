"""What was learned of closed runs, and when it is learned again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus

import engine.runtime.tracker
from engine.ledger import MemoryLedger
from engine.runtime.clock import LedgerClock
from engine.runtime.looking import Looker
from engine.runtime.settings import Settings
from engine.runtime.tracker import Tracker

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUN = SimpleNamespace(
    id="sched:k:manual:a", run_id="r1", status=WorkflowExecutionStatus.COMPLETED,
    start_time=NOW - timedelta(minutes=3), close_time=NOW - timedelta(minutes=2),
)  # fmt: skip


class Temporal:
    """One closed run."""

    def __init__(self) -> None:
        self.since: list[datetime] = []

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Any]:
        since = datetime.fromisoformat(query.split('"')[-2])
        self.since.append(since)
        if since <= RUN.close_time:
            yield RUN

    async def fire_of(self, _: object) -> object:
        return object()

    async def look(self, _: object) -> None:
        return


async def test_a_close_is_booked_once_and_once_more_after_a_sign_of_lost_commits(monkeypatch):
    booked: list[int] = []

    async def book(_: object, found: Sequence[object], **__: object) -> list[str]:
        booked.append(len(found))
        return []

    monkeypatch.setattr(engine.runtime.tracker, "book", book)
    temporal, doubts = Temporal(), SimpleNamespace(at=None)
    clock, ledger = LedgerClock(), MemoryLedger(clock=lambda: NOW)
    clock.observe(NOW)
    tracker = Tracker(
        cast("Any", temporal), ledger, clock, Settings(), looker=cast("Looker", temporal),
        replica="one", doubted_at=lambda: doubts.at, tell=print,
    )  # fmt: skip
    await ledger.hold_duty("tracker", "one", timedelta(minutes=1))
    await ledger.set_watermark("tracker", "one", NOW - timedelta(minutes=4))
    await tracker.turn()
    await tracker.turn()
    assert booked == [1, 0]
    doubts.at = NOW
    await tracker.turn()
    await tracker.turn()
    assert booked == [1, 0, 1, 0]
    assert temporal.since[-2] < RUN.close_time, "though the watermark had moved on"


async def test_a_doubt_is_not_forgotten_when_temporal_cannot_be_asked(monkeypatch):
    temporal, doubts = Temporal(), SimpleNamespace(at=NOW)
    clock, ledger = LedgerClock(), MemoryLedger(clock=lambda: NOW)
    clock.observe(NOW)
    tracker = Tracker(
        cast("Any", temporal), ledger, clock, Settings(), looker=cast("Looker", temporal),
        replica="one", doubted_at=lambda: doubts.at, tell=print,
    )  # fmt: skip
    doubts.at = NOW + timedelta(seconds=1)
    listed = temporal.list_workflows
    monkeypatch.setattr(temporal, "list_workflows", _away)
    with pytest.raises(OSError, match="away"):
        await tracker.turn()
    monkeypatch.setattr(temporal, "list_workflows", listed)
    monkeypatch.setattr(engine.runtime.tracker, "book", _nothing)
    await tracker.turn()
    assert temporal.since[-1] < NOW - timedelta(minutes=4)


def _away(*_: object, **__: object) -> None:
    raise OSError("away")


async def _nothing(*_: object, **__: object) -> list[str]:
    return []
