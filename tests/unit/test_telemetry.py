"""Metrics: what events become, how many series there can be, and the page that explains them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from temporalio.contrib.opentelemetry import MetricsExporter
from temporalio.runtime import (
    BUFFERED_METRIC_KIND_COUNTER,
    BUFFERED_METRIC_KIND_GAUGE,
    BUFFERED_METRIC_KIND_HISTOGRAM,
)

from engine.errors import Code, SettingsInvalid
from engine.ledger.failures import Failure, FailureLink
from engine.ledger.fires import Claim, Evidence, Outcome
from engine.runtime.events import Alert, Applied, Closed, Decided, Degraded, Settled
from engine.runtime.measurements import EventMeter, measure_statement
from engine.runtime.settings import Settings
from engine.schedules import load_schedules
from engine.schedules.planner import Decision
from engine.schedules.terms import Reason, Window
from engine.telemetry import environment, instruments
from engine.telemetry.core_metrics import FoldedBuffer
from engine.telemetry.export import Exports, configure
from engine.telemetry.instruments import INSTRUMENTS, MOST_VALUES, measures, use
from tests.metrics_page import PAGE, written
from tests.waiting import eventually

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SPREAD = "schedules: [{key: nightly, workflow: noop, cron: '0 12 * * *', spread: 10m}]"


class Scrape:
    """What Prometheus would be shown."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        reader = PrometheusMetricReader(scope_info_enabled=False, registry=self.registry)
        self.provider = MeterProvider([reader], shutdown_on_exit=False)

    def samples(self, *, ending: str = "") -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name.startswith("sched_") and sample.name.endswith(ending)
        }

    def value(self, name: str, **labels: str) -> float | None:
        wanted = {each.removesuffix("_"): value for each, value in labels.items()}
        return self.samples().get((name, frozenset(wanted.items())))


@pytest.fixture
def scrape() -> Iterator[Scrape]:
    made = Scrape()
    use(made.provider)
    yield made
    use(None)
    made.provider.shutdown()


def claim_of(text: str = SPREAD, **changes: Any) -> Claim:
    schedule = load_schedules(text).schedules[0]
    made = Claim(
        project="default", key=schedule.key, series=1, bucket=1, fire_time=NOON,
        workflow_id="sched:nightly:1", schedule=schedule, definition_version=1,
        workflow_type="noop@1", task_queue="sched", timing="on_time", token=uuid4(),
        fire_id=1, attempts=1, starting_at=NOON,
    )  # fmt: skip
    return replace(made, **changes)


def started(claim: Claim, lag: timedelta, timing: str = "on_time") -> Settled:
    outcome = Outcome(claim.fire_id, claim.token, "started", timing, "run", NOON + lag)  # type: ignore[arg-type] # a word of a start
    return Settled(claim, outcome, lag)


def closed(end: str, key: str = "nightly", took: float = 3, **more: Any) -> Closed:
    at = NOON + timedelta(seconds=took)
    seen = Evidence(f"sched:{key}:1", "run", NOON, end, at, workflow_type="noop@1", **more)  # type: ignore[arg-type] # a word of a close
    return Closed(seen)


def failed_with(kind: str, **more: Any) -> Failure:
    return Failure((FailureLink(type=kind, message="no money", **more),), f"{kind}: no money")


def decided(verdict: str, reason: Reason | None, windows: int = 1) -> Decided:
    window = Window("nightly", 1, 1, NOON)
    return Decided(Decision(window, verdict, reason, windows=windows), "sched:nightly:1", "UTC")  # type: ignore[arg-type] # a verdict


def measured(*events: Any, keys: tuple[str, ...] = ()) -> None:
    meter = EventMeter(keys)
    for event in events:
        meter.on_event(event)


# --- the page ---


def test_the_page_has_the_table_that_the_instruments_make():
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "`make metrics` writes it anew"


