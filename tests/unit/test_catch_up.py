"""Catch-up, holds and the size of a plan: the tables in docs/decisions.md, row by row."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

import pytest

from engine.schedules import Schedule
from engine.schedules.model import CatchUp
from engine.schedules.planner.decisions import Decision, OpenFire, Plan
from engine.schedules.planner.planner import MOST_ROWS
from tests.unit.planning import plan_of

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def schedule(catch_up: dict[str, Any] | None = None, **fields: Any) -> Schedule:
    when = {} if "cron" in fields else {"everyMs": 60_000}
    declared = {"key": "k", "workflow": "w", **when, "catchUp": catch_up or {}, **fields}
    return Schedule.from_json(declared)


def decide(declared: Schedule, cursor: datetime, **options: Any) -> Plan:
    options.setdefault("now", NOW)
    options.setdefault("effective_from", cursor - DAY)
    return plan_of(declared, cursor=cursor, **options)


def fates(declared: Schedule, decided: Plan) -> dict[int, str]:
    """What became of each window, by its age in seconds."""
    found: dict[int, str] = {}
    for each in decided.decisions:
        for at in declared.spec.fires(each.window.fire_time - TICK, each.until):
            assert at not in found
            found[round((NOW - at) / SECOND)] = said(each)
    return dict(sorted(found.items()))


def said(decision: Decision) -> str:
    words = [decision.verdict, decision.timing or "", decision.reason or ""]
    return " ".join(filter(None, words))


# An interval of 20 seconds with grace 60 s and a catch-up window of 2 minutes, at NOW. Of a long
# outage: the newest window (age 0), those younger than grace, older, beyond the catch-up window.
AGES = {"newest": [0], "young": [20, 40, 60], "older": [80, 100, 120], "beyond": [140, 160, 180]}
INTO = f"coalesced into {int(NOW.timestamp()) // 20}"
FOR_ALL = "claimed caught_up caught up for 6 missed windows"
TOO_OLD = "expired older than the catch-up window"
NOT_WANTED = "expired missed, and catchUp is none"

TABLE = [
    # cause, policy, then the fate by age
    ("outage", "latest", FOR_ALL, f"skipped {INTO}", f"skipped {INTO}", TOO_OLD),
    ("outage", "all", *["claimed caught_up"] * 3, TOO_OLD),
    ("outage", "none", *["claimed on_time"] * 2, NOT_WANTED, NOT_WANTED),
    ("paused", "latest", FOR_ALL, f"skipped {INTO}", f"skipped {INTO}", "skipped paused"),
    ("paused", "all", *["claimed caught_up"] * 3, "skipped paused"),
    ("paused", "none", *["skipped paused"] * 4),
    ("disabled", "latest", FOR_ALL, f"skipped {INTO}", f"skipped {INTO}", "skipped disabled"),
    ("disabled", "all", *["claimed caught_up"] * 3, "skipped disabled"),
    ("disabled", "none", *["skipped disabled"] * 4),
]


@pytest.mark.parametrize("when", [{"everyMs": 20_000}, {"cron": "*/20 * * * * *"}])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[1]}")
def test_what_was_missed_becomes_what_the_table_says(row, when):
    cause, policy, *by_age = row
    field = {"outage": "policy", "paused": "pause", "disabled": "deploy"}[cause]
    others = {"policy": "none", "pause": "none", "deploy": "none"}
    declared = schedule({**others, field: policy, "window": "2m"}, **when)
    options: dict[str, Any] = {}
    if cause != "outage":
        on_resume = declared.catch_up.after("pause" if cause == "paused" else "deploy")
        options = {"hold": cause, "on_resume": on_resume, "final": True}
    found = fates(declared, decide(declared, NOW - 181 * SECOND, **options))
    if when.get("cron"):
        found = {age: fate.replace(bucket_of(declared), INTO) for age, fate in found.items()}
    assert found == {
        age: fate for ages, fate in zip(AGES.values(), by_age, strict=True) for age in ages
    }


def bucket_of(declared: Schedule) -> str:
    return f"coalesced into {declared.spec.bucket(NOW)}"


@pytest.mark.parametrize("policy", ["latest", "all", "none"])
@pytest.mark.parametrize("window", ["0s", "2m"])
def test_every_window_starts_on_time_while_the_oldest_is_at_most_grace_old(policy, window):
    declared = schedule({"policy": policy, "window": window}, everyMs=20_000)
    found = fates(declared, decide(declared, NOW - 61 * SECOND))
    assert found == dict.fromkeys([0, 20, 40, 60], "claimed on_time")


def test_a_window_younger_than_grace_never_expires():
    declared = schedule({"policy": "all", "window": "0s"}, everyMs=20_000)
    found = fates(declared, decide(declared, NOW - 101 * SECOND))
    young = dict.fromkeys([0, 20, 40, 60], "claimed caught_up")
    assert found == {**young, 80: TOO_OLD, 100: TOO_OLD}


@pytest.mark.parametrize("policy", ["latest", "all", "none"])
def test_the_run_of_a_spread_window_is_missed_only_when_its_own_moment_has_passed(policy):
    declared = schedule({"policy": policy}, everyMs=3_600_000, spread="50m")
    delay = declared.delay(NOW)
    assert delay > 2 * MINUTE
    decided = decide(declared, NOW - TICK, now=NOW + delay + MINUTE)
    assert [said(each) for each in decided.decisions] == ["claimed on_time"]
    decided = decide(declared, NOW - TICK, now=NOW + delay + MINUTE + TICK)
    fate = {"latest": "claimed caught_up", "all": "claimed caught_up", "none": NOT_WANTED}[policy]
    assert [said(each) for each in decided.decisions] == [fate]


def test_two_thousand_missed_windows_become_one_start_in_constant_time_and_memory():
    declared = schedule({"window": "48h"})
    tracemalloc.start()
    decided = decide(declared, NOW - 2000 * MINUTE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    coalesced, start = decided.decisions
    assert (coalesced.verdict, coalesced.windows) == ("skipped", 1999)
    assert (start.verdict, start.missed) == ("claimed", 1999)
    assert start.missed_from == coalesced.window.fire_time
    assert peak < 200_000
    assert decided.cursor == NOW
    began = process_time()
    decide(declared, NOW - 365 * DAY)
    assert process_time() - began < 0.5


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_the_newest_fifty_of_two_thousand_start_at_their_rate_and_the_others_expire(order):
    policy = {"policy": "all", "window": "48h", "max": 50, "rate": "5/1s", "order": order}
    decided = decide(schedule(policy), NOW - 2000 * MINUTE)
    expired, *starts = decided.decisions
    assert (said(expired), expired.windows) == ("expired beyond catchUp.max 50", 1950)
    moments = [each.not_before or NOW for each in starts]
    assert moments == [NOW + number * SECOND / 5 for number in range(50)]
    ages = [(NOW - each.window.fire_time) / MINUTE for each in starts]
    assert ages == [*range(50)] if order == "newest" else [*range(49, -1, -1)]


def test_what_a_pause_missed_beyond_max_stays_skipped_for_the_pause():
    declared = schedule({"pause": "all", "max": 3})
    on_resume = declared.catch_up.after("pause")
    skipped, *starts = decide(
        declared, NOW - 10 * MINUTE, hold="paused", on_resume=on_resume, final=True
    ).decisions
    assert (said(skipped), skipped.windows, len(starts)) == ("skipped paused", 7, 3)


def test_the_rate_counts_only_what_starts():
    """Of fifty windows that exclude each other one starts, and it waits for none of the others."""
    policy = {"policy": "all", "max": 50, "rate": "1/1h"}
    declared = schedule(policy, overlap="cancel_previous")
    starts = [e for e in decide(declared, NOW - 60 * MINUTE).decisions if e.verdict == "claimed"]
    assert [(each.window.fire_time, each.not_before) for each in starts] == [(NOW, None)]


def test_a_caught_up_run_still_waits_for_its_part_of_the_spread():
    declared = schedule({"policy": "all", "rate": "100/1s"}, everyMs=600_000, spread="10m")
    assert declared.delay(NOW) > MINUTE
    *_, newest = decide(declared, NOW - timedelta(hours=1)).decisions
    assert newest.not_before == NOW + declared.delay(NOW)


def test_windows_of_many_days_are_found_from_the_newest_back():
    declared = schedule({"policy": "all", "window": "40d", "max": 30}, cron="0 12 * * *")
    expired, *starts = decide(declared, NOW - 41 * DAY).decisions
    assert [each.window.fire_time for each in starts] == [NOW - n * DAY for n in range(29, -1, -1)]
    assert expired.windows == 11


def test_a_window_that_an_operator_skipped_makes_no_other_one_late():
    declared = schedule(everyMs=600_000)
    known = {NOW - 10 * MINUTE: False}
    decided = decide(declared, NOW - 11 * MINUTE, known=known)
    assert [said(each) for each in decided.decisions] == ["claimed on_time"]


def test_room_is_needed_for_starts_and_not_for_what_is_skipped():
    midnight = NOW.replace(hour=0)
    declared = schedule(everyMs=10_000, exclude=["2026-11-20"])
    decided = decide(declared, midnight - MINUTE, now=midnight + 20 * SECOND, limit=2)
    assert [each.verdict for each in decided.decisions] == ["skipped", "claimed", "claimed"]
    assert decided.cursor == midnight + 10 * SECOND


def test_starts_beyond_the_room_are_claimed_and_not_sent():
    decided = decide(schedule({"policy": "all"}), NOW - 10 * MINUTE, limit=3)
    starts = [each for each in decided.decisions if each.verdict == "claimed"]
    assert len(starts) == 10
    assert [each.not_before for each in starts] == [None] * 3 + [NOW] * 7


@pytest.mark.parametrize("policy", ["latest", "all", "none"])
def test_excluded_windows_stay_excluded_under_every_policy(policy):
    declared = schedule({"policy": policy}, everyMs=3_600_000, exclude=["2026-11-20"])
    decided = decide(declared, NOW - 20 * timedelta(hours=1))
    off = [said(each) for each in decided.decisions if each.window.fire_time.day == 20]
    assert off == ["skipped excluded: 2026-11-20"]


def test_windows_that_have_a_row_already_are_passed_over():
    known = {NOW - 3 * MINUTE: False, NOW - 5 * MINUTE: True}
    decided = decide(schedule(), NOW - 6 * MINUTE, known=known)
    found = fates(schedule(), decided)
    assert sorted(found) == [0, 60, 120, 240]
    assert decided.decisions[-1].missed == 3


def test_a_newer_window_that_has_run_stands_for_those_that_were_missed():
    decided = decide(schedule(), NOW - 6 * MINUTE, known={NOW: True})
    bucket = schedule().spec.bucket(NOW)
    assert [said(each) for each in decided.decisions] == [f"skipped coalesced into {bucket}"]
    assert decided.decisions[0].windows == 5
    assert decided.cursor == NOW


def test_a_newer_window_that_an_operator_skipped_stands_for_nothing():
    decided = decide(schedule(), NOW - 6 * MINUTE, known={NOW: False})
    assert decided.decisions[-1].window.fire_time == NOW - MINUTE
    assert said(decided.decisions[-1]) == "claimed caught_up caught up for 4 missed windows"


def test_without_catch_up_a_spread_window_starts_as_long_as_its_own_moment_is_young():
    declared = schedule({"policy": "none"}, everyMs=3_600_000, spread="50m")
    now = NOW + declared.delay(NOW) + 30 * SECOND
    decided = decide(declared, NOW - timedelta(hours=1, seconds=1), now=now)
    assert [said(each) for each in decided.decisions] == [NOT_WANTED, "claimed on_time"]


# Holds: of one window a minute, at NOW; the pause ends by itself at `until`.


@pytest.mark.parametrize("hold", ["paused", "disabled", "retired"])
def test_windows_of_a_hold_are_one_row_whatever_the_days_off(hold):
    declared = schedule(exclude=["SAT"])
    decided = decide(declared, NOW - DAY, hold=hold)
    assert [(said(each), each.windows) for each in decided.decisions] == [(f"skipped {hold}", 1440)]
    assert (decided.resumed, decided.next_fire_at, decided.cursor) == (False, None, NOW)


def test_a_pause_that_ends_by_itself_frees_the_window_that_opens_right_then():
    decided = decide(schedule(), NOW - 10 * MINUTE, hold="paused", hold_until=NOW)
    assert [(said(each), each.windows) for each in decided.decisions] == [
        ("skipped paused", 9),
        ("claimed on_time", 1),
    ]
    assert decided.resumed
    assert decided.next_fire_at == NOW + MINUTE


def test_a_pause_that_still_lasts_is_looked_at_when_it_ends():
    decided = decide(schedule(), NOW - MINUTE, hold="paused", hold_until=NOW + DAY)
    assert (decided.resumed, decided.next_fire_at) == (False, NOW + DAY)


def test_what_opened_after_a_pause_is_an_outage_of_its_own():
    declared = schedule({"pause": "none", "policy": "latest"})
    decided = decide(declared, NOW - 30 * MINUTE, hold="paused", hold_until=NOW - 10 * MINUTE)
    assert [(said(each).split()[:2], each.windows) for each in decided.decisions] == [
        (["skipped", "paused"], 19),
        (["skipped", "coalesced"], 10),
        (["claimed", "caught_up"], 1),
    ]


def test_what_a_pause_missed_is_too_old_by_the_clock_and_not_by_its_end():
    declared = schedule({"pause": "latest", "policy": "none", "window": "15m"})
    ended = NOW - 20 * MINUTE
    decided = decide(declared, NOW - 30 * MINUTE, hold="paused", hold_until=ended)
    assert said(decided.decisions[0]) == "skipped paused"
    assert decided.decisions[0].windows == 9


def test_a_pause_of_a_disabled_schedule_ends_nothing():
    """Its windows up to now are decided: none may fall between the two holds."""
    decided = decide(schedule(), NOW - 9 * MINUTE, hold="disabled", hold_until=NOW - 5 * MINUTE)
    assert [each.windows for each in decided.decisions] == [9]
    assert not decided.resumed


def test_a_pause_is_not_over_before_its_windows_are_decided():
    """They would be taken for those of an outage otherwise."""
    declared = schedule({"pause": "latest"}, overlap="skip")
    decided = decide(
        declared, NOW - 30 * MINUTE, hold="paused", hold_until=NOW - 10 * MINUTE,
        open_fires=(OpenFire(1, "sched:k:1", "started", NOW - DAY),),
    )  # fmt: skip
    assert decided.looks
    assert not decided.resumed
    assert decided.cursor == NOW - 30 * MINUTE
    assert decided.next_fire_at == NOW - 10 * MINUTE


def test_a_pause_that_ends_by_itself_is_made_up_for_as_the_schedule_says():
    declared = schedule({"pause": "latest"})
    decided = decide(declared, NOW - 10 * MINUTE, hold="paused", hold_until=NOW)
    assert [(said(each).split()[:2], each.windows) for each in decided.decisions] == [
        (["skipped", "coalesced"], 8),
        (["claimed", "caught_up"], 1),
        (["claimed", "on_time"], 1),
    ]


# The size of a plan.

# Every second minute is excluded, under a name of its own: two thousand rows are four thousand
# windows.
START = datetime(2026, 11, 1, tzinfo=UTC)


def striped(stripes: int, **catch_up: Any) -> Schedule:
    def text(minute: int) -> str:
        return (START + minute * MINUTE).strftime("%Y-%m-%dT%H:%M:%SZ")

    off = [f"{text(2 * number)}..{text(2 * number + 1)}" for number in range(stripes)]
    return schedule(catch_up, exclude=[{"name": "off", "dates": off}])


def lived(declared: Schedule, cursor: datetime, now: datetime, **options: Any) -> list[Plan]:
    """Plan until nothing is due."""
    plans = []
    while True:
        plans.append(decide(declared, cursor, now=now, **options))
        assert plans[-1].cursor > cursor
        cursor, upcoming = plans[-1].cursor, plans[-1].next_fire_at
        if upcoming is None or upcoming > now:
            return plans


@pytest.mark.parametrize("policy", ["latest", "all", "none"])
def test_a_year_with_every_second_day_off_takes_plans_of_bounded_size(policy):
    declared = striped(2500, policy=policy, max=100)
    end = START + 5100 * MINUTE
    plans = lived(declared, START - TICK, end)
    assert [len(each.decisions) <= MOST_ROWS for each in plans] == [True] * len(plans)
    assert len(plans) > 1
    windows = sum(each.windows for decided in plans for each in decided.decisions)
    assert windows == declared.spec.count(START - TICK, end)


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_what_starts_is_never_divided_between_two_plans(order):
    """Neither order nor rate would hold across them."""
    declared = striped(1200, policy="all", max=300, order=order, rate="1/1s")
    plans = lived(declared, START - TICK, START + 2400 * MINUTE)
    starting = [p for p in plans if any(each.verdict == "claimed" for each in p.decisions)]
    assert len(plans) == 2
    assert len(starting) == 1
    starts = [each for each in starting[0].decisions if each.verdict == "claimed"]
    times = [each.window.fire_time for each in starts]
    assert len(starts) == 300
    assert times == sorted(times, reverse=order == "newest")


def test_the_number_of_missed_windows_survives_a_plan_that_was_too_large():
    declared = striped(1500, window="20h")  # 1800 minutes expire, 600 stripes are within
    plans = lived(declared, START - TICK, START + 3000 * MINUTE)
    assert len(plans) == 2
    (start,) = [each for decided in plans for each in decided.decisions if each.timing]
    coalesced = [
        each for p in plans for each in p.decisions if (each.reason or "").startswith("coal")
    ]
    assert start.missed == sum(each.windows for each in coalesced) == 600


def test_a_definition_that_ends_starts_all_that_it_owes_whatever_the_room():
    decided = decide(schedule(everyMs=1000), NOW - 20 * SECOND, limit=5, final=True)
    assert (len(decided.decisions), decided.cursor) == (20, NOW)
    assert [each.not_before for each in decided.decisions] == [None] * 5 + [NOW] * 15


def test_a_definition_that_ends_decides_everything_however_much():
    declared = striped(2500)
    end = START + 5100 * MINUTE
    decided = decide(declared, START - TICK, now=end, final=True, hold="paused",
                     on_resume=CatchUp(policy="all", window=30 * DAY))  # fmt: skip
    assert sum(each.windows for each in decided.decisions) == 5101
    assert decided.cursor == end
