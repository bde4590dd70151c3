"""Ledger interface: the protocols of both ledgers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol

from engine.ledger.fires import (
    Claim,
    DataGap,
    DeadLetter,
    Ended,
    Evidence,
    Fire,
    FollowUp,
    InTheWay,
    OpenRun,
    Outcome,
    Status,
    StopOrder,
    Timing,
)
from engine.ledger.records import (
    Action,
    ActionRow,
    Backfill,
    DriftRow,
    InLine,
    Lineage,
    NewDefinition,
    NewRequest,
    NextFire,
    Pause,
    PolledQueue,
    Probe,
    ProjectRow,
    QueueRow,
    ScheduleRow,
    ScheduleState,
    Served,
    Serving,
    SkippedAhead,
    SlotAsk,
    SlotsHeld,
    Step,
    ToLay,
    Wanted,
)
from engine.schedules.diff import Head
from engine.schedules.ids import Window
from engine.schedules.model import Queue, Schedule, ScheduleFile
from engine.schedules.planner.decisions import Move, Piece
from engine.schedules.policies import ReasonCode, Stop

# --- transactions ---
# The statements of one transaction, which both ledgers have: in parts, by who needs them.


class Declaring(Protocol):
    """Statements for declaring schedules."""

    async def lock_edited(self, project: str, keys: Sequence[str]) -> None:
        """Lock these schedules and those of the project that are noted as absent; wait."""
        ...

    async def lock_project(self, project: str) -> ProjectRow | None:
        """Lock the project against another apply and return what was applied last."""
        ...

    async def heads(self, project: str, keys: Sequence[str]) -> dict[str, Head]:
        """Return the heads of these keys and of every key of the project."""
        ...

    async def resolve(
        self, wanted: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], str | None]:
        """Return the announced type for each (task queue, workflow)."""
        ...

    async def announced(self, task_queues: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return every type ever announced on each of these task queues, where there is one."""
        ...

    async def define(self, definitions: Sequence[NewDefinition], *, by: str) -> None:
        """Write new definitions and make them the heads of their schedules."""
        ...

    async def drift(self, project: str) -> list[DriftRow]:
        """Return the project's schedules that are paused, skip windows, or are in no file."""
        ...

    async def asked_under(self, request_id: str) -> str | None:
        """Return the key of the schedule that an application asked for under this request id."""
        ...

    async def raise_epoch(self) -> None:
        """Let replicas look once more for schedules whose workflow they know."""
        ...

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        """Retire schedules and revoke their ``claimed`` fires. Rows stay for ever."""
        ...

    async def move_to_project(self, keys: Sequence[str], old: str, new: str) -> None:
        """Let these locked schedules be another project's, with all that has not ended."""
        ...

    async def mark_absent(
        self, project: str, absent: Sequence[str], at: datetime
    ) -> dict[str, datetime]:
        """Note which keys the file lacks, and since when; forget it for all others."""
        ...

    async def save_project(
        self, file: ScheduleFile, *, by: str, refused: Collection[str] = ()
    ) -> None:
        """Note that the file was applied, but for the keys ``refused``; raise the epoch."""
        ...

    async def queues(self) -> dict[str, QueueRow]:
        """Return every queue of the namespace, by name; dropped ones too."""
        ...

    async def declare_queues(self, project: str, queues: Mapping[str, Queue], *, by: str) -> None:
        """Make these the project's queues; its others are dropped, and their limits go on."""
        ...