# Of a job scheduler, and what it is alerted by.
QUESTIONS = [
    "jobs executed per hour and day", "average execution time", "success against failure rate",
    "retry rate", "jobs pending execution", "scheduled time against actual execution time",
    "lock contention", "stale locks", "database query performance",
    "failed jobs requiring attention", "jobs abandoned after max retries",
    "exception rate by job type", "SLA compliance", "schedule evaluation lag", "missed job count",
    "double-fire count", "failed executions", "leader flaps", "execution duration against timeout",
    "queue depth for scheduled jobs", "schedule not fired",
]  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_people_ask_of_a_scheduler_is_answered_by_a_metric(question):
    assert [each.name for each in INSTRUMENTS if question in each.answers]


def _one() -> list[tuple[float, dict[str, str]]]:
    return [(1.0, {})]


def test_prometheus_shows_each_instrument_under_the_name_that_the_page_has(scrape):
    to = measures()
    for each in INSTRUMENTS:
        labels = dict.fromkeys(each.labels, "some")
        if each.kind == "counter":
            to.count(each, 1, **labels)
        elif each.kind == "histogram":
            to.record(each, 0.5, **labels)
    gauges = {each: _one for each in INSTRUMENTS if each.kind == "gauge"}
    with to.observing(gauges):
        shown = {name for name, _ in scrape.samples()}
    for each in INSTRUMENTS:
        assert each.prometheus + ("_count" if each.kind == "histogram" else "") in shown


def test_every_histogram_of_seconds_has_buckets_from_a_millisecond_to_an_hour(scrape):
    for each in INSTRUMENTS:
        if each.kind == "histogram" and each.unit == "s":
            measures().record(each, 0.5, **dict.fromkeys(each.labels, "some"))
            name = f"{each.prometheus}_bucket"
            bounds = {dict(labels)["le"] for shown, labels in scrape.samples() if shown == name}
            assert {"0.001", "3600.0", "+Inf"} < bounds


# --- events ---


def test_a_start_is_measured_from_its_fire_time_and_from_when_it_was_to_start(scrape):
    claim = claim_of()
    spread = claim.schedule.delay(NOON)
    assert spread > timedelta(0)
    measured(started(claim, spread + 2 * SECOND))
    assert scrape.value("sched_start_drift_seconds_sum", timing="on_time") == pytest.approx(
        spread.total_seconds() + 2
    )
    assert scrape.value("sched_start_lag_seconds_sum") == pytest.approx(2)


def test_a_window_that_was_caught_up_is_late_by_decision_and_not_by_the_engine(scrape):
    claim = claim_of(timing="caught_up")
    measured(started(claim, timedelta(hours=1), "caught_up"))
    assert scrape.value("sched_start_drift_seconds_sum", timing="caught_up") == 3600
    assert scrape.value("sched_start_lag_seconds_count") is None
    labels = {"class_": "started", "reason": "", "timing": "caught_up"}
    assert scrape.value("sched_windows_total", **labels) == 1


def test_windows_are_counted_by_class_and_reason_and_the_missed_ones_besides(scrape):
    measured(
        decided("skipped", Reason("coalesced", "coalesced into a newer one"), windows=40),
        decided("expired", Reason("expired", "too old"), windows=2),
        decided("skipped", Reason("overlap", "one is open")),
        decided("queued", None),
    )
    shown = {
        tuple(dict(labels)[name] for name in ("class", "reason")): value
        for (_, labels), value in scrape.samples(ending="windows_total").items()
    }
    assert shown == {
        ("skipped", "coalesced"): 40, ("expired", "expired"): 2,
        ("skipped", "overlap"): 1, ("queued", ""): 1,
    }  # fmt: skip
    assert scrape.value("sched_windows_missed_total", reason="coalesced") == 40
    assert scrape.value("sched_windows_missed_total", reason="expired") == 2


def test_a_start_without_an_answer_is_no_window_yet(scrape):
    claim = claim_of()
    unknown = Outcome(claim.fire_id, claim.token, "starting", error="no answer")
    measured(Settled(claim, unknown, SECOND))
    assert scrape.samples() == {}


