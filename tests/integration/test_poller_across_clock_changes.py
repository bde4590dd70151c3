"""Two replicas poll across a turn of the clock, forth and back, of ten zones, in virtual time.

The poller, the dispatcher and the ledger are real; a recorder stands where the starter would send.
What must have started is read off a scan of the zone's clock, not off our evaluator.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from engine.ledger import Ledger
from engine.ledger.fires import Claim, Outcome
from engine.ledger.records import Serving
from engine.runtime import Poller, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Answer, Starter
from engine.schedules import load_schedules
from engine.testing import FrozenClock
from tests.blind import BLIND
from tests.unit.cron_oracle import Meaning, fires_of, inside, scan, transitions

ZONES = (
    *("America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Antarctica/Troll"),
    *("Africa/Casablanca", "Asia/Gaza", "America/St_Johns", "America/Santiago"),
    *("Africa/Cairo", "Pacific/Chatham"),
)
FROM, TO = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2026, 2029))
BEFORE, AFTER = 90 * 60, 150 * 60
LATEST = 40.0  # still within grace: no window is coalesced

EACH_FIFTH, EVERY_HOUR = set(range(0, 60, 5)), set(range(24))
MEANINGS = {
    "quarters": Meaning("*/15 * * * *", {0}, {0, 15, 30, 45}, EVERY_HOUR, lambda _: True, True),
    "fives": Meaning("*/5 * * * *", {0}, EACH_FIFTH, EVERY_HOUR, lambda _: True, True),
    "two-hourly": Meaning("5 */2 * * *", {0}, {5}, set(range(0, 24, 2)), lambda _: True, True),
    "night": Meaning("30 2 * * *", {0}, {30}, {2}, lambda _: True, False),
    "midnight": Meaning("0 0 * * *", {0}, {0}, {0}, lambda _: True, False),
    "listed": Meaning("0,20,40 0-3 * * *", {0}, {0, 20, 40}, {0, 1, 2, 3}, lambda _: True, False),
    "monthly": Meaning("0 0 1 * *", {0}, {0}, {0}, lambda day: day.day == 1, False),
    "sundays": Meaning(
        "*/20 30 1,2 * * SUN", {0, 20, 40}, {30}, {1, 2}, lambda day: day.isoweekday() == 7, False
    ),
}


class Recorder:
    """Stands where the starter would be: notes what is to be sent, and calls it started."""

    def __init__(self) -> None:
        self.sent: list[Claim] = []

    async def ask(self) -> None:
        """Temporal always answers."""

    async def start(self, claim: Claim, lease_ends: float) -> Answer:
        self.sent.append(claim)
        return Answer(
            Outcome(claim.fire_id, claim.token, "started", started_at=claim.fire_time, run_id="r")
        )


def replica(ledger: Ledger, name: str, recorder: Recorder) -> Poller:
    settings, clock = Settings(), LedgerClock()
    starter = cast("Starter", recorder)
    dispatcher = Dispatcher(ledger, starter, clock, settings, on_event=lambda _: None)
    serving = Serving(name, "default", "sched", frozenset({"noop@1"}))
    return Poller(ledger, dispatcher, clock, serving, settings, **BLIND)


SERVING = Serving("declares", "default", "sched", frozenset({"noop@1"}))


async def declare(ledger: Ledger, zone: str) -> None:
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    entries = (
        f'  - {{key: {key}, workflow: noop, cron: "{meaning.text}", timezone: {zone}}}'
        for key, meaning in MEANINGS.items()
    )
    await apply(ledger, load_schedules("schedules:\n" + "\n".join(entries)), by="test")


async def poll(rng: random.Random, ledger: Ledger, clock: FrozenClock, end: int) -> list[Claim]:
    """Poll until ``end``, at moments at which something may be due; returns what was sent."""
    recorder = Recorder()
    replicas = [replica(ledger, name, recorder) for name in ("one", "two")]
    until = datetime.fromtimestamp(end, UTC)
    while clock.now() < until:
        due = (await ledger.probe(SERVING)).due_at or until
        late = rng.uniform(0, LATEST) if rng.random() < 0.8 else rng.uniform(-600, 0.05)
        clock.move_to(min(max(due + timedelta(seconds=late), clock.now()), until))
        ticking = rng.sample(replicas, 2 if rng.random() < 0.2 else 1)
        await asyncio.gather(*(each.tick() for each in ticking))
    return recorder.sent


def expected(zone: str, begin: int, end: int) -> dict[str, list[int]]:
    """Return the fire times in ``begin < t <= end`` that a walk over the zone's clock finds."""
    walks = {60: scan(zone, (begin // 3600 - 26) * 3600, end + 60, 60),
             1: scan(zone, begin - 2 * 3600, end + 1, 1)}  # fmt: skip
    found = {}
    for key, meaning in MEANINGS.items():
        step = 60 if meaning.seconds == {0} else 1
        found[key] = inside(fires_of(meaning, walks[step], step), begin, end)
    return found


@pytest.mark.parametrize(
    "zone",
    [
        ZONES[1],
        *(pytest.param(each, marks=pytest.mark.prove) for each in ZONES if each != ZONES[1]),
    ],
)
async def test_every_window_around_a_clock_change_starts_once_and_none_goes_back(
    zone, clock, virtual_ledger
):
    rng = random.Random(zone)
    turns = [turn for turn in transitions(zone) if FROM <= turn < TO]
    assert len(turns) >= 2
    for turn in turns[:2]:  # forth and back
        begin, end = turn - BEFORE + rng.randrange(60), turn + AFTER
        clock.move_to(datetime.fromtimestamp(begin, UTC))
        ledger = Ledger(virtual_ledger._connections, f"{zone} {turn}")
        await declare(ledger, zone)
        sent = await poll(rng, ledger, clock, end)
        buckets: dict[str, list[int]] = {key: [] for key in MEANINGS}
        for claim in sent:
            buckets[claim.key].append(claim.bucket // 1000)
        assert buckets == expected(zone, begin, end), f"{zone} {datetime.fromtimestamp(turn, UTC)}"
        assert {claim.timing for claim in sent} == {"on_time"}
        assert len({claim.workflow_id for claim in sent}) == len(sent)
