"""The interface both ledgers keep, held to one conformance suite.

``transaction()`` yields a ``Transaction``: what is written in it is visible to others all at
once when the block ends, or not at all when it raises. A fire moves by compare-and-set only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol

from engine.ledger.backfill_records import Backfill
from engine.ledger.data_gaps import DataGap
from engine.ledger.fire_records import (
    Claim,
    Evidence,
    Fire,
    InTheWay,
    OpenRun,
    Outcome,
    Status,
    StopOrder,
)
from engine.ledger.operating_records import ActionRow
from engine.ledger.queue_rows import PolledQueue
from engine.ledger.replica_records import Lineage, Probe, Served, Serving, Wanted
from engine.ledger.schedule_records import NextFire, ScheduleRow
from engine.ledger.slots import Slots
from engine.ledger.transactions import Transaction


class Ledger(Slots, Protocol):
    """The memory of every window of one Temporal namespace."""

    @property
    def remembers(self) -> bool:
        """Whether it knows what earlier processes did."""
        ...

    async def build_indexes(self, *, patience: float | None = None) -> list[str]:
        """Build the indexes that migrations have left for later; return the names of those left.

        Args:
            patience: seconds to wait for other sessions at a stretch; None is as long as it takes.

        Raises:
            LedgerError: when the role may not.
        """
        ...

    async def identity(self) -> str:
        """Return the ledger's id, which goes into the memo of every run."""
        ...

    async def close(self) -> None:
        """Let go of everything; in-flight transactions have ended before."""
        ...

    def transaction(self, *, long: bool = False) -> AbstractAsyncContextManager[Transaction]:
        """Begin a transaction; ``long`` lifts the tick's time limits for an apply."""
        ...

    async def probe(self, serving: Serving, *, ahead: timedelta = ...) -> Probe:
        """Look once, in a single statement.

        Leases and stops that end later than so far ahead may be left out: nobody waits for them.
        """
        ...

    async def prepare(self) -> bool:
        """Parse the definitions that reads have left out; whether there were any."""
        ...

    async def lineage(self) -> tuple[Lineage, Lineage]:
        """Return the lineage of whoever answers now, and of whoever did when it was noted last."""
        ...

    async def note_lineage(self, lineage: Lineage, *, doubted: bool) -> datetime | None:
        """Note who answers; ``doubted``: windows up to now may have runs the ledger has lost.

        Returns up to when that holds, by whoever's doubt was the last.
        """
        ...

    async def hear(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` soon after each commit in which somebody asked for something.

        Ticks say nothing. Runs until it is cancelled, or returns when the connection is lost.
        Calls may be missing: it is a hint.

        Raises:
            LedgerError: it cannot be listened to.
        """
        ...

    async def take_over(self, serving: Serving, *, limit: int, lease: timedelta) -> list[Claim]:
        """Take the fires whose lease has ended; those of paused or retired keys are settled."""
        ...

    async def renew(self, claims: Sequence[Claim], lease: timedelta) -> set[int]:
        """Give claims a whole lease from now; return the ids of those that are still their owner's.

        Not renewed is what was taken over, settled, or whose lease has ended. The ids of claims
        whose commit nobody confirmed are here exactly when it happened.
        """
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        """Write outcomes whose token still holds; return how many did."""
        ...

    async def witness(self, evidence: Sequence[Evidence]) -> list[str]:
        """Write what was seen of runs; return the workflow ids whose fires it changed."""
        ...

    async def seen_open(self, workflow_ids: Sequence[str], at: datetime) -> None:
        """Note that these runs were open at ``at``."""
        ...

    async def lose(self, workflow_ids: Sequence[str], error: str) -> list[str]:
        """Note that Temporal does not know these started runs; return those that were known."""
        ...

    async def unknown_runs(self, workflow_ids: Sequence[str]) -> set[str]:
        """Return those of these run ids that no fire of a single window has."""
        ...

    async def anything_ended(self) -> bool:
        """Whether a fire ended badly of which nobody has looked what follows it."""
        ...

    async def wake(self) -> list[str]:
        """Make due what waits in a queue behind nothing any more; return the keys.

        That is behind fewer runs of its own key than may be open at once, and behind no window of
        another schedule that may still become what it waits for.
        """
        ...

    async def make_due(self, keys: Sequence[str]) -> None:
        """Let these schedules be planned now: what their plans waited for is known.

        What does not fire at present has nothing to plan.
        """
        ...

    async def children(self, key: str) -> list[str]:
        """Return the schedules that wait for this one's windows, in key order."""
        ...

    async def take_stops(
        self, serving: Serving, *, limit: int, lease: timedelta
    ) -> list[StopOrder]:
        """Take runs that are to be cancelled or terminated now; nobody else does for a lease."""
        ...

    async def stopped(self, orders: Sequence[StopOrder]) -> None:
        """Note that these runs were asked to end, and the first runs of their chains.

        One that was cancelled has its grace from the first time on. They are orders again soon,
        until they were seen to end.
        """
        ...

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        """Return what was done, newest first."""
        ...

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        """Return started fires not seen closed, longest unseen first."""
        ...

    async def in_the_way(
        self, replica: str, *, alive: timedelta, orphans: bool, limit: int
    ) -> list[InTheWay]:
        """Return runs that windows of their key wait in line for, the oldest line first.

        Those that this replica started; with ``orphans`` also those whose replica has not
        announced itself within ``alive``.
        """
        ...

    async def first_run(self, workflow_id: str) -> str | None:
        """Return the first run of the chain that belongs to this fire, as far as it is known."""
        ...

    async def announce(
        self, serving: Serving, *, engine: str, tzdata: str, retention: timedelta | None
    ) -> None:
        """Say that this replica lives and what it serves; resolve types that were waiting."""
        ...

    async def newer_rules(self, project: str) -> tuple[int, str]:
        """Return how many schedules newer rules of time computed, and the newest of those.

        It looks at every schedule: 100,000 take tens of milliseconds.
        """
        ...

    async def other_rules(self, project: str, *, alive: timedelta) -> list[str]:
        """Return the zone rules, other than ours, of replicas that announced within ``alive``."""
        ...

    async def served(self, *, alive: timedelta) -> Served:
        """Return what replicas announced within ``alive``: projects, task queues and types."""
        ...

    async def external_queues(self) -> list[str]:
        """Return the task queues on which external schedules start workflows, in order."""
        ...

    async def note_polls(
        self, seen: Mapping[str, tuple[datetime | None, int]], *, of: Sequence[str]
    ) -> list[PolledQueue]:
        """Note of task queues when they were polled last and how many runs wait; return them.

        What is not one ``of`` those that external schedules have is forgotten.
        """
        ...

    async def polled_queues(self, *, within: timedelta) -> list[PolledQueue]:
        """Return the task queues of external schedules that were looked at ``within`` this time."""
        ...

    async def replicas(self, *, alive: timedelta) -> int:
        """Return how many replicas of the namespace announced within ``alive``."""
        ...

    async def withdraw(self, serving: Serving) -> None:
        """Say that this replica has gone."""
        ...

    async def hold_duty(self, duty: str, holder: str, lease: timedelta) -> datetime | None:
        """Take or keep a duty; return its watermark (the epoch at first), or None if not ours."""
        ...

    async def release_duty(self, duty: str, holder: str) -> None:
        """Let anybody take the duty, unless it has another holder by now."""
        ...

    async def set_watermark(self, duty: str, holder: str, watermark: datetime) -> None:
        """Remember how far the duty's work has come."""
        ...

    async def schedules(
        self, project: str | None = None, *, key: str | None = None
    ) -> list[ScheduleRow]:
        """Return schedules in key order, for reading; retired ones too."""
        ...

    async def count_schedules(self, project: str) -> int:
        """Return how many schedules of the project are not retired."""
        ...

    async def wanted(self, project: str) -> list[Wanted]:
        """Return what the schedules of a project that may fire need of its workers."""
        ...

    async def upcoming(self, project: str, limit: int) -> list[NextFire]:
        """Return what the project's schedules start next, the earliest first, one of each.

        Excluded and skipped windows are passed over. Where more than 5000 schedules have such
        windows before the first start of another, that start may be missing.
        """
        ...

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        """Return how many windows of the key found its queue full, and when the last opened.

        Only the newest 5,000 of its rows that were skipped are looked at.
        """
        ...

    async def fires(
        self, *, key: str | None = None, status: Status | None = None, limit: int = 50
    ) -> list[Fire]:
        """Return fires, newest fire time first."""
        ...

    async def fire(self, workflow_id: str) -> Fire | None:
        """Return the fire of one run id."""
        ...

    async def check_data_gaps(self, *, rest: timedelta, limit: int) -> list[DataGap]:
        """Find out what windows that were denied have left without data; return what is new.

        Args:
            rest: what was denied later is left for the next time: a run that counts on it may be
                about to begin.
            limit: the windows that are looked at, those denied in a row with one of them besides.
        """
        ...

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        """Return data of a key that no run has, newest first."""
        ...

    async def backfills(self, key: str, *, limit: int = 20) -> list[Backfill]:
        """Return the backfills of a key, newest first."""
        ...

    async def laying(self) -> list[Backfill]:
        """Return every backfill that is still to be laid, by key."""
        ...
