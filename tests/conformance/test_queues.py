"""Queues of steps and their slots."""

import asyncio
import itertools
from datetime import timedelta

import pytest

from engine.cli.status import _running
from engine.errors import KeyForeign
from engine.ledger.records import QueueUse, SlotAsk, key_lane
from tests.conformance.conftest import Bench
from tests.conformance.past import operator
from tests.slots import held_slots

LANE = "sched/emails"
LONG = timedelta(seconds=30)
SHORT = timedelta(milliseconds=50)
NUMBERS = itertools.count(1)
BODY = "\nschedules: [{key: a, workflow: noop, everyMs: 3600000}]"


async def declare(bench: Bench, queues: str, project: str = "default", key: str = "a"):
    body = BODY.replace("key: a", f"key: {key}")
    return await bench.declare(f"project: {project}\nqueues: {{{queues}}}{body}")


async def hold(
    bench: Bench, holder: str, wanted: int, *, running: int = 0, lease=LONG, take_over: bool = False
) -> int:
    ask = SlotAsk(LANE, "emails", running, wanted)
    held = await bench.ledger.hold_slots(
        holder, [ask], lease, take_over=take_over, number=next(NUMBERS)
    )
    return held.get(LANE, 0)


async def held_by(bench: Bench) -> dict[str, int]:
    return await held_slots(bench.ledger)


