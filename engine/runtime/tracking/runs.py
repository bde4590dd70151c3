"""Runs in Temporal: inspection, cancellation, and audit after missed windows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import Code, ScheduleNotFound
from engine.flow import FireInfo
from engine.ledger import Evidence, KnownRun, Ledger, Serving, StopOrder
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.dispatch.backpressure import AUDITED, Budget
from engine.runtime.events import Alert, Closed, OnEvent, Stopped
from engine.runtime.past_windows import has_window, split_range
from engine.runtime.runs.ends import evidence_of
from engine.runtime.runs.memo import (
    Confirm,
    UnreadableHere,
    description_of,
    first_run_of,
    nothing_to_confirm,
    read_chain_info,
    read_fire_info,
)
from engine.runtime.schedule_lock import locked
from engine.runtime.settings import Settings
from engine.schedules import STARTS, TICK, Window, latest
from engine.schedules.planner import ScheduleState

# --- inspection ---
# Single runs are described, which is current where visibility lags.

VISIBILITY_LAG = timedelta(seconds=60)
"""Assumed maximum lag of visibility. Younger windows, and runs whose close appears later, are
described one by one."""
_LOST = "it was started, and Temporal does not know it any more"
_LOST_HINT = "find out whether it did its work; `sched rerun` starts it again"

ObservedRun = tuple[Evidence, FireInfo | None]
"""A run of this ledger, and the window that its memo names; None if the ledger knows its chain."""


@dataclass(frozen=True, slots=True)
class Chain:
    """State of the newest run of a chain; old servers return no ``first_run_id``."""

    first_run_id: str | None
    is_open: bool
    cancel_requested: bool


class ListedRun(NamedTuple):
    """A closed run as visibility has it: what it says of its fire, if anything.

    ``certain``: nothing more is to be learned. Otherwise the id's newest run is to be described.
    """

    found: ObservedRun | None
    certain: bool = True


class OnOpen(Protocol):
    """Callback with open runs that were described."""

    async def __call__(self, noted: Mapping[str, str | None], *, tracking: bool) -> None:
        """See ``RunInspector``."""


class RunInspector:
    """Inspector of one ledger's runs.

    Args:
        ledger_id: the ledger; runs of any other are foreign and ignored.
        confirm: compares the namespace that answers with the ledger's.
        notices: called in turn with each open run that was described.
        on_open: called with what ``Ledger.seen_open`` returned of runs that were described, and
            with whether that was on tracker duty.

    Attributes:
        budget: the budget of calls; callers of ``find`` must take a turn before.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        clock: LedgerClock,
        settings: Settings,
        *,
        ledger_id: str,
        confirm: Confirm = nothing_to_confirm,
        notices: Sequence[Callable[[WorkflowExecutionDescription], Awaitable[None]]] = (),
        on_open: OnOpen | None = None,
        budget: Budget | None = None,
        on_event: OnEvent,
    ) -> None:
        self.budget = budget or Budget()
        self._client, self._ledger, self._clock = client, ledger, clock
        self._settings, self._ledger_id, self._emit = settings, ledger_id, on_event
        self._notices, self._on_open, self._confirm = notices, on_open, confirm

    async def inspect(self, workflow_ids: Sequence[str], *, tracking: bool = False) -> bool:
        """Describe these runs and record which are closed; return whether any is no longer open.

        A run that Temporal does not know is recorded as lost and reported. It is never restarted
        automatically.

        Args:
            workflow_ids: the runs.
            tracking: whether the calls are made on tracker duty.

        Raises:
            RPCError: one could not be described; the results of the others are written.
            UnreadableHere: the owner of one cannot be read here.
        """
        looks = await asyncio.gather(
            *(self._dated(name, tracking=tracking) for name in workflow_ids), return_exceptions=True
        )
        seen = [look for look in looks if not isinstance(look, BaseException)]
        changed = await self._lose([name for name, each, _ in seen if each is None])
        still: defaultdict[datetime, list[str]] = defaultdict(list)
        for name, each, asked in seen:
            if each is not None and not each.closed:
                still[asked].append(name)
        noted: dict[str, str | None] = {}
        for asked, names in still.items():
            noted |= await self._ledger.seen_open(names, asked)
        closed = [each for _, each, _ in seen if each is not None and each.closed]
        changed += await self._ledger.record_evidence(closed) if closed else []
        for each in closed:
            if each.workflow_id in changed and not each.unread:
                self._emit(Closed(each))
        if noted and self._on_open is not None:
            await self._on_open(noted, tracking=tracking)
        for look in looks:
            if isinstance(look, BaseException):
                raise look
        return bool(closed) or any(each is None for _, each, _ in seen)

    async def _dated(
        self, workflow_id: str, *, tracking: bool
    ) -> tuple[str, Evidence | None, datetime]:
        """Describe a run; return also the time of the request, by the ledger's clock.

        It is taken after the turn in the budget and before the call, because a run may close while
        the answer travels. It is the clock's lower bound: an open run was certainly open then.
        """
        await self.budget.call(tracking=tracking)
        asked = self._clock.now()
        found = await self.find(workflow_id)
        return workflow_id, found[0] if found else None, asked

    async def _lose(self, workflow_ids: Sequence[str]) -> list[str]:
        if not workflow_ids or await self._confirm() is not None:
            return []
        lost = await self._ledger.lose(workflow_ids, _LOST)
        for workflow_id in lost:
            self._emit(Alert(Code.RUN_LOST, f"{workflow_id}: {_LOST}; {_LOST_HINT}"))
        return lost

    async def fire_of(self, run: WorkflowExecution) -> FireInfo | None:
        """Return the window that a run's own memo names; None if the run is foreign.

        Raises:
            ValueError: the memo cannot be read, so the run's owner is unknown.
        """
        info = await read_fire_info(run)
        return info if info is not None and info.ledger == self._ledger_id else None

    async def listed(self, run: WorkflowExecution) -> ListedRun:
        """Return what the listing of a closed run says of its fire. It takes no call."""
        if run.status == WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return ListedRun(None)
        info: FireInfo | None = None
        with suppress(ValueError):  # its chain may identify it
            info = await read_fire_info(run)
        if info is not None and info.ledger != self._ledger_id:
            return ListedRun(None)
        evidence = evidence_of(run, info, listed=True)
        if info is None or evidence.closed is None:
            return ListedRun(None, certain=False)
        return ListedRun((evidence, info))

    async def seen_closed(self, run: WorkflowExecution) -> ObservedRun | None:
        """Describe the newest run of the id of a closed run; None if it settles no fire.

        The closed one may have been retried, reset, or continued as new.

        Raises:
            RPCError: the server did not answer.
            UnreadableHere: the run's owner cannot be read here.
            ValueError: the run's owner is not known.
        """
        await self.budget.call(tracking=True)
        found = await self.find(run.id)
        if found is not None and found[0].run_id != run.run_id:
            return await self._unless_hidden(run, found)
        return found

    async def _unless_hidden(self, run: WorkflowExecution, newest: ObservedRun) -> ObservedRun:
        """Return the newest run of an id, or a closed one that a run of another chain hides."""
        own = await self._described(run.id, run.run_id)
        if own is None or first_run_of(own) == newest[0].first_run_id:
            return newest
        _, info = await self._whose(own)
        return _evidence(own, info), info

    async def chain_of(self, run: Evidence) -> str | None:
        """Return the first run of the chain of a run; None if Temporal does not know it.

        Raises:
            RPCError: the server did not answer.
        """
        found = await self._described(run.workflow_id, run.run_id)
        return first_run_of(found) if found else None

    async def _described(
        self, workflow_id: str, run_id: str
    ) -> WorkflowExecutionDescription | None:
        """Describe one run of an id on tracker duty; None if Temporal does not know it."""
        await self.budget.call(tracking=True)
        timeout = self._settings.rpc_timeout
        return await description_of(self._client, workflow_id, run_id=run_id, rpc_timeout=timeout)

    async def find(self, workflow_id: str) -> ObservedRun | None:
        """Return the evidence of this id's newest run; None if there is none or it is foreign.

        Raises:
            RPCError: the server did not answer.
            UnreadableHere: the run's owner cannot be read here.
            ValueError: the run's owner is not known.
        """
        run = await description_of(
            self._client, workflow_id, rpc_timeout=self._settings.rpc_timeout
        )
        if run is None:
            return None
        is_ours, info = await self._whose(run)
        if not is_ours:
            return None
        if run.status == WorkflowExecutionStatus.RUNNING:
            for notice in self._notices:
                await notice(run)
        return replace(_evidence(run, info), last=True), info

    async def chain(self, workflow_id: str) -> Chain | None:
        """Return the state of this id's chain of runs; None if Temporal does not know it.

        Raises:
            RPCError: the server did not answer.
        """
        await self.budget.call()
        run = await description_of(
            self._client, workflow_id, rpc_timeout=self._settings.rpc_timeout
        )
        if run is None:
            return None
        extended = run.raw_description.workflow_extended_info
        is_open = run.status == WorkflowExecutionStatus.RUNNING
        return Chain(first_run_of(run), is_open, extended.cancel_requested)

    async def _whose(self, run: WorkflowExecutionDescription) -> tuple[bool, FireInfo | None]:
        """Return whether a run is of this ledger, and its window if the ledger may lack it."""
        info: FireInfo | None = None
        with suppress(UnreadableHere):  # its chain may identify it
            info = await read_fire_info(run)
        if info is None:
            known = (await self._ledger.known_runs([run.id])).get(run.id)
            if known is not None and known.first_run_id is not None:
                return True, None  # or a second one under its id, whatever its memo says
            timeout = self._settings.rpc_timeout
            info = await read_chain_info(self._client, run, rpc_timeout=timeout)
        return info is not None and info.ledger == self._ledger_id, info


