"""Memo and search attributes of runs: what a start says of its window beside the input.

The memo names the window, and is carried along a chain of runs.

A workflow that continues as new with a memo of its own replaces ours. If the worker has the plugin,
ours is merged into the new memo; otherwise the first run of the chain still has it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeAlias

from temporalio import workflow
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
from temporalio.common import SearchAttributeKey, SearchAttributePair
from temporalio.converter import PayloadCodec, PayloadConverter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ContinueAsNewInput, WorkflowOutboundInterceptor

from engine.errors import Code
from engine.flow import MEMO_KEY, FireInfo
from engine.runtime.events import Alert
from engine.runtime.runs.calls import RunInterceptor
from engine.runtime.temporal_client import read_search_attributes
from engine.schedules import KEY_ATTRIBUTE, attribute_fault, moment_of, usual_kind
from engine.telemetry.instruments import ATTRIBUTES_LEFT_OUT, measures


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


Confirm: TypeAlias = Callable[[], Awaitable[str | None]]
"""Returns why an answer of the server does not count, if so: it may be that of another one."""


async def nothing_to_confirm() -> None:
    """Confirm any answer: there is no ledger to compare with."""


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
    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        ours = workflow.memo_value(MEMO_KEY, None)
        # Without a new memo, the next run inherits the current one.
        if ours is not None and input.memo and MEMO_KEY not in input.memo:
            input.memo = {**input.memo, MEMO_KEY: ours}
        super().continue_as_new(input)


# --- search attributes ---
# Those that a schedule asks for, and those that its namespace takes. A namespace without one, or
# with one of another kind, refuses the whole start. That costs no window: what does not fit is left
# out, which is reported once for each and counted.

Pairs = Sequence[SearchAttributePair[Any]]
OnAlert = Callable[[Alert], None]

_FRESH: Final = 300.0
"""Seconds for which the attributes of the namespace are used as they were read."""
_REFUSED_FOR: Final = 30.0
"""Seconds for which an attribute is left out that was refused although the namespace has it.

Its servers need a while before they all know a new one.
"""
_KEYS: Final[Mapping[str, Callable[[str], SearchAttributeKey[Any]]]] = {
    "Keyword": SearchAttributeKey.for_keyword,
    "Text": SearchAttributeKey.for_text,
    "Datetime": SearchAttributeKey.for_datetime,
    "Bool": SearchAttributeKey.for_bool,
    "Int": SearchAttributeKey.for_int,
    "Double": SearchAttributeKey.for_float,
    "KeywordList": SearchAttributeKey.for_keyword_list,
}
_UNEXPLAINED: Final = "its servers refuse it"


class RunAttributes:
    """Search attributes that one replica sends.

    Args:
        client: that of the starts.
        patience: how long a look at the namespace may take.
        on_alert: receives an alert for each attribute that is left out.
    """

    def __init__(self, client: Client, patience: timedelta, on_alert: OnAlert) -> None:
        self._client, self._patience, self._emit = client, patience, on_alert
        self._kinds: Mapping[str, str] | None = None
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._refused: dict[str, float] = {}
        self._told: set[str] = set()

    async def read(self) -> None:
        """Read which search attributes the namespace has; an unread list stays as it was."""
        found = await read_search_attributes(self._client, self._patience)
        self._kinds = self._kinds if found is None else found
        self._read_at = time.monotonic()
        self._told = {name for name in self._told if name not in (self._kinds or {})}

    def of(self, key: str | None, wanted: Mapping[str, Any]) -> Pairs:
        """Return what to send with a start, as far as the namespace is known to take it.

        Args:
            key: the key of the schedule, for ``SchedKey``; None leaves that out.
            wanted: the ``searchAttributes`` of the schedule.
        """
        self._read_again()
        own = {} if key is None or not self._takes(KEY_ATTRIBUTE, key) else {KEY_ATTRIBUTE: key}
        kept = {name: value for name, value in wanted.items() if self._takes(name, value)}
        self._leave_out(key, {name: wanted[name] for name in wanted if name not in kept})
        return [self._pair(name, value) for name, value in {**own, **kept}.items()]

    async def fewer(self, sent: Pairs) -> Pairs:
        """Return what is left to send after a start with ``sent`` was refused; always fewer."""
        await self.read()
        kept = [each for each in sent if self._takes(each.key.name, _as_declared(each.value))]
        return kept if len(kept) < len(sent) else []

    def accepted(self, key: str | None, sent: Pairs, *, of: Pairs) -> None:
        """Note that a start with ``sent`` was accepted, after others with more of these, if any."""
        names = {each.key.name for each in sent}
        refused = {
            each.key.name: _as_declared(each.value) for each in of if each.key.name not in names
        }
        until = time.monotonic() + _REFUSED_FOR
        self._refused |= dict.fromkeys(refused, until)
        refused.pop(KEY_ATTRIBUTE, None)
        self._leave_out(key, refused)

    def _takes(self, name: str, value: object) -> bool:
        if (until := self._refused.get(name)) is not None:
            if time.monotonic() < until:
                return False
            del self._refused[name]
        if self._kinds is None:  # the namespace does not say
            return name != KEY_ATTRIBUTE
        return attribute_fault(name, value, self._kinds) is None

    def _pair(self, name: str, value: Any) -> SearchAttributePair[Any]:
        kind = (self._kinds or {}).get(name) or usual_kind(value)
        moment = moment_of(value) if kind == "Datetime" else None
        given = float(value) if kind == "Double" else moment or value
        return SearchAttributePair(_KEYS[kind](name), given)

    def _leave_out(self, key: str | None, left: Mapping[str, Any]) -> None:
        for name, value in left.items():
            measures().count(ATTRIBUTES_LEFT_OUT)
            if name in self._told:
                continue
            self._told.add(name)
            found = attribute_fault(name, value, self._kinds) if self._kinds is not None else None
            why, hint = found or (f"search attribute {name}: {_UNEXPLAINED}", "see the Web UI")
            text = f"{key}: {why}; {hint}. Its runs start without it"
            self._emit(Alert(Code.SEARCH_ATTRIBUTE_INVALID, text))

    def _read_again(self) -> None:
        """Begin to read the attributes again if they are no longer fresh; a start never waits."""
        if self._read_at is None or time.monotonic() - self._read_at < _FRESH:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self.read())


def _as_declared(value: Any) -> Any:
    """Return a value as a schedule has it."""
    return value.isoformat() if hasattr(value, "isoformat") else value
