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
# Books runs of ours that the ledger does not have as runs: rules L2 and L4.
#
# A window inside a range that said "no run" is taken out of it; one whose commit was lost gets its
# row back. Then the evidence is written as ever.

_ASKED_FOR = {"manual", "rerun"}


async def reconcile_runs(
    ledger: Ledger,
    found: Sequence[ObservedRun],
    *,
    by: str,
    on_event: OnEvent,
) -> list[str]:
    """Write what was seen of runs, of whichever windows; return the ids whose fires it changed.

    Args:
        ledger: the memory they belong to.
        found: runs of this ledger, and the windows of those that it may not have.
        by: who saw them.
        on_event: receives runs that the ledger did not have.
    """
    if not found:
        return []
    unknown = await ledger.unknown_runs([each.workflow_id for each, _ in found])
    for each, info in found:
        if info is not None and each.workflow_id in unknown:
            try:
                said = await _make_room(ledger, each, info, by=by)
            except ScheduleNotFound:
                continue  # its schedule was lost too: nothing can be owed by it
            if said is not None:
                on_event(
                    Alert(
                        Code.RUN_FOUND,
                        f"{each.workflow_id} has a run, and the ledger had it {said}",
                    )
                )
    return await ledger.record_evidence([each for each, _ in found])


async def _make_room(ledger: Ledger, seen: Evidence, info: FireInfo, *, by: str) -> str | None:
    """See that the run's window has a row of its own; return what the ledger said of it before.

    None where it stands in a range of old runs that says the same: there is nothing to tell.
    """
    async with locked(ledger, info.key, by=by, retired=True) as schedule:
        transaction = schedule.transaction
        # A manual run and a rerun are no windows: beside them their window has a row of its own.
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
# Asks Temporal which windows have run, before missed ones are made up for (rule L4).
#
# A ledger that was away, or came back without its last commits, must not coalesce, expire or start
# what has its run already. One question covers every key that is late by the same outage; keys
# whose cursor is much older are asked for by name. What visibility may not show yet is described, a
# part at a time: whatever is left of it a later question covers.
#
# Windows that opened since this replica watches the ledger are not asked about. They were claimed
# in it, if at all, and had their rows been lost, ``FailoverDetector`` would have noticed.

_GOOD_FOR = 60.0
"""Seconds for which an answer is good, from when it was given: whoever plans later asks again.

Not from when it was asked for: where many runs are listed, and replicas share the calls, that takes
longer than a minute, and would never be good."""
_TOGETHER = timedelta(hours=1)
_SKEW = timedelta(seconds=60)
"""How far Temporal's clock may be behind the ledger's."""
_YOUNG = 100
_AT_ONCE = 16
_TURN = 100
"""Runs that one turn describes at most, so that what comes next waits for seconds only."""
_NAMED = 50
"""Keys that one question names."""
_MOST = 20_000
"""Runs that one question may find. Where there are more, fewer keys are asked for at once."""


async def _nobody(_: Sequence[str]) -> None:
    return


@dataclass(frozen=True, slots=True)
class _Shown:
    """Result of an audit: every run from ``since`` to about ``at`` is in the ledger."""

    since: datetime
    at: datetime
    good_until: float


@dataclass(slots=True)
class _Described:
    """Windows of one key that were described: until when each answer is good, by run id."""

    cursor: datetime
    good_until: dict[str, float] = field(default_factory=dict)


class Auditor:
    """Books what has run of windows that the ledger has not decided."""

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
        """Whether the runs of the key after its present cursor are known."""
        cursor, until = self._audited.get(state.key, (None, 0.0))
        return cursor == state.cursor and boottime() < until

    def forget(self) -> None:
        """Trust no answer of before: what was booked may be gone."""
        self._audited.clear()
        self._described.clear()
        self._shown = self._watched = None

    async def audit(
        self,
        states: Sequence[ScheduleState],
        known: Callable[[Sequence[str]], Awaitable[None]] = _nobody,
    ) -> dict[str, Exception]:
        """Look up the runs of these keys from their first undecided window on, and book them.

        One turn: what it does not come to is left out. It takes them in their order.

        Args:
            states: whose windows.
            known: hears of keys as soon as all is known of them.

        Returns:
            The keys of which a run could not be described, and why.

        Raises:
            RPCError: Temporal could not be asked; nothing is decided then.
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
        # Some after the others: no answer is to grow old while more is asked.
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
        """Book every run of one key that visibility shows to have begun since then.

        Raises:
            RPCError: Temporal could not be asked.
        """
        await self._book_since(since, [f"sched:{key}:"], whole=True)

    async def _look_together(self, since: datetime) -> _Shown | None:
        """Look up every run since then, unless that was done just now; None: there are too many.

        One question covers every key that is late for the same reason, however many turns it
        takes to plan them all.
        """
        shown, asked, now = self._shown, boottime(), self._clock.now()
        is_old = shown is None or asked >= shown.good_until - _GOOD_FOR / 2
        if shown is None or is_old or since < shown.since or self._shows_all_by(shown, now):
            self._shown = None
            if await self._book_since(since, ["sched:"]):
                self._shown = _Shown(since, now, boottime() + _GOOD_FOR)
        return self._shown

    def _shows_all_by(self, shown: _Shown, now: datetime) -> bool:
        """Whether another question now would leave nothing to be described."""
        return self._watched is not None and shown.at < self._watched + VISIBILITY_LAG <= now

    async def _look_by_name(
        self, states: Sequence[ScheduleState], since: Mapping[str, datetime]
    ) -> _Shown:
        """Look up the runs of these keys alone, in one question if that can name them all."""
        first, at = min(since[state.key] for state in states), self._clock.now()
        if not await self._book_since(first, [f"sched:{state.key}:" for state in states]):
            for state in states:
                await self._book_since(since[state.key], [f"sched:{state.key}:"])
        return _Shown(first, at, boottime() + _GOOD_FOR)

    async def _book_since(
        self, since: datetime, prefixes: Sequence[str], *, whole: bool = False
    ) -> bool:
        """Book the runs that visibility shows; False when these cannot be all."""
        names = " OR ".join(f'WorkflowId STARTS_WITH "{prefix}"' for prefix in prefixes)
        names = f"({names})" if len(prefixes) > 1 else names
        query = f'{names} AND StartTime >= "{since.isoformat()}"'
        runs = self._client.list_workflows(
            query,
            page_size=AUDITED,
            limit=None if whole else _MOST,
            rpc_timeout=self._settings.rpc_timeout * 2,  # nothing else waits for it
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
        """Look one by one at windows that visibility did not have to show, about so many at most.

        Returns why a key's could not be looked at, and how many are left of ``most``.
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
        """The runs of a key that nobody has looked for of late."""
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
        """Note that all is known of a key, for as long as the oldest answer is good."""
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
