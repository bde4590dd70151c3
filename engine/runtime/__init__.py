"""Runtime: everything that runs inside a worker replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.lazy import lazy_exports

if TYPE_CHECKING:
    from engine.runtime.events import Event
    from engine.runtime.plugin import SchedulePlugin
    from engine.runtime.settings import Settings
    from engine.runtime.setup import Setup
    from engine.runtime.tick.poller import Poller
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "events": "Event",
            "plugin": "SchedulePlugin",
            "tick.poller": "Poller",
            "settings": "Settings",
            "setup": "Setup",
        },
    )

__all__ = ["Event", "Poller", "SchedulePlugin", "Settings", "Setup"]
