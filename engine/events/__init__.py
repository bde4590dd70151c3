"""Events: what becomes of fires and schedules, for those who subscribe to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.lazy import lazy_exports

if TYPE_CHECKING:
    from engine.events.listeners import on
    from engine.events.messages import ScheduleEvent
else:
    __getattr__ = lazy_exports(__name__, {"listeners": "on", "messages": "ScheduleEvent"})

__all__ = ["ScheduleEvent", "on"]
