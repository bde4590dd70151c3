"""The slots of a lane in one replica: what may poll, what may begin, and what must end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest
from temporalio.worker import SlotReleaseContext

from engine.runtime.clock import boottime
from engine.runtime.steps.queues import SlotLost, SlotPool, SlotSupplier
from tests.waiting import eventually

LEASE = timedelta(seconds=30)
SHORT = timedelta(milliseconds=40)


class Asked:
    def __init__(self) -> None:
        self.times = 0
        self.book = SlotPool("sched/emails", "emails", self.want, patience=SHORT)

    def want(self) -> None:
        self.times += 1

    def answer(self, count: int, *, ago: float = 0.0) -> None:
        """The ledger has answered what was asked so many seconds ago."""
        self.book.hold(count, self.book.ask(), boottime() - ago, LEASE)


@pytest.fixture
def lane() -> Asked:
    return Asked()


async def test_nothing_polls_before_there_is_a_slot(lane: Asked):
    polling = asyncio.create_task(lane.book.reserve())
    await asyncio.sleep(0)
    assert lane.times == 1, "who waits lets the ledger be asked"
    assert lane.book.ask().wanted == 1
    lane.answer(1)
    await polling


async def test_a_slot_is_handed_on_without_asking_again(lane: Asked):
    lane.answer(1)
    await lane.book.reserve()
    asked, waiting = lane.times, asyncio.create_task(lane.book.reserve())
    lane.answer(1)
    await asyncio.sleep(0)
    assert not waiting.done()
    lane.book.release()
    await waiting
    assert lane.times == asked + 1


async def test_a_slot_that_a_thread_of_the_sdk_gives_back_is_handed_on_at_once(lane: Asked):
    asyncio.get_running_loop().set_debug(True)  # it finds out who else touches what is its own
    supplier, context = SlotSupplier(lane.book), cast("SlotReleaseContext", None)
    lane.answer(1)
    await lane.book.reserve()
    waiting = asyncio.create_task(lane.book.reserve())
    await asyncio.sleep(0)
    await asyncio.to_thread(supplier.release_slot, context)
    async with asyncio.timeout(5):
        await waiting


async def test_a_slot_given_back_after_the_worker_has_ended_is_nobodys_concern(lane: Asked):
    async def begun() -> SlotSupplier:
        return SlotSupplier(lane.book)

    supplier = await asyncio.to_thread(asyncio.run, begun())
    supplier.release_slot(cast("SlotReleaseContext", None))


async def test_who_was_told_that_there_are_no_more_does_not_ask_at_once(lane: Asked):
    waiting = [asyncio.create_task(lane.book.reserve()) for _ in range(2)]
    await asyncio.sleep(0)
    lane.answer(1)
    asked = lane.times
    waiting.append(asyncio.create_task(lane.book.reserve()))
    await asyncio.sleep(0)
    assert lane.times == asked
    for each in waiting:
        each.cancel()


async def test_a_step_that_came_by_an_older_poll_waits_for_a_slot(lane: Asked):
    lane.answer(0)
    began = asyncio.Event()

    async def step() -> None:
        async with lane.book.slot(can_be_ended=True):
            began.set()

    running = asyncio.create_task(step())
    # Longer than its patience, which is for a ledger that is out of reach only.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT.total_seconds() * 3):
            await began.wait()
    lane.answer(1)
    await running


async def test_no_more_steps_run_than_there_are_slots(lane: Asked):
    lane.answer(2)
    end, most = asyncio.Event(), 0

    async def step() -> None:
        nonlocal most
        async with lane.book.slot(can_be_ended=True):
            most = max(most, lane.book.running)
            await end.wait()

    steps = [asyncio.create_task(step()) for _ in range(5)]
    await eventually(lambda: lane.book.running == 2)
    end.set()
    await asyncio.gather(*steps)
    assert most == 2


async def test_a_step_is_ended_when_its_lease_is_over_unless_it_is_a_thread(lane: Asked):
    lane.answer(2)

    async def step(*, can_be_ended: bool) -> str:
        async with lane.book.slot(can_be_ended=can_be_ended):
            await end.wait()
        return "ended by itself"

    end = asyncio.Event()
    gentle = asyncio.create_task(step(can_be_ended=True))
    thread = asyncio.create_task(step(can_be_ended=False))
    await eventually(lambda: lane.book.running == 2)
    lane.book.give_up()
    await asyncio.sleep(0)
    assert not gentle.done(), "its lease still lasts"
    lane.answer(2, ago=LEASE.total_seconds() * 5 / 6)
    lane.book.give_up()
    with pytest.raises(SlotLost):
        await gentle
    end.set()
    assert await thread == "ended by itself"


async def test_nothing_begins_and_nothing_polls_on_slots_whose_lease_is_over(lane: Asked):
    lane.answer(2, ago=LEASE.total_seconds())
    polling = asyncio.create_task(lane.book.reserve())
    with pytest.raises(SlotLost):
        async with lane.book.slot(can_be_ended=True):
            pass
    assert not polling.done()
    polling.cancel()


async def test_a_cancel_by_the_run_stays_a_cancel(lane: Asked):
    lane.answer(1)

    async def step() -> None:
        async with lane.book.slot(can_be_ended=True):
            await asyncio.Event().wait()

    running = asyncio.create_task(step())
    await eventually(lambda: lane.book.running == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert lane.book.running == 0


async def reserved(lane: Asked, count: int) -> None:
    for _ in range(count):
        await lane.book.reserve()


async def test_what_is_given_back_is_out_of_use_before_the_ledger_hears_of_it(lane: Asked):
    lane.answer(3)
    await reserved(lane, 1)
    assert lane.book.ask().wanted == 1
    assert lane.book.held == 1, "two may be another's before the answer is here"
    waiting = asyncio.create_task(lane.book.reserve())
    await asyncio.sleep(0)
    assert not waiting.done()
    lane.answer(2)
    await waiting


async def test_an_ask_keeps_what_may_begin_before_its_answer_and_nothing_more(lane: Asked):
    lane.answer(3)
    await reserved(lane, 2)
    assert lane.book.ask().running == 2, "two poll, so two may begin"
    lane.answer(1)
    assert lane.book.ask().running == 1, "of a smaller queue only one may"


async def test_slots_beyond_a_smaller_queue_go_back_at_once_where_nothing_runs_on_them(
    lane: Asked,
):
    lane.answer(3)
    await reserved(lane, 2)
    asked = lane.times
    lane.answer(1)
    assert lane.times == asked + 1


async def test_an_ask_without_an_answer_gives_back_and_takes_nothing_that_is_used(lane: Asked):
    lane.answer(3)
    await reserved(lane, 1)
    waiting = [asyncio.create_task(lane.book.reserve()) for _ in range(3)]
    await asyncio.sleep(0)
    assert lane.book.ask().wanted == 4
    assert lane.book.held == 3, "the fourth may be ours, or not"
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    lane.book.release()
    lane.book.ask()
    waiting = [asyncio.create_task(lane.book.reserve())]
    await asyncio.sleep(0)
    assert not waiting[0].done(), "the third may be another's, or not"
    lane.answer(3)
    await waiting[0]


async def test_who_waits_while_slots_go_back_lets_the_ledger_be_asked_again(lane: Asked):
    waiting = [asyncio.create_task(lane.book.reserve()) for _ in range(2)]
    await asyncio.sleep(0)
    lane.answer(1)  # the queue is full: two were wanted
    await asyncio.sleep(0)
    waiting.pop().cancel()
    await asyncio.sleep(0)
    lane.book.release()
    asked = lane.times
    lane.book.ask()
    waiting.append(asyncio.create_task(lane.book.reserve()))
    await asyncio.sleep(0)
    assert lane.times == asked + 1
    for each in waiting:
        each.cancel()
