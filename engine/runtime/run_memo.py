"""Memo by which a run names its window, carried along a chain of runs.

A workflow that continues as new with a memo of its own replaces ours. If the worker has the plugin,
ours is merged into the new memo; otherwise the first run of the chain still has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
from temporalio.converter import PayloadCodec, PayloadConverter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ContinueAsNewInput, WorkflowOutboundInterceptor

from engine.flow import MEMO_KEY, FireInfo
from engine.runtime.interceptors import RunInterceptor


def first_run_of(run: WorkflowExecutionDescription) -> str | None:
    """Return the id of the first run of the run's chain; None if the server does not report it.

    It stays the same across continue-as-new, retries and resets. Visibility does not have it.
    """
    return run.raw_description.workflow_execution_info.first_run_id or None


class UnreadableHere(ValueError):
    """Data of a run cannot be read here: a codec is missing, or cannot reach its keys.

    A replica with the codec can read them.

    Attributes:
        run_id: Temporal's id of the run.
    """

    def __init__(self, text: str, run_id: str) -> None:
        super().__init__(text)
        self.run_id = run_id


async def read_fire_info(run: WorkflowExecution) -> FireInfo | None:
    """Return the fire in the run's own memo, or None if the memo is not ours.

    It is read through the client's codec, or else as it is.

    Raises:
        UnreadableHere: the memo could not be decoded; whose run it is remains unknown.
    """
    why: Exception | None = None
    value: object = None
    try:
        value = await run.memo_value(MEMO_KEY, None)
    except Exception as error:  # noqa: BLE001 - a codec may raise anything
        why = error
    if why is not None or isinstance(value, bytes):
        value = _plain(run)
        if value is None:
            reason = f"{type(why).__name__}: {why}" if why else "it is not decoded"
            text = f"the memo of run {run.run_id} could not be read here: {reason}"
            raise UnreadableHere(text, run.run_id) from why
    try:
        return FireInfo.from_memo(value)
    except (ValueError, KeyError, TypeError):
        return None


def _plain(run: WorkflowExecution) -> object:
    """Return the memo as the starter wrote it for readers without the codec; None if encoded."""
    payload = run.raw_info.memo.fields[MEMO_KEY]
    try:
        value = PayloadConverter.default.from_payload(payload)
    except Exception:  # noqa: BLE001 - the encoding is not one of the SDK
        return None
    return value if isinstance(value, Mapping) else None


async def lets_plain_through(codec: PayloadCodec) -> bool:
    """Return whether a codec returns what it did not encode as it is, as most codecs do."""
    plain = PayloadConverter.default.to_payload({"v": 0})
    try:
        return list(await codec.decode([plain])) == [plain]
    except Exception:  # noqa: BLE001 - a codec may raise anything
        return False


async def description_of(
    client: Client, workflow_id: str, *, run_id: str | None = None, rpc_timeout: timedelta
) -> WorkflowExecutionDescription | None:
    """Return the description of a run, or of the newest of its id; None if Temporal has none.

    Raises:
        RPCError: the server could not answer.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    try:
        return await handle.describe(rpc_timeout=rpc_timeout)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise


async def read_chain_info(
    client: Client, run: WorkflowExecutionDescription, *, rpc_timeout: timedelta
) -> FireInfo | None:
    """Return the fire in the memo of the run, or else in that of its chain's first run.

    Raises:
        UnreadableHere: neither memo could be decoded.
        ValueError: the first run no longer exists.
        RPCError: the server could not answer.
    """
    info, problem, first = None, None, first_run_of(run)
    try:
        info = await read_fire_info(run)
    except UnreadableHere as error:
        problem = error  # continued with a memo that a worker has encoded
    if info is not None or first is None or first == run.run_id:
        if problem is not None:
            raise problem
        return info
    began = await description_of(client, run.id, run_id=first, rpc_timeout=rpc_timeout)
    if began is None:
        text = f"run {run.run_id} names no window, and its first run {first} is not there any more"
        raise ValueError(text)
    return await read_fire_info(began)


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
