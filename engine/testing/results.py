"""What became of runs and windows in a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from temporalio.client import WorkflowHistory

from engine.ledger.fire_records import Status


@dataclass(frozen=True)
class RunResult:
    """How one run ended.

    Attributes:
        workflow_id: the run's id, ``sched:<key>:<bucket>`` of a window.
        run_id: Temporal's own.
        status: ``completed``, ``failed``, ``cancelled``, ``terminated`` or ``timed_out``.
        history: for ``assert_replayable``, or to be looked at.
        result: what ``run`` returned.
        error: what its failing step, or it itself, raised, as Temporal carries it: an
            ``ApplicationError`` with ``.type`` and ``.message`` as a rule.
        steps: the names of the steps that it began, undo steps included, in their order.
    """

    workflow_id: str
    run_id: str
    status: Status
    history: WorkflowHistory = field(repr=False)
    result: Any = None
    error: BaseException | None = None
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class FireResult:
    """What became of one window.

    Attributes:
        key: of the schedule.
        bucket: the window's number.
        fire_time: when it opened, in UTC.
        status: the word that ``sched fires`` has for it.
        reason: why it was skipped, or what else there is to say.
        timing: how its run came to be; None where there is none.
        workflow_id: the id that its run has or would have.
        run: how it ended; None where there is none.
    """

    key: str
    bucket: int
    fire_time: datetime
    status: Status
    reason: str | None
    timing: str | None
    workflow_id: str
    run: RunResult | None = None

    @property
    def result(self) -> Any:
        """What the run returned."""
        return self.run.result if self.run else None

    @property
    def error(self) -> BaseException | None:
        """What the run failed with."""
        return self.run.error if self.run else None

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that the run began, in their order."""
        return self.run.steps if self.run else ()
