"""What the starter does with a claim: nothing too late, and nothing that may have run before."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from engine.ledger.fires import Claim
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.starter import Starter
from engine.runtime.runs.memo import nothing_to_confirm
from engine.runtime.settings import Settings
from tests.conformance.conftest import Bench

FILE = "schedules: [{key: a, workflow: noop, every: 1h}]"
FOR_EVER, AN_HOUR = float("inf"), timedelta(hours=1)


class Temporal:
    """A client whose server knows no run, and keeps what it is asked."""

    namespace = "default"
    data_converter = DataConverter.default

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def start_workflow(self, _: str, **options: Any) -> Any:
        self.asked.append(f"start {options['id']}")
        return SimpleNamespace(first_execution_run_id="run")

    def get_workflow_handle(self, workflow_id: str, *, run_id: str | None = None) -> Any:
        async def describe(**_: Any) -> Any:
            self.asked.append(f"describe {workflow_id}")
            raise RPCError("no such run", RPCStatusCode.NOT_FOUND, b"")

        return SimpleNamespace(describe=describe)


async def claimed(ledger: Any) -> tuple[Claim, Temporal, LedgerClock, Starter]:
    bench, server, clock = Bench(ledger), Temporal(), LedgerClock()
    await bench.announce()
    await bench.declare(FILE)
    (claim,) = await bench.claim()
    clock.observe(claim.starting_at)
    return claim, server, clock, Starter(cast("Any", server), clock, Settings())


async def test_nothing_is_sent_once_the_lease_of_its_claim_has_ended(virtual_ledger, clock):
    claim, server, _, starter = await claimed(virtual_ledger)
    assert await starter.start(claim, clock.now().timestamp()) is None
    assert server.asked == []


async def test_a_claim_that_was_taken_over_is_looked_up_before_it_is_sent_again(virtual_ledger):
    claim, server, _, starter = await claimed(virtual_ledger)
    answer = await starter.start(replace(claim, fresh=False), FOR_EVER)
    assert answer is not None
    assert answer.outcome.status == "started"
    assert server.asked == [f"describe {claim.workflow_id}", f"start {claim.workflow_id}"]


async def another_one() -> str:
    return "another namespace answers"


async def test_after_a_call_without_an_answer_nothing_is_sent_to_another_temporal(virtual_ledger):
    claim, server, _, starter = await claimed(virtual_ledger)
    starter.confirm = another_one
    starter.doubt()
    answer = await starter.start(claim, FOR_EVER)
    assert answer is not None
    assert (answer.outcome.status, answer.failure) == ("starting", "unavailable")
    assert answer.outcome.error == "no start was sent: another namespace answers"
    assert server.asked == []
    starter.confirm = nothing_to_confirm
    answer = await starter.start(claim, FOR_EVER)
    assert answer is not None
    assert answer.outcome.status == "started"


async def test_a_start_without_an_answer_is_not_repeated_at_another_temporal(virtual_ledger):
    claim, server, _, starter = await claimed(virtual_ledger)
    starter.confirm = another_one
    answer = await starter.start(replace(claim, fresh=False), FOR_EVER)
    assert answer is not None
    assert answer.outcome.status == "starting"
    assert server.asked == [f"describe {claim.workflow_id}"]


async def test_a_start_that_temporal_may_have_forgotten_is_not_repeated(virtual_ledger):
    claim, server, clock, starter = await claimed(virtual_ledger)
    clock.observe(claim.starting_at + AN_HOUR)
    answer = await starter.start(replace(claim, fresh=False, retention=AN_HOUR), FOR_EVER)
    assert answer is not None
    assert (answer.outcome.status, answer.alert) == ("unvouched", answer.outcome.reason)
    assert server.asked == [f"describe {claim.workflow_id}"]
