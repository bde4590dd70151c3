"""Workflow layer: everything that user code may use inside a workflow.

Other rooms import from this package only: runtime and testing kit also need what runs leave in
histories and headers. The names for users are those of ``engine``.

``engine`` passes these modules through Temporal's workflow sandbox. One of them may still be
loaded there a second time (``import engine.flow.fire`` in a workflow's module), so they import
only the standard library, ``engine.errors`` and temporalio, do nothing on import, and do not use
``isinstance`` where the two copies of a class may meet.
"""

from __future__ import annotations

from engine.flow.children import (
    ENDED_CHILD as ENDED_CHILD,
    OWN_CHILD as OWN_CHILD,
    payload_text as payload_text,
)
from engine.flow.context import (
    STAND_IN as STAND_IN,
    WAITS as WAITS,
    Context as Context,
    RunsAlone as RunsAlone,
    RunsWithInput as RunsWithInput,
    progress_line as progress_line,
    refuse_forgotten as refuse_forgotten,
)
from engine.flow.declarations import (
    DeclaredSchedule as DeclaredSchedule,
    at as at,
    cron as cron,
    every as every,
)
from engine.flow.decorator import (
    read_inputs as read_inputs,
    registered_workflows as registered_workflows,
    version_key as version_key,
    without_versions as without_versions,
    workflow as workflow,
)
from engine.flow.definition import (
    FOREVER as FOREVER,
    Retry as Retry,
    RunOptions as RunOptions,
    WorkflowDefinition as WorkflowDefinition,
    definition_of as definition_of,
    forget_modules as forget_modules,
    refuse_unknown as refuse_unknown,
)
from engine.flow.failures import (
    CompensationFailed as CompensationFailed,
    FatalError as FatalError,
    NotUndone as NotUndone,
    caused_by as caused_by,
    plain_text as plain_text,
    read_as as read_as,
    refusal as refusal,
    require_written as require_written,
    shown_type as shown_type,
    text_of as text_of,
)
from engine.flow.fire import (
    IDENTITIES as IDENTITIES,
    MEMO_KEY as MEMO_KEY,
    FireInfo as FireInfo,
    Timing as Timing,
)
from engine.flow.resources import (
    Need as Need,
    ResourceDefinition as ResourceDefinition,
    given as given,
    registered_resources as registered_resources,
    resource as resource,
    resource_definition_of as resource_definition_of,
    where as where,
)
from engine.flow.saga import (
    CHECK_RESET as CHECK_RESET,
    COMMITTED as COMMITTED,
    LEFT_TO_UNDO as LEFT_TO_UNDO,
    UNDO_TYPE as UNDO_TYPE,
    CleanUp as CleanUp,
    VersionedCleanUp as VersionedCleanUp,
)
from engine.flow.signals import Handlers as Handlers
from engine.flow.step_calls import (
    NOT_GIVEN as NOT_GIVEN,
    ChildOptions as ChildOptions,
    StepCall as StepCall,
    UndoScope as UndoScope,
    args_of as args_of,
    repeats as repeats,
    to_await as to_await,
    undo_of as undo_of,
)
from engine.flow.steps import (
    DEFAULT_HEARTBEAT as DEFAULT_HEARTBEAT,
    HEADER as HEADER,
    NOTHING as NOTHING,
    SERVED as SERVED,
    UNDO_HEADER as UNDO_HEADER,
    NotedInfo as NotedInfo,
    StepDefinition as StepDefinition,
    StepInfo as StepInfo,
    StepNote as StepNote,
    Undo as Undo,
    as_declared as as_declared,
    as_step as as_step,
    fairness_key as fairness_key,
    key_of as key_of,
    lane_of as lane_of,
    note_of_this_call as note_of_this_call,
    queue_of as queue_of,
    registered_steps as registered_steps,
    step as step,
    step_definition_of as step_definition_of,
    step_info as step_info,
    step_key as step_key,
    step_named as step_named,
    undo as undo,
    undo_key as undo_key,
)
