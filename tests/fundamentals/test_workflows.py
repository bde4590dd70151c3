"""Workflows: an ordinary class with ``async def run(self, ctx)`` and ``@workflow`` above it."""

# ruff: noqa: ARG002 - these workflows need nothing of their context
from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import temporalio.workflow
from temporalio.workflow import unsafe

from engine import Context, workflow
from engine.flow import decorator, definition_of, registered_workflows, version_key

# This module, like any with workflows, is imported again inside Temporal's sandbox.
with unsafe.imports_passed_through():
    import pydantic
    import pytest
    from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
    from temporalio.contrib.pydantic import pydantic_data_converter
    from temporalio.worker import Replayer, Worker

if TYPE_CHECKING:
    from decimal import Decimal

QUEUE = "workflows"


@dataclass
class Person:
    name: str
    title: str = "Dr"


class Order(pydantic.BaseModel):
    quantity: int


@workflow(name="greeting", version="1")
class Greeting:
    async def run(self, ctx: Context, person: Person) -> str:
        return f"Good day, {person.title} {person.name}"


@workflow(name="greeting", version="1.1")
class ShortGreeting:
    async def run(self, ctx: Context, person: Person) -> str:
        return f"Hi {person.name}"


@workflow
class CleanUpHTTPCache:
    """Has no input, and no name but its own."""

    async def run(self, ctx: Context) -> str:
        return ctx.now().isoformat()


@workflow(name="ordering")
class Ordering:
    async def run(self, ctx: Context, order: Order | None = None) -> int:
        return order.quantity + 1 if order else 0


@workflow(name="broken")
class Broken:
    async def run(self, ctx: Context) -> None:
        raise LookupError("nobody is at home")


@workflow(name="approval")
class Approval:
    """Temporal's own signals, queries and `workflow.init` work in it."""

    @temporalio.workflow.init
    def __init__(self, amount: int) -> None:
        self.amount = amount
        self.by = ""

    @temporalio.workflow.signal
    def approve(self, name: str) -> None:
        self.by = name

    @temporalio.workflow.query
    def pending(self) -> int:
        return 0 if self.by else self.amount

    async def run(self, ctx: Context, amount: int) -> str:
        await temporalio.workflow.wait_condition(lambda: bool(self.by))
        return f"{amount} approved by {self.by}"


class Routine:
    async def run(self, ctx: Context, what: str = "nothing") -> str:
        return f"did {what}"


@workflow(name="inherits-its-run")
class InheritsItsRun(Routine): ...


@workflow(name="reads-the-clock")
class ReadsTheClock:
    async def run(self, ctx: Context) -> str:
        return datetime.now(tz=UTC).isoformat()


WORKFLOWS = [
    Approval,
    InheritsItsRun,
    ReadsTheClock,
    Greeting,
    ShortGreeting,
    CleanUpHTTPCache,
    Ordering,
    Broken,
]


def worker(client: Client, **options) -> Worker:
    """Return a plain Temporal worker: nothing of the engine but the decorated classes."""
    return Worker(client, task_queue=QUEUE, workflows=WORKFLOWS, **options)


async def reason_of_failure(client: Client, workflow_type: str, *args: object) -> str:
    with pytest.raises(WorkflowFailureError) as failure:
        await client.execute_workflow(workflow_type, args=args, id="failing", task_queue=QUEUE)
    return str(failure.value.cause)


def test_a_workflow_is_known_to_temporal_as_name_at_version():
    definition = definition_of(Greeting)
    assert definition is not None
    assert definition.type == "greeting@1"
    assert registered_workflows()["greeting@1"].cls is Greeting
    assert (definition.input_type, definition.result_type) == (Person, str)


def test_without_a_name_it_is_the_class_name_in_kebab_case_at_version_1():
    assert registered_workflows()["clean-up-http-cache@1"].cls is CleanUpHTTPCache


async def test_run_stays_an_ordinary_method_that_a_unit_test_can_call():
    class FakeContext(Context):
        def now(self) -> datetime:
            return datetime(2026, 11, 21, tzinfo=UTC)

    assert await Greeting().run(FakeContext(), Person("Who")) == "Good day, Dr Who"
    assert await CleanUpHTTPCache().run(FakeContext()) == "2026-11-21T00:00:00+00:00"


async def test_plain_temporal_clients_and_workers_run_it(client: Client):
    async with worker(client):
        text = await client.execute_workflow(
            "greeting@1", Person("Who"), id="by-type", task_queue=QUEUE, result_type=str
        )
        same = await client.execute_workflow(
            Greeting.run, args=[Person("Who")], id="by-method", task_queue=QUEUE
        )
    assert text == same == "Good day, Dr Who"


async def test_two_versions_live_side_by_side_in_one_worker(client: Client):
    async with worker(client):
        answers = [
            await client.execute_workflow(name, {"name": "Who"}, id=name, task_queue=QUEUE)
            for name in ("greeting@1", "greeting@1.1")
        ]
    assert answers == ["Good day, Dr Who", "Hi Who"]


async def test_a_pydantic_input_is_validated_and_the_input_may_be_left_out(client: Client):
    config = client.config()
    config["data_converter"] = pydantic_data_converter
    client = Client(**config)
    async with worker(client):
        more = {"quantity": 4}
        assert await client.execute_workflow("ordering@1", more, id="a", task_queue=QUEUE) == 5
        assert await client.execute_workflow("ordering@1", id="b", task_queue=QUEUE) == 0
        assert "quantity" in await reason_of_failure(client, "ordering@1", {"quantity": "many"})


