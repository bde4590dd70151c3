"""Shadow mode and limits: what a plan records and does not start. No I/O, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.errors import ScheduleFileError
from engine.ledger.fires import KeyMaintenance, OldFire
from engine.runtime.retention.compaction import Cutoffs
from engine.schedules import Schedule, load_schedules
from engine.schedules.model import CatchUp
from engine.schedules.planner.decisions import OpenFire, Plan
from engine.schedules.simulation import simulate
from tests.unit.planning import plan_of

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def beat(**fields) -> Schedule:
    return Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 60_000, **fields})


def shapes(decided: Plan) -> list[tuple[str, str | None, int]]:
    return [
        (each.verdict, each.reason.code if each.reason else None, each.windows)
        for each in decided.decisions
    ]


def test_a_window_in_shadow_mode_is_recorded_and_does_not_start():
    decided = plan_of(beat(mode="shadow"), cursor=NOW - MINUTE, now=NOW)
    assert shapes(decided) == [("skipped", "shadow", 1)]
    assert decided.next_fire_at == NOW.replace(minute=1, second=0)


def test_windows_missed_in_shadow_mode_are_one_row_whatever_catch_up_says():
    declared = beat(mode="shadow", catchUp={"policy": "all"})
    decided = plan_of(declared, cursor=NOW - 600 * MINUTE, now=NOW)
    assert shapes(decided) == [("skipped", "shadow", 600)]


def test_a_day_off_stays_a_day_off_in_shadow_mode():
    declared = beat(mode="shadow", timezone="UTC", exclude=["2026-11-20"])
    decided = plan_of(declared, cursor=NOW - timedelta(days=2), now=NOW)
    assert [code for _, code, _ in shapes(decided)] == ["shadow", "excluded", "shadow"]


def test_nothing_that_is_open_holds_a_window_of_shadow_mode_back():
    run = OpenFire(1, "sched:k:1", "started", NOW - 5 * MINUTE)
    decided = plan_of(beat(mode="shadow", overlap="skip"), cursor=NOW - MINUTE, now=NOW,
                      open_fires=[run])  # fmt: skip
    assert shapes(decided) == [("skipped", "shadow", 1)]


def test_from_the_end_of_shadow_mode_on_windows_start():
    declared = beat(mode="shadow", shadowUntil="2026-11-21T11:59:00Z", grace="10m")
    decided = plan_of(declared, cursor=NOW - 3 * MINUTE, now=NOW, rows=10)
    assert shapes(decided) == [("skipped", "shadow", 1), ("claimed", None, 1), ("claimed", None, 1)]
    assert decided.decisions[1].window.fire_time == NOW.replace(hour=11, minute=59, second=0)


def test_after_an_outage_across_the_end_no_window_of_shadow_mode_is_caught_up():
    declared = beat(mode="shadow", shadowUntil="2026-11-21T11:50:00Z")
    decided = plan_of(declared, cursor=NOW - 30 * MINUTE, now=NOW)
    assert shapes(decided) == [
        ("skipped", "shadow", 19), ("skipped", "coalesced", 10), ("claimed", "caught_up", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_the_end_of_a_pause_starts_no_window_of_shadow_mode(policy):
    declared = beat(mode="shadow")
    decided = plan_of(declared, cursor=NOW - 9 * MINUTE, now=NOW, hold="paused",
                      on_resume=CatchUp(policy=policy), final=True)  # fmt: skip
    assert shapes(decided) == [("skipped", "paused", 9)]


def refusal(text: str) -> str:
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(f"schedules: [{{key: k, workflow: w, everyMs: 60000, {text}}}]")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mode: shadows", "mode is 'shadows'; write live or shadow"),
        ('shadowUntil: "2027-01-01T00:00:00Z"', "the mode is not shadow; add mode: shadow"),
        ('mode: shadow, shadowUntil: "2027-01-01T00:00:00"', "without an offset"),
        ("mode: shadow, shadowUntil: 2027-13-01T00:00:00Z", "shadowUntil"),
        ("limit: 0", "limit is 0; write a whole number from 1 to 10000"),
        ("pauseAfterFailures: 51", "write a whole number from 1 to 50"),
        ("shadowuntil: x", "shadowUntil"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_a_hint(text, said):
    assert said in refusal(text)


def test_a_file_is_in_shadow_mode_by_its_defaults_and_a_schedule_is_not_by_its_own_field():
    text = (
        "{key: k, workflow: w, everyMs: 60000}, {key: l, workflow: w, everyMs: 60000, mode: live}"
    )
    file = load_schedules(f"defaults: {{mode: shadow}}\nschedules: [{text}]")
    assert [each.mode for each in file.schedules] == ["shadow", "live"]


def test_a_digest_of_before_these_fields_is_the_same():
    assert beat().digest == beat(mode="live").digest
    assert {*beat().to_json()} == {"key", "workflow", "everyMs"}


# --- limits ---


def plan_limited(limit: int, started: int, *, of: Schedule | None = None, **options) -> Plan:
    declared = of or beat(limit=limit, grace="10m")
    return plan_of(declared, cursor=NOW - 3 * MINUTE, now=NOW, started=started, **options)


def test_a_schedule_ends_with_the_last_window_that_its_limit_allows():
    decided = plan_limited(5, 3)
    assert shapes(decided) == [("claimed", None, 1)] * 2
    assert decided.next_fire_at is None
    assert decided.cursor == decided.decisions[-1].window.fire_time


def test_an_ended_schedule_decides_nothing_and_is_not_looked_at_again():
    decided = plan_limited(5, 5)
    assert (decided.decisions, decided.next_fire_at) == ((), None)


def test_a_window_that_overlap_skips_does_not_count():
    run = OpenFire(1, "sched:k:1", "started", NOW - 5 * MINUTE, open_at=NOW)
    declared = beat(limit=2, grace="10m", overlap="skip")
    decided = plan_limited(2, 1, of=declared, open_fires=[run])
    assert shapes(decided) == [("skipped", "overlap", 1)]
    assert decided.next_fire_at is not None


def test_a_window_that_is_given_up_makes_room_for_another():
    waiting = OpenFire(7, "sched:k:1", "queued", NOW - 9 * MINUTE)
    declared = beat(limit=1, grace="10m", overlap="cancel_previous")
    decided = plan_limited(1, 1, of=declared, open_fires=[waiting])
    assert decided.decisions == ()  # it waits, so it counts
    assert decided.next_fire_at is None


def test_an_edit_of_an_ended_schedule_accounts_for_the_windows_since():
    decided = plan_limited(5, 4, final=True)
    assert shapes(decided) == [
        ("claimed", None, 1), ("skipped", "limit", 1), ("skipped", "limit", 1),
    ]  # fmt: skip


def test_a_catch_up_of_all_starts_no_more_than_the_limit():
    declared = beat(limit=5, catchUp={"policy": "all"}, grace="1s")
    decided = plan_limited(5, 3, of=declared)
    assert [each.verdict for each in decided.decisions] == ["claimed", "claimed"]
    assert decided.next_fire_at is None


def test_a_simulation_ends_with_the_limit_and_shows_what_shadow_mode_does_not_start():
    declared, day = beat(limit=3, mode="shadow"), NOW + timedelta(days=1)
    found = simulate([declared], NOW, day)
    assert [minute for minute, count in enumerate(found.starts) if count] == [1, 2, 3]
    first = simulate([declared], NOW, day, new=True)
    assert sum(first.starts) == 3  # that of first sight is one of them


@pytest.mark.parametrize(
    ("fields", "row", "stays"),
    [
        ({"limit": 5}, {}, True),
        ({}, {}, False),
        ({"limit": 5}, {"status": "skipped"}, False),
        ({"limit": 5}, {"timing": "backfill"}, False),
        ({"limit": 5}, {"series": 0}, False),
    ],
)
def test_a_row_that_counts_for_a_limit_does_not_leave_the_ledger(fields, row, stays):
    maintenance = KeyMaintenance("k", 1, NOW, beat(**fields), None, None, None, None)
    cutoffs = Cutoffs(keep=1, merge=NOW, settle=NOW, remove=NOW, once=False)
    old = OldFire(
        **{
            "project": "p", "series": 1, "fire_time": NOW - MINUTE, "last_fire_time": NOW - MINUTE,
            "windows": 1, "definition_version": 1, "status": "completed", "id": 1, "version": "1",
            "bucket": 1, "kind": "window", "workflow_type": None, "task_queue": "sched",
            "reason": None, "timing": "on_time", "missed": 0, "merged_at": None,
            "has_details": False,
            "rested_since": NOW - MINUTE, "detail": "{}", **row,
        }
    )  # fmt: skip
    assert cutoffs.may_leave(old, maintenance) is not stays
