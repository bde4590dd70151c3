"""Export of traces, as ``sched worker`` and ``sched up`` set it up from the ``OTEL_*`` variables.

It is the only place that loads OpenTelemetry's SDK for traces, and does so only where they are on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from temporalio.contrib.opentelemetry import ReplaySafeTracerProvider

_EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENTRY_POINTS: Final = "opentelemetry_traces_exporter"
_OTLP: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_CURE: Final = "write otlp, console or none"


def exporter_names() -> list[str]:
    """Return the exporters of traces that the environment names; none if traces are off.

    Without ``OTEL_TRACES_EXPORTER`` an OTLP endpoint turns them on.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    default = "otlp" if _first_of(_ENDPOINTS) else "none"
    named = os.environ.get(_EXPORTERS, "").strip() or default
    return [name for each in named.split(",") if (name := each.strip()) not in {"", "none"}]


def export_traces() -> list[str]:
    """Set the tracer provider of this process as the environment asks; return warnings.

    Traces never keep a worker from working: what is wrong with them is a warning, and the worker
    goes on without them. A provider that user code has set stays.
    """
    if not (names := exporter_names()):
        return []
    from engine.telemetry.traces import application_provider  # noqa: PLC0415 - traces are on

    if application_provider() is not None:
        return []
    warnings: list[str] = []
    exporters = [*_exporters(names, warnings)]
    if exporters:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
        from opentelemetry.trace import set_tracer_provider  # noqa: PLC0415 - as above

        provider = tracer_provider()
        for exporter in exporters:
            provider.add_span_processor(BatchSpanProcessor(exporter))
        set_tracer_provider(provider)
    return warnings


def tracer_provider(resource: Resource | None = None) -> ReplaySafeTracerProvider:
    """Return a tracer provider for workers: safe on replay, with the ids of windows.

    An application adds its span processors to it and sets it, before it makes its worker.

    Args:
        resource: describes the process; by default what ``OTEL_RESOURCE_ATTRIBUTES`` and
            ``OTEL_SERVICE_NAME`` say, as service ``sched``.
    """
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - traces are on
    from temporalio.contrib.opentelemetry import create_tracer_provider  # noqa: PLC0415 - as above

    from engine.telemetry.window_ids import WindowIds  # noqa: PLC0415 - as above

    sampler = TracerProvider(shutdown_on_exit=False).sampler  # as OTEL_TRACES_SAMPLER names it
    provider = create_tracer_provider(
        sampler=sampler, resource=resource or _resource(), id_generator=WindowIds()
    )
    # Temporal's wrapper hides it, and a window's trace asks whether it is sampled.
    vars(provider)["sampler"] = sampler
    return provider


def _resource() -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - traces are on

    named = {"service.name": "sched", "service.version": version("sched-engine")}
    # What the environment says is stronger; its default for the service is no name.
    given = {
        name: value
        for name, value in Resource.create().attributes.items()
        if not str(value).startswith("unknown_service")
    }
    return Resource({**named, **given})


def _exporters(names: list[str], warnings: list[str]) -> Iterator[Any]:
    for name in names:
        wanted = name
        if name == "otlp":
            protocol = _first_of(_PROTOCOLS) or "grpc"
            wanted = _OTLP.get(protocol, "")
            if not wanted:
                text = f"traces are not exported: {_PROTOCOLS[1]} is {protocol!r}"
                warnings.append(f"{text}; write grpc or http/protobuf")
                continue
        found = [*entry_points(group=_ENTRY_POINTS, name=wanted)]
        if not found:
            what = f"traces are not exported: {_EXPORTERS} names {name!r}"
            cure = "install sched-engine[otlp]" if name.startswith("otlp") else _CURE
            warnings.append(f"{what}, which is not installed; {cure}")
            continue
        try:
            yield found[0].load()()
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker goes on
            text = f"traces are not exported: the exporter {name!r} cannot be made"
            warnings.append(f"{text}: {type(error).__name__}: {error}; see its OTEL_* variables")


def _first_of(names: tuple[str, ...]) -> str:
    return next((found for name in names if (found := os.environ.get(name, "").strip())), "")
