"""An application with a worker of its own, which measures into a meter provider of its own.

    python -m tests.measured_application ADDRESS NAMESPACE DATABASE

The plugin is made before the provider is set, as happens where modules make clients. It prints the
names of the engine's metrics and of Temporal's once a run has closed, and the answer of its own
health port.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from temporalio.client import Client
from temporalio.worker import Worker

from engine.runtime import SchedulePlugin, Settings
from engine.schedules import load_schedules
from engine.telemetry.core_metrics import CORE_METER, TemporalMetrics
from engine.telemetry.http import serving
from tests.pages import ask
from tests.sample_workflows import Noop
from tests.waiting import eventually

FILE = "schedules: [{key: own, workflow: noop, everyMs: 1000}]"


def names(reader: InMemoryMetricReader, scope_name: str = "sched") -> set[str]:
    data = reader.get_metrics_data()
    resources = data.resource_metrics if data else []
    return {
        metric.name
        for resource in resources
        for scope in resource.scope_metrics
        if scope.scope.name == scope_name
        for metric in scope.metrics
    }


async def main(address: str, namespace: str, database_url: str) -> None:
    settings = Settings(track=timedelta(milliseconds=200))
    plugin = SchedulePlugin(load_schedules(FILE), database_url=database_url, settings=settings)
    reader = InMemoryMetricReader()
    set_meter_provider(MeterProvider([reader]))
    with TemporalMetrics() as metrics:
        client = await Client.connect(
            address, namespace=namespace, plugins=[plugin], runtime=metrics.runtime
        )
        await measure(client, plugin, reader)


async def measure(client: Client, plugin: SchedulePlugin, reader: InMemoryMetricReader) -> None:
    async with (
        serving(plugin.health, port=0) as port,
        Worker(client, task_queue="sched", workflows=[Noop]),
    ):
        await eventually(lambda: "sched.runs" in names(reader), timeout=60, every=0.2)
        print("of sched:", *sorted(names(reader)))  # noqa: T201 - what the test reads
        ended = "temporal_workflow_completed"
        await eventually(lambda: ended in names(reader, CORE_METER), timeout=60, every=0.2)
        print("of Temporal:", *sorted(names(reader, CORE_METER)))  # noqa: T201 - what the test reads
        print("readiness:", *await ask(port, "/readyz"), end="")  # noqa: T201 - what the test reads


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
