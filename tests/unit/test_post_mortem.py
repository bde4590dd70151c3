"""Why a closed run failed, as far as it can be read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure as Written
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    RetryState,
    TerminatedError,
)
from temporalio.service import RPCError, RPCStatusCode

from engine.flow.failures import CompensationFailed, NotUndone
from engine.ledger.failures import (
    KEPT_BYTES,
    Failure,
    FailureLink,
    RunCounts,
    Try,
    as_failure,
    as_tries,
    failure_text,
)
from engine.ledger.fires import Evidence
from engine.runtime.runs.ends import SHORT, failure_of, read_counts, with_failure, without_failure
from engine.runtime.runs.memo import UnreadableHere
from engine.runtime.settings import Settings
from tests.encrypted_team import Mirror

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FAILED = Evidence("sched:k:7", "r", NOON, closed="failed", closed_at=NOON)


class Run:
    """A client whose only run has ended with an error, and can say so or not.

    Args:
        error: what ended it; ``unreadable``: what reading its history raises.
        before: events before the last one.
    """

    data_converter = DataConverter.default

    def __init__(
        self,
        error: BaseException | None,
        *,
        unreadable: Exception | None = None,
        before: Sequence[HistoryEvent] = (),
    ) -> None:
        self.error, self.unreadable, self.before = error, unreadable, before
        self.asked: list[object] = []

    def get_workflow_handle(self, *_: object, **__: object) -> Run:
        return self

    async def fetch_history_events(self, **options: Any) -> AsyncIterator[HistoryEvent]:
        only = options.get("event_filter_type")
        self.asked.append(only)
        if self.unreadable is not None:
            raise self.unreadable
        for event in () if only else self.before:
            yield event
        close = HistoryEvent()
        if isinstance(self.error, TerminatedError):
            close.workflow_execution_terminated_event_attributes.reason = str(self.error)
        elif self.error is not None:
            failed = close.workflow_execution_failed_event_attributes.failure
            await self.data_converter.encode_failure(self.error, failed)
        yield close


def begun(attempt: int = 1, previous: str = "") -> HistoryEvent:
    """The first event of a run."""
    event = HistoryEvent(event_id=1)
    event.event_time.FromDatetime(NOON)
    started = event.workflow_execution_started_event_attributes
    started.attempt, started.continued_execution_run_id = attempt, previous
    return event


def attempted(number: int, attempt: int) -> HistoryEvent:
    """The event that begins the last attempt of a step."""
    event = HistoryEvent(event_id=number)
    event.activity_task_started_event_attributes.attempt = attempt
    return event


async def told(error: BaseException, seen: Evidence = FAILED, **options: Any) -> Any:
    run: Any = Run(error, **options)
    return await with_failure(seen, run, Settings())


async def test_the_innermost_cause_is_told_in_one_line():
    outer = ApplicationError("the step failed")
    outer.__cause__ = ApplicationError("no such\n  card", type="CardDeclined")
    assert (await told(outer)).error == "CardDeclined: no such card"


async def test_what_acts_on_a_terminal_is_not_told():
    shouted = "\x1b[31mno\x1b[0m\r\n2026-11-25 ERROR sched forged \x1b]0;title\x07 \x9b2J\b"
    outer = ApplicationError(shouted, type="CardDeclined")
    expected = "CardDeclined: no 2026-11-25 ERROR sched forged ]0;title 2J"
    assert (await told(outer)).error == expected


@pytest.mark.parametrize("reader", [Mirror(), None])
async def test_a_text_that_temporal_has_encoded_stays_there(reader):
    encoding = DataConverter(failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
    step = ApplicationError("no such card 4111", type="CardDeclined")
    left = NotUndone("charge", "refund", "4111 is away", idempotency_key="run/charge/1")
    ended = CompensationFailed("the run", [left])
    ended.__cause__ = step
    written = Written()
    await replace(encoding, payload_codec=Mirror()).encode_failure(ended, written)
    assert "4111" not in str(written)
    if reader is None:  # details are read where the codec is alone, or not at all
        written.application_failure_info.ClearField("details")
    read = await replace(encoding, payload_codec=reader).decode_failure(written)
    seen = failure_of(read)
    assert "4111" not in (failure_text(seen) or "")
    assert seen.error == (
        "CompensationFailed: the text is encoded in Temporal, after:"
        " CardDeclined: the text is encoded in Temporal"
    )
    noted = [] if reader is None else [
        {"step": "charge", "undo": "refund", "error": "the text is encoded in Temporal",
         "idempotency_key": "run/charge/1"}
    ]  # fmt: skip
    assert json.loads(seen.not_undone or "[]") == noted


async def test_a_timeout_is_told_and_not_the_cancel_that_asyncio_makes_of_it():
    outer = ApplicationError("nobody came", type="TimeoutError")
    outer.__cause__ = ApplicationError("Application error", type="CancelledError")
    assert (await told(outer)).error == "TimeoutError: nobody came"


@pytest.mark.parametrize(
    ("state", "given_up"),
    [
        (RetryState.MAXIMUM_ATTEMPTS_REACHED, "retries_exhausted"),
        (RetryState.TIMEOUT, "retries_exhausted"),
        (RetryState.NON_RETRYABLE_FAILURE, "fatal"),
        (RetryState.CANCEL_REQUESTED, None),
    ],
)
async def test_how_a_step_gave_up_is_told_with_the_type_of_its_error(state, given_up):
    step = ActivityError(
        "Activity task failed", scheduled_event_id=5, started_event_id=6, identity="w",
        activity_type="charge", activity_id="charge/1", retry_state=state,
    )  # fmt: skip
    step.__cause__ = ApplicationError("no money", type="CardDeclined")
    seen = await told(step)
    assert (seen.failure.error_type, seen.given_up) == ("CardDeclined", given_up)
    assert seen.error == "step charge: CardDeclined: no money"


async def test_code_of_the_workflow_itself_gave_up_in_neither_way():
    seen = await told(ApplicationError("no", type="ValueError"))
    assert (seen.failure.error_type, seen.given_up) == ("ValueError", None)


def test_an_error_is_told_up_to_two_thousand_characters_and_as_a_database_keeps_it():
    error = failure_of(ApplicationError("x\0y\ud800 " + "z" * 5000)).error
    assert len(error) == 2000
    assert error.startswith("x\ufffdy? z")


async def test_what_could_not_be_undone_is_told_and_what_ended_the_run():
    left = {"step": "reserve", "undo": "release", "error": "away\0"}
    outer = ApplicationError("could not undo reserve", left, type="CompensationFailed")
    outer.__cause__ = ApplicationError("no such card", type="LookupError")
    seen = await told(outer)
    assert seen.error == "could not undo reserve, after: LookupError: no such card"
    assert json.loads(seen.not_undone or "") == [{**left, "error": "away\ufffd"}]


@pytest.mark.parametrize("error", [RuntimeError("no key"), ValueError("no codec"), OSError("away")])
async def test_what_cannot_be_read_never_hides_the_close(error):
    with pytest.raises(UnreadableHere) as why:
        await told(ValueError(), unreadable=error)
    seen = without_failure(FAILED, why.value)
    assert (seen.closed, seen.closed_at) == ("failed", NOON)
    assert seen.error is not None
    assert seen.error.startswith("its failure could not be read: ")


async def test_a_terminated_run_says_by_whom():
    seen = await told(TerminatedError("by hand"), replace(FAILED, closed="terminated"))
    assert seen.error == "by hand"


# --- the chain ---


def charged(**more: Any) -> ActivityError:
    """A step that has failed, with its cause."""
    step = ActivityError(
        "Activity task failed", scheduled_event_id=5, started_event_id=6, identity="w",
        activity_type="charge", activity_id="charge/1",
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )  # fmt: skip
    step.__cause__ = ApplicationError("no money", type="CardDeclined", **more)
    return step


async def test_the_chain_has_types_messages_stacks_the_step_and_its_attempt():
    try:
        raise charged()
    except ActivityError as error:
        outer = error
    seen = await told(outer, before=[begun(), attempted(6, 3)])
    step, cause = seen.failure.chain
    assert (step.type, step.step, step.attempt) == ("ActivityError", "charge", 3)
    assert step.given_up == "retries_exhausted"
    assert "test_the_chain_has_types" in step.stack
    assert (cause.type, cause.message) == ("CardDeclined", "no money")
    assert (seen.failure.error_type, seen.given_up) == ("CardDeclined", "retries_exhausted")
    assert as_failure(seen.failure_text) == seen.failure.chain


def test_the_attempt_of_a_childs_step_is_not_taken_from_the_history_of_its_parent():
    child = ChildWorkflowError(
        "Child Workflow execution failed", namespace="default", workflow_id="c", run_id="r",
        workflow_type="child@1", initiated_event_id=5, started_event_id=6,
        retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )  # fmt: skip
    child.__cause__ = charged()
    found = failure_of(child, {6: 3})
    assert [link.attempt for link in found.chain] == [None, None, None]
    assert [link.child for link in found.chain] == ["child@1", None, None]
    assert found.error == "child child@1: step charge: CardDeclined: no money"
    assert [link.attempt for link in failure_of(charged(), {6: 3}).chain] == [3, None]


def a_chain(links: int, *, message: str = "", stack: str = "") -> Failure:
    return Failure(
        tuple(FailureLink(type=f"E{number}", message=message, stack=stack)
              for number in range(links)), "",
    )  # fmt: skip


@pytest.mark.parametrize(
    "failure",
    [
        a_chain(500),
        a_chain(3, stack="ä" * 100_000),
        a_chain(20, message="€" * 100_000),
        a_chain(20, message="m" * 5000, stack="s" * 5000),
        a_chain(1, message='"\n' * 100_000, stack="\x01" * 100_000),
    ],
)
def test_a_chain_is_kept_within_its_limit_and_the_same_each_time(failure):
    text = failure_text(failure) or ""
    assert len(text.encode()) <= KEPT_BYTES
    assert text == failure_text(failure)
    kept = as_failure(text)
    assert (kept[0].type, kept[-1].type) == ("E0", failure.chain[-1].type)


def test_what_is_cut_of_a_stack_is_its_beginning_and_messages_stay_longest():
    (kept,) = as_failure(
        failure_text(a_chain(1, message="m" * 2000, stack="begin" + "s" * 99_999 + "end"))
    )
    assert len(kept.message) == 2000
    assert (len(kept.stack), kept.stack[-4:]) == (4000, "send")
    (kept,) = as_failure(failure_text(a_chain(1, message="no", stack="a\nb")))
    assert (kept.message, kept.stack) == ("no", "a\nb")


def test_a_later_version_may_add_fields_to_what_is_kept():
    text = json.dumps([{"type": "E", "message": "m", "colour": "red"}])
    assert as_failure(text) == (FailureLink(type="E", message="m"),)
    later = {"number": 1, "run_id": "r", "started_at": "2026-11-21T12:00:00Z", "colour": "red"}
    (found,) = as_tries(json.dumps([later]))
    assert found == Try(number=1, run_id="r", started_at=NOON)


# --- what the same history counts ---


async def test_the_call_for_the_failure_of_a_short_run_has_its_counts_too():
    seen = await told(charged(), before=[begun(), attempted(6, 3), attempted(9, 1)])
    assert (seen.tries, seen.step_retries) == (1, 2)
    (only,) = as_tries(seen.tried_text)
    assert (only.number, only.run_id, only.started_at, only.closed_at) == (1, "r", NOON, NOON)
    assert only.error == "step charge: CardDeclined: no money"


async def test_what_is_one_of_several_tries_or_too_long_is_counted_later():
    retried = await told(charged(), before=[begun(2, "earlier")])
    assert (retried.tries, retried.step_retries) == (None, None)
    run: Any = Run(charged(), before=[begun(), *[attempted(n, 1) for n in range(SHORT)]])
    seen = await with_failure(FAILED, run, Settings())
    assert (seen.error, seen.tries) == ("step charge: CardDeclined: no money", None)
    assert len(run.asked) == 2, "its beginning, and its end"


class Chain:
    """A client with the runs of one chain, by their ids."""

    data_converter = DataConverter.default

    def __init__(self, **runs: Run) -> None:
        self.runs = runs

    def get_workflow_handle(self, _: str, *, run_id: str) -> Run:
        return self.runs.get(run_id) or Run(None, unreadable=GONE)


GONE = RPCError("gone", RPCStatusCode.NOT_FOUND, b"")


async def counts(**runs: Run) -> RunCounts:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    client: Any = Chain(**runs)
    found = await read_counts(client, "sched:k:7", "last", Settings(), turn=turn)
    assert turns >= len(found.tried)
    return found


async def test_tries_are_read_from_the_newest_back_and_their_retries_added_up():
    first = Run(charged(), before=[begun(), attempted(6, 3)])
    last = Run(ApplicationError("away", type="E"), before=[begun(2, "first"), attempted(6, 2)])
    found = await counts(last=last, first=first)
    assert (found.tries, found.step_retries) == (2, 3)
    assert [(each.number, each.run_id, each.error) for each in found.tried] == [
        (1, "first", "step charge: CardDeclined: no money"),
        (2, "last", "E: away"),
    ]


async def test_a_try_that_temporal_has_forgotten_leaves_the_number_and_no_sum():
    found = await counts(last=Run(ApplicationError("away"), before=[begun(3, "second")]))
    assert (found.tries, found.step_retries, len(found.tried)) == (3, None, 1)
    assert (await counts()).tries is None


async def test_what_was_continued_as_new_is_no_try_and_its_retries_are_not_all_known():
    before = Run(charged(), before=[begun(3, "first")])
    last = Run(None, before=[begun(1, "before"), attempted(6, 2)])
    found = await counts(last=last, before=before)
    assert (found.tries, found.step_retries, len(found.tried)) == (1, None, 1)


async def test_of_many_tries_the_newest_are_read():
    runs = {f"r{n}": Run(charged(), before=[begun(n, f"r{n - 1}")]) for n in range(2, 60)}
    found = await counts(last=Run(charged(), before=[begun(60, "r59")]), **runs)
    assert (found.tries, found.step_retries, len(found.tried)) == (60, None, 20)
    assert [each.number for each in found.tried] == [*range(41, 61)]
