"""Service layer: the operations of operators and applications, and what their answers are made of.

The command line operates on schedules and runs through this package only.
"""

from __future__ import annotations

from engine.audit.explain import Explanation
from engine.audit.judge import AuditFault, KeyAudit
from engine.ledger import (
    INCLUDED,
    ActionRow,
    AlertRow,
    Backfill,
    BackfillOverlap,
    Condition,
    DataGap,
    DeadLetter,
    Delivery,
    DriftRow,
    FailingStep,
    FailureLink,
    Fire,
    Included,
    NextFire,
    RunDetails,
    RunSummary,
    ScheduleRow,
    Served,
    State,
    Status,
    Subscription,
    Try,
)
from engine.runtime.apply.apply import PRUNE_AFTER, Change, DryRun
from engine.runtime.apply.edits import ApplyReport
from engine.runtime.past_windows import Considered
from engine.schedules import ReasonCode
from engine.service.audit import AuditReport
from engine.service.backfill import BackfillRequested
from engine.service.base import not_found
from engine.service.one_shots import ApplicationSchedule, as_text
from engine.service.operate import Cancelled, Requested, Resumed, Retired, Skipped, Started
from engine.service.pages import SchedulePage
from engine.service.service import ScheduleService
from engine.service.status import ServerState, StatusReport, WorkerRow

__all__ = [
    "INCLUDED",
    "PRUNE_AFTER",
    "ActionRow",
    "AlertRow",
    "ApplicationSchedule",
    "ApplyReport",
    "AuditFault",
    "AuditReport",
    "Backfill",
    "BackfillOverlap",
    "BackfillRequested",
    "Cancelled",
    "Change",
    "Condition",
    "Considered",
    "DataGap",
    "DeadLetter",
    "Delivery",
    "DriftRow",
    "DryRun",
    "Explanation",
    "FailingStep",
    "FailureLink",
    "Fire",
    "Included",
    "KeyAudit",
    "NextFire",
    "ReasonCode",
    "Requested",
    "Resumed",
    "Retired",
    "RunDetails",
    "RunSummary",
    "SchedulePage",
    "ScheduleRow",
    "ScheduleService",
    "Served",
    "ServerState",
    "Skipped",
    "Started",
    "State",
    "Status",
    "StatusReport",
    "Subscription",
    "Try",
    "WorkerRow",
    "as_text",
    "not_found",
]
