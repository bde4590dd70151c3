"""What is bad stays alone: one definition, run, write or listener costs no other window a thing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest
import temporalio.workflow
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from engine.errors import Code, DefinitionUnreadable, LedgerUnavailable
from engine.ledger import Ledger
from engine.ledger.fires import Claim, Evidence
from engine.ledger.postgres import rows
from engine.ledger.records import Serving
from engine.runtime import Poller, SchedulePlugin, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.events import Alert, Event
from engine.schedules import load_schedules
from tests.blind import BLIND
from tests.sample_workflows import Noop
from tests.sealed import Sealed
from tests.waiting import eventually

PAIR = """
schedules:
  - {key: bad, workflow: noop, everyMs: 1000}
  - {key: good, workflow: noop, everyMs: 1000}
"""
QUICK = Settings(track=timedelta(milliseconds=500))
BEGIN = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
NO_TIME, LONG = timedelta(0), timedelta(hours=1)
UNREADABLE = "its definition cannot be read"


@temporalio.workflow.defn(name="BadByte", sandboxed=False)  # the sandbox would import pytest
class BadByte:
    """Fails with a text that PostgreSQL cannot hold."""

    @temporalio.workflow.run
    async def run(self) -> None:
        raise ApplicationError("bad \0 byte", non_retryable=True)


class Outbox:
    """Stands where the dispatcher would be, keeps what it is given and sends nothing."""

    def __init__(self, room: int = 50) -> None:
        self.room = room
        self.breaker = SimpleNamespace(holds=False)
        self.given: list[Claim] = []

    def send(self, claims: Sequence[Claim], lease_ends: float) -> list[asyncio.Task[None]]:
        self.given += claims
        return []

    def room_of(self, share: str, late: bool) -> int:  # noqa: FBT001 - as the dispatcher's
        return self.room

    @property
    def room_for_late(self) -> int:
        return self.room


def poller(ledger: Ledger, outbox: Outbox, *, lease: timedelta, **options: Any) -> Poller:
    serving = Serving("by-hand", "default", "sched", frozenset({"noop@1"}))
    settings = Settings(lease=lease)
    return Poller(ledger, cast("Dispatcher", outbox), LedgerClock(), serving, settings,
                  **{**BLIND, **options})  # fmt: skip


async def declare(ledger: Ledger, text: str) -> None:
    """Apply a file to a ledger in which somebody can run ``noop``."""
    serving = Serving("declares", "default", "sched", frozenset({"noop@1"}))
    await ledger.announce(serving, engine="0", tzdata="0", retention=timedelta(days=1))
    await apply(ledger, load_schedules(text), by="test")


def replica(client: Client, text: str, url: str, *workflows: type, **options) -> Worker:
    options = {"settings": QUICK, **options}
    plugin = SchedulePlugin(load_schedules(text), database_url=url, **options)
    return Worker(client, task_queue="sched", workflows=workflows or [Noop], plugins=[plugin])


async def closes(ledger: Ledger, key: str, count: int, since: datetime | None = None):
    """Wait until the key's first windows (after a moment) are closed, and it is known why."""

    async def closed():
        fires = [
            fire
            for fire in reversed(await ledger.fires(key=key, limit=500))
            if since is None or fire.fire_time > since
        ][:count]
        assert len(fires) == count
        assert not [each.workflow_id for each in fires if not each.closed_at or each.is_unread]
        return fires

    return await eventually(closed, every=0.1)


@pytest.fixture
async def ledger(client, database_url):
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


@pytest.fixture
async def database(database_url):
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    yield connection
    await connection.close()


async def make_unreadable(database: asyncpg.Connection, key: str) -> None:
    """Give the definition a field of some later version."""
    done = await database.execute(
        """UPDATE definitions SET definition = definition || '{"someday": "5m"}' WHERE key = $1""",
        key,
    )
    assert done == "UPDATE 1"


