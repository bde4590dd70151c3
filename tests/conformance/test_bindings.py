"""Bindings: a ledger belongs to one Temporal namespace, and a move crosses nothing over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.errors import BoundElsewhere
from engine.ledger import Ledger
from engine.ledger.records import Serving, TemporalNamespace
from engine.runtime.sealing import Sealing
from engine.runtime.tracking.follow_ups import follow
from engine.runtime.watch.conditions import WatchContext, judge
from tests.conformance.conftest import LEASE, Bench
from tests.conformance.past import HOUR, operator, run_of
from tests.conformance.test_dead_letters import end
from tests.conformance.test_watching import assert_the_view_agrees

DAY = timedelta(days=1)
OLD = TemporalNamespace("id-of-old", "cluster old at old:7233", DAY)
NEW = TemporalNamespace("id-of-new", "cluster new at new:7233", DAY)
HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: skip}]"
THERE = Serving("replica-there", "default", "sched", frozenset({"noop@1"}))


@pytest.fixture
def there(bench: Bench) -> Bench:
    """The same ledger, as a replica of another Temporal has it."""
    ledger = Ledger(bench.ledger._connections, bench.ledger.namespace)
    made = Bench(ledger, bench._clock)
    made.serving = THERE
    return made


async def begun(bench: Bench, there: Bench) -> None:
    """Belong to the old namespace; the bench is a replica of it."""
    await bench.ledger.bind(OLD, by="test")
    await bench.declare(HOURLY)


async def moved(bench: Bench, there: Bench) -> None:
    await operator(bench).move(NEW)
    await there.ledger.bind(NEW, by="test")
    await there.announce()


async def sweep(bench: Bench) -> list[str]:
    claims = await bench.ledger.take_over(bench.serving, limit=100, lease=LEASE)
    return [claim.workflow_id for claim in claims]


async def test_the_first_namespace_that_comes_is_the_ledgers_and_another_is_refused(bench, there):
    await bench.ledger.bind(OLD, by="test")
    with pytest.raises(BoundElsewhere, match="id-of-old; that of cluster new at new:7233 has"):
        await there.ledger.bind(NEW, by="test")
    elsewhere = replace(OLD, place="cluster promoted at cloud:7233")
    assert (await there.ledger.bind(elsewhere, by="test")).number == 1
    assert [each.number for each in await bench.ledger.bindings()] == [1]


async def test_of_two_namespaces_that_come_first_at_once_one_is_the_ledgers(bench, there):
    came = await asyncio.gather(
        bench.ledger.bind(OLD, by="a"), there.ledger.bind(NEW, by="b"), return_exceptions=True
    )
    assert sorted(isinstance(each, BoundElsewhere) for each in came) == [False, True]


async def test_after_a_move_only_the_workers_of_the_new_namespace_find_something_due(bench, there):
    await begun(bench, there)
    await moved(bench, there)
    assert (await bench.ledger.probe(bench.serving)).due_at is None
    assert await bench.claim() == []
    assert (await there.ledger.probe(THERE)).due_at is not None
    (claim,) = await there.claim()
    assert claim.key == "k"


async def test_a_fire_that_was_being_sent_at_the_move_is_swept_where_it_was_sent_alone(
    bench, there
):
    await begun(bench, there)
    (claim,) = await bench.claim()
    await moved(bench, there)
    bench.wait(LEASE + LEASE)
    assert await sweep(there) == []
    assert (await there.ledger.probe(THERE)).stale_at is None
    assert (await bench.ledger.probe(bench.serving)).stale_at is not None
    assert await sweep(bench) == [claim.workflow_id]


async def test_a_claim_that_was_not_sent_at_the_move_is_sent_at_the_new_namespace(bench, there):
    await begun(bench, there)
    requested = (await operator(bench).trigger("k")).fire.workflow_id
    await moved(bench, there)
    assert await sweep(bench) == []
    assert await sweep(there) == [requested]


async def test_a_run_at_the_old_namespace_is_in_the_way_of_windows_at_the_new_one(bench, there):
    await begun(bench, there)
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    await moved(bench, there)
    bench.wait(HOUR)
    assert await there.claim() == [], "overlap: skip counts runs of both"
    (newest, _) = await bench.ledger.fires(key="k")
    assert newest.reason_code == "overlap"


async def test_only_its_own_namespace_is_asked_about_a_run_and_can_lose_it(bench, there):
    await begun(bench, there)
    (claim,) = await bench.claim()
    run = await run_of(bench, claim)
    await moved(bench, there)
    await operator(bench).cancel("k")
    bench.wait(HOUR)
    now = bench.now()
    assert await there.ledger.open_runs(10, started_before=now) == []
    assert await there.ledger.lose([run], "unknown here") == []
    assert (await there.ledger.probe(THERE)).stop_at is None
    assert await there.ledger.take_stops(THERE, limit=10, lease=LEASE) == []
    assert (await bench.ledger.probe(bench.serving)).stop_at is not None
    (order,) = await bench.ledger.take_stops(bench.serving, limit=10, lease=LEASE)
    assert order.workflow_id == run
    (found,) = await bench.ledger.open_runs(10, started_before=now)
    assert found.workflow_id == run


async def test_a_close_leaves_nothing_open_and_says_what_may_have_run(bench, there):
    await bench.ledger.bind(OLD, by="test")
    await bench.declare(HOURLY.replace("]", ", {key: sent, workflow: noop, everyMs: 3600000}]"))
    claims = {claim.key: claim for claim in await bench.claim()}
    await run_of(bench, claims["k"])
    await moved(bench, there)
    (old, _) = (await operator(there).move(NEW)).bindings
    assert (old.open, old.current) == (2, False)
    async with there.ledger.transaction() as transaction:
        *first, more = await transaction.close_bindings(1)
    assert (sorted(first), more) == ([0, 1], True), "a part at a time"
    done = await operator(there).close_moved()
    assert [done.unvouched + first[0], done.lost + first[1]] == [1, 1]
    fires = {fire.key: fire for fire in await there.ledger.fires()}
    assert fires["sent"].status == "unvouched"
    assert fires["sent"].reason_code == "may_have_run"
    assert fires["k"].status == "started"
    bench.wait(HOUR)
    assert {claim.key for claim in await there.claim()} == {"sent", "k"}
    assert (await operator(there).close_moved()).unvouched == 0, "nothing of the new one ends"
    with pytest.raises(BoundElsewhere):
        await bench.ledger.bind(OLD, by="test")


@pytest.mark.parametrize("closed", [False, True])
async def test_a_follow_up_is_sent_where_its_run_was_or_once_that_is_closed_at_the_new_namespace(
    bench, there, closed
):
    await bench.ledger.bind(OLD, by="test")
    await bench.declare(HOURLY.replace("overlap: skip", "onDead: noop"))
    (claim,) = await bench.claim()
    run = await run_of(bench, claim)
    await moved(bench, there)
    await end(bench, run, "failed")
    await follow(there.ledger, Sealing(there.ledger), on_event=print)
    if closed:
        await operator(there).close_moved()
    bench.wait()
    swept = {each: await sweep(each) for each in (bench, there)}
    assert swept == {
        bench: [] if closed else [f"{run}:dead"],
        there: [f"{run}:dead"] if closed else [],
    }


async def test_a_ledger_that_is_moved_back_goes_on_there_with_the_same_number(bench, there):
    await begun(bench, there)
    await moved(bench, there)
    await operator(bench).close_moved()
    await operator(bench).move(OLD)
    assert (await bench.ledger.bind(OLD, by="test")).number == 1
    assert len(await bench.claim()) == 1
    assert await there.claim() == []


async def test_workers_of_the_old_namespace_are_no_reason_why_a_window_should_have_fired(
    bench, there
):
    await begun(bench, there)
    await operator(bench).move(NEW)
    bench.wait(HOUR / 2)
    await bench.announce()
    (late,) = judge(await bench.ledger.facts(), WatchContext()).conditions
    assert late.cause == "no_replica"
    await assert_the_view_agrees(bench.ledger, [late])
    report = await operator(bench).status()
    assert [(each.place, each.current) for each in report.bindings] == [
        (OLD.place, False), (NEW.place, True),
    ]  # fmt: skip


async def test_each_namespace_has_a_retention_of_its_own(bench, there):
    await begun(bench, there)
    (claim,) = await bench.claim()
    await bench.announce()
    await moved(bench, there)
    await there.announce(retention=timedelta(hours=1))
    bench.wait(LEASE + LEASE)
    (again,) = await bench.ledger.take_over(bench.serving, limit=10, lease=LEASE)
    assert (again.workflow_id, again.retention) == (claim.workflow_id, DAY)
