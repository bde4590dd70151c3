"""What may happen, one rule each."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from engine.ledger import Ledger
from engine.schedules.catch_up import CatchUp
from engine.service import ScheduleService
from tests.model.drawn import catch_ups, entries, overlaps, policies, whens
from tests.model.moments import windows
from tests.model.temporal import Faults
from tests.model.world import BROKEN, GHOST, World

SECOND = timedelta(seconds=1)
KEYS = ("a", "b", "c", "d")
RULES: Counter[str] = Counter()
SEEN: Counter[str] = Counter()

seeds = st.integers(0, 2**32)
keys = st.sampled_from(KEYS)
reasons = st.sampled_from([None, "because"])


class Machine(RuleBasedStateMachine):
    """What may happen; every rule ends with a few awaits of whoever is awake."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = Random(0)
        self.world = World(self.chance)
        self.service = ScheduleService(cast("Ledger", self.world.wire()), actor="test")

    def go(self, name: str, seed: int) -> None:
        RULES[name] += 1
        self.chance.seed(seed)

    def then(self) -> None:
        self.world.pump(self.chance.choice([0, 1, 3, 10, 30]), self.chance.choice([0, 0, 0.1, 1]))

    @initialize(file=st.lists(entries(), min_size=len(KEYS), max_size=len(KEYS)), seed=seeds)
    def declare(self, file: list[dict[str, Any]], seed: int) -> None:
        self.go("declare", seed)
        world = self.world
        world.file = dict(zip(KEYS, file, strict=True))
        world.file[BROKEN] = {"everyMs": 20_000}
        world.file[GHOST] = {"everyMs": 20_000, "workflow": "nobody"}
        for _ in range(self.chance.choice([1, 2, 3])):
            world.join()
        world.ask(world.apply)
        world.pump(200, 0.1)

    @rule(seed=seeds, which=st.sampled_from(["poller", "poller", "tracker", "leases", "starts"]))
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

    @rule(seed=seeds, key=keys, entry=entries())
    def edit(self, seed: int, key: str, entry: dict[str, Any]) -> None:
        self.go("edit", seed)
        self.world.file[key] = entry
        if self.chance.random() < 0.2:
            self.world.file[GHOST] = {
                "everyMs": self.chance.choice([20_000, 30_000]), "workflow": "nobody",
            }  # fmt: skip
        self.world.ask(self.world.apply)
        self.then()

    @rule(seed=seeds, key=keys, change=st.one_of(overlaps, st.just({"enabled": False}),
                                                 st.just({"enabled": True}), whens))  # fmt: skip
    def amend(self, seed: int, key: str, change: dict[str, Any]) -> None:
        self.go("amend", seed)
        entry = dict(self.world.file.get(key, {"everyMs": 10_000}))
        if change.keys() & {"everyMs", "cron", "at"}:
            for name in ("everyMs", "offsetMs", "cron", "timezone", "at", "exclude"):
                entry.pop(name, None)
        entry.pop("cancelGrace", None)
        entry.pop("maxQueued", None)
        self.world.file[key] = {**entry, **change}
        self.world.ask(self.world.apply)
        self.then()

    @rule(seed=seeds, key=keys)
    def remove(self, seed: int, key: str) -> None:
        self.go("remove", seed)
        self.world.file.pop(key, None)
        self.world.ask(lambda: self.world.apply(prune=True))
        self.then()

    @rule(seed=seeds, key=keys, until=st.sampled_from([None, None, 5, 60, 1000]), reason=reasons)
    def pause(self, seed: int, key: str, until: int | None, reason: str | None) -> None:
        self.go("pause", seed)
        end = None if until is None else self.world.now() + until * SECOND
        self.world.ask(lambda: self.service.pause(key, reason=reason, until=end))
        self.then()

    @rule(seed=seeds, key=keys, make_up=st.one_of(st.none(), catch_ups))
    def resume(self, seed: int, key: str, make_up: dict[str, Any] | None) -> None:
        self.go("resume", seed)
        policy = None if make_up is None else CatchUp(**make_up)
        self.world.ask(lambda: self.service.resume(key, make_up=policy))
        self.then()

    @rule(seed=seeds, key=keys, request=st.sampled_from([None, "one", "two"]),
          overlap=st.one_of(st.none(), policies))  # fmt: skip
    def trigger(self, seed: int, key: str, request: str | None, overlap: Any) -> None:
        self.go("trigger", seed)
        request = request or f"r{self.chance.randrange(10**6)}"
        for _ in range(self.chance.choice([1, 2])):
            self.world.ask(lambda: self.service.trigger(key, request_id=request, overlap=overlap))
        self.then()

    @rule(seed=seeds, key=keys, back=st.booleans())
    def skip(self, seed: int, key: str, back: bool) -> None:  # noqa: FBT001 - drawn
        self.go("skip", seed)
        state = self.world.account.states.get(key)
        if state is not None:
            entry = self.world.account.eras[key][-1].entry
            now = self.world.now()
            coming = windows(entry, now - 30 * SECOND, now + timedelta(hours=1))[:6]
            if coming:
                act = self.service.unskip if back else self.service.skip
                at = self.chance.choice(coming)
                self.world.ask(lambda: act(key, at))
        self.then()

    @rule(seed=seeds, key=keys, overlap=st.one_of(st.none(), policies))
    def rerun(self, seed: int, key: str, overlap: Any) -> None:
        self.go("rerun", seed)
        fires = [fire for fire in self.world.account.fires.values()
                 if fire.new.key == key and fire.kind == "window"]  # fmt: skip
        if fires:
            fire = self.chance.choice(fires)
            bucket, series = fire.new.bucket, fire.new.series
            self.world.ask(lambda: self.service.rerun(key, bucket, series=series, overlap=overlap))
        self.then()

    @rule(seed=seeds, key=keys, back=st.sampled_from([30, 120, 400]),
          overlap=st.sampled_from([None, "allow", "queue"]))  # fmt: skip
    def backfill(self, seed: int, key: str, back: int, overlap: Any) -> None:
        self.go("backfill", seed)
        now = self.world.now()

        async def fill() -> None:
            begin, end = now - back * SECOND, now - self.chance.choice([0, 10]) * SECOND
            async for _ in self.service.backfill(key, begin, end, overlap=overlap):
                pass

        self.world.ask(fill)
        self.then()

    @rule(seed=seeds, key=keys, terminate=st.booleans())
    def cancel(self, seed: int, key: str, terminate: bool) -> None:  # noqa: FBT001 - drawn
        self.go("cancel", seed)
        self.world.ask(lambda: self.service.cancel(key, terminate=terminate))
        self.then()

    @rule(seed=seeds)
    def kill(self, seed: int) -> None:
        self.go("kill", seed)
        if self.world.members:
            self.world.kill(self.chance.choice(self.world.members))
        self.then()

    @rule(seed=seeds)
    def join(self, seed: int) -> None:
        self.go("join", seed)
        if len(self.world.members) < 3:
            self.world.join()
        self.then()

    @rule(seed=seeds, seconds=st.sampled_from([1, 20, 40, 300]))
    def stand_still(self, seed: int, seconds: float) -> None:
        self.go("stand still", seed)
        if self.world.members:
            self.world.stand_still(self.chance.choice(self.world.members), seconds)
        self.then()

    @rule(seed=seeds, away=st.booleans(), lost=st.sampled_from([0.0, 0.0, 0.1, 0.4]))
    def ledger_weather(self, seed: int, away: bool, lost: float) -> None:  # noqa: FBT001 - drawn
        self.go("ledger weather", seed)
        self.world.line.away, self.world.line.lost = away, lost
        self.then()

    @rule(seed=seeds, away=st.booleans(), part=st.sampled_from([0.1, 0.5]),
          what=st.sampled_from(["lost", "late", "busy", "slow", "nothing"]))  # fmt: skip
    def temporal_weather(self, seed: int, away: bool, part: float, what: str) -> None:  # noqa: FBT001 - drawn
        self.go("temporal weather", seed)
        faults = {} if what == "nothing" else {what: part}
        self.world.server.faults = Faults(away=away, **faults)
        self.then()

    @rule(seed=seeds)
    def calm(self, seed: int) -> None:
        self.go("calm", seed)
        self.world.server.faults, self.world.line.away, self.world.line.lost = Faults(), False, 0.0
        self.then()

    @rule(seed=seeds)
    def empty(self, seed: int) -> None:
        self.go("empty", seed)
        if self.chance.random() < 0.2:
            self.world.empty()
        self.then()

    @rule(seed=seeds, lose=st.booleans())
    def standby(self, seed: int, lose: bool) -> None:  # noqa: FBT001 - drawn
        self.go("standby", seed)
        if not lose:
            self.world.keep()
        elif self.chance.random() < 0.5:
            self.world.lose_commits()
        self.then()

    @rule(seed=seeds, length=st.sampled_from([0, 20, 70, 150]))
    def failover(self, seed: int, length: int) -> None:
        """The ledger goes on without what was committed in the last minutes."""
        self.go("failover", seed)
        if self.chance.random() < 0.4:
            self.world.keep()
            self.world.live(3, self.chance.choice([2, 7]))
            self.world.sleep(length * SECOND)
            self.world.lose_commits()
        self.then()

    def teardown(self) -> None:
        try:
            self.world.settle()
        finally:
            SEEN.update(self.world.account.seen)
            SEEN["await"] += self.world.loop.ran
            self.world.close()
