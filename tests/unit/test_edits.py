"""What an edit is told as."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.diff import edits
from engine.testing import FrozenClock


def schedule(fields: str):
    return load_schedules(f"schedules: [{{key: k, workflow: w, {fields}}}]").schedules[0]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("everyMs: 300000", "everyMs: 60000", ["every 5m → 1m"]),
        (
            "everyMs: 5000",
            'cron: "0 2 * * *"',
            ["every 5s → (none)", "cron (none) → 0 2 * * *"],
        ),
        ("everyMs: 5000", "everyMs: 5000, grace: 5m", ["grace default → 5m"]),
        ("everyMs: 5000", "everyMs: 5000, limit: 3", ["limit (none) → 3"]),
        ("everyMs: 5000, input: {a: 1}", "everyMs: 5000", ['input {"a": 1} → (none)']),
        ("everyMs: 5000, enabled: false", "everyMs: 5000", ["enabled false → default"]),
        (
            "everyMs: 5000, input: {a: 1}",
            "everyMs: 5000, input: {a: true}",
            ['input {"a": 1} → {"a": true}'],
        ),
        ("everyMs: 5000, input: [0]", "everyMs: 5000, input: [false]", ["input [0] → [false]"]),
        ("everyMs: 5000", "everyMs: 5000, input: null", ["input (none) → null"]),
        ("everyMs: 5000, input: {a: 1}", "everyMs: 5000, input: {a: 1.0}", []),
        ("everyMs: 5000", "everyMs: 5000", []),
        (
            "everyMs: 5000",
            "everyMs: 5000, maxConcurrentRuns: 3",
            ["overlap default → queue", "maxConcurrentRuns default → 3"],
        ),
        (
            "everyMs: 5000, maxConcurrentRuns: 2",
            "everyMs: 5000, maxConcurrentRuns: 3",
            ["maxConcurrentRuns 2 → 3"],
        ),
        ("everyMs: 5000", "everyMs: 5000, topic: a.b", ["topic (none) → a.b"]),
        ("everyMs: 5000, overlap: queue", "everyMs: 5000, maxConcurrentRuns: 1", []),
    ],
)
def test_each_changed_field_is_named_with_both_values(before, after, told):
    assert list(edits(schedule(before), schedule(after))) == told


def test_a_long_value_is_cut():
    (told,) = edits(schedule("everyMs: 5000"), schedule(f"everyMs: 5000, input: {'x' * 500}"))
    assert len(told) < 100
    assert told.endswith("…")


def test_two_long_values_are_shown_from_where_they_differ():
    before, after = (f"everyMs: 5000, description: {'x' * 90} {end}" for end in ("old", "new"))
    (told,) = edits(schedule(before), schedule(after))
    assert told == "description …xxxxxxxxx old → …xxxxxxxxx new"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("[SAT, team]", "[SUN, team]", "exclude without SAT, with SUN"),
        ("[SAT, team]", "[SAT]", "exclude without team 2027-01-04, team 2027-01-08..2027-01-09"),
        (
            "[team]",
            "[team, SUN, MON, TUE, WED, THU]",
            "exclude with SUN, MON, TUE and 2 more",
        ),
        ("[SAT, SUN]", "[SUN, SAT]", 'exclude ["SAT", "SUN"] → ["SUN", "SAT"]'),
        ("[]", "[SAT]", 'exclude default → ["SAT"]'),
    ],
)
def test_an_edit_of_days_off_names_the_days(before, after, told):
    days = "calendars: {team: [2027-01-04, 2027-01-08..2027-01-09]}\n"
    entry = "schedules: [{key: k, workflow: w, everyMs: 5000, exclude: %s}]"
    one, other = (load_schedules(days + entry % items).schedules[0] for items in (before, after))
    assert edits(one, other) == (told,)


async def test_an_edit_by_a_clock_that_was_set_back_loses_no_window_that_was_owed_before(
    virtual_ledger, clock
):
    clock.move_to("2026-11-18T09:58:03Z")
    before = "schedules: [{key: k, workflow: w, everyMs: 10000, enabled: false}]"
    await apply(virtual_ledger, load_schedules(before), by="test")
    virtual_ledger._connections.clock = FrozenClock("2026-11-18T09:48:03Z")
    after = "schedules: [{key: k, workflow: w, everyMs: 10000}]"
    await apply(virtual_ledger, load_schedules(after), by="test")
    (fire,) = await virtual_ledger.fires(key="k")
    assert fire.fire_time == datetime(2026, 11, 18, 9, 58, tzinfo=UTC)
    assert (fire.status, fire.reason) == ("skipped", "disabled")
