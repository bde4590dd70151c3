"""Temporal's own metrics, of the Core of its SDK, carried over to OpenTelemetry.

The SDK has an exporter for that, which is used here with two precautions. It recognizes labels by
the identity of their object and keeps none alive, although Core makes new ones for each run: after
a while measurements have the labels of others, and its cache grows for ever. And it handles each
update by itself: a thousand runs leave twenty thousand in a second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Self

from opentelemetry.metrics import MeterProvider
from temporalio.contrib.opentelemetry import MetricsExporter
from temporalio.runtime import (
    BUFFERED_METRIC_KIND_COUNTER,
    BUFFERED_METRIC_KIND_GAUGE,
    BufferedMetric,
    BufferedMetricUpdate,
    MetricBuffer,
    MetricBufferDurationFormat,
    Runtime,
    TelemetryConfig,
)

CORE_METER: Final = "temporalio"
"""Name of the meter of Temporal's metrics."""
_BUFFERED: Final = 100_000
"""Updates that may gather between two drains, which are a second apart."""
_MOST_SETS: Final = 5000
"""Sets of labels that are known; further ones share one. OpenTelemetry allows 2,000 a metric."""
_OVERFLOW: Final = {"otel.metric.overflow": True}
_LOOK: Final = 0.1

Labels = Mapping[str, str | int | float | bool]


def _runtime(metrics: MetricBuffer) -> Runtime:
    return Runtime(telemetry=TelemetryConfig(metrics=metrics, attach_service_name=False))


class TemporalMetrics:
    """Runtime of a Temporal client whose metrics go to a meter provider while ``with`` lasts.

    They are carried by a thread: in the event loop of a worker they would delay starts.

    Args:
        provider: where they go; by default the global one of the application.
        make: makes the runtime, whose metrics go to this buffer.

    Attributes:
        runtime: to be given to ``Client.connect``; a client without it has no metrics.
    """

    def __init__(
        self,
        provider: MeterProvider | None = None,
        *,
        make: Callable[[MetricBuffer], Runtime] = _runtime,
    ) -> None:
        self._provider = provider
        self._buffer = MetricBuffer(_BUFFERED, MetricBufferDurationFormat.SECONDS)
        self.runtime = make(self._buffer)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._carry()), name="sched-metrics", daemon=True
        )

    def __enter__(self) -> Self:
        """Begin to carry."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Carry what is left, and end; takes about a tenth of a second."""
        self._stopped.set()
        self._thread.join()

    async def _carry(self) -> None:
        folded: MetricBuffer = FoldedBuffer(self._buffer)  # type: ignore[assignment] # it only reads
        async with MetricsExporter(folded, self._provider, meter_name=CORE_METER):
            while not self._stopped.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(_LOOK)


class FoldedUpdate(NamedTuple):
    """An update, or the sum of several; see ``BufferedMetricUpdate``."""

    metric: BufferedMetric
    value: int | float
    attributes: Labels


class FoldedBuffer:
    """Buffer whose equal labels are one object for ever, and whose counters are added up.

    Of a gauge only the last value is left. Histograms keep every value.

    Args:
        buffer: the buffer of a runtime.
    """

    def __init__(self, buffer: MetricBuffer) -> None:
        self._buffer = buffer
        self._labels: dict[frozenset[tuple[str, str | int | float | bool]], Labels] = {}
        self._metrics: dict[tuple[str, int], BufferedMetric] = {}

    def retrieve_updates(self) -> list[FoldedUpdate]:
        """Drain the buffer; see ``MetricBuffer``."""
        folded: dict[tuple[int, int], FoldedUpdate] = {}
        every: list[FoldedUpdate] = []
        for each in self._buffer.retrieve_updates():
            update = self._of(each)
            place = (id(update.metric), id(update.attributes))
            if update.metric.kind == BUFFERED_METRIC_KIND_COUNTER:
                before = folded.get(place)
                more = before.value if before else 0
                folded[place] = update._replace(value=update.value + more)
            elif update.metric.kind == BUFFERED_METRIC_KIND_GAUGE:
                folded[place] = update
            else:
                every.append(update)
        return [*every, *folded.values()]

    def _of(self, each: BufferedMetricUpdate) -> FoldedUpdate:
        metric = self._metrics.setdefault((each.metric.name, each.metric.kind), each.metric)
        key = frozenset(each.attributes.items())
        labels = self._labels.get(key)
        if labels is None:
            labels = dict(each.attributes) if len(self._labels) < _MOST_SETS else _OVERFLOW
            if labels is not _OVERFLOW:
                self._labels[key] = labels
        return FoldedUpdate(metric, each.value, labels)
