"""Our evaluator against a brute-force scan of real clocks: a seeded slice of `prove_time`."""

from __future__ import annotations

import random
from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta

from engine.schedules.timing import spec
from engine.schedules.timing.spec import Cron
from engine.schedules.timing.zones import BEGINNING, tabulate
from tests.unit.cron_oracle import (
    APIA_SKIPS_A_DAY,
    DAY,
    Clock,
    Meaning,
    day_rule,
    last_fires,
    standard_fires,
    wildcard_fires,
)
from tests.unit.prove_time import (
    ODD_ZONES,
    Proof,
    compare_calls,
    compare_lists,
    moments,
    places_of,
    some_places,
)

FAMILIES = ("minutes, wildcard", "minutes, fixed-time", "seconds", "dst overrides")


def test_random_questions_are_answered_as_a_scan_of_the_clock_answers_them():
    """Another and a hundred times larger set of questions: ``make prove-time``."""
    rng, proof = random.Random(20_261_121), Proof()
    odd = [place for name in ODD_ZONES for place in places_of(rng, name, 1)]
    for number, place in enumerate([APIA_SKIPS_A_DAY, *odd, *some_places(rng, 6)]):
        proof.minutes(rng, place, expressions=3, instants=9)
        proof.overrides(rng, place, instants=6)
        if number % 4 == 0:
            proof.seconds(rng, place, expressions=3, instants=20)
    assert proof.total >= 1500
    assert proof.zones >= set(ODD_ZONES)
    assert min(proof.compared[family] for family in FAMILIES) >= 180


def test_changes_of_offset_inside_each_other_follow_the_same_rules(monkeypatch):
    """No zone does this today; a clock that jumps about at random must not break the set."""
    rng = random.Random(11)
    origin = int(datetime(2030, 5, 5, tzinfo=UTC).timestamp())
    for n in range(20):
        table, at = [(BEGINNING, 0)], origin
        for _ in range(6):
            at += rng.randrange(1, 24) * 900
            table.append((at, rng.randrange(-16, 17) * 900))
        zone = tabulate(f"Test/{n}", table)
        monkeypatch.setattr(spec, "zone", lambda _, zone=zone: zone)
        low, high = origin - 12 * 3600, at + 12 * 3600
        clock = [
            (u, u + next(offset for start, offset in reversed(table) if start <= u))
            for u in range(low - 2 * DAY, high + 2 * DAY, 300)
        ]
        for fold in ("standard", "wildcard", "last"):
            cron, fires = jumpy_case(rng, clock, f"Test/{n}", fold)
            expected = [fire for fire in fires if low <= fire < high]
            for moment in moments(rng, low, high - 1, rng.choice(table[1:])[0], 12):
                compare_calls(cron, expected, moment, low, high)
            compare_lists(rng, cron, expected, low, high)


def jumpy_case(rng: random.Random, clock: Clock, name: str, fold: str) -> tuple[Cron, list[int]]:
    minutes, hours = rng.choice([{0}, {0, 30}, {15, 45}]), set(rng.sample(range(24), 8))
    meaning = Meaning("", {0}, minutes, hours, lambda _: True, fold == "wildcard")
    minute, hour = (",".join(map(str, values)) for values in (minutes, hours))
    if fold == "wildcard":
        meaning.hours, hour = set(range(24)), "*"
        return Cron(f"{minute} {hour} * * *", name), wildcard_fires(meaning, clock)
    if fold == "standard":
        return Cron(f"{minute} {hour} * * *", name), standard_fires(meaning, clock, 300)
    return Cron(f"{minute} {hour} * * *", name, {"fold": "last"}), last_fires(meaning, clock, 300)


def test_the_evaluator_agrees_with_a_scan_of_whole_years():
    """Away from transitions the calendar is what can go wrong: walk days, not minutes."""
    rng = random.Random(3)
    for _ in range(150):
        year = rng.randrange(1971, 2100)
        day, weekday, matches_day = day_rule(rng)
        days = [date(year, 1, 1) + timedelta(n) for n in range(366 + 366)]
        expected = [
            int(datetime(d.year, d.month, d.day, 9, 30, tzinfo=UTC).timestamp())
            for d in days
            if matches_day(d)
        ]
        cron = Cron(f"30 9 {day} * {weekday}")
        start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
        compare_lists(rng, cron, expected, start, start + 732 * DAY)
        at = rng.randrange(start, start + 732 * DAY)
        assert bisect_left(expected, at) == cron.count(
            datetime.fromtimestamp(start - 1, UTC), datetime.fromtimestamp(at - 1, UTC)
        )