async def test_no_more_slots_are_held_than_the_queue_has(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    assert await hold(bench, "a", 3) == 3
    assert await hold(bench, "b", 3) == 2
    assert await hold(bench, "c", 3) == 0
    assert await held_by(bench) == {"a": 3, "b": 2}


async def test_many_who_ask_at_once_do_not_get_more_together(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    held = await asyncio.gather(*(hold(bench, f"replica-{each}", 2) for each in range(20)))
    assert sum(held) <= 5
    assert sum((await held_by(bench)).values()) == sum(held)


async def test_a_slot_that_is_not_wanted_any_more_is_free(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    await hold(bench, "a", 5)
    assert await hold(bench, "a", 2) == 2
    assert await hold(bench, "b", 5) == 3


async def test_a_call_that_arrives_late_gives_back_nothing_that_a_later_one_has_kept(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    late = next(NUMBERS)
    assert await hold(bench, "a", 5) == 5
    nothing = SlotAsk(LANE, "emails", 0, 0)
    await bench.ledger.hold_slots("a", [nothing], LONG, take_over=False, number=late)
    assert await hold(bench, "b", 5) == 0
    assert await hold(bench, "a", 5) == 5


async def test_a_lane_that_is_not_asked_for_any_more_is_given_back(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    await hold(bench, "a", 5)
    number = next(NUMBERS)
    assert await bench.ledger.hold_slots("a", [], LONG, take_over=False, number=number) == {}
    assert await held_by(bench) == {}


async def test_who_leaves_gives_back_everything(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    await hold(bench, "a", 5)
    await bench.ledger.give_back_slots("a")
    assert await hold(bench, "b", 5) == 5


async def test_a_slot_whose_lease_has_ended_is_taken_over(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    await hold(bench, "a", 5, lease=SHORT)
    bench.wait(2 * SHORT)
    assert await hold(bench, "b", 5, take_over=True) == 5
    assert await hold(bench, "a", 5) == 0, "the earlier holder must not renew what is another's"


async def test_who_was_out_of_touch_leaves_slots_to_their_holders(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    await hold(bench, "a", 5, lease=SHORT)
    bench.wait(2 * SHORT)
    assert await held_by(bench) == {}
    assert await hold(bench, "b", 5, take_over=False) == 0
    assert await hold(bench, "a", 5) == 5


async def test_a_lease_that_has_not_ended_is_not_taken_over(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    await hold(bench, "a", 5)
    assert await hold(bench, "b", 5, take_over=True) == 0


async def test_a_smaller_queue_lets_what_runs_end_and_nothing_begin(bench: Bench):
    await declare(bench, "emails: {concurrency: 5}")
    await hold(bench, "a", 4, running=4)
    await declare(bench, "emails: {concurrency: 2}")
    assert await hold(bench, "a", 5, running=4) == 2, "no third step may begin"
    assert await held_by(bench) == {"a": 4}, "what runs keeps its slots"
    assert await hold(bench, "b", 2) == 0
    await hold(bench, "a", 5, running=3)
    assert await held_by(bench) == {"a": 3}
    assert await hold(bench, "b", 2) == 0
    assert await hold(bench, "a", 1, running=1) == 1
    assert await hold(bench, "b", 2) == 1


async def test_what_runs_beyond_a_smaller_queue_counts(bench: Bench):
    await declare(bench, "emails: {concurrency: 4}")
    await hold(bench, "a", 2, running=2)
    await hold(bench, "b", 2, running=2)
    await declare(bench, "emails: {concurrency: 2}")
    await bench.ledger.give_back_slots("a")
    assert await hold(bench, "c", 2) == 0, "two run beyond the limit, which they fill"
    await hold(bench, "b", 1, running=1)
    assert await hold(bench, "c", 2) == 1


async def test_a_larger_queue_has_more_slots_at_once(bench: Bench):
    await declare(bench, "emails: {concurrency: 1}")
    await hold(bench, "a", 3)
    await declare(bench, "emails: {concurrency: 4}")
    assert await hold(bench, "a", 3) == 3
    assert await hold(bench, "b", 3) == 1


async def test_a_queue_that_nobody_declared_has_no_slots(bench: Bench):
    assert await hold(bench, "a", 3) == 0


async def test_a_queue_that_leaves_the_file_keeps_its_limits(bench: Bench):
    await declare(bench, "emails: {concurrency: 2, rate: 100/1m}")
    report = await bench.declare(BODY)
    assert report.queues == (
        (
            "queue emails is in no file any more; its limits continue to hold: concurrency 2,"
            " rate 100/1m"
        ),
    )
    assert await hold(bench, "a", 5) == 2
    async with bench.ledger.transaction() as transaction:
        (row,) = (await transaction.queues()).values()
    assert row.dropped_at is not None
    report = await declare(bench, "emails: {concurrency: 3}")
    assert report.queues == ("queue emails is back: concurrency 3",)


async def test_an_apply_says_what_changes_of_queues(bench: Bench):
    report = await declare(bench, "emails: {concurrency: 2}")
    assert report.queues == ("queue emails: concurrency 2",)
    report = await declare(bench, "emails: {rate: 5/1s}")
    assert report.queues == ("queue emails: rate 5/1s (was concurrency 2)",)


async def test_a_queue_of_another_project_cannot_be_declared(bench: Bench):
    await declare(bench, "emails: {concurrency: 2}")
    with pytest.raises(KeyForeign, match=r"queues of others: emails \(of default\)"):
        await declare(bench, "emails: {concurrency: 9}", project="other", key="b")
    assert await hold(bench, "a", 5) == 2


async def test_the_slots_of_a_key_are_apart_from_those_of_the_lane_and_of_other_keys(bench: Bench):
    await declare(bench, "emails: {concurrency: 5, perKey: 2}")

    async def ask(holder: str, **wanted: int) -> dict[str, int]:
        asks = [
            SlotAsk(key_lane(LANE, key), "emails", 0, number, of_key=True)
            for key, number in wanted.items()
        ]
        lane = SlotAsk(LANE, "emails", 0, 5)
        held = await bench.ledger.hold_slots(
            holder, [lane, *asks], LONG, take_over=False, number=next(NUMBERS)
        )
        return {key: held.get(key_lane(LANE, key), 0) for key in wanted} | {"": held.get(LANE, 0)}

    assert await ask("x", a=3, b=1) == {"a": 2, "b": 1, "": 5}
    assert await ask("y", a=1, b=3) == {"a": 0, "b": 1, "": 0}
    assert await ask("x", a=0, b=1) == {"a": 0, "b": 1, "": 5}
    assert await ask("y", a=1, b=1) == {"a": 1, "b": 1, "": 0}
    await declare(bench, "emails: {concurrency: 5}")
    assert await ask("x", a=1) == {"a": 0, "": 5}, "without a limit there are no slots of keys"


async def test_queues_are_shown_with_their_limits_and_what_runs_in_them(bench: Bench):
    await declare(bench, "emails: {concurrency: 5, perKey: 2}, slow: {rate: 10/1m}")
    await hold(bench, "a", 3)
    await hold(bench, "b", 1)
    shown = {row.queue: (str(row.limits), use) for row, use in await operator(bench).queues()}
    assert shown == {
        "emails": ("concurrency 5, perKey 2", [QueueUse("emails", "sched", 4)]),
        "slow": ("rate 10/1m", []),
    }
    running = [_running(row, use) for row, use in await operator(bench).queues()]
    assert running == [{"sched": 4}, None]
