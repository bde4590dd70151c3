"""Ledger interface: protocols that both ledgers implement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol

from engine.ledger.access import AccessBook
from engine.ledger.alerts import AlertBook, CountsFailures, Facts
from engine.ledger.failures import FailingNote, RetryNote, RunCounts, RunDetails, Uncounted
from engine.ledger.fires import (
    AccountRow,
    BlockingRun,
    Claim,
    DataGap,
    DeadLetter,
    Ended,
    Evidence,
    Fire,
    FollowUp,
    OpenRun,
    Outcome,
    Status,
    StopOrder,
    Timing,
)
from engine.ledger.outbox import DeclaresHooks, EventBook
from engine.ledger.records import (
    Action,
    ActionRow,
    Backfill,
    BackfillOverlap,
    DefinitionVersion,
    DriftRow,
    Lineage,
    Load,
    NewDefinition,
    NewFire,
    PolledQueue,
    Probe,
    ProjectRow,
    QueueRow,
    Served,
    Serving,
    SkippedAhead,
    SlotAsk,
    Standing,
    Start,
    ToLay,
    Totals,
    Wanted,
)
from engine.ledger.schedule_rows import NextFire, RunSummary, ScheduleFilter, ScheduleRow
from engine.schedules import Queue, Reason, ReasonCode, Schedule, ScheduleFile, Stop, Window
from engine.schedules.diff import Head
from engine.schedules.planner import Move, Pause, Piece, Plan, ScheduleState

# --- transactions ---
# The statements of one transaction, in parts by caller.


class Declaring(Protocol):
    """Statements for declaring schedules."""

    async def lock_edited(self, project: str, keys: Sequence[str]) -> None:
        """Lock these schedules and the project's absent ones, waiting for those that are locked."""

    async def lock_project(self, project: str) -> ProjectRow | None:
        """Lock the project against another apply and return the file that was applied last."""

    async def heads(self, project: str, keys: Sequence[str]) -> dict[str, Head]:
        """Return the heads of these keys and of every key of the project."""

    async def resolve(
        self, wanted: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], str | None]:
        """Return the announced type for each (task queue, workflow)."""

    async def announced(self, task_queues: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return all types ever announced, by task queue; one without types may be missing."""

    async def seal(self, project: str) -> str | None:
        """Return the encoded key of the digests of a project's inputs; None if these are plain."""

    async def seal_project(self, project: str, digest_key: str, *, by: str) -> str:
        """Seal the inputs of a project from now on; return the first key given."""

    async def define(self, definitions: Sequence[NewDefinition], *, by: str) -> None:
        """Write new definitions and make them the heads of their schedules."""

    async def create(self, new: NewDefinition, action: Action, *, by: str) -> None:
        """Write the first definition of a key, and its action.

        Only the key and the request ID are locked: a concurrent creation of one of them waits.

        Raises:
            KeyInUse, RequestInUse: another schedule has, or had, one of them.
        """

    async def drift(self, project: str) -> list[DriftRow]:
        """Return the project's schedules that are paused, skip windows, or are in no file."""

    async def asked_under(self, request_id: str) -> str | None:
        """Return the key of the schedule that an application declared under this request ID."""

    async def raise_epoch(self) -> None:
        """Raise the epoch, so that replicas resolve the workflows of schedules again."""

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        """Retire schedules and revoke what is ``claimed`` or ``queued``. Rows are kept forever."""

    async def move_to_project(self, keys: Sequence[str], old: str, new: str) -> None:
        """Move these locked schedules, with everything that has not ended, to another project."""

    async def mark_absent(
        self, project: str, absent: Sequence[str], at: datetime
    ) -> dict[str, datetime]:
        """Mark the keys that the file lacks and return since when; clear all other marks."""

    async def save_project(
        self, file: ScheduleFile, *, by: str, refused: Collection[str] = (), forgotten: bool = False
    ) -> None:
        """Record the file as applied, but for ``refused`` keys, or forget it; raise the epoch."""

    async def queues(self) -> dict[str, QueueRow]:
        """Return every queue of the namespace by name, including dropped ones."""

    async def declare_queues(self, project: str, queues: Mapping[str, Queue], *, by: str) -> None:
        """Make these the project's queues; drop its others, whose limits stay in force."""


class Operating(Protocol):
    """Statements for operators and applications."""

    async def pause(self, key: str, pause: Pause) -> None:
        """Pause a schedule, and revoke the ``claimed`` fires of its windows."""

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        """Resume a schedule; it is planned next at ``next_fire_at``."""

    async def move(self, state: ScheduleState, moves: Sequence[Move]) -> None:
        """Apply the decisions of overlap on open fires of one schedule."""

    async def stop(self, fire_ids: Sequence[int], stop: Stop, *, reason: str) -> None:
        """Request that these runs be cancelled or terminated."""

    async def request(self, new: NewFire) -> bool:
        """Write a requested run; return False if its ID exists already."""

    async def declare_starts(self, workflow: str, *, by: str) -> None:
        """Write the row to which the fires of a workflow's starts belong, unless it is there."""

    async def started(self, workflow: str, start_id: str) -> Start | None:
        """Return the start of a workflow under this ID; None if there never was one."""

    async def start(self, new: Start, fire: NewFire) -> bool:
        """Write a start and its fire; return False if its ID was used before.

        ``declare_starts`` comes first, in a transaction of its own: starts share no lock.
        """

    async def notify(self) -> None:
        """Wake the replicas when this transaction commits. Commits that notify share a lock."""

    async def make_due(self, keys: Sequence[str]) -> None:
        """See ``Ledger.make_due``."""

    async def unskip(self, key: str, series: int, fire_time: datetime) -> bool:
        """Remove an operator's skip of a window to come; return False if there is none."""

    async def lift_skips(self, keys: Sequence[str]) -> list[SkippedAhead]:
        """Remove operators' skips of windows to come, and return them."""

    async def give_up(self, workflow_ids: Sequence[str], reason: Reason) -> frozenset[str]:
        """Skip those of these fires whose send has not begun, and return their IDs."""

    async def note_ahead(self, step: Plan) -> None:
        """Write decisions on windows to come; cursor and next fire time stay."""

    async def fire(self, workflow_id: str) -> Fire | None:
        """Return the fire of one run id."""

    async def window(self, key: str, bucket: int, series: int | None) -> Fire | None:
        """Return the row that begins with this window, by default of the newest series."""

    async def count_reruns(self, window: Window, workflow_id: str) -> int:
        """Return the highest rerun number of the window; its own run has ``workflow_id``."""

    async def between(self, key: str, first: datetime, last: datetime) -> list[Fire]:
        """Return the rows of windows in ``first <= t <= last`` of every series, by fire time."""

    async def definition(self, key: str, version: int) -> Schedule:
        """Return one version of a schedule's definition."""

    async def forgotten_until(self, key: str) -> datetime | None:
        """Return up to where rows may have left the ledger; read the rows before calling this.

        Only the archive knows what a window without a row was.
        """

    async def split_range(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        """Split a row of many windows into these pieces."""

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        """Return the row of this window, alone or in a range."""

    async def found(
        self,
        seen: Evidence,
        window: Window,
        version: int,
        timing: Timing,
        data_from: datetime | None,
    ) -> None:
        """Write the row of a run that the ledger had lost, from its evidence and its memo.

        ``timing`` is how it started; ``data_from`` is where its data begin, None for a first run.
        """

    async def dead_letters(
        self,
        key: str | None = None,
        *,
        workflow_id: str | None = None,
        bucket: int | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Return the dead letters that match every given filter, newest fire time first.

        ``after`` is the fire time and the run id of the last one of the page before.
        """

    async def resolve_dead_letters(self, workflow_ids: Collection[str]) -> set[str]:
        """Mark these dead letters as dealt with; return the IDs of those that were dead letters."""

    async def ended(self, limit: int, *, sealed: bool) -> list[Ended]:
        """Lock and return fires that ended badly and whose follow-up runs are not decided yet.

        Unless ``sealed``, those with a handler and a sealed input are left out.
        """

    async def follow(self, looked_at: Collection[int], news: Sequence[FollowUp]) -> set[str]:
        """Write follow-up runs of these fires, each once; return the IDs of the new ones."""

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        """Record actions."""


class Backfilling(Protocol):
    """Statements to request backfills and to lay their windows."""

    async def lock_laying(self, serving: Serving) -> str | None:
        """Lock the schedule whose backfill has its turn, unless it is locked; return its key."""

    async def backfills(
        self, key: str, *, laying: bool = False, limit: int = 100
    ) -> list[Backfill]:
        """Return a key's backfills, newest first; ``laying``: only unfinished ones, by turn."""

    async def request_backfill(self, new: Backfill) -> int:
        """Write a requested backfill and return its number."""

    async def move_backfill(self, to: Backfill) -> None:
        """Write the progress and state of a backfill."""

    async def backfill_looked_at(self, key: str, at: datetime) -> None:
        """Record that the key's runs were looked up for signs of lost commits up to ``at``."""

    async def put_off_backfills(self, key: str, wait: timedelta, error: str | None = None) -> None:
        """Delay the backfills of a key, because of an error or to look up its runs first."""

    async def count_waiting(self, key: str, most: int) -> int:
        """Return how many fires of a key wait for a place, at most ``most``."""

    async def count_windows(
        self, key: str, spans: Sequence[tuple[datetime, datetime]]
    ) -> list[Counter[tuple[Status, ReasonCode | None]]]:
        """Count single-window rows in each ``after < t <= until`` by status and reason code."""

    async def ranges_between(self, key: str, after: datetime, until: datetime) -> list[Fire]:
        """Return the rows of ranges that reach into ``after < t <= until``."""

    async def lay(
        self,
        state: ScheduleState,
        windows: Sequence[ToLay],
        *,
        overlap: BackfillOverlap,
        owner: str,
        lease: timedelta,
    ) -> tuple[list[Claim], set[str]]:
        """Start windows that had no run; return the claims, and the IDs that were written.

        With ``allow`` the owner sends them, with ``queue`` they wait in line. Left out are windows
        that have a new row, one that is not ``SURELY_NOT_RUN``, or an ID that another row has.
        """


class Transaction(Declaring, Operating, Backfilling, DeclaresHooks, CountsFailures, Protocol):
    """All statements of a transaction: those of a tick, and the other parts."""

    async def now(self) -> datetime:
        """Return the ledger's clock, read now and not at the start of the transaction."""

    async def lock_due(
        self,
        serving: Serving,
        limit: int,
        *,
        but: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[str]:
        """Lock due schedules, skipping locked ones; return their keys, earliest first.

        ``but`` are left out, and with ``only`` all others are.
        """

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        """Lock our lanes' schedules that older time rules computed, by key from ``after`` on."""

    async def lock(self, keys: Sequence[str]) -> None:
        """Lock these schedules, waiting for those that are locked."""

    async def lock_unsent(self, fire_ids: Collection[int]) -> set[int]:
        """Lock those of these fires whose send has not begun, and return their IDs."""

    async def read(
        self,
        keys: Sequence[str],
        *,
        all_open: bool = False,
        at_once: bool = False,
        on_unread: Callable[[str, Exception], None] | None = None,
    ) -> list[ScheduleState]:
        """Return the schedules' state; call it after the lock, so that it is fresh.

        ``all_open`` reads the open fires even if the schedule's runs may overlap. ``at_once``
        leaves out schedules whose large definition would have to be parsed first, which takes too
        long here; ``Ledger.prepare`` parses it. A definition that this version cannot read is left
        out, and its schedule backs off; ``on_unread`` receives its key and the error.
        """

    async def record(
        self,
        steps: Sequence[Plan],
        *,
        owner: str | None = None,
        lease: timedelta = timedelta(0),
        strict: bool = False,
    ) -> list[Claim]:
        """Write decisions and move cursors; return the claims that the owner has to send.

        Without an ``owner`` the claims are written as ``claimed`` and left to the sweepers. A step
        that fails backs off alone: its schedule is due again later, with the error. ``strict``
        raises instead, for callers that must not continue without it.
        """

    async def unservable(
        self, serving: Serving, *, alive: timedelta, steady: timedelta, limit: int
    ) -> list[str]:
        """Return keys of this lane, due beyond ``grace``, that no living replica can serve.

        A living replica announced itself within ``alive``. ``steady`` is how long the caller has
        announced itself without a gap: until it reaches ``alive`` plus a schedule's ``grace``,
        nothing is known of the other replicas.
        """

    async def back_off(self, key: str, error: str) -> None:
        """Delay a schedule that fails, longer each time, with nothing decided."""


# --- queue slots ---


class Slots(Protocol):
    """Slots of step queues, shared among replicas.

    No more slots of a lane are held than its queue's concurrency, except while steps that began
    before the queue was made smaller still run.
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
        """Renew, give back and take slots; return the number of usable slots by lane.

        Slots beyond a reduced concurrency on which steps still run are not counted. Slots of lanes
        that the holder does not ask for are given back. A lane has no slots if its queue is not
        declared or has no concurrency.

        Args:
            holder: name of a replica, never used by another one.
            asks: one for each lane.
            lease: how long they are held from now.
            take_over: whether to also take slots whose lease has ended. A holder that was out of
                touch with the ledger for a whole lease lets the other holders renew theirs first.
            number: grows with each call of this holder. A call that arrives after a later one
                neither gives back nor renews what the later one has kept.
        """

    async def give_back_slots(self, holder: str) -> None:
        """Give back all slots of a holder."""


# --- accounts ---


class AccountBook(Protocol):
    """Reads of a ledger for the audit; none of them locks or writes."""

    async def standings(self, keys: Sequence[str]) -> list[Standing]:
        """Return the present state of these schedules, in key order; unknown keys are left out."""

    async def definition_versions(self, key: str, *, limit: int) -> list[DefinitionVersion]:
        """Return the newest versions of a schedule's definition, newest first."""

    async def account_rows(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        after: tuple[datetime, int] | None = None,
        limit: int,
    ) -> list[AccountRow]:
        """Return rows of windows of every series in ``first <= t <= last``, by fire time.

        Rows of one fire time are in the order of their series. Ranges that reach into the stretch
        belong to it.

        Args:
            key: the schedule's key.
            first: the start of the stretch.
            last: its end.
            after: fire time and series of the row before the first one to return; None begins.
            limit: most rows to return.
        """


# --- ledger ---
# The interface of both ledgers, tested by one conformance suite.
#
# What a ``transaction()`` writes becomes visible to others all at once when the block ends, or not
# at all if it raises. A fire moves by compare-and-set only.


class Ledger(Slots, AccountBook, Protocol):
    """The record of every window of one Temporal namespace."""

    @property
    def remembers(self) -> bool:
        """Whether it knows what earlier processes did."""

    @property
    def alerts(self) -> AlertBook:
        """The alerts of the namespace."""

    @property
    def access(self) -> AccessBook:
        """The tokens of the API, and the requests that may be repeated."""

    @property
    def events(self) -> EventBook:
        """The events of the namespace, and who subscribes to them."""

    async def build_indexes(self, *, patience: float | None = None) -> list[str]:
        """Build the indexes that migrations left for later; return the names of missing ones.

        Args:
            patience: seconds to wait for other sessions without a break; None waits without limit.

        Raises:
            LedgerError: the role lacks the privilege.
        """

    async def identity(self) -> str:
        """Return the ledger's ID, which goes into the memo of every run."""

    async def close(self) -> None:
        """Release all resources; in-flight transactions must have ended before."""

    def transaction(self, *, long: bool = False) -> AbstractAsyncContextManager[Transaction]:
        """Begin a transaction; ``long`` lifts the tick's time limits for an apply."""

    async def probe(self, serving: Serving, *, ahead: timedelta = ...) -> Probe:
        """Probe the ledger in a single statement.

        Leases and stops later than ``ahead`` from now may be left out: no caller waits for them.
        """

    async def prepare(self) -> bool:
        """Parse the definitions that reads have left out; return whether there were any."""

    async def lineage(self) -> tuple[Lineage, Lineage]:
        """Return the lineage of the server that answers now, and the lineage noted last."""

    async def note_lineage(self, lineage: Lineage, *, suspect: bool) -> datetime | None:
        """Record the lineage of the server; with ``suspect`` also a sign of lost commits.

        Windows up to the last such sign may have runs that the ledger has lost. Return its time,
        whichever replica saw it.
        """

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` soon after each commit that contains a request.

        Ticks send no notification. Runs until it is cancelled, or returns when the connection is
        lost. Calls may be missing: they are hints.

        Raises:
            LedgerError: the ledger cannot be listened to.
        """

    async def take_over(self, serving: Serving, *, limit: int, lease: timedelta) -> list[Claim]:
        """Take fires whose lease has ended; skip ``claimed`` ones of paused or retired keys."""

    async def renew(self, claims: Sequence[Claim], lease: timedelta) -> set[int]:
        """Give claims a whole lease from now; return the IDs of those that are still their owner's.

        A claim that was taken over or settled, or whose lease has ended, is not renewed. If the
        commit of a claim was not confirmed, its ID is returned exactly when it happened.
        """

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        """Write the outcomes whose token still holds; return their number."""

    async def record_evidence(self, evidence: Sequence[Evidence]) -> list[str]:
        """Write evidence of runs; return the workflow IDs of the fires that it changed."""

    async def seen_open(
        self, workflow_ids: Sequence[str], at: datetime
    ) -> Mapping[str, str | None]:
        """Record that these runs were open at ``at``.

        Return the workflow IDs of those that are open by the ledger, each with what was noted last
        of its failing steps; see ``FailingNote``.
        """

    async def note_failing(self, notes: Sequence[FailingNote]) -> set[str]:
        """Note which steps of open runs keep failing; return the IDs of the runs it wrote.

        A run of which something else was noted meanwhile, or that has ended, is left as it is.
        """

    async def uncounted(self, limit: int) -> list[Uncounted]:
        """Return closed runs whose tries or step retries are to be read, newest fires first."""

    async def note_counts(self, counts: Sequence[RunCounts]) -> None:
        """Note what was read of closed runs. It counts for the run that was read alone."""

    async def note_retries(self, notes: Sequence[RetryNote]) -> None:
        """Add retries of steps that workers have seen, of open runs and those closed just now."""

    async def run_details(self, workflow_id: str) -> RunDetails:
        """Return why a run failed and its tries, as the ledger keeps them."""

    async def lose(self, workflow_ids: Sequence[str], error: str) -> list[str]:
        """Mark started runs that Temporal does not know as lost; return those not marked before."""

    async def unknown_runs(self, workflow_ids: Sequence[str]) -> set[str]:
        """Return those of these run IDs that no fire of a single window has."""

    async def anything_ended(self) -> bool:
        """Return whether a fire ended badly whose follow-up runs are not decided yet."""

    async def wake(self) -> list[str]:
        """Make due the keys whose queue waits for nothing any more, and return them.

        Fewer runs of such a key are open than may be, and no window of another schedule may still
        become what a queued fire waits for.
        """

    async def make_due(self, keys: Sequence[str]) -> None:
        """Make these schedules due now, because what their plans waited for is known.

        A schedule that is held has nothing to plan and stays as it is.
        """

    async def children(self, key: str) -> list[str]:
        """Return the schedules that wait for this one's windows, in key order."""

    async def take_stops(
        self, serving: Serving, *, limit: int, lease: timedelta
    ) -> list[StopOrder]:
        """Take runs to cancel or terminate now; no other replica takes them for a lease."""

    async def stopped(self, orders: Sequence[StopOrder]) -> None:
        """Record that these runs were asked to end, and the first runs of their chains.

        The grace of a cancelled run counts from the first request. They become orders again soon,
        until they are seen to end.
        """

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        """Return recorded actions, newest first."""

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        """Return started fires not seen closed, longest unseen first."""

    async def in_the_way(
        self, replica: str, *, alive: timedelta, orphans: bool, limit: int
    ) -> list[BlockingRun]:
        """Return runs that queued windows of their key wait for, the oldest line first.

        These are runs that this replica started; with ``orphans`` also those whose replica has not
        announced itself within ``alive``.
        """

    async def first_run(self, workflow_id: str) -> str | None:
        """Return the first run of this fire's chain, if known."""

    async def announce(
        self,
        serving: Serving,
        *,
        engine: str,
        tzdata: str,
        retention: timedelta | None,
        heartbeat: timedelta = timedelta(seconds=10),
    ) -> None:
        """Announce this replica and what it serves; resolve workflows that waited for a type.

        Others expect the next announcement after ``heartbeat``: the replica counts as alive for
        three of them, where their own ``alive`` is shorter.
        """

    async def newer_rules(self, project: str) -> tuple[int, str]:
        """Return how many schedules newer rules computed, and the newest rules; it scans all."""

    async def other_rules(self, project: str, *, alive: timedelta) -> list[str]:
        """Return the other zone rules of replicas that announced themselves within ``alive``."""

    async def served(self, *, alive: timedelta) -> Served:
        """Return the projects, task queues and types that replicas announced within ``alive``."""

    async def external_queues(self) -> list[str]:
        """Return the task queues on which external schedules start workflows, in order."""

    async def note_polls(
        self, seen: Mapping[str, tuple[datetime | None, int]], *, of: Sequence[str]
    ) -> list[PolledQueue]:
        """Record when task queues were last polled and how many runs wait there; return them.

        Queues that are not ``of`` those of external schedules are removed.
        """

    async def polled_queues(self, *, within: timedelta) -> list[PolledQueue]:
        """Return the task queues of external schedules that were looked at ``within`` this time."""

    async def totals(self, serving: Serving, *, most: int) -> Totals:
        """Return how much of each kind there is in the namespace, at most ``most`` of each.

        Overdue are counted for the project and the lanes of ``serving``.
        """

    async def load(self, *, most: int) -> Load:
        """Return what replicas hold, and since when a window is due.

        ``most`` claims are counted, and of each task queue as many due schedules are read.
        """

    async def facts(self, *, limit: int = ...) -> Facts:
        """Return what a look for problems judges; of each kind ``limit`` at most."""

    async def replicas(self, *, alive: timedelta) -> int:
        """Return how many replicas of the namespace announced themselves within ``alive``."""

    async def withdraw(self, serving: Serving) -> None:
        """Remove this replica's announcement."""

    async def hold_duty(self, duty: str, holder: str, lease: timedelta) -> datetime | None:
        """Take or keep a duty; return its watermark (at first the epoch), or None if not ours."""

    async def release_duty(self, duty: str, holder: str) -> None:
        """Release the duty, unless it has another holder by now."""

    async def set_watermark(self, duty: str, holder: str, watermark: datetime) -> None:
        """Record how far the duty's work has come."""

    async def schedules(
        self,
        project: str | None = None,
        *,
        key: str | None = None,
        wanted: ScheduleFilter | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRow]:
        """Return schedules in key order for display, including retired ones.

        With ``wanted`` only those that match it, without the rows of starts; ``after`` is a key.
        The order of keys is that of the database, and always the same.
        """

    async def create_within(
        self, connection: object, new: NewDefinition, action: Action, *, by: str
    ) -> None:
        """Do ``Transaction.create`` in the open transaction of an application's connection.

        Nothing else is locked, and the transaction continues after a refusal. The connection's
        settings and codecs take no part in it and stay as they are.

        Args:
            connection: an asyncpg connection to the ledger's database.
            new: the definition.
            action: its row for the audit log.
            by: the actor.

        Raises:
            KeyInUse, RequestInUse: another schedule has, or had, one of them.
            LedgerError: there is no open transaction, or it does not reach this ledger.
            LedgerRequired: the ledger is not in PostgreSQL.
        """

    async def count_schedules(self, project: str) -> int:
        """Return how many schedules of the project are not retired."""

    async def wanted(self, project: str) -> list[Wanted]:
        """Return what the project's schedules that may fire need of its workers."""

    async def upcoming(self, project: str, limit: int) -> list[NextFire]:
        """Return the next start of each of the project's schedules, earliest first.

        Excluded and skipped windows are passed over. If more than 5,000 schedules have such windows
        before the first start of another schedule, that start may be missing.
        """

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        """Return how many windows of the key found its queue full, and when the last opened.

        Only the newest 5,000 skipped rows of the key are read.
        """

    async def run_summaries(self, keys: Sequence[str]) -> list[RunSummary]:
        """Return what became of the last runs of each of these keys, in the order of the keys."""

    async def count_fires(
        self, first: datetime, last: datetime, *, keys: Collection[str] = (), most: int
    ) -> Counter[Status]:
        """Count windows in ``first <= t < last`` of keys like these by status, of ``most`` rows."""

    async def fires(
        self,
        *,
        key: str | None = None,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        limit: int = 50,
    ) -> list[Fire]:
        """Return fires, newest fire time first."""

    async def fires_page(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        after: str = "",
        limit: int,
    ) -> list[Fire]:
        """Return fires of a key in ``first <= fire_time <= last``, newest fire time first.

        Those of one fire time are in the order of their run ids; of ``last`` only the ones behind
        ``after`` are returned, so that a page continues where another one ended.
        """

    async def failing(self, *, key: str | None = None, limit: int = 50) -> list[Fire]:
        """Return fires of open runs with a step that keeps failing, newest fire time first."""

    async def fire(self, workflow_id: str) -> Fire | None:
        """Return the fire of one run id."""

    async def check_data_gaps(self, *, rest: timedelta, limit: int) -> list[DataGap]:
        """Find the data that denied windows left without a run; return the new gaps.

        Args:
            rest: what was denied more recently is left for the next time, because a run that counts
                on it may be about to begin.
            limit: number of windows to check, besides those denied in a row with one of them.
        """

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        """Return the data gaps of a key, newest first."""

    async def backfills(self, key: str, *, limit: int = 20) -> list[Backfill]:
        """Return the backfills of a key, newest first."""

    async def laying(self) -> list[Backfill]:
        """Return every backfill that is still to be laid, by key."""