def test_a_manual_run_is_no_window(scrape):
    measured(started(claim_of(kind="manual", timing="manual"), SECOND, "manual"))
    assert scrape.samples(ending="windows_total") == {}


def test_a_close_is_counted_with_its_duration_and_the_part_of_its_timeout(scrape):
    measured(closed("completed", took=30, timeout=40.0))
    assert scrape.value("sched_runs_total", end="completed", workflow="noop@1") == 1
    assert scrape.value("sched_run_duration_seconds_sum", end="completed") == 30
    assert scrape.value("sched_run_timeout_used_sum") == 0.75
    assert scrape.value("sched_dead_letters_added_total", cause="failed") is None


@pytest.mark.parametrize(
    ("end", "more", "cause"),
    [
        ("failed", {"given_up": "retries_exhausted"}, "retries_exhausted"),
        ("failed", {"given_up": "fatal"}, "fatal"),
        ("failed", {}, "failed"),
        ("timed_out", {}, "timed_out"),
    ],
)
def test_a_dead_letter_is_counted_by_its_cause(scrape, end, more, cause):
    measured(closed(end, failure=failed_with("CardDeclined", **more)))
    assert scrape.value("sched_dead_letters_added_total", cause=cause) == 1
    failures = {"workflow": "noop@1", "error": "CardDeclined"}
    assert scrape.value("sched_run_failures_total", **failures) == 1


def test_what_never_started_is_a_dead_letter_too(scrape):
    claim = claim_of()
    refused = Outcome(
        claim.fire_id, claim.token, "rejected", reason=Reason("refused", "refused by the server")
    )
    measured(
        Settled(claim, refused, SECOND),
        decided("rejected", Reason("unknown_workflow", "nobody has it"), windows=7),
    )
    assert scrape.value("sched_dead_letters_added_total", cause="rejected") == 2


def test_alerts_applies_and_suspended_loops_are_counted(scrape):
    measured(
        Alert(Code.CLOCK_SKEW, "x"), Applied("1 added", good=True), Applied("no", good=False),
        Degraded("poller", "the ledger is away"), Alert(Code.RUN_DOUBLED, "twice"),
    )  # fmt: skip
    assert scrape.value("sched_alerts_total", code="SCHEDULE_CLOCK_SKEW") == 1
    assert scrape.value("sched_applies_total", result="refused") == 1
    assert scrape.value("sched_loop_failures_total", loop="poller") == 1
    assert scrape.value("sched_windows_doubled_total") == 1


@pytest.mark.parametrize("number", [1, 100])
def test_every_statement_of_the_ledger_is_in_the_next_export(scrape, number):
    """They are recorded together, out of the ticks that they belong to."""
    for at in range(number):
        measure_statement("probe", 0.001, failed=at == 0)
    count = "sched_ledger_call_duration_seconds_count"
    assert scrape.value(count, operation="probe", outcome="failed") == 1
    assert (scrape.value(count, operation="probe", outcome="ok") or 0) == number - 1
    measure_statement("probe", 0.001, failed=True)
    assert scrape.value(count, operation="probe", outcome="failed") == 2


def test_a_counter_of_known_values_begins_with_zero(scrape):
    """An alert on its increase would not see the first one otherwise."""
    measures().begin()
    assert scrape.value("sched_windows_doubled_total") == 0
    assert scrape.value("sched_windows_missed_total", reason="expired") == 0
    assert scrape.value("sched_dead_letters_added_total", cause="retries_exhausted") == 0


# --- bounds ---


def of_many_schedules(keys: tuple[str, ...]) -> None:
    """10,000 schedules with a workflow of their own each fire, fail and are skipped."""
    meter = EventMeter(keys)
    claim = claim_of()
    for number in range(10_000):
        key, kind = f"key-{number}", f"workflow-{number}@1"
        meter.on_event(started(replace(claim, key=key, workflow_type=kind), SECOND))
        event = closed("failed", key, failure=failed_with(f"Error{number}"))
        seen = replace(event.evidence, workflow_type=kind)
        meter.on_event(Closed(seen))
        meter.on_event(decided("skipped", Reason("overlap", f"{key} is open")))
        measures().count(instruments.STEP_RETRIES, step=f"step-{number}")


