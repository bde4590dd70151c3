"""Finds the user's code: every module of the packages that hold workflows and activities."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import EngineError

DEFAULT_PACKAGES = ("workflows", "activities")


def imports_from_environment() -> tuple[str, ...]:
    """Return the packages that ``SCHED_IMPORTS`` names, comma separated."""
    names = os.environ.get("SCHED_IMPORTS", "")
    return tuple(name.strip() for name in names.split(",") if name.strip())


def import_user_code(names: Sequence[str] = ()) -> list[str]:
    """Import every module of these packages and return their names.

    Without names, ``workflows`` and ``activities`` of the working directory are imported as
    far as they exist. The working directory is put on ``sys.path``: a console script does not
    see it otherwise.

    Raises:
        EngineError: when a named package does not exist, or a module fails to import.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    wanted = names or [name for name in DEFAULT_PACKAGES if importlib.util.find_spec(name)]
    imported = []
    for name in wanted:
        for module in _modules(name):
            try:
                importlib.import_module(module)
            except Exception as error:
                raise EngineError(
                    f"importing {module} failed: {type(error).__name__}: {error}",
                    cure="mend the module, or name others with --import",
                ) from error
            imported.append(module)
    return imported


def _modules(name: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise EngineError(
            f"there is no package {name} here", cure="run in the folder that holds it"
        )
    places = spec.submodule_search_locations
    inner = pkgutil.walk_packages(places, prefix=f"{name}.") if places else ()
    return [name, *(module.name for module in inner)]
