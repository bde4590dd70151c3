"""Catalogue of mutants: a promise each, the change that breaks it, and the tests that notice.

Each row of the promises in docs/proofs.md has mutants here. A mutant that no test of ``make test``
kills shows that a test is missing. Old texts are short, so that a reformatted line keeps them.
"""

# ruff: noqa: E501 - the name of a test is a sentence, and its id is one text

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SQL: Final = "engine/ledger/postgres/queries"


@dataclass(frozen=True)
class Mutant:
    """One way to break the engine.

    Attributes:
        name: its name.
        ring: the row of docs/proofs.md, "Promises and where they are proved".
        promise: what no longer holds.
        file: the one file that changes, from the root.
        changes: new texts by old ones; each old text occurs once in the file.
        tests: node ids of tests that turn red, all in ``make test``.
    """

    name: str
    ring: str
    promise: str
    file: str
    changes: Mapping[str, str]
    tests: tuple[str, ...]

    def broken(self, text: str) -> str:
        """Return the text of the file with all changes.

        Raises:
            ValueError: an old text does not occur exactly once.
        """
        for old, new in self.changes.items():
            if (found := text.count(old)) != 1:
                raise ValueError(f"{self.name}: {found} times in {self.file}: {old!r}")
            text = text.replace(old, new)
        return text


_CLAIMS: Final = "tests/conformance/test_claims.py"
_STARTER: Final = "tests/unit/test_starter.py"
_MOVES: Final = "tests/conformance/test_bindings.py"
_FOREIGN: Final = (
    "tests/integration/test_replica.py::test_a_foreign_run_under_a_windows_id_is_rejected_and_told"
)
_SAGAS: Final = "tests/fundamentals/test_sagas.py"

# --- claims and sends ---

_OF_MOVES: Final = (
    Mutant(
        "swept-elsewhere",
        "moves",
        "A fire that may have been sent is swept by workers of the Temporal that it was sent to.",
        f"{SQL}/take_over.sql",
        {"ELSE f.binding = $7 END": "ELSE true END"},
        (
            f"{_MOVES}::test_a_fire_that_was_being_sent_at_the_move_is_swept_where_it_was_sent_alone",
        ),
    ),
    Mutant(
        "claimed-at-both",
        "moves",
        "After a move only the workers of the new Temporal claim windows.",
        f"{SQL}/lock_due.sql",
        {"b.current AND b.number <> $10": "false"},
        (f"{_MOVES}::test_after_a_move_only_the_workers_of_the_new_namespace_find_something_due",),
    ),
    Mutant(
        "lost-elsewhere",
        "moves",
        "A run is lost only if its own Temporal does not know it.",
        f"{SQL}/lose.sql",
        {"      AND binding = $4\n": ""},
        (f"{_MOVES}::test_only_its_own_namespace_is_asked_about_a_run_and_can_lose_it",),
    ),
    Mutant(
        "sent-without-comparison",
        "moves",
        "After a call without an answer the namespace is compared before the next send.",
        "engine/runtime/dispatch/starter.py",
        {"if (doubts := self._doubts) != self._cleared:": "if False:"},
        (f"{_STARTER}::test_after_a_call_without_an_answer_nothing_is_sent_to_another_temporal",),
    ),
)

