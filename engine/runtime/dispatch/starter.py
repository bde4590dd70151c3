"""Starter, which turns one claim into one run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client, Interceptor, WorkflowExecutionDescription, WorkflowHandle
from temporalio.common import (
    Priority,
    RawValue,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.converter import PayloadConverter
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RetryConfig, RPCError, RPCStatusCode, ServiceClient

from engine.errors import TemporalUnavailable
from engine.flow import IDENTITIES, MEMO_KEY, FireInfo, Retry, RunOptions, fairness_key
from engine.ledger import NO_RUN_BEFORE, REPEATS, Claim, Evidence, Outcome, Timing
from engine.runtime.clock import LedgerClock, backoff, boottime
from engine.runtime.measurements import CallTimes, temporal_call
from engine.runtime.runs.ends import evidence_of
from engine.runtime.runs.memo import (
    Confirm,
    OnAlert,
    RunAttributes,
    description_of,
    first_run_of,
    lets_plain_through,
    nothing_to_confirm,
    read_chain_info,
)
from engine.runtime.sealing import opened, payload_of
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import RpcFailure, classify_rpc_error, too_large
from engine.schedules import (
    STARTS,
    TICK,
    Reason,
    RunRetry,
    Sealed,
    format_duration,
    parse_workflow_id,
)
from engine.schedules.planner import newest_start

# --- texts for the Temporal Web UI ---
# Summary, details and memo of a run.

_ASKED_FOR: Mapping[str, str] = {
    "manual": "manual: an operator or an application triggered it",
    "backfill": "backfill: its window had no run in its time",
    "rerun": "rerun: one more run of its window",
    "handler": "handler: an earlier run of its window ended badly",
}
_LONGEST_SUMMARY = 300
"""Characters of a summary; Temporal refuses more than 400 bytes."""
_MOST_METADATA = 8192
"""Bytes of metadata in a memo; a visibility store keeps it with each run."""


def fire_info(
    claim: Claim,
    *,
    ledger: str,
    timing: Timing,
    timeout: float | None = None,
    retries: bool = False,
) -> FireInfo:
    """Return the description of the fire for the run's memo.

    Args:
        claim: the fire.
        ledger: the ledger that it belongs to.
        timing: how it starts.
        timeout: seconds of the run.
        retries: whether Temporal retries the run, so that a failed one may not be the last.
    """
    return FireInfo(
        key=claim.key,
        series=claim.series,
        bucket=claim.bucket,
        fire_time=claim.fire_time,
        timezone=claim.schedule.timezone,
        timing=timing,
        definition_version=claim.definition_version,
        project=claim.project,
        ledger=ledger,
        token=str(claim.token),
        missed=claim.missed,
        data_from=_data_from(claim),
        topic=claim.schedule.topic,
        metadata=_carried(claim.schedule.metadata),
        retry_intervals=_intervals(claim),
        timeout=timeout,
        retries=retries,
        was=claim.schedule.was,
    )


def _intervals(claim: Claim) -> tuple[float, ...]:
    retry = claim.schedule.retry if claim.kind != "handler" else None
    return tuple(each.total_seconds() for each in retry.intervals) if retry else ()


def _carried(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata that fit into a memo, which Temporal limits (Cloud to 40 KB)."""
    if not metadata or len(json.dumps(metadata)) <= _MOST_METADATA:
        return metadata
    return {name: metadata[name] for name in IDENTITIES if name in metadata}


def _data_from(claim: Claim) -> datetime | None:
    """Return the start of its data: from the ledger, or the previous window by definition."""
    if claim.data_from == NO_RUN_BEFORE:
        return None
    if claim.data_from not in {None, REPEATS}:
        return claim.data_from
    return newest_start(claim.schedule, (claim.missed_from or claim.fire_time) - TICK)


def summary(claim: Claim, info: FireInfo) -> str:
    """Return a line such as ``cache-sync · 2026-11-21 02:00 America/Sao_Paulo``.

    For the start of an application it is ``fulfil-order · 4711``, with the id that it chose.
    """
    if (start_id := _start_id(claim)) is not None:
        return f"{claim.schedule.workflow} · {start_id}"[:_LONGEST_SUMMARY]
    return f"{info.key} · {_clock(info.local_time)} {info.timezone}"


