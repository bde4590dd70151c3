"""Steps: ordinary functions that do the work, and are tried again when they fail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine import Retry, step


@dataclass
class Guest:
    """A greeting, and the window it is for."""

    name: str
    window: datetime


@step(timeout=30, retry=Retry(max_attempts=3))
async def greet(guest: Guest) -> str:
    """Return a greeting. A step may run twice, so it must be repeatable."""
    return f"Hello {guest.name}, this is the window of {guest.window:%H:%M:%S} UTC."
