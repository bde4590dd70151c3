"""A replica that sleeps is woken by what somebody asks for, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from engine.schedules import load_schedules
from tests.conformance.conftest import async_fixture
from tests.conformance.past import operator
from tests.waiting import eventually

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000}]"


class Ear:
    """How often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


@async_fixture
async def ear(bench) -> AsyncIterator[Ear]:
    heard = Ear()
    task = asyncio.create_task(bench.ledger.listen(heard.wake))
    await eventually(lambda: heard.woken == 1)  # for what was said while nobody listened
    yield heard
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_an_apply_that_changes_something_wakes_and_one_that_does_not_is_silent(bench, ear):
    await bench.declare(HOURLY)
    await eventually(lambda: ear.woken == 2)
    await bench.declare(HOURLY)
    await operator(bench).trigger("k")  # what was said before would come before
    await eventually(lambda: ear.woken >= 3)
    assert ear.woken == 3


@pytest.mark.parametrize("verb", ["trigger", "pause"])
async def test_every_verb_wakes(bench, ear, verb):
    await bench.declare(HOURLY)
    await eventually(lambda: ear.woken == 2)
    options = {"reason": "test"} if verb == "pause" else {}
    await getattr(operator(bench), verb)("k", **options)
    await eventually(lambda: ear.woken == 3)


async def test_a_tick_says_nothing(bench, ear):
    await bench.declare(HOURLY)
    await eventually(lambda: ear.woken == 2)
    claims = await bench.claim()
    await bench.ledger.take_over(bench.serving, limit=9, lease=claims[0].schedule.grace)
    await bench.ledger.probe(bench.serving)
    await operator(bench).pause("k", reason="what was said before would come before")
    await eventually(lambda: ear.woken >= 3)
    assert ear.woken == 3


async def test_what_was_taken_back_wakes_nobody(bench, ear):
    await bench.declare(HOURLY)
    await eventually(lambda: ear.woken == 2)
    with pytest.raises(RuntimeError, match="taken back"):
        await take_back(bench)
    await operator(bench).trigger("k")
    await eventually(lambda: ear.woken >= 3)
    assert ear.woken == 3


async def take_back(bench) -> None:
    async with bench.ledger.transaction() as transaction:
        await transaction.save_project(load_schedules(HOURLY), by="b")
        raise RuntimeError("taken back")
