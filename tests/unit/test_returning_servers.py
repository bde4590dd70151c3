"""What a replica and a watch say of servers that have been away, and what they do not conclude."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceResponse
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from engine.cli.up.live_table import LinePrinter
from engine.errors import Code, LedgerUnavailable
from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.runtime import Settings
from engine.runtime.events import Alert, Degraded, Event, Notice, Recovered, ServerAway
from engine.runtime.presence import Presence
from engine.runtime.watch.watch import Watch
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger

BEGIN = datetime(2026, 11, 24, tzinfo=UTC)
SERVING = Serving("host:1:a", "default", "sched", frozenset())


async def nothing() -> str | None:
    return None


def watching(opened: Callable[[], Awaitable[Ledger]], told: list[Event]) -> Watch:
    return Watch(
        opened, Settings(), holder="it", apart=True, temporal=nothing, clock=lambda *_: None,
        namespace="default", on_event=told.append,
    )  # fmt: skip


async def test_nobody_is_called_vanished_because_the_ledger_was_away(
    virtual_ledger: VirtualLedger, clock: FrozenClock
):
    """Whoever announces itself only now could not do so before."""
    clock.move_to(BEGIN)
    await virtual_ledger.announce(SERVING, engine="0", tzdata="0", retention=None)
    away = True

    async def opened() -> Ledger:
        if away:
            raise LedgerUnavailable
        return virtual_ledger

    told: list[Event] = []
    watch = watching(opened, told)
    with pytest.raises(LedgerUnavailable):
        await watch.run_once()
    away = False
    clock.move_to(BEGIN + timedelta(minutes=1))
    await watch.run_once()
    clock.advance(19)
    await watch.run_once()
    assert told == []
    clock.advance(1)
    await watch.run_once()
    (alert,) = told
    assert isinstance(alert, Alert)
    assert alert.code is Code.REPLICA_VANISHED


async def test_a_worker_that_goes_silent_is_reported_within_three_heartbeats(
    virtual_ledger: VirtualLedger, clock: FrozenClock
):
    heartbeat, silent = Settings().heartbeat, timedelta(0)
    clock.move_to(BEGIN)
    await virtual_ledger.announce(
        SERVING, engine="0", tzdata="0", retention=None, heartbeat=heartbeat
    )

    async def opened() -> Ledger:
        return virtual_ledger

    told: list[Event] = []
    watch = watching(opened, told)
    pause = await watch.run_once()
    while not told and silent <= 3 * heartbeat:
        silent += pause
        clock.move_to(BEGIN + silent)
        pause = await watch.run_once()
    assert [event.code for event in told if isinstance(event, Alert)] == [Code.REPLICA_VANISHED]
    assert 2 * heartbeat < silent <= 3 * heartbeat


def describing(answers: list[Exception | None]) -> Client:
    async def describe_namespace(*_: Any, **__: Any) -> DescribeNamespaceResponse:
        if error := answers.pop(0):
            raise error
        return DescribeNamespaceResponse()

    service = SimpleNamespace(describe_namespace=describe_namespace)
    connection = SimpleNamespace(config=SimpleNamespace(target_host="localhost:7233"))
    return cast(
        "Client",
        SimpleNamespace(namespace="default", workflow_service=service, service_client=connection),
    )


async def test_a_replica_without_anything_to_start_says_that_temporal_is_away_and_back(
    virtual_ledger,
):
    gone = RPCError("no answer", RPCStatusCode.UNAVAILABLE, b"")
    refused = RPCError("not yours", RPCStatusCode.PERMISSION_DENIED, b"")
    answers: list[Exception | None] = [None, refused, gone, gone, None]
    told: list[Event] = []
    presence = Presence(
        describing(answers), virtual_ledger, SERVING, Settings(), on_event=told.append
    )
    while answers:
        await presence.run_once()
    assert [(type(event), getattr(event, "server", None)) for event in told] == [
        (Degraded, "temporal"), (Recovered, "temporal"),
    ]  # fmt: skip


async def test_a_replica_announces_how_often_it_does_so(virtual_ledger):
    settings = Settings(heartbeat=timedelta(minutes=1))
    await Presence(describing([None]), virtual_ledger, SERVING, settings, on_event=print).run_once()
    assert [seen.heartbeat for seen in (await virtual_ledger.facts()).replicas] == [
        settings.heartbeat
    ]


def test_where_the_log_has_every_event_only_sentences_are_printed_to_it(caplog, capsys):
    caplog.set_level(logging.INFO, "sched")
    printer = LinePrinter(logs=True)
    printer(Notice("of an event", good=True))
    printer(ServerAway("ledger", "db:1", "refused"))
    printer.log("draining")
    printer.log("it fell", "red")
    assert capsys.readouterr().out == ""
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "draining"), ("ERROR", "it fell"),
    ]  # fmt: skip