def _evidence(run: WorkflowExecutionDescription, info: FireInfo | None) -> Evidence:
    return replace(evidence_of(run, info), first_run_id=first_run_of(run))


# --- cancellation ---
# Stop orders: a run is cancelled, and terminated when its grace has passed.
#
# An order is a column of the fire, so it survives its replica. Only an observed close ends it, no
# answer of the server does: for the id of a run that has continued as new, *terminate* returns "not
# found", and *cancel* is accepted without effect.

_BATCH = 50
_TRIES = 3
"""Maximum number of immediate requests to a chain whose newest run has not received one."""


class RunCanceller:
    """Canceller and terminator of runs for one replica."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        inspector: RunInspector,
        serving: Serving,
        settings: Settings,
        *,
        on_event: OnEvent,
    ) -> None:
        self._client, self._ledger, self._inspector = client, ledger, inspector
        self._serving, self._settings, self._emit = serving, settings, on_event

    async def stop_due(self) -> int:
        """Carry out the due stop orders; return how many were carried out."""
        orders = await self._ledger.take_stops(
            self._serving, limit=_BATCH, lease=self._settings.lease
        )
        answers = await asyncio.gather(*map(self._guarded, orders))
        if asked := [order for order in answers if order]:
            await self._ledger.stopped(asked)
            await self._ledger.wake()  # others may wait for a close that was seen
        return len(asked)

    async def _guarded(self, order: StopOrder) -> StopOrder | None:
        """Carry out an order; return None on failure, which is retried after the lease."""
        try:
            return await self._carry_out(order)
        except (RPCError, ValueError) as error:
            text = f"{order.workflow_id} could not be asked to {order.stop}: {error}"
            self._emit(Alert(Code.STOP_FAILED, text))
            return None

    async def _carry_out(self, order: StopOrder) -> StopOrder:
        """Ask the chain to end until its newest run has the request or has closed."""
        chain = None
        if order.asked or order.first_run_id is None:
            chain = await self._inspector.chain(order.workflow_id)
            if chain is None or not chain.is_open:
                return await self._seen(order)
            order = replace(order, first_run_id=order.first_run_id or chain.first_run_id)
        for again in range(_TRIES):
            if order.stop == "cancel" and chain is not None and chain.cancel_requested:
                return order  # its newest run is in its grace
            await self._ask(order)
            if not again and not order.asked:
                self._emit(Stopped(order))
            chain = await self._inspector.chain(order.workflow_id)
            if chain is None or not chain.is_open or chain.first_run_id != order.first_run_id:
                return await self._seen(order)
        return order

    async def _ask(self, order: StopOrder) -> None:
        """Send one request. It names the chain, no run: the newest run may change meanwhile."""
        await self._inspector.budget.call()
        handle = self._client.get_workflow_handle(
            order.workflow_id, first_execution_run_id=order.first_run_id
        )
        timeout = self._settings.rpc_timeout
        try:
            if order.stop == "cancel":
                await handle.cancel(rpc_timeout=timeout)
            else:
                await handle.terminate(reason=order.stop_reason, rpc_timeout=timeout)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def _seen(self, order: StopOrder) -> StopOrder:
        """Record what became of a run that has closed, is unknown, or belongs to another chain."""
        with suppress(UnreadableHere):  # the tracker has it recorded by a replica that can read it
            await self._inspector.inspect([order.workflow_id])
        return order


# --- reconciliation of runs ---
# Runs that Temporal has and the ledger lacks are booked (rules L2 and L4): a window inside a range
# without runs gets a row of its own, a window whose commit was lost gets its row back. Then the
# evidence is written as usual.

_ASKED_FOR = {"manual", "rerun", "handler"}


async def _unknown_chain(_: Evidence) -> None:
    return None


async def reconcile_runs(
    ledger: Ledger,
    found: Sequence[ObservedRun],
    *,
    by: str,
    on_event: OnEvent,
    chain_of: Callable[[Evidence], Awaitable[str | None]] = _unknown_chain,
) -> list[str]:
    """Write the evidence of observed runs; return the workflow ids whose fires it changed.

    A run of another chain than the one that the ledger knows by the id changes nothing. It is
    reported once.

    Args:
        ledger: the ledger that the runs belong to.
        found: runs of this ledger; with the window where the ledger may lack it.
        by: the observer.
        on_event: receives an alert for each run that the ledger did not have.
        chain_of: returns the first run of the chain of a run that was listed, which says none.
    """
    if not found:
        return []
    known = await ledger.known_runs([each.workflow_id for each, _ in found])
    evidence = []
    for each, info in found:
        row = known.get(each.workflow_id)
        if row is None and info is not None:
            await _book_unknown(ledger, each, info, by=by, on_event=on_event)
        if row is None or row.first_run_id is None:
            evidence.append(each)
            continue
        first = each.first_run_id
        if first is None and each.run_id not in {row.run_id, row.first_run_id}:
            first = await chain_of(each)
        if first in {None, row.first_run_id}:
            evidence.append(replace(each, first_run_id=first))
        elif await ledger.note_second_run(each.workflow_id, each.run_id):
            text = f"{each.workflow_id}: run {each.run_id} is not of the chain of run"
            hint = "the window has run twice; see what both did"
            on_event(Alert(Code.RUN_DOUBLED, f"{text} {row.first_run_id}; {hint}"))
    return await ledger.record_evidence(evidence) if evidence else []


def of_other_runs(
    page: Sequence[WorkflowExecution], known: Mapping[str, KnownRun]
) -> list[ObservedRun]:
    """Return those of these runs whose ids have another run by what the ledger knows."""
    return [
        (evidence_of(run), None)
        for run in page
        if (row := known.get(run.id)) is not None
        and row.first_run_id is not None
        and run.run_id not in {row.run_id, row.first_run_id}
    ]


async def _book_unknown(
    ledger: Ledger, seen: Evidence, info: FireInfo, *, by: str, on_event: OnEvent
) -> None:
    """Give a run that no row has a row, and report it."""
    if info.key.startswith(STARTS):
        # Only the request has its task queue and its input.
        text = f"{seen.workflow_id} has a run, and the ledger does not know that start"
        hint = "start it again with the same id and input, which finds this run"
        on_event(Alert(Code.RUN_FOUND, f"{text}; {hint}"))
        return
    try:
        before = await _make_room(ledger, seen, info, by=by)
    except ScheduleNotFound:
        if info.was is None:
            return  # its schedule was lost too, and owes nothing
        # So was a rename, and the schedule owes the window under its former key.
        former = replace(info, key=info.was, was=None)
        await _book_unknown(ledger, seen, former, by=by, on_event=on_event)
        return
    if before is not None:
        text = f"{seen.workflow_id} has a run, and the ledger had it {before}"
        on_event(Alert(Code.RUN_FOUND, text))


async def _make_room(ledger: Ledger, seen: Evidence, info: FireInfo, *, by: str) -> str | None:
    """Give the run's window a row of its own; return what the ledger had before.

    None if nothing is to be reported: the window is part of a merged range with the same status, or
    another observer has found the run meanwhile.
    """
    async with locked(ledger, info.key, by=by, retired=True) as schedule:
        transaction = schedule.transaction
        window = _window_of(schedule.state, seen, info)
        # Manual runs and reruns are no windows: the window itself has another row.
        row = None
        if info.timing not in _ASKED_FOR:
            row = await transaction.covering(info.key, info.fire_time)
        mine = row is not None and row.windows > 1 and row.series == window.series
        if row and mine and await has_window(transaction, row, info.fire_time):
            if row.status == seen.closed:
                return None
            await split_range(transaction, row, info.fire_time)
            return f"among {row.windows} that were {row.status}"
        version, begins = info.definition_version, info.data_from
        made = await transaction.found(seen, window, version, info.timing, begins)
        return None if not made and await ledger.fire(seen.workflow_id) else "not at all"


def _window_of(state: ScheduleState, seen: Evidence, info: FireInfo) -> Window:
    """Return the window of a run; also where the edit that began its series was lost.

    The series that goes on then has a window of that time too. Under the same id it is the same.
    """
    at, here = info.fire_time, state.window(info.fire_time)
    is_its_id = here.workflow_id(state.suffixed) == seen.workflow_id
    if info.series > state.series and is_its_id and state.schedule.spec.next(at - TICK) == at:
        return here
    return Window(info.key, info.series, info.bucket, at)


# --- auditor ---
# Before missed windows are made up for, Temporal is asked which of them have run (rule L4). After
# an outage or a loss of its last commits, a ledger must not coalesce, expire or start a window that
# has a run. One query covers every key that is late because of the same outage; keys with a much
# older cursor are queried by name. Windows too young for visibility are described, a part at a
# time; a later query covers those that are left.
#
# Windows that opened since this replica began to watch the ledger are not audited: they can only
# have been claimed in it, and ``FailoverDetector`` would have noticed the loss of their rows.

_GOOD_FOR = 60.0
"""Validity of an answer in seconds, from its arrival; later plans need a new audit.

