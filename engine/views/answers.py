"""The views of records of the service, and of what several of them are together."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from engine.audit.comparison import Comparison, Difference, TheirSource
from engine.errors import EngineError, Problem
from engine.events import ScheduleEvent
from engine.json_view import JsonView
from engine.schedules.diff import Starts
from engine.schedules.simulation import Outage, ScheduleTotals, Simulation
from engine.service import (
    ActionRow,
    AlertRow,
    ApplicationSchedule,
    ApplyReport,
    AuditFault,
    AuditReport,
    Backfill,
    BackfillRequested,
    Binding,
    Cancelled,
    Change,
    Condition,
    DataGap,
    DeadLetter,
    Delivery,
    DriftRow,
    DryRun,
    Explanation,
    FailingStep,
    FailureLink,
    Finding,
    Fire,
    KeyAudit,
    MoveReport,
    Pause,
    Paused,
    ProjectRow,
    QueueRow,
    Replay,
    Requested,
    Resumed,
    Retired,
    Rule,
    RunSummary,
    ScheduleRow,
    ServerState,
    Skipped,
    Started,
    StatusReport,
    StepInProgress,
    Subscription,
    TakenOver,
    TokenRow,
    Try,
    WorkerRow,
)

_FROM_TO: Final[dict[str, Any]] = {"from": datetime, "to": datetime}

PARTS: Final = (
    JsonView(Pause),
    JsonView(RunSummary, "runs success_rate median_duration_ms last_failure_at last_failure error"),
    JsonView(Rule),
    JsonView(DataGap, "bucket data_from data_to"),
    JsonView(ApplicationSchedule, "key project next_fire_at definition=schedule.shown waiting"),
    JsonView(FailureLink),
    JsonView(Try),
    JsonView(StepInProgress),
    JsonView(Retired),
    JsonView(
        Started,
        "workflow_id new start.requested start.requested_at start.requested_by fire waiting",
    ),
    JsonView(TakenOver),
    JsonView(MoveReport, "moved_from unvouched lost bindings"),
    JsonView(EngineError, "", title="Error", code=str, message=str, hint=str | None),
    JsonView(Problem),
    JsonView(Starts, "count fire_times=first"),
    JsonView(
        Change, "key kind was likely_was edits moved.appear moved.vanish fires_on_apply=fires"
    ),
    JsonView(ProjectRow, "revision file_digest applied_at file_name applied_by refused"),
    JsonView(DriftRow, "key origin paused=pause skipped"),
    JsonView(
        WorkerRow,
        "replica host version tzdata project task_queue types started_at seen_at age_ms=age claims"
        " state",
    ),
    JsonView(ServerState, "server answers error"),
    JsonView(Binding),
    JsonView(Condition, "name code cause project key since text"),
    JsonView(AlertRow, "name code cause project key since text opened_at"),
    JsonView(
        StatusReport,
        "good=is_good at servers bindings workers unserved lag_ms=lag totals.queued totals.pending"
        " totals.open_runs totals.dead_letters overdue conditions=others stuck alerts",
    ),
    JsonView(Finding),
    JsonView(ActionRow, "at by verb key project reason workflow_id before after"),
    JsonView(Outage, "from=begin to=end"),
    JsonView(ScheduleTotals, "key windows outcomes=counts first_sight overlap_unknown follows"),
    JsonView(AuditFault, "kind fire_time last_fire_time windows workflow_id what"),
    JsonView(
        KeyAudit,
        "key project verdict expected statuses due held outside unchecked fault_windows notes"
        " faults",
    ),
    JsonView(
        AuditReport,
        "since until against_temporal rules complete=is_clean verdicts=verdict notes unknown"
        " schedules",
    ),
    JsonView(Replay),
    JsonView(
        Explanation,
        "key at is_window is_missing local_time definition_version rules text decision=row replay",
    ),
    JsonView(TheirSource),
    JsonView(Difference),
    JsonView(
        Comparison,
        "key project since until source is_equal equal ours held only_ours only_theirs doubled"
        " differences notes",
    ),
    JsonView(
        ScheduleEvent,
        "id name source time sequence namespace project key data",
        title="Event: An event; its data are those of the page on events.",
    ),
    JsonView(
        Delivery, "id=event.event_id event.key name subscription attempts first_at died_at error"
    ),
)
"""Views that no answer names: `as_json` finds them by their records."""

# --- schedules ---

SCHEDULE: Final = JsonView(
    ScheduleRow,
    "key former_keys=former successor project origin state status shadow=in_shadow schedule.topic"
    " schedule.tags schedule.kind schedule.when schedule.timezone schedule.overlap workflow"
    " workflow_type next_fire_at=next_start_at last_fire_at last_status paused=pause"
    " error=problem definition_version series effective_from tzdata limit_left"
    " definition=schedule.shown",
    title="Schedule: A schedule; the API has its definitionVersion as ETag.",
)
DETAILED_SCHEDULE: Final = JsonView(
    SCHEDULE,
    title="DetailedSchedule: A schedule, why no worker would start it, and doubts about its cron.",
    waiting=str | None,
    warnings=list[str],
)
SCHEDULES: Final = JsonView(
    "Schedules: Schedules by key; `nextCursor` is the `cursor` of the next page.",
    schedules=list[ScheduleRow],
    next_cursor=str | None,
)
LISTED_SCHEDULE: Final = JsonView(
    SCHEDULE,
    title="ListedSchedule: A schedule, its stuck runs, and with --wide its last ones.",
    stuck_runs=int,
    last_runs=RunSummary | None,
)
NEXT_FIRES: Final = JsonView(
    "NextFires: The next windows of a schedule that start a run.",
    key=str,
    timezone=str | None,
    state=str,
    fire_times=list[datetime],
)
UPCOMING: Final = JsonView(
    "Upcoming: A window that will open; `key` is null for a cron expression.",
    key=str | None,
    fire_time=datetime,
    local_time=str,
    timezone=str,
    bucket=int,
    note=str,
)

# --- fires and runs ---

FIRE: Final = JsonView(
    Fire,
    "key project kind series bucket fire_time windows last_fire_time workflow_id run_id status"
    " reason reason_code timing missed missed_from decided_at waited_since starting_at started_at"
    " closed_at lag_ms duration_ms tries step_retries error replica attempts definition_version"
    " failing stuck=is_stuck history=overruled",
)
LISTED_FIRE: Final = JsonView(
    FIRE,
    title="ListedFire: A fire, whether a backfill may start it, and its run in the Web UI.",
    backfill_pending=bool,
    link=str | None,
)
FULL_SCHEDULE: Final = JsonView(
    SCHEDULE,
    title="FullSchedule: All about a schedule; `link` is the list of its runs in the Web UI.",
    max_concurrent_runs=int | None,
    parents=list[Rule],
    children=list[str],
    queued=list[Fire],
    queue_full=dict[str, Any],
    skips=list[Fire],
    backfills=list[Backfill],
    data_gaps=list[DataGap],
    last_fires=LISTED_FIRE.many,
    next=UPCOMING.many,
    link=str | None,
    failing=list[Fire],
)
GAP: Final = JsonView("Gap: Fires that a stream leaves out, because they are too many.", **_FROM_TO)
FOLLOWED_FIRE: Final = JsonView(
    FIRE,
    title="FollowedFire: A fire that has changed, or whose run has reported progress.",
    progress=str | None,
)
FIRE_DETAILS: Final = JsonView(
    FIRE,
    title="FireDetails: A fire, and of its run the errors, tries and steps in progress.",
    failure=list[FailureLink],
    tried=list[Try],
    second_runs=list[str],
    steps_in_progress=list[StepInProgress] | None,
)
FIRE_PAGE: Final = JsonView(
    FIRE_DETAILS,
    title="FirePage: All about a fire and its run; `notAsked`: why not from Temporal.",
    undo_steps=list[dict[str, str]],
    not_asked=str | None,
    link=str | None,
)
FIRES: Final = JsonView(
    "Fires: Executions, newest first; `nextCursor` is the `cursor` of the next page.",
    executions=list[Fire],
    next_cursor=str | None,
)
DEAD_LETTER: Final = JsonView(
    DeadLetter,
    "key project series bucket fire_time windows last_fire_time kind workflow_id run_id"
    " workflow_type status cause reason error attempts starting_at started_at died_at duration_ms"
    " tries step_retries definition_version",
)
DEAD_LETTER_DETAILS: Final = JsonView(
    DEAD_LETTER,
    title="DeadLetterDetails: A dead letter, with the errors and the tries of its run.",
    failure=list[FailureLink],
    tried=list[Try],
)
DEAD_LETTERS: Final = JsonView(
    "DeadLetters: Dead letters, newest fire time first; with `details` all of them.",
    letters=(DEAD_LETTER_DETAILS.many | list[DeadLetter]),
)
LISTED_LETTER: Final = JsonView(
    DEAD_LETTER,
    title="ListedLetter: A dead letter, its input, and what its run could not undo.",
    has_input=bool,
    input=Any,
    not_undone=list[dict[str, Any]],
    link=str | None,
)
LETTER_PAGE: Final = JsonView(
    LISTED_LETTER,
    title="LetterPage: A dead letter with all that is known of its run; see FirePage.",
    failure=list[FailureLink],
    tried=list[Try],
    second_runs=list[str],
    steps_in_progress=list[StepInProgress] | None,
    undo_steps=list[dict[str, str]],
    not_asked=str | None,
)
FAILING_STEP: Final = JsonView(FailingStep)
LISTED_STEP: Final = JsonView(
    FAILING_STEP,
    title="ListedStep: A step of an open run that keeps failing, and its window.",
    key=str,
    series=int,
    bucket=int,
    fire_time=datetime,
    workflow_id=str,
    started_at=datetime | None,
    link=str | None,
)

# --- results of operations ---

PAUSED: Final = JsonView(Paused, "key paused=pause before")
RESUMED: Final = JsonView(Resumed)
SKIPPED: Final = JsonView(Skipped)
CANCELLED: Final = JsonView(Cancelled)
REQUESTED: Final = JsonView(Requested)
ENDED_RUN: Final = JsonView(
    REQUESTED,
    title="EndedRun: A requested run that was waited for, with its result or why it failed.",
    result=Any,
    failure=list[FailureLink],
)
BACKFILL: Final = JsonView(
    Backfill,
    "id key state ended_reason from=first to=last cursor overlap include windows done laid"
    " left_alone requested_by requested_at ended_at reason error",
)
BACKFILL_REQUESTED: Final = JsonView(
    BackfillRequested, "backfill would_start starts left_alone cost"
)
BACKFILL_FOLLOWED: Final = JsonView(
    BACKFILL_REQUESTED,
    title="BackfillFollowed: A backfill; `started`: with --wait, the runs that it laid.",
    started=list[str],
)
WINDOW_SPAN: Final = JsonView(
    "WindowSpan: Windows in a row of which a backfill decides the same.",
    **_FROM_TO,
    windows=int,
    starts=bool,
    why=str,
)
BACKFILL_PREVIEW: Final = JsonView(
    BACKFILL_REQUESTED,
    title="BackfillPreview: A backfill with --dry-run.",
    spans=WINDOW_SPAN.many,
)
RERUNS: Final = JsonView(
    "Reruns: The reruns of a schedule's dead letters: those requested, and those refused.",
    key=str,
    asked=list[str],
    refused=dict[str, str],
)

NAMED: Final = JsonView("Named: A schedule that an action on several is for.", key=str)
REFUSED: Final = JsonView(
    "Refused: A schedule for which an action on several failed, and why.",
    key=str,
    error=dict[str, Any],
)
RETIRED_PROJECT: Final = JsonView(
    "RetiredProject: A project that was retired, with the keys of its schedules.",
    project=str,
    retired=list[str],
    forgotten=bool,
)
DROPPED: Final = JsonView("Dropped: How many dead letters were dropped.", dropped=int)

# --- files ---

MIGRATED: Final = JsonView(
    "Migrated: The migrations that were applied, and the indexes that are still to be built.",
    applied=list[int],
    indexes_left=list[str],
)

PLAN: Final = JsonView(
    DryRun,
    "project from=now to=until last same_file=same refused refused_keys changes unchanged absent"
    " foreign misnamed in_vain unknown resumed queues hooks left_behind drift"
    " retention_ms=retention forgetful fires_on_apply=fires",
    warnings=list[Problem],
)
LOCATED_PLAN: Final = JsonView(
    PLAN,
    title="LocatedPlan: A plan, the places of schedules in code, and what does not fit it.",
    file=str,
    declared=dict[str, str],
    problems=list[Problem],
)
APPLY_REPORT: Final = JsonView(
    ApplyReport, retired=list[str], warnings=list[Problem], problems=list[Problem]
)
CHECKED: Final = JsonView(
    "CheckedFile: What `sched check` has found; a file with problems has no keys.",
    file=str,
    project=str | None,
    keys=list[str],
    over=list[str],
    no_timezone=list[str],
    declared=dict[str, str],
    problems=list[Problem],
    warnings=list[Problem],
)

# --- the house ---

WORKERS: Final = JsonView(
    "Workers: Workers by project, task queue and start.", workers=list[WorkerRow]
)
QUEUE: Final = JsonView(
    QueueRow,
    "queue project limits.concurrency limits.per_key limits.rate declared_at dropped_at",
    running=dict[str, int] | None,
)
FINDINGS: Final = JsonView(
    "Findings: What `sched doctor` has found.", good=bool, findings=list[Finding]
)
WORKFLOW_VERSION: Final = JsonView(
    "WorkflowVersion: A version of a workflow, who has it, and who needs it.",
    workflow=str,
    version=str,
    newest=bool,
    workers=list[str],
    schedules=list[str],
    open_runs=int | None,
    removable=bool,
)
EXPORTED: Final = JsonView(
    "Exported: A run whose history was exported; without a file Temporal no longer has it.",
    workflow_id=str,
    run_id=str | None,
    file=str | None,
    events=int,
)
TOKEN: Final = JsonView(
    TokenRow,
    "id name scope keys projects task_queues external state created_at created_by expires_at"
    " revoked_at revoked_by used_at used_from",
    title="Token: A token, without its secret.",
)
NEW_TOKEN: Final = JsonView(TOKEN, title="NewToken: A new token.", token=str)

REVOKED: Final = JsonView("Revoked: A token that was revoked.", name=str, revoked=bool)

# --- simulations ---

SIMULATION: Final = JsonView(
    Simulation, "from=start to=end outages total.windows totals schedules most_starts_in_a_minute"
)
MINUTE: Final = JsonView(
    "Minute: A minute in which runs start or are open.",
    minute=datetime,
    starts=int,
    most_open=int | None,
)
LOAD: Final = JsonView(
    SIMULATION, title="Load: A simulation, minute by minute.", minutes=MINUTE.many
)

# --- audit ---


# --- events ---

SUBSCRIPTION: Final = JsonView(
    Subscription,
    "id=short_name name kind project origin url=place events keys position failing_since"
    " failing_error retry_at",
    title="Subscription: One that gets events; a webhook without its path and its secret.",
)
HOOKS: Final = JsonView("Hooks: Webhooks by name.", hooks=list[Subscription])
REDELIVERED: Final = JsonView(
    "Redelivered: To how many subscribers an event is delivered again.", id=str, deliveries=int
)
