"""Service layer: the operations of operators and applications, and what their answers are made of.

The command line operates on schedules and runs through this package only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.audit.explain import Explanation
from engine.audit.judge import AuditFault, KeyAudit
from engine.ledger import (
    INCLUDED,
    OPEN,
    SCOPES,
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
    JobStatus,
    NextFire,
    RepeatedRequest,
    RequestKey,
    RunDetails,
    RunSummary,
    ScheduleKind,
    ScheduleRow,
    Scope,
    Served,
    Start,
    State,
    Status,
    Subscription,
    Timing,
    TokenRow,
    Try,
)
from engine.runtime.apply.apply import PRUNE_AFTER, Change, DryRun
from engine.runtime.apply.edits import ApplyReport
from engine.runtime.apply.source import DEFAULT_PROJECT
from engine.runtime.past_windows import Considered
from engine.schedules import ReasonCode
from engine.schedules.planner import Origin, Pause
from engine.service.audit import AuditReport
from engine.service.backfill import BackfillRequested
from engine.service.base import FIRST_MOMENT, LAST_MOMENT, Filters, NamedWindow, not_found
from engine.service.one_shots import ApplicationSchedule, as_text
from engine.service.operate import Cancelled, Requested, Resumed, Retired, Skipped, Started
from engine.service.pages import SchedulePage
from engine.service.service import ScheduleService
from engine.service.status import ServerState, StatusReport, WorkerRow
from engine.service.tokens import NewToken

if TYPE_CHECKING:  # only what connects loads the driver
    from engine.ledger import Ledger as Ledger

__all__ = [
    "DEFAULT_PROJECT",
    "FIRST_MOMENT",
    "INCLUDED",
    "LAST_MOMENT",
    "OPEN",
    "PRUNE_AFTER",
    "SCOPES",
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
    "Filters",
    "Fire",
    "Included",
    "JobStatus",
    "KeyAudit",
    "NamedWindow",
    "NewToken",
    "NextFire",
    "Origin",
    "Pause",
    "ReasonCode",
    "RepeatedRequest",
    "RequestKey",
    "Requested",
    "Resumed",
    "Retired",
    "RunDetails",
    "RunSummary",
    "ScheduleKind",
    "SchedulePage",
    "ScheduleRow",
    "ScheduleService",
    "Scope",
    "Served",
    "ServerState",
    "Skipped",
    "Start",
    "Started",
    "State",
    "Status",
    "StatusReport",
    "Subscription",
    "Timing",
    "TokenRow",
    "Try",
    "WorkerRow",
    "as_text",
    "not_found",
]
