"""Replicas with other zone rules: older ones leave schedules alone, newer ones take them over."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.runtime.apply.edits import recompute_outdated
from engine.runtime.events import Alert
from engine.runtime.presence import Presence
from engine.runtime.settings import Settings
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import TIME_RULES, Pause
from engine.schedules.planner.planner import plan
from engine.testing.virtual_ledger import VirtualLedger, virtual_database
from tests.conformance.conftest import Bench
from tests.conformance.past import declare_ago

SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
OTHER = Serving("replica-b", "default", "sched", frozenset({"noop@1"}))
DAY = timedelta(days=1)


class Namespace:
    """Stands for a Temporal server that is away: the retention is not what is tested."""

    namespace = "test"

    class workflow_service:  # noqa: N801 - the client's name
        @staticmethod
        async def describe_namespace(*_arguments, **_options):
            raise RuntimeError("away")


FILE = load_schedules(
    'schedules: [{key: daily, workflow: noop, cron: "0 2 * * *", timezone: America/Sao_Paulo}]'
)


@pytest.fixture
async def url(postgres):
    async with virtual_database(postgres.url_of("postgres")) as made:
        yield made


@pytest.fixture
async def ledger(url, clock):
    clock.advance(30.5)  # no window opens at this moment
    opened = await VirtualLedger.open(url, clock, namespace="test")
    await opened.announce(SERVING, engine="0", tzdata="0", retention=DAY)
    await apply(opened, FILE, by="test")
    yield opened
    await opened.close()


@pytest.fixture
async def table(url):
    path = {"search_path": "sched, pg_catalog"}
    connection = await asyncpg.connect(url, server_settings=path)
    yield connection
    await connection.close()


async def due(ledger: Ledger) -> list[str]:
    async with ledger.transaction() as transaction:
        return await transaction.lock_due(SERVING, 10)


async def test_what_newer_rules_computed_is_left_to_those_who_have_them(ledger, table):
    await table.execute("UPDATE schedules SET next_fire_at = clock_timestamp() - interval '1 s'")
    assert await due(ledger) == ["daily"]
    await table.execute("UPDATE schedules SET rules = '9999/2099z'")
    assert await due(ledger) == []
    assert (await ledger.probe(SERVING)).due_at is None


async def test_what_older_rules_computed_is_computed_again_at_the_start(ledger, table):
    (row,) = await ledger.schedules()
    await table.execute("UPDATE schedules SET rules = '0000/1999a', next_fire_at = '2099-01-01Z'")
    assert await recompute_outdated(ledger, SERVING) == 1
    (after,) = await ledger.schedules()
    assert (after.next_fire_at, after.rules) == (row.next_fire_at, TIME_RULES)
    assert await recompute_outdated(ledger, SERVING) == 0


async def test_a_local_time_that_fired_by_older_rules_waits_for_the_next_day(ledger, table):
    """Tomorrow's 02:00 has fired already, by rules that held it for an earlier instant."""
    (row,) = await ledger.schedules()
    await table.execute(
        "UPDATE schedules SET rules = '0000/1999a',"
        " cursor = greatest(cursor, next_fire_at - interval '1 h'),"
        " cursor_reading = (next_fire_at AT TIME ZONE 'America/Sao_Paulo')"
    )
    await recompute_outdated(ledger, SERVING)
    (after,) = await ledger.schedules()
    assert after.next_fire_at == row.next_fire_at + DAY


async def test_a_pause_that_ended_while_no_worker_ran_is_left_whole_to_a_tick(ledger, table, clock):
    bench = Bench(ledger, clock)
    fields = "everyMs: 60000, firstFire: next, catchUp: {pause: all, max: 1000}"
    then = await declare_ago(bench, fields, timedelta(hours=10))
    until = then + timedelta(hours=9)
    async with ledger.transaction() as transaction:
        await transaction.pause("k", Pause(then, "x", "ops", until))
    await table.execute("UPDATE schedules SET rules = '0000/1999a' WHERE key = 'k'")
    assert await recompute_outdated(ledger, SERVING) == 0
    assert await ledger.fires(key="k") == []
    held = [claim for claim in await bench.claim() if claim.fire_time < until]
    assert len(held) == 540
    (row,) = await ledger.schedules(key="k")
    assert (row.pause, row.rules) == (None, TIME_RULES)


async def test_what_nobody_can_run_is_not_started_for_its_rules(ledger, table, clock):
    await declare_ago(
        Bench(ledger, clock),
        "everyMs: 60000, firstFire: next",
        timedelta(minutes=5),
        workflow="gone",
        workflow_type=None,
    )
    await table.execute("UPDATE schedules SET rules = '0000/1999a' WHERE key = 'k'")
    assert await recompute_outdated(ledger, SERVING) == 0
    (row,) = await ledger.schedules(key="k")
    assert row.error is None


async def test_schedules_that_stand_still_here_are_told_of_without_any_newer_replica(ledger, table):
    """As after a rollback: all replicas have the older rules, and nobody would fire."""
    await table.execute("UPDATE schedules SET rules = '9999/2099z'")
    heard: list[object] = []
    presence = Presence(Namespace(), ledger, SERVING, Settings(), on_event=heard.append)  # type: ignore[arg-type] # see there
    await presence.run_once()
    await presence.run_once()
    (alert,) = heard
    assert isinstance(alert, Alert)
    assert "1 schedules of project default were computed by newer rules" in alert.text


async def test_whether_schedules_stand_still_is_not_asked_at_every_heartbeat(ledger, monkeypatch):
    asked = []

    async def newer_rules(_ledger, project):
        asked.append(project)
        return 0, TIME_RULES

    monkeypatch.setattr(Ledger, "newer_rules", newer_rules)
    presence = Presence(Namespace(), ledger, SERVING, Settings(), on_event=print)  # type: ignore[arg-type] # see above
    for _ in range(3):
        await presence.run_once()
    assert asked == ["default"]


async def test_an_edit_by_other_rules_fires_no_local_time_again(ledger, table):
    """Whoever edits decides what is owed: by older rules 02:00 may seem to lie ahead."""
    (row,) = await ledger.schedules()
    await table.execute(
        "UPDATE schedules SET rules = '9999/2099z',"
        " cursor = greatest(cursor, next_fire_at - interval '1 h'),"
        " cursor_reading = (next_fire_at AT TIME ZONE 'America/Sao_Paulo')"
    )
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(["daily"])
    assert plan(state, row.next_fire_at, final=True).decisions == ()


async def test_a_schedule_that_cannot_be_read_does_not_stop_the_others(ledger, table):
    await table.execute("UPDATE definitions SET definition = '{}'")
    await table.execute("UPDATE schedules SET rules = ''")
    assert await recompute_outdated(ledger, SERVING) == 0


async def test_replicas_with_other_zone_rules_are_reported_once(ledger):
    heard: list[object] = []
    settings = Settings()

    presence = Presence(Namespace(), ledger, SERVING, settings, on_event=heard.append)  # type: ignore[arg-type] # see above
    await presence.run_once()
    assert heard == []
    await ledger.announce(OTHER, engine="0", tzdata="1999a", retention=DAY)
    await presence.run_once()
    await presence.run_once()
    (alert,) = heard
    assert isinstance(alert, Alert)
    assert alert.code == "SCHEDULE_TZDATA_DIFFERS"
    assert "1999a" in alert.text
    for heartbeat, others in ((timedelta(0), []), (DAY, ["1999a"])):
        await ledger.announce(OTHER, engine="0", tzdata="1999a", retention=DAY, heartbeat=heartbeat)
        assert await ledger.other_rules("default", alive=timedelta(0)) == others
