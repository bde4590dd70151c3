"""The statements of one transaction, which both ledgers have: in parts, by who needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from engine.ledger.backfill_records import Backfill, InLine, ToLay
from engine.ledger.declaration_records import DriftRow, NewDefinition, ProjectRow
from engine.ledger.fire_records import Claim, Evidence, Fire, Status, Timing
from engine.ledger.follow_ups import Ended, FollowUp
from engine.ledger.letters import DeadLetter
from engine.ledger.operating_records import Action, NewRequest, SkippedAhead
from engine.ledger.queue_rows import QueueRow
from engine.ledger.replica_records import Serving
from engine.ledger.schedule_records import Pause, ScheduleState, Step
from engine.schedules.decisions import Move, Stop
from engine.schedules.diff import Head
from engine.schedules.model import Schedule
from engine.schedules.queues import Queue
from engine.schedules.ranges import Piece
from engine.schedules.reason_codes import ReasonCode
from engine.schedules.schedule_file import ScheduleFile
from engine.schedules.windows import Window


class Declaring(Protocol):
    """What an apply, and whoever else declares schedules, needs."""

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
    """What operators and applications need."""

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

    async def carve(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
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
    """What those need who ask for backfills, and the tick that lays them."""

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
