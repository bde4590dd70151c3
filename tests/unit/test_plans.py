"""Plan after plan, with steps, runs, looks and holds at random, against a model of the ledger.

The model shares no code with the planner: windows are multiples of a number of seconds, and it
knows which runs are truly open, which the planner only learns from what somebody saw.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings, strategies as st

from engine.schedules import Schedule
from engine.schedules.planner import overlap as overlap_rules
from engine.schedules.planner.decisions import ALL_READ, Decision, OpenFire, Plan
from engine.schedules.planner.overlap import ahead
from engine.schedules.planner.planner import MOST_ROWS
from engine.schedules.terms import STOPS
from tests.examples import examples
from tests.unit.planning import plan_of

BEGIN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@dataclass
class Run:
    """A fire in the model; ``closed_at`` is the truth, and nobody may have seen it yet."""

    number: int
    name: str
    status: str
    fire_time: datetime
    open_at: datetime | None = None
    stop: str | None = None
    closed_at: datetime | None = None
    overlap: str | None = None

    def shown(self) -> OpenFire:
        return OpenFire(
            self.number, self.name, self.status, self.fire_time,  # type: ignore[arg-type] # as written
            self.open_at, self.overlap, self.stop,  # type: ignore[arg-type] # as written
        )  # fmt: skip


@dataclass
class Model:
    """The ledger of one key, its runs, and a clock."""

    declared: Schedule
    chance: Random
    now: datetime = BEGIN
    cursor: datetime = BEGIN
    pause: tuple[datetime | None] | None = None
    known: dict[datetime, bool] = field(default_factory=dict)
    decided: dict[datetime, Decision] = field(default_factory=dict)
    open: list[Run] = field(default_factory=list)
    promoted: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    number: int = 0
    places: int = 1

    @property
    def running(self) -> int:
        """How many runs there are as far as the ledger knows, or will be."""
        return sum(run.status != "queued" for run in self.open)

    def windows(self, after: datetime, until: datetime) -> list[datetime]:
        every = (self.declared.every_ms or 0) // 1000
        first = int(after.timestamp()) // every + 1
        last = int(until.timestamp()) // every
        return [datetime.fromtimestamp(n * every, UTC) for n in range(first, last + 1)]

    def live(self) -> None:
        """Let time pass, and things happen in it."""
        self.now += self.chance.choice([1, 1, 5, 30, 61, 300, 4000]) * SECOND
        for run in [*self.open]:
            self.go_on(run)
        if self.chance.random() < 0.1:
            self.ask("manual")
        if self.chance.random() < 0.1:  # an operator skips a window, or a lost run is found
            ahead = self.windows(self.cursor, self.now + 600 * SECOND)
            at = self.chance.choice(ahead)
            self.known[at] = self.chance.random() < 0.5
        if self.chance.random() < 0.1:
            self.catch_up_with_everything(final=True)
            ends = self.now + self.chance.randint(1, 500) * SECOND
            self.pause = None if self.pause else (self.chance.choice([None, ends]),)

    def go_on(self, run: Run) -> None:
        if run.status == "claimed":
            run.status = "starting"
        elif run.status == "starting":
            # Its owner is slow, or dead: the run may close before anybody says that it started.
            if self.chance.random() < 0.3:
                run.closed_at = run.closed_at or self.now
            else:
                run.status = "started"
        elif run.status == "started" and (run.stop or self.chance.random() < 0.4):
            run.closed_at = run.closed_at or self.now
            if self.chance.random() < 0.6:  # the tracker has noticed
                self.open.remove(run)

    def ask(self, kind: str) -> None:
        self.number += 1
        full = self.running >= self.places or len(self.open) > self.running
        waits = full and self.declared.overlap != "allow"
        status = "queued" if waits else "claimed"
        if waits:
            self.queued.append(self.number)
        self.open.append(Run(self.number, f"sched:k:{kind}:{self.number}", status, self.now))

    def look(self, fires: tuple[OpenFire, ...]) -> None:
        for fire in fires:
            (run,) = [each for each in self.open if each.number == fire.fire_id]
            assert run.status == "started"
            if run.closed_at:
                self.open.remove(run)
            else:
                run.open_at = self.now
        self.now += self.chance.choice([0, 1, 3]) * SECOND  # windows open while somebody looks

    def settle(self) -> None:
        """A sweeper finds out what became of a send."""
        for run in self.open:
            if run.status == "starting":
                run.status = "started"

    def plan(self, **options: Any) -> Plan:
        shown = [run.shown() for run in self.open]
        read, unread = ahead(
            shown, self.declared.overlap, self.places, running=min(self.running, self.places),
            waiting=len(shown) - self.running,
        )  # fmt: skip
        if options.get("final") and self.declared.overlap in STOPS:
            # Where a definition ends nothing can be read first: what was not goes on waiting.
            read, unread = tuple(shown), ALL_READ
        return plan_of(
            self.declared, effective_from=BEGIN, cursor=self.cursor, now=self.now,
            hold="paused" if self.pause else None, hold_until=self.pause and self.pause[0],
            known={at: run for at, run in self.known.items() if at > self.cursor},
            limit=self.chance.choice([1, 3, 1000]),
            open_fires=read, unread=unread, **options,
        )  # fmt: skip

    def catch_up_with_everything(self, **options: Any) -> None:
        """Plan and look until nothing is due: that is soon."""
        for _ in range(5000):
            decided = self.plan(**options)
            self.apply(decided)
            if not decided.looks and (
                decided.next_fire_at is None or decided.next_fire_at > self.now
            ):
                assert not self.windows(self.cursor, self.now)
                return
            assert decided.withheld or not decided.looks
            if decided.withheld and not decided.looks:
                self.settle()
            self.look(decided.looks)
        raise AssertionError("it never ends")

    def apply(self, decided: Plan) -> None:
        assert len(decided.decisions) <= MOST_ROWS
        assert self.cursor <= decided.cursor <= self.now
        for move in decided.moves:
            (run,) = [each for each in self.open if each.number == move.fire.fire_id]
            if move.to == "start":
                assert self.running < self.places or self.declared.overlap == "allow"
                assert run.number == min(e.number for e in self.open if e.status == "queued")
                run.status = "claimed"
                self.promoted.append(run.number)
            elif move.to == "skip":
                assert run.status in {"claimed", "queued"}
                self.open.remove(run)
            else:
                assert run.status in {"starting", "started"}
                assert run.stop != move.to
                run.stop = move.to
        for decision in decided.decisions:
            self.decide(decision)
        for at in self.windows(self.cursor, decided.cursor):
            assert at in self.decided or at in self.known, f"{at} was passed over"
        self.cursor = decided.cursor
        is_over = decided.next_fire_at is None or decided.next_fire_at > self.now
        if not self.pause and len(self.open) > self.running and is_over:
            assert self.running >= self.places, "somebody waits, and a place is free"
        if decided.resumed:
            assert self.pause
            self.pause = None

    def decide(self, decision: Decision) -> None:
        covered = self.windows(decision.window.fire_time - SECOND, decision.until)
        assert len(covered) == decision.windows
        for at in covered:
            assert self.cursor < at <= self.now
            assert at not in self.decided
            assert at not in self.known
            self.decided[at] = decision
        overlap = self.declared.overlap
        name = decision.window.workflow_id(suffixed=False)
        if decision.verdict == "claimed":
            in_line = overlap.startswith("queue") and len(self.open) > self.running
            assert overlap == "allow" or (self.running < self.places and not in_line)
        elif decision.verdict == "queued":
            waiting = sum(run.status == "queued" for run in self.open)
            if decision.overlap is None:  # else it is the end of a definition, and asks again
                assert self.running >= self.places
                assert waiting < {"queue": self.declared.max_queued}.get(overlap, 1)
        elif (decision.reason or "").endswith("is still running"):
            (run,) = [each for each in self.open if each.name in (decision.reason or "")]
            assert run.closed_at is None or run.closed_at >= decision.window.fire_time
            assert run.status == "started", "what is being started may have closed"
        elif (decision.reason or "").endswith(("comes first", "come first")):
            names = [each.name for each in self.open if each.status in {"claimed", "queued"}]
            assert (decision.reason or "").split()[1] in names
        elif found := re.search(r"(\S+) and (\d+) more are open", decision.reason or ""):
            at = decision.window.fire_time
            truly = [run.name for run in self.open if not run.closed_at or run.closed_at >= at]
            assert found[1] in truly
            assert len(truly) >= int(found[2]) + 1 >= self.places
        if decision.verdict in {"claimed", "queued"}:
            self.number += 1
            if decision.verdict == "queued":
                self.queued.append(self.number)
            at, own = decision.window.fire_time, decision.overlap
            self.open.append(Run(self.number, name, decision.verdict, at, overlap=own))


POLICIES = ["latest", "all", "none"]
CATCH_UPS = st.fixed_dictionaries(
    {"policy": st.sampled_from(POLICIES), "pause": st.sampled_from(POLICIES)},
    optional={
        "window": st.sampled_from(["0s", "10m", "1h"]),
        "max": st.integers(1, 5),
        "order": st.sampled_from(["oldest", "newest"]),
        "rate": st.just("5/1s"),
    },
)
OVERLAPS = ["allow", "skip", "queue", "queue_one", "cancel_previous", "terminate_previous"]


@settings(max_examples=examples(150), deadline=None)
@given(
    every=st.sampled_from([1, 7, 20, 60, 600]),
    overlap=st.sampled_from(OVERLAPS),
    catch_up=CATCH_UPS,
    most=st.sampled_from([1, 2, 3, 9]),
    places=st.integers(1, 3),
    read=st.sampled_from([1, 2, 100]),
    chance=st.randoms(use_true_random=False),
)
def test_every_window_is_decided_once_and_nothing_starts_or_waits_but_for_a_place_it_needs(
    every, overlap, catch_up, most, places, read, chance
):
    several = overlap in {"skip", "queue", "queue_one"}
    limit = {"maxConcurrentRuns": places} if several else {}
    declared = Schedule.from_json(
        {"key": "k", "workflow": "w", "everyMs": every * 1000, "overlap": overlap,
         "maxQueued": most, "catchUp": catch_up, **limit}
    )  # fmt: skip
    model = Model(declared, chance, places=places if several else 1)
    with patch.object(overlap_rules, "READ_AHEAD", read):  # of however many are open
        for _ in range(12):
            model.live()
            model.catch_up_with_everything()
    assert all(at in model.decided or at in model.known for at in model.windows(BEGIN, model.now))
    waited = [number for number in model.queued if number in model.promoted]
    assert model.promoted == waited, "a queue keeps its order"
