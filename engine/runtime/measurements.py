"""Measurements of a replica: its events and its calls as metrics, and the gauges it is read by.

Most of what happens in a replica is an event, which is measured here once. Latencies of servers
are measured where the calls are made, and states are read when an exporter asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final

from temporalio.client import (
    CancelWorkflowInput,
    DescribeWorkflowInput,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    TerminateWorkflowInput,
    WorkflowExecutionDescription,
    WorkflowHandle,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from engine.errors import Code, LedgerUnavailable
from engine.ledger import (
    DIED,
    ENDED_BADLY,
    Claim,
    Evidence,
    Ledger,
    Outcome,
    Serving,
    Totals,
    death_cause,
)
from engine.runtime.clock import age_of, boottime
from engine.runtime.events import Alert, Applied, Closed, Decided, Degraded, Event, Settled
from engine.schedules import STOOD_FOR, parse_workflow_id
from engine.telemetry import instruments
from engine.telemetry.instruments import measures

# --- events ---


class EventMeter:
    """Meter of one replica's events.

    Args:
        keys: patterns of the schedule keys that may be labels.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)

    def on_event(self, event: Event) -> None:
        """Measure an event."""
        match event:
            case Settled(claim, outcome):
                _settled(claim, outcome, event)
            case Decided():
                _decided(event)
            case Closed(evidence):
                self._closed(evidence)
            case Applied(good=good):
                measures().count(instruments.APPLIES, result="applied" if good else "refused")
            case Alert(code=code):
                measures().count(instruments.ALERTS, code=str(code))
                if code == Code.RUN_DOUBLED:
                    measures().count(instruments.DOUBLED)
            case Degraded(loop=loop):
                measures().count(instruments.LOOP_FAILURES, loop=loop)

    def _closed(self, run: Evidence) -> None:
        if run.closed is None or run.closed_at is None:
            return
        to, end, workflow = measures(), run.closed, run.workflow_type or "unknown"
        took = max((run.closed_at - run.started_at).total_seconds(), 0.0)
        to.count(instruments.RUNS, end=end, workflow=workflow)
        to.record(instruments.RUN_DURATION, took, end=end)
        if run.timeout is not None:
            to.record(instruments.RUN_TIMEOUT_USED, took / run.timeout)
        if self._keys:
            parsed = parse_workflow_id(run.workflow_id)
            named = parsed is not None and instruments.is_named(parsed.key, self._keys)
            key = parsed.key if parsed is not None and named else instruments.OTHER
            to.count(instruments.KEY_RUNS, end=end, key=key)
        if end in ENDED_BADLY:
            error = run.failure.error_type if run.failure else end
            to.count(instruments.FAILURES, workflow=workflow, error=error)
        if end in DIED:
            to.count(instruments.DEAD, cause=death_cause(end, run.given_up))


def _settled(claim: Claim, outcome: Outcome, event: Settled) -> None:
    to = measures()
    if outcome.status == "rejected":
        to.count(instruments.DEAD, cause=death_cause("rejected", None))
    if claim.kind != "window" or outcome.status == "starting":
        return
    reason = outcome.reason_code or claim.reason_code or ""
    timing = outcome.timing or claim.timing
    shown = timing if outcome.status == "started" else ""
    to.count(instruments.WINDOWS, class_=outcome.status, reason=reason, timing=shown)
    if outcome.status == "started":
        to.record(instruments.START_DRIFT, event.lag.total_seconds(), timing=timing)
        if timing == "on_time" or timing == "late":  # noqa: PLR1714 - so that mypy sees it
            lag = event.lag - claim.schedule.delay(claim.fire_time)
            to.record(instruments.START_LAG, max(lag.total_seconds(), 0.0))


def _decided(event: Decided) -> None:
    to, decision = measures(), event.decision
    reason = decision.reason.code if decision.reason else ""
    verdict, windows = decision.verdict, decision.windows
    to.count(instruments.WINDOWS, windows, class_=verdict, reason=reason, timing="")
    if verdict == "expired" or reason in STOOD_FOR:
        missed = "expired" if verdict == "expired" else reason
        to.count(instruments.MISSED, windows, reason=missed)
    if verdict == "rejected":
        to.count(instruments.DEAD, cause=death_cause("rejected", None))