async def test_a_definition_nobody_here_can_read_backs_off_alone(
    client, database_url, ledger, database
):
    async with replica(client, PAIR, database_url):
        for key in ("bad", "good"):
            await closes(ledger, key, 1)
        await make_unreadable(database, "bad")
        poisoned_at = datetime.now(UTC)
        await closes(ledger, "good", 3, since=poisoned_at)

        async def backs_off():
            return await database.fetchval(
                "SELECT failures >= 2 AND next_fire_at > seen.now AND error LIKE $1 || '%'"
                " FROM schedules, (SELECT clock_timestamp() AS now) AS seen WHERE key = 'bad'",
                UNREADABLE,
            )

        await eventually(backs_off)
        bad, good = await ledger.schedules()
        assert UNREADABLE in (bad.error or "")
        assert (bad.key, bad.workflow, bad.schedule, good.error) == ("bad", "noop", None, None)


async def test_a_definition_nobody_here_can_read_stops_no_sweep_of_the_others(
    client, database_url, ledger, database
):
    text = PAIR.replace("everyMs: 1000", "everyMs: 86400000")
    await declare(ledger, text)
    left = await poller(ledger, Outbox(), lease=NO_TIME).tick()
    assert {claim.key for claim in left.claims} == {"bad", "good"}
    await make_unreadable(database, "bad")
    async with replica(client, text, database_url):
        (swept,) = await closes(ledger, "good", 1)
        assert swept.status == "completed"

        async def waits_for_somebody_who_can():
            (fire,) = await ledger.fires(key="bad")
            return fire.status == "starting" and UNREADABLE in (fire.error or "")

        await eventually(waits_for_somebody_who_can)


async def two_ticks(ledger: Ledger) -> tuple[list[Claim], list[Event]]:
    """Take the tick that leaves large definitions out, and the one after they were prepared."""
    events: list[Event] = []
    outbox = Outbox()
    by_hand = poller(ledger, outbox, lease=LONG, on_event=events.append)
    for _ in range(2):
        await by_hand.tick()
        await asyncio.gather(*by_hand._tasks.values())
    return outbox.given, events


LARGE = PAIR.replace("bad, ", f"bad, input: {'x' * 150_000}, ")


async def test_a_large_definition_nobody_here_can_read_backs_off_and_is_reported(ledger, database):
    await declare(ledger, LARGE)
    await make_unreadable(database, "bad")
    given, events = await two_ticks(ledger)
    assert {claim.key for claim in given} == {"good"}
    bad, _ = await ledger.schedules()
    assert UNREADABLE in (bad.error or "")
    (alert,) = [each for each in events if isinstance(each, Alert)]
    assert alert.code == Code.PLAN_FAILED


async def test_a_definition_that_is_too_large_to_be_kept_is_planned(ledger, monkeypatch):
    monkeypatch.setattr(rows, "_large", rows.Parsed(100_000))
    await declare(ledger, LARGE)
    given, _ = await two_ticks(ledger)
    assert {claim.key for claim in given} == {"bad", "good"}


async def test_a_foreign_run_with_an_unreadable_memo_is_rejected_and_hides_no_close(
    client, database_url, ledger, temporal
):
    text = PAIR.replace(
        "bad, workflow: noop, everyMs: 1000", "bad, workflow: noop, everyMs: 86400000"
    )
    schedule = load_schedules(text).schedules[0]
    opened = schedule.spec.previous(datetime.now(UTC))
    assert opened
    stranger = await Client.connect(
        temporal.address,
        namespace=client.namespace,
        data_converter=dataclasses.replace(DataConverter.default, payload_codec=Sealed()),
    )
    intruder = await stranger.start_workflow(
        "PlainWorkflow", id=f"sched:bad:{schedule.spec.bucket(opened)}", task_queue="elsewhere",
        memo={"sched": "mine"},
    )  # fmt: skip
    async with replica(client, text, database_url):

        async def rejected():
            return await ledger.fires(key="bad", status="rejected")

        (fire,) = await eventually(rejected)
        assert (fire.reason, fire.run_id) == ("foreign run", None)
        terminated_at = datetime.now(UTC)
        await intruder.terminate()
        await closes(ledger, "good", 4, since=terminated_at - timedelta(seconds=1))
        (fire,) = await ledger.fires(key="bad")
        assert (fire.status, fire.closed_at) == ("rejected", None)


