"""Turns one claim into one run, and every answer of the server into a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RetryConfig, RPCError, RPCStatusCode, ServiceClient

from engine.errors import TemporalUnavailable
from engine.flow.fire import MEMO_KEY, FireInfo
from engine.flow.run_rules import RunRules
from engine.ledger.fire_records import Claim, Closed, Evidence, Outcome, Timing
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.describe import details, fire_info, summary
from engine.runtime.post_mortem import with_reason
from engine.runtime.run_memo import first_run_of, read_chain_info
from engine.runtime.settings import Settings
from engine.runtime.trouble import Trouble, too_large, trouble

_FIRE_TIME = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
_CLOSED: dict[WorkflowExecutionStatus, Closed] = {
    WorkflowExecutionStatus.COMPLETED: "completed",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.TIMED_OUT: "timed_out",
}
"""Continue-as-new is not among them: the run goes on under the same id."""
_NOBODY = "sched"
"""The id of no run: ours have a colon behind it."""


async def patient_client(client: Client) -> Client:
    """Return a client like this one, on a connection of its own, that never retries by itself.

    The SDK's hidden retries stall for 10 to 30 seconds; the sweeper is the only retry. The
    user's data converter and interceptors stay. (``max_retries=0`` would mean "for ever".)

    It is connected: until one is, its calls raise RuntimeError, and afterwards RPCError alone.

    Raises:
        TemporalUnavailable: nothing answers there.
    """
    config: dict[str, Any] = {**client.config(active_config=True)}
    retry = RetryConfig(max_retries=1)
    try:
        service = await ServiceClient.connect(
            replace(client.service_client.config, retry_config=retry, lazy=False)
        )
    except RuntimeError as error:
        raise TemporalUnavailable(f"the Temporal server cannot be reached: {error}") from error
    return Client(**{**config, "service_client": service, "plugins": []})


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a claim, and what was seen of a run that existed before the send.

    ``trouble`` is the server's, and no news of the claim.
    """

    outcome: Outcome
    seen: Evidence | None = None
    alert: str | None = None
    trouble: Trouble | None = None


