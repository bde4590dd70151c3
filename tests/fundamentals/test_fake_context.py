"""``FakeContext``: a workflow called as a function, without any server."""

from __future__ import annotations

import asyncio
import inspect
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ActivityError

from engine import CompensationFailed, Context, EngineError, step, step_info, workflow
from engine.testing import (
    ContinuedAsNew,
    FakeContext,
    FrozenClock,
    ResultUnreadable,
    fail_once,
    fake,
    fire_for,
)
from tests.fundamentals.samples import handled
from tests.fundamentals.samples.parcels import (
    Order,
    Parcels,
    Receipt,
    give_back,
    send_parcel,
    take_money,
)

MORNING = datetime(2026, 11, 21, 5, tzinfo=UTC)


async def test_a_workflow_is_called_as_a_function():
    ctx = FakeContext(signals={"packed": [None]}, fakes=[fake(take_money, returns=Receipt("1"))])
    assert await ctx.run(Parcels, Order("A1")) == "parcel-A1"
    assert ctx.steps == ["take_money", "send_parcel"]


async def test_waiting_moves_the_clock_and_takes_no_time():
    ctx = FakeContext(fire_for("nightly", MORNING))
    with pytest.raises(TimeoutError):
        await ctx.run(Parcels, Order("A1"))
    assert ctx.now() == MORNING + timedelta(hours=4)
    await ctx.sleep_until(MORNING + timedelta(days=1))
    assert ctx.now() == MORNING + timedelta(days=1)


@workflow(name="fake-context-forgets")
class Forgets:
    async def run(self, ctx: Context) -> None:
        ctx.sleep(1)  # type: ignore[unused-coroutine] # mypy sees it as well


async def test_a_call_that_nobody_awaits_fails_the_test():
    with pytest.raises(TypeError, match=r"ctx\.sleep\(1\) was never awaited"):
        await FakeContext().run(Forgets)


async def test_a_run_that_fails_is_undone_and_keeps_its_error():
    lost = fake(send_parcel, raises=OSError("no paper"))
    refund = fake(give_back)
    ctx = FakeContext(signals={"packed": [None]}, fakes=[lost, refund])
    with pytest.raises(ActivityError) as failed:
        await ctx.run(Parcels, Order("A1"))
    assert str(failed.value.cause) == "OSError: no paper"
    assert refund.calls == [Order("A1")]


async def test_an_undo_that_fails_is_listed():
    ctx = FakeContext(fakes=[fail_once(give_back, OSError("the bank is away"))])
    with pytest.raises(CompensationFailed) as failed:
        await ctx.run(Parcels, Order("A1"))
    assert [lost.step for lost in failed.value.not_undone] == ["take_money"]


@step(name="fake-context-keys")
async def keys() -> tuple[str, str | None]:
    return step_info().idempotency_key, step_info().undoes


async def test_step_info_works_in_a_step_and_differs_by_call():
    ctx = FakeContext()
    first, second = await ctx.step(keys), await ctx.step(keys)
    assert first[0] != second[0]
    assert (await ctx.step(keys, idempotency_key="mine"))[0] == "mine"


async def test_inputs_and_results_pass_through_json_as_in_a_run():
    ctx = FakeContext(fakes=[fake(take_money, returns={"number": "7"})])
    assert await ctx.step(take_money, Order("A1")) == Receipt("7")
    order = Order("A1")
    seen = fake(take_money, lambda given: Receipt(str(given is order)))
    assert (await FakeContext(fakes=[seen]).step(take_money, order)).number == "False"


async def test_a_result_that_does_not_fit_is_no_failure_that_a_run_could_undo():
    undone = fake(give_back)
    ctx = FakeContext(fakes=[fake(take_money, returns={"sum": 7}), undone])
    with pytest.raises(ResultUnreadable, match="reads the result of the step take_money:"):
        await ctx.run(Parcels, Order("A1"))
    assert undone.calls == []


async def test_what_a_run_would_refuse_is_refused():
    with pytest.raises(TypeError, match="needs an input"):
        await FakeContext().step(take_money)  # type: ignore[arg-type] # the input is missing
    with pytest.raises(TypeError, match="cannot undo itself"):
        await FakeContext().step(take_money, Order("A1"), compensate=take_money)
    with pytest.raises(EngineError, match="waits for ever"):
        await FakeContext().wait_for("packed")
    with pytest.raises(EngineError, match=r"ctx\.scheduled"):
        _ = FakeContext().fire


@workflow(name="fake-context-parent")
class Parent:
    async def run(self, ctx: Context) -> list[Any]:
        return await ctx.parallel(
            [ctx.child(Parcels, Order("A1")), ctx.child("report@1", 7, result_type=str)], limit=1
        )


