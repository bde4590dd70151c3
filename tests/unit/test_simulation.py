"""A simulated file: every window accounted for, as a simulation minute by minute says."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.schedules import Schedule, load_schedules
from engine.schedules.planner.decisions import ScheduleState
from engine.schedules.planner.planner import plan, wake_at
from engine.schedules.simulation import Outage, Timeline, simulate
from tests.examples import examples

MINUTE = timedelta(minutes=1)
DAY = datetime(2026, 11, 20, tzinfo=UTC)  # a Friday


def schedule(key: str = "k", **fields: Any) -> Schedule:
    return Schedule.from_json({"key": key, "workflow": "w", **fields})


def at(hours: float) -> datetime:
    return DAY + timedelta(hours=hours)


def counts(declared: Schedule, hours: float, *outages: tuple[float, float]) -> dict[str, int]:
    gaps = [Outage(at(begin), at(end)) for begin, end in outages]
    (totals,) = simulate([declared], DAY, at(hours), outages=gaps).schedules
    assert sum(totals.counts.values()) == totals.windows
    return {str(name): count for name, count in totals.counts.items()}


@dataclass
class Naive:
    """Decides by the sentences of docs/schedules.md, one minute after the other.

    Everything is in minutes since the beginning; fire times come from a predicate, not a spec.
    """

    every: int
    offset: int
    grace: int
    window: int
    days_off: frozenset[int]
    outages: list[tuple[int, int]]

    def live(self, minutes: int) -> tuple[Counter[str], Counter[int]]:
        counted: Counter[str] = Counter()
        started: Counter[int] = Counter()
        waiting: list[int] = []
        for now in range(minutes):
            if (now - self.offset) % self.every == 0:
                if now // 1440 in self.days_off:
                    counted["excluded"] += 1
                else:
                    waiting.append(now)
            if not waiting or any(begin <= now < end for begin, end in self.outages):
                continue
            if now - waiting[0] <= self.grace:
                counted["on_time"] += len(waiting)
                started[now] += len(waiting)
            else:
                kept = [
                    window for window in waiting if now - window <= max(self.window, self.grace)
                ]
                counted["expired"] += len(waiting) - len(kept)
                counted["coalesced"] += max(0, len(kept) - 1)
                counted["caught_up"] += bool(kept)
                started[now] += bool(kept)
            waiting = []
        assert not waiting
        return +counted, +started


@settings(max_examples=examples(150), deadline=None)
@given(
    every=st.sampled_from([1, 2, 5, 7, 60, 90, 1440]),
    offset=st.integers(0, 1440),
    grace=st.sampled_from([0, 1, 3, 30]),
    window=st.sampled_from([0, 10, 60, 600]),
    days_off=st.frozensets(st.integers(0, 2)),
    cuts=st.lists(st.integers(0, 3 * 1440 - 1), max_size=6, unique=True),
    by_cron=st.booleans(),
)
def test_it_agrees_with_a_naive_simulation_and_accounts_for_every_window(
    every, offset, grace, window, days_off, cuts, by_cron
):
    cuts = sorted(cuts)
    outages = list(zip(cuts[::2], cuts[1::2], strict=False))
    by_cron = by_cron and every in {1, 2, 5, 60}
    offset %= every
    if by_cron:
        when: dict[str, Any] = {
            "cron": f"{offset}-59/{every} * * * *" if every < 60 else f"{offset} * * * *"
        }
    else:
        # Friday is day 20,777 since the epoch, so that offsets count from its midnight.
        since = int(DAY.timestamp()) // 60
        when = {"everyMs": every * 60_000, "offsetMs": (since + offset) * 60_000}
    dates = [str(date(2026, 11, 20 + day)) for day in sorted(days_off)]
    off: dict[str, Any] = {"exclude": dates} if dates else {}
    declared = schedule(
        **when,
        **off,
        grace=f"{grace}m",
        catchUp={"window": f"{window}m"},
    )
    found = simulate(
        [declared], DAY, DAY + timedelta(days=3),
        outages=[Outage(DAY + begin * MINUTE, DAY + end * MINUTE) for begin, end in outages],
    )  # fmt: skip
    counted, started = Naive(every, offset, grace, window, days_off, outages).live(3 * 1440)
    (totals,) = found.schedules
    assert {name: count for name, count in totals.counts.items() if count} == counted
    assert {minute: count for minute, count in enumerate(found.starts) if count} == started
    assert totals.windows == sum(counted.values())
    assert totals.windows == declared.spec.count(
        DAY - timedelta(microseconds=1), DAY + timedelta(days=3, microseconds=-1)
    )


def walked(
    declared: Schedule, end: datetime, gaps: list[Outage]
) -> tuple[Counter[str], Counter[int]]:
    """Ask the planner at each moment at which the ledger would wake, and count what it says.

    It returns the windows by outcome, and the starts by minute.
    """
    found: Counter[str] = Counter()
    starts: Counter[int] = Counter()
    cursor = DAY - timedelta(microseconds=1)
    while (now := wake_at(declared, cursor)) is not None and now < end:
        now = max([now, *(gap.end for gap in gaps if gap.begin <= now < gap.end)])
        state = replace(ScheduleState.of(declared, cursor), started=starts.total())
        if state.room == 0:
            break
        decided = plan(state, now)
        for decision in decided.decisions:
            found[str(decision.timing or (decision.reason or "").split()[0])] += decision.windows
            starts[(now - DAY) // MINUTE] += decision.verdict == "claimed"
        cursor = decided.cursor
    return found, +starts


@settings(max_examples=examples(60), deadline=None)
@given(
    when=st.sampled_from(
        [
            {"cron": "*/20 * * * *", "timezone": "America/New_York"},
            {"cron": "30 1,2 * * *", "timezone": "America/New_York", "dst": {"fold": "both"}},
            {"everyMs": 777_000, "offsetMs": -5},
            {"everyMs": 10_000_000, "start": "2026-11-21", "end": "2026-11-22"},
        ]
    ),
    grace=st.sampled_from(["0s", "60s", "2h"]),
    window=st.sampled_from(["0s", "1h", "1d"]),
    cuts=st.lists(st.integers(1, 4 * 86_400 - 2), max_size=6, unique=True).map(sorted),
    limit=st.none() | st.integers(1, 40),
    policy=st.sampled_from(["latest", "all", "none"]),
    days_off=st.sampled_from([[], ["2026-11-21"]]),
)
def test_it_says_what_the_planner_says_at_each_wake(
    when, grace, window, cuts, limit, policy, days_off
):
    most: dict[str, Any] = {} if limit is None else {"limit": limit}
    off: dict[str, Any] = {"exclude": days_off} if days_off and "end" not in when else {}
    catch_up = {"policy": policy, "window": window}
    declared = schedule(**when, **most, **off, grace=grace, catchUp=catch_up)
    gaps = [
        Outage(DAY + timedelta(seconds=begin), DAY + timedelta(seconds=end))
        for begin, end in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    found = simulate([declared], DAY, at(96), outages=gaps)
    (totals,) = found.schedules
    outcomes, starts = walked(declared, at(96), gaps)
    named = {
        "older": "expired", "missed,": "expired", "beyond": "expired",
        "coalesced": "coalesced", "excluded:": "excluded",
    }  # fmt: skip
    expected: Counter[str] = Counter()
    for name, n in outcomes.items():
        expected[named.get(name, name)] += n
    assert Counter({str(name): n for name, n in totals.counts.items() if n}) == expected
    assert totals.windows == expected.total()
    assert Counter({minute: n for minute, n in enumerate(found.starts) if n}) == starts


@pytest.mark.parametrize(
    ("outage", "fields", "minutes", "outcomes"),
    [
        (None, {}, [0, 1, 2, 3, 4], {"on_time": 5}),
        ((2, 30), {}, [0, 1, 30, 31, 32], {"on_time": 4, "coalesced": 28, "caught_up": 1}),
        ((1, 4), {}, [0, 4, 5, 6, 7], {"on_time": 4, "coalesced": 3, "caught_up": 1}),
        ((1, 4), {"catchUp": {"policy": "all"}}, [0, 4, 4, 4, 4], {"on_time": 1, "caught_up": 4}),
        ((1, 9), {"catchUp": {"policy": "all"}}, [0, 9, 9, 9, 9], {"on_time": 1, "caught_up": 4}),
        ((1, 9), {"catchUp": {"policy": "none"}}, [0, 9, 9, 10, 11], {"on_time": 5, "expired": 7}),
        ((5, 9), {}, [0, 1, 2, 3, 4], {"on_time": 5}),
        ((1, 9), {"enabled": False}, [], {"disabled": 60}),
    ],
)
def test_a_limit_counts_the_windows_that_start_and_no_other(outage, fields, minutes, outcomes):
    declared = schedule(everyMs=60_000, limit=5, **fields)
    gaps = [Outage(DAY + outage[0] * MINUTE, DAY + outage[1] * MINUTE)] if outage else []
    found = simulate([declared], DAY, at(1), outages=gaps)
    assert [n for n, count in enumerate(found.starts) for _ in range(count)] == minutes
    assert found.totals == outcomes
    assert found.schedules[0].windows == sum(outcomes.values())


def test_a_run_of_first_sight_counts_for_the_limit():
    daily = [
        schedule(f"k{limit}", everyMs=86_400_000, offsetMs=3_600_000, limit=limit)
        for limit in (1, 2)
    ]
    for durations in ({}, {"k1": MINUTE, "k2": MINUTE}):
        found = simulate(daily, at(2), at(98), new=True, durations=durations)
        assert [totals.first_sight for totals in found.schedules] == [1, 1]
        assert [totals.windows for totals in found.schedules] == [0, 1]
        assert sum(found.starts) == 3


def test_the_last_window_of_a_limit_starts_after_the_outage_that_its_moment_is_in():
    declared = schedule(cron="0 2 * * *", spread="10m", limit=1)
    found = simulate([declared], DAY, at(72), outages=[Outage(at(2) + MINUTE, at(4))])
    assert found.totals == {"late": 1}
    assert [n for n, count in enumerate(found.starts) if count] == [4 * 60]


def test_an_outage_longer_than_grace_becomes_one_run_and_the_start_is_at_its_end():
    hourly = schedule(cron="0 * * * *", catchUp={"window": "3h"})
    assert counts(hourly, 12, (2, 8.5)) == {
        "on_time": 2 + 3, "expired": 4, "coalesced": 2, "caught_up": 1,
    }  # fmt: skip
    found = simulate([hourly], DAY, at(12), outages=[Outage(at(2), at(8.5))])
    assert [found.minute(n) for n, count in enumerate(found.starts) if count][2] == at(8.5)


def test_an_outage_within_grace_loses_nothing():
    assert counts(schedule(everyMs=10_000), 1, (0.5, 0.51)) == {"on_time": 360}


def test_more_windows_than_one_plan_starts_are_all_started():
    patient = schedule(everyMs=1000, grace="2h")
    assert counts(patient, 2, (0, 1)) == {"on_time": 7200}
    found = simulate([patient], DAY, at(2), outages=[Outage(DAY, at(1))])
    assert list(found.starts[:60]) == [0] * 60
    assert found.starts[60] == 3660


@pytest.mark.parametrize(
    ("field", "name"), [({"enabled": False}, "disabled"), ({"paused": True}, "paused")]
)
def test_a_held_schedule_starts_nothing(field, name):
    assert counts(schedule(everyMs=60_000, exclude=["FRI"], **field), 1, (0.2, 0.3)) == {name: 60}


def test_a_day_off_is_counted_up_to_the_end_of_the_simulated_time():
    assert counts(schedule(everyMs=60_000, exclude=["FRI"]), 12) == {"excluded": 720}


def test_spread_moves_the_starts_and_not_the_windows():
    herd = [schedule(f"k{n}", cron="0 2 * * *", spread="10m") for n in range(100)]
    found = simulate(herd, DAY, at(24))
    assert found.totals == {"on_time": 100}
    busy = [n for n, count in enumerate(found.starts) if count]
    assert 120 <= busy[0] < busy[-1] < 130
    assert max(found.starts) < 30
    for one in herd:
        (fire_time,) = one.spec.fires(DAY, at(24))
        assert found.starts[int((fire_time + one.delay(fire_time) - DAY) / MINUTE)]


def test_a_run_whose_moment_falls_into_an_outage_starts_when_it_ends_and_is_late():
    declared = schedule(cron="0 2 * * *", spread="10m")
    moment = at(2) + declared.delay(at(2))
    assert moment > at(2) + MINUTE
    found = simulate([declared], DAY, at(24), outages=[Outage(at(2) + MINUTE, at(4))])
    assert found.totals == {"late": 1}
    assert found.starts[4 * 60] == 1


@pytest.mark.parametrize(
    "when", [{"everyMs": 420_000}, {"cron": "*/7 * * * *"}, {"cron": "0-3,30 * * * *"}], ids=str
)
def test_each_start_is_spread_by_the_delay_of_its_own_window(when):
    declared = schedule(**when, spread="6m")
    found = simulate([declared], DAY, at(24))
    started = [
        fire_time + declared.delay(fire_time)
        for fire_time in declared.spec.fires(DAY - timedelta(microseconds=1), at(24))
    ]
    expected = Counter(int((moment - DAY) / MINUTE) for moment in started if moment < at(24))
    assert Counter({n: count for n, count in enumerate(found.starts) if count}) == expected


def test_first_sight_owes_an_interval_the_window_that_is_open():
    declared = [
        schedule("a", everyMs=86_400_000, offsetMs=3_600_000),
        schedule("b", cron="0 1 * * *"),
    ]
    found = simulate(declared, at(2), at(12), new=True)
    assert [totals.first_sight for totals in found.schedules] == [1, 0]
    assert [totals.windows for totals in found.schedules] == [0, 0]
    assert found.starts[0] == sum(found.starts) == 1
    assert sum(simulate(declared, at(2), at(12)).starts) == 0


@pytest.mark.parametrize("when", [{"everyMs": 3_600_000}, {"cron": "0 * * * *"}], ids=str)
@pytest.mark.parametrize("gaps", [[], [Outage(DAY, at(0.5))]], ids=len)
def test_a_window_that_opens_right_at_the_start_is_none_of_first_sight(when, gaps):
    declared = schedule(**when)
    seen, known = (simulate([declared], DAY, at(3), outages=gaps, new=new) for new in (True, False))
    assert seen.schedules == known.schedules
    assert sum(seen.totals.values()) == 3
    assert sum(seen.starts) == sum(known.starts) == 3


def test_open_runs_are_the_most_at_one_instant_of_each_minute():
    declared = [
        schedule("a", everyMs=60_000),
        schedule("b", everyMs=1000),
        schedule("c", everyMs=600_000),
    ]
    lengths = {"a": timedelta(minutes=2, seconds=30), "b": timedelta(seconds=1)}
    found = simulate(declared, DAY, at(1), durations=lengths)
    # One of b at each instant; of a the third one begins while two are open; c is not known.
    assert list(found.most_open[:4]) == [2, 3, 4, 4]
    assert set(found.most_open[3:]) == {4}
    assert list(simulate(declared, DAY, at(1)).most_open) == []


def test_a_minute_that_no_run_touches_has_none_open():
    found = simulate(
        [schedule("a", everyMs=600_000)], DAY, at(1), durations={"a": timedelta(minutes=3)}
    )
    assert list(found.most_open[:11]) == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]


def test_schedules_that_are_alike_are_each_counted():
    herd = [schedule(f"k{n}", everyMs=60_000) for n in range(7)]
    herd.append(schedule("h", cron="H * * * *"))
    found = simulate(herd, DAY, at(1))
    assert [totals.key for totals in found.schedules] == [one.key for one in herd]
    assert found.totals == {"on_time": 7 * 60 + 1}
    assert sorted(set(found.starts)) == [7, 8]


def test_h_differs_by_key():
    herd = [schedule(f"k{n}", cron="H H * * *") for n in range(50)]
    assert max(simulate(herd, DAY, at(24)).starts) < 5


def test_the_time_may_begin_and_end_within_a_minute():
    found = simulate(
        [schedule(everyMs=10_000)], DAY + timedelta(seconds=30), DAY + timedelta(seconds=90)
    )
    assert list(found.starts) == [3, 3]
    assert found.first == DAY


@pytest.mark.parametrize(
    ("begin", "end", "outage", "said"),
    [
        (1, 1, None, "the end is not after the start"),
        (0, 24 * 367, None, "longer than 366 days"),
        (0, 24, (5, 4), "ends before it begins"),
        (1, 24, (0, 2), "move the start before it"),
        (0, 24, (23, 24), "does not begin and end within"),
    ],
)
def test_times_that_do_not_fit_are_refused_with_a_hint(begin, end, outage, said):
    gaps = [Outage(at(outage[0]), at(outage[1]))] if outage else []
    with pytest.raises(ValueError, match=said):
        simulate([schedule(everyMs=1000)], at(begin), at(end), outages=gaps)


def test_outages_that_overlap_are_one():
    gaps = [Outage(at(2), at(4)), Outage(at(1), at(3))]
    found = simulate([schedule(cron="0 * * * *")], DAY, at(6), outages=gaps)
    assert found.outages == (Outage(at(1), at(4)),)
    assert found.totals == {"on_time": 2, "coalesced": 3, "caught_up": 1}


def test_its_memory_grows_with_the_minutes_and_the_open_runs_and_not_with_the_runs():
    busy = [schedule("a", everyMs=1000), schedule("b", everyMs=2000)]
    lengths = {"a": timedelta(minutes=1)}
    simulate(busy, DAY, at(1), durations=lengths)  # what is remembered for good is so from here on
    tracemalloc.start()
    try:
        found = simulate(busy, DAY, at(8), durations=lengths)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.totals == {"on_time": 28_800 + 14_400}
    assert peak < 500_000, "bytes: less than a number per run would take"


@pytest.mark.parametrize(
    "when",
    [
        {"everyMs": 600_000, "spread": "9m"},
        {"cron": "*/10 * * * *", "spread": "9m", "exclude": ["2026-11-21"]},
        {"everyMs": 86_400_000, "offsetMs": -60_000, "spread": "1h"},
    ],
    ids=str,
)
def test_the_starts_of_a_life_come_in_the_order_of_time_whatever_an_outage_delays(when):
    declared = schedule(**when, grace="20m")
    gaps = tuple(
        Outage(at(hour) + 7 * MINUTE, at(hour) + length * MINUTE)
        for hour, length in ((0, 9), (1, 16), (2, 90), (5, 25), (23, 70))
    )
    started = [begin for begin, _ in Timeline(declared, DAY, at(48), gaps).runs(new=True)]
    assert started == sorted(started)
    assert started


def in_line(overlap: str, minutes: int, **fields: Any) -> tuple[dict[str, int], list[int], int]:
    """What six windows of ten minutes become if each run takes so long, and when runs start."""
    declared = schedule(everyMs=600_000, overlap=overlap, **fields)
    found = simulate([declared], DAY, at(1), durations={"k": minutes * MINUTE})
    (totals,) = found.schedules
    assert sum(totals.counts.values()) == totals.windows == 6
    assert not totals.overlap_unknown
    starts = [minute for minute, count in enumerate(found.starts) if count]
    return {name: n for name, n in totals.counts.items() if n}, starts, max(found.most_open)


def test_runs_are_in_each_others_way_as_their_durations_say():
    assert in_line("allow", 25) == ({"on_time": 6}, [0, 10, 20, 30, 40, 50], 3)
    assert in_line("skip", 25) == ({"on_time": 2, "overlapped": 4}, [0, 30], 1)
    assert in_line("skip", 10) == ({"on_time": 6}, [0, 10, 20, 30, 40, 50], 1)
    assert in_line("queue", 25) == ({"on_time": 1, "queued": 5}, [0, 25, 50], 1)
    queue_of_one = ({"on_time": 1, "queued": 3, "overlapped": 2}, [0, 25, 50], 1)
    assert in_line("queue_one", 25) == queue_of_one
    assert in_line("queue", 25, maxQueued=1) == queue_of_one
    for policy in ("cancel_previous", "terminate_previous"):
        assert in_line(policy, 25) == ({"on_time": 6}, [0, 10, 20, 30, 40, 50], 1)


def test_a_run_that_takes_the_place_of_another_starts_at_its_window_as_the_planner_says():
    delay = schedule(everyMs=600_000, spread="9m").delay(DAY) // MINUTE
    _, starts, most = in_line("cancel_previous", 25, spread="9m")
    assert (starts, most) == ([delay, 10, 20, 30, 40, 50], 1)
    assert delay > 0


def test_a_window_that_overlap_skips_does_not_count_for_the_limit():
    declared = schedule(everyMs=60_000, overlap="skip", limit=5)
    found = simulate([declared], DAY, at(1), durations={"k": 3 * MINUTE})
    assert [n for n, count in enumerate(found.starts) if count] == [0, 3, 6, 9, 12]
    assert found.totals == {"on_time": 5, "overlapped": 8}
    assert found.schedules[0].windows == 13


def test_so_many_runs_are_open_at_once_as_the_schedule_lets():
    assert in_line("skip", 25, maxConcurrentRuns=2) == (
        {"on_time": 4, "overlapped": 2}, [0, 10, 30, 40], 2,
    )  # fmt: skip
    two = ({"on_time": 2, "queued": 4}, [0, 10, 25, 35, 50], 2)
    assert in_line("queue", 25, maxConcurrentRuns=2) == two
    assert in_line("queue", 25, maxConcurrentRuns=3) == (
        {"on_time": 6}, [0, 10, 20, 30, 40, 50], 3,
    )  # fmt: skip
    assert in_line("queue_one", 45, maxConcurrentRuns=2) == (
        {"on_time": 2, "queued": 2, "overlapped": 2}, [0, 10, 45, 55], 2,
    )  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(
    policy=st.sampled_from(["skip", "queue", "queue_one"]),
    places=st.integers(1, 4),
    length=st.integers(1, 50),
    most=st.integers(1, 4),
    spread=st.sampled_from(["0s", "10m"]),
    limit=st.none() | st.integers(1, 60),
)
def test_places_are_taken_as_in_a_walk_through_the_seconds(
    policy, places, length, most, spread, limit
):
    """The walk knows nothing of ends computed ahead: it counts down, second by second."""
    at_most: dict[str, Any] = {} if limit is None else {"limit": limit}
    declared = schedule(
        everyMs=600_000, overlap=policy, maxConcurrentRuns=places, maxQueued=most, spread=spread,
        **at_most,
    )  # fmt: skip
    found = simulate([declared], DAY, at(8), durations={"k": length * MINUTE})
    shift = declared.delay(DAY) // timedelta(seconds=1)
    left: list[int] = []  # seconds that each open run still takes
    waiting, starts = 0, []
    late: list[int] = []  # when those begin that have a place, and wait for their moment
    counts: Counter[str] = Counter()
    for now in range(8 * 3600):
        left = [each - 1 for each in left if each > 1]
        busy = len(left) + len(late)
        while waiting and busy < places:
            waiting, busy = waiting - 1, busy + 1
            left.append(length * 60)
            starts.append(now)
        if now % 600 == 0 and counts["on_time"] + counts["queued"] != limit:
            room = {"skip": 0, "queue": most}.get(policy, 1)
            if busy < places and not waiting:
                counts["on_time"] += 1
                late.append(now + shift)
            elif waiting < room:
                counts["queued"] += 1
                waiting += 1
            else:
                counts["overlapped"] += 1
        for moment in [each for each in late if each <= now]:
            late.remove(moment)
            left.append(length * 60)
            starts.append(now)
    (totals,) = found.schedules
    assert Counter({str(name): n for name, n in totals.counts.items() if n}) == counts
    begun = Counter(moment // 60 for moment in starts)
    assert {n: count for n, count in enumerate(found.starts) if count} == begun
    assert max(found.most_open) <= places


def test_schedules_that_differ_in_their_durations_alone_differ_in_what_they_skip():
    both = [schedule(key, everyMs=600_000, overlap="skip") for key in ("a", "b")]
    durations = {"a": 5 * MINUTE, "b": 15 * MINUTE}
    found = simulate(both, DAY, at(1), durations=durations)
    assert [totals.counts.get("overlapped", 0) for totals in found.schedules] == [0, 3]


def test_it_says_where_it_does_not_know_what_is_in_the_way():
    declared = schedule(everyMs=600_000, overlap="skip")
    assert simulate([declared], DAY, at(1)).schedules[0].overlap_unknown
    outage = [Outage(at(0.2), at(0.4))]
    (totals,) = simulate([declared], DAY, at(1), outages=outage, durations={"k": MINUTE}).schedules
    assert totals.overlap_unknown
    assert "overlapped" not in totals.counts
    assert not simulate([schedule(everyMs=600_000)], DAY, at(1)).schedules[0].overlap_unknown


# --- what it may cost ---


class Enough(Exception):
    """The end of what a reading or a simulation may cost."""


def ends_after(calls: int):
    left = iter(range(calls))

    def watch() -> None:
        if next(left, None) is None:
            raise Enough

    return watch


@pytest.mark.parametrize(
    "text",
    [
        "schedules:\n" + "- {}\n" * 2000,
        "schedules: [" + "{}," * 2000 + "]",
        "schedules:\n" + "- a\n" * 2000,
        "schedules:\n" + "".join(f"- {{key: k{n}, workflow: w, every: 1h}}\n" for n in range(2000)),
        '{"schedules": [' + ", ".join(["{}"] * 2000) + "]}",
        "queues:\n" + "".join(f"  q{n}: 1\n" for n in range(2000)) + "schedules: []",
    ],
    ids=["empty", "in a line", "no mappings", "good", "json", "queues"],
)
def test_a_reading_that_costs_too_much_ends_in_the_middle(text):
    with pytest.raises(Enough):
        load_schedules(text, watch=ends_after(1000))


@pytest.mark.parametrize("spec", ["every: 1s", 'cron: "* * * * * *"', 'cron: "H H * * *"'])
def test_a_simulation_that_costs_too_much_ends_in_the_middle(spec):
    entries = ", ".join(f"{{key: k{n}, workflow: w, {spec}}}" for n in range(20))
    schedules = load_schedules(f"schedules: [{entries}]").schedules
    begin = datetime(2026, 12, 1, tzinfo=UTC)
    with pytest.raises(Enough):
        simulate(schedules, begin, begin + timedelta(hours=1), watch=ends_after(19))
