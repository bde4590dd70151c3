"""Dispatcher, which sends claims with bounded concurrency."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from engine import faults
from engine.errors import Code, LedgerError
from engine.ledger import Claim, Ledger, Outcome
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.dispatch.backpressure import AdaptiveRateLimiter, Breaker, Vegas
from engine.runtime.dispatch.shares import LATE, Answered, FairSlots, Turns
from engine.runtime.dispatch.starter import Answer, Starter
from engine.runtime.events import Alert, OnEvent, Settled
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import server_of
from engine.schedules import Sealed, tenant_of
from engine.telemetry.instruments import STARTS, measures

# --- leases ---
# The leases on claims that a replica has not settled yet.

_RENEWALS = 3
"""Renewals per lease, so that two may fail."""


@dataclass(slots=True)
class Lease:
    """The lease on a claim. Times are ``boottime``; ``sent_at`` is that of the first send."""

    claim: Claim
    ends: float
    sent_at: float | None = None

    @property
    def lasts(self) -> bool:
        """Whether the claim is still ours, by a clock that counts time spent suspended."""
        return boottime() < self.ends


class Leases:
    """Renewal of the leases in hand, so that no sweeper takes a claim from a live owner."""

    def __init__(self, ledger: Ledger, length: timedelta) -> None:
        self._ledger, self._length = ledger, length
        self._leases: dict[int, Lease] = {}

    @contextmanager
    def keeping(self, claim: Claim, ends: float) -> Iterator[Lease]:
        """Keep a claim's lease alive while the block lasts."""
        lease = self._leases[claim.fire_id] = Lease(claim, ends)
        try:
            yield lease
        finally:
            # If this same replica has taken the fire over, it has another lease by now.
            if self._leases.get(claim.fire_id) is lease:
                del self._leases[claim.fire_id]

    async def run_once(self) -> timedelta:
        """Renew; return the wait until the next time."""
        await self.renew()
        return self._length / _RENEWALS

    async def renew(self) -> None:
        """Renew every lease that has not ended, in one statement.

        A renewal counts from before the request, so that the lease ends first on this side.
        Without the ledger's confirmation the old end stands.
        """
        lasting = [lease for lease in self._leases.values() if lease.lasts]
        if not lasting:
            return
        ends = boottime() + self._length.total_seconds()
        renewed = await self._ledger.renew([lease.claim for lease in lasting], self._length)
        for lease in lasting:
            if lease.claim.fire_id in renewed:
                lease.ends = max(lease.ends, ends)


# --- dispatcher ---
# Sends claims with bounded concurrency and writes their outcomes in batches.

_FEWEST = 200
_LARGE = 10_000
"""Characters of an input above which a server takes visibly longer to store it."""
_GATHER = 0.05
"""Seconds for which outcomes gather before they are written as one batch."""
_FINAL = {"rejected", "unvouched"}
_NOT_YET_ITS_OWN = 3
"""Unanswered attempts that are not reported: usually the server is away."""