@pytest.mark.parametrize("keys", [pytest.param((), marks=pytest.mark.prove), ("*",)])
def test_ten_thousand_schedules_make_no_more_series_than_the_bounds_allow(scrape, keys):
    of_many_schedules(keys)
    samples = scrape.samples()
    assert len(samples) < 1500
    values: dict[str, set[str]] = {}
    for _, labels in samples:
        for name, value in labels:
            values.setdefault(name, set()).add(value)
    values.pop("le")
    assert max(map(len, values.values())) == MOST_VALUES + 1
    assert ("key" in values) is bool(keys)
    assert instruments.OTHER in values["workflow"]


def test_only_the_keys_that_the_setting_names_are_labels(scrape):
    read = Settings.from_environment({"SCHED_METRICS_KEYS": "billing-*, nightly"})
    measured(
        *(closed("completed", key) for key in ("billing-eu", "nightly", "hourly")),
        keys=read.metrics_keys,
    )
    shown = {dict(labels)["key"] for _, labels in scrape.samples(ending="schedule_runs_total")}
    assert shown == {"billing-eu", "nightly", "other"}


def test_a_list_of_keys_that_cannot_be_one_is_refused():
    with pytest.raises(SettingsInvalid, match="with commas between them"):
        Settings.from_environment({"SCHED_METRICS_KEYS": "billing nightly"})


# --- export ---


def test_without_a_variable_and_a_port_nothing_is_exported():
    assert configure(prometheus=False, environment={}).provider is None


class Failing:
    def shutdown(self, timeout_millis: int) -> None:
        raise TimeoutError


