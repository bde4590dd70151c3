"""Traces of a replica: its ticks and events as spans, and the interceptors that make those of runs.

One trace per window: claim, start, run, steps, close. A tick that decided nothing makes no span.
The spans of runs and steps are those of Temporal's SDK.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanContext,
    TracerProvider,
    get_current_span,
    use_span,
)
from temporalio import activity, client, worker
from temporalio.converter import PayloadConverter
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from engine.flow import HEADER as NOTE_HEADER, StepNote
from engine.ledger import ENDED_BADLY, Claim, Evidence
from engine.runtime.events import Closed, Event, Settled, logger, words_of
from engine.schedules import in_ms, parse_workflow_id
from engine.telemetry.traces import HEADER, Attributes, WindowSpans, caller_in, carried, end, link

if TYPE_CHECKING:
    from engine.runtime.tick.poller import DecidedPart, TickRecord

_MOST_STARTS: Final = 10_000
"""Starts in flight that are remembered; an older one continues without a span."""

# --- spans of the scheduler ---


class ReplicaTraces(client.Interceptor):
    """Spans of one replica, and the header of the runs that it starts.

    Args:
        provider: the tracer provider of the process.
        replica: the name of the replica.
    """

    def __init__(self, provider: TracerProvider, replica: str) -> None:
        self._provider, self._replica = provider, replica
        self._spans = WindowSpans(provider, "")
        self._starts: dict[str, Span] = {}

    def begin(self, scope: str) -> None:
        """Take the ids from this ledger and namespace from now on; see ``ids_of``."""
        self._spans = WindowSpans(self._provider, scope)

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        """See the base class."""
        return _TracedStarts(next, self)

    def on_tick(self, tick: TickRecord) -> None:
        """Make the spans of a tick, of its parts, and of the claims that these made."""
        span = self._spans.begin("sched.tick", tick.began)
        for part in tick.parts:
            self._part(part, span)
        claims = sum(len(part.claims) for part in tick.parts)
        end(span, {"sched.replica": self._replica, "sched.claims": claims}, ended=tick.ended)

    def _part(self, part: DecidedPart, tick: Span) -> None:
        span = self._spans.begin("sched.plan", part.began, within=tick)
        here = span.get_span_context()
        for claim in part.claims:
            if claim.fresh:
                links = [here, *self._others(claim)]
                made = self._spans.claim(claim.workflow_id, part.began, links)
            else:
                made = self._spans.within(claim.workflow_id, "sched.take_over", part.began)
            end(made, {**_of(claim), "sched.replica": self._replica}, ended=part.ended)
        link(span, [self._spans.context_of(claim.workflow_id) for claim in part.claims])
        decisions = [each for planned in part.plans for each in planned.decisions]
        without = sum(each.windows for each in decisions if each.verdict != "claimed")
        attributes: Attributes = {
            "sched.source": part.source,
            "sched.claims": len(part.claims),
            "sched.schedules": len(part.plans),
            "sched.windows_without_claim": without,
        }
        end(span, attributes, ended=part.ended)

    def _others(self, claim: Claim) -> Iterator[SpanContext]:
        """Yield the traces that led to this one."""
        if (follows := followed_by(claim)) is not None:
            yield self._spans.context_of(follows)
        if (caller := caller_in(claim.schedule.metadata)) is not None:
            yield caller

    def on_event(self, event: Event) -> None:
        """Make the span of a start that was settled, or of a close that was recorded."""
        try:
            match event:
                case Settled(claim):
                    self._settled(claim, event)
                case Closed(evidence):
                    self._closed(evidence)
        except Exception:  # noqa: BLE001 - an application's sampler may raise anything
            logger.exception("%s was not traced", type(event).__name__)

    def starting(self, workflow_id: str) -> Span:
        """Return the span of a start, which ends when its outcome is written."""
        span = self._starts.get(workflow_id)
        if span is not None:
            return span
        try:
            span = self._spans.start(workflow_id)
        except Exception:  # noqa: BLE001 - as above; the start itself continues
            logger.exception("%s is started without a trace", workflow_id)
            return INVALID_SPAN
        self._starts[workflow_id] = span
        if len(self._starts) > _MOST_STARTS:
            del self._starts[next(iter(self._starts))]
        return span

    def _settled(self, claim: Claim, event: Settled) -> None:
        outcome = event.outcome
        if outcome.status == "starting":  # a sweeper finds out
            return
        # Without a send, because the run was found, it has begun and ended now.
        span = self._starts.pop(claim.workflow_id, None) or self._spans.start(claim.workflow_id)
        attributes = {
            **_of(claim),
            "sched.replica": self._replica,
            "sched.outcome": outcome.status,
            "sched.timing": outcome.timing,
            "sched.lag_ms": in_ms(event.lag),
            "sched.already": event.already,
            "sched.attempts": claim.attempts,
            "sched.reason_code": outcome.reason_code,
            "temporalRunID": outcome.run_id,
        }
        bad = None if outcome.status == "started" else outcome.reason or outcome.error or ""
        end(span, attributes, error=bad)

    def _closed(self, run: Evidence) -> None:
        now = time.time_ns()
        closed = int(run.closed_at.timestamp() * 1_000_000) * 1000 if run.closed_at else now
        began = min(closed, now)
        span = self._spans.within(run.workflow_id, "sched.settle", began)
        attributes: Attributes = {
            "temporalWorkflowID": run.workflow_id,
            "temporalRunID": run.run_id,
            "sched.replica": self._replica,
            "sched.outcome": run.closed,
        }
        bad = (run.error or run.closed) if run.closed in ENDED_BADLY else None
        end(span, attributes, ended=now, error=bad)


def followed_by(claim: Claim) -> str | None:
    """Return the id of the run that this one follows: a handler, or a further run of a window."""
    parsed = parse_workflow_id(claim.workflow_id)
    if parsed is None or claim.kind not in {"handler", "rerun"}:
        return None
    if parsed.handler is not None:
        return claim.workflow_id.removesuffix(f":{parsed.handler}")
    return claim.workflow_id.removesuffix(f":rerun:{parsed.rerun}")


def _of(claim: Claim) -> dict[str, str | int | float | bool | None]:
    metadata = claim.schedule.metadata
    return {
        "sched.topic": claim.schedule.topic,
        "sched.owner_id": metadata.get("ownerId"),
        "sched.tenant_id": metadata.get("tenantId"),
        "sched.correlation_id": metadata.get("correlationId"),
        "sched.client_request_id": metadata.get("clientRequestId"),
        "sched.key": claim.key,
        "sched.project": claim.project,
        "sched.fire_time": claim.fire_time.isoformat(),
        "sched.workflow_type": claim.workflow_type,
        "temporalWorkflowID": claim.workflow_id,
    }


class _TracedStarts(client.OutboundInterceptor):
    """Sender of starts. It is the outermost, so that an application's own spans are inside ours."""

    def __init__(self, following: client.OutboundInterceptor, traces: ReplicaTraces) -> None:
        super().__init__(following)
        self._traces = traces

    async def start_workflow(
        self,
        input: client.StartWorkflowInput,
    ) -> client.WorkflowHandle[Any, Any]:
        span = self._traces.starting(input.id)
        if carrier := carried(span):
            payload = PayloadConverter.default.to_payload(carrier)
            input.headers = {**input.headers, HEADER: payload}
        with use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                return await super().start_workflow(input)
            except (RPCError, WorkflowAlreadyStartedError) as error:
                span.add_event("not started", {"error": words_of(error)})
                raise


