"""Resources: opened once per worker, given to steps, closed after the last of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker
from temporalio.workflow import unsafe

from engine import Context, EngineError, Retry, given, resource, step, workflow
from engine.errors import Code, ResourceFailed, ResourceMissing
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.runtime.apply.apply import apply
from engine.runtime.events import Alert, Degraded, Event, Recovered
from engine.runtime.steps.resources import WorkerResources
from engine.schedules import load_schedules
from engine.testing import DevServer, FakeContext, fail_once, run_workflow
from tests.fundamentals.replays import replay
from tests.fundamentals.samples import resources
from tests.fundamentals.samples.nightly_reports import NightlyRows, Reports
from tests.fundamentals.samples.resources import (
    EVENTS,
    RELEASED,
    Bank,
    Payment,
    Pool,
    UsesBank,
    UsesPool,
    bank,
    look,
    pool,
)
from tests.waiting import eventually

with unsafe.imports_passed_through():  # the sandbox would load it for each run
    import pytest

ANN = Payment("ann")


@pytest.fixture(autouse=True)
def afresh() -> None:
    EVENTS.clear()
    RELEASED.clear()
    Pool.made = 0


def worker_of(
    client: Client, plugin: SchedulePlugin | None = None, *, steps: Sequence[Any] = ()
) -> Worker:
    return Worker(
        client,
        task_queue="resources",
        workflows=resources.ALL,
        activities=steps or [*resources.FUNCTIONS, *resources.METHODS],
        plugins=[plugin or SchedulePlugin(None)],
        graceful_shutdown_timeout=timedelta(seconds=10),
    )


async def run(client: Client, workflow_type: str, *args: Any) -> Any:
    handle = await client.start_workflow(
        workflow_type, args=args, id=f"run-{workflow_type}", task_queue="resources"
    )
    try:
        return await handle.result()
    finally:
        await replay(client, handle, resources)


async def test_a_worker_opens_what_its_steps_need_once_and_closes_it_after_them(client: Client):
    async with worker_of(client):
        assert await run(client, "uses-pool@1", ANN) == [1, 1]
        assert await run(client, "uses-bank@1", [ANN]) == ["ann by pool 1 and 1", "1"]
    assert EVENTS == [
        "open pool", "open bank on pool 1", "pay ann", "close bank", "close pool",
    ]  # fmt: skip


async def test_nothing_is_opened_for_a_worker_whose_steps_need_nothing(client: Client):
    async with worker_of(client, steps=[needs_nothing]):
        pass
    assert EVENTS == []


async def test_a_resource_is_closed_only_when_the_last_step_of_a_draining_worker_has_ended(
    client: Client,
):
    worker = worker_of(client)
    running = asyncio.create_task(worker.run())
    await client.start_workflow("lingers@1", id="lingers", task_queue="resources")
    await eventually(lambda: "lingers" in EVENTS)
    stopping = asyncio.create_task(worker.shutdown())
    plain = client.get_workflow_handle("lingers")
    assert (await plain.describe()).raw_description.pending_activities
    RELEASED.set()
    await asyncio.gather(stopping, running)
    assert EVENTS[-3:] == ["lingered with pool 1", "close bank", "close pool"]


async def test_the_steps_of_a_queue_have_the_resources_of_their_worker(
    client: Client, shared_database_url: str
):
    ledger = await Ledger.connect(shared_database_url, namespace=client.namespace)
    await apply(ledger, load_schedules(QUEUES), by="test")
    async with worker_of(client):
        assert await run(client, "uses-queue@1") == [1, 1]
    await ledger.close()
    assert EVENTS.count("open pool") == 1
    assert EVENTS[-1] == "close pool"


async def test_the_methods_of_an_object_are_steps_and_undo_steps(client: Client):
    plugin = SchedulePlugin(None, steps=[Bank(Pool())])
    payments = [ANN, Payment("bob"), Payment("cid", cents=1000)]
    async with worker_of(client, plugin, steps=[look]):
        with pytest.raises(WorkflowFailureError) as failure:
            await run(client, "uses-bank@1", payments)
    assert "too much" in str(failure.value.cause.__cause__)
    assert "open bank on pool 2" not in EVENTS
    assert [each for each in EVENTS if "pool" not in each] == [
        "pay ann", "pay bob", "pay cid", "give back cid", "give back bob", "give back ann",
    ]  # fmt: skip


async def test_a_subclass_may_have_its_own_way_of_a_step():
    class Careful(Bank):
        async def pay(  # type: ignore[override] # it is no step of its own
            self, payment: Payment, *, pool: Pool = given()
        ) -> str:
            return f"{payment.customer} later"

    [pay] = WorkerResources(objects=[Careful(Pool())]).serve([Bank.pay])[:1]
    with pytest.raises(EngineError, match="the resource pool is not open"):
        await pay(ANN)
    [pay] = WorkerResources({Pool: Pool()}, objects=[Careful(Pool())]).serve([Bank.pay])[:1]
    assert await pay(ANN) == "ann later"


async def test_an_application_gives_what_it_has_opened_itself_and_closes_it_itself(client: Client):
    own = Pool()
    async with worker_of(client, SchedulePlugin(None, resources={pool: own}), steps=[look]):
        pass
    plugin = SchedulePlugin(None, resources={Pool: own})
    async with worker_of(client, plugin, steps=[look, *resources.METHODS]):
        assert await run(client, "uses-bank@1", [ANN]) == ["ann by pool 1 and 1", "1"]
    assert EVENTS == ["open bank on pool 1", "pay ann", "close bank"]


async def test_the_class_that_the_docs_translate_runs(server: DevServer):
    run = await run_workflow(
        NightlyRows, server=server, workflows=[NightlyRows],
        steps=[Reports.gather_yesterday, Reports.email],
    )  # fmt: skip
    assert run.result == {"rows": 2}
    assert run.steps == ("Reports.gather_yesterday", "Reports.email")


# --- what cannot work ---


class Widget:
    @step(name="turn-widget")
    async def turn(self) -> None: ...


class Banks: ...


@step
async def needs_nothing() -> None: ...


@step
async def needs_banks(*, banks: Banks = given()) -> None: ...


class Lake: ...


@resource
async def lake(banks: Banks) -> AsyncIterator[Lake]:
    yield Lake()


@step
async def swim(*, lake: Lake = given(lake)) -> None: ...


@step
async def dive(*, lake: Lake = given(lake)) -> None: ...


class Patient:
    @step(name="wait-patiently", retry=Retry(max_attempts=2))
    async def wait(self, *, pool: Pool = given(pool)) -> int:
        return pool.number


@workflow
class IsPatient:
    async def run(self, ctx: Context) -> int:
        return await ctx.step(given(Patient).wait)


@workflow
class NeedsBanks:
    async def run(self, ctx: Context) -> None:
        await ctx.step(needs_banks)


@step
async def needs_number(*, number: float = given()) -> None: ...


@resource
async def left() -> AsyncIterator[float]:
    yield 1.0


@resource
async def right() -> AsyncIterator[float]:
    yield 2.0


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        (
            needs_banks,
            (
                r"\.py:\d+: the step needs_banks asks for \S+Banks \(banks\), and no @resource of"
                r" this worker yields one; did you mean bank \(\S+Bank\)\?"
            ),
        ),
        (
            needs_number,
            (
                r"asks for float \(number\), and several resources fit: left \(\S+:\d+\), right"
                r" \(\S+:\d+\); name one: number=given\(\.\.\.\)"
            ),
        ),
        (
            Widget.turn,
            (
                r"\.py:\d+: the step turn-widget is a method of Widget, and no object of Widget is"
                r" here; yield one from an @resource, or give it:"
                r" SchedulePlugin\(steps=\[Widget\(\.\.\.\)\]\)"
            ),
        ),
    ],
    ids=["no resource", "two resources", "no object"],
)
async def test_a_worker_that_lacks_something_is_refused_and_the_step_named(
    client: Client, missing: Callable[..., Any], sentence: str
):
    with pytest.raises(ResourceMissing, match=sentence) as refused:
        worker_of(client, steps=[missing])
    assert refused.value.code == "SCHEDULE_RESOURCE_MISSING"


def test_resources_that_need_each_other_are_refused():
    class Hen: ...

    class Egg: ...

    # `given` takes a function, which the first of the two cannot name yet.
    async def hen(egg: Any) -> AsyncIterator[Hen]:
        yield Hen()

    async def egg(hen: Any) -> AsyncIterator[Egg]:
        yield Egg()

    hen.__annotations__ = {"egg": Egg, "return": AsyncIterator[Hen]}
    egg.__annotations__ = {"hen": Hen, "return": AsyncIterator[Egg]}
    resource(hen)
    resource(egg)

    async def hatch(*, egg: Any = given(egg)) -> None: ...

    with pytest.raises(ResourceMissing, match="resources need each other: egg -> hen -> egg"):
        WorkerResources().serve([step(hatch)])


class Flaky: ...


FAILURES: list[BaseException] = []


class Watched:
    broken: ClassVar[list[asyncio.Event]] = []


@resource
async def watched() -> AsyncIterator[Watched]:
    broken = asyncio.Event()

    async def watch() -> None:
        await broken.wait()
        raise ConnectionError("the other side has gone")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        Watched.broken.append(broken)
        yield Watched()
        task.cancel()


@step
async def uses_watched(*, watched: Watched = given()) -> None: ...


@resource(timeout=5)
async def flaky(pool: Pool) -> AsyncIterator[Flaky]:
    if FAILURES:
        raise FAILURES.pop()
    yield Flaky()
    raise RuntimeError("it did not go well")


@step
async def uses_flaky(*, flaky: Flaky = given()) -> None: ...


async def _in_a_block(worker: Worker) -> None:
    async with worker:
        await asyncio.Event().wait()


@pytest.mark.parametrize("run", [Worker.run, _in_a_block], ids=["run", "async with"])
async def test_a_resource_that_fails_to_open_ends_the_start_and_closes_the_others(
    client: Client, run: Callable[[Worker], Awaitable[None]]
):
    FAILURES[:] = [KeyError("DATABASE_URL")]
    worker = worker_of(client, steps=[uses_flaky])
    sentence = r"the resource flaky \(\S+:\d+\) cannot be opened: KeyError: 'DATABASE_URL'"
    with pytest.raises(ResourceFailed, match=sentence):
        await asyncio.wait_for(run(worker), 10)
    assert EVENTS == ["open pool", "close pool"]


async def test_a_resource_that_ends_under_a_running_worker_ends_the_worker(client: Client):
    Watched.broken.clear()  # of other tests
    told: list[Event] = []
    plugin = SchedulePlugin(None, on_event=told.append)
    running = asyncio.create_task(worker_of(client, plugin, steps=[uses_watched]).run())
    await eventually(lambda: Watched.broken)
    Watched.broken.pop().set()
    with pytest.raises(ResourceFailed, match="A resource ended while the worker ran"):
        await asyncio.wait_for(running, 30)
    alerts = [each for each in told if isinstance(each, Alert)]
    [alert] = [each for each in alerts if each.code is Code.RESOURCE_FAILED]
    assert "watched" in alert.text
    assert alert.text.endswith("failed: ConnectionError: the other side has gone")


async def test_what_is_away_is_waited_for_and_an_error_at_the_end_is_reported(client: Client):
    FAILURES[:] = [ConnectionRefusedError("no server there")]
    told: list[Event] = []
    async with worker_of(client, SchedulePlugin(None, on_event=told.append), steps=[uses_flaky]):
        await eventually(lambda: Recovered("resources") in told)
    degraded, recovered, *_, alert = [each for each in told if "esource" in repr(each)]
    assert isinstance(degraded, Degraded)
    assert "flaky" in degraded.reason
    assert degraded.reason.endswith("cannot be opened yet: ConnectionRefusedError: no server there")
    assert recovered == Recovered("resources")
    assert isinstance(alert, Alert)
    assert re.search(
        "closing the resource flaky .* failed: RuntimeError: it did not go well", alert.text
    )
    assert EVENTS == ["open pool", "close pool"]


async def test_a_worker_that_waits_for_a_resource_can_be_stopped(client: Client):
    FAILURES[:] = [ConnectionRefusedError("no server there")] * 100
    told: list[Event] = []
    worker = worker_of(client, SchedulePlugin(None, on_event=told.append), steps=[uses_flaky])
    running = asyncio.create_task(worker.run())
    await eventually(lambda: told)
    await asyncio.wait_for(worker.shutdown(), 10)
    await running
    FAILURES.clear()
    assert EVENTS == ["open pool", "close pool"]


# --- declarations ---


at_bank: Any = given(Bank)


def test_a_direct_call_gives_the_resource_as_an_argument():
    assert resources.count(pool=Pool()) == 1
    with pytest.raises(AttributeError, match=r"given\(pool\) has no 'number': it stands for"):
        _ = given(pool).number
    assert at_bank.pay is Bank.pay
    with pytest.raises(AttributeError, match=r"given\(Bank\) has no step 'pai'"):
        _ = at_bank.pai


def test_what_is_no_resource_is_refused_where_it_is_declared():
    with pytest.raises(TypeError, match="async generator function, `async def` with one `yield`"):
        resource(lambda: None)  # type: ignore[type-var]

    async def silent():
        yield 1

    with pytest.raises(TypeError, match="does not say what it yields: write `-> AsyncIterator"):
        resource(silent)
    with pytest.raises(TypeError, match=r"given\(\) takes an @resource function or a class"):
        given(silent)
    with pytest.raises(TypeError, match=r"the parameter pool of .* does not say which resource"):

        @step
        async def without_type(*, pool=given()) -> None: ...


def test_what_is_no_method_step_is_refused_where_it_is_decorated():
    with pytest.raises(TypeError, match="write @staticmethod above @step"):

        class Static:
            @step
            @staticmethod
            async def send(mail: str) -> None: ...

    with pytest.raises(TypeError, match="classmethod, which cannot be a step"):

        class Outside:
            @step
            @classmethod
            async def send(cls, mail: str) -> None: ...

    with pytest.raises(TypeError, match="classmethod, which cannot be a step"):

        class Inside:
            @classmethod
            @step
            async def send(cls, mail: str) -> None: ...

    with pytest.raises(TypeError, match="is no method; call its parameter otherwise than self"):

        @step
        async def alone(self) -> None: ...

    with pytest.raises(TypeError, match="steps= takes objects whose methods are steps"):
        SchedulePlugin(None, steps=[Bank])
    with pytest.raises(TypeError, match="Pool has no method marked with @step"):
        SchedulePlugin(None, steps=[Pool()])
    with pytest.raises(TypeError, match="resources= takes classes and @resource functions"):
        SchedulePlugin(None, resources={"pool": Pool()})


# --- the testing kit ---


async def test_the_testing_kit_opens_resources_or_takes_others(server: DevServer):
    code: dict[str, Any] = {"workflows": [UsesPool], "steps": [look, resources.count]}
    opened = await run_workflow(UsesPool, ANN, server=server, **code)
    assert (opened.result, EVENTS) == ([1, 1], ["open pool", "close pool"])
    mine = Pool()
    mine.number = 7
    fakes = [fail_once(look, OSError("gone"))]
    replaced = await run_workflow(
        UsesPool, ANN, server=server, fakes=fakes, resources={pool: mine}, **code
    )
    assert "gone" in str(replaced.error)  # its retry rule has one attempt
    replaced = await run_workflow(UsesPool, ANN, server=server, resources={Pool: mine}, **code)
    assert (replaced.result, EVENTS) == ([7, 7], ["open pool", "close pool"])


async def test_a_step_that_fails_once_is_itself_with_its_resources_then(server: DevServer):
    mine = Pool()
    fakes = [fail_once(Patient.wait, OSError("gone"))]
    run = await run_workflow(
        IsPatient, server=server, workflows=[IsPatient], steps=[Patient.wait], fakes=fakes,
        resources={Patient: Patient(), pool: mine},
    )  # fmt: skip
    assert (run.result, run.error, len(fakes[0].calls)) == (mine.number, None, 2)


async def test_a_fake_context_gives_what_it_has_and_opens_nothing():
    ctx = FakeContext(resources={pool: Pool(), bank: Bank(Pool())})
    assert await ctx.run(UsesBank, [ANN]) == ["ann by pool 2 and 1", "2"]
    fakes = [fail_once(look, OSError("gone"))]
    ctx = FakeContext(fakes=fakes, resources={Pool: Pool()})
    with pytest.raises(ActivityError) as failure:
        await ctx.run(UsesPool, ANN)
    assert "gone" in str(failure.value.cause)
    assert await ctx.run(UsesPool, ANN) == [3, 3]
    with pytest.raises(EngineError, match=r"pool is not open; .* FakeContext takes resources="):
        await FakeContext().run(UsesPool, ANN)


async def test_of_all_that_was_imported_only_a_step_that_is_called_needs_its_resource(
    server: DevServer,
):
    # Workflows of hundreds of modules may be imported by now, and each is loaded in a sandbox.
    found = await run_workflow(UsesPool, ANN, workflows=[UsesPool], server=server)
    assert found.result == [1, 1]
    assert resources.EVENTS == ["open pool", "close pool"], "nothing for other steps"
    missing = await run_workflow(NeedsBanks, workflows=[NeedsBanks], server=server)
    assert "the step needs_banks asks for" in str(missing.error)


async def test_each_step_of_all_that_was_imported_names_what_its_resource_lacks():
    served = WorkerResources(on_demand=True)
    for each in served.serve([swim, dive]):
        with pytest.raises(ApplicationError, match="the resource lake asks for") as failure:
            await each()
        assert failure.value.non_retryable
    async with served.opened():
        pass


QUEUES = """
queues: {narrow: {concurrency: 1}}
schedules: [{key: mail, workflow: uses-queue, cron: "0 0 1 1 *"}]
"""
