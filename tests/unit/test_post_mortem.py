"""Why a closed run failed, as far as it can be read."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.client import WorkflowFailureError
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TerminatedError

from engine.flow.failures import CompensationFailed, NotUndone
from engine.ledger.fires import Evidence
from engine.runtime.dispatch.starter import with_failure
from engine.runtime.settings import Settings
from tests.encrypted_team import Mirror

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FAILED = Evidence("sched:k:7", "r", NOON, closed="failed", closed_at=NOON)


class Run:
    """A handle whose result is an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.asked = 0

    async def result(self, **_: Any) -> None:
        self.asked += 1
        raise self.error


def failure(cause: BaseException) -> WorkflowFailureError:
    return WorkflowFailureError(cause=cause)


async def told(error: BaseException, seen: Evidence = FAILED) -> Evidence:
    return await with_failure(seen, Run(error), Settings())  # type: ignore[arg-type] # a stand-in


async def test_the_innermost_cause_is_told_in_one_line():
    outer = ApplicationError("the step failed")
    outer.__cause__ = ApplicationError("no such\n  card", type="CardDeclined")
    assert (await told(failure(outer))).error == "CardDeclined: no such card"


@pytest.mark.parametrize("reader", [Mirror(), None])
async def test_a_text_that_temporal_has_encoded_stays_there(reader):
    encoding = DataConverter(failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
    step = ApplicationError("no such card 4111", type="CardDeclined")
    left = NotUndone("charge", "refund", "4111 is away", idempotency_key="run/charge/1")
    ended = CompensationFailed("the run", [left])
    ended.__cause__ = step
    written = Failure()
    await replace(encoding, payload_codec=Mirror()).encode_failure(ended, written)
    assert "4111" not in str(written)
    if reader is None:  # details are read where the codec is alone, or not at all
        written.application_failure_info.ClearField("details")
    read = await replace(encoding, payload_codec=reader).decode_failure(written)
    seen = await told(failure(read))
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
    assert (await told(failure(outer))).error == "TimeoutError: nobody came"


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
    seen = await told(failure(step))
    assert (seen.error_type, seen.given_up) == ("CardDeclined", given_up)
    assert seen.error == "step charge: CardDeclined: no money"


async def test_code_of_the_workflow_itself_gave_up_in_neither_way():
    seen = await told(failure(ApplicationError("no", type="ValueError")))
    assert (seen.error_type, seen.given_up) == ("ValueError", None)


async def test_an_error_is_told_up_to_two_thousand_characters_and_as_a_database_keeps_it():
    error = (await told(failure(ApplicationError("x\0y\ud800 " + "z" * 5000)))).error
    assert error is not None
    assert len(error) == 2000
    assert error.startswith("x\ufffdy? z")


async def test_what_could_not_be_undone_is_told_and_what_ended_the_run():
    left = {"step": "reserve", "undo": "release", "error": "away\0"}
    outer = ApplicationError("could not undo reserve", left, type="CompensationFailed")
    outer.__cause__ = ApplicationError("no such card", type="LookupError")
    seen = await told(failure(outer))
    assert seen.error == "could not undo reserve, after: LookupError: no such card"
    assert json.loads(seen.not_undone or "") == [{**left, "error": "away\ufffd"}]


@pytest.mark.parametrize("error", [RuntimeError("no key"), ValueError("no codec"), OSError("away")])
async def test_what_cannot_be_read_never_hides_the_close(error):
    seen = await told(error)
    assert (seen.closed, seen.closed_at) == ("failed", NOON)
    assert seen.error is not None
    assert seen.error.startswith("its failure could not be read: ")


async def test_nobody_asks_why_of_a_run_that_completed_or_is_open():
    for seen in (replace(FAILED, closed="completed"), replace(FAILED, closed=None)):
        run = Run(RuntimeError())
        assert await with_failure(seen, run, Settings()) is seen  # type: ignore[arg-type] # as above
        assert run.asked == 0


async def test_a_terminated_run_says_by_whom():
    seen = await told(failure(TerminatedError("by hand")), replace(FAILED, closed="terminated"))
    assert seen.error == "by hand"
