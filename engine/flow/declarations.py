"""Schedules that stand beside their workflow: ``@workflow(schedule=[every("15s")])``.

Nothing is checked here but the form: the checks of schedules need more than the sandbox of a run
shall load. Whatever imports the workflow for a worker or a command reads these as it reads a file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredSchedule:
    """A schedule of a workflow class, as ``every``, ``cron`` and ``at`` return it.

    Attributes:
        fields: by their names in a file; without those that were left out.
        file: the path of the module that has it.
        line: its line there.
    """

    fields: Mapping[str, Any]
    file: str
    line: int


def every(
    interval: str | timedelta, /, *, key: str | None = None, **fields: Any
) -> DeclaredSchedule:
    """Declare a schedule of a fixed interval, for ``@workflow(schedule=...)``.

    Args:
        interval: a duration such as ``"15s"``, ``"5m"`` or ``"1d"``, or a timedelta.
        key: the schedule's key; by default the workflow's name, for a second schedule of the same
            workflow with ``-2`` behind it, and so on.
        fields: further fields of a schedule, as in a file (``overlap``, ``input``) or in Python's
            spelling (``task_queue``).
    """
    return _declared({"every": interval, "key": key, **fields})


def cron(
    expression: str, /, *, timezone: str | None = None, key: str | None = None, **fields: Any
) -> DeclaredSchedule:
    """Declare a schedule of a cron expression; see ``every``.

    Args:
        expression: five fields, six with seconds first, or a macro such as ``"@daily"``.
        timezone: the IANA zone of the expression; UTC if it is left out.
        key: see ``every``.
        fields: see ``every``.
    """
    return _declared({"cron": expression, "timezone": timezone, "key": key, **fields})


def at(
    moment: str, /, *, timezone: str | None = None, key: str | None = None, **fields: Any
) -> DeclaredSchedule:
    """Declare a schedule of one moment; see ``every``.

    Args:
        moment: ISO 8601, with an offset, or local to ``timezone``.
        timezone: the IANA zone of a moment without offset.
        key: see ``every``.
        fields: see ``every``.
    """
    return _declared({"at": moment, "timezone": timezone, "key": key, **fields})


def _declared(fields: Mapping[str, Any]) -> DeclaredSchedule:
    caller = sys._getframe(2)  # the place that errors name; `inspect` takes 1000 times as long
    given = {name: value for name, value in fields.items() if value is not None}
    return DeclaredSchedule(given, caller.f_code.co_filename, caller.f_lineno)


def checked_declarations(given: Any, owner: str) -> tuple[DeclaredSchedule, ...]:
    """Return what a class gives as its ``schedule``: one, or a list of them.

    Raises:
        TypeError: it is something else.
    """
    listed = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for each in listed:
        # No isinstance: a module of the sandbox may have another copy of the class.
        if type(each).__name__ != DeclaredSchedule.__name__:
            raise TypeError(
                f"the schedule of {owner} is {each!r:.80}: write every('15s'), "
                "cron('0 2 * * *', timezone='America/New_York') or a list of them"
            )
    return tuple(listed)
