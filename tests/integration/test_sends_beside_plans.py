"""A sweeper begins to send what a plan under way has counted on giving up."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

import pytest

from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.runtime import schedule_lock
from engine.runtime.apply.apply import apply
from engine.runtime.schedule_lock import still_valid
from engine.schedules import load_schedules
from engine.schedules.planner.planner import plan
from engine.service import ScheduleService

SERVING = Serving("replica", "default", "sched", frozenset({"noop@1"}))
LEASE = timedelta(seconds=30)


@pytest.mark.parametrize("policy", ["cancel_previous", "terminate_previous"])
async def test_a_window_never_starts_beside_the_run_whose_place_it_takes(database_url, policy):
    ledger = await Ledger.connect(database_url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    file = f"schedules: [{{key: k, workflow: noop, everyMs: 3600000, overlap: {policy}}}]"
    await apply(ledger, load_schedules(file), by="test")
    before = (await ScheduleService(ledger, actor="test").trigger("k")).fire
    assert before.status == "claimed", "nobody has begun to send it"
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(await transaction.lock_due(SERVING, 10))
        step = plan(state, await transaction.now())
        assert [move.to for move in step.moves] == ["skip"]
        (taken,) = await ledger.take_over(SERVING, limit=10, lease=LEASE)
        assert taken.workflow_id == before.workflow_id
        assert await still_valid(transaction, [step]) == [], "what it gives up is on its way"
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(await transaction.lock_due(SERVING, 10))
        step = plan(state, await transaction.now())
        assert await still_valid(transaction, [step]) == [step]
        assert await transaction.record([step], owner="replica", lease=LEASE) == []
    statuses = {fire.workflow_id: fire.status for fire in await ledger.fires(key="k")}
    assert sorted(statuses.values()) == ["queued", "starting"], "it waits for the end of the other"
    await ledger.close()


async def test_what_a_plan_gives_up_is_taken_by_no_sweeper_before_it_is_written(database_url):
    ledger = await Ledger.connect(database_url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    file = "schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: cancel_previous}]"
    await apply(ledger, load_schedules(file), by="test")
    await ScheduleService(ledger, actor="test").trigger("k")
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(await transaction.lock_due(SERVING, 10))
        step = plan(state, await transaction.now())
        assert await still_valid(transaction, [step]) == [step]
        assert await ledger.take_over(SERVING, limit=10, lease=LEASE) == []
        assert len(await transaction.record([step], owner="replica", lease=LEASE)) == 1
    await ledger.close()


async def test_an_edit_gives_up_nothing_that_is_on_its_way(database_url):
    ledger = await Ledger.connect(database_url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    file = "schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: cancel_previous%s}]"
    await apply(ledger, load_schedules(file % ""), by="test")
    before = (await ScheduleService(ledger, actor="test").trigger("k")).fire

    async def later(transaction, steps):
        await ledger.take_over(SERVING, limit=10, lease=LEASE)
        return await still_valid(transaction, steps)

    with patch.object(schedule_lock, "still_valid", later):
        await apply(ledger, load_schedules(file % ", description: edited"), by="test")
    fires = {fire.workflow_id: fire.status for fire in await ledger.fires(key="k")}
    assert fires.pop(before.workflow_id) == "starting"
    assert [*fires.values()] == ["queued"], "it waits for the end of the other"
    await ledger.close()