async def test_a_run_with_something_to_undo_continues_only_if_it_says_what_becomes_of_that():
    refunds = fake(handled.refund)
    ctx = FakeContext(fakes=[fake(handled.charge), refunds])
    with pytest.raises(EngineError, match="a bad end of this run would undo handled-charge, and"):
        await ctx.run(handled.Chain, [1, None])
    assert refunds.calls == ["run 1"]


@pytest.mark.parametrize("undo", ["carry", "commit"])
async def test_a_run_that_says_so_continues(undo: str):
    refunds = fake(handled.refund)
    with pytest.raises(ContinuedAsNew) as ended:
        await FakeContext(fakes=[fake(handled.charge), refunds]).run(handled.Chain, [1, undo])
    assert ended.value.input == [2, undo]
    assert refunds.calls == []


async def test_children_run_as_they_are_unless_something_stands_for_them():
    ctx = FakeContext(children={Parcels: "sent", "report@1": lambda n: f"report {n}"})
    assert await ctx.run(Parent) == ["sent", "report 7"]
    with pytest.raises(EngineError, match=r"nothing stands for the child report@1"):
        await FakeContext(children={Parcels: "sent"}).run(Parent)


async def test_chance_is_the_same_in_each_test():
    one, other = FakeContext(), FakeContext()
    assert (one.random().random(), one.uuid()) == (other.random().random(), other.uuid())


async def test_a_run_that_began_with_old_code_is_asked_for_by_name():
    ctx = FakeContext(unpatched=["send-twice"])
    assert not ctx.patched("send-twice")
    assert ctx.patched("something-else")


async def test_progress_is_kept_for_the_test():
    ctx = FakeContext()
    ctx.progress(3, 4, "nearly")
    assert "nearly" in ctx.told[0]


def test_it_has_every_member_of_the_context_with_the_same_signature():
    public = {name for name in vars(Context) if not name.startswith("_")}
    own = {name for name in vars(FakeContext) if not name.startswith("_")}
    # What needs nothing but other members is Context's own. What needs a server ends in one of its
    # private methods, each of which has a stand-in.
    needs_members = {
        "current",
        "scheduled",
        "sleep_until",
        "parallel",
        "race",
        "step",
        "child",
        "wait_for",
        "pending",
        "continue_as_new",
        "on_failure",
        "commit",
        "saga",
    }
    assert public - own <= needs_members
    private = {name for name in vars(Context) if re.fullmatch("_[a-z]+(_[a-z]+)*", name)}
    # Called around `run` by its decorator, not by a member.
    private -= {"_continue_again", "_next_wait", "_waits"}
    assert private == {
        "_read_fire", "_run_step", "_run_child", "_next_signal", "_count_signals", "_note_undo",
        "_forget_undos", "_continue", "_converter", "_unwind", "_unwind_scope",
    }  # fmt: skip
    assert private <= vars(FakeContext).keys()
    for name in public & own:
        theirs, ours = vars(Context)[name], vars(FakeContext)[name]
        if inspect.isfunction(theirs):
            assert _shape(ours) == _shape(theirs), name
        assert type(ours) is type(theirs), name


def _shape(fn: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(fn).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


def test_a_frozen_clock_stands_still_and_never_goes_back():
    clock = FrozenClock("2026-11-21T05:00Z")
    assert clock.now() == MORNING
    assert clock.advance(90) == MORNING + timedelta(seconds=90)
    assert clock.move_to(MORNING + timedelta(days=1)) == clock.now()
    with pytest.raises(ValueError, match="has passed"):
        clock.move_to(MORNING)
    with pytest.raises(ValueError, match="no timezone"):
        clock.move_to(datetime(2027, 1, 1))  # noqa: DTZ001 - what is refused


def test_a_fake_is_refused_that_could_not_work():
    with pytest.raises(TypeError, match="is not a step"):
        fake(print)
    with pytest.raises(TypeError, match="one of them"):
        fake(take_money, returns=1, raises=OSError())
    with pytest.raises(ValueError, match="two fakes"):
        FakeContext(fakes=[fake(take_money), fake(take_money)])


async def test_parallel_has_a_hundred_in_flight_and_takes_what_fails_as_a_result():
    ctx, flying, seen = FakeContext(), 0, []

    async def one(number: int) -> int:
        nonlocal flying
        flying += 1
        seen.append(flying)
        await asyncio.sleep(0)
        flying -= 1
        if number == 3:
            raise ValueError("three")
        return number

    found = await ctx.parallel((one(number) for number in range(150)), return_exceptions=True)
    assert max(seen) == 100
    assert repr(found[3]) == "ValueError('three')"
    assert found[4:] == [*range(4, 150)]
    assert await ctx.parallel(one(1), one(2)) == (1, 2)
    with pytest.raises(ValueError, match="three"):
        await ctx.parallel(one(1), one(3))


def test_help_shows_every_option_of_a_step():
    shown = str(inspect.signature(Context.step))
    for option in ("compensate", "retry", "deadline", "task_queue", "idempotency_key", "summary"):
        assert f"{option}: " in shown
