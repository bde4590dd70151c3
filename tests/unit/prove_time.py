"""Compares the evaluator with the brute-force oracle: ``make prove-time``.

One comparison is one random (expression, zone, instant): what ``next`` and ``previous`` say there
against the oracle's. For each expression ``fires``, ``count`` and ``latest`` are compared as well
over a random stretch. Every difference raises; the numbers are those of comparisons that held.
"""

from __future__ import annotations

import random
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product

from engine.schedules.timing.spec import Cron, latest
from engine.schedules.timing.zones import zone_names
from tests.unit.cron_oracle import (
    APIA_SKIPS_A_DAY,
    MINUTE,
    YEARS,
    fires_of,
    inside,
    make,
    policy_fires,
    scan,
    transitions,
    within,
)

ODD_ZONES = (
    *("Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia", "Africa/Casablanca"),
    *("Asia/Gaza", "America/St_Johns", "Europe/Dublin", "Asia/Kathmandu"),
    *("America/New_York", "Europe/London", "Pacific/Kwajalein", "Antarctica/Casey"),
    *("America/Sao_Paulo", "Asia/Tehran", "Africa/Cairo", "America/Caracas"),
)
POLICIES = tuple(product(("shift", "skip"), ("first", "last", "both")))

Place = tuple[str, int]


@dataclass
class Proof:
    """What was compared, and where."""

    compared: Counter[str] = field(default_factory=Counter)
    zones: set[str] = field(default_factory=set)

    @property
    def total(self) -> int:
        return self.compared.total()

    def minutes(self, rng: random.Random, place: Place, *, expressions: int, instants: int) -> None:
        """Five fields around one change of offset, walked minute by minute."""
        name, turn = place
        middle = turn // MINUTE * MINUTE
        low, high = middle - 36 * 3600, middle + 36 * 3600
        # A day and two hours of margin, so that the shift of any fold and gap is inside.
        clock = scan(name, low - 26 * 3600, high + 26 * 3600, MINUTE)
        assert all(reading % MINUTE == 0 for _, reading in clock), name
        for _ in range(expressions):
            meaning = make(rng)
            cron = Cron(meaning.text, name, key=meaning.key)
            fires = within(fires_of(meaning, clock, MINUTE), low, high)
            kind = "wildcard" if meaning.wildcard else "fixed-time"
            self.compare(f"minutes, {kind}", rng, cron, fires, place, (low, high), instants)

    def seconds(self, rng: random.Random, place: Place, *, expressions: int, instants: int) -> None:
        """Six fields around one change of offset, walked second by second."""
        name, turn = place
        low, high = turn - 5400, turn + 5400
        clock = scan(name, low - 7200, high + 7200, 1)
        if abs((clock[-1][1] - clock[0][1]) - (clock[-1][0] - clock[0][0])) > 7200:
            return  # a shift of many hours needs the margin of the others
        for _ in range(expressions):
            meaning = make(rng, with_seconds=True, stars=0.6)
            cron = Cron(meaning.text, name, key=meaning.key)
            fires = within(fires_of(meaning, clock, 1), low, high)
            self.compare("seconds", rng, cron, fires, place, (low, high), instants)

    def overrides(self, rng: random.Random, place: Place, *, instants: int) -> None:
        """All six ``dst`` policies of fixed-time schedules, by a record of what was shown."""
        name, turn = place
        middle = turn // MINUTE * MINUTE
        low, high = middle - 30 * 3600, middle + 30 * 3600
        clock = scan(name, low - 52 * 3600, high + 52 * 3600, MINUTE)
        for gap, fold in POLICIES:
            meaning = make(rng, stars=0)
            cron = Cron(meaning.text, name, dst={"gap": gap, "fold": fold}, key=meaning.key)
            fires = within(policy_fires(meaning, clock, gap, fold), low, high)
            self.compare("dst overrides", rng, cron, fires, place, (low, high), instants)

    def compare(
        self,
        family: str,
        rng: random.Random,
        cron: Cron,
        fires: list[int],
        place: Place,
        bounds: tuple[int, int],
        instants: int,
    ) -> None:
        low, high = bounds
        for at in moments(rng, low, high - 1, place[1], instants):
            compare_calls(cron, fires, at, low, high)
        compare_lists(rng, cron, fires, low, high)
        self.compared[family] += instants
        self.zones.add(place[0])


