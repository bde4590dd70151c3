"""What becomes of due windows: the decision table, row by row. No I/O, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from engine.schedules import Schedule
from engine.schedules.planner.decisions import Plan
from engine.schedules.planner.planner import MOST_ROWS, first_sight, wake_at
from engine.schedules.terms import Reason
from tests.unit.planning import plan_of

NOBODY = Reason("unknown_workflow", "nobody")
NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)


def schedule(**fields) -> Schedule:
    return Schedule.from_json({"key": "k", "workflow": "w", **fields})


def decide(declared: Schedule, cursor: datetime, now: datetime = NOW, **options) -> Plan:
    options.setdefault("effective_from", cursor)
    return plan_of(declared, cursor=cursor, now=now, **options)


def shapes(decided: Plan) -> list[tuple[str, int]]:
    return [(decision.verdict, decision.windows) for decision in decided.decisions]


def test_nothing_is_decided_before_a_window_opens():
    decided = decide(schedule(cron="0 13 * * *"), NOW)
    assert (decided.decisions, decided.cursor) == ((), NOW)
    assert decided.next_fire_at == NOW.replace(hour=13, minute=0, second=0)


def test_every_window_starts_while_the_oldest_is_younger_than_grace():
    cursor = NOW - timedelta(seconds=31)
    decided = decide(schedule(everyMs=10_000), cursor)
    assert [d.window.fire_time.second for d in decided.decisions] == [0, 10, 20, 30]
    assert {d.timing for d in decided.decisions} == {"on_time"}
    assert decided.cursor == NOW


def test_an_outage_longer_than_grace_becomes_one_run_of_the_newest_window():
    decided = decide(schedule(everyMs=60_000), NOW - timedelta(minutes=10))
    assert shapes(decided) == [("skipped", 9), ("claimed", 1)]
    skipped, started = decided.decisions
    assert skipped.reason == f"coalesced into {started.window.bucket}"
    assert (started.timing, started.missed) == ("caught_up", 9)
    assert started.window.fire_time == NOW.replace(second=0)
    assert decided.next_fire_at == NOW.replace(minute=1, second=0)


def test_windows_older_than_the_catch_up_window_expire():
    declared = schedule(everyMs=3_600_000, catchUp={"policy": "latest", "window": "3h"})
    decided = decide(declared, NOW - timedelta(hours=10))
    assert shapes(decided) == [("expired", 7), ("skipped", 2), ("claimed", 1)]


def test_a_single_missed_window_that_is_too_old_expires():
    decided = decide(schedule(cron="0 2 1 * *"), datetime(2026, 10, 2, tzinfo=UTC))
    assert shapes(decided) == [("expired", 1)]
    assert decided.next_fire_at == datetime(2026, 12, 1, 2, tzinfo=UTC)


def test_windows_of_a_held_schedule_are_skipped_in_one_row():
    decided = decide(schedule(everyMs=60_000), NOW - timedelta(hours=1), hold="paused")
    assert shapes(decided) == [("skipped", 60)]
    assert decided.decisions[0].reason == "paused"


def test_windows_nobody_can_run_are_rejected_beyond_grace_and_stay_open_within():
    decided = decide(schedule(everyMs=10_000), NOW - timedelta(minutes=2), unable=NOBODY)
    assert shapes(decided) == [("rejected", 5)]
    assert decided.cursor == NOW - timedelta(seconds=70)
    assert decided.next_fire_at == NOW - timedelta(seconds=60)


def test_a_definition_that_ends_leaves_no_window_open_even_if_nobody_can_run_it():
    declared = schedule(everyMs=10_000)
    decided = decide(declared, NOW - timedelta(seconds=30), unable=NOBODY, final=True)
    assert shapes(decided) == [("rejected", 3)]


def test_more_windows_than_the_limit_stay_due():
    decided = decide(schedule(everyMs=1000), NOW - timedelta(seconds=20), limit=5)
    assert len(decided.decisions) == 5
    assert decided.next_fire_at == NOW - timedelta(seconds=14)


def test_an_interval_owes_its_current_window_at_first_sight_however_long_it_is():
    weekly = schedule(everyMs=7 * 86_400_000)
    effective_from, cursor = first_sight(weekly, NOW)
    decided = decide(weekly, cursor, effective_from=effective_from)
    assert shapes(decided) == [("claimed", 1)]
    assert decided.decisions[0].window.fire_time == effective_from < NOW - timedelta(days=1)


def test_the_window_of_first_sight_says_so_at_whatever_age_and_no_other_does():
    """Its lag is the time for which the schedule did not exist: nobody was slow."""
    minutely = schedule(everyMs=60_000)
    effective_from, cursor = first_sight(minutely, NOW)
    later = NOW + timedelta(seconds=30)
    decided = decide(minutely, cursor, later, effective_from=effective_from)
    assert [d.reason for d in decided.decisions] == ["first sight", None]


def test_a_cron_waits_for_its_next_fire_time_at_first_sight():
    effective_from, cursor = first_sight(schedule(cron="0 10 * * *"), NOW)
    assert (effective_from, cursor) == (NOW, NOW)


def test_first_fire_overrides_the_kind():
    assert first_sight(schedule(everyMs=60_000, firstFire="next"), NOW) == (NOW, NOW)
    effective_from, _ = first_sight(schedule(cron="0 10 * * *", firstFire="now"), NOW)
    assert effective_from == NOW.replace(hour=10, minute=0, second=0)


SATURDAY = datetime(2026, 11, 21, tzinfo=UTC)


def test_an_excluded_window_is_skipped_with_its_reason_and_the_others_start():
    declared = schedule(everyMs=10_000, exclude=["2026-11-20"])
    decided = decide(declared, SATURDAY - timedelta(seconds=25), SATURDAY + timedelta(seconds=15))
    assert shapes(decided) == [("skipped", 2), ("claimed", 1), ("claimed", 1)]
    assert decided.decisions[0].reason == "excluded: 2026-11-20"
    assert {d.timing for d in decided.decisions[1:]} == {"on_time"}


def test_an_excluded_day_is_one_row_written_with_its_last_window():
    declared = schedule(cron="0 */6 * * *", exclude=["SAT"])
    friday = SATURDAY - timedelta(hours=6)
    assert wake_at(declared, friday) == SATURDAY.replace(hour=18)
    decided = decide(declared, friday, SATURDAY.replace(hour=18))
    assert shapes(decided) == [("skipped", 4)]
    assert decided.next_fire_at == SATURDAY + timedelta(days=1)


def test_excluded_windows_never_make_the_others_late():
    """The oldest undecided window is old, but nobody wanted it: what follows starts in full."""
    declared = schedule(everyMs=10_000, exclude=["2026-11-20"])
    decided = decide(declared, SATURDAY - timedelta(hours=5), SATURDAY + timedelta(seconds=15))
    assert shapes(decided) == [("skipped", 1799), ("claimed", 1), ("claimed", 1)]


def test_an_outage_ends_with_the_newest_window_that_is_not_excluded():
    declared = schedule(everyMs=3_600_000, exclude=["2026-11-21"])
    decided = decide(declared, SATURDAY - timedelta(hours=3, minutes=30), SATURDAY.replace(hour=2))
    assert shapes(decided) == [("skipped", 2), ("claimed", 1), ("skipped", 3)]
    coalesced, started, excluded = decided.decisions
    assert started.window.fire_time == SATURDAY - timedelta(hours=1)
    assert (started.timing, started.missed) == ("caught_up", 2)
    assert coalesced.reason == f"coalesced into {started.window.bucket}"
    assert excluded.reason == "excluded: 2026-11-21"


def test_a_held_schedule_skips_excluded_windows_for_its_hold():
    declared = schedule(everyMs=3_600_000, exclude=["SAT"])
    decided = decide(declared, SATURDAY, SATURDAY.replace(hour=5), hold="paused")
    assert [(d.reason, d.windows) for d in decided.decisions] == [("paused", 5)]


def test_a_spread_window_waits_for_its_keys_moment_and_keeps_its_nominal_time():
    declared = schedule(everyMs=3_600_000, spread="10m")
    decided = decide(declared, SATURDAY - timedelta(seconds=1), SATURDAY)
    (started,) = decided.decisions
    assert started.window.fire_time == SATURDAY
    assert started.not_before == SATURDAY + declared.delay(SATURDAY)
    assert timedelta(0) < declared.delay(SATURDAY) < timedelta(minutes=10)
    late = decide(declared, SATURDAY - timedelta(seconds=1), SATURDAY + timedelta(minutes=30))
    assert late.decisions[0].not_before is None, "its moment has passed"


YEAR = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = st.sampled_from([1000, 7000, 60_000, 86_400_000])
CRONS = st.sampled_from(["* * * * *", "*/7 * * * *", "0 2 * * *", "30 1 * * SUN", "*/20 * * * * *"])
DAYS_OFF = ["MON", "TUE", "2026-03-07..2026-03-12", "2026-06-01T12:00:00Z..2026-06-02T12:00:00Z"]
SPANS = st.timedeltas(timedelta(0), timedelta(hours=5))


OFF = {"exclude": DAYS_OFF}
WHENS = st.one_of(
    EVERY.map(lambda every: {"everyMs": every}),
    st.builds(
        lambda cron, off: {"cron": cron, "timezone": "America/New_York", **off},
        CRONS, st.sampled_from([{}, OFF]),
    ),
)  # fmt: skip
CATCH_UPS = st.sampled_from(
    [
        {},
        {"policy": "none"},
        {"policy": "all"},
        {"policy": "all", "max": 3, "order": "newest"},
        {"policy": "all", "window": "1h"},
        {"policy": "latest", "window": "1h"},
    ]
)
OVERLAPS = st.sampled_from(["allow", "skip", "queue_one", "cancel_previous"])


@given(
    declared=st.builds(
        lambda when, catch_up, overlap: schedule(**when, catchUp=catch_up, overlap=overlap),
        WHENS,
        CATCH_UPS,
        OVERLAPS,
    ),
    back=SPANS,
    start=st.integers(0, 365 * 86_400).map(lambda seconds: YEAR + timedelta(seconds=seconds)),
)
def test_every_window_up_to_now_is_decided_exactly_once_under_every_policy(declared, back, start):
    """Whatever the policy says, the decisions cover (cursor, now] without gap or overlap."""
    cursor = start - back
    decided = decide(declared, cursor, start)
    expected = list(declared.spec.fires(cursor, start))
    assert sum(decision.windows for decision in decided.decisions) == len(expected)
    covered = [
        moment
        for decision in decided.decisions
        for moment in declared.spec.fires(
            decision.window.fire_time - timedelta(seconds=1),
            decision.last or decision.window.fire_time,
        )
    ]
    assert sorted(covered) == expected
    assert decided.next_fire_at is not None
    assert decided.next_fire_at > start
    following = next(declared.starts(start, start + timedelta(days=90)))
    assert decided.next_fire_at <= following, "no run would be missed"
    assert declared.exclude or decided.next_fire_at == following
    assert decided.cursor == (expected[-1] if expected else cursor)
    for decision in decided.decisions:
        off = declared.exclusions and declared.exclusions.reason(decision.window.fire_time)
        assert (decision.reason == f"excluded: {off}") == bool(off)


ALTERNATE = ["MON", "WED", "FRI", "SUN"]


@given(
    declared=st.sampled_from(
        [
            schedule(everyMs=3_600_000, exclude=ALTERNATE),
            schedule(everyMs=7_200_000, exclude=ALTERNATE, catchUp={"window": "300d"}),
            schedule(cron="0 */5 * * *", timezone="America/New_York", exclude=DAYS_OFF),
            schedule(cron="*/30 * * * *", exclude=["SAT", "SUN"], spread="5m"),
        ]
    ),
    back=st.timedeltas(timedelta(0), timedelta(days=200)),
    start=st.integers(0, 365 * 86_400).map(lambda seconds: YEAR + timedelta(seconds=seconds)),
    rows=st.integers(1, 40),
    options=st.sampled_from([{}, {"unable": NOBODY}]),
)
def test_a_plan_in_several_cuts_decides_what_one_without_a_cut_does(
    declared, back, start, rows, options
):
    """Rows written at once are bounded, and the next tick goes on where the cursor stands."""

    before = start - back - timedelta(seconds=1)

    def decided(most: int) -> dict[datetime, str]:
        verdicts: dict[datetime, str] = {}
        cursor, due = start - back, True
        while due:
            part = decide(declared, cursor, start, effective_from=before, rows=most, **options)
            assert len(part.decisions) <= most
            for each in part.decisions:
                first, last = each.window.fire_time, each.last or each.window.fire_time
                for at in declared.spec.fires(first - timedelta(seconds=1), last):
                    assert at not in verdicts, "decided twice"
                    verdicts[at] = "" if each.timing else f"{each.verdict} {each.reason}"
            due = (
                part.next_fire_at is not None
                and part.next_fire_at <= start
                and part.cursor > cursor
            )
            cursor = part.cursor
        return verdicts

    whole, parts = decided(100_000), decided(rows)
    later = whole.keys() - parts.keys()  # a day off is settled when its last window opens
    assert parts.keys() <= whole.keys()
    assert all(declared.exclusions and declared.exclusions.reason(at) for at in later)
    grace = start - declared.grace - timedelta(minutes=5)
    assert {at: v for at, v in parts.items() if at < grace} == {
        at: v for at, v in whole.items() if at < grace and at not in later
    }


def test_a_decade_of_alternate_days_off_is_planned_in_bounded_parts_and_stays_due():
    declared = schedule(everyMs=3_600_000, exclude=ALTERNATE, catchUp={"window": "36500d"})
    decided = decide(declared, NOW - timedelta(days=3653))
    assert len(decided.decisions) == MOST_ROWS
    assert decided.cursor < NOW - timedelta(days=365)
    assert decided.next_fire_at is not None
    assert decided.next_fire_at < NOW


def test_a_young_window_of_before_a_doubt_is_looked_up_first():
    cursor = NOW - timedelta(minutes=1)
    often = schedule(everyMs=10_000)
    doubted = {"suspect_until": NOW - timedelta(seconds=25)}
    plain = decide(often, cursor)
    assert plain.decisions
    asked = decide(often, cursor, audited=False, **doubted)
    assert (asked.audit, asked.decisions, asked.cursor) == (True, (), cursor)
    assert decide(often, cursor, audited=True, **doubted) == plain


def test_windows_of_after_a_doubt_start_at_once():
    often = schedule(everyMs=10_000)
    suspect_until = NOW - timedelta(seconds=25)
    decided = decide(often, NOW - timedelta(seconds=20), audited=False, suspect_until=suspect_until)
    assert shapes(decided) == [("claimed", 1)] * 2


def test_a_first_window_of_before_a_doubt_is_looked_up_however_the_schedule_is_new():
    hourly = schedule(everyMs=3_600_000)
    begin, cursor = first_sight(hourly, NOW)
    decided = decide(hourly, cursor, effective_from=begin, audited=False, suspect_until=NOW)
    assert decided.audit
