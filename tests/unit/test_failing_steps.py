"""Which pending steps of an open run keep failing, and how often that is reported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import Code
from engine.ledger import Evidence, FailingNote, FailingStep, as_failing
from engine.runtime import Settings
from engine.runtime.dispatch.backpressure import Budget
from engine.runtime.events import Alert, Closed, Event, Notice, log
from engine.runtime.tracking.failing_steps import (
    ChildSteps,
    FailingSteps,
    failing_steps,
    goes_on_failing,
)

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


class Family:
    """The open children of runs as Temporal describes them, in place of its client."""

    def __init__(self) -> None:
        self.children: dict[str, list[str]] = {}
        self.pending: dict[str, Sequence[PendingActivityInfo]] = {}
        self.described: list[str] = []
        self.away = False

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def describe(rpc_timeout: timedelta) -> Any:
            self.described.append(workflow_id)
            if self.away:
                raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")
            return self.run(workflow_id, self.pending.get(workflow_id, ()))

        return SimpleNamespace(describe=describe)

    def run(self, workflow_id: str, pending: Sequence[PendingActivityInfo]) -> Any:
        children = [SimpleNamespace(workflow_id=it) for it in self.children.get(workflow_id, ())]
        return SimpleNamespace(
            id=workflow_id, run_id="r" if ":" in workflow_id else workflow_id,
            workflow_type="pay@1",
            status=WorkflowExecutionStatus.RUNNING,
            raw_description=SimpleNamespace(
                pending_activities=pending, pending_children=children
            ),
        )  # fmt: skip


class Fleet:
    """Two replicas that look at one run, and the note that they share."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.noted: str | None = None
        self.family = Family()
        self.task: FailingStep | None = None
        self.unreadable = False
        self.one, self.other = (
            FailingSteps(
                self, Settings(), ChildSteps(self.family, Settings(), budget=Budget()),  # type: ignore[arg-type] # only what is called
                now=lambda: NOW, task_of=self.task_of, on_event=self.events.append,
            )
            for _ in range(2)
        )  # fmt: skip

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
        await steps.notice(self.family.run("sched:pay:1", pending))

    async def see(
        self, *pending: PendingActivityInfo, by: FailingSteps | None = None, tracking: bool = True
    ) -> list[Event]:
        by = by or self.one
        self.events.clear()
        await self.describe(by, *pending)
        await by.compare({"sched:pay:1": self.noted}, tracking=tracking)
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
        await steps.compare({"sched:pay:1": None}, tracking=True)
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


async def test_a_step_of_a_child_of_a_child_is_told_once_and_when_it_is_over():
    fleet = Fleet()
    fleet.family.children = {"sched:pay:1": ["a", "b"], "b": ["c"]}
    fleet.family.pending = {"c": [pending(6)]}
    (alert,) = await fleet.see()
    assert isinstance(alert, Alert)
    assert alert.text.startswith(
        "sched:pay:1 (pay@1): step charge (charge/1) of the child c has failed 5 times"
    )
    assert [step.child for step in as_failing(fleet.noted)] == ["c"]
    assert await fleet.see(by=fleet.other) == [], "one that takes the duty over"
    fleet.family.children = {}
    (notice,) = await fleet.see()
    assert isinstance(notice, Notice)
    assert "step charge (charge/1) of the child c is not retried any more" in notice.text


async def test_a_large_family_takes_several_looks_and_only_the_tracker_looks_at_it():
    fleet = Fleet()
    fleet.family.children = {"sched:pay:1": [f"child {n}" for n in range(20)]}
    fleet.family.pending = {"child 19": [pending(6)], "child 0": [pending(2)]}
    assert await fleet.see(tracking=False) == []
    assert fleet.family.described == []
    looks = [await fleet.see() for _ in range(3)]
    assert [[type(event) for event in look] for look in looks] == [[], [], [Alert]]
    assert fleet.family.described == [f"child {n}" for n in range(20)]
    assert await fleet.see(tracking=False) == [], "what the last walk found still counts"
    # One that has just begun, with the duty or without, takes nothing back.
    assert await fleet.see(by=fleet.other, tracking=False) == []
    assert await fleet.see(by=fleet.other) == []
    assert [step.child for step in as_failing(fleet.noted)] == ["child 19"]


async def test_what_a_replica_found_on_an_earlier_term_of_duty_takes_back_nothing():
    fleet = Fleet()
    fleet.family.children = {"sched:pay:1": ["a"]}
    assert await fleet.see() == []
    fleet.family.pending = {"a": [pending(6)]}
    assert [type(event) for event in await fleet.see(by=fleet.other)] == [Alert]
    assert await fleet.see(tracking=False) == []
    assert [step.child for step in as_failing(fleet.noted)] == ["a"]


async def test_a_walk_of_an_earlier_term_of_duty_begins_anew(monkeypatch):
    at = SimpleNamespace(now=0.0)
    monkeypatch.setattr("engine.runtime.tracking.failing_steps.boottime", lambda: at.now)
    fleet = Fleet()
    fleet.family.children = {"sched:pay:1": [f"child {n}" for n in range(10)]}
    fleet.family.pending = {"child 0": [pending(6)]}
    assert await fleet.see() == []
    fleet.family.pending, at.now = {}, 3600.0  # another replica has had the duty for an hour
    assert [await fleet.see() for _ in range(4)] == [[], [], [], []]
    assert fleet.noted is None


async def test_a_child_that_cannot_be_described_is_left_to_a_later_turn():
    fleet = Fleet()
    fleet.family.children = {"sched:pay:1": [f"child {n}" for n in range(10)]}
    fleet.family.pending = {"child 9": [pending(6)]}
    assert await fleet.see() == []
    fleet.family.away = True
    assert await fleet.see() == []
    assert fleet.family.described[8:] == ["child 8"], "no further call in this turn"
    fleet.family.away = False
    (alert,) = await fleet.see()
    assert isinstance(alert, Alert)
    assert fleet.family.described[9:] == ["child 9", "child 8"], "the walk goes on"


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
        Alert(Code.RUN_STUCK, f"sched:pay:1 (pay@1) cannot continue, attempt 3: {STUCK.error}")
    ]
    assert as_failing(fleet.noted) == (STUCK,)
    assert str(STUCK) == f"stuck, its workflow task has failed 2 times: {STUCK.error}"
    assert await fleet.see(by=fleet.other) == []
    fleet.unreadable = True  # nothing is known of it then, so it is neither over nor anew
    assert await fleet.see() == []
    assert as_failing(fleet.noted) == (STUCK,)
    fleet.task, fleet.unreadable = None, False
    assert await fleet.see() == [
        Notice("sched:pay:1 continues, after 2 failed attempts or more", good=True)
    ]
    assert fleet.noted is None


async def test_its_log_record_has_the_code_as_a_field(caplog):
    fleet = Fleet()
    (alert,) = await fleet.see(pending(6))
    log(alert)
    (record,) = caplog.records
    assert (record.code, record.levelname) == ("SCHEDULE_STEP_FAILING", "ERROR")
