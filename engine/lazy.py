"""Lazy exports of packages: a public name is imported on first use.

It is separate because the packages' doors may import nothing else.
``sched --help`` and shell completion of keys need neither Temporal's SDK nor the database driver,
which take longer to load than everything else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, and have ``dir()`` list its public names.

    Notebooks and shells complete from ``dir()``.

    Args:
        package: its ``__name__``.
        modules: its modules by their names in it, each with the public names that it has.
    """
    module_of = {
        name: f"{package}.{module}" for module, names in modules.items() for name in names.split()
    }

    def exported(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, found)  # later lookups bypass this function
        return found

    there = vars(sys.modules[package])
    there["__dir__"] = lambda: sorted({*there, *module_of})
    return exported