class Operating(Protocol):
    """Statements for operators and applications."""

    async def pause(self, key: str, pause: Pause) -> None:
        """Let a schedule rest, and revoke the ``claimed`` fires of its windows."""
        ...

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        """Let a schedule fire again; it is looked at from ``next_fire_at`` on."""
        ...

    async def move(self, state: ScheduleState, moves: Sequence[Move]) -> None:
        """Carry out what overlap decided about open fires of one schedule."""
        ...

    async def stop(self, fire_ids: Sequence[int], stop: Stop, *, reason: str) -> None:
        """Ask for the end of runs."""
        ...

    async def request(self, state: ScheduleState, new: NewRequest) -> bool:
        """Write a run that somebody asks for; False when its id is there already."""
        ...

    async def make_due(self, keys: Sequence[str]) -> None:
        """See ``Ledger.make_due``."""
        ...

    async def unskip(self, key: str, series: int, fire_time: datetime) -> bool:
        """Forget that an operator skipped a window that is still to come; False when none did."""
        ...

    async def lift_skips(self, keys: Sequence[str]) -> list[SkippedAhead]:
        """Forget what operators skipped of windows that are still to come, and return it."""
        ...

    async def give_up(self, workflow_ids: Sequence[str], reason: str) -> frozenset[str]:
        """Skip those of these fires that nobody has begun to send, and return them."""
        ...

    async def note_ahead(self, step: Step) -> None:
        """Write decisions on windows that are still to come; cursor and next fire time stay."""
        ...

    async def fire(self, workflow_id: str) -> Fire | None:
        """Return the fire of one run id."""
        ...

    async def window(self, key: str, bucket: int, series: int | None) -> Fire | None:
        """Return the row of the window, or of the range it begins; else of the newest series."""
        ...

    async def count_reruns(self, window: Window, workflow_id: str) -> int:
        """Return the highest number of the window's reruns; its own run has ``workflow_id``."""
        ...

    async def between(self, key: str, first: datetime, last: datetime) -> list[Fire]:
        """Return the rows of windows in ``first <= t <= last``, by fire time, of every series."""
        ...

    async def definition(self, key: str, version: int) -> Schedule:
        """Return one version of a schedule's definition."""
        ...

    async def forgotten_until(self, key: str) -> datetime | None:
        """Return up to where a window without a row may have had one; read the rows before.

        What it was, the archive knows.
        """
        ...

    async def split_range(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        """Divide a row of many windows into these pieces."""
        ...

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        """Return the row that holds this window, alone or among others."""
        ...

    async def found(
        self,
        seen: Evidence,
        window: Window,
        version: int,
        timing: Timing,
        data_from: datetime | None,
    ) -> None:
        """Write the row of a run of which the ledger had nothing; the rest is from its memo.

        ``timing`` says of which kind it is, ``data_from`` where its data begin; None: no run came
        before it.
        """
        ...

    async def letters(
        self,
        key: str | None = None,
        *,
        workflow_id: str | None = None,
        bucket: int | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Return dead letters of which everything given is true, newest fire time first."""
        ...

    async def deal(self, workflow_ids: Collection[str]) -> set[str]:
        """Note that somebody has dealt with these dead letters; return those that were some."""
        ...

    async def ended(self, limit: int) -> list[Ended]:
        """Return fires that ended badly, locked, of which nobody has looked what follows them."""
        ...

    async def follow(self, looked_at: Collection[int], news: Sequence[FollowUp]) -> set[str]:
        """Write what follows these fires, once; return the run ids of what is new."""
        ...

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        """Note what somebody did."""
        ...


class Backfilling(Protocol):
    """Statements for requesting backfills, and for the tick that lays their windows."""

    async def lock_laying(self, serving: Serving) -> str | None:
        """Lock the schedule whose backfill has its turn, unless somebody else has; its key."""
        ...

    async def backfills(
        self, key: str, *, laying: bool = False, limit: int = 100
    ) -> list[Backfill]:
        """Return backfills of a key, the newest first; ``laying``: these alone, in their turn."""
        ...

    async def request_backfill(self, new: Backfill) -> int:
        """Write a backfill that somebody asks for, and return its number."""
        ...

    async def move_backfill(self, to: Backfill) -> None:
        """Write how far a backfill has come, and whether it goes on."""
        ...

    async def backfill_looked_at(self, key: str, at: datetime) -> None:
        """Note that the runs of a key were looked up after the signs of lost commits up to then."""
        ...

    async def put_off_backfills(self, key: str, wait: timedelta, error: str | None = None) -> None:
        """Let the backfills of a key wait, because of an error or for a look at its runs."""
        ...

    async def count_waiting(self, key: str, most: int) -> int:
        """Return how many fires of a key wait for a place, or ``most`` when there are more."""
        ...

    async def count_windows(
        self, key: str, spans: Sequence[tuple[datetime, datetime]]
    ) -> list[Counter[tuple[Status, ReasonCode | None]]]:
        """Count the rows of single windows in each ``after < t <= until``, by what they say."""
        ...

    async def ranges_between(self, key: str, after: datetime, until: datetime) -> list[Fire]:
        """Return the rows of many windows that reach into ``after < t <= until``."""
        ...

    async def lay(
        self,
        state: ScheduleState,
        windows: Sequence[ToLay],
        *,
        overlap: InLine,
        owner: str,
        lease: timedelta,
    ) -> tuple[list[Claim], set[str]]:
        """Let windows start that had no run; return the claims, and the ids that were written.

        With ``allow`` they are the owner's to send, with ``queue`` they wait in line. Left out is
        what has a row by now, or one that is not ``SURELY_NOT_RUN``, and whose id another row has.
        """
        ...


class Transaction(Declaring, Operating, Backfilling, Protocol):
    """All of it: what a tick needs, on top of the other parts."""

    async def now(self) -> datetime:
        """Return the ledger's clock, read now and not at the transaction's start."""
        ...

    async def lock_due(
        self,
        serving: Serving,
        limit: int,
        *,
        but: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[str]:
        """Lock due schedules that nobody else has locked; return their keys, earliest first.

        ``but`` are left out, and with ``only`` all others are.
        """
        ...

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        """Lock what older rules of time computed in our lanes, in key order from ``after`` on."""
        ...

    async def lock(self, keys: Sequence[str]) -> None:
        """Lock these schedules, waiting for whoever holds them."""
        ...

    async def lock_unsent(self, fire_ids: Collection[int]) -> set[int]:
        """Return those of these fires that nobody has begun to send; nobody does until the end."""
        ...

    async def read(
        self, keys: Sequence[str], *, all_open: bool = False, at_once: bool = False
    ) -> list[ScheduleState]:
        """Return the schedules' state; call it after the lock, so that it is fresh.

        With ``all_open`` the open fires also of schedules whose runs may overlap. With ``at_once``
        a schedule is left out whose large definition has to be parsed first: that would take too
        long here, and ``Ledger.prepare`` does it.
        A definition that this version cannot read is left out, and its schedule backs off.
        """
        ...

    async def record(
        self,
        steps: Sequence[Step],
        *,
        owner: str | None = None,
        lease: timedelta = timedelta(0),
        strict: bool = False,
    ) -> list[Claim]:
        """Write decisions and move cursors; return the claims that are the owner's to start.

        With ``owner`` None the claims are written as ``claimed`` and left to the sweepers.
        One step that fails backs off alone: its schedule is due again later, with the error.
        ``strict`` raises instead, for callers that must not go on without it.
        """
        ...

    async def unservable(
        self, serving: Serving, *, alive: timedelta, steady: timedelta, limit: int
    ) -> list[str]:
        """Return keys of this lane, due beyond ``grace``, that no living replica can serve.

        A replica lives that announced within ``alive``. ``steady`` is how long the caller has
        announced without a gap: before ``alive`` and a schedule's ``grace`` have passed in that
        time, nothing is known of the others.
        """
        ...

    async def back_off(self, key: str, error: str) -> None:
        """Let one schedule that fails wait, longer each time, with nothing decided."""
        ...


# --- queue slots ---
# The part of the ledger that shares the slots of a queue among replicas.


class Slots(Protocol):
    """Never more slots of a lane are held than its queue's concurrency.

    Except while a queue that was made smaller still runs what had begun.
    """

    async def hold_slots(
        self,
        holder: str,
        asks: Sequence[SlotAsk],
        lease: timedelta,
        *,
        take_over: bool,
        number: int,
    ) -> dict[str, int]:
        """Renew, give back and take slots; return on how many of each lane steps may begin.

        Those on which steps go on though their queue has been made smaller are not counted.

        What the holder has of lanes it does not ask for is given back. A lane of a queue that
        nobody has declared, or that has no concurrency, has no slots.

        Args:
            holder: a replica; its name is nobody else's, ever.
            asks: one for each lane.
            lease: how long they are held from now.
            take_over: whether to take slots whose lease has ended, too. Who has not been in
                touch with the ledger for a whole lease lets their holders renew them first.
            number: grows with each call of this holder. A call that arrives late, after a later
                one, neither gives back nor renews what that one has kept.
        """
        ...

    async def give_back_slots(self, holder: str) -> None:
        """Hold nothing any more."""
        ...

    async def slots_held(self) -> list[SlotsHeld]:
        """Return who holds how many slots, by lane."""
        ...


# --- ledger ---
# The interface both ledgers keep, held to one conformance suite.
#
# ``transaction()`` yields a ``Transaction``: what is written in it is visible to others all at
# once when the block ends, or not at all when it raises. A fire moves by compare-and-set only.


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

    async def listen(self, wake: Callable[[], None]) -> None:
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

    async def record_evidence(self, evidence: Sequence[Evidence]) -> list[str]:
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
