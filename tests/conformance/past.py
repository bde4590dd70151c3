"""Schedules that were declared long ago: their windows are in the past, and nobody waited."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from engine.ledger.fires import Claim, Fire, Outcome
from engine.runtime.apply.definitions import first_definition
from engine.runtime.settings import Settings
from engine.runtime.tick.backfills import Backfills
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.blind import BLIND
from tests.waiting import eventually

LEASE = timedelta(seconds=30)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def operator(bench):
    return ScheduleService(bench.ledger, actor="ops")


async def a_young_minute(bench) -> None:
    """Wait until no window of a whole minute opens in a test, or is a second old or less."""
    await eventually(lambda: 2 <= bench.now().second < 56)


async def declare_ago(
    bench,
    fields: str,
    age: timedelta,
    *,
    paused: bool = False,
    key: str = "k",
    workflow: str = "noop",
    workflow_type: str | None = "noop@1",
) -> datetime:
    """Declare a schedule as of so long ago, with nothing decided since; returns when."""
    await a_young_minute(bench)
    text = f"schedules: [{{key: {key}, workflow: {workflow}, {fields}}}]"
    (schedule,) = load_schedules(text).schedules
    then: datetime = bench.now().replace(microsecond=0) - age
    new = first_definition(schedule, then, project="default", workflow_type=workflow_type)
    async with bench.ledger.transaction(long=True) as transaction:
        await transaction.define([replace(new, paused=paused)], by="test")
    return then


async def declare_file_ago(bench, text: str, age: timedelta) -> None:
    """Declare a file as of so long ago, between two seconds, with nothing decided since."""
    await a_young_minute(bench)
    then = bench.now().replace(microsecond=500_000) - age
    new = [
        first_definition(schedule, then, project="default", workflow_type="noop@1")
        for schedule in load_schedules(text).schedules
    ]
    async with bench.ledger.transaction(long=True) as transaction:
        await transaction.define(new, by="test")


async def run_of(bench, claim: Claim, run_id: str = "run") -> str:
    """Let the claim's run start; returns its id."""
    now = bench.now()
    outcome = Outcome(claim.fire_id, claim.token, "started", "on_time", run_id, started_at=now)
    assert await bench.ledger.settle([outcome]) == 1
    return claim.workflow_id


async def taken(bench, limit: int = 10_000):
    """Take what is claimed and nobody sends yet, as a sweeper does."""
    return await bench.ledger.take_over(bench.serving, limit=limit, lease=LEASE)


def laying(bench, *, told=None, settings=None) -> Backfills:
    """What lays backfills for the bench's replica."""
    on_event = (lambda _: None) if told is None else told.append
    settings = settings or Settings(lease=LEASE, tick=timedelta(0))
    return Backfills(bench.ledger, bench.serving, settings, on_event=on_event, **BLIND)


async def lay(bench, limit: int = 1000, *, of: Backfills | None = None) -> list[Claim]:
    """Lay what can be laid now, so many windows at a time; returns the claims."""
    claims: list[Claim] = []
    of = of or laying(bench)
    while (await of.lay(claims, limit, None)).windows:
        await bench.ledger.wake()
    return claims


async def backfilled(bench, begin: datetime, end: datetime, key: str = "k", **options):
    """Ask for a backfill and lay it; returns it as it is then, and its claims."""
    asked = await operator(bench).backfill(key, begin, end, **options)
    claims = await lay(bench)
    (done,) = [each for each in await bench.ledger.backfills(key) if each.id == asked.backfill.id]
    return done, claims


async def windows(bench, key: str = "k") -> list[tuple[datetime, Fire]]:
    """Every window that has a row, and its row; a row of many counts for each of a minute."""
    fires = await bench.ledger.fires(key=key, limit=10_000)
    rows = [fire for fire in fires if ":manual:" not in fire.workflow_id]
    assert all(fire.fire_time + (fire.windows - 1) * MINUTE == fire.last_fire_time
               for fire in rows if fire.windows > 1)  # fmt: skip
    return sorted(
        (
            (fire.fire_time + number * MINUTE, fire)
            for fire in rows
            for number in range(fire.windows)
        ),
        key=lambda each: each[0],
    )
