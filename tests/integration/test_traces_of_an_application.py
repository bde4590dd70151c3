"""An application's own worker, beside whatever tracer provider the application has set."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import Worker

from engine.runtime import SchedulePlugin
from engine.schedules import load_schedules
from engine.service import ScheduleService
from engine.telemetry.tracer import WindowIds, tracer_provider
from tests import traced_workflows as traced
from tests.waiting import about_to_come, eventually

FILE = "schedules: [{key: journey, workflow: traced, everyMs: 86400000, input: ''}]"
FAMILY = "schedules: [{key: journey, workflow: traced-family, everyMs: 86400000}]"
OTHER = "schedules: [{key: other, workflow: traced@2, everyMs: 86400000}]"
OURS = {"sched.claim", "sched.start", "sched.settle"}


class Application:
    """An application with a worker that keeps no run in memory, and the spans that it exported."""

    def __init__(self, client: Client, database_url: str, provider) -> None:
        self.client, self.database_url, self.exporter = client, database_url, InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("application")

    def worker(self, file: str = FILE) -> Worker:
        plugin = SchedulePlugin(load_schedules(file), database_url=self.database_url)
        return Worker(
            self.client, task_queue="sched", plugins=[plugin], max_cached_workflows=0,
            workflows=[traced.Traced, traced.TracedFamily, traced.TracedChild],
            activities=[traced.hold_room, traced.free_room, traced.bill_room, traced.greet_guest],
        )  # fmt: skip

    def spans(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.exporter.get_finished_spans() if each.name == name]

    async def until_settled(self, most: float = 60) -> None:
        await eventually(lambda: self.spans("sched.settle"), timeout=most)

    def of_window(self) -> list[ReadableSpan]:
        (settle,) = self.spans("sched.settle")
        trace = settle.context.trace_id
        return [s for s in self.exporter.get_finished_spans() if s.context.trace_id == trace]


@pytest.fixture
async def service(client: Client, database_url: str) -> AsyncIterator[ScheduleService]:
    async with ScheduleService.connect(
        database_url, namespace=client.namespace, schema="sched", actor="test"
    ) as opened:
        yield opened


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch):
    """Set a tracer provider for this test alone; OpenTelemetry allows one for each process."""

    def use(provider):
        monkeypatch.setattr(opentelemetry.trace, "_TRACER_PROVIDER", provider)
        return provider

    return use


@pytest.mark.parametrize(
    "provider",
    [
        pytest.param(TracerProvider, id="ordinary"),
        pytest.param(lambda: TracerProvider(id_generator=WindowIds()), id="with our ids"),
        pytest.param(tracer_provider, id="ours", marks=pytest.mark.prove),
    ],
)
async def test_a_window_is_one_trace_beside_the_provider_of_an_application(
    provider, client: Client, database_url: str, traces
):
    application = Application(client, database_url, traces(provider()))
    async with application.worker():
        await application.until_settled()
    spans = application.of_window()
    names = Counter(span.name for span in spans)
    assert {name: times for name, times in names.items() if times > 1} == {
        "RunActivity:hold_room": 2
    }
    assert names.keys() >= OURS | {"StartActivity:free_room", "RunActivity:free_room"}
    by_id = {span.context.span_id: span.name for span in spans}
    parents = {s.name: by_id.get(s.parent.span_id) if s.parent else None for s in spans}
    assert parents["RunActivity:hold_room"] == "StartActivity:hold_room"
    # An ordinary provider cannot make the span that all of these are below.
    top = OURS if provider is TracerProvider else {"sched.claim"}
    assert {name for name, parent in parents.items() if parent is None} == top


async def test_children_the_runs_of_a_chain_and_steps_in_queues_are_in_the_trace_of_their_window(
    client: Client, database_url: str, traces
):
    application = Application(client, database_url, traces(tracer_provider()))
    queues = "queues: {narrow: {concurrency: 1}}\n"
    async with application.worker(queues + FAMILY):
        await application.until_settled()
    spans = application.of_window()
    by_id = {span.context.span_id: span.name for span in spans}
    assert Counter((s.name, by_id[s.parent.span_id]) for s in spans if s.parent) == {
        ("sched.start", "sched.claim"): 1,
        ("sched.settle", "sched.claim"): 1,
        ("RunWorkflow:traced-family@1", "sched.start"): 1,
        ("StartChildWorkflow:traced-child@1", "RunWorkflow:traced-family@1"): 1,
        ("RunWorkflow:traced-child@1", "StartChildWorkflow:traced-child@1"): 1,
        ("RunWorkflow:traced-child@1", "RunWorkflow:traced-child@1"): 1,
        ("StartActivity:greet_guest", "RunWorkflow:traced-child@1"): 2,
        ("RunActivity:greet_guest", "StartActivity:greet_guest"): 2,
    }


async def test_an_interceptor_of_the_application_is_enough_for_its_runs(
    client: Client, database_url: str, traces
):
    provider = traces(TracerProvider(id_generator=WindowIds()))
    config = client.config(active_config=True)
    config["interceptors"] = [TracingInterceptor()]
    application = Application(Client(**config), database_url, provider)
    async with application.worker():
        await application.until_settled()
    names = Counter(span.name for span in application.of_window())
    assert names["StartWorkflow:traced@1"] == 1, "the application's span, within ours"
    assert names["RunWorkflow:traced@1"] == 1
    assert names["StartActivity:hold_room"] == 1


@pytest.mark.prove
async def test_all_spans_of_a_window_are_sampled_or_none(
    client: Client, database_url: str, traces, service: ScheduleService
):
    half = ParentBasedTraceIdRatio(0.5)
    provider = traces(TracerProvider(id_generator=WindowIds(), sampler=half))
    application = Application(client, database_url, provider)
    keys = [f"journey-{number}" for number in range(16)]
    rows = [FILE.removeprefix("schedules: [")[:-1].replace("journey", key) for key in keys]

    async def all_ended() -> bool:
        return len(await service.fires(status="failed")) == len(keys)

    async with application.worker(f"schedules: [{', '.join(rows)}]"):
        await eventually(all_ended, timeout=90)
    spans = application.exporter.get_finished_spans()
    sampled = {span.context.trace_id for span in spans if span.name == "sched.claim"}
    assert 0 < len(sampled) < len(keys), "one in 65536 times all or none, as ledgers are random"
    scheduler = {"sched.tick", "sched.plan"}
    of_each = Counter(span.context.trace_id for span in spans if span.name not in scheduler)
    assert of_each.keys() == sampled
    assert len({*of_each.values()}) == 1, "the same workflow, so the same spans"


async def test_the_trace_of_a_window_is_linked_to_what_led_to_it(
    client: Client, database_url: str, traces, service: ScheduleService
):
    application = Application(client, database_url, traces(tracer_provider()))
    async with application.worker(OTHER):
        with application.tracer.start_as_current_span("order") as caller:
            await about_to_come(
                lambda moment: service.schedule_at("traced", moment, key="asked", input="")
            )
        await application.until_settled()
        (letter,) = await service.dead_letters()
        await service.rerun_dead(letter.workflow_id)
        await eventually(lambda: len(application.spans("sched.settle")) == 2, timeout=60)
    first, again = application.spans("sched.claim")
    assert caller.get_span_context().span_id in {link.context.span_id for link in first.links}
    assert first.context.span_id in {link.context.span_id for link in again.links}
    assert (
        len({caller.get_span_context().trace_id, first.context.trace_id, again.context.trace_id})
        == 3
    )
