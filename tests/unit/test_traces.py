"""Ids of windows' traces, and what the environment says of their export."""

from __future__ import annotations

import logging
import subprocess
import sys

import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine.telemetry import trace_export
from engine.telemetry.trace_export import export_traces, exporter_names
from engine.telemetry.tracer import WatchedExporter, resource_of_process, tracer_provider
from engine.telemetry.traces import WindowSpans, caller_in, ids_of


def test_replicas_of_all_versions_derive_the_same_ids():
    ids = ids_of("a-ledger/default", "sched:cache-sync:1", "claim")
    assert f"{ids.trace_id:032x}" == "e206a5644bba138e3388acf171fff3c3"
    assert f"{ids.span_id:016x}" == "4f6a0a111f83b411"
    start = ids_of("a-ledger/default", "sched:cache-sync:1", "start")
    assert (start.trace_id, start.span_id == ids.span_id) == (ids.trace_id, False)


@pytest.mark.parametrize(
    ("scope", "workflow_id"),
    [("a-ledger/other", "sched:cache-sync:1"), ("a-ledger/default", "sched:cache-sync:2")],
)
def test_windows_of_other_namespaces_and_other_windows_have_other_traces(scope, workflow_id):
    ids = ids_of("a-ledger/default", "sched:cache-sync:1", "claim")
    assert ids_of(scope, workflow_id, "claim").trace_id != ids.trace_id


def test_two_processes_make_one_trace_of_a_window():
    exporter = InMemorySpanExporter()
    replicas = []
    for _ in range(2):
        provider = tracer_provider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        replicas.append(WindowSpans(provider, "a-ledger/default"))
    first, second = replicas
    first.claim("sched:k:1", 1, []).end()
    second.start("sched:k:1").end()
    first.within("sched:k:1", "sched.settle", 1).end()
    claim, start, settle = exporter.get_finished_spans()
    assert {claim.context.trace_id} == {start.context.trace_id, settle.context.trace_id}
    assert claim.parent is None
    assert start.parent == settle.parent
    assert start.parent is not None
    assert start.parent.span_id == claim.context.span_id


@pytest.mark.parametrize("metadata", [{}, {"traceparent": "no"}, {"traceparent": 7}])
def test_what_is_no_span_in_the_metadata_is_no_caller(metadata):
    assert caller_in(metadata) is None


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, ["otlp"]),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ["otlp", "console"]),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, []),
    ],
)
def test_the_standard_variables_turn_traces_on(environment, names, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert exporter_names() == names


@pytest.mark.parametrize(
    ("exporter", "protocol", "warning"),
    [
        ("zipkin", "grpc", "names 'zipkin', which is not installed; write otlp, console or none"),
        ("otlp", "grpc", "names 'otlp', which is not installed; install sched-engine[otlp]"),
        (
            "otlp",
            "json",
            "OTEL_EXPORTER_OTLP is 'json'; write grpc or http/protobuf",
        ),
    ],
)
def test_what_cannot_be_exported_is_a_warning_with_its_cure(
    exporter, protocol, warning, monkeypatch
):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", exporter)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setattr(trace_export, "entry_points", lambda **_: [])
    (found,) = export_traces()
    assert found.startswith("traces are not exported: ")
    assert found.endswith(warning)
    assert isinstance(
        opentelemetry.trace.get_tracer_provider(), opentelemetry.trace.ProxyTracerProvider
    )


class Collector(SpanExporter):
    """A collector that may be away, and an exporter that logs each attempt."""

    def __init__(self) -> None:
        self.away, self.closed = False, False

    def export(self, spans):
        if self.away:
            logging.getLogger(__name__).warning("no connection, retrying")
            logging.getLogger(__name__).error("gave up")
        return SpanExportResult.FAILURE if self.away else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.closed = True


def test_a_collector_that_is_away_is_one_line_and_its_return_another(caplog):
    caplog.set_level(logging.INFO)
    collector = Collector()
    exporter = WatchedExporter(collector)
    for away in [False, True, True, True, False, False]:
        collector.away = away
        exporter.export([])
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "WARNING",
            "traces are not exported, and are dropped until they are: no connection, retrying",
        ),
        ("INFO", "traces are exported again: 0 spans lost in 0 s"),
    ]


def test_the_end_of_a_process_waits_for_a_collector_only_while_that_answers():
    there, away = Collector(), Collector()
    away.away = True
    for collector in (there, away):
        exporter = WatchedExporter(collector)
        exporter.export([])
        exporter.leave()
        away.away = False
        result = exporter.export([])
        assert (result is SpanExportResult.SUCCESS, collector.closed) == (
            collector is there,
            collector is away,
        )
        away.away = True


def test_the_service_is_named_sched_unless_the_environment_names_it(monkeypatch):
    def resource() -> dict[str, object]:
        return dict(resource_of_process().attributes)

    assert resource()["service.name"] == "sched"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "billing")
    assert resource()["service.name"] == "billing"
    assert resource()["deployment.environment.name"] == "test"


def test_without_traces_nothing_of_opentelemetry_s_sdk_is_loaded():
    code = (
        "import sys, engine.cli.up.up, engine.runtime.plugin, engine.service\n"
        "from engine.telemetry.trace_export import export_traces\n"
        "assert export_traces() == []\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
