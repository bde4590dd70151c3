"""Tracer provider of workers: ids of windows, and exporters that say when a collector is away.

``sched worker`` and ``sched up`` set it up from OpenTelemetry's variables; an application may make
one for its own worker. Nothing else loads the SDK for traces.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import set_tracer_provider
from temporalio.contrib.opentelemetry import ReplaySafeTracerProvider, create_tracer_provider

from engine.telemetry.environment import exporter_names, exporter_of, resource_of
from engine.telemetry.traces import application_provider, wanted_ids

_LOG: Final = logging.getLogger("sched")
_LONGEST: Final = 300
"""Characters of the cause of a failed export."""

# --- provider ---


class WindowIds(RandomIdGenerator):
    """Generator of the ids of windows, and of random ids for all other spans.

    ``TracerProvider(id_generator=WindowIds())`` in an application makes the claim of a window the
    first span of its trace.
    """

    def generate_trace_id(self) -> int:
        """Return the id of the window's trace, or a random one."""
        ids = wanted_ids()
        return ids.trace_id if ids else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Return the id of the window's span, or a random one."""
        ids = wanted_ids()
        return ids.span_id if ids else super().generate_span_id()


def tracer_provider(
    resource: Resource | None = None, *, exporters: Sequence[SpanExporter] = ()
) -> ReplaySafeTracerProvider:
    """Return a tracer provider for workers: safe on replay, with the ids of windows.

    An application adds its span processors to it and sets it, before it makes its worker.

    Args:
        resource: describes the process; by default what ``OTEL_RESOURCE_ATTRIBUTES`` and
            ``OTEL_SERVICE_NAME`` say, as service ``sched``.
        exporters: each is watched, and gets the spans in batches.
    """
    sampler = TracerProvider(shutdown_on_exit=False).sampler  # as OTEL_TRACES_SAMPLER names it
    provider = create_tracer_provider(
        sampler=sampler, resource=resource or resource_of(os.environ), id_generator=WindowIds()
    )
    # Temporal's wrapper hides it, and a window's trace asks whether it is sampled.
    vars(provider)["sampler"] = sampler
    for exporter in exporters:
        watched = WatchedExporter(exporter)
        provider.add_span_processor(BatchSpanProcessor(watched))
        atexit.register(watched.leave)  # before the provider's own handler, which waits for it
    return provider


def export_traces(environment: Mapping[str, str] = os.environ) -> None:
    """Set the tracer provider of this process as the environment asks, if traces are on.

    A provider that user code has set stays.

    Args:
        environment: has the variables ``OTEL_*`` that the SDK defines.

    Raises:
        SettingsInvalid: an exporter is unknown, or its package is not installed.
    """
    names = exporter_names("traces", environment)
    if names and application_provider() is None:
        exporters = [exporter_of("traces", name) for name in names]
        set_tracer_provider(tracer_provider(exporters=exporters))


# --- exporters ---
# The SDK's exporters log each attempt and each batch while a collector is away, several lines in
# ten seconds, and make a process that ends wait for the last of them.


class WatchedExporter(SpanExporter):
    """Exporter that logs one line when its collector goes away, and one when it is back."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._away_since: float | None = None
        self._lost, self._left = 0, False
        self._first_line = _FirstLine()
        modules = {each.__module__ for each in type(exporter).__mro__}
        if not isinstance(exporter, ConsoleSpanExporter):
            for module in modules - {"builtins", "abc", "typing"}:
                logging.getLogger(module).addFilter(self._first_line)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch. A failure drops it, as the SDK does; it is logged once."""
        if self._left:
            return SpanExportResult.FAILURE
        try:
            with self._first_line.listening():
                result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - the SDK would log a traceback for each batch
            self._first_line.line = f"{type(error).__name__}: {error}"
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._exported()
        else:
            self._failed(len(spans))
        return result

    def _failed(self, spans: int) -> None:
        self._lost += spans
        if self._away_since is None and not self._left:
            self._away_since = time.monotonic()
            why = self._first_line.line or "the collector refused them"
            _LOG.warning("traces are not exported, and are dropped until they are: %s", why)

    def _exported(self) -> None:
        if self._away_since is not None:
            away = time.monotonic() - self._away_since
            _LOG.info("traces are exported again: %d spans lost in %.0f s", self._lost, away)
        self._away_since, self._lost = None, 0

    def leave(self) -> None:
        """Give up a collector that is away, so that the end of the process does not wait for it."""
        if self._away_since is not None:
            self._left = True
            self._exporter.shutdown()

    def shutdown(self) -> None:
        """See the base class."""
        if not self._left:
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See the base class."""
        return self._exporter.force_flush(timeout_millis)


class _FirstLine(logging.Filter):
    """Filter that keeps the first line of an export, which has the cause, and logs none."""

    def __init__(self) -> None:
        super().__init__()
        self.line = ""
        self._thread = threading.local()

    @contextmanager
    def listening(self) -> Iterator[None]:
        self._thread.exporting, self.line = True, ""
        try:
            yield
        finally:
            self._thread.exporting = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(self._thread, "exporting", False):
            return True
        self.line = self.line or record.getMessage()[:_LONGEST]
        return False
