"""Discovery of the user's workflows and activities in every module of their packages."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from engine.errors import EngineError

DEFAULT_PACKAGES = ("workflows", "activities")
_MARK: Final = "__temporal_workflow_definition"
_STEP_MARK: Final = "__temporal_activity_definition"
_OUR_STEP_MARK: Final = "__sched_step__"
_LISTENER_MARK: Final = "__sched_listener__"
_SCHEDULE: Final = re.compile(r"\bschedule *=")


def imports_from_environment() -> tuple[str, ...]:
    """Return the packages in ``SCHED_IMPORTS``, which is comma separated."""
    names = os.environ.get("SCHED_IMPORTS", "")
    return tuple(name.strip() for name in names.split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class UserCode:
    """Workflows and activities that a worker serves, decorated or plain Temporal ones.

    ``listeners`` are functions that get events, marked with ``on``.
    """

    workflows: list[type]
    activities: list[Callable[..., Any]]
    listeners: list[Callable[..., Any]] = field(default_factory=list)

    @property
    def types(self) -> frozenset[str]:
        """The Temporal types of the workflows."""
        return types_of(self.workflows)


def types_of(classes: Iterable[type]) -> frozenset[str]:
    """Return the Temporal types of classes, plain ones included; a dynamic workflow has none."""
    marks = (getattr(each, _MARK, None) for each in classes)
    return frozenset(mark.name for mark in marks if mark and mark.name)


def import_user_code(names: Sequence[str] = ()) -> UserCode:
    """Import every module of these packages and return what of the user they define.

    Without names, import ``workflows`` and ``activities`` of the working directory if they exist.
    The working directory is added to ``sys.path``, where a console script lacks it.

    Raises:
        EngineError: a named package does not exist, or a module fails to import.
    """
    _find_here()
    wanted = names or [name for name in DEFAULT_PACKAGES if importlib.util.find_spec(name)]
    modules = [_import(module) for name in wanted for module in _modules(name)]
    found = _defined_in(modules)
    return UserCode(
        workflows=[thing for thing in found if _MARK in vars(thing)],
        activities=[
            step
            for thing in found
            for step in (thing, *_methods(thing))
            if _STEP_MARK in vars(step)
        ],
        listeners=[thing for thing in found if _LISTENER_MARK in vars(thing)],
    )


def packages_with_schedules(names: Sequence[str] = ()) -> list[str]:
    """Return those of these packages whose text has a ``schedule=``, without importing them.

    Without names: of those in ``SCHED_IMPORTS``, or of the ones that a worker imports here.
    """
    _find_here()
    wanted = names or imports_from_environment() or DEFAULT_PACKAGES
    return [name for name in wanted if any(map(_has_schedule, _texts(name)))]


def _has_schedule(text: str) -> bool:
    return _SCHEDULE.search(text) is not None


def _texts(name: str) -> Iterator[str]:
    spec = None
    with suppress(ModuleNotFoundError):  # of a package around it
        spec = importlib.util.find_spec(name)
    folders = [Path(each) for each in (spec and spec.submodule_search_locations) or ()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    if not folders and spec and spec.has_location and spec.origin:
        files = [Path(spec.origin)]
    for file in files:
        with suppress(OSError):
            yield file.read_text(encoding="utf-8", errors="replace")


def _find_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:
        place = _place_of(error)
        raise EngineError(
            f"importing {module} failed{place}: {type(error).__name__}: {error}",
            hint="mend the module, or name others with --import",
        ) from error


def _place_of(error: Exception) -> str:
    """Return where in the working directory a module failed: `` at workflows/hello.py:3``."""
    here, found = Path.cwd(), ""
    places = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno or 1))
    for name, line in places:
        path = Path(name)
        if path.is_relative_to(here) and ".venv" not in path.parts and path.suffix == ".py":
            found = f" at {path.relative_to(here)}:{line}"
    return found


def _defined_in(modules: Sequence[ModuleType]) -> list[Any]:
    """Return every class and function that the modules define themselves, in order."""
    return [
        thing
        for module in modules
        for thing in vars(module).values()
        if hasattr(thing, "__dict__") and getattr(thing, "__module__", None) == module.__name__
    ]


def _methods(thing: Any) -> list[Any]:
    """Return the methods of a class that are steps; Temporal's own need an object to be served."""
    members = vars(thing).values() if isinstance(thing, type) else ()
    return [each for each in members if _OUR_STEP_MARK in getattr(each, "__dict__", ())]


def _modules(name: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise EngineError(
            f"there is no package {name} here", hint="run in the folder that holds it"
        )
    places = spec.submodule_search_locations
    inner = pkgutil.walk_packages(places, prefix=f"{name}.") if places else ()
    return [name, *(module.name for module in inner)]
