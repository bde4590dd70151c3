"""Workflow layer: everything that user code may use inside a workflow.

Other rooms import from this package only: runtime and testing kit also need what runs leave in
histories and headers. The names for users are those of ``engine``.

``engine`` passes these modules through Temporal's workflow sandbox. One of them may still be
loaded there a second time (``import engine.flow.fire`` in a workflow's module), so they import
only the standard library, ``engine.errors`` and temporalio, do nothing on import, and do not use
``isinstance`` where the two copies of a class may meet.
"""

from __future__ import annotations

from engine.flow.children import ENDED_CHILD, payload_text
from engine.flow.context import Context, RunsAlone, RunsWithInput, progress_line, refuse_forgotten
from engine.flow.declarations import DeclaredSchedule, at, cron, every
from engine.flow.decorator import registered_workflows, version_key, workflow
from engine.flow.definition import (
    FOREVER,
    Retry,
    RunOptions,
    WorkflowDefinition,
    definition_of,
    forget_modules,
)
from engine.flow.failures import (
    CompensationFailed,
    FatalError,
    NotUndone,
    refusal,
    require_written,
    text_of,
)
from engine.flow.fire import IDENTITIES, MEMO_KEY, FireInfo, Timing
from engine.flow.resources import (
    Need,
    ResourceDefinition,
    given,
    registered_resources,
    resource,
    resource_definition_of,
    where,
)
from engine.flow.saga import CHECK_RESET, COMMITTED, LEFT_TO_UNDO, UNDO_TYPE, CleanUp
from engine.flow.signals import Handlers
from engine.flow.step_calls import (
    NOT_GIVEN,
    ChildOptions,
    StepCall,
    ToUndo,
    UndoScope,
    args_of,
    repeats,
    to_await,
    undo_of,
)
from engine.flow.steps import (
    DEFAULT_HEARTBEAT,
    HEADER,
    NOTHING,
    SERVED,
    UNDO_HEADER,
    NotedInfo,
    StepDefinition,
    StepInfo,
    StepNote,
    Undo,
    as_declared,
    lane_of,
    note_of_this_call,
    queue_of,
    registered_steps,
    step,
    step_definition_of,
    step_info,
    step_key,
    step_named,
)

__all__ = [
    "CHECK_RESET",
    "COMMITTED",
    "DEFAULT_HEARTBEAT",
    "ENDED_CHILD",
    "FOREVER",
    "HEADER",
    "IDENTITIES",
    "LEFT_TO_UNDO",
    "MEMO_KEY",
    "NOTHING",
    "NOT_GIVEN",
    "SERVED",
    "UNDO_HEADER",
    "UNDO_TYPE",
    "ChildOptions",
    "CleanUp",
    "CompensationFailed",
    "Context",
    "DeclaredSchedule",
    "FatalError",
    "FireInfo",
    "Handlers",
    "Need",
    "NotUndone",
    "NotedInfo",
    "ResourceDefinition",
    "Retry",
    "RunOptions",
    "RunsAlone",
    "RunsWithInput",
    "StepCall",
    "StepDefinition",
    "StepInfo",
    "StepNote",
    "Timing",
    "ToUndo",
    "Undo",
    "UndoScope",
    "WorkflowDefinition",
    "args_of",
    "as_declared",
    "at",
    "cron",
    "definition_of",
    "every",
    "forget_modules",
    "given",
    "lane_of",
    "note_of_this_call",
    "payload_text",
    "progress_line",
    "queue_of",
    "refusal",
    "refuse_forgotten",
    "registered_resources",
    "registered_steps",
    "registered_workflows",
    "repeats",
    "require_written",
    "resource",
    "resource_definition_of",
    "step",
    "step_definition_of",
    "step_info",
    "step_key",
    "step_named",
    "text_of",
    "to_await",
    "undo_of",
    "version_key",
    "where",
    "workflow",
]
