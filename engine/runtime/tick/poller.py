"""Poller: the loop that decides due windows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import starmap
from typing import Any, Literal, NamedTuple

from engine import faults
from engine.errors import Code, CommitUnknown, LedgerUnavailable
from engine.ledger import Claim, Ledger, Probe, Serving, Transaction
from engine.runtime.clock import ClockWatch, LedgerClock, boottime, wait_for
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.shares import LATE, Crowd, TickRoom
from engine.runtime.events import (
    Alert,
    Notice,
    OnEvent,
    Recovered,
    emit_decided,
    log,
    logger,
    words_of,
)
from engine.runtime.schedule_lock import still_valid
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import level_of
from engine.runtime.tick.backfills import Backfills
from engine.runtime.tick.failover import FailoverDetector
from engine.runtime.tick.lookups import RunLookups
from engine.schedules import TICK, share_text
from engine.schedules.planner import MOST_ROWS, Decision, Plan, plan
from engine.telemetry.instruments import (
    CLAIMS,
    CONTENDED,
    TAKEN_OVER,
    TICK_DURATION,
    TICK_LAG,
    measures,
)

# --- poller ---
# The main loop: probes the ledger, decides due windows, hands the claims to the dispatcher.
#
#     probe → lock → plan → claim → start → settle
#
# Every decision is written before the first send, in one transaction with the cursor.

_NOTHING = timedelta(0)
_CONTENDED = timedelta(milliseconds=20)
_LOOK = 10.0
"""The most seconds for which a turn waits for room."""
_REFILLED = timedelta(milliseconds=50)
"""Approximate time to send one part of a backfill."""
_BEHIND = timedelta(milliseconds=250)
_MANY = 50
"""Lateness, and claims of one tick, from which on windows come before the delivery of events."""
_MOVED = (
    "the ledger was moved to another Temporal namespace: this worker claims nothing more, and looks"
    " after what was started here until it has ended; `sched move` says how much is left"
)
_HERE_AGAIN = "the ledger was moved back: this worker claims windows again"
_FAR = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tick:
    """Result of one tick. ``claims`` are with the dispatcher.

    ``full``: more is due than it could claim, and ``next_at`` is when the next key becomes due, if
    that is known. ``woken``: whether its decisions made waiting keys due. ``laid``: whether windows
    of a backfill were laid or left alone.
    """

    probe: Probe
    claims: tuple[Claim, ...] = ()
    full: bool = False
    woken: bool = False
    laid: bool = False
    next_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DecidedPart:
    """A transaction of a tick that claimed or decided something, for traces.

    Attributes:
        source: what the claims are: of due windows, of leases that had ended, of a backfill, or of
            an earlier commit whose confirmation was lost.
        began: nanoseconds since the epoch, by this machine's clock.
        ended: the same.
        claims: they are with the dispatcher.
        plans: what was decided on due windows.
    """

    source: Literal["due", "taken_over", "backfill", "confirmed"]
    began: int
    ended: int
    claims: tuple[Claim, ...]
    plans: tuple[Plan, ...] = ()


@dataclass(frozen=True, slots=True)
class TickRecord:
    """A tick that claimed or decided something; times as in ``DecidedPart``."""

    began: int
    ended: int
    parts: tuple[DecidedPart, ...]


class _Due(NamedTuple):
    """Decisions of one transaction: claims to send, plans and alerts to emit."""

    claims: list[Claim]
    plans: list[Plan]
    alerts: list[Alert]


class Poller:
    """Poller of one replica: it claims due windows. No leader exists, row locks share the work.

    Args:
        lookups: asks Temporal for what plans lack, beside the ticks.
        on_event: receives the windows that were decided without a run.

    Attributes:
        epoch: the ledger's epoch at the last probe; every apply raises it.
        is_current: whether windows are claimed for the Temporal of this replica, by the last probe.
        rouse: called when decisions of this poller made other keys due.
        on_tick: called with each tick that claimed or decided something, if anything is traced.
        is_behind: whether the last tick claimed many windows, or some that were late.
        probed_at: when the last tick began that the ledger answered (``boottime``); None before.
    """

    def __init__(
        self,
        ledger: Ledger,
        dispatcher: Dispatcher,
        clock: LedgerClock,
        serving: Serving,
        settings: Settings,
        *,
        lookups: RunLookups,
        on_event: OnEvent = log,
    ) -> None:
        self._ledger, self._dispatcher, self._clock = ledger, dispatcher, clock
        self._serving, self._settings, self._emit = serving, settings, on_event
        self._lookups = lookups
        self.rouse: Callable[[], None] = lambda: None
        self.on_tick: Callable[[TickRecord], None] | None = None
        self._parts: list[DecidedPart] = []
        # In a task beside the writes: a locked key does not delay the outcomes of other keys.
        dispatcher.wake = self._wake_others
        self._waking: asyncio.Task[bool] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._apart: dict[str, None] = {}
        self._unparsed: set[str] = set()
        self._failing: set[str] = set()
        self._wakes = 0
        self._failover = FailoverDetector(ledger, margin=settings.margin, on_event=on_event)
        self._backfills = Backfills(ledger, serving, settings, lookups=lookups, on_event=on_event)
        self.epoch, self.is_current = 0, True
        self.probed_at: float | None = None
        self.is_behind = False
        self._crowd, self._newest = Crowd(settings.tick), False
        self._watch = ClockWatch(settings.max_skew)
        self._unconfirmed: list[tuple[list[Claim], float]] = []

    @property
    def holds(self) -> bool:
        """Whether nothing is claimed at present: Temporal is away, or the clock is wrong."""
        return self.distrusts_clock or self._dispatcher.breaker.holds

    @property
    def _room(self) -> int:
        return 0 if self._watch.holds else self._dispatcher.room

    @property
    def distrusts_clock(self) -> bool:
        """Whether the ledger's clock deviates from elapsed time."""
        return self._watch.holds

    @property
    def skew(self) -> float:
        """Seconds of the last step of the ledger's clock against elapsed time."""
        return self._watch.skew

    @property
    def suspect_until(self) -> datetime | None:
        """Time up to which windows may have runs that the ledger does not know."""
        return self._failover.suspect_until

    async def tick(self) -> Tick:
        """Run one whole tick, until the last outcome is written."""
        tick, sends = await self._claim()
        if sends:
            await asyncio.wait(sends)
        woken, self._waking = bool(self._waking and await self._waking), None
        await self._beside_settled()
        await self._lookups.settled()
        return replace(tick, woken=woken)

    async def run_once(self) -> timedelta:
        """Run the loop's share of a tick while sends continue; return the wait until the next."""
        self._dispatcher.room_made.clear()
        tick, _ = await self._measured()
        late = (tick.probe.now - tick.probe.due_at) if tick.probe.due_at else _NOTHING
        self.is_behind = len(tick.claims) >= _MANY or (bool(tick.claims) and late > _BEHIND)
        if self.holds:
            return self._settings.tick
        if tick.full:
            if not (tick.claims and self._dispatcher.room):
                await self._room_made(tick.next_at)
            return _NOTHING
        if tick.claims or tick.laid:
            return _NOTHING  # more may be due at once
        probe = tick.probe
        # Stops that are due by now are being carried out.
        stop_at = probe.stop_at if probe.stop_at and probe.stop_at > probe.now else None
        moments = [moment for moment in (probe.due_at, probe.stale_at, stop_at) if moment]
        wait = min(moments, default=_FAR) - self._clock.about()
        if probe.lay_at and (turn := probe.lay_at - self._clock.about()) < wait:
            # While a backfill waits for room, due windows are still checked in time.
            wait = max(turn, min(wait, _REFILLED))
        # Due but not claimed: another replica holds the lock. A shorter wait is kept exactly.
        return min(self._settings.tick, wait) if wait > _NOTHING else _CONTENDED

    async def _room_made(self, next_at: datetime | None) -> None:
        """Wait until a share has room again, or until the next key becomes due."""
        # Not for ever: a turn that lasts too long looks like one that is stuck.
        look = min(self._settings.tick.total_seconds(), _LOOK)
        if self._dispatcher.room and next_at is not None:
            look = min(look, max((next_at - self._clock.about()).total_seconds(), 0.0))
        await wait_for(self._dispatcher.room_made, look)

    async def _measured(self) -> tuple[Tick, list[asyncio.Task[None]]]:
        """Measure the tick, unless it is idle: then it is one statement, which is measured."""
        begun, outcome = boottime(), "failed"
        try:
            claimed = await self._claim()
            self.probed_at = begun
            outcome = "claimed" if claimed[0].claims else ""
        finally:
            if outcome:
                measures().record(TICK_DURATION, boottime() - begun, outcome=outcome)
        return claimed

    async def drain(self) -> None:
        """Finish what has begun, and hand back claims that wait for the server."""
        await asyncio.gather(
            self._dispatcher.drain(), self._beside_settled(), self._lookups.drain()
        )
        await self._dispatcher.drain()  # of claims planned apart meanwhile
        if self._waking:
            await self._waking

    async def _beside_settled(self) -> None:
        if tasks := [*self._tasks.values()]:
            await asyncio.wait(tasks)

    async def _claim(self) -> tuple[Tick, list[asyncio.Task[None]]]:
        """Run a tick up to its sends; report what it claimed, even if it fails after that."""
        began, self._parts = time.time_ns(), []
        try:
            return await self._claim_all()
        finally:
            self._report(began, self._parts)

    def _report(self, began: int, parts: Sequence[DecidedPart]) -> None:
        if self.on_tick is None or not parts:
            return
        try:
            self.on_tick(TickRecord(began, time.time_ns(), tuple(parts)))
        except Exception:  # noqa: BLE001 - a span must not end a tick
            logger.exception("a tick was not traced")

    async def _claim_all(self) -> tuple[Tick, list[asyncio.Task[None]]]:
        # The lease counts from before the claim, so that it always ends on this side first.
        asked = boottime()
        lease_ends = asked + self._settings.lease.total_seconds()
        probe = await self._ledger.probe(self._serving, ahead=self._settings.tick)
        answered = boottime()
        self.epoch = probe.epoch
        self._report_move(probe)
        if await self._failover.observe(probe):
            self._lookups.forget()
        self._read_clock(probe.now, asked, answered)
        sends = await self._send_what_was_committed()
        room = self._room
        # Kept for the keys planned apart, whose turn comes when the others have taken the rest.
        kept = min(room // 2, len(self._apart))
        room -= kept
        claims: list[Claim] = []
        due_now = probe.due_at is not None and probe.due_at <= probe.now
        self._crowd.observe(probe.now, due=due_now, on=not self.holds)
        if probe.stop_at is not None and probe.stop_at <= probe.now and not self.holds:
            self._lookups.stop_due()
        # Due windows share the room: ten thousand stale claims of one key must not starve them.
        most = min(room, self._dispatcher.room_for_late)
        stale_now = probe.stale_at is not None and probe.stale_at <= probe.now
        if stale_now and most:
            claims += await self._take_over(most)
            # Send before anything else can fail: this replica owns these leases now.
            sends += self._dispatcher.send(claims, lease_ends)
        if room > len(claims) and due_now:
            began = time.time_ns()
            due = await self._claim_due(room - len(claims), lease_ends)
            self._parts += _part("due", began, due.claims, due.plans)
            claims += due.claims
            sends += self._hand_over(due, lease_ends, chained=probe.chained)
            _count_due(probe, due.claims, due.plans)
        self._plan_beside(room, kept, chained=probe.chained)
        crowded = due_now and self._crowd.lasts
        full, laid = len(claims) >= room or (stale_now and not most) or crowded, False
        next_at = self._crowd.next_at if due_now else probe.due_at
        if room and not full and probe.lay_at is not None and probe.lay_at <= probe.now:
            laid = await self._lay(probe, claims, sends, lease_ends)
        return Tick(probe, tuple(claims), full, laid=laid, next_at=next_at), sends

    async def _take_over(self, most: int) -> list[Claim]:
        began = time.time_ns()
        claims = await self._ledger.take_over(
            self._serving, limit=most, lease=self._settings.lease, newest=self._newest
        )
        # While there are more than one can take, the oldest and the newest take turns.
        self._newest = len(claims) == most and not self._newest
        _count_taken_over(claims)
        self._parts += _part("taken_over", began, claims)
        return claims

    async def _lay(
        self,
        probe: Probe,
        claims: list[Claim],
        sends: list[asyncio.Task[None]],
        lease_ends: float,
    ) -> bool:
        """Lay windows of a backfill behind all that is due; return whether there were any."""
        # Windows that become due within a tick are there before these are sent.
        soon = probe.now + self._settings.tick
        shared = probe.due_at is not None and probe.due_at <= soon
        limit = self._dispatcher.room_behind(shared=shared)
        if limit <= 0:
            return False
        mine: list[Claim] = []
        began = time.time_ns()
        with self._unless_unknown(mine, lease_ends):
            laid = await self._backfills.lay(mine, limit, self.suspect_until)
        claims += mine
        sends += self._dispatcher.send(mine, lease_ends)
        measures().count(CLAIMS, len(mine), source="backfill")
        self._parts += _part("backfill", began, mine)
        if laid.queued or (laid.windows and probe.chained):
            self._wake_others()
        return bool(laid.windows)

    @contextmanager
    def _unless_unknown(self, claims: list[Claim], lease_ends: float) -> Iterator[None]:
        """Keep the claims of an unconfirmed commit: they are sent if it happened."""
        try:
            yield
        except CommitUnknown:
            if claims:
                self._unconfirmed.append((claims, lease_ends))
            raise

    def _wake_others(self) -> None:
        """Start to make waiting keys due; if that is in progress, repeat it once."""
        self._wakes += 1
        if self._waking is None or self._waking.done():
            self._waking = asyncio.create_task(self._wake())

    async def _wake(self) -> bool:
        woken, wakes = False, 0
        while wakes != self._wakes:
            wakes = self._wakes
            try:
                woken = bool(await self._ledger.wake()) or woken
            except Exception as error:  # noqa: BLE001 - the tracker wakes them too, a little later
                logger.log(level_of(error), "waiting keys are woken later: %s", error)
        if woken:
            self.rouse()
        return woken

    def _report_move(self, probe: Probe) -> None:
        """Report once that windows are claimed elsewhere from now on, or here again."""
        if probe.is_current != self.is_current:
            self.is_current = probe.is_current
            self._emit(Notice(_HERE_AGAIN if probe.is_current else _MOVED, good=True))

    def _read_clock(self, now: datetime, asked: float, answered: float) -> None:
        """Take the ledger's time, or hold while it deviates from elapsed time."""
        held = self._watch.holds
        self._watch.observe(now, asked, answered)
        if not self._watch.holds:
            self._clock.observe(now, asked=asked, answered=answered)
        if held and not self._watch.holds:
            self._emit(Recovered("clock"))
        elif self._watch.holds and not held:
            skew = self._watch.skew
            text = (
                f"the ledger's clock went {abs(skew):.1f} s too {'far' if skew > 0 else 'little'};"
                " nothing is started until it has agreed for a minute"
            )
            self._emit(Alert(Code.CLOCK_SKEW, text))

    async def _send_what_was_committed(self) -> list[asyncio.Task[None]]:
        """Send the claims of unconfirmed commits that happened, as their tokens prove.

        The check repeats until the lease ends: a commit may arrive after the connection was lost.
        """
        sends: list[asyncio.Task[None]] = []
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        for number, (claims, lease_ends) in enumerate(unconfirmed):
            asked = boottime()
            if asked >= lease_ends:
                continue  # left to a sweeper
            try:
                there = await self._ledger.renew(claims, self._settings.lease)
            except BaseException:
                self._unconfirmed += unconfirmed[number:]
                raise
            ours = [claim for claim in claims if claim.fire_id in there]
            sends += self._dispatcher.send(ours, asked + self._settings.lease.total_seconds())
            self._parts += _part("confirmed", time.time_ns(), ours)
            if not ours:
                self._unconfirmed.append((claims, lease_ends))
        return sends

    async def _claim_due(
        self, limit: int, lease_ends: float, *, only: list[str] | None = None
    ) -> _Due:
        """Decide all due keys except those planned apart, or ``only`` some of these."""
        claims: list[Claim] = []
        alerts: list[Alert] = []
        keys: list[str] = []
        try:
            with self._unless_unknown(claims, lease_ends):
                async with self._ledger.transaction() as transaction:
                    keys = await self._lock_due(transaction, limit, only)
                    faults.reach("after_due")
                    if not keys:
                        return _Due([], [], [])
                    plans = await self._plan(transaction, keys, limit, alerts, apart=bool(only))
                    plans = await still_valid(transaction, plans)  # the others remain due
                    alerts += await turned_full(transaction, plans)
                    claims += await transaction.record(
                        plans, owner=self._serving.replica, lease=self._settings.lease
                    )
                    faults.reach("before_commit")
        except CommitUnknown:
            raise
        except LedgerUnavailable:
            if only is None:  # perhaps one key takes too long: plan each apart
                self._apart |= dict.fromkeys(keys)
            raise
        return _Due(claims, plans, alerts)

    async def _lock_due(
        self, transaction: Transaction, limit: int, only: list[str] | None
    ) -> list[str]:
        """Lock due keys: the earliest, or in turns while more is due than a tick takes."""
        if only is not None:
            return await transaction.lock_due(self._serving, limit, only=only)
        but = [*self._apart, *self._unparsed]
        if not self._crowd.lasts:
            keys = await transaction.lock_due(self._serving, limit, but=but)
            self._crowd.begin(full=len(keys) >= limit)
            return keys
        found = await transaction.due_by_share(
            self._serving, limit, recent=LATE, but=but, after=self._crowd.after
        )
        chosen = self._crowd.choose(found, limit, self._dispatcher.room_of)
        return await transaction.lock_chosen(self._serving.project, chosen)

    def _hand_over(
        self, due: _Due, lease_ends: float, *, chained: bool
    ) -> list[asyncio.Task[None]]:
        """Send the claims, then emit events, start lookups and wake waiting keys."""
        claims, plans, alerts = due
        if claims:
            faults.reach("after_commit")
        sends = self._dispatcher.send(claims, lease_ends)
        # The rest runs beside the ticks; its failures never affect sends.
        self._lookups.want(plans)
        for alert in alerts:
            self._emit(alert)
        emit_decided(plans, self._emit)
        if any(each.waits for each in plans) or (
            chained and any(each.concerns_others for each in plans)
        ):
            # After the commit: of a waiting window and a run that ends, and of a parent and its
            # child, the one that is written last sees the other.
            self._wake_others()
        return sends

    def _plan_beside(self, room: int, kept: int, *, chained: bool) -> None:
        """Start, beside the ticks, to plan what was too much for one."""
        if self._apart and room:
            self._beside("planning apart", partial(self._plan_apart, kept, chained=chained))
        if self._unparsed:
            self._beside("large definitions", self._prepare)

    async def _plan_apart(self, kept: int, *, chained: bool) -> None:
        """Plan the keys for which a common transaction was too short.

        One, then two, four and so on together, and one by one once that fails. A key that still
        takes too long backs off, and stays apart until it is planned.

        Args:
            kept: number of claims for which the tick has kept room.
            chained: whether schedules fire after others, which may have to be woken.
        """
        waiting, size, grows = [*self._apart], 1, True
        while waiting and (room := max(self._room, kept)) and not self.holds:
            keys, waiting = waiting[:size], waiting[size:]
            lease_ends = boottime() + self._settings.lease.total_seconds()
            began = time.time_ns()
            try:
                due = await self._claim_due(room, lease_ends, only=keys)
            except CommitUnknown:
                logger.debug("%s: their commit is not known yet", ", ".join(keys))
            except LedgerUnavailable as error:
                if len(keys) > 1:
                    waiting, size, grows = keys + waiting, 1, False
                else:
                    await self._back_off(keys[0], error)
            else:
                self._hand_over(due, lease_ends, chained=chained)
                kept -= len(due.claims)
                self._report(began, _part("due", began, due.claims, due.plans))
                self._rejoin(keys, due.plans)
                size *= 2 if grows else 1

    async def _back_off(self, key: str, error: LedgerUnavailable) -> None:
        """Put off a key that cannot be planned; if the ledger is away, that fails as well."""
        async with self._ledger.transaction() as transaction:
            await transaction.back_off(key, str(error))
        if alert := self._fails(key, error):
            self._emit(alert)

    def _rejoin(self, keys: Sequence[str], plans: Sequence[Plan]) -> None:
        """Return keys to the common ticks: planned ones, and one that is alone and not due."""
        planned = {each.state.key for each in plans}
        for key in keys:
            if key in planned or (len(keys) == 1 and key not in self._failing):
                del self._apart[key]

    async def _prepare(self) -> None:
        """Parse definitions that are too large for a tick, beside the ticks."""
        try:
            await self._ledger.prepare()
        finally:
            self._unparsed.clear()
        self.rouse()

    def _beside(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start work beside the ticks, unless it is in progress; log its failure."""
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = asyncio.create_task(self._logged(name, work()))

    @staticmethod
    async def _logged(name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - it starts again, and ticks continue
            logger.log(level_of(error), "%s: %s", name, error)

    def _fails(self, key: str, error: Exception) -> Alert | None:
        """Record that a key cannot be planned; return an alert the first time."""
        if key in self._failing:
            return None
        self._failing.add(key)
        text = f"{key} cannot be planned, and is tried again later and later: {words_of(error)}"
        return Alert(Code.PLAN_FAILED, text)

    async def _plan(
        self,
        transaction: Transaction,
        keys: list[str],
        limit: int,
        alerts: list[Alert],
        *,
        apart: bool,
    ) -> list[Plan]:
        unread: dict[str, Exception] = {}
        states = await transaction.read(keys, at_once=True, on_unread=unread.__setitem__)
        alerts += filter(None, starmap(self._fails, unread.items()))
        self._unparsed |= {*keys} - {state.key for state in states} - unread.keys()
        now = await transaction.now()
        plans: list[Plan] = []
        rows, crowd = MOST_ROWS, None if apart else self._crowd
        rooms = TickRoom(limit, states, self._dispatcher.room_of, crowd)
        for state in states:
            if rooms.left <= 0 or rows <= 0:
                break  # locked in vain: due again as soon as this transaction ends
            part = rooms.of(state)
            if part.room <= 0:
                continue
            try:
                planned = plan(
                    state,
                    now,
                    limit=part.room,
                    rows=rows,
                    audited=self._lookups.is_audited(state),
                    suspect_until=self.suspect_until,
                    turn=part.turn,
                    unvouched_until=self._failover.unvouched_until,
                )
            except Exception as error:  # noqa: BLE001 - one bad schedule never stops the others
                await transaction.back_off(state.key, f"{type(error).__name__}: {error}")
                alerts += filter(None, [self._fails(state.key, error)])
            else:
                self._failing.discard(state.key)
                if rows < MOST_ROWS and len(planned.decisions) >= rows:
                    # A catch-up is not divided: planned apart, its key has all of the rows. Those
                    # behind it remain due for the next tick, rather than become many such keys.
                    self._apart[state.key] = None
                    break
                plans.append(self._put_off(planned, now))
                rows -= len(planned.decisions)
                rooms.planned(planned, now)
        alerts += starmap(_overload_alert, rooms.end(now).items())
        return plans

    def _put_off(self, planned: Plan, now: datetime) -> Plan:
        """Postpone the next plan of a schedule that waits for an answer."""
        if not planned.withheld:
            return planned
        return planned.put_off(now, now + self._lookups.patience(planned))


_OVERLOAD_HINT = "start fewer at one moment (`spread`), or add workers"


def _overload_alert(share: str, windows: int) -> Alert:
    noun = "window was" if windows == 1 else "windows were"
    text = f"{share_text(share)}: more is due than its share of the starts, and {windows} {noun}"
    return Alert(
        Code.OVERLOADED, f"{text} coalesced; more will be until it catches up; {_OVERLOAD_HINT}"
    )


def _count_taken_over(claims: Sequence[Claim]) -> None:
    measures().count(CLAIMS, len(claims), source="taken_over")
    measures().count(TAKEN_OVER, len(claims))


def _count_due(probe: Probe, due: Sequence[Claim], plans: Sequence[Plan]) -> None:
    """Measure a tick that found something due: how late it was, or that others had the locks."""
    if not plans:
        measures().count(CONTENDED)
        return
    measures().count(CLAIMS, len(due), source="due")
    if probe.due_at is not None:
        lag = (probe.now - probe.due_at).total_seconds()
        measures().record(TICK_LAG, max(lag, 0.0))


def _part(
    source: Literal["due", "taken_over", "backfill", "confirmed"],
    began: int,
    claims: Sequence[Claim],
    plans: Sequence[Plan] = (),
) -> list[DecidedPart]:
    """Return the part of a tick that ends now; none if it claimed and decided nothing."""
    if not claims and not any(each.decisions or each.moves for each in plans):
        return []
    return [DecidedPart(source, began, time.time_ns(), tuple(claims), tuple(plans))]


# --- full queues ---
# Alerts for full queues: one each time a queue fills up, not one per window.

_HINT = "`sched show` counts them; raise maxQueued, start fewer, or see why its runs take so long"


async def turned_full(transaction: Transaction, plans: Sequence[Plan]) -> list[Alert]:
    """Return alerts for the queues that these plans are the first to find full.

    The ledger shows which plan is the first, so that replicas report it once. ``queue_one``
    causes no alert: one waiting window is its purpose.
    """
    alerts = []
    for planned in plans:
        excess = [each for each in planned.decisions if each.overflows]
        if excess and planned.state.schedule.overlap == "queue":
            first = min(excess, key=lambda each: each.window.fire_time)
            if await _is_news(transaction, planned, first):
                alerts.append(_queue_full_alert(planned, sum(each.windows for each in excess)))
    return alerts


async def _is_news(transaction: Transaction, planned: Plan, first: Decision) -> bool:
    """Return whether the window before ``first`` still had room."""
    at = first.window.fire_time
    if any(each.verdict == "queued" and each.window.fire_time < at for each in planned.decisions):
        return True
    before = planned.state.schedule.spec.previous(at - TICK)
    row = None if before is None else await transaction.covering(planned.state.key, before)
    return row is None or not row.overflowed


def _queue_full_alert(planned: Plan, windows: int) -> Alert:
    noun = "window was" if windows == 1 else "windows were"
    most = planned.state.schedule.max_queued
    text = f"{planned.state.key}: its queue is full ({most}), {windows} {noun} skipped"
    return Alert(Code.QUEUE_FULL, f"{text}, and more will be until a run of it ends; {_HINT}")
