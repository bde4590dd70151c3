"""Export of metrics by ``sched worker`` and ``sched up``: OpenTelemetry's SDK from ``OTEL_*``.

An application with a worker of its own configures OpenTelemetry itself, and none of this runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import CollectorRegistry, make_wsgi_app
from temporalio.runtime import Runtime

from engine.errors import SettingsInvalid
from engine.telemetry.core_metrics import CORE_METER, TemporalMetrics
from engine.telemetry.environment import exporter_names, exporter_of, is_disabled, resource_of
from engine.telemetry.http import Respond
from engine.telemetry.instruments import SECONDS, use
from engine.telemetry.logs import core_runtime

_PATIENCE: Final = 5000
"""Milliseconds for the last export of a worker that leaves."""
_TURN: Final = 0.0005
"""Seconds that a thread may compute while others wait, a tenth of Python's own.

An export computes for some 20 ms in a thread. A tick waits several times for a server, and each
time would have waited as long again for that thread: a window of that moment started 20 ms later.
"""


@dataclass(frozen=True, slots=True)
class Exports:
    """Where the metrics of this process go, and the log of Temporal's Core.

    Attributes:
        provider: the meter provider; None if they go nowhere.
        respond: answers ``/metrics``; None if no port was asked for.
        temporal: Temporal's own metrics; None if metrics go nowhere.
        runtime: the runtime for Temporal's clients, whose Core logs to the log of this process.
    """

    provider: MeterProvider | None = None
    respond: Respond | None = None
    temporal: TemporalMetrics | None = None
    runtime: Runtime | None = None

    def client_options(self) -> dict[str, Runtime]:
        """Return the arguments for ``Client.connect``."""
        return {"runtime": self.runtime} if self.runtime else {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Carry Temporal's metrics over while the block lasts, and export the last ones."""
        if self.provider is None or self.temporal is None:
            yield
            return
        usual = sys.getswitchinterval()
        sys.setswitchinterval(min(usual, _TURN))
        try:
            try:
                with self.temporal:
                    yield
            finally:
                await asyncio.to_thread(self.provider.shutdown, timeout_millis=_PATIENCE)
        finally:
            sys.setswitchinterval(usual)
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
        return Exports(runtime=core_runtime())
    readers = [_reader(name) for name in exporter_names("metrics", environment)]
    respond = None
    if prometheus:
        reader, respond = _prometheus()
        readers.append(reader)
    if not readers:
        return Exports(runtime=core_runtime())
    # Pages of Prometheus have no exemplars, which cost as much again as a measurement.
    chosen = environment.get("OTEL_METRICS_EXEMPLAR_FILTER")
    provider = MeterProvider(
        readers,
        resource=resource_of(environment),
        exemplar_filter=None if chosen else AlwaysOffExemplarFilter(),
        views=_VIEWS,
    )
    set_meter_provider(provider)
    use(provider)
    temporal = TemporalMetrics(provider, make=core_runtime)
    return Exports(provider, respond, temporal, temporal.runtime)


_VIEWS: Final = [
    View(
        instrument_type=Histogram,
        meter_name=CORE_METER,
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
