"""Names that runs have in their histories, headers and memos."""

from __future__ import annotations

from temporalio.converter import PayloadConverter

from engine.flow import children, context, fire, saga, signals, steps
from engine.flow.definition import FOREVER, RunOptions
from engine.flow.step_calls import NOT_GIVEN, call_of
from tests.fundamentals.samples.hopeless import plain

NAMES = {
    fire.MEMO_KEY: "sched",
    steps.HEADER: "sched",
    steps.UNDO_HEADER: "sched.undo",
    saga.UNDO_TYPE: "sched.undo@1",
    saga.LEFT_TO_UNDO: "sched.left_to_undo",
    saga.CHECK_RESET: "sched.check_reset",
    children.ENDED_CHILD: "sched.ended_child",
    children.OWN_CHILD: "sched.own_child",
    saga.COMMITTED: "sched.committed",
    saga.UNDO_CARRIED: "sched.undo.",
    signals.SIGNAL_CARRIED: "sched.signal.",
    context._CARRIES: "sched.carries",
    context.WAITS: "sched.waits",
}


def test_no_name_of_a_history_a_header_or_a_memo_changes():
    assert [name for name, known in NAMES.items() if name != known] == []
    assert fire.MEMO_VERSION == 1


def test_a_step_has_the_key_of_its_run_and_place_and_its_undo_one_that_follows_from_it():
    assert steps.step_key("run", "charge/2") == "run/charge/2"
    assert steps.undo_key("run/charge/2", "refund") == "run/charge/2/undo/refund"


def test_undo_instructions_keep_the_fields_that_clean_up_runs_read():
    undo = call_of(plain, NOT_GIVEN, {}, default=FOREVER)
    entry = undo.undoing("charge", "run/charge/1", PayloadConverter.default)
    assert {
        "step", "key", "takes_input", "takes_result", "timeout", "deadline", "idempotency_key",
        "queue", "task_queue", "priority", "retry", "rules",
    } <= saga.undo_note(entry).keys()  # fmt: skip


def test_rules_of_runs_that_workers_have_announced_can_be_read():
    rules = {"timeout": 60.0, "compensate_on_terminate": True, "of a later version": 1}
    assert RunOptions.from_json(rules).to_json() == {
        "timeout": 60.0, "compensate_on_terminate": True,
    }  # fmt: skip
