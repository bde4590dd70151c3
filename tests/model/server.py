"""The state of a Temporal server in memory: runs, what visibility shows of them, and what it keeps.

Ids are kept apart by the policies that a start names, as the real server does it: an id is taken
while a run of it is open, and beyond that for as long as the closed run is remembered and only if
the caller wants it so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

from temporalio.client import WorkflowExecutionStatus as Status
from temporalio.common import (
    TypedSearchAttributes,
    WorkflowIDConflictPolicy as Conflict,
    WorkflowIDReusePolicy as Reuse,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from engine.flow.fire import MEMO_KEY, FireInfo

SECOND = timedelta(seconds=1)


@dataclass
class Run:
    """One execution; ``shown_at`` and ``closed_shown_at`` are when visibility has it.

    ``first`` is the first run of its chain; None: it is that itself. ``open_until`` is when
    somebody was last told that it is open: it closes after that.
    """

    id: str
    run_id: str
    workflow_type: str
    start_time: datetime
    kept: dict[str, Any]
    shown_at: datetime
    lasts: timedelta
    ends_as: Status
    status: Status = Status.RUNNING
    close_time: datetime | None = None
    closed_shown_at: datetime | None = None
    first: Run | None = None
    open_until: datetime | None = None
    cancel_requested: bool = False
    history_length: int = 3
    typed_search_attributes: TypedSearchAttributes = TypedSearchAttributes.empty

    async def memo_value(self, key: str, default: Any) -> Any:
        return self.kept.get(key, default)

    @property
    def raw_description(self) -> Any:
        """What only a describe tells, as far as the engine asks."""
        return SimpleNamespace(
            workflow_execution_info=SimpleNamespace(first_run_id=(self.first or self).run_id),
            workflow_extended_info=SimpleNamespace(cancel_requested=self.cancel_requested),
        )

    @property
    def fire(self) -> FireInfo | None:
        """Whose chain it belongs to; None: somebody else's."""
        memo = (self.first or self).kept
        return FireInfo.from_memo(memo[MEMO_KEY]) if MEMO_KEY in memo else None


@dataclass
class Faults:
    """What is wrong with the server at present; parts of 1."""

    away: bool = False
    lost: float = 0.0
    late: float = 0.0
    busy: float = 0.0
    slow: float = 0.0


@dataclass
class Server:
    """What lies behind the client.

    ``started`` hears of every run when it begins to exist, ``sent`` of every start when it leaves.
    """

    clock: Callable[[], datetime]
    chance: Random
    retention: timedelta
    started: Callable[[Run], None]
    sent: Callable[[FireInfo], None]
    faults: Faults = field(default_factory=Faults)
    runs: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    ever: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    by_run_id: dict[str, Run] = field(default_factory=dict)
    durations: tuple[float, ...] = (0, 0.5, 3, 20, 90)
    refuses: frozenset[str] = frozenset()
    number: int = 0
    lives: int = 0
    """How often it was restored from a backup."""
    audited_at: datetime = field(init=False)
    """When somebody last asked which runs there are."""

    def newest(self, workflow_id: str) -> Run | None:
        """Return the run of this id as it is now, unless it was forgotten."""
        runs = self.runs.get(workflow_id)
        if not runs:
            return None
        run = runs[-1]
        if run.close_time is not None and run.close_time + self.retention <= self.clock():
            del self.runs[workflow_id]
            return None
        if run.close_time is None:
            run.open_until = self.clock()
        return run

    def one(self, workflow_id: str, run_id: str) -> Run | None:
        """Return one run of this id, unless it was forgotten: each run of a chain by itself."""
        for run in self.runs[workflow_id]:
            if run.run_id == run_id:
                forgotten = run.close_time and run.close_time + self.retention <= self.clock()
                return None if forgotten else run
        return None

    def start(self, workflow_id: str, workflow_type: str, given: dict[str, Any]) -> Run:
        """Begin a run, unless the id is taken by the policies that were given."""
        reuse = given.get("id_reuse_policy", Reuse.ALLOW_DUPLICATE)
        conflict = given.get("id_conflict_policy", Conflict.UNSPECIFIED)
        known = self.newest(workflow_id)
        if known is not None and known.close_time is None:
            if conflict is Conflict.USE_EXISTING:
                return known
            if Conflict.TERMINATE_EXISTING is not conflict:
                raise WorkflowAlreadyStartedError(workflow_id, workflow_type, run_id=known.run_id)
            self.close(known, Status.TERMINATED)
        elif known is not None and not _may_repeat(known, reuse):
            raise WorkflowAlreadyStartedError(workflow_id, workflow_type, run_id=known.run_id)
        run = self._begin(workflow_id, workflow_type, given["memo"])
        run.typed_search_attributes = given.get("search_attributes", TypedSearchAttributes.empty)
        self.ever[workflow_id].append(run)
        self.started(run)
        return run

    def _begin(self, workflow_id: str, workflow_type: str, memo: dict[str, Any]) -> Run:
        self.number += 1
        now = self.clock()
        ends = [Status.COMPLETED] * 5 + [Status.FAILED, Status.TIMED_OUT, Status.CONTINUED_AS_NEW]
        run = Run(
            workflow_id, f"run-{self.number}", workflow_type, now, memo, now + self._lag(),
            timedelta(seconds=self.chance.choice(self.durations)), self.chance.choice(ends),
        )  # fmt: skip
        self.runs[workflow_id].append(run)
        self.by_run_id[run.run_id] = run
        return run

    def go_on(self) -> None:
        """Close the runs whose time has come; a continued one goes on under the same id."""
        now = self.clock()
        for run in self.open():
            if run.start_time + run.lasts <= now:
                ends = max(run.start_time, run.start_time + run.lasts)
                self.close(run, run.ends_as, max(ends, run.open_until or ends))
                if run.ends_as is Status.CONTINUED_AS_NEW:
                    self._go_on(run, {} if self.chance.random() < 0.5 else run.kept)
                elif run.ends_as is Status.FAILED and self.chance.random() < 0.3:
                    self._go_on(run, run.kept)  # it is retried

    def _go_on(self, run: Run, memo: dict[str, Any]) -> None:
        """Begin the next run of a chain; nobody has asked that one to end."""
        following = self._begin(run.id, run.workflow_type, memo)
        following.first = run.first or run
        following.typed_search_attributes = run.typed_search_attributes

    def close(self, run: Run, status: Status, at: datetime | None = None) -> None:
        run.status, run.close_time = status, at or self.clock()
        run.closed_shown_at = self.clock() + self._lag()

    def stop(self, run: Run, status: Status, after: timedelta) -> None:
        """Let a run end so, a while from now."""
        run.lasts = min(run.lasts, self.clock() - run.start_time + after)
        run.ends_as = status

    def open(self) -> list[Run]:
        return [runs[-1] for runs in self.runs.values() if runs and runs[-1].close_time is None]

    def restored_empty(self) -> None:
        self.runs.clear()
        self.lives += 1

    def _lag(self) -> timedelta:
        return self.chance.choice([0, 0, 1, 5, 30, 60]) * SECOND


def _may_repeat(closed: Run, reuse: Reuse) -> bool:
    """Whether an id may be used again whose run has closed and is remembered."""
    if reuse is Reuse.ALLOW_DUPLICATE_FAILED_ONLY:
        return closed.status is not Status.COMPLETED
    return reuse is not Reuse.REJECT_DUPLICATE
