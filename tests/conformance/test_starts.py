"""Runs that applications start: each id once for ever."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from engine import Retry
from engine.errors import (
    EnqueueFailure,
    InputInvalid,
    LetterNotFound,
    MomentInPast,
    RetryPolicyInvalid,
    ScheduleError,
    ScheduleNotFound,
    StartInUse,
    StartInvalid,
    WorkflowUnknown,
)
from engine.ledger.fires import Evidence, Outcome
from engine.ledger.records import Serving
from engine.runtime.apply.code_check import _schema, announced_inputs
from engine.schedules.terms import ParsedId, Reason, parse_workflow_id
from engine.service import ScheduleService
from tests.conformance.past import LEASE, run_of, taken
from tests.sample_workflows import Noop, Order as TotalsOrder, Sleeps, Totals
from tests.waiting import eventually


@dataclass
class Order:
    id: str
    cents: int


@pytest.fixture
def service(bench) -> ScheduleService:
    return ScheduleService(bench.ledger, actor="shop")


async def ended(bench, claim, closed="failed") -> None:
    await run_of(bench, claim, f"run of {claim.workflow_id}")
    now = bench.now()
    seen = Evidence(
        claim.workflow_id, f"run of {claim.workflow_id}", now, closed=closed, closed_at=now
    )
    assert await bench.ledger.record_evidence([seen]) == [claim.workflow_id]


async def test_a_start_is_a_claim_that_any_worker_of_the_project_takes(bench, service):
    done = await service.start("noop", Order("7", 250), id="7")
    assert (done.new, done.workflow_id, done.fire.status) == (True, "sched:@noop:7", "claimed")
    assert done.waiting is None
    (claim,) = await taken(bench)
    assert (claim.workflow_id, claim.workflow_type) == ("sched:@noop:7", "noop@1")
    assert claim.arguments == ({"id": "7", "cents": 250},)
    assert (claim.key, claim.kind, claim.timing, claim.fresh) == ("@noop", "manual", "manual", True)
    assert await taken(bench) == []


async def test_the_same_start_again_returns_the_first_and_starts_nothing(bench, service):
    first = await service.start("noop", {"a": 1, "b": 2}, id="7")
    (claim,) = await taken(bench)
    await ended(bench, claim, "completed")
    again = await service.start("noop", {"b": 2.0, "a": 1}, id="7")
    assert (again.new, again.workflow_id, again.start) == (False, first.workflow_id, first.start)
    assert again.fire.status == "completed"
    assert await taken(bench) == []
    assert len(await bench.ledger.fires(key="@noop")) == 1


@pytest.mark.parametrize("other", [({"a": 2},), (None,), ()])
async def test_the_same_id_with_another_input_is_refused(bench, service, other):
    await service.start("noop", {"a": 1}, id="7")
    with pytest.raises(StartInUse, match="another input"):
        await service.start("noop", *other, id="7")
    assert len(await taken(bench)) == 1


async def test_an_input_that_the_code_cannot_take_is_refused_and_leaves_the_id_free(bench, service):
    service.check_inputs([Noop])
    with pytest.raises(InputInvalid, match=r"input.a: .*; the workflow noop@1 takes"):
        await service.start("noop", {"a": 1}, id="7")
    assert (await service.start("noop", {"a": "1"}, id="7")).new
    (claim,) = await taken(bench)
    await ended(bench, claim)
    with pytest.raises(InputInvalid):
        await service.rerun_dead("sched:@noop:7", own_input=([],))
    assert [each.workflow_id for each in await service.dead_letters()] == ["sched:@noop:7"]
    assert (await service.rerun_dead("sched:@noop:7", own_input=({"a": "2"},))).new


async def test_of_many_that_start_one_id_at_once_one_starts_it(bench, service):
    done = await asyncio.gather(*(service.start("noop", 1, id="7") for _ in range(8)))
    assert [each.new for each in done].count(True) == 1
    assert len({each.start for each in done}) == 1
    assert len(await taken(bench)) == 1


async def test_an_id_counts_for_its_workflow_whatever_the_version(bench, service):
    await bench.announce(Serving("r", "default", "sched", frozenset({"noop@2", "other@1"})))
    await service.start("noop@1", id="7")
    assert not (await service.start("noop@2", id="7")).new
    assert (await service.start("other", id="7")).new
    assert {claim.workflow_type for claim in await taken(bench)} == {"noop@1", "other@1"}


async def test_a_name_is_the_newest_version_and_a_class_is_its_own(bench, service):
    await bench.announce(Serving("r", "default", "sched", frozenset({"noop@10", "noop@9"})))
    for workflow, number in (("noop", "a"), ("noop@9", "b"), (Noop, "c")):
        await service.start(workflow, id=number)
    types = {claim.workflow_id[-1]: claim.workflow_type for claim in await taken(bench)}
    assert types == {"a": "noop@10", "b": "noop@9", "c": "noop@1"}


@pytest.mark.parametrize("start_id", ["a:b", ":", "order:2026:7", "rerun:1", "a:rerun:0", "x'\" y"])
async def test_an_id_with_colons_parses_back(bench, service, start_id):
    await service.start("noop", id=start_id)
    (claim,) = await taken(bench)
    name = claim.workflow_id
    assert parse_workflow_id(name) == ParsedId("@noop", start_id=start_id)
    assert parse_workflow_id(f"{name}:rerun:12:undo") == ParsedId(
        "@noop", start_id=start_id, rerun=12, handler="undo"
    )
    assert (await service.fire(name)).status == "starting"


@pytest.mark.parametrize("start_id", ["", "a:rerun:1", "a:undo", "a:dead", "a\n", "é", "x" * 201])
async def test_an_id_that_could_be_taken_for_another_is_refused(bench, service, start_id):
    with pytest.raises(StartInvalid, match="cannot have the id"):
        await service.start("noop", id=start_id)
    assert await bench.ledger.fires() == []


async def test_what_no_worker_knows_is_refused_and_leaves_the_id_free(bench, service):
    with pytest.raises(WorkflowUnknown, match="knows later; start a worker that has it"):
        await service.start("later", id="7")
    with pytest.raises(WorkflowUnknown, match=r"knows nop; did you mean noop\?"):
        await service.start("nop", id="7")
    with pytest.raises(StartInvalid, match="names no workflow"):
        await service.start("no name", id="7")
    await bench.announce(Serving("r", "default", "sched", frozenset({"later@1"})))
    assert (await service.start("later", id="7")).new


@pytest.mark.parametrize("given", [object(), float("nan"), "half \ud800", "\0"])
async def test_an_input_that_json_cannot_carry_is_refused(bench, service, given):
    with pytest.raises(ScheduleError):
        await service.start("noop", given, id="7")
    assert await bench.ledger.fires() == []


async def test_a_listener_is_woken_by_a_start(bench, service):
    woken = asyncio.Event()
    listening = asyncio.create_task(bench.ledger.listen(woken.set))
    async with asyncio.timeout(10):
        await woken.wait()  # it listens
        woken.clear()
        await service.start("noop", id="7")
        await woken.wait()
    listening.cancel()


async def test_a_start_of_a_project_without_a_worker_says_so(bench, service):
    done = await service.start("noop", id="7", project="shop")
    assert done.waiting is not None
    assert "no worker lives that serves project shop, task queue sched" in done.waiting
    with pytest.raises(EnqueueFailure, match="serves project shop"):
        await service.start("noop", id="7", project="shop", wait=0)
    assert await taken(bench) == [], "workers of another project do not send it"


async def test_who_waits_learns_that_a_start_has_not_begun_or_never_can(bench, service):
    with pytest.raises(EnqueueFailure, match="has not begun yet") as late:
        await service.start("noop", id="7", wait=0.05)
    assert (late.value.workflow_id, late.value.refused) == ("sched:@noop:7", False)
    (claim,) = await taken(bench)
    large = Reason("payload_too_large", "payload too large")
    await bench.ledger.settle([Outcome(claim.fire_id, claim.token, "rejected", reason=large)])
    with pytest.raises(EnqueueFailure, match="payload too large") as refused:
        await service.start("noop", id="7", wait=5)
    assert (refused.value.workflow_id, refused.value.refused) == ("sched:@noop:7", True)
    assert refused.value.reason_code == "payload_too_large"


async def test_who_waits_returns_when_the_run_has_begun(bench, service):
    waiting = asyncio.create_task(service.start("noop", id="7", wait=10))
    (claim,) = await eventually(lambda: taken(bench))
    await run_of(bench, claim)
    done = await waiting
    assert (done.new, done.fire.status) == (True, "started")


async def test_a_start_that_fails_is_a_dead_letter_and_runs_again_with_another_input(
    bench, service
):
    await service.start("noop", {"a": 1}, id="a:b")
    (claim,) = await taken(bench)
    await ended(bench, claim)
    (letter,) = await service.dead_letters()
    assert (letter.workflow_id, letter.arguments) == ("sched:@noop:a:b", ({"a": 1},))
    asked = await service.rerun_dead(letter.workflow_id, own_input=({"a": 2},), reason="fixed")
    assert asked.fire.workflow_id == "sched:@noop:a:b:rerun:1"
    assert await service.dead_letters() == []
    (claim,) = await taken(bench)
    assert (claim.arguments, claim.timing) == (({"a": 2},), "rerun")
    await ended(bench, claim, "timed_out")
    again = await service.rerun_dead("sched:@noop:a:b:rerun:1")
    assert again.fire.workflow_id == "sched:@noop:a:b:rerun:2"
    (claim,) = await taken(bench)
    assert claim.arguments == ({"a": 2},), "what failed is what runs again"
    assert [action.reason for action in await service.actions(key="@noop")] == [None, "fixed"]
    assert not (await service.start("noop", {"a": 1}, id="a:b")).new


async def test_of_two_who_run_a_failed_start_again_one_does(bench, service):
    await service.start("noop", id="7")
    await ended(bench, (await taken(bench))[0])
    found = await asyncio.gather(
        *(service.rerun_dead("sched:@noop:7") for _ in range(3)), return_exceptions=True
    )
    assert sum(isinstance(each, LetterNotFound) for each in found) == 2
    assert len(await taken(bench)) == 1


async def test_a_rerun_of_a_start_has_no_overlap(bench, service):
    await service.start("noop", id="7")
    await ended(bench, (await taken(bench))[0])
    with pytest.raises(ScheduleError, match="no overlap applies"):
        await service.rerun_dead("sched:@noop:7", overlap="skip")
    assert len(await service.dead_letters()) == 1


async def test_cancel_takes_the_id_of_a_start_or_all_of_a_workflow(bench, service):
    for number in "123":
        await service.start("noop", id=number)
    for claim in await bench.ledger.take_over(bench.serving, limit=2, lease=LEASE):
        await run_of(bench, claim)
    assert (await service.cancel("sched:@noop:1")).asked == ("sched:@noop:1",)
    rest = await service.cancel("@noop")
    assert (rest.asked, rest.already, rest.skipped, rest.retired) == (
        ("sched:@noop:2",), ("sched:@noop:1",), ("sched:@noop:3",), False,
    )  # fmt: skip
    await service.start("noop", id="4")
    assert [claim.workflow_id for claim in await taken(bench)] == ["sched:@noop:4"]


async def test_starts_are_no_schedule_that_can_be_listed_paused_or_triggered(bench, service):
    await service.start("noop", id="7")
    assert await service.schedules() == []
    assert (await service.schedule("@noop")).next_fire_at is None
    assert await bench.claim() == []
    for verb in (service.pause("@noop", reason=None), service.trigger("@noop")):
        with pytest.raises(ScheduleNotFound, match="each with its own call"):
            await verb


@pytest.mark.parametrize("when", ["at", "delay"])
async def test_a_start_for_a_moment_to_come_begins_then_and_not_before(bench, service, when):
    moment = bench.now() + timedelta(hours=1)
    given = {"at": {"at": moment}, "delay": {"delay": timedelta(hours=1)}}[when]
    done = await service.start("noop", id="7", **given)
    assert (done.fire.status, done.fire.fire_time) == ("claimed", moment)
    bench.wait(timedelta(minutes=59))
    assert await taken(bench) == []
    bench.wait(timedelta(minutes=1))
    assert [claim.workflow_id for claim in await taken(bench)] == ["sched:@noop:7"]
    again = await service.start("noop", id="7", **given)
    assert (again.new, again.start) == (False, done.start), "though its moment has passed"


async def test_a_start_for_a_moment_to_come_can_be_cancelled_before(bench, service):
    done = await service.start("noop", id="7", delay=60)
    assert (await done.cancel(reason="not needed")).skipped == ("sched:@noop:7",)
    bench.wait(timedelta(minutes=2))
    assert await taken(bench) == []


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, MomentInPast, "has passed"),
        ({"at": datetime(2090, 1, 1)}, ValueError, "is naive"),  # noqa: DTZ001
        ({"delay": -1}, ValueError, "a time from now on"),
        ({"at": datetime(2090, 1, 1, tzinfo=UTC), "delay": 1}, TypeError, "at and delay"),
        ({"priority": 6}, ScheduleError, "priority is 6"),
        ({"fairness": {"key": "a", "weight": 0}}, ScheduleError, "0.001 to 1000"),
        ({"retry": Retry(give_up_on=[ValueError])}, RetryPolicyInvalid, "give_up_on"),
        ({"timeout": "soon"}, ScheduleError, "timeout"),
        ({"memo": {"sched.x": 1}}, ScheduleError, "sched"),
        ({"owner_id": ""}, ScheduleError, "ownerId"),
        ({"prioirty": 1}, TypeError, "did you mean priority"),
    ],
)
async def test_an_option_of_a_start_that_is_wrong_is_refused_and_leaves_the_id_free(
    bench, service, given, error, said
):
    with pytest.raises(error, match=said):
        await service.start("noop", id="7", **given)
    assert await bench.ledger.fires() == []
    assert (await service.start("noop", id="7")).new


async def test_a_start_has_what_a_schedule_can_say_of_its_runs_and_so_has_its_rerun(bench, service):
    await service.start(
        "noop", id="7", priority=1, fairness="acme", timeout=90, memo={"order": 7},
        retry=Retry(max_attempts=3, initial_interval=2), search_attributes={"Tenant": "acme"},
        topic="orders", metadata={"a": 1}, tenant_id="acme",
    )  # fmt: skip
    await service.start("noop", id="8", timeout={"execution": "1h"}, fairness={"key": "b"})
    (first, second) = sorted(await taken(bench), key=lambda claim: claim.workflow_id)
    await ended(bench, first)
    await service.rerun_dead("sched:@noop:7")
    (again,) = await taken(bench)
    for schedule in (first.schedule, again.schedule):
        assert (schedule.priority, schedule.fairness.key, schedule.topic) == (1, "acme", "orders")
        assert (schedule.timeout.run, schedule.memo) == (timedelta(seconds=90), {"order": 7})
        assert (schedule.retry.tries, schedule.retry.initial) == (3, timedelta(seconds=2))
        assert schedule.metadata == {"a": 1, "tenantId": "acme"}
        assert schedule.search_attributes == {"Tenant": "acme"}
    assert (second.schedule.timeout.execution, second.schedule.priority) == (
        timedelta(hours=1), None,
    )  # fmt: skip


async def test_a_service_without_code_checks_an_input_by_what_workers_announced(bench, service):
    taking = announced_inputs([Totals, Sleeps, Noop])
    types = frozenset(taking)
    await bench.announce(Serving("r", "default", "sched", types, inputs=taking))
    for given, said in (
        (({"count": [1]},), r"input.count: \[1\] is not of type"),
        (({"count": "many"},), r"input.count: 'many' is not of type 'integer'"),
        (({"counts": 1},), "takes Order"),
        ((), "the workflow totals@1 needs an input"),
        (([1],), "input: .* is not of type 'object'"),
    ):
        if given == ({"counts": 1},):  # perhaps by another name: the run finds out
            assert (await service.start("totals", *given, id="alias")).new
            continue
        with pytest.raises(InputInvalid, match=said):
            await service.start("totals", *given, id="7")
    with pytest.raises(InputInvalid, match="sleeps@1 takes no input"):
        await service.start("sleeps", 1, id="7")
    assert (await service.start("totals", {"count": "3"}, id="7")).new, "as pydantic reads it"
    assert (await service.start("noop", {"a": "1"}, id="7")).new
    assert (await service.start("noop", None, id="8")).new
    with pytest.raises(InputInvalid, match="not valid under any"):
        await service.start("noop", {"a": {}}, id="9")


class Tags(BaseModel):
    tags: Annotated[list[str], BeforeValidator(str.split)]


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True, extra="forbid")
    order_id: int = Field(alias="orderId")


class Nested(BaseModel):
    named: Named | None = None
    limit: float = float("inf")


@pytest.mark.parametrize(
    ("kind", "given", "fits"),
    [
        (Tags, {"tags": "a b"}, True),
        (Named, {"order_id": 1}, True),
        (Named, {"orderId": 1}, True),
        (Named, {}, False),
        (Nested, {"named": {"order_id": 1}}, True),
        (Nested, {"named": None}, True),
    ],
)
async def test_what_pydantic_reads_is_never_refused_by_an_announcement(
    bench, service, kind, given, fits
):
    announced = {"takes": True, "needs": True, "schema": _schema(kind)}
    await bench.announce(
        Serving("r", "default", "sched", frozenset({"any@1"}), inputs={"any@1": announced})
    )
    if fits:
        kind.model_validate_json(json.dumps(given))
        assert (await service.start("any", given, id="7")).new
    else:
        with pytest.raises(InputInvalid, match="'orderId' is missing"):
            await service.start("any", given, id="7")


async def test_events_of_a_start_have_the_topic_of_its_options(bench, service):
    await service.declare_hook("https://hooks.example.com/a", secret="${env:HOOK}")  # noqa: S106
    await service.start("noop", id="7", topic="orders", tenant_id="acme")
    (claim,) = await taken(bench)
    await ended(bench, claim, "completed")
    await bench.ledger.events.place(100)
    events = await bench.ledger.events.newest(limit=9)
    of_run = [each for each in events if each.workflow_id == "sched:@noop:7"]
    assert of_run
    assert {each.schedule.topic for each in of_run} == {"orders"}
    assert "schedule.orders.arrived" in {name for each in of_run for name in each.names}


async def test_an_announcement_without_an_input_checks_nothing(bench, service):
    assert (await service.start("noop", [1, 2], id="7")).new


async def test_a_class_is_checked_without_being_told_of(bench, service):
    await bench.announce(Serving("r", "default", "sched", frozenset({"totals@1"})))
    with pytest.raises(InputInvalid, match=r"input\.count"):
        await service.start(Totals, {"count": "many"}, id="7")
    assert (await service.start(Totals, TotalsOrder(3), id="7")).new
