"""Schedules that wait for each other at random, judged by an oracle that shares no code with them.

Any of two to five schedules follow others, by any rule; replicas plan one key at a time, in any
order; runs end in every way, whenever they like; operators skip windows, pause and resume. In the
end what became of each window must follow from what became of its parents' windows.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import HealthCheck, given, settings, strategies as st

from engine.ledger.fires import Claim, Evidence, Outcome
from engine.ledger.records import Serving
from engine.runtime.apply.definitions import first_definition
from engine.schedules import Schedule, load_schedules
from engine.schedules.planner.planner import plan
from engine.service import ScheduleService
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from tests.examples import examples

NOON = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LEASE = timedelta(days=1)
WINDOWS = 4
SERVING = Serving("replica", "default", "sched", frozenset({"noop@1"}))
ENDS = ["completed"] * 4 + [
    "failed", "timed_out", "terminated", "cancelled", "rejected", "lost",
]  # fmt: skip


@dataclass
class Life:
    """The schedules, their ledger, and what truly became of each run."""

    chance: Random
    ledger: VirtualLedger
    clock: FrozenClock
    ends: dict[tuple[str, datetime], str] = field(default_factory=dict)
    starts: Counter[tuple[str, datetime]] = field(default_factory=Counter)
    open: list[Claim] = field(default_factory=list)
    skipped: set[tuple[str, datetime]] = field(default_factory=set)
    early: list[str] = field(default_factory=list)
    """Starts that came before their parents allowed them."""

    def __post_init__(self) -> None:
        self.begin = self.now
        self.operator = ScheduleService(self.ledger, actor="ops")
        self.schedules = {each.key: each for each in load_schedules(self.drawn()).schedules}
        self.keys = [*self.schedules]

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def drawn(self) -> str:
        """A file in which any schedule may follow any before it."""
        lines, keys = [], [f"s{number}" for number in range(self.chance.randint(2, 5))]
        for place, key in enumerate(keys):
            before = [*keys[:place]]
            self.chance.shuffle(before)
            overlap = self.chance.choice(["allow", "allow", "queue"])
            line = f"key: {key}, workflow: noop, firstFire: next, grace: 1h, overlap: {overlap}"
            if not before or self.chance.random() < 0.2:
                line += ", everyMs: 60000"
            if before and self.chance.random() < 0.7:
                when = self.chance.choice(["success", "failure", "always"])
                which = self.chance.choice(["same", "same", "latest"])
                line += f", after: {{schedule: {before.pop()}, when: {when}, window: {which}}}"
            if before and (
                self.chance.random() < 0.4 or ("after" not in line and "every" not in line)
            ):
                line += f", needs: [{', '.join(before[: self.chance.randint(1, 2)])}]"
            elif "after" not in line and "every" not in line:
                line += ", everyMs: 60000"
            lines.append(f"- {{{line}}}")
        self.chance.shuffle(lines)
        return "schedules:\n" + "\n".join(lines)

    async def declare(self) -> None:
        new = [
            first_definition(each, self.now, project="default", workflow_type="noop@1")
            for each in self.schedules.values()
        ]
        async with self.ledger.transaction(long=True) as transaction:
            await transaction.define(new, by="test")

    async def live(self) -> None:
        await self.declare()
        while self.now < self.begin + WINDOWS * MINUTE:
            await self.chance.choice(
                [self.wait, self.plan, self.plan, self.send, self.end, self.wake, self.hold]
            )()
        for _ in range(200):  # everybody goes on, and every run ends
            for key in self.keys:
                await self.operator.resume(key)
            await self.plan()
            await self.plan_all()
            await self.send()
            while self.open:
                await self.end()
            if not await self.ledger.wake() and not await self.due() and not self.open:
                return
        raise AssertionError("it never comes to rest")

    async def wait(self) -> None:
        self.clock.advance(self.chance.choice([1, 10, 40, 70]))

    async def due(self) -> list[str]:
        async with self.ledger.transaction() as transaction:
            return await transaction.lock_due(SERVING, 100)

    async def plan(self) -> None:
        if keys := await self.due():
            await self.plan_one(self.chance.choice(keys))

    async def plan_all(self) -> None:
        for key in await self.due():
            await self.plan_one(key)

    async def plan_one(self, key: str) -> None:
        async with self.ledger.transaction() as transaction:
            (state,) = await transaction.read([key])
            claims = await transaction.record(
                [plan(state, self.now, limit=self.chance.choice([1, 100]))],
                owner="replica", lease=LEASE,
            )  # fmt: skip
        self.began(claims)

    async def send(self) -> None:
        """Take what was promoted."""
        self.began(await self.ledger.take_over(SERVING, limit=100, lease=LEASE))

    def began(self, claims: list[Claim]) -> None:
        for claim in claims:
            window = claim.key, claim.fire_time
            self.starts[window] += 1
            self.open.append(claim)
            if not self.may_start(*window):
                self.early.append(claim.workflow_id)

    async def end(self) -> None:
        """One run starts, and ends."""
        if not self.open:
            return
        claim = self.open.pop(self.chance.randrange(len(self.open)))
        end = self.chance.choice(ENDS)
        status = "rejected" if end == "rejected" else "started"
        run = claim.workflow_id
        outcome = Outcome(claim.fire_id, claim.token, status, run_id=run, started_at=self.now)  # type: ignore[arg-type] # a word of both
        assert await self.ledger.settle([outcome]) == 1
        if end == "lost":
            await self.ledger.lose([claim.workflow_id], "nobody knows it")
        elif end != "rejected":
            seen = Evidence(run, run, self.now, end, self.now)  # type: ignore[arg-type] # a close
            await self.ledger.record_evidence([seen])
        self.ends[claim.key, claim.fire_time] = end

    async def wake(self) -> None:
        await self.ledger.wake()

    async def hold(self) -> None:
        """An operator skips a window to come, pauses, or resumes."""
        key = self.chance.choice(self.keys)
        match self.chance.randrange(6):
            case 0:
                at = self.schedules[key].spec.next(self.now)
                assert at is not None
                await self.operator.skip(key, at)
            case 1:
                await self.operator.pause(key, reason="x")
            case 2 | 3:
                await self.operator.resume(key)

    # The oracle.

    def allows(self, parent: str, when: str, which: str, at: datetime) -> bool:
        moments = [t for (key, t) in self.ends if key == parent and t <= at]
        if which == "same":
            end = self.ends.get((parent, at))
        else:
            end = self.ends[parent, max(moments)] if moments else None
        if end is None:
            return False
        return when == "always" or (when == "success") == (end == "completed")

    def may_start(self, key: str, at: datetime) -> bool:
        schedule: Schedule = self.schedules[key]
        after = schedule.after
        asked = [(each, "success", "same") for each in schedule.needs]
        asked += [(after.schedule, after.when, after.window)] if after else []
        return all(self.allows(*each, at) for each in asked)


async def lived(seed: int, ledger: VirtualLedger, clock: FrozenClock) -> Life:
    """Live at noon of the next day, in a namespace of its own."""
    its = VirtualLedger(ledger._connections, uuid.uuid4().hex)
    clock.move_to(max(NOON, clock.now() + timedelta(days=1)).replace(hour=12, minute=0, second=30))
    life = Life(Random(seed), its, clock)
    await life.live()
    return life


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32))
async def test_each_window_starts_once_where_its_parents_allow_it_and_nothing_waits_for_ever(
    virtual_ledger, clock, seed
):
    life = await lived(seed, virtual_ledger, clock)
    assert life.early == []
    for key, schedule in life.schedules.items():
        rows = await life.ledger.fires(key=key, limit=10_000)
        windows = [*schedule.spec.fires(life.begin, life.now)]
        for at in windows:
            (row,) = [each for each in rows if each.fire_time <= at <= each.last_fire_time]
            assert row.status not in {"queued", "claimed", "starting"}, row
            begun = (key, at) in life.ends
            assert life.starts[key, at] == begun
            reason = row.reason or ""
            if begun:
                assert life.may_start(key, at)
            elif reason.startswith("dependency"):
                assert not life.may_start(key, at) or "is paused" in reason, row
            else:
                assert reason.startswith(("user", "paused", "overlap")), row
