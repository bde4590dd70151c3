"""Whoever listens to a replica hears of every window, also of those that will have no run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from logging import WARNING
from types import SimpleNamespace
from typing import TypeAlias, cast

import pytest
from rich.console import Console

from engine.cli.up.live_table import LinePrinter
from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.runtime import Poller, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.events import Decided, Event
from engine.runtime.presence import Presence, Watchdog
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import Pause
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from tests.blind import BLIND

BEGIN = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
LATER = BEGIN + timedelta(hours=1)
SERVING = Serving("one", "default", "sched", frozenset({"noop@1"}))
DISPATCHER = cast(
    "Dispatcher",
    SimpleNamespace(
        room=50, room_for_late=50, room_of=lambda *_: 50, send=lambda *_: [],
        breaker=SimpleNamespace(holds=False),
    ),
)  # fmt: skip


Declare: TypeAlias = Callable[[str], Awaitable[Ledger]]


@pytest.fixture
def declared(virtual_ledger: VirtualLedger, clock: FrozenClock) -> Declare:
    async def declare(text: str) -> Ledger:
        clock.move_to(BEGIN)
        await apply(virtual_ledger, load_schedules(text), by="test")
        keeps = timedelta(days=30)
        await virtual_ledger.announce(SERVING, engine="0", tzdata="0", retention=keeps)
        return virtual_ledger

    return declare


def said(event: Event) -> str:
    out = StringIO()
    LinePrinter(Console(file=out))(event)
    return out.getvalue()


async def test_windows_that_one_start_stands_for_are_told_with_their_number(declared, clock):
    ledger = await declared("schedules: [{key: often, workflow: noop, everyMs: 60000}]")
    told: list[Event] = []
    poller = Poller(
        ledger, DISPATCHER, LedgerClock(), SERVING, Settings(), **BLIND, on_event=told.append
    )
    await poller.tick()
    assert told == [], "its window was claimed"
    clock.move_to(LATER)
    await poller.tick()
    (event,) = told
    assert isinstance(event, Decided)
    (row,) = await ledger.fires(status="skipped")
    assert event.decision.windows == row.windows == 59
    assert said(event)[10:] == (
        f"often            59 windows up to 2026-11-21 11:29:00Z skipped: {row.reason}"
        f"  {row.workflow_id}\n"
    )


async def test_windows_that_nobody_can_start_are_told_with_their_number(declared, clock):
    text = 'schedules: [{key: typo, workflow: nop, cron: "* * * * *", timezone: America/Sao_Paulo}]'
    ledger = await declared(text)
    told: list[Event] = []
    presence = cast("Presence", SimpleNamespace(steady=timedelta(hours=1)))
    clock.move_to(LATER)
    await Watchdog(ledger, presence, SERVING, Settings(), on_event=told.append).run_once()
    alert, event = told
    assert isinstance(event, Decided)
    (row,) = await ledger.fires(status="rejected")
    assert event.decision.windows == row.windows == 58
    assert event.timezone == "America/Sao_Paulo"
    assert said(event) == "", "the line of the alert says it"
    assert "typo: 58 windows rejected" in said(alert)


async def test_windows_of_a_pause_that_nobody_serves_any_more_are_rejected_at_its_end(
    declared, clock
):
    """Their workflow is known, from a worker of before."""
    fields = "everyMs: 60000, firstFire: next, catchUp: {pause: all}"
    ledger = await declared(f"schedules: [{{key: k, workflow: noop, {fields}}}]")
    async with ledger.transaction() as transaction:
        until = LATER - timedelta(minutes=30)
        await transaction.pause("k", Pause(BEGIN, "x", "ops", until))
    clock.move_to(LATER)
    other = Serving("two", "default", "sched", frozenset({"other@1"}))
    told: list[Event] = []
    presence = cast("Presence", SimpleNamespace(steady=timedelta(hours=1)))
    await Watchdog(ledger, presence, other, Settings(), on_event=told.append).run_once()
    assert {fire.status for fire in await ledger.fires()} == {"rejected"}
    assert sum(fire.windows for fire in await ledger.fires()) == 58


async def test_days_off_are_one_quiet_line_of_the_log_and_what_was_missed_is_a_warning(
    caplog, declared, clock
):
    caplog.set_level("DEBUG", "sched")
    entry = "{key: %s, workflow: noop, everyMs: 60000, firstFire: next, exclude: [SAT]}"
    ledger = await declared(
        f"schedules: [{entry % 'a'}, {entry % 'b'}, {entry.replace(', exclude: [SAT]', '') % 'c'}]"
    )
    poller = Poller(ledger, DISPATCHER, LedgerClock(), SERVING, Settings(), **BLIND)
    clock.move_to(BEGIN + timedelta(days=1))
    await poller.tick()
    said = {record.levelname: record.getMessage() for record in caplog.records}
    assert said["INFO"] == "1618 windows of 2 schedules skipped, as excluded: a, b"
    assert "excluded: SAT" in said["DEBUG"]
    loud = [record.getMessage() for record in caplog.records if record.levelno >= WARNING]
    assert len(loud) == 3
    assert all("coalesced" in line for line in loud)


async def test_nothing_is_rejected_by_a_clock_that_is_not_trusted(declared, clock):
    ledger = await declared("schedules: [{key: typo, workflow: nop, everyMs: 60000}]")
    told: list[Event] = []
    presence = cast("Presence", SimpleNamespace(steady=timedelta(hours=1)))
    clock.move_to(LATER)
    wrong = [True, False]
    watching = Watchdog(
        ledger, presence, SERVING, Settings(), distrusts=lambda: wrong.pop(0), on_event=told.append
    )
    await watching.run_once()
    assert told == []
    await watching.run_once()
    assert await ledger.fires(status="rejected")


async def test_a_window_that_waits_in_the_queue_is_told_as_one(declared, clock):
    ledger = await declared(
        "schedules: [{key: often, workflow: noop, everyMs: 60000, maxConcurrentRuns: 1}]"
    )
    told: list[Event] = []
    poller = Poller(
        ledger, DISPATCHER, LedgerClock(), SERVING, Settings(), **BLIND, on_event=told.append
    )
    await poller.tick()
    clock.move_to(BEGIN + timedelta(seconds=60))
    await poller.tick()
    (event,) = told
    assert "1 window queued: it waits for its turn" in said(event)


@pytest.mark.parametrize(("takes", "wait"), [(0.01, 10), (2.0, 100)])
async def test_a_look_for_what_nobody_can_start_costs_a_fiftieth_of_the_time_at_most(
    monkeypatch, declared, takes, wait
):
    """Beside a transaction that stays open for half an hour it takes a second."""
    ledger = await declared("schedules: [{key: often, workflow: noop, everyMs: 60000}]")
    presence = cast("Presence", SimpleNamespace(steady=timedelta(hours=1)))
    moments = iter([100.0, 100.0 + takes])
    monkeypatch.setattr("engine.runtime.presence.boottime", lambda: next(moments))
    watching = Watchdog(ledger, presence, SERVING, Settings(), on_event=lambda _: None)
    assert (await watching.run_once()).total_seconds() == pytest.approx(wait)
