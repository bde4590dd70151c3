"""Metrics and health of real workers, as a real Prometheus sees them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

from engine.embedded import free_port
from engine.telemetry.instruments import INSTRUMENTS
from tests.acceptance.fleet import ROOT, Books, Fleet, Replica
from tests.acceptance.prometheus import PROMETHEUS, PROMTOOL, RULES, scraping
from tests.links import link_to
from tests.pages import ask
from tests.servers import Temporal
from tests.waiting import eventually

pytestmark = pytest.mark.slow

FINE = "schedules: [{key: fine, workflow: noop, everyMs: 1000}]"
EVERY_END = """
queues: {narrow: {concurrency: 1}}
schedules:
  - {key: fine, workflow: pays, everyMs: 1000, input: 0, searchAttributes: {Lost: x}}
  - {key: retried, workflow: pays, everyMs: 1000, input: 1}
  - {key: hopeless, workflow: pays, everyMs: 1000, input: 9}
  - {key: skips, workflow: lasts, everyMs: 1000, overlap: skip}
  - {key: waits, workflow: lasts, everyMs: 1000, overlap: queue, maxQueued: 1}
"""
SEEN = [
    'sched_runs_total{end="completed",workflow="pays@1"}',
    'sched_runs_total{end="failed",workflow="pays@1"}',
    'sched_schedule_runs_total{end="failed",key="hopeless"}',
    'sched_schedule_runs_total{end="completed",key="other"}',
    'sched_run_failures_total{error="CardDeclined",workflow="pays@1"}',
    'sched_dead_letters_added_total{cause="retries_exhausted"}',
    "sched_dead_letters",
    'sched_step_retries_total{step="bill_card"}',
    'sched_windows_total{class="started",timing="on_time"}',
    'sched_windows_total{class="skipped",reason="overlap"}',
    'sched_windows_total{class="skipped",reason="queue_full"}',
    "sched_search_attributes_left_out_total",
    "sched_queue_depth",
    "sched_runs_open",
    'sched_events_deliveries_total{outcome="delivered"}',
    "sched_events_unmatched_total",
    'sched_slots_held{queue="narrow"}',
    'sched_claims_total{source="due"}',
    "sched_replicas_live",
    'sched_applies_total{result="applied"}',
    'sched_alerts_total{code="SCHEDULE_QUEUE_FULL"}',
    'sched_ledger_call_duration_seconds_count{operation="probe",outcome="ok"}',
    'sched_temporal_call_duration_seconds_count{operation="StartWorkflowExecution",outcome="ok"}',
    'sched_run_duration_seconds_bucket{le="3600.0"}',
    "sched_run_timeout_used_count",
    # Temporal's own, of the same process, in buckets that begin at a millisecond.
    'count(temporal_request_latency_seconds_bucket{le="0.001"})',
    'temporal_activity_execution_failed_total{activity_type="bill_card"}',
    'temporal_num_pollers{poller_type="workflow_task"}',
]
AFTER_THE_OUTAGE = [
    "sched_breaker_open",
    'sched_starts_total{outcome="unanswered"}',
    'sched_loop_failures_total{loop="starts"}',
]

# Left out where Debian's package `prometheus` is missing; CI requires it.
_LEFT_OUT = not (PROMETHEUS and PROMTOOL) and not os.environ.get("REQUIRE_PROMETHEUS")
needs_prometheus = pytest.mark.skipif(_LEFT_OUT, reason="needs the package prometheus")


@needs_prometheus
async def test_a_prometheus_sees_every_instrument_and_what_happened(
    tmp_path: Path, fleet: Fleet, temporal: Temporal
):
    port = free_port()
    async with link_to(temporal.port) as link, scraping(tmp_path, [port]) as prometheus:
        worker = await fleet.start(
            EVERY_END,
            SCHED_IMPORTS="tests.measured_workflows",
            SCHED_HTTP_PORT=str(port),
            SCHED_METRICS_KEYS="hope*",
            SCHED_HEARTBEAT="1s",
            SCHED_RPC_TIMEOUT="1s",
            TEMPORAL_ADDRESS=link.way(temporal.address),
        )

        async def missing(wanted: list[str]) -> list[str]:
            return [each for each in wanted if not await prometheus.is_positive(each)]

        async def all_seen() -> bool:
            assert await missing(SEEN) == []
            return True

        async def outage_seen() -> bool:
            assert await missing(AFTER_THE_OUTAGE) == []
            return True

        async def ready() -> bool:
            return await ask(port, "/readyz") == (200, "ready\n")

        await eventually(all_seen, timeout=240, every=0.5)
        await eventually(ready, timeout=60)  # a slow machine may miss a beat of a second
        with link.harmed("cut"):
            await eventually(outage_seen, timeout=60, every=0.5)
            assert await ask(port, "/healthz") == (200, "the loops turn\n")
        shown = set(await prometheus.api("label/__name__/values"))
        suffix = {"counter": "", "gauge": "", "histogram": "_bucket"}
        names = {each.prometheus + suffix[each.kind] for each in INSTRUMENTS}
        assert names - shown == set()
        rules = (await prometheus.api("rules"))["groups"]
        assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}
        worker.send(signal.SIGTERM)
        assert await worker.gone() == 0


@needs_prometheus
def test_the_alert_rules_are_valid_and_fire_when_they_should():
    assert PROMTOOL
    for check in (["check", "rules", RULES], ["test", "rules", "alerts_test.yml"]):
        command = [PROMTOOL, *check]
        here = Path(__file__).parent
        ran = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_does_not():
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    cases = Path(__file__).with_name("alerts_test.yml").read_text(encoding="utf-8")
    tests = yaml.safe_load(cases)["tests"]
    assert {each["alertname"] for each in tests[0]["alert_rule_test"]} == alerts
    assert {name for name in alerts if f'alertname="{name}"' in cases} == alerts


async def test_a_worker_without_a_port_listens_nowhere_and_one_with_a_taken_port_goes_on(
    fleet: Fleet, books: Books
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = await fleet.start(FINE, SCHED_HTTP_PORT=str(port))
        silent = await fleet.start(FINE)
        await books.until_fired(["fine"], 2, timeout=60)
        for replica in (worker, silent):
            await eventually(partial(has_begun, replica), timeout=60)
    assert fleet.logged(f"warning: no metrics and no health at 127.0.0.1:{port}: Address") == 1
    assert listening(silent.process.pid) == 0
    for replica in (worker, silent):
        replica.send(signal.SIGTERM)
        assert await replica.gone() == 0


def has_begun(replica: Replica) -> bool:
    return "project default" in replica.log.read_text()


def listening(pid: int) -> int:
    """How many TCP sockets of a process listen."""
    opened = [each for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
    of_process = {str(each.readlink()) for each in opened}
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return sum(
        fields[3] == "0A" and f"socket:[{fields[9]}]" in of_process
        for fields in map(str.split, lines)
    )


async def test_an_exporter_that_is_not_installed_is_refused_before_anything_starts(fleet: Fleet):
    worker = await fleet.start(FINE, OTEL_METRICS_EXPORTER="statsd")
    assert await worker.gone() == 2
    assert fleet.logged("SCHEDULE_SETTING_INVALID") == 1
    assert fleet.logged("no metrics exporter 'statsd' is installed here") == 1


async def test_a_worker_of_ones_own_measures_into_the_meter_provider_of_its_application(
    temporal: Temporal, namespace: str, database_url: str
):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.measured_application", temporal.address, namespace,
        database_url, cwd=ROOT, stdout=subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    # Between these the SDK prints its warnings, as of a machine that is slow.
    found = {
        what: text.split()
        for what, _, text in (line.partition(": ") for line in said.decode().splitlines())
    }
    assert {"sched.runs", "sched.windows", "sched.start.lag", "sched.windows.doubled"} <= {
        *found["of sched"]
    }
    assert {"temporal_request", "temporal_workflow_task_execution_latency"} <= {
        *found["of Temporal"]
    }
    assert found["readiness"] == ["200", "ready"]
