"""Which pending steps of an open run go on failing, and how often that is reported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import Code
from engine.ledger import Evidence, FailingNote, FailingStep, as_failing
from engine.runtime import Settings
from engine.runtime.event_log import log
from engine.runtime.events import Alert, Closed, Event, Notice
from engine.runtime.tracking.failing_steps import FailingSteps, failing_steps, goes_on_failing

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
    (step,) = failing_steps("r", [seen])
    assert goes_on_failing(step, NOW, Settings()) is is_told


def test_a_step_that_has_not_failed_is_no_failing_step_however_long_it_takes():
    assert failing_steps("r", [pending(1, begun=600 * MINUTE)]) == []


def test_a_step_whose_attempts_an_operator_has_reset_begins_anew():
    reset = pending(6)
    reset.attempt = 1
    assert failing_steps("r", [reset]) == []


@pytest.mark.parametrize(
    ("message", "said"),
    [("first\nsecond", "RuntimeError: first"), ("", "RuntimeError")],
)
def test_the_first_line_of_the_error_is_named_and_its_type_if_it_has_no_text(message, said):
    (step,) = failing_steps("r", [pending(6, message=message)])
    assert str(step) == (
        "step charge (charge/1) has failed 5 times, attempt 6 comes at"
        f" 2026-11-24 12:01:00Z: {said}"
    )


class Fleet:
    """Two replicas that look at one run, and the note that they share."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.noted: str | None = None
        self.task: FailingStep | None = None
        self.unreadable = False
        self.one, self.other = (
            FailingSteps(
                self,  # type: ignore[arg-type] # of the ledger only what is called
                Settings(),
                now=lambda: NOW,
                task_of=self.task_of,
                on_event=self.events.append,
            )
            for _ in range(2)
        )

    async def task_of(self, _: object) -> FailingStep | None:
        if self.unreadable:
            raise RPCError("no answer", RPCStatusCode.UNAVAILABLE, b"")
        return self.task

    async def note_failing(self, notes: Sequence[FailingNote]) -> set[str]:
        written = [note for note in notes if note.before == self.noted]
        for note in written:
            self.noted = note.now
        return {note.workflow_id for note in written}

    async def describe(self, steps: FailingSteps, *pending: PendingActivityInfo) -> None:
        run: Any = SimpleNamespace(
            id="sched:pay:1", run_id="r", workflow_type="pay@1",
            raw_description=SimpleNamespace(pending_activities=pending),
        )  # fmt: skip
        await steps.notice(run)

    async def see(
        self, *pending: PendingActivityInfo, by: FailingSteps | None = None
    ) -> list[Event]:
        by = by or self.one
        self.events.clear()
        await self.describe(by, *pending)
        await by.compare({"sched:pay:1": self.noted})
        return list(self.events)


async def test_it_is_told_once_again_when_it_fails_otherwise_and_when_it_is_over():
    fleet = Fleet()
    (alert,) = await fleet.see(pending(6))
    assert isinstance(alert, Alert)
    assert alert.code == "SCHEDULE_STEP_FAILING"
    assert alert.text.startswith("sched:pay:1 (pay@1, run r): step charge (charge/1) has failed 5")
    assert await fleet.see(pending(7, message="card declined at 12:01")) == []
    (alert,) = await fleet.see(pending(8, kind="TimeoutError"))
    assert isinstance(alert, Alert)
    assert await fleet.see() == [
        Notice(
            "sched:pay:1: step charge (charge/1) is not retried any more, after 7 failed"
            " attempts or more", good=True,
        )
    ]  # fmt: skip
    assert await fleet.see() == []


async def test_the_end_of_its_run_is_told_once():
    fleet = Fleet()
    await fleet.see(pending(6))
    closed = Closed(Evidence("sched:pay:1", "r", NOW, "failed", NOW))
    fleet.events.clear()
    fleet.one.on_event(closed)
    fleet.one.on_event(closed)
    text = "sched:pay:1 failed, after its step charge had gone on failing"
    assert fleet.events == [Notice(text, good=True)]


async def test_of_two_replicas_that_look_at_once_one_tells_it():
    fleet = Fleet()
    for steps in (fleet.one, fleet.other):
        await fleet.describe(steps, pending(6))
    for steps in (fleet.one, fleet.other):
        await steps.compare({"sched:pay:1": None})
    assert [type(event) for event in fleet.events] == [Alert]


async def test_a_replica_that_takes_the_duty_over_tells_nothing_again_and_what_is_over():
    fleet = Fleet()
    assert len(await fleet.see(pending(6))) == 1
    assert await fleet.see(pending(7), by=fleet.other) == []
    assert [step.attempts for step in as_failing(fleet.noted)] == [6]
    (notice,) = await fleet.see(by=fleet.other)
    assert isinstance(notice, Notice)
    assert fleet.noted is None


async def test_a_step_that_was_told_is_not_over_while_it_fails_whatever_the_limits_of_a_replica():
    fleet = Fleet()
    assert len(await fleet.see(pending(6))) == 1
    assert await fleet.see(pending(2)) == []
    assert [step.attempts for step in as_failing(fleet.noted)] == [1]


async def test_an_error_may_have_characters_that_no_database_keeps():
    (step,) = failing_steps("r", [pending(6, message="a\0b")])
    assert step.error == "RuntimeError: a\ufffdb"


STUCK = FailingStep(
    step="workflow task", place="", run_id="r", attempts=2, max_attempts=None,
    error_type="NON_DETERMINISTIC", error="event 5: the history has another step",
    since=NOW, next_attempt_at=None,
)  # fmt: skip


async def test_a_run_that_cannot_go_on_is_told_and_noted_once_and_when_it_goes_on():
    fleet = Fleet()
    fleet.task = STUCK
    assert await fleet.see() == [
        Alert(Code.RUN_STUCK, f"sched:pay:1 (pay@1) cannot go on, attempt 3: {STUCK.error}")
    ]
    assert as_failing(fleet.noted) == (STUCK,)
    assert str(STUCK) == f"stuck, its workflow task has failed 2 times: {STUCK.error}"
    assert await fleet.see(by=fleet.other) == []
    fleet.unreadable = True  # nothing is known of it then, so it is neither over nor anew
    assert await fleet.see() == []
    assert as_failing(fleet.noted) == (STUCK,)
    fleet.task, fleet.unreadable = None, False
    assert await fleet.see() == [
        Notice("sched:pay:1 goes on, after 2 failed attempts or more", good=True)
    ]
    assert fleet.noted is None


async def test_its_log_record_has_the_code_as_a_field(caplog):
    fleet = Fleet()
    (alert,) = await fleet.see(pending(6))
    log(alert)
    (record,) = caplog.records
    assert (record.code, record.levelname) == ("SCHEDULE_STEP_FAILING", "ERROR")
