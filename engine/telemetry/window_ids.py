"""Id generator for tracer providers. It is separate because it needs OpenTelemetry's SDK."""

from __future__ import annotations

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from engine.telemetry.traces import wanted_ids


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