def _start_id(claim: Claim) -> str | None:
    """Return the id of a start by an application; None of a run of a schedule."""
    parsed = parse_workflow_id(claim.workflow_id)
    return parsed.start_id if parsed else None


def details(claim: Claim, info: FireInfo, lag: timedelta) -> str:
    """Return the Markdown for the run's page: schedule, window, lag, why."""
    schedule = claim.schedule
    if (start_id := _start_id(claim)) is not None:
        return _details_of_start(claim, start_id, info, lag)
    window = f"{_clock(info.local_time)} {info.timezone}"
    if info.timezone != "UTC":
        window += f" ({_clock(info.fire_time.astimezone(UTC))} UTC)"
    lines = [
        f"- **Schedule** `{claim.key}`, {schedule.when}",
        f"- **Project** `{claim.project}`, definition {claim.definition_version}",
        f"- **Window** {window}, bucket {claim.bucket}, series {claim.series}",
        f"- **Lag** {lag.total_seconds():.3f} s{_spread(claim)}",
        f"- **Why** {_why(claim, info.timing)}",
    ]
    if schedule.description:
        lines[:0] = [schedule.description, ""]
    return "\n".join(lines)


def _details_of_start(claim: Claim, start_id: str, info: FireInfo, lag: timedelta) -> str:
    why = "start: an application started it"
    if claim.kind == "handler":
        why = _ASKED_FOR["handler"]
    elif claim.timing == "rerun":
        why = "rerun: an earlier run of the same id ended badly"
    lines = [
        f"- **Workflow** `{claim.schedule.workflow}`, id `{start_id}`",
        f"- **Project** `{claim.project}`",
        f"- **Requested** {_clock(info.fire_time)} UTC",
        f"- **Lag** {lag.total_seconds():.3f} s",
        f"- **Why** {why}",
    ]
    return "\n".join(lines)


def _spread(claim: Claim) -> str:
    delay = claim.schedule.delay(claim.fire_time)
    return f", of which spread {format_duration(delay)}" if delay else ""


def _why(claim: Claim, timing: Timing | str) -> str:
    grace = format_duration(claim.schedule.grace)
    if claim.reason_code == "first_sight":
        return "first sight: the window that was open when the schedule was first seen"
    match timing:
        case "on_time":
            return f"on time: started within its grace of {grace}"
        case "late":
            return f"late: decided in time, started more than {grace} after its fire time"
        case "caught_up" if claim.missed:
            return f"caught up: stands for itself and {claim.missed} missed windows"
        case "caught_up":
            return f"caught up: its fire time was more than {grace} ago"
        case other:
            return _ASKED_FOR.get(other, other)


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment.second else f"{moment:%Y-%m-%d %H:%M}"


# --- starter ---
# One claim becomes one run, and every answer of the server becomes a value.

_FIRE_TIME = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
_FOREIGN: Final = Reason("foreign_run", "foreign run")
_TOO_LARGE: Final = Reason("payload_too_large", "payload too large")
_REFUSED: Final = Reason("refused", "refused by the server")
_FIRST_PAUSE = 0.25
_NOBODY = "sched"
"""An id that no run has: in ours a colon follows ``sched``."""


