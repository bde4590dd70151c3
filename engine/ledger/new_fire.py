"""A decision on its way into a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from engine.ledger.fire_records import Claim, Status, Timing
from engine.ledger.schedule_records import ScheduleState, Step
from engine.schedules.awaiting import Awaits
from engine.schedules.decisions import Decision, Overlap
from engine.schedules.model import Schedule
from engine.schedules.windows import Window


@dataclass(frozen=True, slots=True)
class NewFire:
    """One row to write. With a token it is written ``starting`` and is its owner's to send.

    One that waits (``not_before``) is only ``claimed``: a sweeper begins to send it in time.
    """

    project: str
    key: str
    series: int
    bucket: int
    fire_time: datetime
    windows: int
    last_fire_time: datetime
    definition_version: int
    workflow_id: str
    workflow_type: str | None
    task_queue: str
    status: Status
    reason: str | None
    timing: Timing | None
    missed: int
    missed_from: datetime | None
    not_before: datetime | None
    token: UUID | None
    schedule: Schedule
    awaits: Awaits | None = None
    overlap: Overlap | None = None

    @classmethod
    def of(cls, step: Step, decision: Decision, owner: str | None) -> NewFire:
        """Return the row of one decision; without an owner a start is only ``claimed``."""
        state, window = step.state, decision.window
        at_once = decision.verdict == "claimed" and decision.not_before is None
        token = uuid4() if owner and at_once else None
        return cls(
            project=state.project,
            key=window.key,
            series=window.series,
            bucket=window.bucket,
            fire_time=window.fire_time,
            windows=decision.windows,
            last_fire_time=decision.last or window.fire_time,
            definition_version=state.definition_version,
            workflow_id=window.workflow_id(state.suffixed),
            workflow_type=state.workflow_type,
            task_queue=state.schedule.task_queue,
            status="starting" if token else decision.verdict,
            reason=decision.reason,
            timing=decision.timing,
            missed=decision.missed,
            missed_from=decision.missed_from,
            not_before=decision.not_before,
            token=token,
            schedule=state.schedule,
            awaits=decision.awaits,
            overlap=decision.overlap,
        )

    @classmethod
    def asked_for(
        cls, state: ScheduleState, window: Window, workflow_id: str, status: Status, timing: Timing
    ) -> NewFire:
        """Return the row of a run that somebody asks for."""
        return cls(
            project=state.project,
            key=window.key,
            series=window.series,
            bucket=window.bucket,
            fire_time=window.fire_time,
            windows=1,
            last_fire_time=window.fire_time,
            definition_version=state.definition_version,
            workflow_id=workflow_id,
            workflow_type=state.workflow_type,
            task_queue=state.schedule.task_queue,
            status=status,
            reason=None,
            timing=timing,
            missed=0,
            missed_from=None,
            not_before=None,
            token=None,
            schedule=state.schedule,
        )

    @classmethod
    def backfilled(
        cls, state: ScheduleState, window: Window, workflow_id: str, *, sent: bool
    ) -> NewFire:
        """Return the row of a window that starts after all; ``sent``: at once, by its owner."""
        status: Status = "starting" if sent else "queued"
        new = cls.asked_for(state, window, workflow_id, status, "backfill")
        return replace(new, token=uuid4()) if sent else new

    def claim(
        self,
        fire_id: int,
        starting_at: datetime,
        *,
        data_from: datetime | None,
        rules: Mapping[str, Any] | None = None,
    ) -> Claim:
        """Return the order to start this fire's run, once the row is written."""
        if self.token is None or self.workflow_type is None or self.timing is None:
            raise AssertionError("only a start that found its type becomes a claim")
        return Claim(
            fire_id=fire_id,
            key=self.key,
            project=self.project,
            series=self.series,
            bucket=self.bucket,
            fire_time=self.fire_time,
            schedule=self.schedule,
            definition_version=self.definition_version,
            workflow_id=self.workflow_id,
            workflow_type=self.workflow_type,
            task_queue=self.task_queue,
            timing=self.timing,
            missed=self.missed,
            missed_from=self.missed_from,
            reason=self.reason,
            token=self.token,
            attempts=1,
            starting_at=starting_at,
            rules=rules,
            data_from=data_from,
        )
