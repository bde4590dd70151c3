"""What a start sends where the namespace refuses search attributes: no window is lost to them."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from engine.ledger import Ledger
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.starter import Starter
from engine.runtime.events import Alert
from engine.runtime.settings import Settings
from tests.conformance.conftest import Bench

KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
FILE = """schedules:
- {key: a, workflow: T, external: true, every: 1h, searchAttributes: {Region: eu, Tier: gold},
   memo: {runbook: wiki}, timeout: {execution: 2h, task: 20s}}"""


class Namespace:
    """A client whose namespace has some search attributes, and whose frontends accept some."""

    namespace = "default"
    data_converter = DataConverter.default

    def __init__(self, listed: set[str] | None, accepted: set[str], *, broken: bool = False):
        self.listed, self.accepted, self.broken = listed, accepted, broken
        self.sent: list[list[str]] = []
        self.options: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.operator_service = self

    async def list_search_attributes(self, _: Any, *, timeout: timedelta) -> Any:  # noqa: ASYNC109 - the SDK's
        if self.listed is None:
            raise RPCError("not for you", RPCStatusCode.PERMISSION_DENIED, b"")
        return SimpleNamespace(custom_attributes=dict.fromkeys(self.listed, KEYWORD))

    async def start_workflow(self, _: str, **options: Any) -> Any:
        found = {each.key.name: each.value for each in options["search_attributes"]}
        del found["TemporalScheduledStartTime"]
        self.values, names = found, sorted(found)
        self.sent.append(names)
        self.options = options
        if self.broken or not self.accepted.issuperset(names):
            raise RPCError("no mapping defined", RPCStatusCode.INVALID_ARGUMENT, b"")
        return SimpleNamespace(first_execution_run_id="run")


async def begun(ledger: Ledger, of: Namespace, *, read: bool = True, text: str = FILE):
    """Start the window of the file's schedule, twice; return the outcome and the alerts."""
    bench, told = Bench(ledger), cast("list[Alert]", [])
    await bench.announce()
    await bench.declare(text)
    (claim,) = await bench.claim()
    clock = LedgerClock()
    clock.observe(claim.starting_at, asked=time.monotonic())
    starter = Starter(cast("Any", of), clock, Settings(), told.append)
    if read:
        await starter.attributes.read()
    await starter.start(claim, float("inf"))
    answer = await starter.start(claim, float("inf"))
    assert answer is not None
    return answer.outcome, [each.text for each in told]


ALL = {"SchedKey", "Region", "Tier"}


async def test_a_start_sends_what_the_schedule_asks_for(virtual_ledger):
    namespace = Namespace(ALL, ALL)
    outcome, told = await begun(virtual_ledger, namespace)
    assert (outcome.status, told) == ("started", [])
    assert namespace.sent == [["Region", "SchedKey", "Tier"]] * 2
    assert namespace.options["memo"]["runbook"] == "wiki"
    assert namespace.options["execution_timeout"] == timedelta(hours=2)
    assert namespace.options["task_timeout"] == timedelta(seconds=20)
    assert namespace.values == {"SchedKey": "a", "Region": "eu", "Tier": "gold"}


async def test_what_the_namespace_lacks_is_left_out_and_told_once(virtual_ledger):
    namespace = Namespace({"Region"}, {"Region"})
    outcome, told = await begun(virtual_ledger, namespace)
    assert outcome.status == "started"
    assert namespace.sent == [["Region"]] * 2  # no start is refused
    (alert,) = told
    assert "no search attribute Tier" in alert
    assert "--name Tier --type Keyword" in alert


async def test_a_window_is_sent_again_without_what_servers_refuse_and_then_at_once(virtual_ledger):
    namespace = Namespace(ALL, set())
    outcome, told = await begun(virtual_ledger, namespace)
    assert (outcome.status, len(told)) == ("started", 2)
    assert namespace.sent == [["Region", "SchedKey", "Tier"], [], []]


async def test_only_what_went_away_meanwhile_is_left_out(virtual_ledger):
    namespace = Namespace(ALL, {"SchedKey", "Region"})
    before = namespace.list_search_attributes

    async def later(*given: Any, **options: Any) -> Any:
        found = await before(*given, **options)
        namespace.listed = {"SchedKey", "Region"}
        return found

    namespace.list_search_attributes = later  # type: ignore[method-assign]
    outcome, told = await begun(virtual_ledger, namespace)
    assert (outcome.status, len(told)) == ("started", 1)
    assert namespace.sent == [["Region", "SchedKey", "Tier"], *[["Region", "SchedKey"]] * 2]


async def test_a_namespace_that_does_not_say_gets_the_schedule_s_own_alone(virtual_ledger):
    namespace = Namespace(None, ALL)
    outcome, told = await begun(virtual_ledger, namespace)
    assert (outcome.status, told) == ("started", [])
    assert namespace.sent == [["Region", "Tier"]] * 2


@pytest.mark.parametrize("text", [FILE, "schedules: [{key: a, workflow: noop, every: 1h}]"])
async def test_a_refusal_for_another_reason_still_rejects_the_window(virtual_ledger, text):
    namespace = Namespace(ALL, ALL, broken=True)
    outcome, told = await begun(virtual_ledger, namespace, text=text)
    assert (outcome.status, outcome.reason_code, told) == ("rejected", "refused", [])
    assert namespace.sent[-1] == []
