"""``running_workflow``: tests that act on an open run. The examples of docs/testing.md."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode, WorkflowService

from engine.testing import DevServer, FakeContext, running_workflow
from tests.fundamentals.samples.steered import (
    DID,
    PAID,
    Haggled,
    pay,
    pay_carelessly,
    release,
    reserve,
)

CODE: dict[str, Any] = {"workflows": [Haggled], "steps": [reserve, release, pay, pay_carelessly]}


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DID.clear()
    PAID.clear()


async def test_an_open_run_is_asked_updated_and_signalled(server: DevServer):
    async with running_workflow(Haggled, "A1", server=server, **CODE) as run:
        assert await run.query(Haggled.price) == 100
        assert await run.update(Haggled.offer, 80) == 80
        with pytest.raises(WorkflowUpdateFailedError):
            await run.update("offer", -1)
        assert await run.query("price") == 80
        await run.signal("agreed")
        ended = await run.ended()
    assert (ended.status, ended.result) == ("completed", 80)
    assert ended.steps == ("steered-reserve", "steered-pay")


async def test_a_wait_for_a_history_that_changed_its_branch_is_begun_again(
    server: DevServer, monkeypatch: pytest.MonkeyPatch
):
    changed = GrpcStatus(code=RPCStatusCode.INVALID_ARGUMENT)
    changed.details.add().type_url = (
        "type.googleapis.com/temporal.server.api.errordetails.v1.CurrentBranchChangedFailure"
    )
    answer, refused = WorkflowService.get_workflow_execution_history, set[int]()

    async def refuse_each_once(
        service: WorkflowService, req: GetWorkflowExecutionHistoryRequest, **options: Any
    ) -> Any:
        # What waits for the result asks for another kind of events than what skips time.
        if req.wait_new_event and req.history_event_filter_type not in refused:
            refused.add(req.history_event_filter_type)
            status = RPCStatusCode.INVALID_ARGUMENT
            raise RPCError("branch tokens don't match", status, changed.SerializeToString())
        return await answer(service, req, **options)

    monkeypatch.setattr(WorkflowService, "get_workflow_execution_history", refuse_each_once)
    async with running_workflow(Haggled, "A1", server=server, **CODE) as run:
        await run.signal("agreed")
        ended = await run.ended()
    assert ended.status == "completed"
    assert len(refused) == 2


async def test_a_run_that_is_cancelled_undoes_its_steps(server: DevServer):
    async with running_workflow(Haggled, "A1", server=server, **CODE) as run:
        await run.query(Haggled.price)  # it has begun
        await run.cancel()
        ended = await run.ended()
    assert ended.status == "cancelled"
    assert DID == ["reserve A1", "release A1"]


async def test_days_pass_at_once_where_the_test_lets_them_pass(server: DevServer):
    async with running_workflow(Haggled, "A1", server=server, **CODE) as run:
        await run.skip(2 * 24 * 3600 + 60)
        ended = await run.ended()
    assert "no signal agreed came" in str(ended.error)


async def test_a_reset_run_pays_under_the_same_key_and_replays(server: DevServer):
    async with running_workflow(Haggled, "A1", server=server, **CODE) as run:
        await run.signal("agreed")
        assert (await run.ended()).result == 100
        again = await run.reset(to=pay)
        assert again.run_id != run.run_id
        ended = await again.ended()
        assert (ended.result, ended.run_id) == (100, again.run_id)
        assert DID == ["reserve A1", "pay 100", "pay 100"]
        assert list(PAID.values()) == [100]
        assert (await run.ended()).run_id == run.run_id
        with pytest.raises(ValueError, match="has not called the step 'steered-release'"):
            await again.reset(to=release)


async def test_a_reset_shows_a_step_that_pays_twice(server: DevServer):
    async with running_workflow(Haggled, "careless", server=server, **CODE) as run:
        await run.signal("agreed")
        await run.ended()
        await (await run.reset(to=pay_carelessly)).ended()
    assert list(PAID.values()) == [100, 100]


async def test_an_open_run_can_be_reset_to_its_beginning(server: DevServer):
    async with running_workflow(Haggled, "A1", server=server, **CODE) as run:
        await run.update(Haggled.offer, 80)
        again = await run.reset()
        await again.signal("agreed")
        ended = await again.ended()
    assert (ended.status, ended.run_id) == ("completed", again.run_id)


async def test_a_fake_context_refuses_the_options_that_a_run_refuses():
    ctx = FakeContext()
    with pytest.raises(TypeError, match="'compensation'; did you mean compensate"):
        await ctx.step(reserve, "A1", compensation=release)  # type: ignore[call-overload] # misspelt
    with pytest.raises(TypeError, match="'timout'; did you mean timeout"):
        await ctx.child(Haggled, "A1", timout=3)  # type: ignore[call-overload] # misspelt
    with pytest.raises(TypeError, match="'retrys'; did you mean retry"):
        ctx.on_failure(release, "A1", retrys=3)  # type: ignore[call-overload] # misspelt
    assert ctx.steps == []
