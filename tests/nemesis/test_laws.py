"""Each law finds what breaks it: an account in order is tampered with, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.nemesis.account import Account, Ending, Row, Verb
from tests.nemesis.laws import LAWS, judge
from tests.nemesis.synthetic import EVERY, after, an_account_in_order

Tampering = Callable[[Account], None]

_TAMPERINGS: list[tuple[str, Tampering]] = []


def breaks(law: str) -> Callable[[Tampering], Tampering]:
    def register(tampering: Tampering) -> Tampering:
        _TAMPERINGS.append((law, tampering))
        return tampering

    return register


def window(account: Account, key: str, second: float) -> Row:
    rows = account.rows_of[key]
    return next(row for row in rows if row.is_window and row.fire_time == after(second))


def moved(account: Account, row: Row, seconds: float) -> None:
    """Let the run of a row begin and end so much later."""
    chain = account.chain(row.workflow_id)
    assert chain
    for run in chain.runs:
        run.start += timedelta(seconds=seconds)
        run.close = run.close and run.close + timedelta(seconds=seconds)


def verb(account: Account, name: str, key: str, **given: object) -> Verb:
    return next(each for each in account.verbs if (each.verb, each.key) == (name, key)
                and given.items() <= each.given.items())  # fmt: skip


@breaks("each_window_has_one_row")
def a_row_is_gone(account: Account) -> None:
    account.rows.remove(window(account, "plain", 20))


@breaks("each_window_has_one_row")
def a_row_is_there_twice(account: Account) -> None:
    row = window(account, "plain", 20)
    account.rows.append(Row(**{**vars(row), "number": 999, "workflow_id": "sched:plain:other"}))


@breaks("each_window_has_one_row")
def a_range_is_shorter_than_its_windows(account: Account) -> None:
    row = window(account, "late", 0)
    row.windows, row.last_fire_time = 3, after(20)


@breaks("each_row_stands_for_windows")
def a_range_counts_one_more(account: Account) -> None:
    window(account, "late", 0).windows = 5


@breaks("each_row_stands_for_windows")
def a_row_is_of_no_window(account: Account) -> None:
    row = window(account, "plain", 20)
    row.fire_time = row.last_fire_time = after(21)


@breaks("each_row_stands_for_windows")
def a_row_has_the_number_of_another(account: Account) -> None:
    window(account, "plain", 20).bucket += 1


@breaks("what_is_owed_is_decided_in_time")
def a_key_stands_still(account: Account) -> None:
    assert account.calm
    next(each for each in account.calm.schedules if each.key == "plain").cursor = after(30)


@breaks("a_reason_is_true")
def a_window_is_excluded_on_a_working_day(account: Account) -> None:
    row = window(account, "held", 40)
    row.reason = "excluded: a stretch"


@breaks("a_reason_is_true")
def a_window_is_coalesced_into_nothing(account: Account) -> None:
    window(account, "late", 0).reason = "coalesced into 1"


@breaks("a_reason_is_true")
def a_window_is_paused_in_no_pause(account: Account) -> None:
    window(account, "off", 20).reason = "paused"


@breaks("a_caught_up_run_stands_for_what_was_missed")
def a_run_stands_for_more_than_was_missed(account: Account) -> None:
    window(account, "late", 40).reason = "caught up for 5 missed windows"


@breaks("no_excluded_window_starts")
def a_day_off_is_worked(account: Account) -> None:
    account.versions["off"][0].entry["exclude"] = [f"{after(5)}..{after(35)}"]


@breaks("each_run_has_its_row")
def a_window_runs_twice(account: Account) -> None:
    run = account.chains["sched:plain:" + str(window(account, "plain", 20).bucket)][0].runs[0]
    account.runs.append(type(run)(**{**vars(run), "run_id": "b", "first_run_id": "b"}))


@breaks("each_run_has_its_row")
def a_run_has_no_row(account: Account) -> None:
    run = account.runs[0]
    account.runs.append(type(run)(**{**vars(run), "workflow_id": "sched:plain:1"}))


@breaks("each_run_has_its_row")
def a_run_was_started_for_another_window(account: Account) -> None:
    run = account.runs[0]
    run.fire = {**(run.fire or {}), "bucket": 1}


@breaks("a_row_says_what_its_run_says")
def a_row_says_completed_of_a_run_that_failed(account: Account) -> None:
    account.runs[0].status = "failed"


@breaks("a_row_says_what_its_run_says")
def a_row_names_a_run_that_never_was(account: Account) -> None:
    account.runs.remove(account.runs[0])


@breaks("a_row_says_what_its_run_says")
def a_row_names_the_run_of_another(account: Account) -> None:
    window(account, "plain", 20).run_id = "run-0"


@breaks("a_row_says_what_its_run_says")
def a_row_closes_at_another_time(account: Account) -> None:
    window(account, "plain", 20).closed_at = after(40)


@breaks("nothing_starts_before_its_time")
def a_run_begins_before_its_fire_time(account: Account) -> None:
    moved(account, window(account, "plain", 20), -0.3)


@breaks("nothing_starts_in_a_pause")
def a_window_of_a_pause_runs(account: Account) -> None:
    verb(account, "pause", "held").sent = after(-3)
    verb(account, "pause", "held").answered = after(-2)


@breaks("nothing_starts_in_a_pause")
def a_run_is_sent_in_a_pause(account: Account) -> None:
    row = window(account, "held", 0)
    row.starting_at = after(8)
    moved(account, row, 8)


@breaks("nothing_starts_after_retirement")
def a_retired_key_fires(account: Account) -> None:
    verb(account, "prune", "gone").answered = after(5)


@breaks("what_was_skipped_by_hand_stays_skipped")
def a_skip_is_forgotten(account: Account) -> None:
    window(account, "held", 40).reason = "disabled"


@breaks("a_follower_starts_after_what_it_follows")
def a_child_begins_before_its_parent_ends(account: Account) -> None:
    moved(account, window(account, "child", 20), -1.5)


@breaks("a_follower_starts_after_what_it_follows")
def a_child_follows_a_failure(account: Account) -> None:
    account.versions["child"][0].entry["after"] = {"schedule": "plain", "when": "failure"}


@breaks("a_follower_starts_after_what_it_follows")
def a_child_follows_the_latest_too_soon(account: Account) -> None:
    moved(account, window(account, "either", 20), -1.5)


@breaks("a_dependency_was_what_a_skip_says")
def a_child_is_skipped_for_a_failure_that_never_was(account: Account) -> None:
    row = window(account, "plain", 30)
    account.chains[row.workflow_id][0].runs[0].status = "completed"


@breaks("a_dependency_was_what_a_skip_says")
def a_child_is_skipped_for_a_skip_that_never_was(account: Account) -> None:
    window(account, "child", 30).reason = "dependency: plain was skipped: paused"


@breaks("everything_comes_to_rest")
def a_claim_is_left(account: Account) -> None:
    window(account, "plain", 20).status = "starting"


@breaks("everything_comes_to_rest")
def a_key_cannot_be_planned(account: Account) -> None:
    account.schedules[0].error = "TimeoutError"


@breaks("dead_letters_are_complete")
def a_letter_is_missing(account: Account) -> None:
    account.letters.clear()


@breaks("dead_letters_are_complete")
def a_letter_speaks_of_what_completed(account: Account) -> None:
    account.letters.append(window(account, "plain", 20).workflow_id)


@breaks("dead_letters_are_complete")
def a_dropped_letter_is_there(account: Account) -> None:
    name = account.letters[0]
    drop = Verb(99, "drop", "plain", after(70), {"bucket": 0}, after(71), "done")
    drop.answer = {"answers": [{"workflow_id": name}]}
    account.verbs.append(drop)


@breaks("what_ended_badly_is_told_once")
def nobody_is_told(account: Account) -> None:
    account.runs = [run for run in account.runs if not run.workflow_id.endswith(":dead")]


@breaks("what_ended_badly_is_told_once")
def a_success_is_told(account: Account) -> None:
    row = next(row for row in account.rows if row.workflow_id.endswith(":dead"))
    run = next(run for run in account.runs if run.workflow_id == row.workflow_id)
    name = f"{window(account, 'plain', 20).workflow_id}:dead"
    account.runs.append(type(run)(**{**vars(run), "workflow_id": name}))


@breaks("never_more_at_once_than_places")
def a_run_begins_beside_another(account: Account) -> None:
    moved(account, window(account, "skips", 0), 10)


@breaks("never_more_at_once_than_places")
def a_third_run_begins_beside_two(account: Account) -> None:
    for second in (0, 10):
        moved(account, window(account, "two", second), 10)


@breaks("never_more_at_once_than_places")
def a_run_takes_the_place_of_one_that_goes_on(account: Account) -> None:
    moved(account, window(account, "newest", 20), -1)


@breaks("a_skip_names_what_was_open")
def a_skip_names_a_run_that_had_closed(account: Account) -> None:
    moved(account, window(account, "skips", 0), -6)


@breaks("a_skip_names_what_was_open")
def a_skip_names_a_run_of_another_key(account: Account) -> None:
    other = window(account, "plain", 0).workflow_id
    window(account, "skips", 10).reason = f"overlap: {other} comes first"


@breaks("a_skip_names_what_was_open")
def a_skip_names_a_run_that_began_later(account: Account) -> None:
    later = window(account, "skips", 30).workflow_id
    window(account, "skips", 10).reason = f"overlap: {later} is still running"


@breaks("a_skip_names_what_was_open")
def fewer_runs_were_open_than_a_skip_says(account: Account) -> None:
    moved(account, window(account, "two", 10), -8)


@breaks("a_request_gives_way_to_open_runs_only")
def a_request_gives_way_to_a_run_that_had_ended(account: Account) -> None:
    moved(account, window(account, "asked", 40), -4)


@breaks("a_place_is_taken_by_what_is_newer")
def a_place_is_taken_by_what_is_older(account: Account) -> None:
    older = window(account, "newest", 0).workflow_id
    window(account, "newest", 10).reason = f"overlap: {older} took its place"


@breaks("a_place_is_taken_by_what_is_newer")
def a_place_is_taken_where_nothing_is_stopped(account: Account) -> None:
    account.versions["newest"][0].entry["overlap"] = "queue"


@breaks("a_full_queue_is_full")
def nobody_waits_in_a_full_queue(account: Account) -> None:
    moved(account, window(account, "line", 10), -10)


@breaks("a_queue_is_first_come_first_started")
def a_queue_is_overtaken(account: Account) -> None:
    moved(account, window(account, "line", 30), 15)


@breaks("each_effect_has_one_key")
def two_calls_share_a_key(account: Account) -> None:
    account.notes[1].effect = account.notes[0].effect


@breaks("each_effect_has_one_key")
def an_attempt_has_a_key_of_its_own(account: Account) -> None:
    note = account.notes[0]
    account.notes.append(type(note)(**{**vars(note), "attempt": 2, "effect": "another"}))


@breaks("each_completed_step_had_its_effect")
def a_step_completed_without_effect(account: Account) -> None:
    account.notes.pop(0)


@breaks("a_queue_never_runs_more_than_its_limit")
def three_steps_of_a_queue_run_at_once(account: Account) -> None:
    account.stillnesses.clear()


@breaks("a_worker_ends_only_when_asked")
def a_worker_crashes(account: Account) -> None:
    account.endings.append(Ending("worker-1", 2, -11, asked=False))


@breaks("a_worker_ends_only_when_asked")
def a_worker_does_not_leave(account: Account) -> None:
    account.endings.append(Ending("worker-1", 2, None, asked=True))


@breaks("no_loop_of_a_worker_fails")
def a_poller_fails(account: Account) -> None:
    account.failures.append("worker-0: ERROR sched poller failed: RuntimeError")


@breaks("an_error_has_a_code")
def an_error_is_a_traceback(account: Account) -> None:
    verb(account, "pause", "held").outcome = "unknown"


@breaks("an_error_changes_nothing")
def a_refused_verb_did_something(account: Account) -> None:
    verb(account, "pause", "held").outcome = "refused"


@breaks("a_verb_takes_effect_once")
def a_verb_is_done_twice(account: Account) -> None:
    account.actions.append(account.actions[0])


@breaks("a_verb_takes_effect_once")
def a_verb_is_not_noted(account: Account) -> None:
    account.actions.pop(0)


@breaks("a_request_runs_once")
def a_request_is_forgotten(account: Account) -> None:
    account.rows.remove(account.row_of["sched:asked:manual:r1"])


@breaks("a_request_runs_once")
def a_request_never_runs(account: Account) -> None:
    account.runs.remove(account.chains["sched:asked:manual:r1"][0].runs[0])


@breaks("a_request_runs_once")
def a_run_was_never_asked_for(account: Account) -> None:
    account.verbs.remove(verb(account, "trigger", "asked", request_id="r1"))


@breaks("a_request_runs_once")
def a_rerun_was_never_asked_for(account: Account) -> None:
    account.actions = [each for each in account.actions if each.verb != "rerun"]


@breaks("a_request_runs_once")
def two_reruns_have_one_name(account: Account) -> None:
    account.verbs.append(verb(account, "rerun", "asked"))


@breaks("a_cancel_ends_what_it_names")
def a_cancelled_run_goes_on(account: Account) -> None:
    account.chains["sched:asked:manual:r3"][0].runs[0].close = None


@breaks("a_cancel_ends_what_it_names")
def what_was_given_up_runs(account: Account) -> None:
    run = account.runs[0]
    name = "sched:asked:manual:r4"
    account.runs.append(type(run)(**{**vars(run), "workflow_id": name, "first_run_id": "c"}))


@breaks("a_backfill_fills_its_range")
def a_backfilled_window_stays_skipped(account: Account) -> None:
    row = window(account, "filled", 10)
    account.runs.remove(account.chains[row.workflow_id][0].runs[0])
    row.status = "skipped"


@breaks("a_backfill_fills_its_range")
def a_backfilled_window_has_no_row(account: Account) -> None:
    account.rows.remove(window(account, "filled", 10))


@breaks("a_second_run_is_named_and_changes_nothing")
def a_second_run_is_named_nowhere(account: Account) -> None:
    window(account, "own", 61.5).second_runs = []


@breaks("a_second_run_is_named_and_changes_nothing")
def a_row_becomes_its_second_run(account: Account) -> None:
    window(account, "own", 61.5).run_id = "by-hand"


@breaks("a_worker_of_another_cluster_starts_nothing")
def a_run_is_on_another_cluster(account: Account) -> None:
    account.stray = 1


@breaks("a_worker_of_another_cluster_starts_nothing")
def a_worker_of_another_cluster_ends_otherwise(account: Account) -> None:
    account.strangers = [0]


@breaks("nothing_runs_again_in_a_restored_copy")
def a_run_of_before_runs_again(account: Account) -> None:
    account.ran_in_the_copy = [account.notes[0]]


@breaks("a_restored_copy_comes_to_rest")
def a_window_waits_in_the_copy(account: Account) -> None:
    account.restored = [*account.restored, replace(account.restored[0], status="claimed")]


@breaks("a_restored_copy_comes_to_rest")
def the_copy_knows_of_everything(account: Account) -> None:
    account.restored = [replace(account.restored[0], status="completed")]


@breaks("what_was_declared_is_in_force")
def an_edit_is_lost(account: Account) -> None:
    verb(account, "apply", "").given["whens"]["plain"] = 2 * EVERY


@breaks("what_was_declared_is_in_force")
def a_moment_is_another(account: Account) -> None:
    verb(account, "at", "own").given["at"] = after(99).isoformat()


@breaks("a_hold_lasts_until_it_is_lifted")
def a_pause_is_lifted_by_nobody(account: Account) -> None:
    assert account.calm
    next(each for each in account.calm.schedules if each.key == "stays").paused_at = None


@breaks("a_hold_lasts_until_it_is_lifted")
def a_resumed_key_is_paused(account: Account) -> None:
    assert account.calm
    next(each for each in account.calm.schedules if each.key == "held").paused_at = after(5)


@breaks("a_hold_lasts_until_it_is_lifted")
def a_key_is_retired_by_nobody(account: Account) -> None:
    assert account.calm
    next(each for each in account.calm.schedules if each.key == "plain").retired_at = after(50)


@pytest.mark.parametrize(
    ("law", "tampering"), [pytest.param(*each, id=each[1].__name__) for each in _TAMPERINGS]
)
def test_a_law_finds_what_breaks_it(law: str, tampering: Tampering) -> None:
    account = an_account_in_order()
    tampering(account)
    account.forget()
    assert [each for each in LAWS[law](account) if each.law == law]


def test_an_account_in_order_breaks_no_law() -> None:
    assert judge(an_account_in_order()) == []


def test_every_law_is_tampered_with() -> None:
    assert {law for law, _ in _TAMPERINGS} == set(LAWS)


def test_an_account_that_was_kept_is_judged_alike(tmp_path: Path) -> None:
    account = an_account_in_order()
    a_window_runs_twice(account)
    account.forget()
    account.save(tmp_path / "account.json")
    kept = Account.load(tmp_path / "account.json")
    assert kept == account
    assert judge(kept) == judge(account) != []
