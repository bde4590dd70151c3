"""Edits of an interval, over hours of virtual time: no window lost, none doubled, no id twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.ledger.fires import Outcome
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.planner.planner import plan
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger

SERVING = Serving("a", "default", "sched", frozenset({"noop@1"}))
BEGIN = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)


def interval(every: timedelta, offset: timedelta):
    milliseconds = timedelta(milliseconds=1)
    declared = f"everyMs: {every // milliseconds}, offsetMs: {offset // milliseconds}"
    return load_schedules(f"schedules: [{{key: k, workflow: noop, {declared}}}]")


def openings(every: timedelta, offset: timedelta, after: datetime, until: datetime):
    """The oracle: windows in (after, until], counted up from the epoch."""
    epoch = datetime.fromtimestamp(0, UTC) + offset
    number = (after - epoch) // every + 1
    found = []
    while (moment := epoch + number * every) <= until:
        found.append(moment)
        number += 1
    return found


class Clockwork:
    """A ledger whose clock is moved by hand, and a replica that claims and settles."""

    def __init__(self, ledger: VirtualLedger, clock: FrozenClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.ids: list[str] = []
        self.fired: list[datetime] = []

    async def until(self, end: datetime) -> None:
        """Tick as a poller does: a little after each moment at which something is due."""
        await self.tick()
        while (due := (await self.ledger.probe(SERVING)).due_at) and due <= end:
            self.clock.move_to(min(due + LATE, end))
            await self.tick()
        self.clock.move_to(end)

    async def tick(self) -> None:
        lease = timedelta(seconds=30)
        async with self.ledger.transaction() as transaction:
            keys = await transaction.lock_due(SERVING, 10)
            now = await transaction.now()
            steps = [plan(state, now) for state in await transaction.read(keys)]
            claims = await transaction.record(steps, owner="a", lease=lease)
        claims += await self.ledger.take_over(SERVING, limit=10, lease=lease)
        for claim in claims:
            self.ids.append(claim.workflow_id)
            self.fired.append(claim.fire_time)
            outcome = Outcome(claim.fire_id, claim.token, "started", "on_time", "r", started_at=now)
            assert await self.ledger.settle([outcome]) == 1


HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LATE = timedelta(seconds=59)
EDITS = {
    "every 3600000 to 3601000": ((HOUR, timedelta()), (timedelta(seconds=3601), timedelta())),
    "every 3601000 to 3600000": ((timedelta(seconds=3601), timedelta()), (HOUR, timedelta())),
    "offset 0 to 6h": ((DAY, timedelta()), (DAY, timedelta(hours=6))),
    "offset 6h to 0": ((DAY, timedelta(hours=6)), (DAY, timedelta())),
}


@pytest.mark.parametrize("edit", EDITS)
async def test_an_edited_interval_loses_no_window_and_doubles_none(edit, virtual_ledger, clock):
    before, after = EDITS[edit]
    length = 100 * HOUR
    clock.move_to(BEGIN)
    work = Clockwork(virtual_ledger, clock)
    await work.ledger.announce(SERVING, engine="0", tzdata="0", retention=DAY)
    await apply(work.ledger, interval(*before), by="test")
    edited = BEGIN + length / 2
    await work.until(edited)
    await apply(work.ledger, interval(*after), by="test")
    end = edited + length / 2
    await work.until(end)

    current = openings(*before, BEGIN - before[0], BEGIN)  # first sight owes the current window
    expected = current + openings(*before, BEGIN, edited) + openings(*after, edited, end)
    assert work.fired == expected
    assert len(set(work.ids)) == len(work.ids), "an id that Temporal would refuse"
