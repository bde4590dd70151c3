"""Search attributes of runs on a real server: registered, not registered, and of another kind."""

from __future__ import annotations

from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError
from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.runtime.events import Alert
from engine.runtime.temporal_client import read_search_attributes, register_keyword
from engine.schedules import load_schedules
from engine.schedules.run_attributes import is_reserved
from tests.sample_workflows import Noop
from tests.waiting import eventually

FILE = """
schedules:
- key: billing.sync
  workflow: noop
  every: 1h
  searchAttributes: {Region: eu, Cents: 5, Due: "2027-01-01T09:00:00Z", Teams: [a, b], Lost: x}
  memo: {runbook: {page: 7}}
"""
KINDS = {"Region": 2, "Cents": 4, "Due": 6, "Teams": 7}


async def test_runs_are_found_by_their_key_and_one_attribute_too_many_costs_no_window(
    client, database_url
):
    """Keyword, Double, Datetime and KeywordList are registered; Lost is not."""
    assert await register_keyword(client, "SchedKey") is None
    assert await register_keyword(client, "SchedKey") is None  # there is one now
    service = client.operator_service
    kinds = {name: IndexedValueType.ValueType(kind) for name, kind in KINDS.items()}
    asked = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
    await service.add_search_attributes(asked)
    assert await read_search_attributes(client, timedelta(seconds=10)) == {
        "SchedKey": "Keyword", "Region": "Keyword", "Cents": "Double", "Due": "Datetime",
        "Teams": "KeywordList",
    }  # fmt: skip
    await eventually(lambda: _takes(client), timeout=30, every=0.2)
    alerts: list[str] = []

    def hear(event: object) -> None:
        alerts.extend([event.text] if isinstance(event, Alert) else [])

    plugin = SchedulePlugin(load_schedules(FILE), database_url=database_url, on_event=hear)
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    async with Worker(client, plugins=[plugin], task_queue="sched", workflows=[Noop]):

        async def started():
            return [fire for fire in await ledger.fires(limit=5) if fire.run_id]

        (fire,) = await eventually(started)
        run = await client.get_workflow_handle(fire.workflow_id).describe()
    await ledger.close()
    attributes = {each.key.name: each.value for each in run.typed_search_attributes}
    assert "Lost" not in attributes
    assert [text for text in alerts if "no search attribute Lost" in text] == alerts
    assert len(alerts) == 1
    assert (await run.memo())["runbook"] == {"page": 7}
    assert attributes.keys() >= KINDS.keys()
    assert attributes["SchedKey"] == "billing.sync"


async def _takes(client: Client) -> bool:
    """Start a run with attributes: each part of the server learns of them by itself."""
    names = ("SchedKey", "Region")
    pairs = [SearchAttributePair(SearchAttributeKey.for_keyword(name), "x") for name in names]
    try:
        await client.start_workflow(
            "none", id="first", task_queue="none", search_attributes=TypedSearchAttributes(pairs)
        )
    except RPCError:
        return False
    return True


async def test_what_temporal_itself_writes_is_refused_in_a_file(client):
    request = ListSearchAttributesRequest(namespace=client.namespace)
    found = await client.operator_service.list_search_attributes(request)
    assert [name for name in found.system_attributes if not is_reserved(name)] == []
