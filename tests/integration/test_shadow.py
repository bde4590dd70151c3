"""Shadow mode beside native Temporal Schedules: compared, and taken over under load."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.audit.comparison import TheirSource
from engine.audit.native import NativeSchedules, NativeStarts
from engine.errors import TakeoverRefused
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.schedules import load_schedules
from tests.sample_workflows import Plain
from tests.servers import Temporal
from tests.shadowed import QUEUE, SECOND, Beside, assert_each_window_ran_once, file_of
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KEYS = ("one", "two")


@pytest.fixture
def temporal(native_temporal: Temporal) -> Temporal:
    return native_temporal


@pytest.fixture
async def beside(client: Client, database_url: str) -> AsyncIterator[Beside]:
    """Two schedules of a second, natively and in shadow mode, with a worker for both."""
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    made = Beside(client, ledger, KEYS)
    plugin = SchedulePlugin(load_schedules(file_of(KEYS)), database_url=database_url)
    async with Worker(client, task_queue=QUEUE, workflows=[Plain], plugins=[plugin]):
        await made.start_native()
        made.begun = datetime.now(UTC)
        yield made
        await made.delete_native()
    await ledger.close()


@pytest.mark.prove
async def test_shadow_mode_is_equal_to_what_runs_and_is_taken_over_with_each_window_run_once(
    beside: Beside,
):
    client, service = beside.client, beside.service
    await beside.passed(beside.begun + 6 * SECOND)
    found = await beside.compared()
    assert {key: each.differences for key, each in found.items()} == dict.fromkeys(KEYS, ())
    assert all(each.equal >= 3 for each in found.values())

    with pytest.raises(TakeoverRefused, match="no moment at which its shadow mode ends"):
        await service.take_over("one", NativeSchedules(client))

    at = await beside.hand_over(12 * SECOND)
    await beside.passed(at + 4 * SECOND)

    async def equal_again() -> bool:
        again = await beside.compared()
        assert {key: each.differences for key, each in again.items()} == dict.fromkeys(KEYS, ())
        return all(each.ours >= 2 and each.until > at for each in again.values())

    await eventually(equal_again, every=0.2)
    first = beside.begun.replace(microsecond=0) + 2 * SECOND
    await assert_each_window_ran_once(beside, first, at, at + 3 * SECOND)
    assert (await service.actions(key="one"))[0].verb == "takeover"

    # A run too many is found, and so are windows that nobody has run.
    await client.get_schedule_handle("one").trigger()
    await beside.passed(at + 7 * SECOND)

    async def doubled() -> bool:
        again = await beside.compared(lag=SECOND)
        assert not again["two"].differences
        return [each.kind for each in again["one"].differences] == ["doubled"]

    await eventually(doubled, every=0.2)
    nobody = TheirSource("temporal_schedule", "no-such")
    (lost,) = await service.compare(
        beside.begun, NativeStarts(client), key="two", source=nobody, lag=SECOND
    )
    assert (lost.differences, lost.is_equal) == ((), False)
    missing = "nothing to compare: there is no such Temporal schedule and no run of it"
    assert any(note.startswith(missing) for note in lost.notes)

    await client.start_workflow("PlainWorkflow", id="cron-one:x'y", task_queue=QUEUE)
    by_hand = TheirSource("id_prefix", "cron-one:x'")

    async def by_prefix() -> bool:
        read = await NativeStarts(client).read(by_hand, beside.begun, datetime.now(UTC))
        return [each.workflow_id for each in read.runs] == ["cron-one:x'y"]

    await eventually(by_prefix, every=0.2)