Not from the request: listing many runs with shared calls takes longer than a minute, and such an
answer would never be valid."""
_TOGETHER = timedelta(hours=1)
_SKEW = timedelta(seconds=60)
"""How far Temporal's clock may be behind the ledger's."""
_YOUNG = 100
_AT_ONCE = 16
_TURN = 100
"""About the most runs that one turn describes, so that the next turn waits only seconds."""
_NAMED = 50
"""Maximum number of keys in one query."""
_MOST = 20_000
"""Maximum number of runs of one query. If there are more, queries name fewer keys."""


async def _nobody(_: Sequence[str]) -> None:
    return


@dataclass(frozen=True, slots=True)
class _Shown:
    """Result of a query: every run from ``since`` to about ``at`` is in the ledger."""

    since: datetime
    at: datetime
    good_until: float


@dataclass(slots=True)
class _Described:
    """Described windows of one key; ``good_until`` holds the validity by workflow id."""

    cursor: datetime
    good_until: dict[str, float] = field(default_factory=dict)


class RunAuditor:
    """Audit of undecided windows: books those that already have a run."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        inspector: RunInspector,
        clock: LedgerClock,
        settings: Settings,
        *,
        replica: str,
        budget: Budget | None = None,
        on_event: OnEvent,
    ) -> None:
        self._client, self._ledger, self._inspector, self._clock = client, ledger, inspector, clock
        self._settings, self._replica, self._emit = settings, replica, on_event
        self._budget = budget or Budget()
        self._audited: dict[str, tuple[datetime, float]] = {}
        self._described: dict[str, _Described] = {}
        self._shown: _Shown | None = None
        self._watched: datetime | None = None
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def is_audited(self, state: ScheduleState) -> bool:
        """Return whether all runs of the key after its present cursor are known."""
        cursor, until = self._audited.get(state.key, (None, 0.0))
        return cursor == state.cursor and boottime() < until

    def forget(self) -> None:
        """Drop all earlier answers: the ledger may have lost what was booked."""
        self._audited.clear()
        self._described.clear()
        self._shown = self._watched = None

    async def audit(
        self,
        states: Sequence[ScheduleState],
        known: Callable[[Sequence[str]], Awaitable[None]] = _nobody,
    ) -> dict[str, Exception]:
        """Book the runs of these keys from their first undecided window on.

        One call describes a limited number of runs, in the order of ``states``; keys beyond the
        limit are left for the next call.

        Args:
            states: the schedules to audit.
            known: called with keys as soon as all their runs are known.

        Returns:
            The keys with a run that could not be described, and the error.

        Raises:
            RPCError: Temporal could not be queried.
        """
        self._prune()
        now = self._clock.latest()
        if self._watched is None:
            self._watched = now
        since = {
            state.key: (state.schedule.spec.next(state.cursor) or state.cursor) - _SKEW
            for state in states
        }
        recent = [moment for moment in since.values() if moment > now - _TOGETHER]
        shown = await self._look_together(min(recent, default=now))
        together = [each for each in states if shown and since[each.key] >= shown.since]
        answers = {each.key: shown for each in together if shown}
        failed, left = await self._young_ones(together, answers, known, _TURN)
        alone = [each for each in states if each.key not in answers]
        # In small groups, so that no answer expires while more are queried.
        for begin in range(0, len(alone), _NAMED):
            if left <= 0:
                break
            some = alone[begin : begin + _NAMED]
            answers = dict.fromkeys(since, await self._look_by_name(some, since))
            more, left = await self._young_ones(some, answers, known, left)
            failed |= more
        return failed

    def _prune(self) -> None:
        now = boottime()
        for key in [key for key, (_, until) in self._audited.items() if until < now]:
            del self._audited[key]
        for key, described in [*self._described.items()]:
            if max(described.good_until.values(), default=0.0) < now:
                del self._described[key]

    async def look_up(self, key: str, since: datetime) -> None:
        """Book every run of one schedule that started since then, according to visibility.

        Raises:
            RPCError: Temporal could not be queried.
        """
        keys = await self._ledger.keys_of(key)
        await self._book_since(since, [f"sched:{each}:" for each in keys], whole=True)

    async def _look_together(self, since: datetime) -> _Shown | None:
        """Book every run since then, or reuse a recent answer; None if there are too many.

        One query covers every key of the same outage, however many turns it takes to plan them.
        """
        shown, asked, now = self._shown, boottime(), self._clock.now()
        is_old = shown is None or asked >= shown.good_until - _GOOD_FOR / 2
        if shown is None or is_old or since < shown.since or self._shows_all_by(shown, now):
            self._shown = None
            if await self._book_since(since, ["sched:"]):
                self._shown = _Shown(since, now, boottime() + _GOOD_FOR)
        return self._shown

    def _shows_all_by(self, shown: _Shown, now: datetime) -> bool:
        """Return whether a new query, unlike ``shown``, would leave no window to describe."""
        return self._watched is not None and shown.at < self._watched + VISIBILITY_LAG <= now

    async def _look_by_name(
        self, states: Sequence[ScheduleState], since: Mapping[str, datetime]
    ) -> _Shown:
        """Book the runs of these keys: in one query, or one per key if that finds too many."""
        first, at = min(since[state.key] for state in states), self._clock.now()
        if not await self._book_since(first, [each for state in states for each in _ids(state)]):
            for state in states:
                await self._book_since(since[state.key], _ids(state))
        return _Shown(first, at, boottime() + _GOOD_FOR)

    async def _book_since(
        self, since: datetime, prefixes: Sequence[str], *, whole: bool = False
    ) -> bool:
        """Book the runs that visibility shows; return False if there may be more."""
        names = " OR ".join(f'WorkflowId STARTS_WITH "{prefix}"' for prefix in prefixes)
        names = f"({names})" if len(prefixes) > 1 else names
        query = f'{names} AND StartTime >= "{since.isoformat()}"'
        runs = self._client.list_workflows(
            query,
            page_size=AUDITED,
            limit=None if whole else _MOST,
            rpc_timeout=self._settings.rpc_timeout * 2,  # no other work waits for this call
        )
        found: list[ObservedRun] = []
        count = 0
        async for run in self._budget.audited(runs):
            count += 1
            info = await self._inspector.fire_of(run)
            if info is not None:
                found.append((evidence_of(run, info, listed=True), info))
            if len(found) == AUDITED:
                await self._book(found)
                found = []
        await self._book(found)
        return whole or count < _MOST

    async def _young_ones(
        self,
        states: Sequence[ScheduleState],
        answers: Mapping[str, _Shown],
        known: Callable[[Sequence[str]], Awaitable[None]],
        most: int,
    ) -> tuple[dict[str, Exception], int]:
        """Describe windows too young for visibility, about ``most`` runs at most.

        Return the errors by key, and how many runs of ``most`` are left.
        """
        at_once, one_by_one = [], []
        for state in states:
            shown = answers[state.key]
            names = self._undescribed(state, shown)
            if not names:
                at_once.append(self._known(state, shown))
            elif most > 0:
                most -= len(names)
                one_by_one.append((state, shown, names))
        if at_once:
            await known(at_once)
        failed: dict[str, Exception] = {}

        async def describe(state: ScheduleState, shown: _Shown, names: Sequence[str]) -> None:
            looks = await asyncio.gather(
                *(self._describe(state, name) for name in names), return_exceptions=True
            )
            errors = [look for look in looks if isinstance(look, Exception)]
            if errors:
                failed[state.key] = errors[0]
            else:
                await known([self._known(state, shown)])

        await asyncio.gather(*(describe(*each) for each in one_by_one))
        return failed, most

    def _undescribed(self, state: ScheduleState, shown: _Shown) -> list[str]:
        """Return the workflow ids of young windows without a valid description."""
        described = self._described.get(state.key)
        if described is None or described.cursor != state.cursor:
            described = self._described[state.key] = _Described(state.cursor)
        now, until = boottime(), min(self._clock.latest(), self._watched or shown.at)
        names = _young(state, shown.at - VISIBILITY_LAG, until)
        return [name for name in names if described.good_until.get(name, 0.0) < now]

    async def _describe(self, state: ScheduleState, name: str) -> None:
        async with self._slots:
            await self._budget.call()
            asked = boottime()
            seen = await self._inspector.find(name)
        if seen is not None:
            await self._book([seen])
        self._described.setdefault(state.key, _Described(state.cursor)).good_until[name] = (
            asked + _GOOD_FOR
        )

    def _known(self, state: ScheduleState, shown: _Shown) -> str:
        """Mark a key as audited for as long as its oldest answer is valid."""
        described = self._described.pop(state.key, _Described(state.cursor))
        now = boottime()
        good = [until for until in described.good_until.values() if until >= now]
        self._audited[state.key] = (state.cursor, min([shown.good_until, *good]))
        return state.key

    async def _book(self, found: Sequence[ObservedRun]) -> None:
        await reconcile_runs(self._ledger, found, by=self._replica, on_event=self._emit)


def _young(state: ScheduleState, since: datetime, now: datetime) -> Iterator[str]:
    begin = max(state.cursor, since)
    for at in latest(state.schedule.spec, now, _YOUNG):
        if at > begin and not state.known.get(at):
            window = state.window(at)
            for key in (state.key, *state.former):
                yield replace(window, key=key).workflow_id(state.suffixed)


def _ids(state: ScheduleState) -> list[str]:
    """Return the prefixes of the ids of a schedule's runs, by all keys that it has had."""
    return [f"sched:{key}:" for key in (state.key, *state.former)]