async def test_a_required_input_that_is_missing_fails_the_run_with_a_sentence(client: Client):
    async with worker(client):
        reason = await reason_of_failure(client, "greeting@1")
    assert "greeting@1 needs an input, but was started without; add `input:`" in reason


async def test_an_input_nobody_takes_fails_the_run_with_a_sentence(client: Client):
    async with worker(client):
        reason = await reason_of_failure(client, "clean-up-http-cache@1", {"days": 3})
    assert "clean-up-http-cache@1 takes no input, but was started with one" in reason


async def test_any_exception_that_leaves_run_fails_the_run(client: Client):
    async with worker(client):
        assert await reason_of_failure(client, "broken@1") == "LookupError: nobody is at home"


async def test_reading_the_clock_fails_the_run_and_names_the_call(client: Client):
    async with worker(client):
        reason = await reason_of_failure(client, "reads-the-clock@1")
    assert "Cannot access datetime.datetime.now" in reason  # ctx.now() is the one to use


async def test_temporals_signals_and_queries_work_in_it(client: Client):
    async with worker(client):
        handle = await client.start_workflow("approval@1", 70, id="approval", task_queue=QUEUE)
        assert await handle.query(Approval.pending) == 70
        await handle.signal(Approval.approve, "Ada")
        assert await handle.result() == "70 approved by Ada"
        assert await handle.query(Approval.pending) == 0


async def test_run_may_be_inherited(client: Client):
    async with worker(client):
        for name, given in (("a", ["the dishes"]), ("b", [])):
            result = await client.execute_workflow(
                "inherits-its-run@1", args=given, id=name, task_queue=QUEUE
            )
            assert result == f"did {given[0] if given else 'nothing'}"


async def test_a_stored_history_replays(client: Client):
    async with worker(client, max_cached_workflows=0):
        handle = await client.start_workflow("greeting@1", Person("X"), id="r", task_queue=QUEUE)
        await handle.result()
    stored = (await handle.fetch_history()).to_json()
    history = WorkflowHistory.from_json("r", stored)
    assert (await Replayer(workflows=WORKFLOWS).replay_workflow(history)).replay_failure is None


def test_the_sandboxes_copies_are_never_registered():
    before = registered_workflows()
    unsafe._set_in_sandbox(True)
    try:
        workflow(name="greeting", version="1")(type("Greeting", (), {"run": Copy.run}))
    finally:
        unsafe._set_in_sandbox(False)
    assert registered_workflows() == before


class Copy:
    async def run(self, ctx: Context) -> None: ...


def test_two_classes_cannot_share_a_name_and_version():
    with pytest.raises(ValueError, match=r"two workflows are called 'greeting@1'.*Greeting and"):
        workflow(name="greeting", version="1")(type("Other", (), {"run": Copy.run}))


def test_importing_the_same_class_again_replaces_the_first():
    again = type("Greeting", (), {"run": Copy.run, "__module__": Greeting.__module__})
    workflow(name="greeting", version="1")(again)
    try:
        assert registered_workflows()["greeting@1"].cls is again
    finally:
        definition = definition_of(Greeting)
        assert definition is not None
        decorator._registry.add("greeting@1", Greeting, definition)


def test_versions_are_compared_as_numbers():
    assert sorted(["1.10", "2", "1.9", "1"], key=version_key) == ["1", "1.9", "1.10", "2"]


@pytest.mark.parametrize("version", ["", "v1", "1.", ".1", "01", "1.02", "1 ", "-1", "1a", "٣"])
def test_a_version_that_is_not_dotted_integers_is_refused(version: str):
    with pytest.raises(ValueError, match="is not a version: write integers parted by dots"):
        workflow(name="x", version=version)(type("X", (), {"run": Copy.run}))


def test_a_version_is_text():
    with pytest.raises(TypeError, match='a version is text, such as "1"'):
        workflow(name="x", version=1)(type("X", (), {"run": Copy.run}))  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["", "daily@1", "a b", "-x", "ä", "x" * 201])
def test_a_name_that_would_blur_the_temporal_type_is_refused(name: str):
    with pytest.raises(ValueError, match="cannot name X"):
        workflow(name=name)(type("X", (), {"run": Copy.run}))


class WithoutRun: ...


class WithSyncRun:
    def run(self, ctx: Context) -> None: ...


class WithoutContext:
    async def run(self) -> None: ...


class WithTwoInputs:
    async def run(self, ctx: Context, year: int, month: int) -> None: ...


class WithKeywordInput:
    async def run(self, ctx: Context, *, year: int) -> None: ...


class WithHiddenType:
    async def run(self, ctx: Context, amount: Decimal) -> None: ...


class Outer:
    class Inner(Copy): ...


@pytest.mark.parametrize(
    ("cls", "sentence"),
    [
        (WithoutRun, "WithoutRun needs `async def run.*; it has none"),
        (WithSyncRun, "WithSyncRun needs `async def run.*; its run is not an async method"),
        (WithoutContext, r"has to be `run\(self, ctx\)` or"),
        (WithTwoInputs, "put several values into a dataclass"),
        (WithKeywordInput, r"has to be `run\(self, ctx\)` or"),
        (WithHiddenType, "'Decimal' is not defined.*not under TYPE_CHECKING"),
        (Outer.Inner, "Outer.Inner is not at the top level of its module"),
        (Greeting, "Greeting is already a workflow"),
        ("greeting", "@workflow marks a class"),
    ],
)
def test_a_class_that_cannot_be_a_workflow_is_refused_with_a_sentence(cls: type, sentence: str):
    with pytest.raises(TypeError, match=sentence):
        workflow(name="refused")(cls)
    assert "refused@1" not in registered_workflows()
