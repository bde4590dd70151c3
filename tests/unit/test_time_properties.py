"""What holds for every schedule at every instant: `Cron`, `Interval`, `At`, or one with bounds.

One set of instants answers every question, so no two answers may contradict each other.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, product

from hypothesis import given, settings, strategies as st

from engine.schedules.timing.spec import At, Bounded, Cron, Dst, Interval, Spec, latest
from tests.unit.cron_oracle import bisected, load, offset_at, transitions

EXPRESSIONS = [
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "0,15,30,45 0-3 * * *",
    "0 0 1 * *",
    "59 23 L * *",
    "0 9 * * MON-FRI",
    "*/20 30 1,2 * * *",
    "0 12 15W * *",
    "0 0 29 2 *",
    "15 2 * * 0L",
    "H H(0-3) * * *",
]
ZONES = [
    *("UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Antarctica/Troll"),
    *("Pacific/Apia", "Africa/Casablanca", "Asia/Gaza", "America/St_Johns", "Asia/Kathmandu"),
]
CHANGES = [(zone, turn) for zone in ZONES for turn in transitions(zone)]


def moments(first: int, last: int) -> st.SearchStrategy[datetime]:
    naive = datetime(first, 1, 1), datetime(last, 1, 1)  # noqa: DTZ001 - bounds are naive by API
    return st.datetimes(*naive, timezones=st.just(UTC))


near_changes = st.builds(
    lambda change, away: datetime.fromtimestamp(change[1], UTC) + away,
    st.sampled_from(CHANGES),
    st.timedeltas(timedelta(days=-2), timedelta(days=2)),
)
# The edges of time, where nothing fires any more, belong to it.
instants = st.one_of(near_changes, moments(1975, 2090), moments(1960, 2110))
spans = st.one_of(st.timedeltas(timedelta(0), timedelta(days=2)), st.just(timedelta(0)))

crons = st.builds(
    Cron,
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    dst=st.builds(
        Dst, st.sampled_from(["shift", "skip"]), st.sampled_from(["first", "last", "both"])
    ),
    key=st.sampled_from(["", "nightly-report"]),
)
intervals = st.builds(Interval, st.integers(60_000, 10**9), st.integers(-(10**12), 10**12))
ats = st.builds(At, moments(1975, 2090))
plain: st.SearchStrategy[Spec] = st.one_of(crons, intervals, ats)
edges = st.one_of(st.none(), near_changes, moments(1975, 2090))
bounded = st.builds(Bounded, plain, edges, edges)
specs: st.SearchStrategy[Spec] = st.one_of(crons, intervals, ats, bounded)


@given(spec=specs, at=instants)
@settings(deadline=None)
def test_the_previous_of_the_next_is_the_next(spec, at):
    following = spec.next(at)
    assert following is None or spec.previous(following) == following


@given(spec=specs, at=instants)
@settings(deadline=None)
def test_an_instant_lies_between_its_previous_and_its_next(spec, at):
    following, earlier = spec.next(at), spec.previous(at)
    assert following is None or following > at
    assert earlier is None or earlier <= at
    assert earlier is None or spec.next(earlier) == following


@given(spec=specs, at=instants, span=spans)
@settings(deadline=None)
def test_neither_previous_nor_next_goes_back_as_time_goes_on(spec, at, span):
    before, after = spec.previous(at), spec.previous(at + span)
    assert before is None or (after is not None and before <= after)
    soon, later = spec.next(at), spec.next(at + span)
    assert later is None or (soon is not None and soon <= later)


@given(spec=specs, at=instants, one=spans, two=spans)
@settings(deadline=None)
def test_two_stretches_fire_what_the_whole_fires(spec, at, one, two):
    middle, end = at + one, at + one + two
    whole = list(spec.fires(at, end))
    assert [*spec.fires(at, middle), *spec.fires(middle, end)] == whole
    assert all(a < b for a, b in pairwise(whole))
    assert spec.count(at, end) == len(whole)
    assert spec.count(at, middle) + spec.count(middle, end) == len(whole)


@given(spec=specs, at=instants, span=spans)
@settings(deadline=None)
def test_the_latest_n_backwards_are_the_tail_of_the_forward_list(spec, at, span):
    fires = list(spec.fires(at, at + span))
    assert latest(spec, at + span, len(fires)) == fires[::-1]
    for n in (1, 3):
        assert latest(spec, at + span, n)[: len(fires)] == fires[::-1][:n]


@given(spec=specs, at=instants, span=spans)
@settings(deadline=None)
def test_every_fire_has_a_bucket_of_its_own_that_leads_back_to_it(spec, at, span):
    fires = list(spec.fires(at, at + span))
    buckets = [spec.bucket(fire) for fire in fires]
    assert buckets == sorted(set(buckets))
    assert [spec.fire_time(bucket) for bucket in buckets] == fires


def first_instant(zone: str, day: date, hour: int, minute: int) -> datetime:
    """Return when the zone's clock first reads that time or later, found without our tables."""
    rules = load(zone)
    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=rules)
    instant = int(local.timestamp())
    reading = int(local.replace(tzinfo=UTC).timestamp())
    if instant + offset_at(rules, instant) != reading:  # the clock skips it
        instant = bisected(rules, int(local.replace(fold=1).timestamp()), instant)
    return datetime.fromtimestamp(instant, UTC)


@given(
    change=st.sampled_from(CHANGES),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=3),
    hours=st.sets(st.integers(0, 4), min_size=1, max_size=3),
)
@settings(deadline=None)
def test_every_local_time_of_a_fixed_time_job_has_exactly_one_fire(change, minutes, hours):
    zone, turn = change
    around = datetime.fromtimestamp(turn, load(zone)).date()
    days = [around + timedelta(n) for n in range(-3, 4)]
    nominal = [
        first_instant(zone, day, hour, minute)
        for day, hour, minute in product(days, sorted(hours), sorted(minutes))
    ]
    minute, hour = (",".join(map(str, values)) for values in (minutes, hours))
    cron = Cron(f"{minute} {hour} * * *", zone)
    fires = list(cron.fires(nominal[0] - timedelta(seconds=1), nominal[-1]))
    # No local time is lost, none has two, and no fire stands for nothing.
    assert fires == sorted(set(nominal))