_OF_CLAIMS: Final = (
    Mutant(
        "no-lock-of-due-schedules",
        "faults",
        "One replica at a time plans a schedule.",
        f"{SQL}/lock_due.sql",
        {"    FOR UPDATE OF s, p SKIP LOCKED) AS due": ") AS due"},
        (f"{_CLAIMS}::test_a_schedule_that_one_replica_plans_is_left_alone_by_the_others",),
    ),
    Mutant(
        "no-skip-locked",
        "faults",
        "A replica does not wait for a schedule that another one plans.",
        f"{SQL}/lock_due.sql",
        {"SKIP LOCKED) AS due": ") AS due"},
        (f"{_CLAIMS}::test_a_schedule_that_one_replica_plans_is_left_alone_by_the_others",),
    ),
    Mutant(
        "cursor-without-claims",
        "faults",
        "The cursor moves with the claims, or not at all.",
        "engine/ledger/postgres/schedule_statements.py",
        {
            'rows = await self._write_fires("insert_fires", fires, owner, lease)': "rows = []\n"
            "        try:\n"
            "            async with self.connection.transaction():\n"
            '                rows = await self._write_fires("insert_fires", fires, owner, lease)\n'
            "        except asyncpg.PostgresError:\n"
            "            rows = []"
        },
        (f"{_CLAIMS}::test_a_claim_that_cannot_be_written_leaves_its_window_and_costs_no_other",),
    ),
    Mutant(
        "cursor-in-its-own-transaction",
        "faults",
        "Cursor and claims are one transaction: without the claims the cursor has not moved.",
        "engine/runtime/tick/poller.py",
        {
            "alerts += await turned_full(transaction, plans)\n": "await transaction.record([replace(each, decisions=()) for each in plans])\n"
            "                    await transaction.connection.execute('COMMIT')\n"
            "                    await transaction.connection.execute('BEGIN')\n"
        },
        (
            "tests/integration/test_lost_commits.py::test_a_claim_whose_commit_did_not_arrive_is_decided_again",
        ),
    ),
    Mutant(
        "failed-tick-is-committed",
        "faults",
        "A tick that fails leaves nothing behind.",
        "engine/ledger/postgres/connections.py",
        {"await transaction.rollback()": "await transaction.commit()"},
        (f"{_CLAIMS}::test_a_failing_transaction_leaves_nothing_behind",),
    ),
    Mutant(
        "no-on-conflict",
        "ledger",
        "A window that has a row already does not roll back the tick.",
        f"{SQL}/insert_fires.sql",
        {"ON CONFLICT DO NOTHING\n": ""},
        (
            f"{_CLAIMS}::test_a_window_that_has_a_row_already_is_not_claimed_again_and_costs_no_other",
        ),
    ),
    Mutant(
        "settle-without-token",
        "ledger",
        "Only the owner of a claim settles it.",
        f"{SQL}/settle.sql",
        {"AND o.token = f.token\n": "\n", "AND f.token = o.token AND": "AND"},
        (f"{_CLAIMS}::test_an_outcome_needs_the_token_of_the_claim",),
    ),
    Mutant(
        "sweep-of-unexpired-leases",
        "ledger",
        "A lease that has not ended is not taken over.",
        f"{SQL}/take_over.sql",
        {"AND f.lease_until <= (SELECT clock_timestamp())": ""},
        (f"{_CLAIMS}::test_a_lease_that_has_not_ended_is_not_taken_over",),
    ),
    Mutant(
        "taken-over-means-fresh",
        "faults",
        "A claim that was taken over may have been sent.",
        f"{SQL}/take_over.sql",
        {"stale.was = 'claimed' AND stale.sent_at IS NULL AS fresh": "true AS fresh"},
        (f"{_CLAIMS}::test_a_taken_over_claim_says_that_it_may_have_been_sent",),
    ),
    Mutant(
        "what-waited-runs-again",
        "faults",
        "What waited before a silence longer than Temporal keeps runs may have been sent.",
        f"{SQL}/take_over.sql",
        {"r.unseen_from >= waits.since": "r.unseen_from < '-infinity'"},
        (
            "tests/unit/test_forgotten.py::test_what_waited_to_be_sent_is_looked_up_and_what_was_asked_for_since_is_not",
        ),
    ),
    Mutant(
        "sent-again-without-a-look",
        "faults",
        "A claim that may have been sent is looked up before it is sent again.",
        "engine/runtime/dispatch/starter.py",
        {"if not claim.fresh:": "if claim.attempts < 0:"},
        (f"{_STARTER}::test_a_claim_that_was_taken_over_is_looked_up_before_it_is_sent_again",),
    ),
    Mutant(
        "evidence-ignored",
        "account",
        "A run that was seen overrides what the ledger decided without it.",
        f"{SQL}/record_evidence.sql",
        {"AND (f.run_id IS NULL\n": "AND (f.run_id IS NULL AND f.status <> 'unvouched'\n"},
        (f"{_CLAIMS}::test_evidence_wins_over_a_class_that_said_no_run",),
    ),
    Mutant(
        "older-evidence-wins",
        "account",
        "An older run of an id never replaces a newer one.",
        f"{SQL}/record_evidence.sql",
        {
            "AND e.started_at >= f.started_at - CASE": "AND e.started_at >= timestamptz '-infinity' - CASE"
        },
        (f"{_CLAIMS}::test_an_older_run_never_replaces_a_newer_one",),
    ),
    Mutant(
        "lost-commit-forgotten",
        "faults",
        "A claim whose commit was not confirmed is sent if it happened.",
        "engine/runtime/tick/poller.py",
        {
            "            if claims:\n                self._unconfirmed.append((claims, lease_ends))\n": ""
        },
        (
            "tests/integration/test_lost_commits.py::test_a_claim_whose_commit_arrived_is_sent_by_its_owner",
        ),
    ),
    Mutant(
        "lease-unchecked-before-the-send",
        "faults",
        "Nothing is sent after the lease of its claim has ended.",
        "engine/runtime/dispatch/starter.py",
        {"if boottime() >= lease_ends:\n            return None\n        if (doubts": "if (doubts"},
        (f"{_STARTER}::test_nothing_is_sent_once_the_lease_of_its_claim_has_ended",),
    ),
    Mutant(
        "allow-duplicate",
        "faults",
        "An id starts one run, also after that has closed.",
        "engine/runtime/dispatch/starter.py",
        {"WorkflowIDReusePolicy.REJECT_DUPLICATE": "WorkflowIDReusePolicy.ALLOW_DUPLICATE"},
        (f"{_FOREIGN}[has closed]",),
    ),
    Mutant(
        "use-existing-run",
        "faults",
        "An open run under a window's id is found, and not taken for the start.",
        "engine/runtime/dispatch/starter.py",
        {"WorkflowIDConflictPolicy.FAIL": "WorkflowIDConflictPolicy.USE_EXISTING"},
        (f"{_FOREIGN}[is open]",),
    ),
    Mutant(
        "foreign-memo-accepted",
        "faults",
        "A run that another ledger, or another window, started is not the window's own.",
        "engine/runtime/dispatch/starter.py",
        {"if info is None or not self._is_of(claim, info):": "if info is None:"},
        (f"{_FOREIGN}[is another ledger's]",),
    ),
    Mutant(
        "retention-forgotten",
        "faults",
        "No start is repeated that Temporal may have forgotten.",
        "engine/runtime/dispatch/starter.py",
        {"if age <= safe_for:": "if safe_for:"},
        (f"{_STARTER}::test_a_start_that_temporal_may_have_forgotten_is_not_repeated",),
    ),
    Mutant(
        "short-retention-accepted",
        "faults",
        "A namespace that forgets runs within four leases is refused.",
        "engine/runtime/presence.py",
        {"if found.retention < self._settings.lease * _LEASES:": "if found is None:"},
        (
            "tests/integration/test_replica.py::test_a_namespace_that_forgets_too_fast_is_refused_at_start",
        ),
    ),
    Mutant(
        "start-id-twice",
        "starts",
        "An id of an application starts a workflow once.",
        "engine/ledger/postgres/fire_statements.py",
        {
            "            if not await self.run(name, *arguments):\n                return False\n": "            await self.run(name, *arguments)\n"
        },
        ("tests/conformance/test_starts.py::test_of_many_that_start_one_id_at_once_one_starts_it",),
    ),
)

