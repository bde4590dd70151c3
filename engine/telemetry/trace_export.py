"""Export of traces, as ``sched worker`` and ``sched up`` set it up from the ``OTEL_*`` variables.

It is separate from ``engine.telemetry.tracer``, because that loads OpenTelemetry's SDK: a quarter
of a second, which a process without traces does not spend.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, Final

_EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENTRY_POINTS: Final = "opentelemetry_traces_exporter"
_OTLP: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


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
        from opentelemetry.trace import set_tracer_provider  # noqa: PLC0415 - as above

        from engine.telemetry.tracer import tracer_provider  # noqa: PLC0415 - as above

        set_tracer_provider(tracer_provider(exporters=exporters))
    return [f"traces are not exported: {warning}" for warning in warnings]


def _exporters(names: list[str], warnings: list[str]) -> Iterator[Any]:
    for name in names:
        wanted = name
        if name == "otlp":
            protocol = _first_of(_PROTOCOLS) or "grpc"
            wanted = _OTLP.get(protocol, "")
            if not wanted:
                cure = "write grpc or http/protobuf"
                warnings.append(f"the protocol of OTEL_EXPORTER_OTLP is {protocol!r}; {cure}")
                continue
        found = [*entry_points(group=_ENTRY_POINTS, name=wanted)]
        if not found:
            otlp = name.startswith("otlp")
            cure = "install sched-engine[otlp]" if otlp else "write otlp, console or none"
            warnings.append(f"{_EXPORTERS} names {name!r}, which is not installed; {cure}")
            continue
        try:
            yield found[0].load()()
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker goes on
            cure = f"see its OTEL_* variables: {type(error).__name__}: {error}"
            warnings.append(f"the exporter {name!r} cannot be made; {cure}")


def _first_of(names: tuple[str, ...]) -> str:
    return next((found for name in names if (found := os.environ.get(name, "").strip())), "")
