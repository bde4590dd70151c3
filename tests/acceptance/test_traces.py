"""What a collector of OpenTelemetry receives of a window, whatever happens to its workers."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.acceptance.fleet import Books, Fleet
from tests.otlp_receiver import Receiver, receiving
from tests.waiting import eventually

pytestmark = pytest.mark.slow

FILE = "schedules: [{{key: journey, workflow: traced, everyMs: 86400000, input: {!r}}}]"
RUN = "RunWorkflow:traced@1"
NONE_TWICE = {
    "sched.tick": 1, "sched.plan": 1, "sched.claim": 1, "sched.start": 1, "sched.settle": 1, RUN: 1,
    "StartActivity:hold_room": 1, "StartActivity:bill_room": 1, "StartActivity:free_room": 1,
    "RunActivity:hold_room": 2, "RunActivity:bill_room": 1, "RunActivity:free_room": 1,
}  # fmt: skip
PARENTS = {
    "sched.plan": "sched.tick",
    "sched.start": "sched.claim",
    "sched.settle": "sched.claim",
    RUN: "sched.start",
    "StartActivity:hold_room": RUN,
    "StartActivity:bill_room": RUN,
    "StartActivity:free_room": RUN,
    "RunActivity:hold_room": "StartActivity:hold_room",
    "RunActivity:bill_room": "StartActivity:bill_room",
    "RunActivity:free_room": "StartActivity:free_room",
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def exporting_to(receiver: Receiver, **more: str) -> dict[str, str]:
    return {
        "SCHED_IMPORTS": "tests.traced_workflows",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "OTEL_METRICS_EXPORTER": "none",
        **more,
    }


def require_tree(receiver: Receiver) -> None:
    """Each span below the one it belongs to, and those of the window in one trace."""
    above = {span.span_id: span.name for span in receiver.spans}
    parents = {(span.name, above.get(span.parent_id)) for span in receiver.spans if span.parent_id}
    assert parents == set(PARENTS.items())
    scheduler = {"sched.tick", "sched.plan"}
    assert len({span.trace_id for span in receiver.spans if span.name not in scheduler}) == 1
    (claim,), (plan,) = receiver.named("sched.claim"), receiver.named("sched.plan")
    assert plan.links == ((claim.trace_id, claim.span_id),)
    assert claim.links == ((plan.trace_id, plan.span_id),)


@pytest.mark.parametrize(
    "cache", ["", pytest.param("tests.traced_workflows:forgetful", marks=pytest.mark.prove)]
)
async def test_a_window_is_one_trace_without_a_span_twice_although_its_worker_is_killed(
    cache: str, fleet: Fleet, receiver: Receiver, tmp_path: Path
):
    file, go_on = FILE.format("SIGKILL"), tmp_path / "go-on"
    environment = exporting_to(receiver, TRACED_GO_ON=str(go_on), SCHED_SETUP=cache)
    doomed = await fleet.start(file, **environment)
    # What a killed process had not exported is lost, so it is let go as far as the second step.
    await eventually(lambda: receiver.named("StartActivity:bill_room"), timeout=60)
    await eventually(lambda: receiver.named("sched.start"), timeout=60)
    go_on.touch()
    assert await doomed.gone() == -signal.SIGKILL
    await fleet.start(file, **environment)
    await eventually(lambda: receiver.named("sched.settle"), timeout=60)
    await eventually(lambda: receiver.named(RUN), timeout=60)
    assert receiver.names() == NONE_TWICE
    require_tree(receiver)
    tries = {span.attributes["sched.attempt"] for span in receiver.named("RunActivity:hold_room")}
    assert tries == {1, 2}
    (undo,) = receiver.named("RunActivity:free_room")
    assert str(undo.attributes["sched.undoes"]).endswith("/hold_room/1")
    failed = {span.name for span in receiver.spans if span.failed}
    assert failed == {"RunActivity:hold_room", "RunActivity:bill_room", RUN, "sched.settle"}


@pytest.mark.prove
async def test_a_run_that_a_worker_leaves_when_it_drains_is_no_span_until_it_ends(
    fleet: Fleet, receiver: Receiver, tmp_path: Path
):
    (tmp_path / "go-on").touch()
    file = FILE.format("SIGTERM")
    environment = exporting_to(receiver, TRACED_GO_ON=str(tmp_path / "go-on"), SCHED_DRAIN="1s")
    assert await (await fleet.start(file, **environment)).gone() == 0
    assert receiver.named(RUN) == []
    await fleet.start(file, **environment)
    await eventually(lambda: receiver.named("sched.settle"), timeout=60)
    await eventually(lambda: receiver.named(RUN), timeout=60)
    # The attempt that the drain cancelled has a span too, unless its process ended before it did.
    names = dict(receiver.names())
    attempts = names.pop("RunActivity:bill_room")
    assert names | {"RunActivity:bill_room": 1} == NONE_TWICE
    assert attempts in {1, 2}
    require_tree(receiver)


@pytest.mark.prove
async def test_a_replica_that_takes_a_claim_over_continues_its_trace(
    fleet: Fleet, receiver: Receiver, books: Books, client: Client
):
    file, environment = FILE.format(""), exporting_to(receiver, SCHED_LEASE="3s")
    doomed = await fleet.start(file, SCHED_FAULT="after_start:kill", **environment)
    assert await doomed.gone() == -signal.SIGKILL
    await fleet.start(file, **environment)
    await eventually(lambda: receiver.named("sched.settle"), timeout=60)
    await eventually(lambda: receiver.named(RUN), timeout=60)
    ((start,), (taken,), (run,)) = map(receiver.named, ("sched.start", "sched.take_over", RUN))
    assert run.parent_id == start.span_id, "the start whose replica died"
    assert start.attributes["sched.already"] is True
    (settle,) = receiver.named("sched.settle")
    assert {taken.parent_id, settle.parent_id} == {start.parent_id}
    assert len({each.trace_id for each in (start, taken, run, settle)}) == 1
    twice = Counter(span.span_id for span in receiver.spans)
    assert max(twice.values()) == 1


async def test_a_collector_that_is_away_costs_no_window_and_one_line_of_the_log(
    fleet: Fleet, receiver: Receiver, books: Books
):
    away = exporting_to(receiver, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    replica = await fleet.start(FILE.format(""), OTEL_EXPORTER_OTLP_TIMEOUT="2", **away)
    await books.until_fired(["journey"], 1, timeout=60)
    await eventually(lambda: fleet.logged("traces are not exported"), timeout=60)
    replica.send(signal.SIGTERM)
    assert await replica.gone(30) == 0
    assert fleet.logged("traces are not exported") == 1
    assert fleet.logged("opentelemetry.exporter") == 0
