"""Traces of windows: one for each, with ids that every replica derives by itself.

The ids of a trace and of its first spans are hashes of ledger and workflow id. So a replica that
takes a claim over, or sees its run close, continues the trace without any message.

The module uses OpenTelemetry's API alone, and is loaded only where a tracer provider is set. An API
cannot choose ids: a provider with ``WindowIds`` (``engine.telemetry.tracer``) takes them from
here. With another one, the first spans of a window have a common parent that no span is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TracerProvider,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Attributes: TypeAlias = Mapping[str, str | int | float | bool | None]

TRACER: Final = "sched"
"""Name of the engine's tracer."""

HEADER: Final = "_tracer-data"
"""Header of a run in which the interceptors of Temporal's SDK look for the parent of its span."""

_W3C: Final = TraceContextTextMapPropagator()
_MOST_LINKS: Final = 100
"""Links of one span; the SDK drops those above 128."""
_LONGEST: Final = 500
"""Characters of an attribute."""

# --- ids ---

_Named: TypeAlias = Literal["claim", "start"]
"""The spans of a window that others may continue: each has an id that follows from its name."""


@dataclass(frozen=True, slots=True)
class SpanIds:
    """Ids of a span to come: 128 bits of the trace, 64 bits of the span."""

    trace_id: int
    span_id: int


_wanted: ContextVar[SpanIds | None] = ContextVar("sched_span_ids", default=None)


def wanted_ids() -> SpanIds | None:
    """Return the ids for the span that is being made here; None if they may be random."""
    return _wanted.get()


def ids_of(scope: str, workflow_id: str, name: _Named) -> SpanIds:
    """Return the ids of a window's span.

    Args:
        scope: the ledger and the namespace; other ones have windows of the same workflow id.
        workflow_id: the id of the run.
        name: which span of the window.
    """
    trace = hashlib.sha256(f"{scope}\0{workflow_id}".encode()).digest()[:16]
    span = hashlib.sha256(trace + name.encode()).digest()[:8]
    # Zero is not valid as an id.
    return SpanIds(int.from_bytes(trace) or 1, int.from_bytes(span) or 1)


# --- spans ---


def application_provider() -> TracerProvider | None:
    """Return the tracer provider of this process; None if none is set: nothing is traced."""
    provider = get_tracer_provider()
    return None if isinstance(provider, ProxyTracerProvider) else provider


class WindowSpans:
    """Maker of the scheduler's spans. Moments are nanoseconds since the epoch; None is now.

    Args:
        provider: the tracer provider of the process.
        scope: the ledger and the namespace; see ``ids_of``.
    """

    def __init__(self, provider: TracerProvider, scope: str) -> None:
        self._provider, self._scope = provider, scope
        self._tracer = provider.get_tracer(TRACER)
        ids = ids_of(scope, "", "claim")
        # A span that is never ended, and so never exported, shows whether ids can be chosen.
        chosen = self._span("sched.claim", ids).get_span_context()
        self._derives = (chosen.trace_id, chosen.span_id) == (ids.trace_id, ids.span_id)

    def begin(self, name: str, began: int, *, within: Span | None = None) -> Span:
        """Begin a span of the scheduler itself, in a trace of its own or within another span."""
        context = Context() if within is None else set_span_in_context(within, Context())
        return self._tracer.start_span(name, context, start_time=began)

    def claim(self, workflow_id: str, began: int, links: Sequence[SpanContext]) -> Span:
        """Begin the first span of a window."""
        ids = ids_of(self._scope, workflow_id, "claim")
        above = None if self._derives else self._above(workflow_id)
        linked = [Link(each) for each in links if each.is_valid]
        return self._span("sched.claim", ids, above, links=linked, start_time=began)

    def start(self, workflow_id: str, began: int | None = None) -> Span:
        """Begin the span of a window's start. Whichever replica makes it, it has the same id."""
        ids, above = ids_of(self._scope, workflow_id, "start"), self._above(workflow_id)
        return self._span("sched.start", ids, above, kind=SpanKind.CLIENT, start_time=began)

    def within(self, workflow_id: str, name: str, began: int) -> Span:
        """Begin a further span of a window, below its claim."""
        return self._tracer.start_span(name, self._above(workflow_id), start_time=began)

    def context_of(self, workflow_id: str) -> SpanContext:
        """Return the context of a window's claim, made by whichever replica."""
        ids = ids_of(self._scope, workflow_id, "claim")
        flags = TraceFlags(TraceFlags.SAMPLED if self._is_sampled(ids) else TraceFlags.DEFAULT)
        return SpanContext(ids.trace_id, ids.span_id, is_remote=True, trace_flags=flags)

    def _above(self, workflow_id: str) -> Context:
        return set_span_in_context(NonRecordingSpan(self.context_of(workflow_id)), Context())

    def _span(self, name: str, ids: SpanIds, above: Context | None = None, **options: Any) -> Span:
        token = _wanted.set(ids)
        try:
            return self._tracer.start_span(name, above or Context(), **options)
        finally:
            _wanted.reset(token)

    def _is_sampled(self, ids: SpanIds) -> bool:
        """Return whether the claim of this trace is sampled; the replica that made it is not asked.

        The samplers of the standard variables decide by the trace id alone.
        """
        sampler = getattr(
            self._provider, "sampler", None
        )  # SDK's providers have one, not the API's
        if sampler is None:
            flags = self._span("sched.claim", ids).get_span_context().trace_flags
            return bool(flags & TraceFlags.SAMPLED)
        return bool(sampler.should_sample(None, ids.trace_id, "sched.claim").decision.is_sampled())


def carried(span: Span) -> dict[str, str]:
    """Return the context of a span as the header carries it to a run."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, Context()))
    return carrier


# --- callers ---
# A caller's trace is linked to, and not continued: its windows may open long after it, there may be
# many of them, and each replica has to know their trace by itself.

CALLER: Final = "traceparent"
"""The name in a schedule's metadata of the span that declared it, in the form of W3C."""


def callers_traceparent() -> str | None:
    """Return the span in which this code runs, in the form of W3C; None outside of one."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get(CALLER)


def caller_in(metadata: Mapping[str, Any]) -> SpanContext | None:
    """Return the span that a schedule's metadata name; None if they name none."""
    context = _W3C.extract({CALLER: str(metadata.get(CALLER, ""))}, Context())
    found = get_current_span(context).get_span_context()
    return found if found.is_valid else None


# --- ends ---


def end(
    span: Span, attributes: Attributes, *, ended: int | None = None, error: str | None = None
) -> None:
    """End a span.

    Args:
        span: the span.
        attributes: its attributes; those that are None or empty are left out.
        ended: nanoseconds since the epoch; None is now.
        error: why it failed, if it has.
    """
    for name, value in attributes.items():
        if value is not None and value != "":
            span.set_attribute(name, value[:_LONGEST] if isinstance(value, str) else value)
    if error is not None:
        span.set_status(StatusCode.ERROR, error[:_LONGEST])
    span.end(ended)


def link(span: Span, targets: Sequence[SpanContext]) -> None:
    """Link a span to others, at most to the first 100 of them."""
    for target in targets[:_MOST_LINKS]:
        span.add_link(target)
