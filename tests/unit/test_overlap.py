"""Overlap: the table in docs/decisions.md, row by row. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from engine.schedules import Schedule, Window
from engine.schedules.planner.decisions import Decision, Dependency, OpenFire, Plan, Unread
from engine.schedules.planner.overlap import resolve
from engine.schedules.terms import Overlap
from tests.unit.planning import plan_of

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EARLIER = "sched:k:earlier"
QUEUED = "sched:k:queued"

WHENS = [
    pytest.param({"everyMs": 60_000}, id="interval"),
    pytest.param({"cron": "* * * * *", "timezone": "America/New_York"}, id="cron"),
]


def schedule(overlap: str, **fields: Any) -> Schedule:
    when = {} if "cron" in fields else {"everyMs": 60_000}
    return Schedule.from_json({"key": "k", "workflow": "w", "overlap": overlap, **when, **fields})


def fire(status: str, name: str = EARLIER, number: int = 1, **fields: Any) -> OpenFire:
    return OpenFire(number, name, status, NOW - 10 * MINUTE, **fields)  # type: ignore[arg-type] # a word of the four


def decide(declared: Schedule, *fires: OpenFire, missed: int = 1, **options: Any) -> Plan:
    options.setdefault("now", NOW)
    options.setdefault("effective_from", NOW - timedelta(days=1))
    options.setdefault("cursor", options["now"] - missed * MINUTE)
    return plan_of(declared, open_fires=fires, **options)


NOTHING: tuple[OpenFire, ...] = ()
OPEN = (fire("started", open_at=NOW),)
UNSEEN = (fire("started", open_at=NOW - MINUTE),)
NEVER_SEEN = (fire("started"),)
SENT = (fire("starting"),)
CLAIMED = (fire("claimed"),)
CANCELLED = (fire("started", open_at=NOW, stop="cancel"),)
TERMINATED = (fire("started", open_at=NOW, stop="terminate"),)
WAITING = (*CANCELLED, fire("queued", QUEUED, 2))
MANUAL = (fire("started", "sched:k:manual:r-1", open_at=NOW),)
RERUN = (fire("started", "sched:k:7:rerun:1", open_at=NOW),)


@dataclass(frozen=True)
class Row:
    """One row: what is in the way, what becomes of the window, and of what is in the way."""

    policy: str
    in_the_way: tuple[OpenFire, ...]
    window: str
    reason: str | None = None
    moves: tuple[tuple[str, str], ...] = ()


# Of each policy all that may be in the way, in the order of the table.
TABLE = [
    Row("allow", NOTHING, "claimed"),
    Row("allow", OPEN, "claimed"),
    Row("allow", NEVER_SEEN, "claimed"),
    Row("allow", SENT, "claimed"),
    Row("allow", CLAIMED, "claimed"),
    Row("allow", WAITING, "claimed", None, ((QUEUED, "start"),)),
    Row("skip", NOTHING, "claimed"),
    Row("skip", OPEN, "skipped", f"overlap: {EARLIER} is still running"),
    Row("skip", MANUAL, "skipped", "overlap: sched:k:manual:r-1 is still running"),
    Row("skip", RERUN, "skipped", "overlap: sched:k:7:rerun:1 is still running"),
    Row("skip", UNSEEN, "undecided"),
    Row("skip", NEVER_SEEN, "undecided"),
    Row("skip", SENT, "withheld"),
    Row("skip", CLAIMED, "skipped", f"overlap: {EARLIER} comes first"),
    Row("skip", WAITING, "skipped", f"overlap: {EARLIER} is still running"),
    Row("queue", NOTHING, "claimed"),
    Row("queue", OPEN, "queued"),
    Row("queue", MANUAL, "queued"),
    Row("queue", RERUN, "queued"),
    Row("queue", UNSEEN, "undecided"),
    Row("queue", NEVER_SEEN, "undecided"),
    Row("queue", SENT, "queued"),
    Row("queue", CLAIMED, "queued"),
    Row("queue", WAITING, "queued"),
    Row("queue_one", NOTHING, "claimed"),
    Row("queue_one", OPEN, "queued"),
    Row("queue_one", MANUAL, "queued"),
    Row("queue_one", RERUN, "queued"),
    Row("queue_one", UNSEEN, "undecided"),
    Row("queue_one", NEVER_SEEN, "undecided"),
    Row("queue_one", SENT, "queued"),
    Row("queue_one", CLAIMED, "queued"),
    Row("queue_one", WAITING, "skipped", "overlap: the queue is full (1)"),
    *(
        row
        for policy, stop in (("cancel_previous", "cancel"), ("terminate_previous", "terminate"))
        for row in (
            Row(policy, NOTHING, "claimed"),
            Row(policy, OPEN, "queued", None, ((EARLIER, stop),)),
            Row(policy, MANUAL, "queued", None, (("sched:k:manual:r-1", stop),)),
            Row(policy, RERUN, "queued", None, (("sched:k:7:rerun:1", stop),)),
            Row(policy, UNSEEN, "undecided"),
            Row(policy, NEVER_SEEN, "undecided"),
            Row(policy, SENT, "queued", None, ((EARLIER, stop),)),
            Row(policy, CLAIMED, "claimed", None, ((EARLIER, "skip"),)),
            Row(policy, TERMINATED, "queued"),
        )
    ),
    Row("cancel_previous", CANCELLED, "queued"),
    Row("cancel_previous", WAITING, "queued", None, ((QUEUED, "skip"),)),
    Row("terminate_previous", CANCELLED, "queued", None, ((EARLIER, "terminate"),)),
    Row(
        "terminate_previous", WAITING, "queued", None, ((EARLIER, "terminate"), (QUEUED, "skip"))
    ),
]  # fmt: skip


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.policy}-{row.in_the_way}"[:60])
def test_what_is_in_the_way_decides_as_the_table_says(row, when):
    declared = schedule(row.policy, **when)
    decided = decide(declared, *row.in_the_way)
    assert tuple((move.fire.workflow_id, move.to) for move in decided.moves) == row.moves
    if row.window in {"undecided", "withheld"}:
        assert decided.withheld
        looks = row.in_the_way if row.window == "undecided" else ()
        assert (decided.decisions, decided.looks) == ((), looks)
        assert decided.cursor == NOW - MINUTE
        assert decided.next_fire_at == NOW, "it is due again at once"
        return
    (decision,) = decided.decisions
    assert (decision.verdict, decision.reason, decided.looks) == (row.window, row.reason, ())
    took_its_place = f"overlap: {decision.window.workflow_id(suffixed=False)} took its place"
    assert {move.reason for move in decided.moves if move.to != "start"} <= {took_its_place}


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        ("allow", ["claimed"] * 4),
        ("skip", ["skipped"] * 4),
        ("queue", ["queued"] * 4),
        ("queue_one", ["queued", "skipped", "skipped", "skipped"]),
        ("cancel_previous", ["queued"] * 4),
        ("terminate_previous", ["queued"] * 4),
    ],
)
def test_a_run_over_four_windows_is_in_the_way_of_each_of_them(policy, outcome, when):
    """Looking at the window before alone would overlap from the second one on."""
    declared = schedule(policy, **when)
    long_run = fire("started")
    fires, found = [long_run], []
    for step in range(4):
        now = NOW + step * MINUTE
        seen = [replace(each, open_at=now) if each is fires[0] else each for each in fires]
        decided = decide(declared, *seen, now=now)
        (decision,) = decided.decisions
        found.append(decision.verdict)
        gone = {move.fire.fire_id for move in decided.moves if move.to == "skip"}
        fires = [each for each in fires if each.fire_id not in gone]
        if decision.verdict == "queued":
            fires.append(fire("queued", f"sched:k:{step}", 10 + step))
    assert found == outcome
    waiting = [each.workflow_id for each in fires[1:]]
    kept = {"queue": 4, "queue_one": 1, "cancel_previous": 1, "terminate_previous": 1}
    assert len(waiting) == kept.get(policy, 0)
    if "previous" in policy:
        assert waiting == ["sched:k:3"], "the newest window superseded those that waited"


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        ("allow", ["claimed", "claimed", "claimed"]),
        ("skip", ["claimed", "skipped", "skipped"]),
        ("queue", ["claimed", "queued", "queued"]),
        ("queue_one", ["claimed", "queued", "skipped"]),
        ("cancel_previous", ["skipped", "skipped", "claimed"]),
        ("terminate_previous", ["skipped", "skipped", "claimed"]),
    ],
)
@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_windows_that_are_due_together_are_in_each_others_way(policy, outcome, order):
    declared = schedule(policy, everyMs=10_000, catchUp={"policy": "all", "order": order})
    decided = decide(declared, cursor=NOW - timedelta(seconds=25))
    assert [each.verdict for each in decided.decisions] == outcome
    late = decide(declared, cursor=NOW - timedelta(seconds=75))
    starts = [each.window.fire_time for each in late.decisions if each.verdict == "claimed"]
    oldest = order == "oldest" and "previous" not in policy
    if policy != "allow":
        assert starts == [NOW - timedelta(seconds=70) if oldest else NOW]


def test_the_excess_of_a_queue_is_skipped_and_what_waits_keeps_its_order():
    declared = schedule("queue", everyMs=10_000, maxQueued=3)
    waiting = fire("queued", QUEUED, 2)
    decided = decide(declared, *OPEN, waiting, cursor=NOW - timedelta(seconds=45))
    assert [(each.verdict, each.reason) for each in decided.decisions] == [
        ("queued", None),
        ("queued", None),
        ("skipped", "overlap: the queue is full (3)"),
        ("skipped", "overlap: the queue is full (3)"),
        ("skipped", "overlap: the queue is full (3)"),
    ]


def test_nothing_is_skipped_for_a_full_queue_before_the_run_in_front_was_looked_at():
    """It may have ended, and then there is room."""
    waiting = fire("queued", QUEUED, 2)
    assert decide(schedule("queue_one"), *UNSEEN, waiting).looks == UNSEEN
    assert decide(schedule("queue"), *UNSEEN, waiting).looks == (), "it has room"


def test_a_queued_fire_starts_when_nothing_runs_and_only_the_oldest_of_them():
    waiting = [fire("queued", f"sched:k:{number}", number) for number in (1, 2)]
    decided = decide(schedule("queue"), *waiting, cursor=NOW)
    assert [(move.fire.fire_id, move.to) for move in decided.moves] == [(1, "start")]
    assert decided.decisions == ()
    decided = decide(schedule("queue"), *OPEN, *waiting, cursor=NOW)
    assert decided.moves == ()


def test_a_window_that_opens_waits_behind_a_queued_one_that_may_start_now():
    decided = decide(schedule("queue"), fire("queued", QUEUED, 2))
    assert [move.to for move in decided.moves] == ["start"]
    assert [each.verdict for each in decided.decisions] == ["queued"]


LAID = tuple(
    fire("queued", f"sched:k:laid{number}", number, timing="backfill", overlap="queue")
    for number in (1, 2)
)


@pytest.mark.parametrize("policy", [each for each in get_args(Overlap) if each != "allow"])
def test_on_time_windows_overtake_a_backfill(policy):
    decided = decide(schedule(policy), *LAID)
    assert [each.verdict for each in decided.decisions] == ["claimed"]
    assert decided.moves == (), "what was laid waits, and is given up by nobody"


@pytest.mark.parametrize("policy", get_args(Overlap))
def test_what_a_backfill_has_laid_starts_on_a_place_that_nothing_else_wants(policy):
    decided = decide(schedule(policy), *LAID, cursor=NOW)
    assert [(move.fire.fire_id, move.to) for move in decided.moves] == [(1, "start")]
    assert decide(schedule(policy), *OPEN, *LAID, cursor=NOW).moves == ()


def test_what_waits_on_its_own_starts_before_what_a_backfill_has_laid():
    own = fire("queued", QUEUED, 3)
    decided = decide(schedule("queue"), *LAID, own, cursor=NOW)
    assert [(move.fire.fire_id, move.to) for move in decided.moves] == [(3, "start")]
    two = schedule("queue", maxConcurrentRuns=2)
    decided = decide(two, *LAID, own, cursor=NOW)
    assert [move.fire.fire_id for move in decided.moves] == [3, 1]


@pytest.mark.parametrize("policy", get_args(Overlap))
def test_a_line_that_begins_with_more_of_a_backfill_than_is_read_goes_on(policy):
    decided = decide(schedule(policy), *LAID, cursor=NOW, unread=Unread(waiting=1))
    assert [(move.fire.fire_id, move.to) for move in decided.moves] == [(1, "start")]
    decided = decide(schedule(policy), *LAID, unread=Unread(waiting=1))
    assert decided.cursor == NOW, "what opens is decided, and not planned over and over"


def test_a_backfill_fills_no_queue():
    decided = decide(schedule("queue", maxQueued=1), *OPEN, *LAID)
    assert [each.verdict for each in decided.decisions] == ["queued"]


def test_all_that_waits_starts_when_the_schedule_allows_overlap_now():
    waiting = [fire("queued", f"sched:k:{number}", number) for number in (1, 2)]
    assert [move.to for move in decide(schedule("allow"), *waiting).moves] == ["start", "start"]


def test_a_queued_request_keeps_to_its_own_policy():
    waiting = fire("queued", QUEUED, 2, overlap="queue")
    assert decide(schedule("allow"), *OPEN, waiting, cursor=NOW).moves == ()


def test_a_paused_schedule_promotes_nothing():
    decided = decide(schedule("queue"), fire("queued", QUEUED, 2), hold="paused")
    assert decided.moves == ()


def test_a_queued_fire_that_may_start_is_superseded_by_the_window_that_opens():
    decided = decide(schedule("cancel_previous"), fire("queued", QUEUED, 2))
    assert [(move.fire.workflow_id, move.to) for move in decided.moves] == [(QUEUED, "skip")]
    assert [each.verdict for each in decided.decisions] == ["claimed"]


def test_a_run_is_asked_once_however_many_windows_want_its_place():
    for policy in ("cancel_previous", "terminate_previous"):
        declared = schedule(policy, everyMs=10_000)
        cancelled = replace(OPEN[0], stop="cancel")
        decided = decide(declared, cancelled, cursor=NOW - timedelta(seconds=45))
        assert len(decided.moves) == (policy == "terminate_previous")
        assert [each.verdict for each in decided.decisions] == ["skipped"] * 4 + ["queued"]


def test_a_run_seen_open_settles_the_windows_until_then_and_the_others_ask_again():
    """Otherwise a schedule that fires faster than somebody looks would never be decided."""
    declared = schedule("skip", everyMs=1000)
    seen = NOW - timedelta(seconds=2)
    decided = decide(declared, fire("started", open_at=seen), cursor=NOW - timedelta(seconds=5))
    assert [each.verdict for each in decided.decisions] == ["skipped"] * 3
    assert decided.cursor == seen
    assert len(decided.looks) == 1
    assert decided.next_fire_at == seen + timedelta(seconds=1)


@pytest.mark.parametrize("doubtful", [UNSEEN, NEVER_SEEN, SENT])
def test_a_definition_that_ends_leaves_no_window_open_and_skips_none_for_a_run_nobody_saw(doubtful):
    decided = decide(schedule("skip"), *doubtful, final=True)
    (decision,) = decided.decisions
    assert (decision.verdict, decision.overlap) == ("queued", "skip")
    assert (decided.looks, decided.cursor) == ((), NOW)
    asks = fire("queued", "sched:k:asks", 2, overlap="skip")
    asks = replace(asks, fire_time=NOW)
    now = NOW + timedelta(seconds=1)
    assert decide(schedule("skip"), *doubtful, asks, cursor=NOW, now=now).withheld
    seen = replace(doubtful[0], status="started", open_at=now)
    moves = decide(schedule("skip"), seen, asks, cursor=NOW, now=now).moves
    assert [(move.to, move.reason) for move in moves] == [
        ("skip", f"overlap: {EARLIER} is still running")
    ]
    assert [move.to for move in decide(schedule("skip"), asks, cursor=NOW, now=now).moves] == [
        "start"
    ]


def test_no_window_gives_way_to_one_that_itself_asks_what_is_in_its_way():
    asks = fire("queued", "sched:k:asks", 2, overlap="skip")
    decided = decide(schedule("skip"), *NEVER_SEEN, asks)
    assert (decided.decisions, decided.moves, decided.looks) == ((), (), NEVER_SEEN)
    assert decided.withheld


def test_the_reason_names_a_run_that_was_seen_open():
    other = fire("started", "sched:k:later", 2, open_at=NOW)
    decided = decide(schedule("skip"), *UNSEEN, other)
    assert decided.decisions[0].reason == "overlap: sched:k:later is still running"


def test_the_id_in_a_reason_has_the_series_where_ids_do():
    decided = decide(schedule("skip", everyMs=30_000), suffixed=True)
    first, second = decided.decisions
    assert second.reason == f"overlap: {first.window.workflow_id(suffixed=True)} comes first"


def test_what_was_caught_up_counts_for_nothing_once_it_is_skipped():
    decided = decide(schedule("skip"), *OPEN, missed=10)
    coalesced, newest = decided.decisions
    assert (coalesced.windows, coalesced.verdict) == (9, "skipped")
    assert (newest.verdict, newest.missed, newest.timing) == ("skipped", 0, None)


# What waited for windows of other schedules: overlap is asked once these have let it go.

CLOSED_AT = NOW - MINUTE / 2
MET = (Dependency("parent", "success", "completed", since=CLOSED_AT),)
PENDING = (Dependency("parent", "success", "pending"),)
FAILED = (Dependency("parent", "success", "pending"), Dependency("other", "success", "failed"))


def waiting(number: int, awaited: tuple[Dependency, ...], minutes: int = 1) -> OpenFire:
    name, at = f"sched:k:w{number}", NOW - minutes * MINUTE
    return OpenFire(number, name, "queued", at, awaited=awaited)


def moved(policy: str, *fires: OpenFire, **options: Any) -> list[tuple[str, str, str | None]]:
    declared = schedule(policy, needs=["parent"])
    decided = decide(declared, *fires, missed=0, **options)
    return [(move.fire.workflow_id, move.to, move.reason) for move in decided.moves]


@pytest.mark.parametrize("policy", get_args(Overlap))
def test_what_its_parents_have_let_go_starts_where_nothing_is_in_the_way(policy):
    assert moved(policy, waiting(1, MET)) == [("sched:k:w1", "start", None)]


@pytest.mark.parametrize("policy", get_args(Overlap))
def test_what_its_parents_have_not_let_go_does_not_move(policy):
    assert moved(policy, *OPEN, waiting(2, PENDING)) == []


@pytest.mark.parametrize("policy", get_args(Overlap))
def test_what_its_parents_can_never_let_go_is_skipped_whatever_runs(policy):
    skipped = ("sched:k:w2", "skip", "dependency: other failed")
    assert moved(policy, *OPEN, waiting(2, FAILED)) == [skipped]


@pytest.mark.parametrize("policy", ["skip", "cancel_previous", "terminate_previous"])
def test_a_run_is_looked_at_before_it_costs_what_was_let_go_its_start(policy):
    """It was seen open before the last parent closed; whether it still is nobody knows."""
    before = fire("started", open_at=CLOSED_AT - MINUTE)
    declared = schedule(policy, needs=["parent"])
    decided = decide(declared, before, waiting(2, MET))
    assert (decided.looks, decided.moves) == ((before,), ())
    assert [each.verdict for each in decided.decisions] == ["queued"], "new windows wait meanwhile"
    assert moved(policy, before, waiting(2, MET), final=True) == [], "it goes on waiting"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("allow", [("sched:k:w2", "start", None)]),
        ("skip", [("sched:k:w2", "skip", f"overlap: {EARLIER} is still running")]),
        ("queue", [("sched:k:w2", "release", None)]),
        ("queue_one", [("sched:k:w2", "release", None)]),
        (
            "cancel_previous",
            [
                (EARLIER, "cancel", "overlap: sched:k:w2 took its place"),
                ("sched:k:w2", "release", None),
            ],
        ),
        (
            "terminate_previous",
            [
                (EARLIER, "terminate", "overlap: sched:k:w2 took its place"),
                ("sched:k:w2", "release", None),
            ],
        ),
    ],
)
def test_a_run_seen_open_since_its_parents_closed_is_in_the_way_of_what_they_let_go(
    policy, expected
):
    seen = fire("started", open_at=CLOSED_AT)
    assert moved(policy, seen, waiting(2, MET)) == expected


def test_of_several_that_are_let_go_at_once_the_newest_takes_the_place_of_the_others():
    older, newer = waiting(2, MET, 2), waiting(1, MET, 1)
    pending = waiting(3, PENDING, 3)
    assert moved("cancel_previous", newer, older, pending) == [
        ("sched:k:w3", "skip", "overlap: sched:k:w2 took its place"),
        ("sched:k:w2", "skip", "overlap: sched:k:w1 took its place"),
        ("sched:k:w1", "start", None),
    ]


def test_what_is_newer_and_still_waits_is_not_given_up():
    newer = waiting(2, PENDING, 0)
    assert moved("cancel_previous", waiting(1, MET), newer) == [("sched:k:w1", "start", None)]


def test_a_queue_keeps_the_place_of_what_waits_and_others_hold_nobody_up():
    line = (waiting(1, PENDING, 2), waiting(2, MET, 1))
    assert moved("queue", *line) == [("sched:k:w2", "release", None)]
    for policy in ("allow", "skip"):
        assert ("sched:k:w2", "start", None) in moved(policy, *line)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("allow", "dependency: the queue is full (2)"),
        ("skip", "dependency: the queue is full (2)"),
        ("queue", "overlap: the queue is full (2)"),
        ("queue_one", "overlap: the queue is full (1)"),
    ],
)
def test_only_so_many_windows_wait_for_others(policy, reason):
    decided = decide(schedule(policy, needs=["parent"], maxQueued=2, grace="1h"), missed=4)
    room = 1 if policy == "queue_one" else 2
    assert [each.verdict for each in decided.decisions] == ["queued"] * room + ["skipped"] * (
        4 - room
    )
    assert decided.decisions[0].reason == "dependency: waits for parent"
    assert decided.decisions[-1].reason == reason


def test_a_manual_run_asks_no_parent_and_none_that_waits_is_in_its_way():
    asked = Decision(Window("k", 1, 7, NOW), "claimed")
    resolved = resolve(
        "skip", [asked], [waiting(1, PENDING)], most_queued=9, named=lambda _: "m", final=True
    )
    assert resolved.decisions == (asked,)
    assert resolved.moves == ()


def test_a_hold_lets_nothing_go_and_gives_nothing_up():
    fires = (waiting(1, MET), waiting(2, FAILED))
    assert moved("allow", *fires, hold="paused") == []
