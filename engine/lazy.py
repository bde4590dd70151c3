"""Lazy exports of packages: a public name is imported on first use.

Doors of packages that open one name at a time: what is not asked for is not loaded.

``sched --help`` and a shell that completes a key have no use for Temporal's SDK and the
database's driver, which take longer to load than everything else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, rooms: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    Args:
        package: its ``__name__``.
        rooms: in which module each of its public names is.
    """

    def opened(name: str) -> Any:
        if name not in rooms:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(rooms[name]), name)
        setattr(sys.modules[package], name, found)  # asked once only
        return found

    return opened
