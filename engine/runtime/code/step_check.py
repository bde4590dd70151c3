"""Look at the source of workflows for steps that their worker does not have.

Every worker that polls a task queue for steps may be given any step of it. One that lacks the step
fails the attempt, and the step continues only when another worker gets a later one.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from engine.errors import Code
from engine.flow.restrictions import is_users_code, shown_file
from engine.runtime.events import Alert

_CALLS: Final = {"step", "on_failure"}
"""Methods of ``ctx`` whose first argument is a step."""


def unserved_steps(
    workflows: Iterable[type], activities: Iterable[Callable[..., Any]], task_queue: str
) -> list[Alert]:
    """Return an alert for each step that workflows name and their worker does not have.

    Steps that are chosen while a run is open are not seen, nor are those that name a task queue.

    Args:
        workflows: the classes that the worker serves.
        activities: the steps and activities that it serves.
        task_queue: its task queue.
    """
    marks = [_mark(each) for each in activities]
    if any(mark is not None and mark.name is None for mark in marks):
        return []  # a dynamic activity takes every name
    served = {mark.name for mark in marks if mark is not None}
    missing: dict[str, Alert] = {}
    for each in workflows:
        for name, place in _steps_of(each):
            if name not in served and name not in missing:
                missing[name] = Alert(
                    Code.STEP_UNSERVED,
                    f"{each.__name__} calls the step {name!r} ({place}), which this worker of the"
                    f" task queue {task_queue!r} does not have: an attempt that it is given fails;"
                    " add the step to the worker (activities=, or --import its package), or name"
                    " workers that have it with task_queue=",
                )
    return list(missing.values())


def _mark(thing: object) -> Any:
    return getattr(thing, "__temporal_activity_definition", None)


def _steps_of(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the name of each step that a class calls, and the place of the call."""
    for named, module, place in steps_called(cls):
        mark = _mark(_resolved(named, vars(module)))
        if mark is not None and mark.name is not None:
            yield str(mark.name), f"{place}:{named.lineno}"


def steps_called(cls: type) -> Iterator[tuple[ast.expr, ModuleType, str]]:
    """Yield what stands for a step in each call of a class, with its module and the file."""
    for each in cls.__mro__:
        module = sys.modules.get(each.__module__)
        file = getattr(module, "__file__", None)
        if module is None or file is None or not is_users_code(file, each.__module__):
            continue
        try:
            calls = _steps_by_class(inspect.getsource(module))
        except (OSError, TypeError, SyntaxError):  # there is no source here
            continue
        for named in calls.get(each.__qualname__, ()):
            yield named, module, shown_file(file, each.__module__)


@lru_cache(maxsize=8)
def _steps_by_class(source: str) -> Mapping[str, Sequence[ast.expr]]:
    """Return what stands for steps in each class of a module, by its qualified name.

    The module is parsed once: ``inspect.getsource`` of a class parses all of it for each class.
    """
    found: dict[str, Sequence[ast.expr]] = {}

    def visit(node: ast.AST, names: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                name = f"{names}{child.name}"
                calls = [each for each in ast.walk(child) if isinstance(each, ast.Call)]
                found[name] = [step for call in calls for step in _named_steps(call)]
                visit(child, f"{name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child, f"{names}{child.name}.<locals>.")
            else:
                visit(child, names)

    visit(ast.parse(source), "")
    return found


def _named_steps(call: ast.Call) -> Iterator[ast.expr]:
    """Yield what stands for a step in ``ctx.step(fn, compensate=fn)`` or ``ctx.on_failure(fn)``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _CALLS:
        return
    options = {each.arg: each.value for each in call.keywords}
    if "task_queue" in options or None in options:  # None: **options
        return
    yield from call.args[:1]
    if "compensate" in options:
        yield options["compensate"]


def _resolved(node: ast.expr, names: dict[str, Any]) -> object:
    """Return what a name, or a name in a module, stands for; None for any other expression."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolved(node.value, names)
        return vars(owner).get(node.attr) if inspect.ismodule(owner) else None
    return None
