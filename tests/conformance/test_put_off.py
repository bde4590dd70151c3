"""Schedules that wait for an answer before they decide, and the children that wait for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client

from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Starter
from engine.runtime.settings import Settings
from engine.runtime.tick.poller import Poller
from engine.schedules.planner.planner import plan
from tests.blind import Nothing
from tests.conformance.families import Family
from tests.conformance.past import HOUR, LEASE, MINUTE, declare_file_ago, run_of

SECOND = timedelta(seconds=1)
WAITS = ("queued", "dependency: waits for parent")


class Unanswered(Nothing):
    """Lookups of which only the audits of some keys have been answered."""

    def __init__(self) -> None:
        self.audited = {"child"}

    def is_audited(self, state: Any) -> bool:
        return state.key in self.audited

    def patience(self, _: Any) -> timedelta:
        return HOUR


class PutOff(Family):
    """A parent and a child with windows in the past, and a poller whose lookups get no answer."""

    async def declare_ago(self, *, parent: str, rule: str = "schedule: parent") -> None:
        """Declare both as of two minutes ago; each has two windows since."""
        every = "workflow: noop, everyMs: 60000, firstFire: next, catchUp: {policy: all}"
        text = (
            f"schedules: [{{key: parent, {every}, {parent}}},"
            f" {{key: child, {every}, grace: 1h, after: {{{rule}}}}}]"
        )
        await declare_file_ago(self.bench, text, 2 * MINUTE)

    async def first_window_runs(self) -> str:
        """Decide the first window of both as of when it opened; return the parent's open run."""
        async with self.ledger.transaction() as transaction:
            states = await transaction.read(await transaction.lock_due(self.bench.serving, 100))
            steps = [plan(each, each.schedule.spec.next(each.cursor) + SECOND) for each in states]
            (claim,) = await transaction.record(steps, owner="replica-a", lease=LEASE)
        return await run_of(self.bench, claim, "first")

    async def tick(self) -> bool:
        """Let a poller decide what is due; return whether that made other keys due."""
        clock, setting = LedgerClock(), Settings()
        starter = Starter(cast("Client", None), clock, setting)  # nothing starts here
        dispatcher = Dispatcher(self.ledger, starter, clock, setting, on_event=print)
        poller = Poller(
            self.ledger, dispatcher, clock, self.bench.serving, setting,
            lookups=cast("Any", Unanswered()),
        )  # fmt: skip
        return (await poller.tick()).woken

    async def due(self) -> list[str]:
        async with self.ledger.transaction() as transaction:
            return await transaction.lock_due(self.bench.serving, 100)  # type: ignore[no-any-return] # of a bench

    async def became(self, key: str) -> list[tuple[str, str | None]]:
        """What became of each window of a key, the oldest first, and why."""
        fires = sorted(await self.ledger.fires(key=key), key=lambda fire: fire.fire_time)
        return [(fire.status, fire.reason) for fire in fires]


@pytest.fixture
def family(bench) -> PutOff:
    return PutOff(bench)


@pytest.mark.parametrize("overlap", ["queue", "cancel_previous"])
@pytest.mark.parametrize("end", ["completed", "failed"])
async def test_a_child_waits_while_its_parent_waits_for_a_look_at_an_open_run(family, overlap, end):
    await family.declare_ago(parent=f"grace: 1h, overlap: {overlap}")
    run = await family.first_window_runs()
    assert not await family.tick()
    assert await family.ledger.wake() == [], "the parent's second window is not decided"
    assert await family.became("child") == [WAITS, WAITS]
    await family.ledger.seen_open([run], family.bench.now())
    await family.ledger.make_due(["parent"])
    await family.turn()
    assert [status for status, _ in await family.became("parent")] == ["started", "queued"]
    assert await family.became("child") == [WAITS, WAITS]
    await family.close(run, "first")
    started = await family.turn()
    await family.end(started["parent"], end)
    first, second = await family.became("child")
    assert first[0] == "starting"
    wanted = ("starting", None) if end == "completed" else ("skipped", "dependency: parent failed")
    assert second == wanted


@pytest.mark.parametrize("rule", ["schedule: parent", "schedule: parent, window: latest"])
async def test_a_child_waits_while_its_parent_waits_for_an_audit(family, rule):
    await family.declare_ago(parent="grace: 1s", rule=rule)
    assert not await family.tick()
    assert await family.became("parent") == []
    assert await family.ledger.wake() == []
    assert await family.became("child") == [WAITS, WAITS]
    await family.ledger.make_due(["parent"])
    claims = await family.bench.claim()
    assert [claim.key for claim in claims] == ["parent", "parent"]
    assert await family.ledger.wake() == []
    for claim in claims:
        await family.end(claim)
    assert [status for status, _ in await family.became("child")] == ["starting", "starting"]


async def test_a_schedule_that_waits_for_an_answer_is_not_due_before_it_looks_again(family):
    await family.declare_ago(parent="grace: 1s")
    await family.tick()
    assert await family.due() == []
    probe = await family.ledger.probe(family.bench.serving)
    assert probe.due_at > probe.now, "the child's next window"
    (row,) = await family.ledger.schedules(key="parent")
    assert row.next_fire_at > probe.now + HOUR - MINUTE, "it is planned next when it looks again"
    facts = await family.ledger.facts()
    assert facts.overdue == []
    assert (await family.ledger.totals(family.bench.serving, most=10)).overdue == 0
    assert (await family.ledger.load(most=10)).due_since is None


async def test_what_makes_a_schedule_due_keeps_the_window_that_it_has_not_decided(family):
    await family.declare_ago(parent="grace: 1s")
    await family.tick()
    await family.ledger.make_due(["parent"])
    assert await family.due() == ["parent"]
    assert await family.ledger.wake() == [], "no child finds that the parent has no window then"
    assert await family.became("child") == [WAITS, WAITS]
    (row,) = await family.ledger.schedules(key="parent")
    assert row.next_fire_at < family.bench.now() - MINUTE
    await family.tick()
    assert await family.due() == [], "it waits again"


async def test_a_run_that_ends_wakes_a_schedule_that_waits_for_an_answer(family):
    await family.declare_ago(parent="grace: 1h, overlap: queue")
    run = await family.first_window_runs()
    await family.bench.ledger.seen_open([run], family.bench.now())
    await family.bench.claim()
    assert [status for status, _ in await family.became("parent")] == ["started", "queued"]
    async with family.ledger.transaction() as transaction:
        (state,) = await transaction.read(["parent"])
        now = await transaction.now()
        await transaction.record([plan(state, now).put_off(now, now + HOUR)], owner="replica-a")
    await family.close(run, "first")
    assert "parent" in await family.ledger.wake()
    assert "parent" in await family.due()
