"""Audit of windows against Temporal after a failover."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from temporalio.client import Client

from engine.errors import Code, ScheduleNotFound
from engine.flow.fire import FireInfo
from engine.ledger import Ledger
from engine.ledger.fires import Evidence
from engine.ledger.records import ScheduleState
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.dispatch.backpressure import AUDITED, Budget
from engine.runtime.dispatch.starter import evidence_of
from engine.runtime.events import Alert, OnEvent
from engine.runtime.planning import has_window, locked, split_range
from engine.runtime.settings import Settings
from engine.runtime.tracking.runs import VISIBILITY_LAG, ObservedRun, RunInspector
from engine.schedules.ids import Window

# --- reconciliation of runs ---
# Runs that Temporal has and the ledger lacks are booked (rules L2 and L4): a window inside a range
# without runs gets a row of its own, a window whose commit was lost gets its row back. Then the
# evidence is written as usual.

_ASKED_FOR = {"manual", "rerun"}


async def reconcile_runs(
    ledger: Ledger,
    found: Sequence[ObservedRun],
    *,
    by: str,
    on_event: OnEvent,
) -> list[str]:
    """Write the evidence of observed runs; return the workflow ids whose fires it changed.

    Args:
        ledger: the ledger that the runs belong to.
        found: runs of this ledger; with the window where the ledger may lack it.
        by: the observer.
        on_event: receives an alert for each run that the ledger did not have.
    """
    if not found:
        return []
    unknown = await ledger.unknown_runs([each.workflow_id for each, _ in found])
    for each, info in found:
        if info is not None and each.workflow_id in unknown:
            try:
                said = await _make_room(ledger, each, info, by=by)
            except ScheduleNotFound:
                continue  # its schedule was lost too, and owes nothing
            if said is not None:
                on_event(
                    Alert(
                        Code.RUN_FOUND,
                        f"{each.workflow_id} has a run, and the ledger had it {said}",
                    )
                )
    return await ledger.record_evidence([each for each, _ in found])


async def _make_room(ledger: Ledger, seen: Evidence, info: FireInfo, *, by: str) -> str | None:
    """Give the run's window a row of its own; return what the ledger had before.

    None if the window is part of a merged range with the same status: nothing is to be reported.
    """
    async with locked(ledger, info.key, by=by, retired=True) as schedule:
        transaction = schedule.transaction
        # Manual runs and reruns are no windows: the window itself has another row.
        row = None
        if info.timing not in _ASKED_FOR:
            row = await transaction.covering(info.key, info.fire_time)
        mine = row is not None and row.windows > 1 and row.series == info.series
        if row and mine and await has_window(transaction, row, info.fire_time):
            if row.status == seen.closed:
                return None
            await split_range(transaction, row, info.fire_time)
            return f"among {row.windows} that were {row.status}"
        window = Window(info.key, info.series, info.bucket, info.fire_time)
        await transaction.found(seen, window, info.definition_version, info.timing, info.data_from)
        return "not at all"


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


class Auditor:
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
        if self._watched is None or not self._ledger.remembers:
            self._watched = now
        since = {state.key: _first_undecided(state) - _SKEW for state in states}
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
        """Book every run of one key that started since then, according to visibility.

        Raises:
            RPCError: Temporal could not be queried.
        """
        await self._book_since(since, [f"sched:{key}:"], whole=True)

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
        if not await self._book_since(first, [f"sched:{state.key}:" for state in states]):
            for state in states:
                await self._book_since(since[state.key], [f"sched:{state.key}:"])
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
                found.append((evidence_of(run, listed=True), info))
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


def _first_undecided(state: ScheduleState) -> datetime:
    return state.schedule.spec.next(state.cursor) or state.cursor


def _young(state: ScheduleState, since: datetime, now: datetime) -> Iterator[str]:
    begin = max(state.cursor, since)
    for at in state.schedule.spec.latest(now, _YOUNG):
        if at > begin and not state.known.get(at):
            yield state.window(at).workflow_id(state.suffixed)