# --- time ---

_OF_TIME: Final = (
    Mutant(
        "fold-fires-twice",
        "time",
        "A local time that the clock shows twice fires once.",
        "engine/schedules/timing/spec.py",
        {'fold: Fold = "first"\n': 'fold: Fold = "both"\n'},
        (
            "tests/unit/test_cron.py::test_a_fixed_time_in_a_fold_fires_once_at_the_first_of_the_two",
        ),
    ),
    Mutant(
        "gap-is-skipped",
        "time",
        "A local time that the clock skips fires at the first instant after the gap.",
        "engine/schedules/timing/spec.py",
        {'gap: Gap = "shift"\n': 'gap: Gap = "skip"\n'},
        (
            "tests/unit/test_cron.py::test_a_fixed_time_in_a_gap_fires_once_at_the_first_instant_after_it",
        ),
    ),
    Mutant(
        "clock-always-trusted",
        "faults",
        "Nothing starts while the ledger's clock deviates from elapsed time.",
        "engine/runtime/clock.py",
        {"if abs(step) > self._most:": "if abs(step) > float('inf'):"},
        (
            "tests/unit/test_clock_watch.py::test_a_clock_that_was_set_holds_until_it_has_agreed_for_a_minute",
        ),
    ),
    Mutant(
        "cursor-goes-back",
        "faults",
        "A cursor never goes back, so that no window is decided twice.",
        f"{SQL}/move_cursors.sql",
        {"ELSE refuse_position(g.key, g.stood_at, g.cursor) END": "ELSE g.cursor END"},
        (f"{_CLAIMS}::test_a_plan_that_would_move_the_cursor_back_is_refused",),
    ),
    Mutant(
        "newer-rules-ignored",
        "upgrades",
        "A replica with older zone rules leaves alone what newer ones computed.",
        f"{SQL}/lock_due.sql",
        {"AND p.rules <= $5": "AND p.rules <> $5 || '~'"},
        (
            "tests/integration/test_time_rules.py::test_what_newer_rules_computed_is_left_to_those_who_have_them",
        ),
    ),
)

# --- decisions ---

