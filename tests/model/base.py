"""What every machine has: a world, and a count of what it did."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from engine.service import ScheduleService
from tests.bridge import Bridge
from tests.model.drawn import entries
from tests.model.ending import settle
from tests.model.row_laws import GHOST
from tests.model.server import SECOND
from tests.model.world import BROKEN, World

LOOPS = ("poller", "poller", "tracker", "leases", "starts", "presence", "watchdog")
KEYS = ("a", "b", "c", "d")
RULES: Counter[str] = Counter()
SEEN: Counter[str] = Counter()

seeds = st.integers(0, 2**32)
keys = st.sampled_from(KEYS)


class Base(RuleBasedStateMachine):
    """Time and turns; every rule ends with a few awaits of whoever is awake."""

    bridge: ClassVar[Bridge]

    def __init__(self) -> None:
        super().__init__()
        self.chance = Random(0)
        self.world = World(self.bridge, self.chance)
        self.service = ScheduleService(self.world.operator, actor="test")

    def go(self, name: str, seed: int) -> None:
        RULES[name] += 1
        self.chance.seed(seed)
        if not self.world.members and self.chance.random() < 0.5:
            self.world.join()

    def then(self) -> None:
        self.world.pump(self.chance.choice([0, 1, 3, 10, 30]), self.chance.choice([0, 0, 0.1, 1]))

    @initialize(file=st.lists(entries(), min_size=len(KEYS), max_size=len(KEYS)), seed=seeds)
    def declare(self, file: list[dict[str, Any]], seed: int) -> None:
        self.go("declare", seed)
        world = self.world
        world.file = dict(zip(KEYS, file, strict=True))
        world.file[BROKEN] = {"everyMs": 120_000}
        if self.chance.random() < 0.3:
            # Before anybody serves the task queue: from then on it is refused.
            world.file[GHOST] = {"everyMs": 60_000, "workflow": "nobody"}
            world.ask(world.apply)
            world.pump(200, 0.1)
        for _ in range(self.chance.choice([1, 2, 3])):
            world.join()
        world.ask(world.apply)
        world.pump(200, 0.1)

    @rule(seed=seeds, which=st.sampled_from(LOOPS))
    def turn(self, seed: int, which: str) -> None:
        self.go("turn", seed)
        for member in self.world.members:
            if self.chance.random() < 0.7:
                member.turn(which if which in member.loops else "begin")
        self.then()

    @rule(seed=seeds, rounds=st.integers(1, 6), seconds=st.sampled_from([0.3, 2, 7, 15]))
    def live(self, seed: int, rounds: int, seconds: float) -> None:
        self.go("live", seed)
        self.world.live(rounds, seconds)

    @rule(seed=seeds)
    def awaits(self, seed: int) -> None:
        self.go("awaits", seed)
        self.then()

    @rule(
        seed=seeds,
        length=st.sampled_from([0.05, 1, 10, 31, 70, 70, 400, 900, 4000, 90_000]),
    )
    def sleep(self, seed: int, length: float) -> None:
        self.go("sleep", seed)
        self.world.sleep(length * SECOND)
        self.then()

    def teardown(self) -> None:
        try:
            settle(self.world)
        finally:
            SEEN.update(self.world.account.seen)
            SEEN["await"] += self.world.loop.ran
            self.world.close()
