"""Idempotency: ``step_info()`` gives each call of a step a key that its attempts share."""

from __future__ import annotations

import pytest
from temporalio.client import Client, WorkflowFailureError

from engine import EngineError, StepInfo, step_info
from tests.fundamentals.replays import CACHED
from tests.fundamentals.samples import retries
from tests.fundamentals.samples.retries import SEEN
from tests.fundamentals.shared_worker import shared_worker

worker = shared_worker("keys", retries.ALL, retries.STEPS, cached=CACHED[:1])


@pytest.fixture
def client(served: Client) -> Client:
    SEEN.infos.clear()
    return served


async def keys_of_a_run(client: Client, workflow_id: str) -> list[StepInfo]:
    handle = await client.start_workflow("keys@1", id=workflow_id, task_queue="keys")
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    return [*SEEN.infos]


async def test_attempts_share_a_key_and_no_other_call_has_it(client: Client):
    first, again, second, own, *_ = await keys_of_a_run(client, "run")
    assert (first.attempt, again.attempt) == (1, 2)
    assert first.idempotency_key == again.idempotency_key
    assert first.workflow_id == "run"
    assert own.idempotency_key == "invoice-42"
    SEEN.infos.clear()
    others = await keys_of_a_run(client, "other-run")
    keys = {each.idempotency_key for each in (first, second)}
    assert len(keys) == 2
    assert keys.isdisjoint({each.idempotency_key for each in others})


async def test_an_undo_knows_the_key_of_what_it_takes_back_and_has_one_of_its_own(client):
    first, _, second, own, *undone = await keys_of_a_run(client, "undone-run")
    expected = [each.idempotency_key for each in (own, second, first)]
    assert [each.undoes for each in undone] == expected
    assert len({each.idempotency_key for each in (first, second, own, *undone)}) == 6


def test_outside_of_a_step_there_is_no_key():
    with pytest.raises(EngineError, match="outside of a step"):
        step_info()
