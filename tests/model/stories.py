"""Courses of events that chance alone rarely tells, each with random details.

They begin in whatever state the world is in, and the laws are the same as ever: a story only goes
where a promise is most likely to break.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from temporalio.client import WorkflowExecutionStatus as Status

from tests.model.base import Base, keys, seeds
from tests.model.ending import check_places
from tests.model.member import Member
from tests.model.moments import windows
from tests.model.rows import FireRow
from tests.model.server import SECOND, Faults

BRISK: dict[str, Any] = {"everyMs": 10_000}
WHATS = st.sampled_from(["edit", "amend", "pause", "remove", "kill", "failover", "cancel"])


class Stories(Base):
    """One rule each."""

    def calm(self, *, members: int = 1) -> None:
        """Let nothing be wrong, and so many replicas be there."""
        world = self.world
        world.server.faults, world.line.away, world.line.lost = Faults(), False, 0.0
        for member in world.members:
            member.still_until = 0.0
        while len(world.members) < members:
            world.join()
        world.live(2, 0.3)

    def declare_as(self, key: str, entry: dict[str, Any]) -> None:
        self.world.file[key] = entry
        self.world.ask(self.world.apply)
        self.world.live(1, 0.3)
        self.world.ask(lambda: self.service.resume(key))
        self.world.live(1, 0.3)

    def in_hand(self, *, sent: bool, key: str | None = None) -> tuple[Member, FireRow] | None:
        """A replica, and a claim of its own that nobody has sent yet, or that awaits its answer."""
        for fire in self.world.account.fires.values():
            if key not in {None, fire.key}:
                continue
            if fire.status == "starting" and sent is bool(self.world.server.ever[fire.workflow_id]):
                for member in self.world.members:
                    if member.name == fire.replica:
                        return member, fire
        return None

    @rule(seed=seeds, key=keys, share=st.sampled_from([0.3, 0.6, 0.8, 1.1, 2]), again=st.booleans())
    def unanswered(self, seed: int, key: str, share: float, again: bool) -> None:  # noqa: FBT001 - drawn
        """Answers are lost, runs close, their replica dies, and retention goes on meanwhile."""
        self.go("unanswered", seed)
        world = self.world
        self.calm()
        self.declare_as(key, BRISK)
        world.server.faults = Faults(lost=1.0)
        world.live(4, 3)
        for member in [*world.members]:
            world.kill(member)
        world.sleep(world.server.retention * (share / 2 if again else share))
        if again:
            world.server.faults = Faults(away=True)
            world.join()
            world.live(4, 1)
            for member in [*world.members]:
                world.kill(member)
            world.sleep(world.server.retention * (share / 2))
        world.server.faults = Faults()
        world.join()
        world.live(3, 1)

    @rule(seed=seeds, key=keys, still=st.sampled_from([31, 45, 100]), away=st.booleans())
    def sleepwalker(self, seed: int, key: str, still: int, away: bool) -> None:  # noqa: FBT001 - drawn
        """A replica stands still with a claim in its hands, another takes over, the first wakes."""
        self.go("sleepwalker", seed)
        world = self.world
        self.calm(members=2)
        self.declare_as(key, BRISK)
        sent = self.chance.random() < 0.5
        world.server.faults = Faults(slow=0.5)
        for _ in range(400):
            for member in world.members:
                member.turn("poller")
            world.pump(1, 0.2)
            if (found := self.in_hand(sent=sent)) and self.chance.random() < 0.3:
                break
        else:
            return
        world.stand_still(found[0], still)
        world.sleep((still - 5) * SECOND)
        if away:
            world.server.faults = Faults(slow=1.0, lost=0.7)
        world.live(self.chance.choice([1, 2, 6]), 1)
        world.pump(300, 6)
        self.then()

    @rule(seed=seeds, key=keys)
    def orphan(self, seed: int, key: str) -> None:
        """A replica dies when its send has arrived; the run closes long before its lease ends."""
        self.go("orphan", seed)
        world = self.world
        self.calm(members=2)
        durations, world.server.durations = world.server.durations, (0.5, 3)
        self.declare_as(key, {**BRISK, "overlap": "skip"})
        world.server.faults = Faults(slow=1.0)
        for _ in range(2000):
            for member in world.members:
                member.turn("poller")
            world.pump(10, 0.2)
            if found := self.in_hand(sent=True, key=key):
                world.kill(found[0])
                break
        world.server.faults = Faults()
        world.live(12, 4)
        world.server.durations = durations

    @rule(seed=seeds, key=keys, length=st.sampled_from([0, 20, 70, 100]))
    def failover(self, seed: int, key: str, length: int) -> None:
        """The ledger goes on without what was committed in the last minutes."""
        self.go("failover", seed)
        world = self.world
        if self.chance.random() < 0.5:
            self.calm()
            self.declare_as(key, self.chance.choice([BRISK, {**BRISK, "catchUp": {"max": 3}}]))
        world.standby.keep()
        world.live(3, self.chance.choice([2, 7]))
        world.sleep(length * SECOND)
        world.fail_over()
        self.then()

    @rule(seed=seeds, key=keys)
    def unconfirmed(self, seed: int, key: str) -> None:
        """A commit arrives, its answer does not: whoever made it sends what it claimed."""
        self.go("unconfirmed", seed)
        world = self.world
        self.calm()
        self.declare_as(key, BRISK)
        before, known = world.account.seen["commit unknown"], {*world.account.fires}
        world.line.unsure = 1
        for _ in range(12):
            world.live(1, 1)
            if world.account.seen["commit unknown"] > before:
                break
        world.line.unsure = 0
        world.live(3, 1)
        members = {member.name for member in world.members}
        for number, fire in world.account.fires.items():
            if number in known:
                continue  # of another story: whoever claimed it may have slept through its lease
            name = fire.workflow_id
            waits = fire.status == "starting" and fire.attempts == 1 and fire.key == key
            unsent = waits and fire.replica in members and not world.server.ever[name]
            if unsent and not world.account.stepped:
                world.account.broken(f"{name} was committed, and {fire.replica} forgot it")
        world.judge()

    @rule(seed=seeds, key=keys, terminate=st.booleans())
    def end_one(self, seed: int, key: str, terminate: bool) -> None:  # noqa: FBT001 - drawn
        """Somebody ends what runs."""
        self.go("end one", seed)
        self.calm()
        durations, self.world.server.durations = self.world.server.durations, (90,)
        self.world.ask(lambda: self.service.trigger(key, overlap="allow"))
        self.world.live(3, 1)
        self.world.server.durations = durations
        self.world.ask(lambda: self.service.cancel(key, terminate=terminate))
        self.world.live(4, 3)

    @rule(seed=seeds, key=keys, ours=st.booleans())
    def squatter(self, seed: int, key: str, ours: bool) -> None:  # noqa: FBT001 - drawn
        """Somebody else has a run under the id of a window to come."""
        self.go("squatter", seed)
        world = self.world
        self.calm()
        self.declare_as(key, BRISK)
        state = world.account.states.get(key)
        if state is None:
            return
        for at in windows(
            world.account.eras[key][-1].entry, world.now(), world.now() + 20 * SECOND
        ):
            name = state.window(at).workflow_id(state.suffixed)
            if world.server.newest(name) is None and name not in world.account.rows:
                world.server.durations, durations = (0, 90), world.server.durations
                run = world.server.start(name, "theirs", {"memo": {}})
                world.server.durations = durations
                if ours:
                    world.server.close(run, Status.COMPLETED)
        world.live(5, 5)

    @rule(seed=seeds, key=keys, overlap=st.sampled_from(["queue", "queue", "skip"]),
          most=st.integers(1, 3))  # fmt: skip
    def in_line(self, seed: int, key: str, overlap: Any, most: int) -> None:
        """Several wait in the queue of a schedule that is rarely due by itself."""
        self.go("in line", seed)
        self.calm()
        limited = {"overlap": overlap, "maxConcurrentRuns": most}
        self.declare_as(key, {"everyMs": 86_400_000, **limited})
        for number in range(2 + most):
            request = f"q{number}-{self.chance.randrange(10**6)}"
            self.world.ask(partial(self.service.trigger, key, request_id=request, overlap="queue"))
            self.world.live(1, 0.3)
        since: dict[str, datetime] = {}
        for _ in range(8):
            self.world.live(1, 6)
            check_places(self.world, since)

    @rule(seed=seeds, key=keys, overlap=st.sampled_from(["allow", "allow", "queue"]), what=WHATS)
    def midway(self, seed: int, key: str, overlap: Any, what: str) -> None:
        """Something happens while a backfill is being laid."""
        self.go("midway", seed)
        world = self.world
        self.calm(members=2)
        self.declare_as(key, {**BRISK, "offsetMs": self.chance.choice([0, 3000])})
        now = world.now()
        begin = now - self.chance.choice([300, 2000]) * SECOND
        world.ask(lambda: self.service.backfill(key, begin, now - 10 * SECOND, overlap=overlap))
        world.pump(self.chance.choice([20, 60, 120]), 0.1)
        world.standby.keep()
        for _ in range(self.chance.choice([1, 2, 5])):
            for member in world.members:
                member.turn("poller")
            world.pump(self.chance.choice([10, 30, 100]), 0.1)
        if what in {"edit", "amend"}:
            world.file[key] = {"everyMs": 20_000} if what == "edit" else {**BRISK, "grace": "5s"}
            world.ask(world.apply)
        elif what == "pause":
            world.ask(lambda: self.service.pause(key, reason=None))
            world.live(2, 2)
            world.ask(lambda: self.service.resume(key))
        elif what == "remove":
            world.file.pop(key, None)
            world.ask(lambda: world.apply(prune=True))
        elif what == "kill":
            world.kill(self.chance.choice(world.members))
            world.sleep(self.chance.choice([1, 40]) * SECOND)
        elif what == "failover":
            world.fail_over()
        else:
            world.ask(lambda: self.service.cancel(key))
        world.live(4, self.chance.choice([0.3, 2]))
        self.then()

    @rule(seed=seeds, key=keys, most=st.integers(1, 3))
    def outage(self, seed: int, key: str, most: int) -> None:
        """No replica lives for longer than a catch-up reaches."""
        self.go("outage", seed)
        world = self.world
        self.calm()
        self.declare_as(key, {**BRISK, "catchUp": {"policy": "all", "max": most}})
        for member in [*world.members]:
            world.kill(member)
        world.sleep(self.chance.choice([60, 300]) * SECOND)
        world.join()
        world.live(3, 1)

    @rule(seed=seeds, key=keys, length=st.sampled_from([5, 40, 70]))
    def rest(self, seed: int, key: str, length: int) -> None:
        """A schedule whose starts wait for their turn is paused, or its hold ends."""
        self.go("rest", seed)
        world = self.world
        self.calm()
        self.declare_as(key, {"everyMs": 60_000, "spread": "40s"})
        world.live(3, 20)
        if self.chance.random() < 0.7:
            world.ask(lambda: self.service.pause(key, reason=None))
            world.live(2, length)
            world.ask(lambda: self.service.resume(key))
        else:
            world.file[key] = {"everyMs": 10_000, "enabled": False}
            world.ask(world.apply)
            world.live(2, length)
            world.file[key] = {"everyMs": 10_000}
            world.ask(world.apply)
        world.live(2, 7)

    @rule(seed=seeds, key=keys, overlap=st.sampled_from(["skip", "queue", "queue_one"]),
          most=st.integers(1, 3))  # fmt: skip
    def narrowly(self, seed: int, key: str, overlap: str, most: int) -> None:
        """Runs end about when a window opens: the next, or one more for each that may be open."""
        self.go("narrowly", seed)
        world = self.world
        self.calm()
        entry = {"everyMs": 20_000, "overlap": overlap, "maxConcurrentRuns": most}
        self.declare_as(key, entry)
        ends = tuple(20.0 * most + part for part in (-1, -0.4, 0.4))
        durations, world.server.durations = world.server.durations, ends
        world.server.faults = Faults(slow=0.7)
        for _ in range(12):
            world.live(1, self.chance.choice([0.5, 4, 9]))
        world.server.durations, world.server.faults = durations, Faults()

    @rule(seed=seeds, step=st.sampled_from([-700, -60, -8, 8, 60, 700]), edits=st.booleans())
    def set_clock(self, seed: int, step: int, edits: bool) -> None:  # noqa: FBT001 - drawn
        """The ledger's clock is set while everything works; operators go on meanwhile."""
        self.go("set clock", seed)
        world = self.world
        if not (world.account.stepped or self.chance.random() < 0.25):
            return
        self.calm()
        self.declare_as("a", BRISK)
        world.live(2, 2)
        world.set_clock(timedelta(seconds=step))
        world.live(4, 5)
        if edits:
            self.declare_as("a", {"everyMs": 20_000})
        world.live(3, 20)
        if self.chance.random() < 0.7:
            world.set_clock(timedelta(0))
            world.live(3, 5)
