"""Memo by which a run names its window, carried along a chain of runs.

A workflow that continues as new with a memo of its own replaces ours. If the worker has the plugin,
ours is merged into the new memo; otherwise the first run of the chain still has it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ContinueAsNewInput, WorkflowOutboundInterceptor

from engine.flow.fire import MEMO_KEY, FireInfo
from engine.runtime.interceptors import RunInterceptor


def first_run_of(run: WorkflowExecutionDescription) -> str | None:
    """Return the id of the first run of the run's chain; None if the server does not report it.

    It stays the same across continue-as-new, retries and resets. Visibility does not have it.
    """
    return run.raw_description.workflow_execution_info.first_run_id or None


async def read_fire_info(run: WorkflowExecution) -> FireInfo | None:
    """Return the fire in the run's own memo, or None if the memo is not ours.

    Raises:
        ValueError: the memo could not be decoded (a codec is missing, or cannot reach its keys);
            whose run it is remains unknown.
    """
    try:
        value = await run.memo_value(MEMO_KEY, None)
    except Exception as error:
        text = f"the memo of run {run.run_id} could not be read: {type(error).__name__}: {error}"
        raise ValueError(text) from error
    try:
        return FireInfo.from_memo(value)
    except (ValueError, KeyError, TypeError):
        return None


async def read_chain_info(
    client: Client, run: WorkflowExecutionDescription, *, rpc_timeout: timedelta
) -> FireInfo | None:
    """Return the fire in the memo of the run, or else in that of its chain's first run.

    Raises:
        ValueError: the memo could not be decoded, or the first run no longer exists.
        RPCError: the server could not answer.
    """
    info, first = await read_fire_info(run), first_run_of(run)
    if info is not None or first is None or first == run.run_id:
        return info
    handle = client.get_workflow_handle(run.id, run_id=first)
    try:
        return await read_fire_info(await handle.describe(rpc_timeout=rpc_timeout))
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        text = f"run {run.run_id} names no window, and its first run {first} is not there any more"
        raise ValueError(text) from error


class ChainMemo(RunInterceptor):
    """Interceptor that carries our memo into the next run of a chain, even if that has its own.

    Visibility shows the memo of each run and does not know chains.
    """

    def _through(self, following: WorkflowOutboundInterceptor) -> WorkflowOutboundInterceptor:
        return _Carrying(following)


class _Carrying(WorkflowOutboundInterceptor):
    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002 - the SDK's name
        ours = workflow.memo_value(MEMO_KEY, None)
        # Without a new memo, the next run inherits the current one.
        if ours is not None and input.memo and MEMO_KEY not in input.memo:
            input.memo = {**input.memo, MEMO_KEY: ours}
        super().continue_as_new(input)
