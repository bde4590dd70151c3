"""Answers of the API: rows of the service as JSON, by the names of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi import Response
from pydantic import AliasGenerator, AliasPath, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

from engine.schedules import Overlap, ReasonCode, place_of_url
from engine.service import (
    JobStatus,
    Origin,
    RunDetails,
    ScheduleRow,
    State,
    Status,
    StepInProgress,
    Timing,
)

T = TypeVar("T")


class ApiView(BaseModel):
    """An answer; its names are written in camelCase, as in files."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        serialize_by_alias=True,
        from_attributes=True,
        frozen=True,
    )

    @classmethod
    def of(cls, record: object) -> Self:
        """Return the view of a record: its attributes that have the names of the fields."""
        return cls.model_validate(record)


def taken_from(*path: str, **more: Any) -> Any:
    """Return a field whose value is an attribute of another name, or one of a part of the record.

    ``more`` is what else ``Field`` takes.
    """
    return Field(validation_alias=AliasPath(*path), **more)


def as_answer(
    answer: ApiView | Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer with this JSON; FastAPI would validate it a second time."""
    return Response(to_json(answer, by_alias=True), status, headers, "application/json")


# --- schedules ---


class PauseView(ApiView):
    """A pause."""

    at: datetime
    by: str | None
    reason: str | None
    until: datetime | None


class ScheduleView(ApiView):
    """A schedule. Its version is in the ETag."""

    key: str = Field(examples=["nightly-report"])
    former_keys: list[str] = Field(description="The keys that it had before, the oldest first.")
    successor: str | None = Field(description="The key that it has now, if this is a former one.")
    project: str
    origin: Origin = Field(description="`file`: a file declares it; `api`: an application.")
    state: State
    status: JobStatus = Field(description="The state, in the words of job queues.")
    topic: str | None
    tags: list[str]
    kind: str | None = Field(examples=["cron"])
    when: str | None = Field(examples=["0 2 * * *"])
    overlap: Overlap | None = Field(description="The overlap policy, also where it is the default.")
    workflow: str
    workflow_type: str | None
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    last_status: Status | None
    paused: PauseView | None
    error: str | None
    version: int = Field(description="The version of its definition.")
    effective_from: datetime
    definition: Mapping[str, Any] | None = Field(
        description="The definition by the fields of a file, without those that have the default."
    )
    waiting: str | None = Field(
        None,
        description="Why no worker would start at present what comes due; lists leave it out.",
    )
    warnings: list[str] | None = Field(
        None,
        description="Why its cron is probably not what was meant, and what to write; lists leave"
        " it out.",
    )


def schedule_json(row: ScheduleRow) -> dict[str, Any]:
    """Return the fields of a ``ScheduleView``: to make models of a page takes as long as its rows.

    A sealed input stays sealed unless the row has it open.
    """
    schedule = row.schedule
    return {
        "key": row.key,
        "formerKeys": [*row.former],
        "successor": row.successor,
        "project": row.project,
        "origin": row.origin,
        "state": row.state,
        "status": row.status,
        "topic": schedule.topic if schedule else None,
        "tags": [*schedule.tags] if schedule else [],
        "kind": schedule.kind if schedule else None,
        "when": schedule.when if schedule else None,
        "overlap": schedule.overlap if schedule else None,
        "workflow": row.workflow,
        "workflowType": row.workflow_type,
        "nextFireAt": row.next_start_at,
        "lastFireAt": row.last_fire_at,
        "lastStatus": row.last_status,
        "paused": PauseView.of(row.pause) if row.pause else None,
        "error": row.error,
        "version": row.definition_version,
        "effectiveFrom": row.effective_from,
        "definition": schedule.shown if schedule else None,
    }


class ScheduleList(ApiView):
    """A page of schedules, by key."""

    schedules: list[ScheduleView]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null on the last.")


class NextFires(ApiView):
    """The next windows of a schedule that start a run."""

    key: str
    timezone: str | None
    state: State
    fire_times: list[datetime]


# --- executions ---


class FailingStepView(ApiView):
    """A step of an open run that keeps failing."""

    step: str
    place: str
    run_id: str
    attempts: int
    max_attempts: int | None
    error_type: str
    error: str
    since: datetime
    next_attempt_at: datetime | None
    child: str | None


class ExecutionView(ApiView):
    """A window, or windows in a row, or a run that was asked for, and what became of it."""

    key: str
    project: str
    series: int
    bucket: int
    fire_time: datetime
    windows: int
    last_fire_time: datetime
    workflow_id: str
    run_id: str | None
    status: Status
    reason: str | None
    reason_code: ReasonCode | None
    timing: Timing | None
    starting_at: datetime | None
    started_at: datetime | None
    closed_at: datetime | None
    lag_ms: int | None
    duration_ms: int | None
    tries: int | None
    step_retries: int | None
    error: str | None
    replica: str | None
    definition_version: int
    failing: list[FailingStepView]
    stuck: bool = taken_from("is_stuck")


class ExecutionList(ApiView):
    """A page of executions, newest fire time first."""

    executions: list[ExecutionView]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null on the last.")


class FailureView(ApiView):
    """An error in the chain of a failed run."""

    type: str
    message: str
    step: str | None
    child: str | None
    attempt: int | None
    stack: str


class TryView(ApiView):
    """A try of a run."""

    number: int
    run_id: str
    started_at: datetime
    closed_at: datetime | None
    error: str | None


def _errors_and_tries(details: RunDetails) -> dict[str, Any]:
    return {
        "failure": [FailureView.of(each) for each in details.failure],
        "tried": [TryView.of(each) for each in details.tried],
    }


class StepView(ApiView):
    """A step of an open run that is at work, or waits for its next attempt."""

    step: str
    attempt: int
    progress: list[Any] = Field(description="What it gave `activity.heartbeat` last.")


class ExecutionDetails(ExecutionView):
    """An execution, with what is known of its run."""

    failure: list[FailureView] = Field([], description="Its errors, the outermost first.")
    tried: list[TryView] = Field([], description="Each try of the run.")
    second_runs: list[str] = Field([], description="Runs that somebody else began under its id.")
    steps_in_progress: list[StepView] | None = Field(
        None, description="Of an open run, from Temporal; null if it could not be asked."
    )

    def with_details(self, details: RunDetails, steps: Sequence[StepInProgress] | None) -> Self:
        """Return the view with the details of its run and the steps in progress, if known."""
        more = {
            **_errors_and_tries(details),
            "second_runs": [*details.second_runs],
            "steps_in_progress": None if steps is None else [StepView.of(each) for each in steps],
        }
        return self.model_copy(update=more)


class LetterView(ApiView):
    """A fire that failed and was not dealt with."""

    key: str
    project: str
    bucket: int
    series: int
    fire_time: datetime
    windows: int
    workflow_id: str
    run_id: str | None
    kind: str
    status: Status
    cause: str
    reason: str | None
    error: str | None
    died_at: datetime
    started_at: datetime | None
    duration_ms: int | None
    tries: int | None
    step_retries: int | None
    failure: list[FailureView] | None = Field(
        None, description="With `details`: its errors with their traces, the outermost first."
    )
    tried: list[TryView] | None = Field(None, description="With `details`: each try of the run.")

    def with_details(self, details: RunDetails) -> Self:
        """Return the view with the details of its run."""
        return self.model_copy(update=_errors_and_tries(details))


class LetterList(ApiView):
    """Dead letters, newest fire time first."""

    letters: list[LetterView]


class WorkerView(ApiView):
    """A worker that has announced itself, and has not said that it stops."""

    replica: str
    host: str
    version: str
    tzdata: str
    project: str
    task_queue: str
    types: list[str]
    started_at: datetime
    seen_at: datetime
    claims: int
    state: Literal["alive", "silent"]


class WorkerList(ApiView):
    """Workers by project, task queue and start."""

    workers: list[WorkerView]


class HookView(ApiView):
    """A webhook, without the path of its address and without its secret."""

    id: str = taken_from("short_name", examples=["default.1a2b3c4d"])
    name: str
    project: str
    origin: Origin = Field(description="`file`: a file declares it; `api`: this API.")
    url: Annotated[str, BeforeValidator(place_of_url)] = Field(
        examples=["https://hooks.example.com/…"]
    )
    events: list[str]
    keys: list[str] = Field(description="None are all of the project.")
    failing_since: datetime | None = Field(
        description="Since when it has accepted no event, and gets one at a time."
    )
    failing_error: str | None = Field(description="Why the last event failed.")
    retry_at: datetime | None = Field(description="When an event that failed is tried again.")


class HookList(ApiView):
    """Webhooks by name."""

    hooks: list[HookView]


# --- results of operations ---


class PauseResult(ApiView):
    """A pause, and the one that it replaced."""

    key: str
    paused: PauseView | None = taken_from("pause")
    before: PauseView | None


class ResumeResult(ApiView):
    """A resume; without ``before`` the schedule was not paused."""

    key: str
    before: PauseView | None
    next_fire_at: datetime | None
    caught_up: int


class SkipResult(ApiView):
    """A skip, or its end; ``changed`` is false if there was nothing to change."""

    key: str
    fire_time: datetime
    workflow_id: str
    changed: bool


class RequestedRun(ApiView):
    """A run that was asked for; ``new`` is false if the same request was made before."""

    execution: ExecutionView = taken_from("fire")
    new: bool
    asks: bool = Field(description="Whether a worker first looks whether an earlier run is open.")


class CancelResult(ApiView):
    """Effect of a cancel."""

    key: str
    asked: list[str]
    skipped: list[str]
    already: list[str]
    retired: bool
    was_retired: bool
    backfills: list[str]


class BackfillView(ApiView):
    """A backfill that was requested, or would be."""

    id: int = taken_from("backfill", "id")
    key: str = taken_from("backfill", "key")
    first: datetime = taken_from("backfill", "first", serialization_alias="from")
    last: datetime = taken_from("backfill", "last", serialization_alias="to")
    overlap: str = taken_from("backfill", "overlap")
    include: list[str] = taken_from("backfill", "include")
    windows: int = taken_from("backfill", "windows")
    starts: dict[str, int]
    left_alone: dict[str, int]
    would_start: int
    cost: str | None
