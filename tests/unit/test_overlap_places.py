"""Overlap where several runs may be open at once: the rows of docs/decisions.md, one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.schedules import Schedule, Window
from engine.schedules.planner.decisions import Decision, Dependency, OpenFire, Plan
from engine.schedules.planner.overlap import resolve
from engine.schedules.terms import LOOKS_AT_ONCE, Overlap
from tests.unit.planning import plan_of

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def schedule(overlap: str, most: int = 3, **fields: Any) -> Schedule:
    return Schedule.from_json(
        {"key": "k", "workflow": "w", "everyMs": 60_000, "overlap": overlap,
         "maxConcurrentRuns": most, **fields}
    )  # fmt: skip


def fire(number: int, status: str = "started", **fields: Any) -> OpenFire:
    return OpenFire(number, f"sched:k:{number}", status, NOW - 10 * MINUTE, **fields)  # type: ignore[arg-type] # a word of the four


def decide(declared: Schedule, *fires: OpenFire, missed: int = 1, **options: Any) -> Plan:
    options.setdefault("now", NOW)
    options.setdefault("cursor", options["now"] - missed * MINUTE)
    return plan_of(declared, open_fires=fires, effective_from=NOW - timedelta(days=1), **options)


def moved(decided: Plan) -> list[tuple[int, str]]:
    return [(move.fire.fire_id, move.to) for move in decided.moves]


def proven(*numbers: int) -> tuple[OpenFire, ...]:
    return tuple(fire(number, open_at=NOW) for number in numbers)


def doubtful(*numbers: int) -> tuple[OpenFire, ...]:
    return tuple(fire(number, open_at=NOW - MINUTE) for number in numbers)


WAITS = fire(9, "queued")
CLAIMED = fire(8, "claimed")
FULL = "overlap: the queue is full (1)"


@dataclass(frozen=True)
class Row:
    """One row: what is open and waits with three places, and what becomes of the window."""

    policy: str
    fires: tuple[OpenFire, ...]
    window: str
    reason: str | None = None
    moves: tuple[tuple[int, str], ...] = ()


TABLE = [
    # A place is free, whatever a look would find.
    *(
        Row(policy, fires, "claimed")
        for policy in ("skip", "queue", "queue_one")
        for fires in ((), proven(1, 2), doubtful(1, 2), (*doubtful(1), CLAIMED))
    ),
    # None is, for certain.
    Row("skip", proven(1, 2, 3), "skipped", "overlap: sched:k:1 and 2 more are open"),
    Row("skip", (*proven(1, 2), CLAIMED), "skipped", "overlap: sched:k:1 and 2 more are open"),
    Row("skip", (*doubtful(7), *proven(1, 2, 3)), "skipped",
        "overlap: sched:k:1 and 2 more are open"),
    Row("skip", (CLAIMED, *proven(1, 2)), "skipped", "overlap: sched:k:1 and 2 more are open"),
    Row("queue", proven(1, 2, 3), "queued"),
    Row("queue", (*proven(1, 2), CLAIMED), "queued"),
    Row("queue_one", proven(1, 2, 3), "queued"),
    # Nobody knows.
    *(
        Row(policy, fires, "undecided")
        for policy in ("skip", "queue", "queue_one")
        for fires in (doubtful(1, 2, 3), (*proven(1, 2), *doubtful(3)))
    ),
    # Something waits.
    Row("skip", (*proven(1, 2, 3), WAITS), "skipped", "overlap: sched:k:1 and 3 more are open"),
    Row("queue", (*proven(1, 2, 3), WAITS), "queued"),
    Row("queue", (*doubtful(1, 2, 3), WAITS), "queued"),
    Row("queue_one", (*proven(1, 2, 3), WAITS), "skipped", FULL),
    Row("queue_one", (*doubtful(1, 2, 3), WAITS), "undecided"),
    # What waited starts, and there may be room behind it.
    Row("queue", (*proven(1, 2), WAITS), "queued", None, ((9, "start"),)),
    Row("queue", (*proven(1), WAITS), "claimed", None, ((9, "start"),)),
    Row("queue_one", (*proven(1), WAITS), "claimed", None, ((9, "start"),)),
    Row("skip", (*proven(1), WAITS), "claimed", None, ((9, "start"),)),
    Row("skip", (*proven(1, 2), WAITS), "skipped", "overlap: sched:k:1 and 2 more are open",
        ((9, "start"),)),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.policy}-{row.fires}"[:60])
def test_a_window_starts_while_a_place_is_free_and_otherwise_the_table_decides(row):
    decided = decide(schedule(row.policy), *row.fires)
    assert tuple(moved(decided)) == row.moves
    if row.window == "undecided":
        unseen = tuple(each for each in row.fires if each.open_at and each.open_at < NOW)
        assert (decided.decisions, decided.looks) == ((), unseen)
        assert decided.cursor == NOW - MINUTE
        return
    (decision,) = decided.decisions
    assert (decision.verdict, decision.reason, decided.looks) == (row.window, row.reason, ())


def test_as_many_as_there_are_free_places_start_in_the_order_in_which_they_came():
    waiting = [fire(number, "queued") for number in range(10, 16)]
    assert moved(decide(schedule("queue", 4), *proven(1), *waiting, missed=0)) == [
        (10, "start"), (11, "start"), (12, "start"),
    ]  # fmt: skip


def test_a_smaller_limit_ends_no_run_and_lets_nothing_start_until_enough_have_ended():
    waiting = fire(9, "queued")
    assert moved(decide(schedule("queue", 2), *proven(1, 2, 3, 4), waiting, missed=0)) == []
    assert moved(decide(schedule("queue", 2), *proven(1, 2), waiting, missed=0)) == []
    assert moved(decide(schedule("queue", 2), *proven(1), waiting, missed=0)) == [(9, "start")]


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        ("queue", ["claimed", "claimed", "queued", "queued", "queued"]),
        ("queue_one", ["claimed", "claimed", "queued", "skipped", "skipped"]),
        ("skip", ["claimed", "claimed", "skipped", "skipped", "skipped"]),
    ],
)
def test_windows_that_are_due_together_take_the_free_places_in_their_order(policy, outcome):
    declared = schedule(policy, 3, grace="1h")
    decided = decide(declared, *proven(1), missed=5)
    assert [each.verdict for each in decided.decisions] == outcome
    if policy == "skip":
        said = {each.reason for each in decided.decisions[2:]}
        assert said == {"overlap: sched:k:1 and 2 more are open"}


def test_what_has_not_begun_is_not_said_to_be_open():
    decided = decide(schedule("skip", 3, grace="1h"), missed=5).decisions
    first = decided[0].window.workflow_id(suffixed=False)
    assert {each.reason for each in decided[3:]} == {f"overlap: {first} and 2 more come first"}


def test_several_windows_are_looked_for_only_where_not_all_of_them_fit():
    declared = schedule("skip", 4, grace="1h")
    assert decide(declared, *doubtful(1, 2), missed=2).looks == ()
    assert decide(declared, *doubtful(1, 2), missed=3).looks == doubtful(1, 2)


def test_of_very_many_runs_some_are_looked_at_and_that_is_enough():
    """A thousand calls would time out. Manual runs that may overlap go beyond the limit."""
    declared = schedule("skip", LOOKS_AT_ONCE)
    runs = {number: fire(number) for number in range(1, 3 * LOOKS_AT_ONCE)}
    looks = decide(declared, *runs.values()).looks
    assert len(looks) == LOOKS_AT_ONCE
    runs |= {seen.fire_id: replace(seen, open_at=NOW) for seen in looks}
    (decision,) = decide(declared, *runs.values()).decisions
    assert decision.reason == f"overlap: sched:k:1 and {LOOKS_AT_ONCE - 1} more are open"


def test_with_queue_a_window_waits_without_a_look_at_very_many_runs():
    """By the time that all were looked at the next one is due, and none would be decided."""
    many = doubtful(*range(1, LOOKS_AT_ONCE + 2))
    decided = decide(schedule("queue", len(many)), *many)
    assert [each.verdict for each in decided.decisions] == ["queued"]
    assert decide(schedule("queue", len(many) - 1), *many[1:]).looks == many[1:]


def test_a_definition_that_ends_skips_no_window_for_what_nobody_saw_open():
    (decision,) = decide(schedule("skip"), *proven(1, 2), *doubtful(3), final=True).decisions
    assert (decision.verdict, decision.reason, decision.overlap) == ("queued", None, "skip")


def test_one_that_waits_for_other_schedules_holds_up_those_behind_it_also_beside_a_free_place():
    pending = fire(9, "queued", awaited=(Dependency("parent", "success", "pending"),))
    behind = fire(10, "queued")
    assert moved(decide(schedule("queue"), *proven(1), pending, behind, missed=0)) == []


@pytest.mark.parametrize(
    ("fires", "expected", "looks"),
    [
        (proven(1, 2), [(9, "start")], ()),
        (doubtful(1, 2), [(9, "start")], ()),
        (proven(1, 2, 3), [(9, "skip")], ()),
        ((*proven(1, 2), *doubtful(3)), [], doubtful(3)),
    ],
)
def test_what_its_parents_have_let_go_starts_where_a_place_is_free(fires, expected, looks):
    met = (Dependency("parent", "success", "completed", since=NOW - MINUTE / 2),)
    declared = schedule("skip", needs=["parent"])
    decided = decide(declared, *fires, fire(9, "queued", awaited=met), missed=0)
    assert (moved(decided), decided.looks) == (expected, looks)


def test_of_very_many_runs_those_unseen_for_longest_are_looked_at_first():
    """Else the same ones are looked at again and again while new windows open."""
    runs = [fire(number, open_at=NOW - number * MINUTE) for number in range(1, 200)]
    never = fire(500)
    decided = decide(schedule("skip", LOOKS_AT_ONCE), *runs, never)
    assert decided.looks == (never, *runs[:-LOOKS_AT_ONCE:-1])


def test_a_manual_run_waits_behind_those_that_wait_for_other_schedules_or_counts_them():
    pending = fire(9, "queued", awaited=(Dependency("parent", "success", "pending"),))
    asked = Decision(Window("k", 1, 7, NOW), "claimed")

    def outcome(policy: Overlap, places: int) -> str:
        resolved = resolve(
            policy, [asked], [*proven(1), pending], places=places, most_queued=9, final=True,
            named=lambda _: "m", standing="queue",
        )  # fmt: skip
        return resolved.decisions[0].verdict

    assert outcome("queue", 3) == "queued", "its turn comes after theirs"
    assert (outcome("skip", 2), outcome("skip", 3)) == ("skipped", "claimed")