@pytest.mark.parametrize(("usual", "least"), [(0.005, 0.0005), (0.0002, 0.0002)])
async def test_an_export_computes_for_half_a_millisecond_at_a_time_while_others_wait(usual, least):
    """A tick waits several times, and would wait for the export's thread each time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(usual)
    measured = measures()
    failing: Any = Failing()
    nothing: Any = nullcontext()
    exports = Exports(failing, temporal=nothing)
    try:
        with pytest.raises(TimeoutError):
            async with exports.running():
                assert sys.getswitchinterval() == pytest.approx(least, abs=1e-5)
        assert sys.getswitchinterval() == pytest.approx(usual, abs=1e-5)
        assert measures() is not measured
    finally:
        sys.setswitchinterval(before)


def test_a_disabled_sdk_exports_nothing_even_with_a_port():
    given = {"OTEL_SDK_DISABLED": "true", "OTEL_METRICS_EXPORTER": "console"}
    assert configure(prometheus=True, environment=given).respond is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"OTEL_METRICS_EXPORTER": "statsd"}, "no metrics exporter 'statsd' is installed here"),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, "pip install 'sched-engine[otlp]'"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "pip install 'sched-engine[otlp]'"),
        (
            {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
            "write grpc or http/protobuf",
        ),
    ],
)
def test_an_exporter_that_is_not_there_is_refused_with_its_hint(monkeypatch, given, text):
    monkeypatch.setattr(environment, "entry_points", lambda **_: [])
    with pytest.raises(SettingsInvalid, match=text.replace("[", r"\[")):
        configure(prometheus=False, environment=given)


def test_the_exporter_of_otlp_is_that_of_its_protocol(monkeypatch):
    asked: list[str] = []

    def found(*, group: str, name: str) -> list[SimpleNamespace]:
        asked.append(name)
        return [SimpleNamespace()]

    monkeypatch.setattr(environment, "entry_points", found)
    for protocol in ("grpc", "http/protobuf"):
        given = {"OTEL_METRICS_EXPORTER": "otlp,none", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        with pytest.raises(AttributeError):
            configure(prometheus=False, environment=given)
    assert asked == ["otlp_proto_grpc", "otlp_proto_http"]


def test_every_metric_of_the_alert_rules_is_on_the_page():
    """And the alerts are those that people look for: the rules name what exists."""
    rules = (PAGE.parents[1] / "deploy/monitoring/sched.rules.yml").read_text(encoding="utf-8")
    endings = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    known = {each.prometheus + ending for each in INSTRUMENTS for ending in endings[each.kind]}
    named = set(re.findall(r"\bsched_\w+", "\n".join(re.sub(r'".*"', "", rules).splitlines())))
    assert named - known == set()


# --- Temporal's metrics ---


class CoreMetric(NamedTuple):
    name: str
    kind: int
    unit: str | None = None
    description: str | None = None


class CoreUpdate(NamedTuple):
    metric: CoreMetric
    value: float
    attributes: dict[str, str]


class CoreBuffer:
    """Returns the updates that it was given, and keeps none of their objects alive."""

    def __init__(self) -> None:
        self.next: list[CoreUpdate] = []

    def retrieve_updates(self) -> list[CoreUpdate]:
        updates, self.next = self.next, []
        return updates


REQUESTS = CoreMetric("temporal_request", BUFFERED_METRIC_KIND_COUNTER)
POLLERS = CoreMetric("temporal_num_pollers", BUFFERED_METRIC_KIND_GAUGE)
LATENCY = CoreMetric("temporal_request_latency", BUFFERED_METRIC_KIND_HISTOGRAM)


def test_counters_of_temporal_are_added_up_and_gauges_keep_the_last_value():
    buffer = CoreBuffer()
    folded = FoldedBuffer(buffer)  # type: ignore[arg-type] # a stand-in
    start, poll = {"operation": "Start"}, {"operation": "Poll"}
    buffer.next = [
        CoreUpdate(REQUESTS, 1, dict(start)), CoreUpdate(REQUESTS, 2, dict(start)),
        CoreUpdate(REQUESTS, 5, poll), CoreUpdate(POLLERS, 4, {}), CoreUpdate(POLLERS, 3, {}),
        CoreUpdate(LATENCY, 0.1, dict(start)), CoreUpdate(LATENCY, 0.1, dict(start)),
    ]  # fmt: skip
    found = [(each.metric.name, each.value, each.attributes) for each in folded.retrieve_updates()]
    assert sorted(found, key=str) == sorted(
        [("temporal_request", 3, start), ("temporal_request", 5, poll),
         ("temporal_num_pollers", 3, {}), ("temporal_request_latency", 0.1, start),
         ("temporal_request_latency", 0.1, start)], key=str,
    )  # fmt: skip
    assert folded.retrieve_updates() == []


async def test_no_measurement_of_temporal_has_the_labels_of_another(scrape):
    """The SDK's exporter knows labels by the address of their object, which others get later."""
    buffer = CoreBuffer()
    exporter = MetricsExporter(
        FoldedBuffer(buffer), scrape.provider,  # type: ignore[arg-type] # a stand-in
        poll_interval=timedelta(milliseconds=1),
    )  # fmt: skip
    wanted: Counter[str] = Counter()
    async with exporter:
        for number in range(500):
            operation = f"op-{number % 7}"
            wanted[operation] += 1
            buffer.next = [CoreUpdate(REQUESTS, 1, {"operation": operation})]
            await eventually(lambda: buffer.next == [], every=0)
    shown = {
        dict(sample.labels)["operation"]: sample.value
        for family in scrape.registry.collect()
        for sample in family.samples
        if sample.name == "temporal_request_total"
    }
    assert shown == wanted


def test_sets_of_labels_beyond_the_bound_share_one():
    buffer = CoreBuffer()
    folded = FoldedBuffer(buffer)  # type: ignore[arg-type] # a stand-in
    buffer.next = [CoreUpdate(REQUESTS, 1, {"workflow_type": f"w-{n}"}) for n in range(6000)]
    found = folded.retrieve_updates()
    assert len(found) == 5001
    assert {"otel.metric.overflow": True} in [each.attributes for each in found]
    assert max(each.value for each in found) == 1000
