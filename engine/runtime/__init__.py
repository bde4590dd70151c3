"""What runs inside a worker replica."""

from engine.runtime.events import Event
from engine.runtime.plugin import SchedulePlugin
from engine.runtime.poller import Poller
from engine.runtime.settings import Settings

__all__ = ["Event", "Poller", "SchedulePlugin", "Settings"]
