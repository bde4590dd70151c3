"""Check of what workflows and steps declare: types that no run could read, and misspelt contexts.

What stands here would fail every run, or every attempt of a step.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from pydantic import PydanticUserError, TypeAdapter
from temporalio.common import RawValue

from engine.errors import Code, Problem, question
from engine.flow import Context, WorkflowDefinition, definition_of, shown_type
from engine.flow.restrictions import shown_file
from engine.runtime.code.step_check import steps_called
from engine.schedules import nearest_name

_HINTS: Final = {
    "typed-dict-version": "import TypedDict from typing_extensions",
    "schema-for-unknown-type": "make it a dataclass or a pydantic model",
}
"""The hint for each of pydantic's reasons, by its code."""


@lru_cache(maxsize=1000)
def adapter_of(wanted: Any) -> TypeAdapter[Any]:
    """Return what reads values of a type as a worker with the plugin does.

    Raises:
        Exception: pydantic cannot read them.
    """
    return TypeAdapter(wanted)


def unreadable(
    workflows: Iterable[type], activities: Iterable[Callable[..., Any]]
) -> list[Problem]:
    """Return a problem for each type of an input or a result that no run could read.

    Args:
        workflows: the classes that a worker serves.
        activities: the steps and activities that it serves.
    """
    found: list[Problem] = []
    for definition in filter(None, map(definition_of, workflows)):
        what, run = f"the workflow {definition.type}", _run_of(definition)
        found += _unread(run, what, "input", definition.input_type)
        found += _unread(run, what, "result", definition.result_type)
    for fn in activities:
        mark = getattr(fn, "__temporal_activity_definition", None)
        if mark is not None and mark.name:
            for wanted in mark.arg_types or ():
                found += _unread(fn, f"the step {mark.name}", "input", wanted)
            found += _unread(fn, f"the step {mark.name}", "result", mark.ret_type)
    return found


def misdeclared(workflows: Iterable[type]) -> list[Problem]:
    """Return a problem for each misspelt context, and for each lambda in the place of a step."""
    found: list[Problem] = []
    for definition in filter(None, map(definition_of, workflows)):
        what = f"the workflow {definition.type}"
        found += _misspelt_context(_run_of(definition), what)
        found += _lambdas(definition.cls, what)
    return found


def _run_of(definition: WorkflowDefinition) -> Callable[..., Any]:
    """Return the user's ``run``."""
    run: Callable[..., Any] = inspect.getattr_static(definition.cls, "run")
    return run


def _unread(fn: Callable[..., Any], what: str, kind: str, wanted: Any) -> Iterator[Problem]:
    if wanted is None or wanted is RawValue:
        return
    try:
        adapter_of(wanted)
    except Exception as error:  # noqa: BLE001 - whatever it is, each run would meet it
        code = error.code if isinstance(error, PydanticUserError) else None
        reason = str(error).partition("\n")[0]
        text = f"the {kind} of {what} cannot be read as {shown_type(wanted)}: {reason}"
        yield _at(fn, text, _HINTS.get(code or "", _PLAIN))


_PLAIN: Final = "use plain values, a dataclass or a pydantic model"


def _misspelt_context(run: Callable[..., Any], what: str) -> Iterator[Problem]:
    """Yield a problem if the type of ``ctx`` is a name that the module has nowhere."""
    hints = list(run.__annotations__.items())
    hint = hints[0][1] if hints else None
    if not isinstance(hint, str) or not hint.isidentifier():
        return
    known = _names_of(run.__module__)
    if known is None or hint in known:
        return
    near = nearest_name(hint, {*known, Context.__name__})
    yield _at(run, f"the ctx of {what} is a {hint}, which its module does not have", question(near))


def _names_of(module: str) -> set[str] | None:
    """Return every name that a module binds, also for type checkers only; None without a source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return None
    found = set(vars(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return None if "*" in found else found


def _lambdas(cls: type, what: str) -> Iterator[Problem]:
    """Yield a problem for each lambda in the place of a step."""
    for node, _, file in steps_called(cls):
        if isinstance(node, ast.Lambda):
            yield Problem(
                Code.WORKFLOW_INVALID,
                f"{what} gives ctx.step a lambda, which no worker knows by name",
                "write it at the top level of a module and mark it with @step",
                node.lineno,
                node.col_offset + 1,
                file=file,
            )


def _at(fn: Callable[..., Any], message: str, hint: str) -> Problem:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    line = code.co_firstlineno if code else 0
    return Problem(
        Code.WORKFLOW_INVALID, message, hint, line, 1 if line else 0, file=shown_file_of(fn)
    )


def shown_file_of(thing: Any) -> str:
    """Return the file of a class or a function as problems name it."""
    module = sys.modules.get(thing.__module__)
    return shown_file(getattr(module, "__file__", None) or thing.__module__, thing.__module__)
