"""A file of schedules that has passed every check, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.errors import Problem
from engine.schedules.model import Schedule
from engine.schedules.queues import Queue


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A file of schedules that has passed every check.

    Attributes:
        project: the owner of the schedules.
        revision: orders files of one project, where given.
        schedules: in the file's order; never empty.
        queues: the queues of steps, by name.
        name: the file's name, for messages.
        digest: the SHA-256, in hex, of all that the meaning depends on; see `file_digest`.
        warnings: what is probably not meant.
        calendars: the .ics files that were read: the file that names one, and its name there.
    """

    project: str
    revision: int | None
    schedules: tuple[Schedule, ...]
    name: str
    digest: str
    queues: Mapping[str, Queue] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    calendars: tuple[tuple[str, str], ...] = ()