_OF_DECISIONS: Final = (
    Mutant(
        "catch-up-window-ignored",
        "decisions",
        "Windows older than the catch-up window expire.",
        "engine/schedules/planner/planner.py",
        {"edge = _edge(due, after, until, max(policy.window, due.schedule.grace))": "edge = after"},
        ("tests/unit/test_planner.py::test_windows_older_than_the_catch_up_window_expire",),
    ),
    Mutant(
        "expired-without-a-row",
        "decisions",
        "Every due window is decided: what is too old has a row that says so.",
        "engine/schedules/planner/planner.py",
        {"    yield from due.decide(after, edge, verdict, skipped or _TOO_OLD)\n": ""},
        (
            "tests/unit/test_planner.py::test_every_window_up_to_now_is_decided_exactly_once_under_every_policy",
        ),
    ),
    Mutant(
        "no-lookup-after-a-doubt",
        "account",
        "After signs of lost commits, runs are looked up before a missed window starts.",
        "engine/schedules/planner/planner.py",
        {"oldest <= self.suspect_until and not self.audited": "oldest < self.state.effective_from"},
        ("tests/unit/test_planner.py::test_a_young_window_of_before_a_doubt_is_looked_up_first",),
    ),
    Mutant(
        "decided-again",
        "account",
        "A window that has a row, as one that was skipped ahead, is not decided again.",
        "engine/schedules/planner/planner.py",
        {"for at in sorted(self.known):": "for at in sorted(self.known)[:0]:"},
        ("tests/unit/test_catch_up.py::test_windows_that_have_a_row_already_are_passed_over",),
    ),
    Mutant(
        "days-off-ignored",
        "decisions",
        "A window on a day off does not start.",
        "engine/schedules/planner/planner.py",
        {'f"excluded: {reason}") if reason else None': 'f"excluded: {reason}") if False else None'},
        (
            "tests/unit/test_planner.py::test_an_excluded_window_is_skipped_with_its_reason_and_the_others_start",
        ),
    ),
    Mutant(
        "effective-from-ignored",
        "account",
        "An edit fires no past window of the new definition.",
        "engine/runtime/apply/definitions.py",
        {
            "effective_from = cursor = max(now, before.effective_from, ahead)": "effective_from = cursor = before.effective_from"
        },
        ("tests/conformance/test_apply.py::test_an_edit_of_the_times_owes_no_window_of_the_past",),
    ),
    Mutant(
        "a-rename-forgets-what-is-owed",
        "account",
        "A renamed schedule loses no window that is due.",
        "engine/runtime/apply/definitions.py",
        {"cursor = current_cursor(state)": "cursor = now"},
        (
            "tests/conformance/test_renames.py::test_a_window_that_was_due_at_the_rename_is_decided_once_under_the_new_key",
        ),
    ),
    Mutant(
        "retired-keys-fire",
        "account",
        "What nobody has begun to send does not start once its schedule is retired.",
        f"{SQL}/revoke.sql",
        {"CASE WHEN $4 THEN kind <> 'handler'": "CASE WHEN $4 THEN kind = 'handler'"},
        ("tests/conformance/test_apply.py::test_retirement_revokes_what_was_only_claimed",),
    ),
    Mutant(
        "held-claims-are-sent",
        "account",
        "No sweeper sends what is only claimed of a schedule that was retired meanwhile.",
        f"{SQL}/take_over.sql",
        {"stale.retired_at IS NOT NULL\n": "false\n"},
        (
            "tests/conformance/test_stopping.py::test_a_sweeper_sends_nothing_of_a_schedule_that_was_held_meanwhile",
        ),
    ),
    Mutant(
        "pause-leaves-claims",
        "account",
        "A pause revokes what nobody has begun to send.",
        f"{SQL}/revoke.sql",
        {"status IN ('claimed', 'queued')": "status IN ('queued')"},
        (
            "tests/conformance/test_pausing.py::test_a_pause_revokes_what_nobody_has_begun_to_send_and_no_manual_run",
        ),
    ),
    Mutant(
        "overlap-counts-started-runs-only",
        "decisions",
        "A run that is claimed or being sent takes a place like one that has started.",
        "engine/schedules/planner/overlap.py",
        {
            '            if fire.status != "queued":\n': '            if fire.status in {"claimed", "starting"}:\n                continue\n            if fire.status != "queued":\n'
        },
        ("tests/unit/test_overlap.py::test_what_is_in_the_way_decides_as_the_table_says",),
    ),
    Mutant(
        "overlap-by-an-old-proof",
        "decisions",
        "Only a run that was proven open since a window opened may cost that its start.",
        "engine/schedules/planner/overlap.py",
        {
            "doubtful = [each for each in self.running if not is_confirmed_open(each, at)]": "doubtful: list[OpenFire] = []"
        },
        ("tests/unit/test_overlap.py::test_what_is_in_the_way_decides_as_the_table_says",),
    ),
    Mutant(
        "nothing-wakes-a-line",
        "account",
        "A run that ends lets go what waits in the line of its key.",
        f"{SQL}/wake.sql",
        {"WHERE long.waiting > 0\n": "WHERE long.waiting < 0\n"},
        (
            "tests/conformance/test_concurrent_runs.py::test_a_key_is_woken_as_soon_as_fewer_runs_are_open_than_may_be",
        ),
    ),
    Mutant(
        "parents-count-for-nothing",
        "decisions",
        "A child starts only after its parents ended as it asks.",
        "engine/schedules/planner/decisions.py",
        {'if self.became == "pending" or self.is_met:': 'if self.became != "nothing":'},
        (
            "tests/conformance/test_chains.py::test_what_a_parents_run_comes_to_decides_which_children_start",
        ),
    ),
    Mutant(
        "backfill-of-what-has-run",
        "account",
        "A backfill starts no window that had a run.",
        "engine/runtime/past_windows.py",
        {"surely = cause is not None": 'why, surely = cause or "expired", True'},
        (
            "tests/conformance/test_backfilling.py::test_what_was_started_or_may_have_been_is_left_alone_and_counted",
        ),
    ),
    Mutant(
        "sentences-decide",
        "reasons",
        "No decision depends on a sentence.",
        "engine/schedules/planner/decisions.py",
        {'code_of(self.reason) == "queue_full"': '"queue is full" in (self.reason or "")'},
        (
            "tests/conformance/test_scrambled_reasons.py::test_what_becomes_of_windows_does_not_depend_on_what_is_said_of_them",
        ),
    ),
)

# --- runs ---