def moments(rng: random.Random, low: int, high: int, middle: int, n: int) -> list[int]:
    near = [middle + rng.randrange(-2, 3) for _ in range(n // 3)]
    close = [middle + rng.randrange(-4 * 3600, 4 * 3600) for _ in range(n // 3)]
    far = [rng.randrange(low, high) for _ in range(n - len(near) - len(close))]
    return [min(max(at, low), high) for at in (*near, *close, *far)]


def compare_calls(cron: Cron, expected: list[int], at: int, low: int, high: int) -> None:
    """Compare next and previous at ``at``; ``expected`` is complete in ``low <= t < high``."""

    def seconds(instant: datetime | None) -> int | None:
        return None if instant is None else int(instant.timestamp())

    moment = datetime.fromtimestamp(at, UTC)
    following, earlier = seconds(cron.next(moment)), seconds(cron.previous(moment))
    later = bisect_right(expected, at)
    if later < len(expected):
        assert following == expected[later], f"{cron!r} at {moment}"
    else:
        assert following is None or following >= high, f"{cron!r} at {moment}"
    if later > 0:
        assert earlier == expected[later - 1], f"{cron!r} at {moment}"
    else:
        assert earlier is None or earlier < low, f"{cron!r} at {moment}"


def compare_lists(rng: random.Random, cron: Cron, expected: list[int], low: int, high: int) -> None:
    """Compare fires, count and latest over a random stretch."""
    after, until = sorted(rng.randrange(low, high) for _ in range(2))
    wanted = inside(expected, after, until)
    start, end = (datetime.fromtimestamp(at, UTC) for at in (after, until))
    assert [int(fire.timestamp()) for fire in cron.fires(start, end)] == wanted, repr(cron)
    assert cron.count(start, end) == len(wanted), f"{cron!r} from {start} to {end}"
    newest = [int(fire.timestamp()) for fire in latest(cron, end, len(wanted))]
    assert newest == wanted[::-1], repr(cron)


def some_places(rng: random.Random, count: int) -> list[Place]:
    """Return random changes of offset, half of them of the odd zones."""
    names = rng.sample(zone_names(), count)
    odd = [(name, at) for name in ODD_ZONES for at in transitions(name)]
    others = [place for name in names for place in places_of(rng, name, 1)]
    return rng.sample(odd, count // 2) + rng.sample(others, count - count // 2)


def places_of(rng: random.Random, name: str, count: int) -> Iterable[Place]:
    """Return random changes of one zone; of a zone without any, random instants."""
    known = transitions(name)
    start, end = (int(year.timestamp()) for year in YEARS)
    for _ in range(count):
        yield name, rng.choice(known) if known else rng.randrange(start, end)


def every_place(rng: random.Random) -> list[Place]:
    """Return changes of every zone that a schedule can name, more of them of the odd ones."""
    return [
        APIA_SKIPS_A_DAY,
        *(place for name in zone_names() for place in places_of(rng, name, 1)),
        *(place for name in ODD_ZONES for place in places_of(rng, name, 12)),
    ]


def prove_whole(seed: int) -> Proof:
    """Compare around changes of every zone: minutes of work."""
    rng, proof = random.Random(seed), Proof()
    places = every_place(rng)
    for number, place in enumerate(places, 1):
        proof.minutes(rng, place, expressions=10, instants=24)
        proof.overrides(rng, place, instants=12)
        if number % 4 == 0:
            proof.seconds(rng, place, expressions=6, instants=24)
        if number % 100 == 0:
            print(f"{number} of {len(places)} places, {proof.total} comparisons", flush=True)  # noqa: T201
    return proof


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(10**9)
    began = time.monotonic()
    print(f"seed {seed}")  # noqa: T201
    proof = prove_whole(seed)
    for family, number in sorted(proof.compared.items()):
        print(f"{number:>9}  {family}")  # noqa: T201
    assert proof.zones == set(zone_names())
    assert proof.total >= 200_000
    took = time.monotonic() - began
    print(f"{proof.total:>9}  comparisons in {len(proof.zones)} zones, 0 differences, {took:.0f} s")  # noqa: T201


if __name__ == "__main__":
    main()