# --- totals ---

_MOST: Final = 1000
"""The largest value of a gauge that is counted in the ledger."""
_ASKED: Final = 300.0
"""Seconds after the last read of a gauge in which the ledger is asked for its totals."""


class TotalsReader:
    """Reader of the ledger's totals, while an exporter asks for them."""

    def __init__(self, ledger: Ledger, serving: Serving, every: timedelta) -> None:
        self._ledger, self._serving, self._every = ledger, serving, every
        self._asked_at: float | None = None
        self._found: Totals | None = None

    async def run_once(self) -> timedelta:
        """Read them if they are asked for; return the wait until the next time."""
        age = age_of(self._asked_at)
        if age is None or age > _ASKED:
            self._found = None
            return self._every
        try:
            self._found = await self._ledger.totals(self._serving, most=_MOST)
        except LedgerUnavailable:
            self._found = None  # the poller reports it
        return self._every

    def gauges(self) -> dict[instruments.Instrument, instruments.Observe]:
        """Return the gauges that show them; without totals they have no value."""
        of: dict[instruments.Instrument, Callable[[Totals], int]] = {
            instruments.QUEUE_DEPTH: lambda found: found.queued,
            instruments.PENDING: lambda found: found.pending,
            instruments.RUNS_OPEN: lambda found: found.open_runs,
            instruments.DEAD_LETTERS: lambda found: found.dead_letters,
            instruments.OVERDUE: lambda found: found.overdue,
        }
        return {each: partial(self._read, number) for each, number in of.items()}

    def _read(self, number: Callable[[Totals], int]) -> list[tuple[float, dict[str, str]]]:
        self._asked_at = boottime()
        found = self._found
        return [] if found is None else [(number(found), {})]


def gauge(read: Callable[[], float | None]) -> instruments.Observe:
    """Return a gauge without labels; it has no value while ``read`` returns None."""

    def observe() -> list[tuple[float, dict[str, str]]]:
        value = read()
        return [] if value is None else [(value, {})]

    return observe


# --- calls to servers ---


def measure_statement(name: str, seconds: float, failed: bool) -> None:  # noqa: FBT001 - a callback
    """Record how long a statement of the ledger took; ``name`` is that of its query."""
    outcome = "failed" if failed else "ok"
    measures().record_soon(instruments.LEDGER_CALLS, seconds, operation=name, outcome=outcome)


@contextmanager
def temporal_call(operation: str) -> Iterator[None]:
    """Measure a call to Temporal; ``operation`` is the name that gRPC has for it."""
    begun, outcome = time.monotonic(), "ok"
    try:
        yield
    except RPCError as error:
        outcome = error.status.name.lower()
        raise
    except WorkflowAlreadyStartedError:
        outcome = "already_exists"
        raise
    except BaseException:
        outcome = "failed"
        raise
    finally:
        took = time.monotonic() - begun
        measures().record(instruments.TEMPORAL_CALLS, took, operation=operation, outcome=outcome)


class CallTimes(Interceptor):
    """Interceptor of a client that measures the calls that the scheduler makes with it."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """See the base class."""
        return _TimedCalls(next)


class _TimedCalls(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        with temporal_call("StartWorkflowExecution"):
            return await super().start_workflow(input)

    async def describe_workflow(self, input: DescribeWorkflowInput) -> WorkflowExecutionDescription:
        with temporal_call("DescribeWorkflowExecution"):
            return await super().describe_workflow(input)

    async def cancel_workflow(self, input: CancelWorkflowInput) -> None:
        with temporal_call("RequestCancelWorkflowExecution"):
            await super().cancel_workflow(input)

    async def terminate_workflow(self, input: TerminateWorkflowInput) -> None:
        with temporal_call("TerminateWorkflowExecution"):
            await super().terminate_workflow(input)
