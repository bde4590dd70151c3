"""The audit's evaluator and the engine's own: two programs that share no code find one truth."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import example, given, settings, strategies as st

from engine.audit.evaluator import OwedWindows, instant, moment
from engine.schedules import Schedule
from engine.schedules.terms import TICK, from_ms
from engine.schedules.timing.zones import zone, zone_names
from tests.examples import examples
from tests.unit.cron_oracle import make

YEAR = timedelta(days=366)
FIRST, LAST = datetime(1970, 1, 3, tzinfo=UTC), datetime(2100, 12, 30, tzinfo=UTC)
ODD_ZONES = (
    "UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Monrovia", "Africa/Casablanca",
    "America/Havana", "Pacific/Apia", "Pacific/Kwajalein", "Europe/Dublin", "Asia/Gaza",
    "America/Sao_Paulo", "Antarctica/Troll",
)  # fmt: skip
POLICIES = ["standard", {"gap": "skip"}, {"fold": "last"}, {"fold": "both"},
            {"gap": "skip", "fold": "both"}]  # fmt: skip
MOST = 1000


def moments(first: int, last: int) -> st.SearchStrategy[datetime]:
    """Moments of these years, the last one excluded."""
    begin, end = (
        int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000) for year in (first, last)
    )
    return st.integers(begin, end - 1).map(from_ms)


def both(definition: dict, after: datetime, until: datetime) -> tuple[list[datetime], ...]:
    schedule = Schedule.from_json({"workflow": "w", "key": "k", **definition})
    theirs = [*islice(schedule.spec.fires(after, until), MOST)]
    owed = OwedWindows(schedule.to_json())
    ours = [moment(at) for at in islice(owed.fires(instant(after), instant(until)), MOST)]
    return ours, theirs


@st.composite
def spans(draw, name: str) -> tuple[datetime, timedelta]:
    """A stretch of time, as often as not beside a change of the zone's clock."""
    changes = [at for at in zone(name).starts if FIRST.timestamp() < at < LAST.timestamp()]
    if changes and draw(st.booleans()):
        change = datetime.fromtimestamp(draw(st.sampled_from(changes)), UTC)
        begin = change - timedelta(seconds=draw(st.integers(0, 2 * 86_400)))
    else:
        begin = draw(st.datetimes(FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None)))
        begin = begin.replace(tzinfo=UTC)
    return begin, draw(st.timedeltas(timedelta(hours=1), timedelta(days=40)))


@settings(max_examples=examples(250))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_both_evaluators_find_the_same_windows_of_any_cron_in_any_zone(data, seed):
    name = data.draw(st.sampled_from(ODD_ZONES) | st.sampled_from(zone_names()))
    begin, length = data.draw(spans(name))
    meaning = make(random.Random(seed), with_seconds=seed % 5 == 0)
    dst = data.draw(st.sampled_from(POLICIES))
    text = " ".join(meaning.text.split())
    definition = {"cron": text, "key": meaning.key, "timezone": name}
    if not meaning.wildcard and dst != "standard":
        definition["dst"] = dst
    ours, theirs = both(definition, begin, begin + length)
    assert ours == theirs


@settings(max_examples=examples(60))
@given(
    every=st.integers(1000, 10**9), offset=st.integers(-(10**10), 10**10),
    begin=moments(1970, 2097),  # fifty windows, before the last year there is
)  # fmt: skip
@example(every=1000, offset=0, begin=datetime(1970, 1, 1, tzinfo=UTC))
def test_both_find_the_same_windows_of_an_interval(every, offset, begin):
    after = begin
    definition = {"everyMs": every, "offsetMs": offset}
    ours, theirs = both(definition, after, after + timedelta(milliseconds=every * 50))
    assert ours == theirs
    assert len(ours) in {49, 50}


@pytest.mark.parametrize("name", ODD_ZONES)
@pytest.mark.parametrize(
    "bounds",
    [
        {"start": "2026-03-08"}, {"end": "2026-11-01"}, {"start": "2026-03-08T02:30:00"},
        {"start": "2026-03-08", "end": "2026-11-01T01:30:00"},
        {"start": "2026-03-08T02:30:00.250Z", "end": "2026-11-01T01:30:00+03:00"},
    ],
)  # fmt: skip
def test_both_keep_to_the_same_bounds(name, bounds):
    definition = {"cron": "30 1,2 * * *", "timezone": name, **bounds}
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    ours, theirs = both(definition, begin, begin + YEAR)
    assert ours == theirs != []


