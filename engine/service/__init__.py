"""Service layer: the operations of operators and applications, and what their answers are made of.

The command line operates on schedules and runs through this package only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.audit.explain import Explanation as Explanation, Replay as Replay
from engine.audit.judge import AuditFault as AuditFault, KeyAudit as KeyAudit
from engine.ledger import (
    INCLUDED as INCLUDED,
    OPEN as OPEN,
    SCOPES as SCOPES,
    UNDECLARED as UNDECLARED,
    ActionRow as ActionRow,
    AlertRow as AlertRow,
    Backfill as Backfill,
    BackfillOverlap as BackfillOverlap,
    Binding as Binding,
    Condition as Condition,
    DataGap as DataGap,
    DeadLetter as DeadLetter,
    Delivery as Delivery,
    DriftRow as DriftRow,
    FailingStep as FailingStep,
    FailureLink as FailureLink,
    Fire as Fire,
    Included as Included,
    JobStatus as JobStatus,
    NextFire as NextFire,
    ProjectRow as ProjectRow,
    QueueRow as QueueRow,
    QueueUse as QueueUse,
    RepeatedRequest as RepeatedRequest,
    RequestKey as RequestKey,
    RunDetails as RunDetails,
    RunSummary as RunSummary,
    ScheduleKind as ScheduleKind,
    ScheduleRow as ScheduleRow,
    Scope as Scope,
    Served as Served,
    Start as Start,
    State as State,
    Status as Status,
    Subscription as Subscription,
    TemporalNamespace as TemporalNamespace,
    Timing as Timing,
    TokenRow as TokenRow,
    Try as Try,
)
from engine.runtime.apply.apply import (
    PRUNE_AFTER as PRUNE_AFTER,
    Change as Change,
    DryRun as DryRun,
)
from engine.runtime.apply.edits import ApplyReport as ApplyReport, Renamed as Renamed
from engine.runtime.past_windows import Considered as Considered
from engine.schedules import ReasonCode as ReasonCode, Rule as Rule
from engine.schedules.planner import Origin as Origin, Pause as Pause
from engine.service.audit import AuditReport as AuditReport
from engine.service.backfill import BackfillRequested as BackfillRequested
from engine.service.base import (
    FIRST_MOMENT as FIRST_MOMENT,
    LAST_MOMENT as LAST_MOMENT,
    Filters as Filters,
    checked_project as checked_project,
    not_found as not_found,
    require_in_order as require_in_order,
)
from engine.service.doctor import Finding as Finding, TemporalFacts as TemporalFacts
from engine.service.handles import (
    Started as Started,
    StepInProgress as StepInProgress,
    steps_in_progress as steps_in_progress,
)
from engine.service.one_shots import (
    ApplicationSchedule as ApplicationSchedule,
    DeclaredByKey as DeclaredByKey,
    as_text as as_text,
)
from engine.service.operate import (
    Cancelled as Cancelled,
    Paused as Paused,
    Requested as Requested,
    Resumed as Resumed,
    Retired as Retired,
    Skipped as Skipped,
)
from engine.service.pages import SchedulePage as SchedulePage
from engine.service.service import ScheduleService as ScheduleService
from engine.service.status import (
    MOST_COUNTED as MOST_COUNTED,
    ServerState as ServerState,
    StatusReport as StatusReport,
    WorkerRow as WorkerRow,
)
from engine.service.takeover import MoveReport as MoveReport, TakenOver as TakenOver

if TYPE_CHECKING:  # only what connects loads the driver
    from engine.ledger import Ledger as Ledger
