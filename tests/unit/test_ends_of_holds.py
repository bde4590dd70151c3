"""A pause that ends by itself loses no window that a resume by hand would have started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.schedules import Schedule
from engine.schedules.planner.decisions import OpenFire, Plan
from engine.schedules.terms import Reason, code_of
from tests.unit.planning import plan_of

END = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
BEGAN = END - timedelta(hours=2)
SECOND = timedelta(seconds=1)
NOBODY = Reason("unknown_workflow", "nobody")
RUN = OpenFire(1, "sched:k:manual:1", "started", BEGAN, open_at=END - 2 * SECOND)
"""A run that was open when the pause began, last seen shortly before its end."""

Fates = Mapping[datetime, tuple[str, str | None]]


def schedule(**fields: Any) -> Schedule:
    return Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 60_000, **fields})


def fates(declared: Schedule, plans: list[Plan]) -> Fates:
    """What became of each window of the pause, by its fire time."""
    found: dict[datetime, tuple[str, str | None]] = {}
    for each in (decision for planned in plans for decision in planned.decisions):
        for at in declared.spec.fires(each.window.fire_time - SECOND, each.until):
            assert at not in found
            if at < END:
                found[at] = (each.verdict, code_of(each.reason))
    return found


def resumed_by_hand(declared: Schedule, **options: Any) -> Fates:
    on_resume = declared.catch_up.after("pause")
    decided = plan_of(
        declared, cursor=BEGAN, now=END - SECOND, hold="paused", on_resume=on_resume, final=True,
        **{**options, "rows": 2000},
    )  # fmt: skip
    return fates(declared, [decided])


def ended_by_itself(declared: Schedule, **options: Any) -> Fates:
    """Plan as a tick does, and look at what a plan asks for, until the pause is over."""
    plans, cursor, now = list[Plan](), BEGAN, END + SECOND
    started, runs = options.pop("started", 0), options.pop("open_fires", ())
    for _ in range(100):
        decided = plan_of(
            declared, cursor=cursor, now=now, hold_until=END, started=started, open_fires=runs,
            **options,
        )  # fmt: skip
        plans.append(decided)
        if decided.resumed:
            return fates(declared, plans)
        cursor = decided.cursor
        started += sum(each.verdict in {"claimed", "queued"} for each in decided.decisions)
        runs = tuple(replace(run, open_at=now) for run in runs)
        now += SECOND
    raise AssertionError("it never ends")


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a run is open, and they wait": (
        {"overlap": "queue", "maxQueued": 200}, {"open_fires": (RUN,)},
    ),
    "a run is open beside many places": (
        {"overlap": "queue", "maxQueued": 200, "maxConcurrentRuns": 2},
        {"open_fires": (RUN, replace(RUN, fire_id=2, workflow_id="sched:k:manual:2"))},
    ),
    "a limit that leaves some": ({"limit": 5}, {"started": 2}),
    "a limit that is reached": ({"limit": 3}, {"started": 3}),
    "nobody knows the workflow": ({}, {"unable": NOBODY}),
    "few rows": ({"exclude": ["2026-11-21T05:30:00Z..2026-11-21T05:40:00Z"]}, {"rows": 7}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", ["latest", "all", "none"])
def test_a_pause_that_ends_by_itself_decides_what_a_resume_decides(policy, case):
    fields, options = CASES[case]
    declared = schedule(catchUp={"pause": policy, "max": 200}, **fields)
    by_hand = resumed_by_hand(declared, **options)
    assert len(by_hand) == 119
    assert ended_by_itself(declared, **options) == by_hand


def by_verdict(found: Fates) -> dict[tuple[str, str | None], int]:
    values = [*found.values()]
    return {each: values.count(each) for each in values}


@pytest.mark.parametrize("end", [resumed_by_hand, ended_by_itself])
def test_the_end_of_a_pause_starts_no_more_than_a_limit_leaves(end):
    declared = schedule(catchUp={"pause": "all", "max": 200}, limit=5)
    assert by_verdict(end(declared, started=2)) == {
        ("claimed", None): 3,
        ("skipped", "limit"): 116,
    }
    assert by_verdict(end(declared, started=5)) == {("skipped", "paused"): 119}


def test_what_the_end_of_a_pause_starts_leaves_less_to_the_windows_after_it():
    declared = schedule(catchUp={"pause": "all", "max": 2}, limit=3)
    decided = plan_of(
        declared, cursor=BEGAN, now=END + timedelta(minutes=1), effective_from=BEGAN,
        hold_until=END,
    )  # fmt: skip
    started = [each.window.fire_time for each in decided.decisions if each.verdict == "claimed"]
    assert started == [END - timedelta(minutes=2), END - timedelta(minutes=1), END]
    assert decided.resumed
    assert decided.next_fire_at is None, "the limit is reached"


@pytest.mark.parametrize("end", [resumed_by_hand, ended_by_itself])
def test_the_end_of_a_pause_starts_nothing_that_nobody_can_run(end):
    declared = schedule(catchUp={"pause": "all", "max": 50})
    assert by_verdict(end(declared, unable=NOBODY)) == {
        ("skipped", "paused"): 69,
        ("rejected", "unknown_workflow"): 50,
    }
    latest = schedule(catchUp={"pause": "latest"})
    assert by_verdict(end(latest, unable=NOBODY)) == {
        ("skipped", "coalesced"): 118,
        ("rejected", "unknown_workflow"): 1,
    }


def test_what_nobody_can_run_is_one_row_however_many_windows_a_pause_had():
    declared = schedule(catchUp={"pause": "all", "max": 50})
    decided = plan_of(
        declared, cursor=BEGAN, now=END, hold="paused", on_resume=declared.catch_up.after("pause"),
        unable=NOBODY, final=True,
    )  # fmt: skip
    assert [(each.verdict, each.windows) for each in decided.decisions] == [
        ("skipped", 70),
        ("rejected", 50),
    ]


def test_a_pause_that_has_ended_waits_for_a_look_of_after_its_end():
    declared = schedule(catchUp={"pause": "all", "max": 200}, overlap="queue", maxQueued=200)
    decided = plan_of(
        declared, cursor=BEGAN, now=END + SECOND, hold_until=END, open_fires=(RUN,)
    )  # fmt: skip
    assert (decided.decisions, decided.looks, decided.resumed) == ((), (RUN,), False)
    assert decided.withheld
    seen = replace(RUN, open_at=END + SECOND / 2)
    decided = plan_of(
        declared, cursor=BEGAN, now=END + timedelta(minutes=1), hold_until=END, open_fires=(seen,)
    )  # fmt: skip
    assert decided.resumed, "also where its schedule fires faster than runs are looked at"
    assert {each.verdict for each in decided.decisions} == {"queued"}