@pytest.mark.parametrize(
    "at",
    [
        {"at": "2027-03-14T02:30:00.500", "timezone": "America/New_York"},
        {"at": "2027-11-07T01:30:00.500", "timezone": "America/New_York"},
        {"at": "2027-03-14T02:30:00.123456Z"}, {"at": "2027-03-14 02:30+05:30"},
    ],
)  # fmt: skip
def test_both_mean_the_same_moment(at):
    ours, theirs = both(at, FIRST, LAST)
    assert ours == theirs != []


ITEMS = ["SAT", "2026-12-25", "2026-12-24..2027-01-02",
         "2026-11-20T12:00:00Z..2026-11-21T06:00:00Z",
         {"name": "closed", "dates": ["2026-11-01", "2026-03-08..2026-03-09", "sun"]}]  # fmt: skip


@settings(max_examples=examples(60))
@given(
    items=st.lists(st.sampled_from(ITEMS), min_size=1, max_size=4, unique_by=str),
    name=st.sampled_from(ODD_ZONES), spread=st.integers(1, 5000), key=st.text("abc", min_size=1),
    at=moments(2026, 2027),
)  # fmt: skip
def test_both_exclude_the_same_windows_and_delay_the_others_alike(items, name, spread, key, at):
    schedule = Schedule.from_json(
        {"workflow": "w", "key": key, "everyMs": 5000, "timezone": name, "exclude": items,
         "spread": f"{spread}ms"}
    )  # fmt: skip
    owed, window = OwedWindows(schedule.to_json()), schedule.spec.previous(at)
    assert window is not None
    assert schedule.exclusions is not None
    assert bool(owed.off(instant(window))) == bool(schedule.exclusions.reason(window))
    assert owed.delay(instant(window), spread * 1000) == schedule.delay(window) // TICK


def test_rare_and_dense_windows_are_found_without_holding_them_all():
    leap = OwedWindows({"key": "k", "cron": "0 0 29 2 *"})
    found = leap.fires(0, instant(LAST))
    assert moment(next(found)) == datetime(1972, 2, 29, tzinfo=UTC)
    assert moment([*found][-1]) == datetime(2096, 2, 29, tzinfo=UTC)
    for dense in ({"everyMs": 1000}, {"cron": "* * * * * *"}, {"cron": "0-59 0-59 0-23 * * *"}):
        seconds = OwedWindows({"key": "k", **dense}).fires(0, instant(LAST))
        assert [next(seconds) for _ in range(3)] == [1_000_000, 2_000_000, 3_000_000]


@pytest.mark.parametrize(
    "at",
    ["2026-11-20T11:59:59", "2026-11-20T12:00:00", "2026-11-21T05:59:59", "2026-11-21T06:00:00"],
)
def test_both_exclude_a_stretch_up_to_its_end(at):
    schedule = Schedule.from_json(
        {"workflow": "w", "key": "k", "everyMs": 1000, "exclude": [ITEMS[3], ITEMS[2]]}
    )
    window = datetime.fromisoformat(f"{at}Z")
    assert schedule.exclusions is not None
    owed = OwedWindows(schedule.to_json())
    assert owed.off(instant(window)) == schedule.exclusions.reason(window)


@pytest.mark.parametrize(
    "cron",
    ["H(0-3)/10 * * * *", "H H(9-17) H * *", "H/40 H/5 * * *", "0 0 H H H(1-5)", "@monthly",
     "0 12 L-2,15W * *", "0 12 * * 5L,MON#2", "0 12 31W * *", "5 4 28-3 * 6-1", "0 0 */2 * FRI"],
)  # fmt: skip
@pytest.mark.parametrize("key", ["a", "cache-sync", "nightly-report"])
def test_both_read_the_rarer_forms_alike(cron, key):
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    ours, theirs = both({"cron": cron, "key": key}, begin, begin + YEAR)
    assert ours == theirs != []
