"""The eleven error codes of seed 000: each has its string, its meaning and its operation."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from pathlib import Path

import pytest

from engine.errors import Code, EngineError, EnqueueFailure, RetryPolicyInvalid, ScheduleFileError
from engine.flow import Retry
from engine.ledger import Outcome
from engine.schedules import Reason, load_schedules
from engine.service import ScheduleService
from engine.testing.virtual_ledger import VirtualLedger
from tests.conformance.conftest import Bench

ROOT = Path(__file__).parents[2]
LATER = "2031-01-01T00:00:00Z"


@pytest.fixture
async def bench(virtual_ledger: VirtualLedger) -> Bench:
    made = Bench(virtual_ledger)
    await made.announce()
    return made


@pytest.fixture
def service(bench: Bench) -> ScheduleService:
    return ScheduleService(bench.ledger, actor="shop")


async def refused(asked, code: str) -> EngineError:
    """The error of an operation; it has this code, and nothing is stored."""
    with pytest.raises(EngineError) as caught:
        await asked
    assert caught.value.code == code
    return caught.value


async def test_a_moment_in_the_past(service, clock):
    past = clock.now() - timedelta(seconds=1)
    await refused(service.schedule_at("noop", past), "SCHEDULE_MOMENT_IN_PAST")
    assert (await service.list()).schedules == ()


async def test_a_timezone_that_is_no_iana_name(service):
    code = "SCHEDULE_TIMEZONE_INVALID"
    await refused(service.schedule_at("noop", "2031-01-01T09:00", timezone="EST"), code)
    await refused(service.schedule_repeat("noop", cron="0 2 * * *", timezone="Mars/Base"), code)


@pytest.mark.parametrize("topic", ["Orders", "a.b.c.d", "a..b", "a_b", "9a", "", "a\n", 5])
async def test_a_topic_beside_its_pattern_or_of_four_segments(service, topic):
    code = "SCHEDULE_TOPIC_INVALID"
    await refused(service.schedule_at("noop", LATER, topic=topic), code)
    await refused(service.schedule_repeat("noop", everyMs=60_000, topic=topic), code)


async def test_a_topic_of_one_to_three_segments_is_kept(service):
    for topic in ("a", "orders.paid", "notifications.task-reminder.v2"):
        asked = await service.schedule_at("noop", LATER, topic=topic)
        (row,) = (await service.list(topic=topic)).schedules
        assert row.schedule.topic == asked.schedule.topic == topic


async def test_a_pattern_that_is_no_cron(service):
    await refused(service.schedule_repeat("noop", cron="61 * * * *"), "SCHEDULE_CRON_INVALID")


async def test_an_interval_below_a_second(service):
    await refused(service.schedule_repeat("noop", everyMs=999), "SCHEDULE_INTERVAL_TOO_SHORT")


async def test_a_client_request_id_that_exists_in_any_status(service):
    first = await service.schedule_at("noop", LATER, request_id="r")
    assert first.schedule.metadata == {"clientRequestId": "r"}
    for _ in range(2):
        asked = service.schedule_repeat("noop", everyMs=60_000, request_id="r")
        await refused(asked, "SCHEDULE_CLIENT_REQUEST_ID_IN_USE")
        await service.cancel(first.key)


async def test_the_request_id_is_the_client_request_id_of_the_metadata(service):
    await service.schedule_at("noop", LATER, metadata={"clientRequestId": "r"})
    again = service.schedule_at("noop", LATER, request_id="r")
    await refused(again, "SCHEDULE_CLIENT_REQUEST_ID_IN_USE")
    for given in ({"request_id": "a b"}, {"metadata": {"clientRequestId": "a b"}}):
        asked = service.schedule_at("noop", LATER, **given)
        await refused(asked, "SCHEDULE_REQUEST_ID_INVALID")
    assert [row.request_id for row in (await service.list()).schedules] == ["r"]


async def test_an_identity_is_any_text_of_1_to_64_characters(service):
    for given in ({"owner_id": ""}, {"tenant_id": "x" * 65}, {"metadata": {"ownerId": 5}}):
        await refused(service.schedule_at("noop", LATER, **given), "SCHEDULE_FIELD_INVALID")
    await service.schedule_at("noop", LATER, owner_id="Zoë ☃", tenant_id="x" * 64)


async def test_an_id_that_no_job_has(service):
    await refused(service.reschedule("nobody", at=LATER), "SCHEDULE_JOB_NOT_FOUND")
    assert await service.get("nobody") is None


async def test_a_job_that_is_not_pending_any_more(service):
    asked = await service.schedule_at("noop", LATER)
    await service.cancel(asked.key)
    code = "SCHEDULE_JOB_NOT_CANCELLABLE"
    await refused(service.reschedule(asked.key, at="2032-01-01T00:00:00Z"), code)
    assert (await service.get(asked.key)).status == "cancelled"


async def test_a_job_that_was_cancelled_before_is_no_error_and_one_line_of_info(service, caplog):
    asked = await service.schedule_at("noop", LATER, key="k")
    with caplog.at_level(logging.INFO, "sched"):
        await service.cancel(asked.key)
        assert caplog.records == []
        assert (await service.cancel(asked.key)).was_retired
    (line,) = caplog.records
    assert (line.levelname, line.code, line.schedule, line.event) == (
        "INFO", "SCHEDULE_JOB_ALREADY_CANCELLED", "k", "already_cancelled",
    )  # fmt: skip


@pytest.mark.parametrize(
    "retry",
    [
        {"attempts": 0}, {"attempts": 101}, {"attempts": 1.5}, {"attempts": True},
        {"intervals": ["999ms"]}, {"intervals": ["31d"]}, {"intervals": ["1s"] * 101},
        {"intervals": "1m"}, {"intervals": ["1m"], "initial": "1s"}, {"initial": "0s"},
        {"coefficient": 0.9}, {"coefficient": 10.1}, {"initial": "1m", "max": "59s"}, 5,
    ],
)  # fmt: skip
async def test_retry_values_out_of_their_bounds(service, retry):
    code = "SCHEDULE_RETRY_POLICY_INVALID"
    await refused(service.schedule_at("noop", LATER, retry=retry), code)
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(f"schedules: [{{key: k, workflow: noop, everyMs: 1000, retry: {retry!r}}}]")
    assert {each.code for each in caught.value.problems} == {code}


async def test_retries_are_refused_alike_by_other_names_and_in_code(service):
    code = "SCHEDULE_RETRY_POLICY_INVALID"
    for given in ({"maxRetries": -1}, {"maxRetries": 100}, {"maxRetries": 1.5},
                  {"maxRetries": 1, "retry": {"attempts": 2}},
                  {"external": True, "retry": {"intervals": ["1m"]}}):  # fmt: skip
        await refused(service.schedule_at("noop", LATER, **given), code)
    for arguments in ({"max_attempts": 1.5}, {"max_attempts": 0}, {"backoff": 0.5},
                      {"intervals": [0]}, {"jitter": 2}):  # fmt: skip
        with pytest.raises(RetryPolicyInvalid) as caught:
            Retry(**arguments)
        assert caught.value.code == code
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("given", "tries", "longest"),
    [
        ({"maxRetries": 0}, 1, None),
        ({"maxRetries": 3}, 4, None),
        ({"retry": {}}, 5, None),
        ({"retry": {"intervals": ["1m", "5m", "15m"]}}, 4, None),
        ({"retry": {"intervals": ["1m"], "attempts": 9}}, 9, None),
        ({"timeoutSeconds": 3600}, None, timedelta(hours=1)),
        ({"timeout": {"run": "1h"}}, None, timedelta(hours=1)),
    ],
)
async def test_retries_and_timeout_are_kept_with_the_definition(service, given, tries, longest):
    """Seeds 003 and 004: retries, retry_intervals, max_retries, timeout_seconds."""
    asked = await service.schedule_at("noop", LATER, **given)
    kept = (await service.get(asked.key)).schedule
    assert (kept.retry and kept.retry.tries, kept.timeout and kept.timeout.run) == (tries, longest)


async def test_a_run_that_does_not_begin_in_time_or_never_can(bench, service):
    await service.schedule_repeat("noop", key="k", everyMs=3_600_000)
    code = "SCHEDULE_ENQUEUE_FAILURE"
    late = await refused(service.trigger("k", request_id="a", wait=0.02), code)
    assert isinstance(late, EnqueueFailure)
    assert (late.workflow_id, late.refused) == ("sched:k:manual:a", False)
    lease = timedelta(seconds=30)
    claims = await bench.ledger.take_over(bench.serving, limit=9, lease=lease)
    claim = next(each for each in claims if each.workflow_id == late.workflow_id)
    reason = Reason("payload_too_large", "payload too large")
    await bench.ledger.settle([Outcome(claim.fire_id, claim.token, "rejected", reason=reason)])
    never = await refused(service.trigger("k", request_id="a", wait=5), code)
    assert isinstance(never, EnqueueFailure)
    assert (never.workflow_id, never.refused, never.reason_code) == (
        late.workflow_id, True, "payload_too_large",
    )  # fmt: skip
    start = await refused(service.start("noop", id="7", wait=0.02), code)
    assert isinstance(start, EnqueueFailure)
    assert start.workflow_id == "sched:@noop:7"
    assert (await service.trigger("k")).fire.status == "claimed", "without wait it returns"


def test_every_code_of_the_seed_is_there():
    names = (
        "MOMENT_IN_PAST TIMEZONE_INVALID TOPIC_INVALID CRON_INVALID INTERVAL_TOO_SHORT"
        " CLIENT_REQUEST_ID_IN_USE JOB_NOT_FOUND JOB_NOT_CANCELLABLE JOB_ALREADY_CANCELLED"
        " RETRY_POLICY_INVALID ENQUEUE_FAILURE"
    )
    assert {f"SCHEDULE_{name}" for name in names.split()} <= set(Code)


def test_the_page_of_the_seeds_names_tests_and_decisions_that_are_there():
    page = (ROOT / "docs/seeds.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    unheld, missing = [], []
    for row in rows:
        held_by = row.strip("| ").rpartition(" | ")[2]
        tests = re.findall(r"`([a-z]+/[\w/]+\.(?:py|txt))(?:::(\w+))?`", held_by)
        decisions = re.findall(r"\]\((adr/[^)]+)\)", held_by)
        if held_by != "held by" and not tests and not decisions:
            unheld.append(row)
        for path, name in tests:
            file = ROOT / "tests" / path
            there = file.is_file() and (not name or f"def test_{name}(" in file.read_text("utf-8"))
            missing += [] if there else [f"{path}::{name}"]
        missing += [each for each in decisions if not (ROOT / "docs" / each).is_file()]
    assert (unheld, missing) == ([], [])
    assert len(rows) > 170
