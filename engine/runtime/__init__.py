"""What runs inside a worker replica."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from engine.runtime.events import Event
    from engine.runtime.plugin import SchedulePlugin
    from engine.runtime.poller import Poller
    from engine.runtime.settings import Settings

__all__ = ["Event", "Poller", "SchedulePlugin", "Settings"]

_HOMES: Final = {
    "Event": "engine.runtime.events",
    "Poller": "engine.runtime.poller",
    "SchedulePlugin": "engine.runtime.plugin",
    "Settings": "engine.runtime.settings",
}


def __getattr__(name: str) -> Any:
    # Asked for only where it is used: the child that reads a large file needs none of it, and
    # would load Temporal's client and the database's for most of a second.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