async def test_a_failure_message_that_cannot_be_stored_costs_no_window_its_close(
    client, database_url, ledger
):
    text = PAIR.replace("bad, workflow: noop", "bad, workflow: BadByte")
    async with replica(client, text, database_url, Noop, BadByte):
        good, bad = await closes(ledger, "good", 4), await closes(ledger, "bad", 4)
    assert {fire.status for fire in good} == {"completed"}
    assert {(fire.status, fire.error) for fire in bad} == {("failed", "bad \ufffd byte")}


async def test_a_close_that_could_not_be_written_is_found_again(
    client, database_url, ledger, monkeypatch
):
    lost: list[Evidence] = []
    record_evidence = Ledger.record_evidence

    async def fails_once(self: Ledger, evidence: Sequence[Evidence]) -> list[str]:
        if not lost:
            lost.extend(evidence)
            raise LedgerUnavailable("the database restarts")
        return await record_evidence(self, evidence)

    monkeypatch.setattr(Ledger, "record_evidence", fails_once)
    async with replica(client, PAIR, database_url):
        await eventually(lambda: lost)

        async def written():
            fires = [await ledger.fire(seen.workflow_id) for seen in lost]
            return all(fire and fire.status == "completed" for fire in fires)

        await eventually(written)


async def test_a_listener_that_raises_does_not_end_the_worker(client, database_url, ledger):
    told: list[Event] = []

    def fails(event: Event) -> None:
        told.append(event)
        raise ValueError("a bug of the listener")

    async with replica(client, PAIR, database_url, on_event=fails) as worker:
        await closes(ledger, "good", 3)
        assert worker.is_running
        assert len(told) > 6  # it went on being told


async def test_a_worker_that_is_cancelled_is_shut_down_when_run_ends(client, database_url, ledger):
    worker = replica(client, PAIR, database_url)
    running = asyncio.create_task(worker.run())
    await closes(ledger, "good", 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert worker.is_shutdown


async def test_a_take_over_is_sent_although_claiming_fails_in_the_same_tick(ledger, monkeypatch):
    await declare(ledger, PAIR.replace("everyMs: 1000", "everyMs: 86400000"))
    first = await poller(ledger, Outbox(room=1), lease=NO_TIME).tick()
    (left,) = first.claims  # the other schedule is still due

    def away() -> None:
        raise LedgerUnavailable("the database restarts")

    monkeypatch.setattr(ledger, "transaction", away)
    outbox = Outbox()
    with pytest.raises(LedgerUnavailable):
        await poller(ledger, outbox, lease=LONG).tick()
    assert [claim.workflow_id for claim in outbox.given] == [left.workflow_id]


async def test_one_tick_claims_no_more_than_its_room_however_much_is_owed(clock, virtual_ledger):
    clock.move_to(BEGIN)
    entries = (f"  - {{key: k{n:02}, workflow: noop, everyMs: 1000}}" for n in range(50))
    await declare(virtual_ledger, "schedules:\n" + "\n".join(entries))
    clock.advance(55)
    outbox = Outbox(room=50)
    for turn in (1, 2):
        tick = await poller(virtual_ledger, outbox, lease=LONG).tick()
        assert (len(tick.claims), tick.full) == (50, True)
        assert len(outbox.given) == 50 * turn


async def test_an_edit_of_a_definition_nobody_here_can_read_is_refused_and_not_forgotten(
    client: Client, database_url: str
) -> None:
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    text = "schedules: [{key: bad, workflow: noop, everyMs: 60000}]"
    await apply(ledger, load_schedules(text), by="test")
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        """UPDATE sched.definitions SET definition = definition || '{"someday": "10m"}'"""
    )
    edited = load_schedules(text.replace("60000", "70000"))
    for _ in range(2):
        with pytest.raises(DefinitionUnreadable, match="bad"):
            await apply(ledger, edited, by="test")
    await connection.execute("UPDATE sched.definitions SET definition = definition - 'someday'")
    assert (await apply(ledger, edited, by="test")).changed == ("bad",)
    await connection.close()
    await ledger.close()
