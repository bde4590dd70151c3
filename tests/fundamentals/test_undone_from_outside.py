"""``compensate_on_terminate``: what an ended run did is undone for it, by a run of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    HeaderCodecBehavior,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
)
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker import Worker

from engine.flow.saga import UNDO_TYPE
from engine.ledger import Ledger
from engine.ledger.fires import DeadLetter, Fire
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from tests.fundamentals.replays import replay
from tests.fundamentals.samples import undone
from tests.fundamentals.samples.undone import EFFECTS, UNDOES
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

SOON = Settings(track=timedelta(milliseconds=200), tick=timedelta(milliseconds=200))


def tracking_soon(database_url: str) -> SchedulePlugin:
    return SchedulePlugin(None, database_url=database_url, settings=SOON)


@pytest.fixture
def ledger_url(shared_database_url: str) -> str:
    return shared_database_url


worker = shared_worker("sched", undone.ALL, undone.STEPS, plugin=tracking_soon)


@dataclass
class Orders:
    """The one run of a schedule, and what the ledger says of it."""

    client: Client
    ledger: Ledger
    key: str

    async def run(self) -> WorkflowHandle[Any, Any]:
        async def started() -> list[Fire]:
            return await self.ledger.fires(key=self.key, status="started")

        (fire,) = await eventually(started, timeout=30, every=0.1)
        return self.client.get_workflow_handle(fire.workflow_id, run_id=fire.run_id)

    async def fires(self) -> list[Fire]:
        return await self.ledger.fires(key=self.key)

    async def closed(self, ending: str) -> Fire:
        """Wait until the run whose id ends so is closed, and it is known why."""

        async def closed() -> list[Fire]:
            ended = [fire for fire in await self.fires() if fire.closed_at and not fire.is_unread]
            return [fire for fire in ended if fire.workflow_id.endswith(ending)]

        (fire,) = await eventually(closed, timeout=40, every=0.1)
        return fire

    async def letters(self) -> list[DeadLetter]:
        async with self.ledger.transaction() as transaction:
            found = await transaction.dead_letters()
        return [each for each in found if each.key == self.key]


@asynccontextmanager
async def orders(
    client: Client, database_url: str, workflow: str, *, queues: str = "", **given: str
) -> AsyncIterator[Orders]:
    """Give the workers of a client a schedule of a new key, once they have said what they serve."""
    EFFECTS.clear()
    UNDOES.clear()
    wanted = ", ".join(f"{name}: {value}" for name, value in {"item": "a book", **given}.items())
    key = f"k-{uuid.uuid4().hex[:8]}"
    schedule = f"{{key: {key}, everyMs: 86400000, workflow: {workflow}, input: {{{wanted}}}}}"
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    await eventually(lambda: ledger.served(alive=SOON.alive))
    await apply(ledger, load_schedules(f"queues: {{{queues}}}\nschedules: [{schedule}]"), by="test")
    yield Orders(client, ledger, key)
    await ledger.close()


async def until(effect: str) -> None:
    await eventually(lambda: effect in EFFECTS)


async def replayed(client: Client, *names: str) -> None:
    for name in names:
        await replay(client, client.get_workflow_handle(name), undone)


async def test_a_run_that_is_terminated_is_undone_in_reverse_order_once(served, ledger_url):
    async with orders(served, ledger_url, "ordered") as book:
        run = await book.run()
        await until("charge a book")
        await run.terminate("by hand")
        undo = await book.closed(":undo")
        assert (await book.closed(run.id)).status == "terminated"
    assert EFFECTS == ["reserve a book", "charge a book", "refund", "release a book"]
    assert [f"{run.run_id}/undone-charge/1", f"{run.run_id}/undone-reserve/1"] == UNDOES
    assert (undo.workflow_id, undo.status) == (f"{run.id}:undo", "completed")
    assert await served.get_workflow_handle(undo.workflow_id).result() == 2
    await replayed(served, run.id, undo.workflow_id)


async def test_what_was_committed_stays(served, ledger_url):
    async with orders(served, ledger_url, "committed") as book:
        run = await book.run()
        await until("charge a book")
        await run.terminate("by hand")
        undo = await book.closed(":undo")
    assert EFFECTS == ["reserve a book", "charge a book", "refund"]
    await replayed(served, run.id, undo.workflow_id)


@pytest.mark.prove
async def test_so_is_one_that_takes_too_long_and_it_is_not_begun_again(served, ledger_url):
    async with orders(served, ledger_url, "hurried") as book:
        run = await book.run()
        await book.closed(":undo")
        assert (await book.closed(run.id)).status == "timed_out"
        (letter,) = await book.letters()
    assert letter.workflow_id == run.id
    assert EFFECTS == ["reserve a book", "charge a book", "refund", "release a book"]


@pytest.mark.prove
async def test_one_terminated_while_it_undoes_itself_has_only_the_rest_undone(served, ledger_url):
    async with orders(served, ledger_url, "ordered", waits_in="refund") as book:
        run = await book.run()
        await until("forget waits")
        await run.terminate("by hand")
        await book.closed(":undo")
    assert EFFECTS == [
        "reserve a book", "reserve a book", "charge a book", "refund",
        "forget a book", "forget waits", "forget a book", "release a book",
    ]  # fmt: skip
    assert UNDOES.count(f"{run.run_id}/undone-charge/1") == 1


async def test_a_step_under_way_has_heard_of_the_end_before_it_is_undone(served, ledger_url):
    async with orders(served, ledger_url, "ordered", waits_in="charge") as book:
        run = await book.run()
        await until("charge a book")
        await run.terminate("by hand")
        await book.closed(":undo")
    assert EFFECTS == [
        "reserve a book", "charge a book", "charge heard of the end", "refund", "release a book",
    ]  # fmt: skip


async def test_an_undo_that_fails_leaves_the_others_undone_and_a_dead_letter(served, ledger_url):
    async with orders(served, ledger_url, "ordered") as book:
        run = await book.run()
        await until("charge a book")
        EFFECTS.append("the bank is away")
        await run.terminate("by hand")
        assert (await book.closed(":undo")).status == "failed"
        (letter,) = await book.letters()
    assert EFFECTS[-2:] == ["refund", "release a book"]
    assert (letter.workflow_id, letter.kind) == (f"{run.id}:undo", "handler")
    (left,) = letter.not_undone
    assert left == {
        "step": "undone-charge", "undo": "undone-refund", "error": "FatalError: the bank is away",
        "idempotency_key": f"{run.run_id}/undone-charge/1",
    }  # fmt: skip
    assert letter.error is not None
    assert "could not undo 'undone-charge'" in letter.error


async def test_a_run_that_temporal_has_forgotten_is_left_to_people(served):
    gone = {"workflow_id": "sched:k:1", "run_id": str(uuid.uuid4()), "workflow": "ordered@1"}
    with pytest.raises(WorkflowFailureError) as failure:
        await served.execute_workflow(UNDO_TYPE, gone, id="undo", task_queue="sched")
    innermost: BaseException = failure.value.cause
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    assert "Temporal has forgotten sched:k:1" in str(innermost), "what the dead letter says"


async def test_without_the_option_nothing_is_undone_and_no_step_notes_an_undo(served, ledger_url):
    async with orders(served, ledger_url, "left-alone") as book:
        run = await book.run()
        await until("charge a book")
        await run.terminate("by hand")
        await book.closed(run.id)
        await eventually(lambda: _nothing_to_follow(book))
        assert len(await book.fires()) == 1
    history = await run.fetch_history()
    scheduled = [each.activity_task_scheduled_event_attributes for each in history.events
                 if each.HasField("activity_task_scheduled_event_attributes")]  # fmt: skip
    assert len(scheduled) == 2
    notes = [json.loads(each.header.fields["sched"].data) for each in scheduled]
    assert not any("undo" in note for note in notes)


async def _nothing_to_follow(book: Orders) -> bool:
    return not await book.ledger.anything_ended()


async def test_a_worker_without_steps_undoes_through_those_that_have_them_and_their_queues(
    client, ledger_url
):
    other = await Client.connect(client.service_client.config.target_host,
                                 namespace=client.namespace)  # fmt: skip
    plugin, steps = tracking_soon(ledger_url), tracking_soon(ledger_url)
    async with (
        Worker(client, task_queue="sched", workflows=undone.ALL, plugins=[plugin]),
        Worker(other, task_queue="sched", activities=undone.STEPS, plugins=[steps]),
        orders(client, ledger_url, "at-the-desk", queues="desk: {concurrency: 1}") as book,
    ):
        run = await book.run()

        async def reported() -> WorkflowHistory | None:
            found = await run.fetch_history()
            ends = [each.HasField("activity_task_completed_event_attributes")
                    for each in found.events]  # fmt: skip
            return found if sum(ends) == len(["reserve", "charge"]) else None

        history = await eventually(reported)
        await run.terminate("by hand")
        assert (await book.closed(":undo")).status == "completed"
    assert EFFECTS == ["reserve a book", "charge a book", "refund", "call off a book"]
    undo = await client.get_workflow_handle(f"{run.id}:undo").fetch_history()
    begun = [each.activity_task_started_event_attributes.attempt
             for each in [*history.events, *undo.events]
             if each.HasField("activity_task_started_event_attributes")]  # fmt: skip
    assert begun == [1, 1, 1, 1], "a worker without steps never takes one"


class Reversed(PayloadCodec):
    """Keeps every value backwards, as an encrypting codec keeps it unreadable."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": b"backwards"}, data=each.SerializeToString()[::-1])
            for each in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(each.data[::-1]) for each in payloads]


@pytest.mark.parametrize("headers", [pytest.param("NO_CODEC", marks=pytest.mark.prove), "CODEC"])
async def test_inputs_reach_the_undo_whatever_codec_they_are_kept_with(
    client, ledger_url, temporal, headers
):
    secret = await Client.connect(
        temporal.address, namespace=client.namespace,
        data_converter=replace(DataConverter.default, payload_codec=Reversed()),
        header_codec_behavior=HeaderCodecBehavior[headers],
    )  # fmt: skip
    plugin = tracking_soon(ledger_url)
    async with (
        Worker(
            secret, task_queue="sched", workflows=undone.ALL, activities=undone.STEPS,
            plugins=[plugin],
        ),
        orders(secret, ledger_url, "ordered") as book,
    ):  # fmt: skip
        run = await book.run()
        await until("charge a book")
        await run.terminate("by hand")
        assert (await book.closed(":undo")).status == "completed"
    assert EFFECTS[-2:] == ["refund", "release a book"]
