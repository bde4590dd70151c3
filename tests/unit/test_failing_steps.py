"""Which pending steps of an open run go on failing, and how often that is reported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.workflow.v1 import PendingActivityInfo

from engine.ledger import Evidence
from engine.runtime import Settings
from engine.runtime.events import Alert, Closed, Event, Notice, log
from engine.runtime.tracking.failing_steps import FailingSteps, failing_steps

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def pending(
    attempt: int,
    *,
    begun: timedelta = MINUTE,
    failed: timedelta = timedelta(seconds=1),
    message: str = "card declined",
    kind: str = "RuntimeError",
) -> PendingActivityInfo:
    made = PendingActivityInfo(activity_id="charge/1", attempt=attempt)
    made.activity_type.name = "charge"
    made.scheduled_time.FromDatetime(NOW - begun)
    if attempt > 1:
        made.last_failure.message = message
        made.last_failure.application_failure_info.type = kind
        made.last_attempt_complete_time.FromDatetime(NOW - failed)
        made.next_attempt_schedule_time.FromDatetime(NOW + MINUTE)
    return made


@pytest.mark.parametrize(
    ("seen", "is_told"),
    [
        (pending(5), False),
        (pending(6), True),
        (pending(2, begun=60 * MINUTE, failed=4 * MINUTE), False),  # its first attempt was long
        (pending(2, begun=60 * MINUTE, failed=5 * MINUTE), True),
        (pending(3, begun=5 * MINUTE), True),
    ],
)
def test_a_step_goes_on_failing_after_five_attempts_or_five_minutes(seen, is_told):
    (step,) = failing_steps([seen])
    assert step.goes_on_failing(NOW, Settings()) is is_told


def test_a_step_that_has_not_failed_is_no_failing_step_however_long_it_takes():
    assert failing_steps([pending(1, begun=600 * MINUTE)]) == []


def test_a_step_whose_attempts_an_operator_has_reset_begins_anew():
    reset = pending(6)
    reset.attempt = 1
    assert failing_steps([reset]) == []


@pytest.mark.parametrize(
    ("message", "said"),
    [("first\nsecond", "RuntimeError: first"), ("", "RuntimeError")],
)
def test_the_first_line_of_the_error_is_named_and_its_type_if_it_has_no_text(message, said):
    (step,) = failing_steps([pending(6, message=message)])
    assert str(step) == (
        "step charge (charge/1) has failed 5 times, attempt 6 comes at"
        f" 2026-11-24 12:01:00Z: {said}"
    )


class Watch:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.steps = FailingSteps(Settings(), now=lambda: NOW, on_event=self.events.append)

    async def see(self, *steps: PendingActivityInfo) -> list[Event]:
        run: Any = SimpleNamespace(
            id="sched:pay:1", run_id="r", workflow_type="pay@1",
            raw_description=SimpleNamespace(pending_activities=steps),
        )  # fmt: skip
        self.events.clear()
        await self.steps.notice(run)
        return list(self.events)


async def test_it_is_told_once_again_when_it_fails_otherwise_and_when_it_is_over():
    watch = Watch()
    (alert,) = await watch.see(pending(6))
    assert isinstance(alert, Alert)
    assert alert.code == "SCHEDULE_STEP_FAILING"
    assert alert.text.startswith("sched:pay:1 (pay@1, run r): step charge (charge/1) has failed 5")
    assert await watch.see(pending(7, message="card declined at 12:01")) == []
    (alert,) = await watch.see(pending(8, kind="TimeoutError"))
    assert isinstance(alert, Alert)
    assert await watch.see() == [
        Notice(
            "sched:pay:1: step charge (charge/1) is not retried any more, after 7 failed"
            " attempts or more", good=True,
        )
    ]  # fmt: skip
    assert await watch.see() == []


async def test_the_end_of_its_run_is_told_once():
    watch = Watch()
    await watch.see(pending(6))
    closed = Closed(Evidence("sched:pay:1", "r", NOW, "failed", NOW))
    watch.events.clear()
    watch.steps.on_event(closed)
    watch.steps.on_event(closed)
    text = "sched:pay:1 failed, after its step charge had gone on failing"
    assert watch.events == [Notice(text, good=True)]


async def test_its_log_record_has_the_code_as_a_field(caplog):
    watch = Watch()
    (alert,) = await watch.see(pending(6))
    log(alert)
    (record,) = caplog.records
    assert (record.code, record.levelname) == ("SCHEDULE_STEP_FAILING", "ERROR")