# --- spans of runs and steps ---


def worker_interceptors(
    provider: TracerProvider, others: Iterable[object]
) -> list[worker.Interceptor]:
    """Return the interceptor that makes the spans of runs and steps.

    Args:
        provider: the tracer provider of the process.
        others: the interceptors of the worker; none is added beside one of Temporal's.
    """
    from temporalio.contrib.opentelemetry import (  # noqa: PLC0415 - it loads OpenTelemetry's SDK
        OpenTelemetryInterceptor,
        ReplaySafeTracerProvider,
        TracingInterceptor,
    )

    if any(isinstance(each, TracingInterceptor | OpenTelemetryInterceptor) for each in others):
        return []
    if isinstance(provider, ReplaySafeTracerProvider):
        return [_RunTraces(OpenTelemetryInterceptor(add_temporal_spans=True))]
    return [_RunTraces(TracingInterceptor())]


class _RunTraces(worker.Interceptor):
    """One of Temporal's interceptors without its part for clients: starts have spans of ours."""

    def __init__(self, temporals: worker.Interceptor) -> None:
        self._temporals = temporals

    def intercept_activity(
        self,
        next: worker.ActivityInboundInterceptor,
    ) -> worker.ActivityInboundInterceptor:
        return self._temporals.intercept_activity(_NamedAttempts(next))

    def workflow_interceptor_class(
        self,
        input: worker.WorkflowInterceptorClassInput,
    ) -> type[worker.WorkflowInboundInterceptor] | None:
        return self._temporals.workflow_interceptor_class(input)


class _NamedAttempts(worker.ActivityInboundInterceptor):
    """Adder of the attempt, and of what an undo step undoes, to the span of an attempt."""

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        span, info = get_current_span(), activity.info()
        span.set_attribute("sched.attempt", info.attempt)
        if (payload := input.headers.get(NOTE_HEADER)) is not None:
            note = StepNote.from_json(PayloadConverter.default.from_payload(payload))
            if note.undoes:
                span.set_attribute("sched.undoes", note.undoes)
        return await super().execute_activity(input)