async def patient_client(client: Client, *outermost: Interceptor) -> Client:
    """Return a client like this one, on a separate connection, that never retries by itself.

    The SDK's hidden retries stall for 10 to 30 seconds; the sweeper is the only retry. The
    user's data converter and interceptors stay. (``max_retries=0`` would mean "for ever".)

    It is connected already: unconnected, its calls raise RuntimeError, and later only RPCError.

    Args:
        client: the user's client.
        outermost: interceptors around the user's own.

    Raises:
        TemporalUnavailable: the server does not answer.
    """
    config: dict[str, Any] = {**client.config(active_config=True)}
    retry = RetryConfig(max_retries=1)
    try:
        service = await ServiceClient.connect(
            replace(client.service_client.config, retry_config=retry, lazy=False)
        )
    except RuntimeError as error:
        raise TemporalUnavailable(f"the Temporal server cannot be reached: {error}") from error
    # The time of a call is taken innermost: that of the call alone.
    around = [*outermost, *config.get("interceptors", ()), CallTimes()]
    return Client(**{**config, "service_client": service, "plugins": [], "interceptors": around})


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a claim, and the evidence of a run that existed before the send.

    ``failure`` is one of the server and proves nothing about the claim.
    """

    outcome: Outcome
    seen: Evidence | None = None
    alert: str | None = None
    failure: RpcFailure | None = None


class Starter:
    """Starter of runs. It returns answers; the dispatcher writes them.

    Attributes:
        confirm: compares the namespace that answers with the ledger's.
    """

    def __init__(
        self,
        client: Client,
        clock: LedgerClock,
        settings: Settings,
        on_alert: OnAlert = lambda _: None,
    ) -> None:
        self._client, self._clock, self._settings = client, clock, settings
        self.attributes = RunAttributes(client, settings.rpc_timeout, on_alert)
        self.ledger = ""
        self.confirm: Confirm = nothing_to_confirm
        self._doubts = self._cleared = 0
        self._plain: bool | None = None

    async def start(self, claim: Claim, lease_ends: float) -> Answer | None:
        """Start the claim's run; return None if its lease has ended by ``boottime``.

        For a claim that was taken over, look for the run first: an earlier send may have arrived.
        """
        if boottime() >= lease_ends:
            return None
        if (doubts := self._doubts) != self._cleared:
            if (why := await self.confirm()) is not None:
                return replace(self._unknown(claim, _unsent(why)), failure="unavailable")
            self._cleared = doubts
        if not claim.fresh:
            answer = await self._look(claim)
            if answer is not None:
                return answer
            if boottime() >= lease_ends:
                return None
        return await self._send(claim, lease_ends)

    def doubt(self) -> None:
        """Confirm before the next send: a call was not answered, and another server may be next."""
        self._doubts += 1

    async def ask(self) -> str | None:
        """Make a call that needs the whole server; return why there was no answer, if so.

        It describes a run that does not exist. The frontend would describe the namespace from
        memory, even if nothing behind it can start a run.
        """
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace, execution=Execution(workflow_id=_NOBODY)
        )
        try:
            with temporal_call("DescribeWorkflowExecution"):
                await self._client.workflow_service.describe_workflow_execution(
                    request, timeout=self._settings.rpc_timeout
                )
        except Exception as error:  # noqa: BLE001 - any error is classified here
            if classify_rpc_error(error) == "unavailable":
                return _words(error)
        return await self.confirm()

    async def _send(self, claim: Claim, lease_ends: float) -> Answer:
        now = self._clock.about()
        timing = self._timing(claim, now)
        try:
            handle = await self._begin(claim, now, timing, lease_ends)
        except WorkflowAlreadyStartedError:
            vanished = LookupError("started, then not found")
            return await self._look(claim) or self._unknown(claim, vanished)
        except RPCError as error:
            return self._refused(claim, error)
        except Exception as error:  # noqa: BLE001 - an unknown error is an unknown outcome
            return self._unknown(claim, error)
        run_id = handle.first_execution_run_id or ""
        answered = self._clock.about()
        return Answer(
            Outcome(
                claim.fire_id,
                claim.token,
                "started",
                timing,
                run_id,
                answered,
                first_run_id=run_id or None,
                reported=not claim.schedule.external,
            )
        )

    async def _begin(
        self, claim: Claim, now: datetime, timing: Timing, lease_ends: float
    ) -> WorkflowHandle[Any, Any]:
        """Start the run, with fewer search attributes if the namespace refuses some.

        Any refusal of a start with them may be due to them: what is sent decides, not what the
        server says.
        """
        options = await self._options(claim, now, timing)
        key = claim.key if _start_id(claim) is None else None
        own = {} if claim.kind == "handler" else claim.schedule.search_attributes
        wanted = sent = self.attributes.of(key, own)
        while True:
            pairs = [SearchAttributePair(_FIRE_TIME, claim.fire_time), *sent]
            try:
                handle: WorkflowHandle[Any, Any] = await self._client.start_workflow(
                    claim.workflow_type, **options, search_attributes=TypedSearchAttributes(pairs)
                )
            except RPCError as error:
                refused = error.status == RPCStatusCode.INVALID_ARGUMENT
                if not (refused and sent and boottime() < lease_ends):
                    raise
                sent = await self.attributes.fewer(sent)
            else:
                self.attributes.accepted(key, sent, of=wanted)
                return handle

    async def _options(self, claim: Claim, now: datetime, timing: Timing) -> dict[str, Any]:
        """Return the options of the start, without search attributes."""
        rules, is_handler = _rules(claim), claim.kind == "handler"
        memo = {} if is_handler else claim.schedule.memo
        limits = None if is_handler else claim.schedule.timeout
        given = (rules.timeout, limits.execution if limits else None)
        timeout = min((each.total_seconds() for each in given if each), default=None)
        info = fire_info(
            claim,
            ledger=self.ledger,
            timing=timing,
            timeout=timeout,
            retries=rules.retry is not None,
        )
        return {
            "args": await self._arguments(claim),
            "id": claim.workflow_id,
            "task_queue": claim.task_queue,
            "id_reuse_policy": WorkflowIDReusePolicy.REJECT_DUPLICATE,
            "id_conflict_policy": WorkflowIDConflictPolicy.FAIL,
            "memo": {**memo, MEMO_KEY: await self._memo(info)},
            "static_summary": summary(claim, info),
            "static_details": details(claim, info, now - claim.fire_time),
            "run_timeout": rules.timeout,
            "execution_timeout": limits and limits.execution,
            "task_timeout": limits and limits.task,
            "retry_policy": rules.retry,
            "priority": _priority(claim),
            "rpc_timeout": self._settings.rpc_timeout,
        }

    async def _arguments(self, claim: Claim) -> list[Any]:
        """Return the arguments; a sealed one as Temporal shall get it.

        Without a codec the payload goes as it is: the team's worker reads it. With one it is opened
        first, because the client encodes it again.
        """
        arguments = list(claim.arguments)
        for number, each in enumerate(arguments):
            if isinstance(each, Sealed):
                converter = self._client.data_converter
                has_codec = converter.payload_codec is not None
                arguments[number] = (
                    await opened(each, converter) if has_codec else RawValue(payload_of(each))
                )
        return arguments

    async def _memo(self, info: FireInfo) -> object:
        """Return the memo; with a codec as a payload, which the client sends as it is."""
        written = info.to_memo()
        codec = self._client.data_converter.payload_codec
        if codec is None:
            return written
        if self._plain is None:
            self._plain = await lets_plain_through(codec)
        return PayloadConverter.default.to_payload(written) if self._plain else written

    async def _look(self, claim: Claim) -> Answer | None:
        """Look for the claim's run; return what it is, or None if it is safe to start one."""
        timeout = self._settings.rpc_timeout
        try:
            run = await description_of(self._client, claim.workflow_id, rpc_timeout=timeout)
        except Exception as error:  # noqa: BLE001 - an unknown error is an unknown outcome
            return self._unknown(claim, error)
        if run is None:
            why = await self.confirm()
            return self._unknown(claim, _unsent(why)) if why else self._forgotten(claim)
        info = None
        try:
            info = await read_chain_info(self._client, run, rpc_timeout=timeout)
        except Exception as error:  # noqa: BLE001 - an unreadable memo proves nothing
            # A replica with the codec will read it, unless no replica of ours started the run.
            if not isinstance(error, ValueError) or _bears(run, claim.fire_time):
                return self._unknown(claim, error)
        return self._judge(claim, run, info)

    def _forgotten(self, claim: Claim) -> Answer | None:
        """Return None if it is safe to send, ``unvouched`` if retention may have hidden a run."""
        if claim.retention is None:
            return None
        safe_for = claim.retention - self._settings.margin_of(claim.retention)
        age = self._clock.latest() - claim.starting_at
        if age <= safe_for:
            return None
        reason = Reason(
            "may_have_run",
            "may have run: no answer to its start is known, and the retention has passed",
        )
        outcome = Outcome(claim.fire_id, claim.token, "unvouched", reason=reason)
        return Answer(outcome, alert=reason)

    def _judge(
        self, claim: Claim, run: WorkflowExecutionDescription, info: FireInfo | None
    ) -> Answer:
        """Return whether a run under the claim's id is the claim's own; another one rejects it."""
        if info is None or not self._is_of(claim, info):
            whose = "no memo of a ledger" if info is None else f"the memo of ledger {info.ledger}"
            error = f"run {run.run_id} of type {run.workflow_type} carries {whose}"
            outcome = Outcome(claim.fire_id, claim.token, "rejected", reason=_FOREIGN, error=error)
            return Answer(outcome, alert=error)
        started, first = run.start_time, first_run_of(run)
        outcome = Outcome(
            claim.fire_id,
            claim.token,
            "started",
            self._timing(claim, started),
            run.run_id,
            started,
            first_run_id=first,
            reported=not claim.schedule.external,
        )
        return Answer(outcome, seen=replace(evidence_of(run), first_run_id=first))

    def _is_of(self, claim: Claim, info: FireInfo) -> bool:
        """Return whether a run with the claim's id was started for the claim's fire."""
        if (self.ledger, claim.key) != (info.ledger, info.key):
            return False
        if claim.key.startswith(STARTS):
            return True  # its id is the application's; the commit of an earlier request was lost
        # The fire time too: a bucket may belong to another fire time after an edit.
        mine = (claim.series, claim.bucket, claim.fire_time)
        return mine == (info.series, info.bucket, info.fire_time)

    def _refused(self, claim: Claim, error: RPCError) -> Answer:
        if error.status != RPCStatusCode.INVALID_ARGUMENT and not too_large(error):
            return self._unknown(claim, error)
        reason = _TOO_LARGE if too_large(error) else _REFUSED
        outcome = Outcome(
            claim.fire_id, claim.token, "rejected", reason=reason, error=error.message
        )
        return Answer(outcome, alert=f"{reason}: {error.message}")

    def _unknown(self, claim: Claim, error: Exception) -> Answer:
        """Return an unknown outcome: a sweeper looks for the run and retries."""
        longest = self._settings.lease.total_seconds()
        wait = timedelta(seconds=backoff(_FIRST_PAUSE, claim.attempts, longest))
        outcome = Outcome(
            claim.fire_id, claim.token, "starting", error=_words(error), retry_after=wait
        )
        failure = classify_rpc_error(error)
        if failure == "unavailable":
            self.doubt()
        return Answer(outcome, failure=failure)

    def _timing(self, claim: Claim, started: datetime) -> Timing:
        if claim.timing != "on_time":
            return claim.timing
        plan = claim.fire_time + claim.schedule.delay(claim.fire_time)
        return "on_time" if started - plan <= claim.schedule.grace else "late"


