"""The heart: looks at the ledger, decides due windows, hands the claims to the dispatcher.

    probe → lock → plan → claim → start → settle

Everything decided is written before the first send, in one transaction with the cursor.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from engine import faults
from engine.errors import CommitUnknown
from engine.ledger import Ledger, MemoryLedger, Transaction
from engine.ledger.fire_records import Claim
from engine.ledger.replica_records import Probe, Serving
from engine.ledger.schedule_records import Step
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.continuity import Continuity
from engine.runtime.dispatcher import Dispatcher
from engine.runtime.events import (
    Alert,
    Decided,
    Held,
    Listener,
    log,
    tell_decided,
    without_run,
)
from engine.runtime.overflow import turned_full
from engine.runtime.planning import concerns_others, planned
from engine.runtime.settings import Settings
from engine.runtime.sight import Sight
from engine.runtime.skew import ClockWatch
from engine.schedules.spans import MOST_ROWS

_NOTHING = timedelta(0)
_CONTENDED = timedelta(milliseconds=20)
_FAR = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick found. ``claims`` are in the dispatcher's hands.

    ``woken``: what it decided let something go that had waited for it.
    """

    probe: Probe
    claims: tuple[Claim, ...] = ()
    full: bool = False
    woken: bool = False


class Poller:
    """Claims due windows for one replica. There is no leader: row locks share the work.

    ``epoch`` is that of the last probe: it counts what was applied.

    Args:
        sight: asks Temporal what plans lack.
        tell: hears of the windows that were decided without a run.
    """

    def __init__(
        self,
        ledger: Ledger,
        dispatcher: Dispatcher,
        clock: LedgerClock,
        serving: Serving,
        settings: Settings,
        *,
        sight: Sight,
        tell: Listener = log,
    ) -> None:
        self._ledger, self._dispatcher, self._clock = ledger, dispatcher, clock
        self._serving, self._settings, self._tell = serving, settings, tell
        self._sight = sight
        self._continuity = Continuity(ledger, tell=tell)
        self.epoch = 0
        self._watch = ClockWatch(settings.max_skew)
        self._travels = False
        self._unconfirmed: list[tuple[list[Claim], float]] = []

    @property
    def holds(self) -> bool:
        """Whether nothing is claimed at present: Temporal is away, or the clock is wrong."""
        return self.distrusts_clock or self._dispatcher.breaker.holds

    @property
    def distrusts_clock(self) -> bool:
        """Whether the ledger's clock does not go as time does."""
        return self._watch.holds

    @property
    def doubted_at(self) -> datetime | None:
        """Up to when windows may have runs of which the ledger knows nothing."""
        return self._continuity.doubted_at

    async def tick(self, now: datetime | None = None) -> Tick:
        """Run one whole tick, to the last outcome.

        Args:
            now: the moment, for the in-memory ledger only; None is the ledger's own clock.

        Raises:
            ValueError: when ``now`` is given and the ledger has a clock of its own.
        """
        if now is not None:
            if not isinstance(self._ledger, MemoryLedger):
                raise ValueError("the moment is the database's to say")
            self._ledger.travel(now)
            self._travels = True
        tick, sends = await self._claim()
        if sends:
            await asyncio.wait(sends)
        return tick

    async def turn(self) -> timedelta:
        """Do the loop's share of a tick; sends go on behind it. Returns the wait until the next."""
        self._dispatcher.room_made.clear()
        tick, _ = await self._claim()
        if self.holds:
            return self._settings.tick
        if tick.full:
            if not self._dispatcher.room:
                await self._dispatcher.room_made.wait()
            return _NOTHING
        if tick.claims or tick.woken:
            return _NOTHING  # look at once what is due next
        moments = [
            moment
            for moment in (tick.probe.due_at, tick.probe.stale_at, tick.probe.stop_at)
            if moment
        ]
        wait = min(moments, default=_FAR) - self._clock.now()
        # Due, yet nothing claimed: another replica has it locked. A shorter wait is kept exactly.
        return min(self._settings.tick, wait) if wait > _NOTHING else _CONTENDED

    async def _claim(self) -> tuple[Tick, list[asyncio.Task[None]]]:
        # The lease is counted from before the claim, so that this side always ends it first.
        asked = boottime()
        lease_ends = asked + self._settings.lease.total_seconds()
        probe = await self._ledger.probe(self._serving)
        answered = boottime()
        self.epoch = probe.epoch
        if await self._continuity.observe(probe):
            self._sight.forget()
        self._read_clock(probe.now, asked, answered)
        sends = await self._send_what_was_committed()
        room = 0 if self._watch.holds else self._dispatcher.room
        claims: list[Claim] = []
        woken = False
        due_now = probe.due_at is not None and probe.due_at <= probe.now
        if probe.stop_at is not None and probe.stop_at <= probe.now and not self.holds:
            await self._sight.stop_due()
        if room and probe.stale_at is not None and probe.stale_at <= probe.now:
            # What is due shares the room: ten thousand claims of one key must not starve it.
            most = (room + 1) // 2 if due_now else room
            claims += await self._ledger.take_over(
                self._serving, limit=most, lease=self._settings.lease
            )
            # Before anything else can fail: these leases are ours now.
            sends += self._dispatcher.send(claims, lease_ends)
        if room > len(claims) and due_now:
            due, decided, steps = await self._claim_due(room - len(claims), lease_ends)
            if due:
                faults.reach("after_commit")
            claims += due
            sends += self._dispatcher.send(due, lease_ends)
            tell_decided(decided, self._tell)
            if probe.chained and any(map(concerns_others, steps)):
                # After the commit: whichever of a parent and its child is written last sees the
                # other. And after the sends, which are not to suffer when this fails.
                woken = bool(await self._ledger.wake())
        return Tick(probe, tuple(claims), len(claims) >= room, woken=woken), sends

    def _read_clock(self, now: datetime, asked: float, answered: float) -> None:
        """Take the ledger's time, or hold while it does not go as time does."""
        held = self._watch.holds
        if not self._travels:
            self._watch.observe(now, asked, answered)
        if not self._watch.holds:
            self._clock.observe(now, at=(asked + answered) / 2)
        if held and not self._watch.holds:
            self._tell(Held("clock", None))
        elif self._watch.holds and not held:
            skew = self._watch.skew
            text = (
                f"the ledger's clock went {abs(skew):.1f} s too {'far' if skew > 0 else 'little'};"
                " nothing is started until it has agreed for a minute"
            )
            self._tell(Alert("SCHEDULE_CLOCK_SKEW", text))

    async def _send_what_was_committed(self) -> list[asyncio.Task[None]]:
        """Send the claims of lost commits that happened after all, as their tokens tell.

        Asked until the lease has ended: a commit may arrive after the connection was lost.
        """
        sends: list[asyncio.Task[None]] = []
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        for claims, lease_ends in unconfirmed:
            asked = boottime()
            if asked >= lease_ends:
                continue  # a sweeper's now
            try:
                there = await self._ledger.renew(claims, self._settings.lease)
            except BaseException:
                self._unconfirmed.append((claims, lease_ends))
                raise
            ours = [claim for claim in claims if claim.fire_id in there]
            sends += self._dispatcher.send(ours, asked + self._settings.lease.total_seconds())
            if not ours:
                self._unconfirmed.append((claims, lease_ends))
        return sends

    async def _claim_due(
        self, limit: int, lease_ends: float
    ) -> tuple[list[Claim], list[Decided], list[Step]]:
        claims: list[Claim] = []
        alerts: list[Alert] = []
        try:
            async with self._ledger.transaction() as transaction:
                keys = await transaction.lock_due(self._serving, limit)
                faults.reach("after_due")
                if not keys:
                    return [], [], []
                steps = await self._plan(transaction, keys, limit)
                alerts = await turned_full(transaction, steps)
                claims = await transaction.record(
                    steps, owner=self._serving.replica, lease=self._settings.lease
                )
                faults.reach("before_commit")
        except CommitUnknown:
            if claims:
                self._unconfirmed.append((claims, lease_ends))
            raise
        for alert in alerts:
            self._tell(alert)
        await self._sight.look(steps)
        return claims, without_run(steps), steps

    async def _plan(self, transaction: Transaction, keys: list[str], limit: int) -> list[Step]:
        states = await transaction.read(keys)
        now = await transaction.now()
        steps: list[Step] = []
        room, rows = limit, MOST_ROWS
        for state in states:
            if room <= 0 or rows <= 0:
                break  # locked for nothing: due again as soon as this transaction ends
            try:
                step = planned(
                    state, now, limit=room, rows=rows,
                    audited=self._sight.is_audited(state), doubted_at=self.doubted_at,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001 - one bad schedule never stops the others
                await transaction.back_off(state.key, f"{type(error).__name__}: {error}")
            else:
                steps.append(step)
                rows -= len(step.decisions)
                room -= sum(decision.verdict == "claimed" for decision in step.decisions)
        return steps
