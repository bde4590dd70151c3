"""Reads the ``calendars:`` of a file: days off under a name, from a list or an .ics file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.errors import Code
from engine.schedules.exclusions import is_item
from engine.schedules.fields import key_check, refuse, shorten, show
from engine.schedules.nodes import BROKEN, Mapping, Node
from engine.schedules.report import Report
from engine.schedules.when_fields import calendar_of

OpenIcs = Callable[[str], str]
"""Returns the text of a calendar file by the name that is written in the schedule file.

Raises OSError or ValueError when it cannot.
"""

_EXAMPLE: Final = "{holidays: [2026-12-25, 2027-01-01], team: {ics: team.ics}}"


def read_calendars(node: Node | None, open_ics: OpenIcs | None, report: Report) -> dict[str, Any]:
    """Return the calendars by name, BROKEN for those whose problems have been reported."""
    if node is None or node.plain() is None:
        return {}
    if not isinstance(node, Mapping):
        if node.plain() is not BROKEN:
            message, cure = f"calendars is {show(node.plain())}", f"write {_EXAMPLE}"
            report.add(node, Code.FIELD_INVALID, message, cure, value=node)
        return {}
    found: dict[str, Any] = {}
    for name, (written, value) in node.entries.items():
        found[name] = BROKEN
        with report.refusals(written):
            _check_name(name)
        plain = value.plain()
        if plain is not BROKEN:
            with report.refusals(value):
                found[name] = calendar_of(name, _dates(name, plain, open_ics))
    return found


def _check_name(name: str) -> None:
    if is_item(name):
        raise refuse(f"a calendar is called {name}", "give it a name that is no day")
    key_check("the name of a calendar")(name)


def _dates(name: str, value: Any, open_ics: OpenIcs | None) -> Any:
    if not isinstance(value, dict):
        return value
    file = value.get("ics")
    if value.keys() != {"ics"} or not isinstance(file, str):
        raise refuse(f"calendar {shorten(name)} is {show(value)}", f"write {_EXAMPLE}")
    if "://" in file:
        raise refuse(f"{shorten(file)} is an address", "save the calendar here, and name that file")
    if open_ics is None:
        raise refuse(f"calendar {shorten(name)} names a file", "load the schedules from a file too")
    from engine.schedules.calendar_file import read_ics  # noqa: PLC0415 - costs 50 ms, rarely needed

    try:
        return read_ics(open_ics(file))
    except OSError as error:
        raise refuse(
            f"{shorten(file)} cannot be read: {error.strerror}", "correct its name"
        ) from None
    except ValueError as error:
        what, cure = error.args if len(error.args) == len(("what", "cure")) else (error, "")
        raise refuse(f"{shorten(file)}: {what}", str(cure)) from None
