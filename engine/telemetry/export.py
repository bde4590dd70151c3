"""Export of metrics by ``sched worker`` and ``sched up``: OpenTelemetry's SDK from ``OTEL_*``.

An application with a worker of its own configures OpenTelemetry itself, and none of this runs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import CollectorRegistry, make_wsgi_app
from temporalio.contrib.opentelemetry import MetricsExporter
from temporalio.runtime import MetricBuffer, MetricBufferDurationFormat, Runtime, TelemetryConfig

from engine.errors import SettingsInvalid
from engine.telemetry.environment import exporter_names, exporter_of, is_disabled, resource_of
from engine.telemetry.http import Respond
from engine.telemetry.instruments import SECONDS, use

_OF_CORE: Final = "temporalio"
"""Name of the meter of Temporal's own metrics."""
_BUFFERED: Final = 100_000
"""Updates of Temporal's metrics that may gather in the second between two drains."""


@dataclass(frozen=True, slots=True)
class Exports:
    """Where the metrics of this process go.

    Attributes:
        provider: the meter provider; None if they go nowhere.
        respond: answers ``/metrics``; None if no port was asked for.
        runtime: the runtime for the Temporal client, whose own metrics are exported as well; None
            if metrics go nowhere.
        buffer: where the runtime leaves them.
    """

    provider: MeterProvider | None = None
    respond: Respond | None = None
    runtime: Runtime | None = None
    buffer: MetricBuffer | None = None

    def client_options(self) -> dict[str, Runtime]:
        """Return the arguments for ``Client.connect``."""
        return {} if self.runtime is None else {"runtime": self.runtime}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Carry Temporal's metrics over while the block lasts, and export the last ones."""
        if self.provider is None or self.buffer is None:
            yield
            return
        try:
            async with MetricsExporter(self.buffer, self.provider, meter_name=_OF_CORE):
                yield
        finally:
            self.provider.shutdown(timeout_millis=5000)
            use(None)


def configure(*, prometheus: bool, environment: Mapping[str, str] = os.environ) -> Exports:
    """Set up the export of metrics, and make it the process's meter provider.

    Args:
        prometheus: whether ``/metrics`` will be served.
        environment: has the variables ``OTEL_*`` that the SDK defines.

    Raises:
        SettingsInvalid: an exporter is unknown, or its package is not installed.
    """
    if is_disabled(environment):
        return Exports()
    readers = [_reader(name) for name in exporter_names("metrics", environment)]
    respond = None
    if prometheus:
        reader, respond = _prometheus()
        readers.append(reader)
    if not readers:
        return Exports()
    provider = MeterProvider(readers, resource=resource_of(environment), views=_VIEWS)
    set_meter_provider(provider)
    use(provider)
    buffer = MetricBuffer(_BUFFERED, MetricBufferDurationFormat.SECONDS)
    # The Temporal client must be given this runtime: a default one has no metrics.
    telemetry = TelemetryConfig(metrics=buffer, attach_service_name=False)
    return Exports(provider, respond, Runtime(telemetry=telemetry), buffer)


_VIEWS: Final = [
    View(
        instrument_type=Histogram,
        meter_name=_OF_CORE,
        aggregation=ExplicitBucketHistogramAggregation(SECONDS),
    )
]
"""Core's histograms have no bounds of their own, and the SDK's begin at 5 s. Ours have theirs."""


def _reader(name: str) -> MetricReader:
    made = exporter_of("metrics", name)
    if isinstance(made, MetricExporter):
        return PeriodicExportingMetricReader(made)
    if not isinstance(made, MetricReader):
        raise SettingsInvalid([f"OTEL_METRICS_EXPORTER names {name!r}, which exports no metrics"])
    return made


def _prometheus() -> tuple[MetricReader, Respond]:
    """Return a reader whose metrics are pulled, and what answers ``/metrics`` with them."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(scope_info_enabled=False, registry=registry)
    return reader, make_wsgi_app(registry)