class Dispatcher:
    """The outbox of one replica: claims are sent only here.

    Attributes:
        wake: called when a written outcome may release windows of other schedules.
    """

    def __init__(
        self,
        ledger: Ledger,
        starter: Starter,
        clock: LedgerClock,
        settings: Settings,
        *,
        on_event: OnEvent,
    ) -> None:
        self._ledger, self._starter, self._clock = ledger, starter, clock
        self._settings, self._emit = settings, on_event
        self._slots = FairSlots(settings.concurrency, Vegas(settings.concurrency))
        most = max(settings.concurrency // 2, 1)
        self._spare = {kind: FairSlots(most, Vegas(most)) for kind in ("backfilled", "large")}
        self._tasks: dict[asyncio.Task[None], tuple[str, bool]] = {}
        self._held, self._late = Counter[str](), 0
        self._tenants: dict[str, AdaptiveRateLimiter] = {}
        self._backfilled: set[asyncio.Task[None]] = set()
        self._answers: list[tuple[Claim, Answer]] = []
        self._unwritten: set[UUID] = set()
        self._writing: asyncio.Task[None] | None = None
        self._starts: deque[float] = deque()
        self._leaving = False
        self.breaker = Breaker(starter.ask, on_event=on_event)
        self.limiter = AdaptiveRateLimiter(
            settings.start_rate.per_second if settings.start_rate else None
        )
        self.leases = Leases(ledger, settings.lease)
        self.room_made = asyncio.Event()
        self.wake: Callable[[], None] = lambda: None

    @property
    def room(self) -> int:
        """Number of claims that this replica may still take; 0 while Temporal is away.

        The limit is the number of its starts in the last half of a lease, within [200, batch]: it
        can usually send that many before the lease ends, and leaves the rest to others. Room is
        offered once half of it is free: a claim costs ten round trips, for one window or for fifty.
        """
        return self._free(self._most, len(self._tasks) - min(self._waiting, self._most))

    def room_of(self, share: str, late: bool) -> int:  # noqa: FBT001 - see Crowd
        """Return how many claims of a share it may still take; ``late``: of late windows.

        One share has half of the limit at most, and so has all that is late: the other half is for
        windows that become due meanwhile.
        """
        own = self._free(self._half, self._held[share])
        return min(own, self.room_for_late) if late else own

    @property
    def room_for_late(self) -> int:
        """Number of claims that it may still take of what is late."""
        return self._free(self._half, self._late - min(self._waiting, self._late))

    @property
    def _waiting(self) -> int:
        """Number of claims that wait for spare capacity, and take no room from others."""
        return sum(spare.waiting for spare in self._spare.values())

    @property
    def _half(self) -> int:
        return max(self._most // 2, 1)

    def room_behind(self, *, shared: bool) -> int:
        """Return the number of backfill windows that it may still take.

        Args:
            shared: whether other windows are due as well: then backfills, with those in flight,
                get a quarter of the room.
        """
        most = max(self._half // 4, 1) if shared else self._most
        return min(self._free(most, len(self._backfilled)), self.room)

    @property
    def _most(self) -> int:
        since = boottime() - self._settings.lease.total_seconds() / 2
        while self._starts and self._starts[0] < since:
            self._starts.popleft()
        return min(max(len(self._starts), _FEWEST), self._settings.batch)

    def _free(self, most: int, taken: int) -> int:
        free = most - taken
        return free if free * 2 >= most and not self.breaker.holds else 0

    def send(self, claims: Sequence[Claim], lease_ends: float) -> list[asyncio.Task[None]]:
        """Begin to send; the returned tasks end when their outcomes are written."""
        tasks = []
        for claim, late in self._in_turns(claims):
            task = asyncio.create_task(self._handle(claim, lease_ends, late=late))
            tasks.append(task)
            share = claim.schedule.share
            self._tasks[task] = share, late
            self._held[share] += 1
            self._late += late
            if claim.timing == "backfill":
                self._backfilled.add(task)
            task.add_done_callback(self._finished)
        return tasks

    def _in_turns(self, claims: Sequence[Claim]) -> Turns[tuple[Claim, bool]]:
        """Return claims, and whether they are late, by turns: the first ones find free slots."""
        turns = Turns[tuple[Claim, bool]]()
        for claim in claims:
            late = self._is_late(claim)
            turns.add(claim.schedule.share, (claim, late), late=late)
        return turns

    async def drain(self) -> None:
        """Wait until everything in flight is answered and written.

        Claims that wait for the server are handed back: other replicas have as good a chance.
        """
        self._leaving = True
        self.breaker.give_up()
        while self._tasks:
            every = self._settings.lease.total_seconds() / 3
            await asyncio.wait(set(self._tasks), timeout=every)
            try:
                await self.leases.renew()
            except LedgerError as error:
                self._emit(_unsettled(error, str(error)))

    def _is_late(self, claim: Claim) -> bool:
        """Return whether its turn is among those that are late."""
        due = claim.fire_time + claim.schedule.delay(claim.fire_time)
        return claim.timing != "on_time" or self._clock.about() - due > LATE

    def _finished(self, task: asyncio.Task[None]) -> None:
        share, late = self._tasks.pop(task)
        self._held[share] -= 1
        if not self._held[share]:
            del self._held[share]
        self._late -= late
        self._backfilled.discard(task)
        # A poller that waits for room must also wake when there will be none.
        if (self.room and self.room_of(share, late)) or self.breaker.holds:
            self.room_made.set()
        if error := task.exception():
            self._emit(_unsettled(error, f"{type(error).__name__}: {error}"))

    async def _handle(self, claim: Claim, lease_ends: float, *, late: bool) -> None:
        with self.leases.keeping(claim, lease_ends) as lease:
            answer = await self._answer(lease, late=late)
            if answer is None:  # the lease ended first: left to a sweeper
                return
            if answer.outcome.status == "started":
                self._starts.append(boottime())
            faults.reach("after_start")
            self._answers.append((claim, answer))
            await self._written()
        if claim.token in self._unwritten:
            self._unwritten.discard(claim.token)  # a sweeper finds out and reports
        else:
            self._report(claim, answer)

    async def _answer(self, lease: Lease, *, late: bool) -> Answer | None:
        """Send until there is an answer about this claim; return None if its lease has ended."""
        share = lease.claim.schedule.share
        async with self._spare_place(lease.claim) as answered:
            if self._leaving and _holds_up(lease.claim):
                return _handed_back(lease.claim)  # it waited long, as would those behind it
            while lease.lasts:
                if not await self._has_turn(share, late=late):
                    return _handed_back(lease.claim)
                async with self._slots.place(share, late=late) as of_the_late:
                    if boottime() >= lease.ends:
                        continue
                    if not await self._may_send(lease):
                        return _handed_back(lease.claim)
                    sent_at = boottime()
                    lease.sent_at = lease.sent_at or sent_at
                    answer = await self._starter.start(lease.claim, lease.ends)
                if answer is None:
                    continue  # the lease has ended, unless it was renewed meanwhile
                measures().count(STARTS, outcome=_measured(answer))
                if answer.failure == "throttled":
                    self.breaker.answered()
                    self.limiter.refused(sent_at)
                    continue
                if answer.failure == "unavailable":
                    self.breaker.unanswered()
                else:
                    self.breaker.answered()
                    self.limiter.accepted()
                    if answer.outcome.status == "started" and answer.seen is None:
                        answered(sent_at)  # finding an existing run costs the server less
                        of_the_late(sent_at)
                return answer
        return None

    @asynccontextmanager
    async def _spare_place(self, claim: Claim) -> AsyncIterator[Answered]:
        """Wait for spare capacity, if the claim needs it; yield the callback for the answer.

        Claims that would hold up others, because they are many or large, get half of the slots at
        most, and only the server's spare capacity.
        """
        if kind := _holds_up(claim):
            async with self._spare[kind].place(late=True) as answered:
                yield answered
        else:
            yield _nobody_asks

    async def _has_turn(self, share: str, *, late: bool) -> bool:
        """Wait until the rates allow a send; return False if the claim is left to a sweeper."""
        limiters = [self.limiter]
        if (tenant := tenant_of(share)) and (rate := self._settings.tenant_rate):
            of_tenant = AdaptiveRateLimiter(rate.per_second)
            limiters.insert(0, self._tenants.setdefault(tenant, of_tenant))

        def given_up() -> bool:
            return self.breaker.holds or self._leaving

        for limiter in limiters:
            if not await limiter.acquire(given_up, share, late=late):
                return False
        return True

    async def _may_send(self, lease: Lease) -> bool:
        """Return False if the claim is left to a sweeper; wait while that is not known."""
        # A refused send may have arrived after all. Before an old one is repeated, its run must be
        # looked up and the namespace's retention checked: sweepers do that.
        oldest = boottime() - self._settings.lease.total_seconds()
        if lease.sent_at is not None and lease.sent_at < oldest:
            return False
        return await self.breaker.closed()

    async def _written(self) -> None:
        """Write the gathered outcomes. While one batch is written, the next one gathers."""
        if self._writing is not None:
            await self._writing
        if self._answers and self._writing is None:
            self._writing = asyncio.create_task(self._write())
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        answers: list[tuple[Claim, Answer]] = []
        written = False
        try:
            if len(self._tasks) > len(self._answers):
                await asyncio.sleep(_GATHER)  # others are in flight; a lone one does not wait
            answers, self._answers = self._answers, []
            faults.reach("before_settle")
            await self._ledger.settle([answer.outcome for _, answer in answers])
            written = True
            seen = [answer.seen for _, answer in answers if answer.seen]
            if seen:
                await self._ledger.record_evidence(seen)
            if seen or any(answer.outcome.status in _FINAL for _, answer in answers):
                self.wake()
        except Exception as error:  # noqa: BLE001 - the other answers must be handled
            # Not lost: the leases end, a sweeper describes each run and records it as started.
            if not written:
                self._unwritten |= {claim.token for claim, _ in answers}
            text = f"outcomes left to the sweeper: {type(error).__name__}: {error}"
            self._emit(_unsettled(error, text))
        finally:
            self._writing = None

    def _is_known(self, claim: Claim) -> bool:
        """Return whether the breaker reports, or soon will, why the claim had no answer."""
        return self.breaker.holds or claim.attempts <= _NOT_YET_ITS_OWN

    def _report(self, claim: Claim, answer: Answer) -> None:
        if answer.failure == "throttled" or (
            answer.failure == "unavailable" and self._is_known(claim)
        ):
            return
        started = answer.outcome.started_at or self._clock.about()
        already = answer.seen is not None
        self._emit(Settled(claim, answer.outcome, started - claim.fire_time, already))
        if answer.alert:
            rejected = answer.outcome.status == "rejected"
            code = Code.FIRE_REJECTED if rejected else Code.FIRE_UNVOUCHED
            self._emit(Alert(code, f"{claim.workflow_id}: {answer.alert}"))


def _holds_up(claim: Claim) -> str | None:
    """Return why the start of a claim would hold up others; None if it would not."""
    if claim.timing == "backfill":
        return "backfilled"
    (given,) = claim.own_input or (claim.schedule.input,)
    if given is None:
        return None
    text = given.payload if isinstance(given, Sealed) else json.dumps(given)
    return "large" if len(text) > _LARGE else None


def _unsettled(error: BaseException, text: str) -> Alert:
    """Return the alert of outcomes that are not written; quiet if that is due to an outage."""
    return Alert(Code.SETTLE_FAILED, text, quiet=server_of(error) is not None)


def _measured(answer: Answer) -> str:
    """Return the answer to one start as a word of the metric."""
    if answer.failure == "throttled":
        return "throttled"
    if answer.seen is not None:
        return "already_started"
    status = answer.outcome.status
    return "unanswered" if status == "starting" else status


def _nobody_asks(_: float) -> None:
    """Ignore the answer to a start that does not hold up others."""


def _handed_back(claim: Claim) -> Answer:
    """Return an answer that leaves the claim at once to any replica that can send it."""
    error = "not sent yet: the Temporal server did not answer, or had too many calls"
    outcome = Outcome(claim.fire_id, claim.token, "starting", error=error, retry_after=timedelta(0))
    return Answer(outcome, failure="throttled")
