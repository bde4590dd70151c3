"""The workflows of test_workflows.py.

They have a module of their own because the sandbox imports it for every run, and in a test module
pytest would rewrite the assertions each time (0.2 s a run).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pydantic
import temporalio.workflow

from engine import Context, workflow


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


@workflow(name="tells-its-engine")
class TellsItsEngine:
    async def run(self, ctx: Context) -> int:
        return id(Context)


ALL = [
    TellsItsEngine,
    Approval,
    InheritsItsRun,
    ReadsTheClock,
    Greeting,
    ShortGreeting,
    CleanUpHTTPCache,
    Ordering,
    Broken,
]
