"""Workflow layer: everything that user code may use inside a workflow.

``engine`` passes these modules through Temporal's workflow sandbox. One of them may still be
loaded there a second time (``import engine.flow.fire`` in a workflow's module), so they import
only the standard library, ``engine.errors`` and temporalio, do nothing on import, and do not use
``isinstance`` where the two copies of a class may meet.
"""

from __future__ import annotations

from engine.flow.context import Context, RunsAlone, RunsWithInput
from engine.flow.decorator import registered_workflows, version_key, workflow
from engine.flow.definition import FOREVER, Retry, WorkflowDefinition, definition_of
from engine.flow.failures import CompensationFailed, FatalError, NotUndone
from engine.flow.fire import MEMO_KEY, FireInfo, Timing
from engine.flow.resources import (
    Need,
    ResourceDefinition,
    given,
    registered_resources,
    resource,
    resource_definition_of,
    where,
)
from engine.flow.steps import (
    SERVED,
    StepDefinition,
    StepInfo,
    Undo,
    as_declared,
    registered_steps,
    step,
    step_definition_of,
    step_info,
    step_named,
)

__all__ = [
    "FOREVER",
    "MEMO_KEY",
    "SERVED",
    "CompensationFailed",
    "Context",
    "FatalError",
    "FireInfo",
    "Need",
    "NotUndone",
    "ResourceDefinition",
    "Retry",
    "RunsAlone",
    "RunsWithInput",
    "StepDefinition",
    "StepInfo",
    "Timing",
    "Undo",
    "WorkflowDefinition",
    "as_declared",
    "definition_of",
    "given",
    "registered_resources",
    "registered_steps",
    "registered_workflows",
    "resource",
    "resource_definition_of",
    "step",
    "step_definition_of",
    "step_info",
    "step_named",
    "version_key",
    "where",
    "workflow",
]