_OF_RUNS: Final = (
    Mutant(
        "undo-in-order",
        "programs",
        "A bad end undoes the newest step first.",
        "engine/flow/step_calls.py",
        {"self._entries[::-1], []": "self._entries[:], []"},
        (f"{_SAGAS}::test_a_failure_undoes_what_was_begun_in_reverse_and_stays_the_runs_error",),
    ),
    Mutant(
        "undo-noted-after-the-step",
        "programs",
        "A step whose result is lost is undone too.",
        "engine/flow/saga.py",
        {
            "            scope.add(entry)\n        self._under_way[handle] = scope": "            pass\n        self._under_way[handle] = scope",
            "return await result_of(handle, repr(call.name), _keeper(entry))": "found = await result_of(handle, repr(call.name), _keeper(entry))\n"
            "            if entry:\n"
            "                scope.add(entry)\n"
            "            return found",
        },
        (f"{_SAGAS}::test_a_failure_undoes_what_was_begun_in_reverse_and_stays_the_runs_error",),
    ),
    Mutant(
        "commit-keeps-nothing",
        "programs",
        "What a run has committed is not undone.",
        "engine/flow/saga.py",
        {"        self.scope.clear()\n": ""},
        (
            "tests/fundamentals/test_handlers.py::test_a_commit_is_a_pivot_and_undo_steps_may_stand_alone",
        ),
    ),
    Mutant(
        "reset-calls-again",
        "resets",
        "A step that had its effect before a reset keeps its key.",
        "engine/runtime/runs/reset_keys.py",
        {
            "self._enter(line, run, call, equal.key)": "self._enter(line, run, call, step_key(run.run_id, call.place))"
        },
        (
            "tests/fundamentals/test_resets.py::test_each_customer_pays_once_wherever_a_run_is_reset",
        ),
    ),
    Mutant(
        "reset-takes-the-key-of-another-call",
        "resets",
        "After a reset no call takes the key of a call with another input.",
        "engine/runtime/runs/reset_keys.py",
        {
            "equals = [e for e in self._others(line, call) if e.call.given == call.given]": "equals = self._others(line, call)"
        },
        (
            "tests/fundamentals/test_resets.py::test_mended_code_does_not_take_the_keys_of_other_calls",
        ),
    ),
    Mutant(
        "signals-are-lost",
        "handlers",
        "No signal is lost between the runs of a chain.",
        "engine/flow/signals.py",
        {
            "given = [(name, each) for name, line in self._waiting.items() for each in line]": "given: list[tuple[str, RawValue | None]] = []"
        },
        (
            "tests/fundamentals/test_handlers.py::test_signals_that_nobody_asked_for_reach_the_next_run",
        ),
    ),
    Mutant(
        "handlers-fail-alone",
        "handlers",
        "What leaves a handler ends the run and undoes it.",
        "engine/flow/signals.py",
        {"            self.error = error\n": "            self.error = None\n"},
        (
            "tests/fundamentals/test_handlers.py::test_what_leaves_a_signal_handler_fails_the_run_and_undoes_it",
        ),
    ),
    Mutant(
        "recorded-name-changed",
        "histories",
        "Runs of earlier versions continue with the present code.",
        "engine/flow/saga.py",
        {'"sched.left_to_undo"': '"sched.to_undo"'},
        (
            "tests/unit/test_recorded_names.py::test_no_name_of_a_history_a_header_or_a_memo_changes",
        ),
    ),
    Mutant(
        "sealed-input-in-plain",
        "sealed inputs",
        "With a codec no input is in the ledger in plain text.",
        "engine/runtime/sealing.py",
        {
            "if key is None or self._converter is None:\n            return list(values)": "if values:\n            return list(values)"
        },
        (
            "tests/conformance/test_sealed_inputs.py::test_no_input_is_in_the_ledger_in_plain_text_whichever_way_it_came",
        ),
    ),
    Mutant(
        "one-key-takes-all",
        "programs",
        "A schedule that fills a queue of steps does not hold up another.",
        "engine/flow/step_calls.py",
        {"turn = turn or turn_key()": "turn = turn or None"},
        (
            "tests/fundamentals/test_queues.py::test_one_who_fills_the_queue_does_not_hold_up_another",
        ),
    ),
    Mutant(
        "queue-without-a-limit",
        "programs",
        "No more steps run at once than their queue allows, all replicas together.",
        f"{SQL}/hold_slots.sql",
        {"WHERE f.place <= f.most\n": ""},
        ("tests/conformance/test_queues.py::test_no_more_slots_are_held_than_the_queue_has",),
    ),
    Mutant(
        "breaker-never-opens",
        "faults",
        "Nothing is claimed while Temporal is away.",
        "engine/runtime/dispatch/backpressure.py",
        {"self._unanswered >= _SUSPICIOUS": "self._unanswered < 0"},
        (
            "tests/unit/test_breaker.py::test_nothing_is_claimed_while_the_server_is_away_and_it_is_said_once",
        ),
    ),
)

# --- the account, and those who read it ---

