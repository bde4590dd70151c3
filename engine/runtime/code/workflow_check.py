"""Load of workflows in Temporal's sandbox before a worker serves them.

Temporal imports the module of a workflow again for each run, in a sandbox that refuses calls whose
result differs from run to run. The SDK's worker does so too when it is made, and ends with a long
traceback.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter
from temporalio.worker import WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import _Definition

from engine.errors import Code, Problem, WorkflowInvalid
from engine.flow.restrictions import CodePlace, hint_of, places_of, restricted_name, shown_name
from engine.runtime.code.declarations_check import misdeclared, shown_file_of, unreadable

# --- sandbox ---

_PASSED_THROUGH: Final = ("asyncpg", "croniter", "yaml", "opentelemetry", "engine")
"""Re-imported inside the sandbox, asyncpg 0.31 segfaults the worker; the others only cost time."""

_MARK: Final = "__temporal_workflow_definition"


class CheckedSandbox(SandboxedWorkflowRunner):
    """The SDK's sandbox, in which a module is loaded once to check it, and not for each class."""

    _loaded: ClassVar[WeakKeyDictionary[object, SandboxRestrictions]] = WeakKeyDictionary()

    def prepare_workflow(self, defn: _Definition) -> None:
        """Load the module of the class if these restrictions have not let it through before."""
        module = sys.modules.get(defn.cls.__module__)
        is_top = getattr(module, defn.cls.__qualname__, None) is defn.cls
        loaded = module if is_top else defn.cls  # of another, the class has to be found as well
        if self._loaded.get(loaded) != self.restrictions:
            super().prepare_workflow(defn)
            self._loaded[loaded] = self.restrictions


def sandbox_of(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Return the runner of a worker with the plugin: heavy modules are passed through.

    Args:
        runner: the application's own; None for the SDK's sandbox. One of another kind is returned
            as it is.
    """
    if runner is None:
        runner = SandboxedWorkflowRunner()
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    restrictions = runner.restrictions.with_passthrough_modules(*_PASSED_THROUGH)
    if type(runner) is SandboxedWorkflowRunner:
        return CheckedSandbox(restrictions, runner.runner_class)
    return replace(runner, restrictions=restrictions)


# --- load ---

_SDK_LOG: Final = "temporalio.worker.workflow_sandbox._restrictions"


def require_sound(
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]],
    runner: WorkflowRunner | None,
    converter: DataConverter,
) -> None:
    """Load each workflow as the worker will, and look at what is declared.

    Raises:
        WorkflowInvalid: something would fail every run; the error lists all of it.
    """
    found: list[Problem] = []
    # Without a loop the SDK itself refuses to make a worker.
    if isinstance(runner, SandboxedWorkflowRunner) and _in_event_loop():
        found = _problems(workflows, runner)
    by_pydantic = issubclass(converter.payload_converter_class, PydanticPayloadConverter)
    found += misdeclared(workflows)
    found += unreadable(workflows, activities) if by_pydantic else []
    if found:
        raise WorkflowInvalid(found)


def asks_each_workflow(config: WorkerConfig) -> bool:
    """Return whether the worker has a deployment version, and no behavior for all workflows."""
    deployment = config.get("deployment_config")
    return (
        deployment is not None
        and deployment.use_worker_versioning
        and not deployment.default_versioning_behavior
    )


def require_deployment(config: WorkerConfig) -> None:
    """Refuse workflows with a versioning behavior on a worker without a deployment version.

    The server would refuse each of their tasks, for ever.

    Raises:
        WorkflowInvalid: there are such; the error lists all of them.
    """
    deployment = config.get("deployment_config")
    if deployment is not None and deployment.use_worker_versioning:
        return
    found = [
        Problem(
            Code.WORKFLOW_INVALID,
            f"the workflow {definition.name} has the versioning behavior"
            f" {definition.versioning_behavior.name}, and this worker has no deployment version",
            "give the worker a deployment_config (with `sched worker` in SCHED_SETUP), or take"
            " versioning_behavior away",
            file=shown_file_of(cls),
        )
        for cls in config.get("workflows", ())
        if (definition := _Definition.from_class(cls)) and definition.versioning_behavior
    ]
    if found:
        raise WorkflowInvalid(found)


async def unsound(
    workflows: Sequence[type], activities: Sequence[Callable[..., Any]]
) -> list[Problem]:
    """Return a problem for each place that keeps the sandbox from loading workflows, or runs apart.

    Args:
        workflows: the classes, with the engine's decorator or Temporal's own.
        activities: the steps.
    """
    return [
        *_problems(workflows, sandbox_of(None)),
        *misdeclared(workflows),
        *unreadable(workflows, activities),
    ]


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _problems(workflows: Iterable[type], runner: WorkflowRunner) -> list[Problem]:
    found: dict[tuple[str | None, int, str], Problem] = {}
    with _quiet():
        for each in workflows:
            definition: Any = getattr(each, _MARK, None)
            if definition is None or not definition.sandboxed:
                continue
            try:
                runner.prepare_workflow(definition)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run would meet it
                problem = _problem(each, error)
                # All workflows of a module meet the same fault.
                found.setdefault((problem.file, problem.line, problem.hint), problem)
    return list(found.values())


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the SDK from logging what the problem says."""
    logger = logging.getLogger(_SDK_LOG)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


# --- problems ---

_THROUGH: Final = (
    "write the import under `with temporalio.workflow.unsafe.imports_passed_through():`"
)
_APART: Final = (
    "import it where the steps are; if run needs it, and it is the same on each replay, "
)


def _problem(cls: type, error: Exception) -> Problem:
    """Return one sentence with the line of the user's code that matters, and the hint."""
    places = places_of(error)
    mine = [each for each in places if each.is_users and each.module == cls.__module__]
    last = next((each for each in reversed(places) if each.is_users), None)
    library = _library_after(places, last)
    name = restricted_name(error)
    fault = f"{type(error).__name__}: {error}" if name is None else shown_name(name)
    if library is None and last is not None and last.module == cls.__module__:
        hint = _hint_here(name)
        return _at(last, cls, f"{fault} is used" if name else f"it raises {fault}", hint)
    place = mine[-1] if mine else last
    brings = library or (last.module if last else cls.__module__)
    at = f" ({last})" if last is not None and last != place else ""
    what = f"the import of {brings}{at} {'uses' if name else 'raises'} {fault}"
    return _at(place, cls, what, _THROUGH if at else f"{_APART}{_THROUGH}")


def _library_after(places: Sequence[CodePlace], last: CodePlace | None) -> str | None:
    """Return the top package of a library that the user's last line imports, if any."""
    if last is None:
        return None
    inner = places[len(places) - places[::-1].index(last) :]
    tops = (each.module.partition(".")[0] for each in inner)
    ours = {"temporalio", "importlib", "engine", ""}
    return next((top for top in tops if top not in ours and not top.startswith("_")), None)


def _hint_here(name: str | None) -> str:
    if name is None:
        return "mend the module"
    if "ctx." in hint_of(name):
        return f"{hint_of(name)} in run"
    return hint_of(name)


def _at(place: CodePlace | None, cls: type, what: str, hint: str) -> Problem:
    kind = getattr(cls, _MARK).name or cls.__name__
    return Problem(
        Code.WORKFLOW_INVALID,
        f"Temporal's sandbox cannot load the workflow {kind}: {what}",
        hint,
        place.line if place else 0,
        place.column if place else 0,
        file=place.file if place else f"{cls.__module__.replace('.', '/')}.py",
    )
