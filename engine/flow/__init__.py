"""What runs inside a workflow.

``engine`` passes these modules through Temporal's workflow sandbox. Still, one of them may be
loaded there a second time (``import engine.flow.fire`` in a workflow's module), so they import the
standard library, ``engine.errors`` and temporalio only, do nothing on import, and never tell two
copies of a class apart by ``isinstance``.

==============  ==============================================================
fire.py         ``FireInfo``: the window a run was started for, as its memo says it
zones.py        the zones for its local time
decorator.py    ``@workflow``: an ordinary class becomes a Temporal workflow
definition.py   what it notes on the class
run_rules.py    what holds for each of its runs, as JSON
shapes.py       what a type checker demands of the class
steps.py        ``@step``: an ordinary function becomes a Temporal activity
retries.py      ``Retry``: how often, how patiently and after what it is tried again
failures.py     ``FatalError``, ``CompensationFailed``
endings.py      what a run that ends badly ends with
registry.py     which of them exist in this process
context.py      ``Context``: what ``run(self, ctx)`` is given, which is made of
run_facts.py    what a run knows of itself
calls.py        one call of a step, checked
queues.py       where it waits, and whose turn it takes
notes.py        what a call says to its worker beside the input
step_info.py    what the step can know of it: ``step_info()``
saga.py         undo steps, and their way back
undoing.py      the engine's own workflow, which undoes what a run did
to_the_end.py   what a cancel does not interrupt
waiting.py      what a task that waits makes of one
children.py     runs that a run waits for
parallel.py     several things at once
signals.py      what comes from outside
progress.py     what is told to people
==============  ==============================================================
"""

from __future__ import annotations

from engine.flow.context import Context
from engine.flow.decorator import registered_workflows, version_key, workflow
from engine.flow.definition import WorkflowDefinition, definition_of
from engine.flow.failures import CompensationFailed, FatalError, NotUndone
from engine.flow.fire import MEMO_KEY, FireInfo, Timing
from engine.flow.retries import Retry
from engine.flow.step_info import StepInfo, step_info
from engine.flow.steps import (
    StepDefinition,
    registered_steps,
    step,
    step_definition_of,
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