_OF_THE_ACCOUNT: Final = (
    Mutant(
        "audit-misses-a-dropped-window",
        "audit",
        "The audit finds a window that no row accounts for.",
        "engine/audit/judge.py",
        {'self._fault("missing", at, text)\n': "del text\n"},
        ("tests/unit/test_audit_judge.py::test_adjacent_windows_without_a_row_are_one_fault",),
    ),
    Mutant(
        "audit-misses-a-double",
        "audit",
        "The audit finds two rows that ran for one window.",
        "engine/audit/judge.py",
        {'self._fault("doubled", at, _both(row, beside), row.workflow_id)': "pass"},
        ("tests/unit/test_audit_judge.py::test_the_worst_fault_is_the_verdict",),
    ),
    Mutant(
        "removed-before-the-archive",
        "account",
        "Nothing leaves the ledger before it is in the archive.",
        "engine/runtime/retention/compaction.py",
        {
            "            if await asyncio.to_thread(partial(self._archive.write, lines, self._now)):\n                self.tally.files += 1": "            writing = asyncio.to_thread(partial(self._archive.write, lines, self._now))\n            await asyncio.gather(writing, return_exceptions=True)"
        },
        (
            "tests/integration/test_janitor.py::test_without_a_sound_archive_nothing_is_deleted_and_somebody_is_told",
        ),
    ),
    Mutant(
        "function-for-everybody",
        "rights",
        "No function of the schema is executable by PUBLIC.",
        "engine/ledger/postgres/schema.py",
        {
            'await connection.execute(f"REVOKE ALL ON ROUTINE {function} FROM {role}")': "del function, role"
        },
        (
            "tests/integration/test_ledger_roles.py::test_no_function_runs_as_its_owner_or_is_open_to_everybody",
        ),
    ),
    Mutant(
        "function-of-the-owner",
        "rights",
        "No function of the schema runs with the rights of its owner.",
        "engine/ledger/postgres/migrations/0001_ledger.sql",
        {
            "FUNCTION keep_line() RETURNS trigger": "FUNCTION keep_line() RETURNS trigger SECURITY DEFINER"
        },
        (
            "tests/integration/test_ledger_roles.py::test_no_function_runs_as_its_owner_or_is_open_to_everybody",
        ),
    ),
    Mutant(
        "unordered-locks",
        "faults",
        "Outcomes that two replicas write never wait for each other in a circle.",
        f"{SQL}/record_evidence.sql",
        {"    ORDER BY id FOR UPDATE\n": ""},
        (
            "tests/integration/test_lock_order.py::test_closes_that_are_written_hold_no_later_fire_while_they_wait",
        ),
    ),
    Mutant(
        "index-missing",
        "statements",
        "A tick uses an index, however many schedules there are.",
        "engine/ledger/postgres/migrations/0001_ledger.sql",
        {
            "CREATE INDEX positions_due ON positions (namespace, project, lane, due_at) WHERE due_at IS NOT NULL;": ""
        },
        (
            "tests/integration/test_idle.py::test_what_a_tick_asks_uses_the_index_however_many_schedules_there_are",
        ),
    ),
    Mutant(
        "wheel-without-pages",
        "packaging",
        "The wheel alone has everything.",
        "pyproject.toml",
        {'only-include = ["engine", "docs"]': 'only-include = ["engine"]'},
        (
            "tests/integration/test_wheel.py::test_the_wheel_holds_the_engine_with_its_queries_and_nothing_else",
        ),
    ),
    Mutant(
        "duplicate-names-accepted",
        "files",
        "A name that a file gives twice is refused.",
        "engine/schedules/loader/nodes.py",
        {
            "        if first is None:\n            parent.entries": "        if True:\n            parent.entries"
        },
        ("tests/unit/test_yaml_text.py::test_a_duplicate_name_is_refused_and_the_first_is_named",),
    ),
    Mutant(
        "endless-nesting",
        "files",
        "No text breaks the loader.",
        "engine/schedules/loader/nodes.py",
        {"if len(self._open) >= MAX_DEPTH:": "if len(self._open) >= 10**9:"},
        ("tests/unit/test_yaml_text.py::test_a_hundred_thousand_levels_stop_at_the_twenty_first",),
    ),
)

# --- doors ---