def _bears(run: WorkflowExecutionDescription, fire_time: datetime) -> bool:
    """Return whether the run has the search attribute of our starts, which no codec hides."""
    return run.typed_search_attributes.get(_FIRE_TIME) == fire_time


def _rules(claim: Claim) -> RunOptions:
    """Return the options of the run: those of its schedule, else those that its class declares.

    A handler has those of its class: the schedule is that of the run which ended badly. An external
    type declares none.
    """
    if claim.kind == "handler":
        return RunOptions.from_json(claim.rules)
    schedule = claim.schedule
    declared = RunOptions() if schedule.external else RunOptions.from_json(claim.rules)
    timeout = schedule.timeout.run if schedule.timeout else None
    return declared.overridden(timeout=timeout, retry=_retry(schedule.retry))


def _priority(claim: Claim) -> Priority:
    """Return the priority of the run, and whose turn it takes; its steps take both over."""
    if claim.kind == "handler":
        return Priority()
    schedule = claim.schedule
    turn = schedule.fairness
    return Priority(
        priority_key=schedule.priority,
        fairness_key=fairness_key(turn.key) if turn else None,
        fairness_weight=turn.weight if turn else None,
    )


def _retry(declared: RunRetry | None) -> Retry | None:
    if declared is None:
        return None
    if declared.intervals:
        return Retry(max_attempts=declared.tries, intervals=declared.intervals)
    return Retry(
        max_attempts=declared.tries,
        initial_interval=declared.initial or 1.0,
        backoff=declared.coefficient or 2.0,
        max_interval=declared.max,
    )


def _unsent(why: str) -> LookupError:
    return LookupError(f"no start was sent: {why}")


def _words(error: Exception) -> str:
    if isinstance(error, RPCError):
        return f"{error.status.name}: {error.message}"
    if type(error) is LookupError:  # of this module
        return str(error)
    return f"{type(error).__name__}: {error}"
