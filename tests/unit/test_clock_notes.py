"""What a preview says around clock changes: exact sentences, and when there is one at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from engine.schedules import At, Cron, Interval
from engine.schedules.describe import changes, missing, note
from engine.schedules.terms import EARLIEST, HORIZON, SECONDS_PER_DAY
from engine.schedules.timing.spec import bounded
from engine.schedules.timing.zones import zone, zone_names
from tests.examples import examples
from tests.unit.cron_oracle import load, transitions
from tests.unit.prove_time import ODD_ZONES

NEW_YORK, DUBLIN, TROLL = "America/New_York", "Europe/Dublin", "Antarctica/Troll"
HOWE, APIA, SAO_PAULO = "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"


def day(text: str) -> tuple[datetime, datetime]:
    """Return the 72 hours around a day: whatever the zone, the local day is inside."""
    begin = datetime.fromisoformat(f"{text}T00:00:00+00:00") - timedelta(days=1)
    return begin, begin + timedelta(days=3)


def notes(cron: Cron, text: str) -> list[str]:
    return [said for fire in cron.fires(*day(text)) if (said := note(cron, fire))]


def missed(cron: Cron, text: str) -> list[str]:
    return [found.note for found in missing(cron, *day(text))]


@pytest.mark.parametrize(
    ("expression", "timezone", "on", "said"),
    [
        ("30 2 * * *", NEW_YORK, "2027-03-14",
         "02:30 does not exist on 2027-03-14; fires at 03:00"),
        ("0,30 2 * * *", NEW_YORK, "2027-03-14",
         "02:00 and 02:30 do not exist on 2027-03-14; one fire at 03:00"),
        ("0,30 2,3 * * *", NEW_YORK, "2027-03-14",
         "02:00 and 02:30 do not exist on 2027-03-14; one fire with that of 03:00"),
        ("0-59 2 * * *", NEW_YORK, "2027-03-14",
         "60 times from 02:00 to 02:59 do not exist on 2027-03-14; one fire at 03:00"),
        ("15 30 2 * * *", NEW_YORK, "2027-03-14",
         "02:30:15 does not exist on 2027-03-14; fires at 03:00"),
        ("30 1 * * *", NEW_YORK, "2027-11-07",
         "01:30 happens twice on 2027-11-07; fires at the first"),
        ("15 2 * * *", HOWE, "2027-10-03",
         "02:15 does not exist on 2027-10-03; fires at 02:30"),
        ("45 1 * * *", HOWE, "2027-04-04",
         "01:45 happens twice on 2027-04-04; fires at the first"),
        ("30 1,2 * * *", TROLL, "2027-03-28",
         "01:30 and 02:30 do not exist on 2027-03-28; one fire at 03:00"),
        ("0 2 * * *", APIA, "2011-12-30",
         "2011-12-30 does not exist; its 02:00 fires at 2011-12-31 00:00"),
        ("0 0 * * *", APIA, "2011-12-30",
         ("2011-12-30 does not exist; its 00:00 is one fire with that of 2011-12-31 00:00")),
        ("0 2,3 * * *", APIA, "2011-12-30",
         "2011-12-30 does not exist; its 02:00 and 03:00 are one fire at 2011-12-31 00:00"),
        ("0 0,3 * * *", APIA, "2011-12-30",
         ("2011-12-30 does not exist; its 00:00 and 03:00 are one fire with that of "
          "2011-12-31 00:00")),
        ("30 1 * * *", DUBLIN, "2027-03-28",
         "01:30 does not exist on 2027-03-28; fires at 02:00"),
        ("30 1 * * *", DUBLIN, "2027-10-31",
         "01:30 happens twice on 2027-10-31; fires at the first"),
        ("45 23 * * *", "Asia/Pyongyang", "2018-05-04",
         "23:45 does not exist on 2018-05-04; fires at 2018-05-05 00:00"),
        ("15 0 * * *", SAO_PAULO, "2018-11-04",
         "00:15 does not exist on 2018-11-04; fires at 01:00"),
    ],
)  # fmt: skip
def test_an_unusual_fire_of_a_fixed_time_is_explained(expression, timezone, on, said):
    cron = Cron(expression, timezone)
    assert notes(cron, on) == [said]
    assert missed(cron, on) == []


def test_each_of_the_two_hours_that_troll_repeats_is_explained():
    assert notes(Cron("30 1,2 * * *", TROLL), "2027-10-31") == [
        "01:30 happens twice on 2027-10-31; fires at the first",
        "02:30 happens twice on 2027-10-31; fires at the first",
    ]


@pytest.mark.parametrize(
    ("timezone", "on", "text"), [(NEW_YORK, "2027-11-07", "01:30"), (HOWE, "2027-04-04", "01:30")]
)
def test_a_wildcard_and_fold_both_tell_the_first_from_the_second(timezone, on, text):
    both = [f"the first of two {text} on {on}", f"the second of two {text} on {on}"]
    assert notes(Cron("30 * * * *", timezone), on) == both
    assert notes(Cron("30 1 * * *", timezone, dst={"fold": "both"}), on) == both


def test_fold_last_says_that_it_takes_the_second():
    said = "01:30 happens twice on 2027-11-07; fires at the second"
    assert notes(Cron("30 1 * * *", NEW_YORK, dst={"fold": "last"}), "2027-11-07") == [said]


@pytest.mark.parametrize(
    ("expression", "timezone", "on", "said"),
    [
        ("*/15 * * * *", NEW_YORK, "2027-03-14",
         ("02:00, 02:15, 02:30 and 02:45 do not happen on 2027-03-14: "
          "the clock goes forward from 02:00 to 03:00")),
        ("15 * * * *", HOWE, "2027-10-03",
         "02:15 does not happen on 2027-10-03: the clock goes forward from 02:00 to 02:30"),
        ("45 * * * *", "Asia/Pyongyang", "2018-05-04",
         ("23:45 does not happen on 2018-05-04: "
          "the clock goes forward from 23:30 to 2018-05-05 00:00")),
        ("* * * * *", TROLL, "2027-03-28",
         ("120 times from 01:00 to 02:59 do not happen on 2027-03-28: "
          "the clock goes forward from 01:00 to 03:00")),
        ("0 */12 * * *", APIA, "2011-12-30",
         "2011-12-30 does not exist: its 00:00 and 12:00 do not happen"),
    ],
)  # fmt: skip
def test_what_a_wildcard_does_not_see_is_told_where_it_would_have_been(
    expression, timezone, on, said
):
    cron = Cron(expression, timezone)
    assert missed(cron, on) == [said]
    assert notes(cron, on) == []


def test_a_skipped_time_is_told_with_the_instant_of_the_change():
    cron = Cron("30 2 * * *", NEW_YORK, dst={"gap": "skip"})
    (found,) = missing(cron, *day("2027-03-14"))
    assert found.at == datetime(2027, 3, 14, 7, tzinfo=UTC)
    assert found.note == (
        "02:30 is skipped on 2027-03-14: the clock goes forward from 02:00 to 03:00"
    )
    assert [*missing(cron, found.at, found.at + timedelta(days=200))] == []
    assert [*missing(cron, found.at - timedelta(seconds=1), found.at)] == [found]


def test_bounds_change_no_note_and_hide_what_lies_outside():
    fixed = bounded(Cron("30 2 * * *", NEW_YORK), "2027-03-01", "2027-12-31", NEW_YORK)
    fire = datetime(2027, 3, 14, 7, tzinfo=UTC)
    assert note(fixed, fire) == "02:30 does not exist on 2027-03-14; fires at 03:00"
    inside, later, earlier = (
        bounded(Cron("*/30 * * * *", NEW_YORK), start, end, NEW_YORK)
        for start, end in [("2027-03-14", None), ("2027-03-15", None), (None, "2027-03-13")]
    )
    assert len([*missing(inside, *day("2027-03-14"))]) == 1
    assert [*missing(later, *day("2027-03-14"))] == []
    assert [*missing(earlier, *day("2027-03-14"))] == []
    ended = bounded(Cron("30 2 * * *", NEW_YORK), None, "2027-03-13", NEW_YORK)
    assert note(ended, fire) == ""


def test_ordinary_fires_and_other_kinds_have_no_note():
    year = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
    for cron in (Cron("*/30 * * * *", SAO_PAULO), Cron("30 4 * * *", NEW_YORK)):
        assert {note(cron, fire) for fire in cron.fires(*year)} == {""}
        assert [*missing(cron, *year)] == []
    hour = Interval(3_600_000)
    assert note(hour, year[0]) == ""
    assert [*missing(hour, *year)] == []


def test_an_instant_that_is_no_fire_has_no_note():
    repeated = datetime(2027, 11, 7, 5, 30, tzinfo=UTC)
    assert note(Cron("30 1 * * *", NEW_YORK), repeated) != ""
    assert note(Cron("30 1 * * *", NEW_YORK), repeated + timedelta(hours=1)) == ""
    assert note(Cron("15 1 * * *", NEW_YORK), repeated) == ""
    assert note(At("2027-11-07T01:30:00", timezone=NEW_YORK), repeated + timedelta(hours=1)) == ""


@pytest.mark.parametrize(
    ("moment", "timezone", "said"),
    [
        ("2027-03-14T02:30:00", NEW_YORK, "02:30 does not exist on 2027-03-14; fires at 03:00"),
        ("2011-12-30T02:30", APIA, "02:30 does not exist on 2011-12-30; fires at 2011-12-31 00:00"),
        ("2027-11-07 01:30", NEW_YORK, "01:30 happens twice on 2027-11-07; fires at the first"),
        (datetime(2027, 11, 7, 1, 30), NEW_YORK,  # noqa: DTZ001 - local to the timezone beside it
         "01:30 happens twice on 2027-11-07; fires at the first"),
        ("2027-11-07T03:30:00", NEW_YORK, ""),
        ("2027-11-07T01:30:00-04:00", None, ""),
    ],
)  # fmt: skip
def test_a_local_moment_that_is_skipped_or_repeated_is_explained(moment, timezone, said):
    at = At(moment, timezone=timezone)
    assert note(at, at.instant) == said


def test_no_zone_shows_later_what_it_skips_nor_skips_parts_of_two_days():
    """The notes say "does not exist" and one date only while both hold of every zone on record."""
    for name in zone_names():
        lowest_later = HORIZON * 2
        for change in reversed([*changes(zone(name), EARLIEST, HORIZON)]):
            first, end = change.skipped
            if first < end:
                assert end <= lowest_later, name
                assert first // SECONDS_PER_DAY == (end - 1) // SECONDS_PER_DAY, name
            lowest_later = min(lowest_later, change.after)


MINUTE = timedelta(minutes=1)
FIELDS = {
    "0": {0}, "30": {30}, "0,45": {0, 45}, "5-20/5": {5, 10, 15, 20}, "*": {*range(60)},
    "*/20": {0, 20, 40},
}  # fmt: skip
HOURS = {
    "0": {0}, "1": {1}, "1-3": {1, 2, 3}, "2": {2}, "23": {23}, "*": {*range(24)},
    "*/2": {*range(0, 24, 2)}, "0-23": {*range(24)},
}  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(
    name=st.sampled_from(ODD_ZONES),
    pick=st.integers(0, 10**6),
    minute=st.sampled_from([*FIELDS]),
    hour=st.sampled_from([*HOURS]),
    gap=st.sampled_from(["shift", "skip"]),
    fold=st.sampled_from(["first", "last", "both"]),
)
def test_a_note_is_there_exactly_where_the_clock_is_odd(name, pick, minute, hour, gap, fold):
    """The oracle knows no table of ours: it asks zoneinfo what the clock shows."""
    turns, rules = transitions(name), load(name)
    turn = datetime.fromtimestamp(turns[pick % len(turns)], UTC)
    begin, end = turn - timedelta(hours=5), turn + timedelta(hours=5)
    cron = Cron(f"{minute} {hour} * * *", name, dst={"gap": gap, "fold": fold})
    shifts = gap == "shift" and "*" not in (minute + hour)

    def is_named(wall: datetime) -> bool:
        return wall.minute in FIELDS[minute] and wall.hour in HOURS[hour] and wall.second == 0

    def skipped_before(instant: datetime) -> list[datetime]:
        """Return the named times that the clock jumps over just before ``instant``."""
        wall = instant.astimezone(rules).replace(tzinfo=None)
        old = (instant - MINUTE).astimezone(rules).replace(tzinfo=None)
        return [
            each for n in range(1, 3000) if (each := old + n * MINUTE) < wall and is_named(each)
        ]

    for fire in cron.fires(begin, end):
        local = fire.astimezone(rules)
        wall = local.replace(tzinfo=None, fold=0)
        offsets = {wall.replace(tzinfo=rules, fold=n).utcoffset() for n in (0, 1)}
        skipped = skipped_before(fire) if shifts else []
        said = note(cron, fire)
        assert bool(said) == (not is_named(wall) or len(offsets) > 1 or bool(skipped)), said
        if skipped:
            assert f"{skipped[0]:%Y-%m-%d}" in said
            assert f"{skipped[0]:%H:%M}" in said
            assert f"{skipped[-1]:%H:%M}" in said
            assert f"{wall:%H:%M}" in said
        elif said:
            assert f"{wall:%H:%M}" in said
            second = ("second" in said) == bool(local.fold)
            assert second, said
    lost = skipped_before(turn)
    found = [*missing(cron, begin, end)]
    expected = [turn] if lost and not shifts else []
    assert [each.at for each in found] == expected
    for each in found:
        assert f"{lost[0]:%H:%M}" in each.note
        assert f"{lost[-1]:%H:%M}" in each.note
        assert f"{lost[0]:%Y-%m-%d}" in each.note
