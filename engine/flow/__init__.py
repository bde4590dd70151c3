"""Workflow layer: everything that user code may use inside a workflow.

``engine`` passes these modules through Temporal's workflow sandbox. One of them may still be
loaded there a second time (``import engine.flow.fire`` in a workflow's module), so they import
only the standard library, ``engine.errors`` and temporalio, do nothing on import, and do not use
``isinstance`` where the two copies of a class may meet.

=============  =========================================================
decorator.py   The @workflow decorator
definition.py  Workflow definitions, their run options, and the registry
context.py     The workflow context
coroutines.py  Helpers for coroutines: forgotten awaits and cancellation
steps.py       The @step decorator, step info, step notes and queues
step_calls.py  Step calls
saga.py        Saga: undo steps, and the clean-up workflow
children.py    Child runs and parallel calls
signals.py     Signals of a run
retries.py     Retry rules of steps
failures.py    Failures of steps and runs
fire.py        Fire information in the memo of a run
zones.py       Time zones for workflow code
=============  =========================================================
"""

from __future__ import annotations

from engine.flow.context import Context
from engine.flow.decorator import registered_workflows, version_key, workflow
from engine.flow.definition import WorkflowDefinition, definition_of
from engine.flow.failures import CompensationFailed, FatalError, NotUndone
from engine.flow.fire import MEMO_KEY, FireInfo, Timing
from engine.flow.retries import Retry
from engine.flow.steps import (
    StepDefinition,
    StepInfo,
    registered_steps,
    step,
    step_definition_of,
    step_info,
    step_named,
)

__all__ = [
    "MEMO_KEY",
    "CompensationFailed",
    "Context",
    "FatalError",
    "FireInfo",
    "NotUndone",
    "Retry",
    "StepDefinition",
    "StepInfo",
    "Timing",
    "WorkflowDefinition",
    "definition_of",
    "registered_steps",
    "registered_workflows",
    "step",
    "step_definition_of",
    "step_info",
    "step_named",
    "version_key",
    "workflow",
]
