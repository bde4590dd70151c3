"""What runs inside a workflow.

``engine`` passes these modules through Temporal's workflow sandbox. Still, one of them may be
loaded there a second time (``import engine.flow.fire`` in a workflow's module), so they import the
standard library, ``engine.errors`` and temporalio only, do nothing on import, and never tell two
copies of a class apart by ``isinstance``.

==============  ==============================================================
fire.py         ``FireInfo``: the window a run was started for, as its memo says it
zones.py        the zones for its local time
decorator.py    ``@workflow``: an ordinary class becomes a Temporal workflow
steps.py        ``@step`` and ``Retry``: an ordinary function becomes a Temporal activity
calls.py        one call of a step, checked
saga.py         undo steps, and their way back
context.py      ``Context``: what ``run(self, ctx)`` is given
registry.py     which of them exist in this process
==============  ==============================================================
"""

from __future__ import annotations

from engine.flow.context import Context
from engine.flow.decorator import (
    WorkflowDefinition,
    definition_of,
    registered_workflows,
    version_key,
    workflow,
)
from engine.flow.fire import MEMO_KEY, FireInfo, Timing
from engine.flow.steps import (
    Retry,
    StepDefinition,
    registered_steps,
    step,
    step_definition_of,
    step_named,
)

__all__ = [
    "MEMO_KEY",
    "Context",
    "FireInfo",
    "Retry",
    "StepDefinition",
    "Timing",
    "WorkflowDefinition",
    "definition_of",
    "registered_steps",
    "registered_workflows",
    "step",
    "step_definition_of",
    "step_named",
    "version_key",
    "workflow",
]
