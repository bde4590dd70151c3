"""The judge's rules, one by one: which classes a history allows, and which it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.audit.history import History, UnreadableVersion
from engine.audit.judge import KeyAudit, KeyJudge, SeenRun, VerdictWord
from engine.ledger import ActionRow, DefinitionVersion, Fire, Standing
from engine.schedules.planner import TIME_RULES, Pause

BEGIN = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
NOW = BEGIN + 10 * MINUTE + 30 * SECOND
BEAT: dict[str, Any] = {"key": "k", "workflow": "w", "everyMs": 60_000, "firstFire": "next"}


def at(minutes: float) -> datetime:
    return BEGIN + minutes * MINUTE


def row(minutes: float, **fields: Any) -> Fire:
    """A window that ran as it should; of a range that is skipped, with ``windows``."""
    moment = at(minutes)
    made = Fire(
        project="p", key="k", error=None,
        series=1, bucket=0, fire_time=moment, last_fire_time=moment, windows=1, status="completed",
        reason=None, reason_code=None, timing="on_time", missed=0, missed_from=None,
        definition_version=1, workflow_id=f"sched:k:{minutes}", run_id="run",
        started_at=moment + SECOND, closed_at=moment + 2 * SECOND, decided_at=moment + SECOND / 2,
        attempts=1, replica="one",
    )  # fmt: skip
    if fields.get("status") in {"skipped", "expired", "rejected"}:
        made = replace(made, timing=None, run_id=None, started_at=None, closed_at=None)
    windows = fields.get("windows", 1)
    return replace(made, **{"last_fire_time": moment + (windows - 1) * MINUTE, **fields})


def version(number: int = 1, since: float = 0, series: int = 1, **fields: Any) -> DefinitionVersion:
    definition = {**BEAT, **fields}
    return DefinitionVersion(
        version=number, series=series, definition=definition, effective_from=at(since),
        applied_at=at(since), applied_by="ana",
    )  # fmt: skip


def action(verb: str, minutes: float, since: float, until: float | None = None) -> ActionRow:
    ends = None if until is None else at(until).isoformat()
    state = {"paused": {"at": at(since).isoformat(), "until": ends}}
    before, after = (None, state) if verb == "pause" else (state, None)
    return ActionRow("p", "k", verb, before=before, after=after, at=at(minutes), by="ana")


def judged(
    rows: list[Fire],
    *versions: DefinitionVersion,
    actions: list[ActionRow] | None = None,
    runs: list[SeenRun] | None = None,
    **standing: Any,
) -> KeyAudit:
    """Judge ten windows: those of the first to the tenth minute."""
    fields = {"cursor": at(10), **standing}
    stands = Standing(
        now=NOW, key="k", project="p", series=1, enabled=True, rules=TIME_RULES, **fields
    )
    history = History.of(stands, versions or [version()], actions or [])
    seen: dict[int, list[SeenRun]] | None = None
    if runs is not None:
        seen = {}
        for run in runs:
            seen.setdefault(run.at, []).append(run)
    judge = KeyJudge(history, at(0), NOW, runs=seen, kept_since=at(0))
    for each in sorted(rows, key=lambda each: (each.fire_time, each.series)):
        judge.push(each)
    judge.close()
    for each in judge.unseen:
        judge.lost(each)
    return judge.verdict()


def all_but(*minutes: int) -> list[Fire]:
    return [row(n) for n in range(1, 11) if n not in minutes]


def found(audit: KeyAudit) -> list[tuple[VerdictWord, float]]:
    return [(fault.kind, (fault.fire_time - BEGIN) / MINUTE) for fault in audit.faults]


def test_ten_windows_with_ten_rows_are_complete():
    audit = judged(all_but())
    assert (audit.verdict, audit.expected, audit.statuses) == ("complete", 10, {"completed": 10})


def test_adjacent_windows_without_a_row_are_one_fault():
    audit = judged(all_but(3, 4, 5, 8))
    assert found(audit) == [("missing", 3), ("missing", 8)]
    assert (audit.faults[0].windows, audit.faults[0].last_fire_time) == (3, at(5))
    assert audit.fault_windows == {"missing": 4}


def test_what_is_due_is_not_missing_and_what_is_late_is():
    assert judged(all_but(10), cursor=at(9)).due == 1
    audit = judged(all_but(9, 10), cursor=at(8))
    assert (found(audit), audit.due) == ([("missing", 9)], 1)
    assert "not decided yet" in audit.faults[0].what


@pytest.mark.parametrize(
    "standing",
    [{"pause": Pause(at(6.5))}, {"retired_at": at(6.5)}, {"pause": Pause(at(6.5), until=at(99))}],
)
def test_what_waits_for_the_end_of_a_hold_is_held(standing):
    audit = judged(all_but(7, 8, 9, 10), cursor=at(6), **standing)
    assert (audit.verdict, audit.held) == ("complete", 4)
    assert found(judged(all_but(5, 7, 8, 9, 10), cursor=at(6), **standing)) == [("missing", 5)]


def test_a_pause_that_has_ended_by_itself_holds_nothing():
    audit = judged(all_but(7, 8), cursor=at(6), pause=Pause(at(6.5), until=at(7.5)))
    assert (found(audit), audit.faults[0].windows) == ([("missing", 7)], 2)


def test_what_retention_has_removed_is_outside():
    audit = judged(all_but(1, 2, 3, 5), forgotten_until=at(3))
    assert (found(audit), audit.outside) == ([("missing", 5)], 3)


def test_a_day_off_is_decided_when_it_ends():
    off = version(exclude=["2026-11-18"])
    assert judged([], off, cursor=at(0)).due == 10
    late = judged([row(3)], off, cursor=at(0))
    assert found(late) == [("phantom", 3)]
    assert "although it is excluded: 2026-11-18" in late.faults[0].what


def test_a_row_for_several_windows_has_to_stand_for_as_many():
    skipped = {"status": "skipped", "reason_code": "overlap", "reason": "overlap"}
    assert judged([*all_but(3, 4, 5), row(3, windows=3, **skipped)]).verdict == "complete"
    fewer = row(3, windows=2, last_fire_time=at(5), **skipped)
    assert found(judged([*all_but(3, 4, 5), fewer])) == [("missing", 3)]
    more = row(3, windows=4, last_fire_time=at(5), **skipped)
    assert found(judged([*all_but(3, 4, 5), more])) == [("phantom", 3)]
    beside = row(3, windows=3, **skipped)
    assert found(judged([*all_but(3, 5), beside])) == [("phantom", 4)]


PAUSED = {"status": "skipped", "reason_code": "paused", "reason": "paused"}
HELD = [action("pause", 2.5, 2.5), action("resume", 5.5, 2.5)]


def test_windows_of_a_pause_are_skipped_and_none_of_them_runs():
    held = row(3, windows=3, **PAUSED)
    assert judged([*all_but(3, 4, 5), held], actions=HELD).verdict == "complete"
    assert found(judged(all_but(), actions=HELD)) == [
        ("phantom", 3),
        ("phantom", 4),
        ("phantom", 5),
    ]
    assert found(judged([*all_but(3, 4, 5), held])) == [("missing", 3)]
    later = row(7, windows=2, **PAUSED)
    rows = [*all_but(3, 4, 5, 7, 8), held, later]
    assert found(judged(rows, actions=HELD)) == [("missing", 7)]


def test_what_a_resume_makes_up_for_may_run_and_so_may_what_was_asked_for():
    after = BEGIN + 6 * MINUTE
    rows = [
        *all_but(3, 4, 5),
        row(3, timing="backfill"),
        row(5, timing="caught_up", decided_at=after),
    ]
    rows.append(row(4, status="skipped", reason_code="coalesced", reason="coalesced into 5"))
    assert judged(rows, actions=HELD).verdict == "complete"
    skipped_ahead = row(7, timing="backfill", decided_at=at(1), started_at=at(9))
    assert judged([*all_but(7), skipped_ahead]).verdict == "complete"


def test_a_pause_with_an_end_lets_go_what_opens_then():
    held = [action("pause", 2.5, 2.5, until=5)]
    rows = [*all_but(3, 4), row(3, windows=2, **PAUSED)]
    assert judged(rows, actions=held).verdict == "complete"
    assert found(judged([*all_but(4), row(4, **PAUSED)], actions=held)) == [("phantom", 3)]


def test_a_window_that_opened_as_the_schedule_was_resumed_may_have_run():
    resumed = [action("pause", 2.5, 2.5), action("resume", 5.01, 2.5)]
    rows = [*all_but(3, 4), row(3, windows=2, **PAUSED)]
    late = [
        replace(each, decided_at=at(5.02)) if each.fire_time == at(5) else each for each in rows
    ]
    assert judged(late, actions=resumed).verdict == "complete"
    assert found(judged(rows, actions=resumed)) == [("phantom", 5)]


def test_a_disabled_span_is_that_of_its_definition():
    spans = [version(), version(2, 2.5, enabled=False), version(3, 5.5)]
    disabled = {"status": "skipped", "reason_code": "disabled", "reason": "disabled"}
    held = row(3, windows=3, definition_version=2, **disabled)
    assert judged([*all_but(3, 4, 5), held], *spans).verdict == "complete"
    assert found(judged([*all_but(3, 5), held], *spans)) == [("phantom", 4)]
    assert found(judged([*all_but(4, 5), row(4, windows=2, **disabled)], *spans)) == [
        ("phantom", 3)
    ]
    rows = [*all_but(3, 4, 5, 7), held, row(7, **disabled)]
    assert found(judged(rows, *spans)) == [("missing", 7)]


def test_a_new_series_owes_its_windows_from_when_it_took_effect():
    spans = [version(), version(2, 4.5, series=2, everyMs=120_000)]
    rows = [row(n) for n in range(1, 5)] + [row(n, series=2) for n in (6, 8, 10)]
    assert judged(rows, *spans).verdict == "complete"
    assert found(judged([*rows, row(7)], *spans)) == [("phantom", 7)]
    wrong = [replace(each, series=1) for each in rows]
    assert found(judged(wrong, *spans))[:2] == [("phantom", 6), ("missing", 6)]


def test_an_interval_owes_the_window_it_is_first_seen_in_and_a_cron_does_not():
    first = {name: value for name, value in BEAT.items() if name != "firstFire"}
    seen = DefinitionVersion(version=1, series=1, definition=first, effective_from=at(0),
                             applied_at=at(0), applied_by="ana")  # fmt: skip
    assert found(judged(all_but(), seen)) == [("missing", 0)]
    cron = {"key": "k", "workflow": "w", "cron": "* * * * *"}
    assert judged(all_but(), replace(seen, definition=cron)).verdict == "complete"


def test_a_moment_that_had_passed_may_have_a_row():
    once = replace(version(), definition={"key": "k", "workflow": "w", "at": at(-5).isoformat()})
    passed = row(-5, status="expired", reason_code="expired", reason="had passed")
    assert judged([passed], once).verdict == "complete"
    assert found(judged([row(-5)], once)) == [("phantom", -5)]


GIVEN_UP: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"status": "expired", "reason_code": "expired", "decided_at": at(9)}, {}, True),
    ({"status": "expired", "reason_code": "expired", "decided_at": at(3.5)}, {}, False),
    ({"status": "skipped", "reason_code": "coalesced"}, {}, True),
    ({"status": "skipped", "reason_code": "coalesced"}, {"policy": "all"}, False),
    ({"status": "skipped", "reason_code": "excluded"}, {}, False),
    ({"status": "skipped", "reason_code": "retired"}, {}, False),
    ({"status": "skipped", "reason_code": "overlap"}, {}, True),
    ({"status": "skipped", "reason_code": "user", "decided_at": at(1)}, {}, True),
    ({"status": "rejected", "reason_code": "unknown_workflow"}, {}, True),
    ({"status": "skipped", "reason_code": "paused", "timing": "on_time"}, {}, True),
]


@pytest.mark.parametrize(("fields", "catch_up", "allowed"), GIVEN_UP)
def test_a_window_is_given_up_only_by_what_its_schedule_allowed(fields, catch_up, allowed):
    audit = judged([*all_but(3), row(3, **fields)], version(catchUp=catch_up))
    assert found(audit) == ([] if allowed else [("missing", 3)])


def test_what_is_caught_up_needs_a_policy_that_does_so():
    late = row(3, timing="caught_up", decided_at=at(9), started_at=at(9))
    assert judged([*all_but(3), late]).verdict == "complete"
    none = version(catchUp={"policy": "none"})
    assert found(judged([*all_but(3), late], none)) == [("phantom", 3)]


def test_what_waited_for_others_only_since_later_had_been_missed():
    late = row(3, timing="late", decided_at=at(9), started_at=at(9), waited_since=at(2))
    assert judged([*all_but(3), late]).verdict == "complete"
    audit = judged([*all_but(3), replace(late, waited_since=at(4))])
    assert found(audit) == [("phantom", 3)]
    assert "it had been missed" in audit.faults[0].what


def test_early_is_before_the_fire_time_and_the_share_of_the_spread():
    assert found(judged([*all_but(3), row(3, started_at=at(2.9))])) == [("early", 3)]
    assert found(judged([*all_but(3), row(3, decided_at=at(2.9))])) == [("early", 3)]
    assert judged([*all_but(3), row(3, started_at=at(3) - SECOND)]).verdict == "complete"
    spread = version(spread="59s")
    assert {kind for kind, _ in found(judged(all_but(), spread))} == {"early"}


def test_the_worst_fault_is_the_verdict():
    rows = [*all_but(2, 3), row(2, status="unvouched", reason_code="may_have_run")]
    audit = judged([*rows, row(4, series=2)])
    assert found(audit) == [("unvouched", 2), ("missing", 3), ("doubled", 4)]
    assert audit.verdict == "doubled"


def run(minutes: float, name: str = "run", chain: str = "", **fields: Any) -> SeenRun:
    place = int(at(minutes).timestamp() * 1_000_000)
    made = SeenRun(f"sched:k:{minutes}", name, chain or name, at(minutes) + SECOND, place)
    return replace(made, **fields)


def test_each_row_that_ran_has_one_chain_of_runs():
    every = [run(n) for n in range(1, 11)]
    assert judged(all_but(), runs=every).verdict == "complete"
    assert judged(all_but(), runs=[*every, run(3, "next", "run")]).verdict == "complete"
    assert found(judged(all_but(), runs=[*every, run(3, "other")])) == [("doubled", 3)]
    assert found(judged(all_but(), runs=every[1:])) == [("missing", 1)]
    assert found(judged(all_but(), runs=[*every, run(3.5)])) == [("phantom", 3.5)]
    assert found(judged(all_but(3), runs=every)) == [("missing", 3)]
    early = [*every[1:], run(1, started_at=at(0.5))]
    assert found(judged(all_but(), runs=early)) == [("early", 1)]


def test_a_run_that_the_ledger_denies_is_a_phantom_and_an_unanswered_one_is_not():
    every = [run(n) for n in range(1, 11)]
    denied = row(3, status="skipped", reason_code="overlap")
    assert found(judged([*all_but(3), denied], runs=every)) == [("phantom", 3)]
    unanswered = row(3, status="starting", run_id=None, started_at=None, closed_at=None)
    assert judged([*all_but(3), unanswered], runs=every).verdict == "complete"
    assert judged([*all_but(3), unanswered], runs=every[:2] + every[3:]).verdict == "complete"


def test_a_run_that_temporal_need_not_keep_is_not_missing():
    old = replace(row(3), closed_at=at(-1))
    audit = judged([*all_but(3), old], runs=[run(n) for n in range(1, 11) if n != 3])
    assert (audit.verdict, audit.unchecked) == ("complete", 1)


def test_a_range_that_the_janitor_merged_accounts_for_its_runs_and_needs_none():
    merged = row(3, windows=3, run_id=None, started_at=None, closed_at=None, decided_at=at(9))
    rows = [*all_but(3, 4, 5), merged]
    every = [run(n) for n in range(1, 11)]
    assert judged(rows, runs=every).verdict == "complete"
    assert judged(rows, runs=every[:2] + every[5:]).statuses == {"completed": 10}
    audit = judged(rows, runs=[*every, run(4, "other")])
    assert found(audit) == [("doubled", 4)]


def test_a_definition_that_cannot_be_read_is_no_silence():
    with pytest.raises(UnreadableVersion, match="version 1: ValueError"):
        judged([], replace(version(), definition={"key": "k", "cron": "every noon"}))


# --- shadow mode and limits ---

SHADOW = {"status": "skipped", "reason": "shadow", "reason_code": "shadow"}


def test_windows_of_shadow_mode_are_skipped_up_to_its_end_and_run_from_then_on():
    declared = version(mode="shadow", shadowUntil=at(6).isoformat())
    rows = [row(1, windows=5, **SHADOW), *(row(minute) for minute in range(6, 11))]
    assert judged(rows, declared).verdict == "complete"


def test_a_run_in_shadow_mode_is_a_phantom_and_a_shadow_outside_of_it_a_missing_window():
    declared = version(mode="shadow", shadowUntil=at(6).isoformat())
    rows = [row(1), row(2, windows=4, **SHADOW), row(6, **SHADOW), *map(row, range(7, 11))]
    found = judged(rows, declared)
    assert [(each.kind, each.fire_time) for each in found.faults] == [
        ("phantom", at(1)), ("missing", at(6)),
    ]  # fmt: skip


def test_windows_after_the_last_one_that_a_limit_allows_are_not_missed():
    rows = [row(minute) for minute in range(1, 4)]
    ended = judged(rows, version(limit=3), cursor=at(3), idle=True)
    assert (ended.verdict, ended.held) == ("complete", 7)
    assert judged(rows, version(limit=5), cursor=at(3)).verdict == "missing"


def test_a_window_that_is_skipped_for_a_limit_needs_one():
    late = [row(4, windows=7, status="skipped", reason="limit", reason_code="limit")]
    rows = [row(minute) for minute in range(1, 4)] + late
    assert judged(rows, version(limit=3)).verdict == "complete"
    assert judged(rows, version()).verdict == "missing"
