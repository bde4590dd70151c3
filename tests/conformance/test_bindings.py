"""Bindings: a ledger belongs to one Temporal namespace, or to another if that one is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.errors import BoundElsewhere
from engine.ledger import Ledger
from engine.ledger.records import Serving, TemporalNamespace
from tests.conformance.conftest import Bench
from tests.conformance.past import HOUR, operator, run_of

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


async def test_a_move_leaves_nothing_open_and_says_what_may_have_run(bench, there):
    await bench.ledger.bind(OLD, by="test")
    await bench.declare(HOURLY.replace("]", ", {key: sent, workflow: noop, everyMs: 3600000}]"))
    claims = {claim.key: claim for claim in await bench.claim()}
    await run_of(bench, claims["k"])
    done = await operator(there).move(NEW)
    assert (done.moved_from, done.unvouched, done.lost) == (OLD.place, 1, 1)
    fires = {fire.key: fire for fire in await there.ledger.fires()}
    assert fires["sent"].status == "unvouched"
    assert fires["sent"].reason_code == "may_have_run"
    assert fires["k"].status == "started"
    assert (await there.ledger.bind(NEW, by="test")).number == 2
    bench.wait(HOUR)
    assert {claim.key for claim in await there.claim()} == {"sent", "k"}
    again = await operator(there).move(NEW)
    assert (again.moved_from, again.unvouched) == (None, 0), "nothing of the new one ends"
    with pytest.raises(BoundElsewhere):
        await bench.ledger.bind(OLD, by="test")


async def test_a_ledger_that_is_moved_back_goes_on_there_with_the_same_number(bench, there):
    await bench.ledger.bind(OLD, by="test")
    await operator(there).move(NEW)
    await operator(bench).move(OLD)
    assert (await bench.ledger.bind(OLD, by="test")).number == 1
    with pytest.raises(BoundElsewhere):
        await there.ledger.bind(NEW, by="test")
