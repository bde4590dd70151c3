"""Ids of windows' traces, and what the environment says of their export."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from datetime import timedelta

import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine.errors import SettingsInvalid
from engine.runtime.tracing import ReplicaTraces
from engine.telemetry import environment
from engine.telemetry.environment import exporter_names
from engine.telemetry.tracer import WatchedExporter, export_traces, tracer_provider
from engine.telemetry.traces import WindowSpans, application_provider, caller_in, ids_of
from tests.unit.test_telemetry import claim_of, started


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


def test_the_span_of_a_start_has_the_topic_and_the_identities_of_its_schedule():
    """Seed 000: metadata.ownerId, tenantId, correlationId, clientRequestId."""
    exporter = InMemorySpanExporter()
    provider = tracer_provider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces = ReplicaTraces(provider, "a-replica")
    metadata = "{ownerId: o, tenantId: t, correlationId: c, clientRequestId: r}"
    fields = f"workflow: noop, everyMs: 60000, topic: orders.paid, metadata: {metadata}"
    traces.on_event(started(claim_of(f"schedules: [{{key: nightly, {fields}}}]"), timedelta(0)))
    (span,) = exporter.get_finished_spans()
    assert span.attributes
    names = ("topic", "owner_id", "tenant_id", "correlation_id", "client_request_id")
    assert [span.attributes[f"sched.{name}"] for name in names] == [
        "orders.paid",
        "o",
        "t",
        "c",
        "r",
    ]


@pytest.mark.parametrize("metadata", [{}, {"traceparent": "no"}, {"traceparent": 7}])
def test_what_is_no_span_in_the_metadata_is_no_caller(metadata):
    assert caller_in(metadata) is None


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318"}, []),
        (
            {"OTEL_TRACES_EXPORTER": "otlp, console", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            ["otlp_proto_grpc", "console"],
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, []),
    ],
)
def test_the_standard_variables_turn_traces_on(variables, names):
    assert exporter_names("traces", variables) == names


@pytest.mark.parametrize(
    ("exporter", "protocol", "says"),
    [
        ("zipkin", "grpc", "no traces exporter 'zipkin' is installed here; install its package"),
        ("otlp", "grpc", "no traces exporter 'otlp' is installed here; pip install"),
        ("otlp", "json", "OTEL_EXPORTER_OTLP_PROTOCOL is 'json'; write grpc or http/protobuf"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_its_hint(exporter, protocol, says, monkeypatch):
    monkeypatch.setattr(environment, "entry_points", lambda **_: [])
    variables = {"OTEL_TRACES_EXPORTER": exporter, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    with pytest.raises(SettingsInvalid, match=re.escape(says)):
        export_traces(variables)
    assert application_provider() is None


def test_a_provider_that_user_code_has_set_stays(monkeypatch):
    own = TracerProvider()
    monkeypatch.setattr(opentelemetry.trace, "_TRACER_PROVIDER", own)
    export_traces({"OTEL_TRACES_EXPORTER": "console"})
    assert application_provider() is own


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
    assert environment.resource_of(os.environ).attributes["service.name"] == "sched"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "billing")
    resource = environment.resource_of(os.environ).attributes
    assert (resource["service.name"], resource["deployment.environment.name"]) == (
        "billing",
        "test",
    )


def test_a_worker_of_an_application_without_a_provider_loads_no_sdk():
    code = (
        "import sys, engine.runtime.plugin, engine.service.one_shots as one_shots\n"
        "assert engine.runtime.plugin._tracer_provider() is None\n"
        "assert one_shots._with_caller({}) == {}\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