class Starter:
    """Starts runs. It returns what happened; somebody else writes it down."""

    def __init__(self, client: Client, clock: LedgerClock, settings: Settings) -> None:
        self._client, self._clock, self._settings = client, clock, settings
        self.ledger = ""

    async def start(self, claim: Claim, lease_ends: float) -> Answer | None:
        """Start the claim's run, unless its lease has ended by ``boottime``: then None.

        A claim that was taken over is looked for first: an earlier send may have arrived.
        """
        if boottime() >= lease_ends:
            return None
        if not claim.fresh:
            answer = await self._look(claim)
            if answer is not None:
                return answer
            if boottime() >= lease_ends:
                return None
        return await self._send(claim)

    async def ask(self) -> str | None:
        """Make a call that needs the whole server; return why there was no answer, if so.

        It describes a run that does not exist. Describing the namespace would be answered from
        the frontend's memory, while nothing behind it can start a run.
        """
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace, execution=Execution(workflow_id=_NOBODY)
        )
        try:
            await self._client.workflow_service.describe_workflow_execution(
                request, timeout=self._settings.rpc_timeout
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no answer or one
            return _words(error) if trouble(error) == "away" else None
        return None

    async def _send(self, claim: Claim) -> Answer:
        now = self._clock.about()
        timing = self._timing(claim, now)
        info = fire_info(claim, ledger=self.ledger, timing=timing)
        rules = _rules(claim)
        try:
            handle = await self._client.start_workflow(
                claim.workflow_type,
                args=claim.arguments,
                id=claim.workflow_id,
                task_queue=claim.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                memo={MEMO_KEY: info.to_memo()},
                search_attributes=TypedSearchAttributes(
                    [SearchAttributePair(_FIRE_TIME, claim.fire_time)]
                ),
                static_summary=summary(info),
                static_details=details(claim, info, now - claim.fire_time),
                run_timeout=rules.timeout,
                retry_policy=rules.retry,
                rpc_timeout=self._settings.rpc_timeout,
            )
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
                claim.fire_id, claim.token, "started", timing, run_id, answered,
                first_run_id=run_id or None,
            )
        )  # fmt: skip

    async def _look(self, claim: Claim) -> Answer | None:
        """Look for the claim's run: what it is, or None when it is safe to start one."""
        handle = self._client.get_workflow_handle(claim.workflow_id)
        try:
            run = await handle.describe(rpc_timeout=self._settings.rpc_timeout)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                return self._unknown(claim, error)
            return self._forgotten(claim)
        except Exception as error:  # noqa: BLE001 - an unknown error is an unknown outcome
            return self._unknown(claim, error)
        info = None
        try:
            info = await read_chain_info(self._client, run, rpc_timeout=self._settings.rpc_timeout)
        except Exception as error:  # noqa: BLE001 - what cannot be read says nothing of the run
            # A replica that has the codec will read it; unless nobody of ours has started the run.
            if not isinstance(error, ValueError) or _bears(run, claim.fire_time):
                return self._unknown(claim, error)
        answer = self._judge(claim, run, info)
        if answer.seen is None:
            return answer
        this_run = self._client.get_workflow_handle(claim.workflow_id, run_id=run.run_id)
        seen = await with_reason(answer.seen, this_run, self._settings)
        return replace(answer, seen=seen)

    def _forgotten(self, claim: Claim) -> Answer | None:
        """The server knows no such run: never sent, or run and forgotten by retention?"""
        if claim.retention is None:
            return None
        safe_for = claim.retention - self._settings.margin_of(claim.retention)
        age = self._clock.latest() - claim.starting_at
        if age <= safe_for:
            return None
        reason = "may have run: its start was not answered, and the retention has passed"
        outcome = Outcome(claim.fire_id, claim.token, "unvouched", reason=reason)
        return Answer(outcome, alert=reason)

    def _judge(
        self, claim: Claim, run: WorkflowExecutionDescription, info: FireInfo | None
    ) -> Answer:
        # The fire time too: without a ledger an edit may give its bucket to another moment.
        mine = (self.ledger, claim.key, claim.series, claim.bucket, claim.fire_time)
        if info is None or mine != (
            info.ledger, info.key, info.series, info.bucket, info.fire_time,
        ):  # fmt: skip
            whose = "nobody's memo" if info is None else f"the memo of ledger {info.ledger}"
            error = f"run {run.run_id} of type {run.workflow_type} carries {whose}"
            outcome = Outcome(
                claim.fire_id, claim.token, "rejected", reason="foreign run", error=error
            )
            return Answer(outcome, alert=error)
        started, first = run.start_time, first_run_of(run)
        outcome = Outcome(
            claim.fire_id, claim.token, "started", self._timing(claim, started), run.run_id,
            started, first_run_id=first,
        )  # fmt: skip
        return Answer(outcome, seen=replace(evidence_of(run), first_run_id=first))

    def _refused(self, claim: Claim, error: RPCError) -> Answer:
        if error.status != RPCStatusCode.INVALID_ARGUMENT and not too_large(error):
            return self._unknown(claim, error)
        reason = "payload too large" if too_large(error) else "refused by the server"
        outcome = Outcome(
            claim.fire_id, claim.token, "rejected", reason=reason, error=error.message
        )
        return Answer(outcome, alert=f"{reason}: {error.message}")

    def _unknown(self, claim: Claim, error: Exception) -> Answer:
        """Whether the run exists is not known: the sweeper will look, and ask again."""
        wait = min(timedelta(seconds=0.25 * 2 ** min(claim.attempts, 10)), self._settings.lease)
        outcome = Outcome(
            claim.fire_id, claim.token, "starting", error=_words(error), retry_after=wait
        )
        return Answer(outcome, trouble=trouble(error))

    def _timing(self, claim: Claim, started: datetime) -> Timing:
        if claim.timing != "on_time":
            return claim.timing
        planned = claim.fire_time + claim.schedule.delay(claim.fire_time)
        return "on_time" if started - planned <= claim.schedule.grace else "late"


def _bears(run: WorkflowExecutionDescription, fire_time: datetime) -> bool:
    """Whether the run has the search attribute that every start of ours has; no codec hides it."""
    return run.typed_search_attributes.get(_FIRE_TIME) == fire_time


def _rules(claim: Claim) -> RunRules:
    """What the class of the run declares; an external type is nobody's of ours."""
    external = claim.schedule.external and claim.kind != "handler"
    return RunRules() if external else RunRules.from_json(claim.rules)


def _words(error: Exception) -> str:
    if isinstance(error, RPCError):
        return f"{error.status.name}: {error.message}"
    return f"{type(error).__name__}: {error}"


def evidence_of(run: WorkflowExecution, *, listed: bool = False) -> Evidence:
    """Return the run as evidence for its fire.

    ``listed``: visibility knows no chains. Of a run that did not complete it is only certain that
    it began; it may have been retried or reset.
    """
    closed = _CLOSED.get(run.status) if run.status else None
    if listed and closed != "completed":
        closed = None
    return Evidence(
        workflow_id=run.id,
        run_id=run.run_id,
        started_at=run.start_time,
        closed=closed,
        closed_at=run.close_time if closed else None,
    )
