"""Watching: each window without a class has a cause, and each limit that is passed is found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceResponse
from temporalio.client import Client

from engine.errors import Code
from engine.ledger import Ledger
from engine.ledger.alerts import Condition
from engine.ledger.fires import ClosedStatus, Evidence, Outcome
from engine.ledger.records import Serving
from engine.runtime.events import Alert, Event, Notice
from engine.runtime.presence import Presence
from engine.runtime.settings import Settings
from engine.runtime.tracking.follow_ups import pause_failing
from engine.runtime.watch.conditions import WatchContext, judge
from engine.runtime.watch.watch import Watch
from engine.schedules.terms import Reason
from tests.conformance.conftest import Bench
from tests.conformance.past import HOUR, MINUTE, declare_ago, operator, run_of

HEARTBEAT = timedelta(seconds=10)
AROUND = WatchContext()
FIELDS = "everyMs: 60000, grace: 1s, catchUp: {policy: all}"


async def look(bench: Bench, around: WatchContext = AROUND) -> list[Condition]:
    found = judge(await bench.ledger.facts(), around).conditions
    if around == AROUND:
        await assert_the_view_agrees(bench.ledger, found)
    return sorted(found, key=lambda each: each.name)


async def assert_the_view_agrees(ledger: Ledger, found: Sequence[Condition]) -> None:
    """`sched.overdue` has the same causes; of a plan that fails it does not know what is due."""
    rows = await ledger._connections.fetch(
        "SELECT key, cause, fire_time FROM overdue WHERE namespace = $1", ledger.namespace
    )
    told = {each.cause for each in found if each.code is Code.NOT_FIRED}
    seen = {row["cause"] for row in rows}
    assert told <= seen <= told | {"plan_failed"}
    since = {(each.key, each.since) for each in found if each.code is Code.NOT_FIRED and each.key}
    shown = {(row["key"], row["fire_time"]) for row in rows if row["cause"] != "plan_failed"}
    assert {each for each in since if each[0] in dict(shown)} <= shown


async def the_only(bench: Bench, around: WatchContext = AROUND) -> Condition:
    (condition,) = await look(bench, around)
    return condition


async def close(bench: Bench, count: int, *ends: ClosedStatus) -> None:
    """Claim this many windows; the first of them end like this, in turn."""
    claims = sorted(await bench.claim(limit=count), key=lambda each: each.fire_time)
    for claim, closed in zip(claims, ends, strict=False):
        await run_of(bench, claim, run_id=f"run-{claim.bucket}")
        now = bench.now()
        await bench.ledger.record_evidence(
            [Evidence(claim.workflow_id, f"run-{claim.bucket}", now, closed=closed, closed_at=now)]
        )


async def test_a_window_past_its_grace_is_found_with_the_time_since_when(bench: Bench):
    await declare_ago(bench, "everyMs: 60000, grace: 30s", 5 * MINUTE)
    condition = await the_only(bench)
    assert (condition.code, condition.key) == (Code.NOT_FIRED, "k")
    age = bench.now() - condition.since
    assert 4 * MINUTE < age < 6 * MINUTE
    assert condition.cause == "undecided"
    assert "replica-a could decide it" in condition.text


async def test_the_undecided_windows_of_many_schedules_of_a_workflow_are_one_condition(
    bench: Bench,
):
    for key in ("one", "two", "three"):
        await declare_ago(bench, "everyMs: 60000, grace: 30s", 5 * MINUTE, key=key)
    condition = await the_only(bench)
    assert condition.code is Code.NOT_FIRED
    assert condition.text.startswith(
        "3 schedules of project default have not fired (one, three, two)"
    )


async def test_the_first_look_at_an_undecided_window_makes_every_worker_search_without_bounds(
    bench: Bench,
):
    async def epoch() -> int:
        return (await bench.ledger.probe(bench.serving)).epoch

    async def opened() -> Ledger:
        return bench.ledger

    async def reachable() -> None:
        return None

    watch = Watch(
        opened, Settings(heartbeat=HEARTBEAT), holder="it", apart=True, temporal=reachable,
        clock=lambda *_: None, namespace="n", on_event=lambda _: None,
    )  # fmt: skip
    await declare_ago(bench, "everyMs: 60000, grace: 1h", 5 * MINUTE)
    before = await epoch()
    await watch.run_once()
    assert await epoch() == before, "nothing is late"
    await declare_ago(bench, "everyMs: 60000, grace: 1s", 5 * MINUTE, key="late")
    before = await epoch()
    await watch.run_once()
    await watch.run_once()
    assert await epoch() == before + 1


async def test_of_processes_that_see_different_causes_one_judges_and_the_other_tells_the_same(
    bench: Bench,
):
    """Otherwise each would end what the other has found, again and again."""
    await declare_ago(bench, "everyMs: 60000, grace: 1s", 5 * MINUTE)

    async def opened() -> Ledger:
        return bench.ledger

    async def reachable() -> None:
        return None

    async def cut_off() -> str:
        return "starts get no answer"

    heard: dict[str, list[str]] = {"replica": [], "apart": [], "other": []}

    def process(name: str, temporal: Callable[[], Awaitable[str | None]], *, apart: bool) -> Watch:
        return Watch(
            opened, Settings(heartbeat=HEARTBEAT), holder=name, apart=apart, temporal=temporal,
            clock=lambda *_: None, namespace="n",
            on_event=lambda event: heard[name].append(words_of_event(event)),
        )  # fmt: skip

    replica = process("replica", cut_off, apart=False)
    apart = process("apart", reachable, apart=True)
    other = process("other", cut_off, apart=True)
    for _ in range(4):
        for each in (apart, other, replica):
            await each.run_once()
    (alert,) = await bench.ledger.alerts.open()
    assert alert.cause == "undecided"
    assert heard["replica"] == []
    assert heard["apart"] == heard["other"] == [f"open {alert.text}"]

    await apart.end()
    await other.end()
    for _ in range(2):
        await replica.run_once()
    (alert,) = await bench.ledger.alerts.open()
    assert alert.cause == "temporal_unreachable"


def words_of_event(event: Event) -> str:
    assert isinstance(event, Alert | Notice)
    return f"open {event.text}" if isinstance(event, Alert) else event.text


async def test_a_window_within_its_grace_is_no_problem(bench: Bench):
    await declare_ago(bench, "everyMs: 60000, grace: 1h", 5 * MINUTE)
    assert await look(bench) == []


async def test_an_outage_of_all_workers_is_one_problem_and_not_one_for_each_schedule(bench: Bench):
    for key in "abc":
        await declare_ago(bench, FIELDS, 5 * MINUTE, key=key)
    await bench.ledger.withdraw(bench.serving)
    condition = await the_only(bench)
    assert condition.cause == "no_replica"
    assert "3 schedules of project default have not fired (a, b, c)" in condition.text


async def test_workers_of_another_task_queue_do_not_count(bench: Bench):
    await declare_ago(bench, FIELDS, 5 * MINUTE)
    await bench.ledger.withdraw(bench.serving)
    await bench.announce(Serving("elsewhere", "default", "other", frozenset({"noop@1"})))
    condition = await the_only(bench)
    assert condition.cause == "task_queue_unserved"
    assert "no worker serves its task queue sched, only other" in condition.text


async def test_a_worker_without_the_workflow_does_not_count(bench: Bench):
    await declare_ago(bench, FIELDS, 5 * MINUTE)
    await bench.announce(Serving("replica-a", "default", "sched", frozenset({"else@1"})))
    assert (await the_only(bench)).cause == "workflow_unknown"


async def test_a_server_or_a_clock_that_cannot_be_used_is_the_cause(bench: Bench):
    await declare_ago(bench, FIELDS, 5 * MINUTE)
    away = await the_only(bench, WatchContext(temporal="connection refused"))
    assert (away.cause, "connection refused" in away.text) == ("temporal_unreachable", True)
    jumped = await the_only(bench, WatchContext(clock="the clock has jumped by +60 s"))
    assert (jumped.cause, "+60 s" in jumped.text) == ("clock_hold", True)


async def test_a_schedule_whose_plan_fails_is_found_though_it_is_due_later(bench: Bench):
    await declare_ago(bench, FIELDS, 5 * MINUTE)
    async with bench.ledger.transaction() as transaction:
        await transaction.lock(["k"])
        await transaction.back_off("k", "a definition of tomorrow")
    condition = await the_only(bench)
    assert condition.cause == "plan_failed"
    assert "a definition of tomorrow" in condition.text
    assert bench.now() - condition.since > 4 * MINUTE


async def test_a_start_without_an_answer_is_found_with_its_owner(bench: Bench):
    await declare_ago(bench, "everyMs: 3600000, grace: 0s", HOUR)
    (claim,) = await bench.claim(lease=timedelta(0))
    bench.wait()
    await bench.ledger.take_over(bench.other, limit=10, lease=timedelta(minutes=1))
    condition = await the_only(bench)
    assert (condition.cause, condition.since) == ("no_answer", claim.fire_time)
    assert "replica-b has it" in condition.text


async def test_a_paused_schedule_is_a_problem_only_if_it_declares_how_late_it_may_be(bench: Bench):
    await declare_ago(bench, FIELDS, 5 * MINUTE, key="plain", paused=True)
    await declare_ago(bench, f"{FIELDS}, alert: {{lateAfter: 2m}}", 5 * MINUTE, paused=True)
    condition = await the_only(bench)
    assert (condition.name, condition.code, condition.cause) == (
        "late:k",
        Code.FIRED_LATE,
        "paused",
    )
    assert "later than its limit of 2m; it is paused since" in condition.text


async def test_a_run_that_began_too_late_is_a_problem_until_one_is_in_time(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, alert: {{lateAfter: 90s}}", 3 * MINUTE)
    claims = sorted(await bench.claim(), key=lambda each: each.fire_time)
    assert len(claims) >= 3
    await run_of(bench, claims[0], "first")
    condition = await the_only(bench)
    assert condition.code is Code.FIRED_LATE
    for claim in claims[1:]:
        await run_of(bench, claim, f"run-{claim.bucket}")
    assert await look(bench) == []


async def test_failures_in_a_row_are_counted_until_a_run_completes(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, alert: {{failuresInRow: 2}}", 5 * MINUTE)
    await close(bench, 5, "completed", "failed", "timed_out")
    found = {condition.code: condition for condition in await look(bench)}
    assert "2 runs in a row have failed of k, its limit is 2" in found[Code.FAILURES_IN_ROW].text
    assert "k has 2 dead letters" in found[Code.DEAD_LETTERS].text


async def test_a_schedule_that_the_engine_has_paused_is_a_problem_until_it_is_resumed(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, pauseAfterFailures: 2", 5 * MINUTE)
    await close(bench, 5, "failed", "timed_out")
    assert await pause_failing(bench.ledger, on_event=lambda _: None) == ["k"]
    found = {condition.code: condition for condition in await look(bench)}
    assert "by sched-engine (2 failed runs in a row" in found[Code.PAUSED_AFTER_FAILURES].text
    await operator(bench).resume("k")
    assert Code.PAUSED_AFTER_FAILURES not in {each.code for each in await look(bench)}


async def test_one_failure_after_a_completed_run_is_not_a_row(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, alert: {{failuresInRow: 2}}", 5 * MINUTE)
    await close(bench, 5, "failed", "completed", "failed")
    assert [condition.code for condition in await look(bench)] == [Code.DEAD_LETTERS]


async def test_a_dead_letter_is_a_problem_until_it_is_dealt_with(bench: Bench):
    await declare_ago(bench, "everyMs: 3600000", HOUR)
    (claim,) = await bench.claim()
    refused = Reason("payload_too_large", "payload too large")
    await bench.ledger.settle([Outcome(claim.fire_id, claim.token, "rejected", reason=refused)])
    condition = await the_only(bench)
    assert (condition.name, condition.code) == ("dead:k", Code.DEAD_LETTERS)
    assert f"`sched dead show {claim.workflow_id}`" in condition.text
    await operator(bench).drop_dead(claim.workflow_id, reason="a test")
    assert await look(bench) == []


async def test_windows_skipped_in_a_row_are_counted_without_those_that_were_chosen(bench: Bench):
    await declare_ago(
        bench, "everyMs: 60000, grace: 1s, overlap: skip, alert: {skippedInRow: 3}", MINUTE
    )
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    await declare_ago(
        bench, "everyMs: 60000, catchUp: {policy: none}, grace: 1s, alert: {skippedInRow: 3}",
        6 * MINUTE, key="old",
    )  # fmt: skip
    await bench.claim()
    condition = await the_only(bench)
    assert (condition.code, condition.key) == (Code.SKIPPED_IN_ROW, "old")
    assert "windows in a row had no run of old, its limit is 3; the last: expired" in condition.text


async def test_each_replica_is_judged_by_the_heartbeat_that_it_has_announced(bench: Bench):
    await declare_ago(bench, FIELDS, 5 * MINUTE)
    await bench.announce(heartbeat=timedelta(microseconds=1))
    await bench.announce(bench.other, heartbeat=HOUR)
    bench.wait()
    found = {condition.code: condition for condition in await look(bench)}
    assert "replica replica-a of" in found[Code.REPLICA_VANISHED].text
    assert "replica-b could decide it" in found[Code.NOT_FIRED].text
    states = {row.replica: row.state for row in await operator(bench).workers()}
    assert states == {"replica-a": "silent", "replica-b": "alive"}
    await bench.ledger.withdraw(bench.other)
    assert [condition.cause for condition in await look(bench)] == ["no_replica", None]


@pytest.mark.parametrize(
    ("project", "said"),
    [
        ("shop", "workers of projects default and shop on task queue sched have different"),
        ("default", "workers of project default on task queue sched have different workflows"),
    ],
)
async def test_workers_of_a_task_queue_with_other_workflows_are_named_once_a_deploy_is_over(
    bench: Bench, project: str, said: str
):
    await bench.announce()
    old = Serving("replica-old", project, "sched", frozenset({"other@1"}))
    elsewhere = Serving("replica-else", "shop", "mail", frozenset({"mail@1"}))
    steps = Serving("replica-steps", "default", "sched", frozenset())
    for each in (old, elsewhere, steps):
        await bench.announce(each, heartbeat=HOUR)
    bench.wait(timedelta(seconds=41))
    await bench.announce(heartbeat=HOUR)
    condition = await the_only(bench)
    assert (condition.code, condition.name) == (Code.TASK_QUEUE_MIXED, "mixed:sched")
    assert said in condition.text
    assert "does not have" in condition.text
    slow = WatchContext(drain=MINUTE)
    assert await look(bench, slow) == []
    await bench.ledger.withdraw(old)
    assert await look(bench) == []


async def test_a_worker_says_at_its_start_which_workers_of_its_queue_lack_its_workflows(
    bench: Bench,
):
    await bench.announce(Serving("replica-old", "shop", "sched", frozenset({"other@1"})))
    told: list[Event] = []
    answer = DescribeNamespaceResponse()
    answer.config.workflow_execution_retention_ttl.FromTimedelta(timedelta(days=1))
    service = SimpleNamespace(describe_namespace=AsyncMock(return_value=answer))
    connection = SimpleNamespace(config=SimpleNamespace(target_host="localhost:7233"))
    there = SimpleNamespace(
        namespace="default", workflow_service=service, service_client=connection
    )
    client = cast("Client", there)
    presence = Presence(client, bench.ledger, bench.serving, Settings(), on_event=told.append)
    await presence.begin()
    (notice,) = told
    assert isinstance(notice, Notice)
    assert not notice.good
    assert notice.text.startswith("SCHEDULE_TASK_QUEUE_MIXED: workers of projects default and shop")
    assert "does not have" in notice.text


async def test_a_replica_that_goes_silent_has_vanished_and_one_that_leaves_has_not(bench: Bench):
    await bench.announce(bench.other)
    await bench.ledger.withdraw(bench.other)
    assert await look(bench) == []
    bench.wait(4 * HEARTBEAT)
    condition = await the_only(bench)
    assert condition.code is Code.REPLICA_VANISHED
    assert "replica-a of project default has been silent since" in condition.text
    assert "no other serves task queue sched" in condition.text
