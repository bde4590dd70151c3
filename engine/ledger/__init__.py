"""Ledger: the record of every window, in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.lazy import lazy_exports
from engine.ledger.access import (
    SCOPES as SCOPES,
    SESSION_LASTS as SESSION_LASTS,
    BrowserSession as BrowserSession,
    RepeatedRequest as RepeatedRequest,
    RequestKey as RequestKey,
    Scope as Scope,
    TokenRow as TokenRow,
)
from engine.ledger.alerts import (
    CONDITION_FIELDS as CONDITION_FIELDS,
    ENGINE as ENGINE,
    AlertChanges as AlertChanges,
    AlertRow as AlertRow,
    Condition as Condition,
    Facts as Facts,
    Letters as Letters,
    Overdue as Overdue,
    Recent as Recent,
    SeenReplica as SeenReplica,
    Watched as Watched,
)
from engine.ledger.failures import (
    FailingNote as FailingNote,
    FailingStep as FailingStep,
    Failure as Failure,
    FailureLink as FailureLink,
    GivenUp as GivenUp,
    RetryNote as RetryNote,
    RunCounts as RunCounts,
    RunDetails as RunDetails,
    Try as Try,
    as_failing as as_failing,
    death_cause as death_cause,
    failing_text as failing_text,
)
from engine.ledger.fires import (
    DENIED as DENIED,
    DIED as DIED,
    ENDED_BADLY as ENDED_BADLY,
    IN_HAND as IN_HAND,
    NO_RUN_BEFORE as NO_RUN_BEFORE,
    OF_A_WINDOW as OF_A_WINDOW,
    OPEN as OPEN,
    REPEATS as REPEATS,
    SURELY_NOT_RUN as SURELY_NOT_RUN,
    UNREAD as UNREAD,
    UNSTARTED as UNSTARTED,
    Claim as Claim,
    ClosedStatus as ClosedStatus,
    DataGap as DataGap,
    DayPart as DayPart,
    DeadLetter as DeadLetter,
    Ended as Ended,
    Evidence as Evidence,
    Fire as Fire,
    FollowUp as FollowUp,
    KeyMaintenance as KeyMaintenance,
    KnownRun as KnownRun,
    OldFire as OldFire,
    OldRow as OldRow,
    Outcome as Outcome,
    Status as Status,
    StopOrder as StopOrder,
    Timing as Timing,
    UnreadEnd as UnreadEnd,
    cause_of as cause_of,
)
from engine.ledger.outbox import (
    Attempt as Attempt,
    Delivery as Delivery,
    EventRow as EventRow,
    EventWork as EventWork,
    Subscription as Subscription,
)
from engine.ledger.records import (
    BY_DEFAULT as BY_DEFAULT,
    INCLUDED as INCLUDED,
    POLLS_COUNT_FOR as POLLS_COUNT_FOR,
    UNDECLARED as UNDECLARED,
    Action as Action,
    ActionRow as ActionRow,
    Backfill as Backfill,
    BackfillOverlap as BackfillOverlap,
    Binding as Binding,
    DefinitionVersion as DefinitionVersion,
    DriftRow as DriftRow,
    DueByShare as DueByShare,
    DueKey as DueKey,
    Included as Included,
    LedgerServer as LedgerServer,
    Lineage as Lineage,
    Load as Load,
    NewDefinition as NewDefinition,
    NewFire as NewFire,
    PolledQueue as PolledQueue,
    Probe as Probe,
    ProjectRow as ProjectRow,
    QueueRow as QueueRow,
    QueueUse as QueueUse,
    Served as Served,
    Serving as Serving,
    SkippedAhead as SkippedAhead,
    SlotAsk as SlotAsk,
    Standing as Standing,
    Start as Start,
    TemporalNamespace as TemporalNamespace,
    ToLay as ToLay,
    Totals as Totals,
    Wanted as Wanted,
    key_lane as key_lane,
)
from engine.ledger.schedule_rows import (
    JobStatus as JobStatus,
    NextFire as NextFire,
    RunSummary as RunSummary,
    ScheduleFilter as ScheduleFilter,
    ScheduleKind as ScheduleKind,
    ScheduleRow as ScheduleRow,
    State as State,
)

if TYPE_CHECKING:
    from engine.ledger.postgres.ledger import (
        AlertStore as AlertStore,
        EventStore as EventStore,
        Ledger as Ledger,
        Transaction as Transaction,
    )
else:  # only what connects loads the driver
    __getattr__ = lazy_exports(
        __name__, {"postgres.ledger": "AlertStore EventStore Ledger Transaction"}
    )