_OF_DOORS: Final = (
    Mutant(
        "dropped-fields",
        "commands",
        "A field of an entry that an import does not read is named.",
        "engine/imports/entries.py",
        {'draft.lacks("action", f"{left} is not imported")': "pass"},
        (
            "tests/unit/test_imports.py::test_what_kubernetes_has_and_a_schedule_has_not_is_missing_and_not_dropped",
        ),
    ),
    Mutant(
        "one-fault-ends-an-import",
        "commands",
        "An entry of an import that cannot be read keeps no other from being imported.",
        "engine/imports/entries.py",
        {"except Exception as error:  # noqa: BLE001": "except RecursionError as error:  # noqa"},
        (
            "tests/unit/test_imports.py::test_a_task_that_cannot_be_read_keeps_no_other_from_being_imported",
        ),
    ),
    Mutant(
        "application-not-finalized",
        "commands",
        "Tasks that an application of Celery adds when it is finalized are imported.",
        "engine/imports/celery_beat.py",
        {"given.finalize()": "pass"},
        (
            "tests/unit/test_imports.py::test_tasks_that_an_application_adds_late_are_those_that_beat_reads",
        ),
    ),
    Mutant(
        "shadow-needs-a-workflow",
        "commands",
        "Shadow mode without an end asks for no workflow.",
        "engine/schedules/model.py",
        {"self.external or self.starts_nothing": "self.external"},
        (
            "tests/conformance/test_shadow.py::test_shadow_mode_needs_no_workflow_and_no_worker_of_its_task_queue",
        ),
    ),
    Mutant(
        "scope-not-asked",
        "API",
        "A token does what its scope allows, and no more.",
        "engine/api/access.py",
        {"if SCOPES.index(self.scope) < SCOPES.index(rule.scope):": "if self.scope not in SCOPES:"},
        (
            "tests/integration/test_api_access.py::test_every_route_refuses_who_has_no_token_or_the_wrong_one",
        ),
    ),
    Mutant(
        "keys-not-asked",
        "API",
        "A token for some schedules sees no other.",
        "engine/api/access.py",
        {"return self.has_every_key or keys_match(self.keys, key)": "return True"},
        (
            "tests/integration/test_api_access.py::test_a_token_of_some_keys_sees_and_makes_only_those",
        ),
    ),
    Mutant(
        "open-door-stays-open",
        "API",
        "No route is open once the ledger has a token.",
        "engine/api/access.py",
        {"            self.open_door = False\n        if not": "            pass\n        if not"},
        (
            "tests/integration/test_api_access.py::test_the_open_door_of_loopback_shuts_with_the_first_token_and_stays_shut",
        ),
    ),
    Mutant(
        "pages-of-others-welcome",
        "API",
        "A page of another site cannot use the API through a browser.",
        "engine/api/access.py",
        {
            'if not own or headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:': "if not host:"
        },
        (
            "tests/integration/test_api_access.py::test_a_page_of_another_site_cannot_use_the_open_door",
        ),
    ),
    Mutant(
        "half-requests-stay",
        "API",
        "The head of a request has ten seconds.",
        "engine/api/connections.py",
        {"call_later(HEAD_WITHIN,": "call_later(3600.0,"},
        (
            "tests/integration/test_api_connections.py::test_a_request_whose_head_does_not_arrive_in_time_ends",
        ),
    ),
    Mutant(
        "half-requests-keep-others-out",
        "API",
        "A connection that waits for a request gives way to a newer one.",
        "engine/api/connections.py",
        {"if each.is_waiting and each is not self]": "if each is self]"},
        ("tests/integration/test_api_connections.py::test_half_requests_give_way_to_whole_ones",),
    ),
    Mutant(
        "a-token-takes-all-streams",
        "API",
        "One token has a quarter of the streams.",
        "engine/api/requests.py",
        {">= _STREAMS_OF_ONE:": ">= _STREAMS:"},
        (
            "tests/integration/test_api_connections.py::test_one_token_does_not_take_the_streams_of_others",
        ),
    ),
    Mutant(
        "streams-outlive-their-token",
        "API",
        "A stream ends within a second after its token.",
        "engine/api/requests.py",
        {"            await self.again()\n": ""},
        (
            "tests/integration/test_api_connections.py::test_a_stream_ends_with_its_token_or_its_session",
        ),
    ),
    Mutant(
        "a-sign-out-ends-the-cookie-alone",
        "API",
        "A sign-out ends the session on the server.",
        "engine/api/access.py",
        {"        await self.service.end_session(session)\n": ""},
        (
            "tests/integration/test_page.py::test_a_sign_out_ends_the_session_for_every_copy_of_its_cookie_and_no_other_one",
        ),
    ),
    Mutant(
        "repeated-request-acts-twice",
        "API",
        "A request with an Idempotency-Key has one effect.",
        "engine/api/requests.py",
        {'key = request.headers.get("idempotency-key")': "key: str | None = None"},
        (
            "tests/integration/test_api.py::test_a_repeated_trigger_starts_one_run_and_a_repeated_backfill_is_one",
        ),
    ),
    Mutant(
        "last-editor-wins",
        "API",
        "Of two editors one wins, and the other reads again.",
        "engine/service/base.py",
        {"if version is not None and version != now:": "if version is not None and version > now:"},
        ("tests/integration/test_api.py::test_of_two_editors_one_wins_and_the_other_reads_again",),
    ),
    Mutant(
        "hooks-reach-private-addresses",
        "events",
        "A webhook reaches no address that is not public.",
        "engine/events/addresses.py",
        {"        if refused:\n": "        if not found:\n"},
        ("tests/unit/test_webhooks.py::test_a_name_of_an_address_that_is_not_public_is_refused",),
    ),
    Mutant(
        "hooks-follow-redirects",
        "events",
        "A webhook goes where its address says, and nowhere else.",
        "engine/events/webhooks.py",
        {"follow_redirects=False": "follow_redirects=True"},
        ("tests/unit/test_webhooks.py::test_a_redirect_is_an_answer_like_another",),
    ),
    Mutant(
        "hooks-out-of-order",
        "events",
        "An event waits for the first retry of an earlier one of its schedule.",
        "engine/events/delivery.py",
        {"        return attempts > 1\n": "        return True\n"},
        (
            "tests/unit/test_event_delivery.py::test_a_failing_event_lets_later_ones_pass_after_its_first_retry",
        ),
    ),
    Mutant(
        "a-hang-holds-up-its-hook",
        "events",
        "An event that hangs delays no other schedule of its hook.",
        "engine/events/delivery.py",
        {"_SETTLED_WITHIN: Final = 0.25": "_SETTLED_WITHIN: Final = 25.0"},
        (
            "tests/unit/test_event_delivery.py::test_an_event_that_hangs_delays_no_other_schedule_of_its_hook",
        ),
    ),
    Mutant(
        "ids-of-spans-by-chance",
        "traces",
        "A window is one trace, whichever process adds to it.",
        "engine/telemetry/traces.py",
        {'f"{scope}\\0{workflow_id}".encode()': 'f"{scope}\\0{workflow_id}{id(scope)}".encode()'},
        ("tests/unit/test_traces.py::test_replicas_of_all_versions_derive_the_same_ids",),
    ),
    Mutant(
        "unbounded-labels",
        "metrics",
        "Ten thousand schedules make no more series than the bounds allow.",
        "engine/telemetry/instruments.py",
        {"MOST_VALUES: Final = 100": "MOST_VALUES: Final = 100_000"},
        (
            "tests/unit/test_telemetry.py::test_ten_thousand_schedules_make_no_more_series_than_the_bounds_allow",
        ),
    ),
    Mutant(
        "ready-without-servers",
        "health",
        "A worker whose servers are away is not ready.",
        "engine/telemetry/health.py",
        {"if age is None or age > replica.answers_within:": "if age is None:"},
        (
            "tests/unit/test_health.py::test_a_worker_whose_servers_have_been_away_for_ten_minutes_is_live_and_not_ready",
        ),
    ),
    Mutant(
        "reading-waits-like-a-worker",
        "commands",
        "A command that only reads waits two seconds for a silent server.",
        "engine/cli/target.py",
        {"    patience = ANSWERS_WITHIN": "    patience = None"},
        (
            "tests/integration/test_silent_servers.py::test_a_reading_command_waits_two_seconds_for_a_silent_ledger_and_says_so",
        ),
    ),
    Mutant(
        "backfill-does-not-ask",
        "commands",
        "A backfill starts what it has shown only after a yes.",
        "engine/cli/backfill.py",
        {"asks = bool(seen.would_start) and not (yes or dry_run)": "asks = False"},
        (
            "tests/unit/test_cli_operating.py::test_a_backfill_starts_what_it_has_shown_only_after_a_yes",
        ),
    ),
    Mutant(
        "lost-file-is-ready",
        "commands",
        "A worker whose named file is lost is not ready.",
        "engine/runtime/replica.py",
        {"not_applied=self._not_applied,": "not_applied=None,"},
        (
            "tests/integration/test_unchanged_file.py::test_a_worker_without_its_file_is_not_ready_and_works_with_the_ledgers",
        ),
    ),
    Mutant(
        "escapes-are-printed",
        "commands",
        "No text of a user acts on a terminal.",
        "engine/safe_text.py",
        {"    return unsafe.sub(_escape, text)": "    return text"},
        ("tests/unit/test_safe_text.py::test_no_command_prints_what_acts_on_the_terminal",),
    ),
    Mutant(
        "empty-id-is-none",
        "API",
        "An empty request id is refused, and starts no run of its own.",
        "engine/service/operate.py",
        {"uuid4().hex if request_id is None else request_id": "request_id or uuid4().hex"},
        (
            "tests/integration/test_api.py::test_what_is_empty_is_no_name_and_stands_for_nothing_else",
        ),
    ),
    Mutant(
        "equal-definition-is-a-version",
        "API",
        "Of processes that declare one schedule at once, one makes a version.",
        "engine/service/one_shots.py",
        {
            "if same and own and version in": "if False and version in",
            "if draft.digest == before.schedule.digest:": "if False:",
        },
        (
            "tests/conformance/test_one_shots.py::test_100_processes_that_declare_one_key_at_once_make_one_version",
        ),
    ),
    Mutant(
        "token-in-any-place",
        "API",
        "A token starts runs only in the projects, task queues and types that it names.",
        "engine/api/access.py",
        {"if isinstance(name, str) and not keys_match(patterns, name):": "if False:"},
        (
            "tests/integration/test_api_access.py::test_a_token_of_some_keys_names_the_places_in_which_it_may_start_runs",
        ),
    ),
    Mutant(
        "refusals-without-end",
        "API",
        "An address may only have so many requests refused before its tokens are not looked up.",
        "engine/api/requests.py",
        {"if not self._limiter.hit(item, _network(address)):": "if False:"},
        (
            "tests/integration/test_api_access.py::test_refused_requests_are_logged_without_secrets_and_limited_for_an_address",
        ),
    ),
    Mutant(
        "worker-without-calendars",
        "packaging",
        "A worker that cannot read a calendar of its file refuses to start.",
        "engine/runtime/replica.py",
        {
            "if needs_extra or (source.required and not living):": "if source.required and not living:"
        },
        (
            "tests/integration/test_who_applies.py::test_a_worker_that_cannot_read_a_calendar_of_its_file_refuses_to_start",
        ),
    ),
    Mutant(
        "command-says-something-else",
        "commands",
        "Text, JSON and exit code of every command stay as they are.",
        "engine/cli/audit.py",
        {
            "raise typer.Exit(1 if not_compared or not report.is_clean else 0)": "raise typer.Exit(0)"
        },
        (
            "tests/unit/test_recorded_commands.py::test_every_command_prints_what_it_printed_when_it_was_recorded",
        ),
    ),
    Mutant(
        "json-in-snake-case",
        "commands",
        "JSON has the names of Python in camelCase.",
        "engine/json_view.py",
        {"{each: to_camel(each) for each in self.given}": "{each: each for each in self.given}"},
        ("tests/unit/test_views.py::test_both_writers_of_json_write_an_instant_alike",),
    ),
)

MUTANTS: Final = (
    *_OF_MOVES, *_OF_CLAIMS, *_OF_TIME, *_OF_DECISIONS, *_OF_RUNS, *_OF_THE_ACCOUNT, *_OF_DOORS,
)  # fmt: skip
