"""Readers of the entries of a file: schedules, defaults, calendars and queues."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from engine.errors import Code
from engine.schedules.loader.nodes import ListNode, MapNode, Node, Scalar
from engine.schedules.loader.problems import Report, nearest
from engine.schedules.model import (
    FIELDS,
    FIELDS_ONLY,
    After,
    CatchUp,
    Defaults,
    Queue,
    Retention,
    Schedule,
)
from engine.schedules.policies import BROKEN
from engine.schedules.rules import (
    BY_CLOCK,
    Fault,
    faults_of,
    is_local,
    limit_faults,
    relation_faults,
    spec_faults,
)
from engine.schedules.timing import croniter_check
from engine.schedules.timing.calendars import Calendar, is_item
from engine.schedules.units import Rate, parse_rate
from engine.schedules.validators import Expectation, calendar_of, key_check, refuse, shorten, show

# --- schedules and defaults ---
# Reads one schedule of a file, and the ``defaults:`` that schedules share.

_CROWD = 200
_MERGED = ("metadata", "catchUp", "retention")
_NESTED = {
    "after": (tuple(After.model_fields), "{schedule: nightly-extract, when: success}"),
    "catchUp": (tuple(CatchUp.model_fields), "{policy: latest, window: 24h}"),
    "retention": (tuple(map(to_camel, Retention.model_fields)), "{keep: 1000, age: 90d}"),
    "expect": (tuple(Expectation.model_fields), '{on: 2027-03-14, fires: ["03:00"]}'),
}
"""The fields that have fields of their own: which, and an example."""

_NEUTRAL = {"spread": "0s", "exclude": "[]"}
"""What a schedule writes that a default of the file cannot fit."""

_NO_DAYS = Calendar("broken", ())

# A mapping's fields by their right names: the name as written, and its value.
_Given = dict[str, tuple[Scalar, Node]]


def read_fields(
    node: MapNode, allowed: Iterable[str], owner: str, report: Report, key: str | None = None
) -> _Given:
    """Return the fields of ``node`` by their right names; report the unknown ones.

    A field whose spelling alone is wrong is read as the one that was meant. One that only
    resembles another counts as given, but its value is not judged: one mistake, one problem.
    """
    allowed = tuple(allowed)
    given: _Given = {name: pair for name, pair in node.entries.items() if name in allowed}
    if len(given) == len(node.entries):
        return given
    crowded = len(node.entries) > _CROWD  # guessing costs time, and this is no schedule
    for name, (written, value) in node.entries.items():
        if name in given:
            continue
        # A schedule's field in another place is no misspelling.
        meant = None if name in FIELDS or crowded else nearest(name, allowed)
        cure = "write it in a schedule" if name in FIELDS else "remove it"
        if meant is not None:
            cure = f"did you mean {meant.name}?"
        message = f"{shorten(name)} is not a field of {owner}"
        report.add(written, Code.FIELD_UNKNOWN, message, cure, key=key, value=written)
        if meant is not None and meant.name not in given:
            broken = Scalar(BROKEN, value.line, value.column)
            given[meant.name] = (written, value if meant.certain else broken)
    return given


def plain_values(
    given: _Given, report: Report, key: str | None, nullable: str = ""
) -> dict[str, Any]:
    """Return the values by name, BROKEN for those that are not to be judged any further."""
    values = {name: value.plain() for name, (_, value) in given.items()}
    for name, value in values.items():
        if value is None and name != nullable:
            node = given[name][1]
            cure = "write one, or remove the line"
            report.add(node, Code.FIELD_INVALID, f"{name} has no value", cure, key=key)
            values[name] = BROKEN
    return values


class Shared:
    """The ``defaults:`` of a file, checked once, for every schedule of it."""

    def __init__(self, calendars: dict[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        self._given: _Given = {}
        self._calendars = calendars or {}

    def read(self, node: MapNode, report: Report) -> None:
        """Take over what ``node`` says; fields that are wrong are reported and left out."""
        given = read_fields(node, _DEFAULTS, "defaults", report)
        values = self._resolve(plain_values(given, report, None))
        sound = {name: value for name, value in values.items() if value is not BROKEN}
        faults = _field_faults(Defaults, sound)
        if "timezone" in sound and not any(fault.path[:1] == ("timezone",) for fault in faults):
            faults += spec_faults({"timezone": sound["timezone"]})
        if not faults:
            faults = limit_faults(sound)
        faults = [self._meant(fault, sound.get("exclude")) for fault in faults]
        report_faults(faults, node, report, None, given)
        wrong = {fault.path[0] for fault in faults}
        self._values = {name: value for name, value in sound.items() if name not in wrong}
        self._given = given

    def explained(self, fault: Fault, own: Collection[str], values: dict[str, Any]) -> Fault:
        """Return a fault of a schedule with what the file around it tells of it.

        Args:
            fault: of a schedule.
            own: the fields that the schedule gives itself.
            values: all of them, defaults included.
        """
        fault = self._meant(fault, values.get("exclude"))
        name = str(fault.path[0]) if fault.path else ""
        if name in own or name not in self._values:
            return fault
        line = self._given[name][0].line
        neutral = _NEUTRAL.get(name)
        cure = f"write {name}: {neutral} here, or change the defaults" if neutral else fault.cure
        return replace(fault, message=f"{fault.message}, by defaults on line {line}", cure=cure)

    def _meant(self, fault: Fault, listed: Any) -> Fault:
        """Return a fault of an item of ``exclude`` with the calendar's name it resembles."""
        match fault.path:
            case ("exclude", int(index)) if isinstance(listed, list) and index < len(listed):
                item = listed[index]
                if isinstance(item, str) and not is_item(item):
                    meant = nearest(item, self._calendars)
                    return replace(fault, cure=f"did you mean {meant.name}?") if meant else fault
        return fault

    def _resolve(self, values: dict[str, Any]) -> dict[str, Any]:
        """Put calendars in the place of their names: a definition is whole without its file."""
        listed = values.get("exclude")
        if not isinstance(listed, list) or not self._calendars:
            return values
        found = [
            self._calendars.get(item, item) if isinstance(item, str) else item for item in listed
        ]
        # In the place of a broken calendar stands none, and the rest is judged.
        sound = [_NO_DAYS if each is BROKEN else each for each in found]
        return {**values, "exclude": sound}

    def complete(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return a schedule's values with the defaults for those it does not give."""
        values = self._resolve(values)
        if not self._values:
            return values
        merged = {**self._values, **values}
        for name in _MERGED:
            if isinstance(values.get(name), dict) and isinstance(self._values.get(name), dict):
                merged[name] = {**self._values[name], **values[name]}
        at = values.get("at")
        clock = "cron" in values or (isinstance(at, str) and is_local(at))
        clock = clock or ("everyMs" in values and any(merged.get(name) for name in BY_CLOCK))
        useless = {
            "timezone": not clock,  # beside an offset it would contradict
            "dst": "cron" not in values,
            "exclude": "at" in values,
            **self._outvoted(values),
        }
        dropped = [name for name, drop in useless.items() if drop and name not in values]
        return {name: value for name, value in merged.items() if name not in dropped}

    def _outvoted(self, own: dict[str, Any]) -> dict[str, bool]:
        """Return which default would contradict what a schedule itself says of its open runs."""
        limit, policy = "maxConcurrentRuns", "overlap"
        return {
            policy: limit in own and bool(limit_faults({**self._values, limit: own[limit]})),
            limit: policy in own and bool(limit_faults({**self._values, policy: own[policy]})),
        }


def read_schedule(
    node: Node, shared: Shared, report: Report, taken: dict[str, Any] | None = None
) -> Schedule | None:
    """Return the schedule that ``node`` declares, or None after reporting what is wrong.

    Args:
        node: as it stands in the file.
        shared: the defaults of the file.
        report: hears what is wrong.
        taken: the when-part, of one that takes its parent's.
    """
    key = report.begin(node)
    if not isinstance(node, MapNode):
        if not isinstance(node, Scalar) or node.value is not BROKEN:
            cure = "write a mapping with key, workflow and one of everyMs, cron and at"
            report.add(node, Code.FIELD_INVALID, "this is not a schedule", cure, value=node)
        return None
    given = read_fields(node, FIELDS, "a schedule", report, key)
    own = plain_values(given, report, key, nullable="input")
    values = shared.complete({**own, **(taken or {})})
    schedule = None
    faults: list[Fault] = []
    if BROKEN in values.values() or node.partial:
        faults = _all_faults(values)
    else:
        try:
            schedule = Schedule.model_validate(values, by_alias=True, by_name=False)
        except ValidationError as error:
            # Asked again in parts, so that one fault does not hide another.
            faults = _all_faults(values) or faults_of(error)
    faults += _second_opinion(values, faults)
    faults = [shared.explained(fault, given, values) for fault in faults]
    if node.partial:  # what seems to be missing may be in the part that could not be read
        faults = [fault for fault in faults if fault.path and fault.code != Code.FIELD_MISSING]
    report_faults(faults, node, report, key, given)
    return None if faults else schedule


def _all_faults(values: dict[str, Any]) -> list[Fault]:
    """Return everything that is wrong: field by field, then between those that are sound."""
    sound = {name: value for name, value in values.items() if value is not BROKEN}
    faults = [
        fault
        for fault in _field_faults(Schedule, sound)
        # A field is not missing where it has been complained about; one inside of it may be.
        if fault.code != Code.FIELD_MISSING or len(fault.path) > 1 or fault.path[0] not in values
    ]
    wrong = {fault.path[0] for fault in faults}
    judged = {name: BROKEN if name in wrong else value for name, value in values.items()}
    return faults + relation_faults(judged) + spec_faults(judged)


def _field_faults(model: type[Schedule | Defaults], values: dict[str, Any]) -> list[Fault]:
    try:
        model.model_validate(values, by_alias=True, by_name=False, context=FIELDS_ONLY)
    except ValidationError as error:
        return faults_of(error)
    return []


def _second_opinion(values: dict[str, Any], faults: list[Fault]) -> list[Fault]:
    """Ask croniter whether it reads the expression the same way, if we can read it at all."""
    cron = values.get("cron")
    if not isinstance(cron, str) or any(fault.path[:1] == ("cron",) for fault in faults):
        return []
    doubt = croniter_check.disagreement(cron)
    return [Fault(("cron",), Code.CRON_INVALID, doubt, "write it more plainly")] if doubt else []


def report_faults(
    faults: Iterable[Fault],
    node: Node,
    report: Report,
    key: str | None,
    given: _Given | None = None,
) -> None:
    """Note faults, each as near to its place below ``node`` as its path can be followed.

    ``given`` holds the fields of ``node`` by their right names, where some are misspelt.
    """
    if given is None:
        given = node.entries if isinstance(node, MapNode) else {}
    for fault in faults:
        place, value = _locate(fault, node, given)
        message, cure = fault.message, fault.cure
        if fault.code == Code.FIELD_UNKNOWN:  # of a field that has fields of its own
            name, owner = str(fault.path[-1]), str(fault.path[0])
            known, example = _NESTED[owner]
            meant = nearest(name, known)
            message = f"{shorten(name)} is not a field of {owner}"
            cure = f"did you mean {meant.name}?" if meant else f"write {example}"
        report.add(place, fault.code, message, cure, key=key, value=value)


def _locate(fault: Fault, node: Node, given: _Given) -> tuple[Node, Node | None]:
    """Return where a fault is, and the value to show: as deep as its path can be followed."""
    place: Node = node
    value: Node | None = None
    fields: _Given = given
    for step in fault.path:
        if isinstance(value, ListNode) and isinstance(step, int) and step < len(value.items):
            place = value = value.items[step]
        elif (pair := fields.get(str(step))) is not None:
            place = value = pair[1]
            if fault.code == Code.FIELD_UNKNOWN:
                place = pair[0]
        else:
            break
        fields = value.entries if isinstance(value, MapNode) else {}
    return place, value


_DEFAULTS = tuple(name for name, field in FIELDS.items() if field in Defaults.model_fields)


# --- calendars ---
# Reads the ``calendars:`` of a file: days off under a name, from a list or an .ics file.

OpenIcs = Callable[[str], str]
"""Returns the text of a calendar file by the name that is written in the schedule file.

Raises OSError or ValueError when it cannot.
"""

_EXAMPLE: Final = "{holidays: [2026-12-25, 2027-01-01], team: {ics: team.ics}}"


def read_calendars(node: Node | None, open_ics: OpenIcs | None, report: Report) -> dict[str, Any]:
    """Return the calendars by name, BROKEN for those whose problems have been reported."""
    if node is None or node.plain() is None:
        return {}
    if not isinstance(node, MapNode):
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
    from engine.schedules.timing.ics import read_ics  # noqa: PLC0415 - costs 50 ms, rarely needed

    try:
        return read_ics(open_ics(file))
    except OSError as error:
        raise refuse(
            f"{shorten(file)} cannot be read: {error.strerror}", "correct its name"
        ) from None
    except ValueError as error:
        what, cure = error.args if len(error.args) == len(("what", "cure")) else (error, "")
        raise refuse(f"{shorten(file)}: {what}", str(cure)) from None


# --- queues ---
# ``queues:``, how many steps may run at once, and how fast they may begin, by name.

MOST_AT_ONCE: Final = 10_000

_FIELDS: Final = ("concurrency", "rate")
_QUEUES_EXAMPLE: Final = "{concurrency: 5, rate: 100/1m}"


def read_queues(node: Node | None, report: Report) -> dict[str, Queue]:
    """Return the queues by name; what is wrong with one is reported, and it is left out."""
    if node is None or node.plain() is None:
        return {}
    if not isinstance(node, MapNode):
        if node.plain() is not BROKEN:
            message, cure = (
                f"queues is {show(node.plain())}",
                f"write {{emails: {_QUEUES_EXAMPLE}}}",
            )
            report.add(node, Code.FIELD_INVALID, message, cure, value=node)
        return {}
    found = {}
    for name, (written, value) in node.entries.items():
        with report.refusals(written):
            key_check("the name of a queue")(name)
        queue = _read(name, value, report)
        if queue is not None:
            found[name] = queue
    return found


def _read(name: str, node: Node, report: Report) -> Queue | None:
    owner = f"queue {shorten(name)}"
    if not isinstance(node, MapNode):
        if node.plain() is not BROKEN:
            message, cure = f"{owner} is {show(node.plain())}", f"write {_QUEUES_EXAMPLE}"
            report.add(node, Code.FIELD_INVALID, message, cure, value=node)
        return None
    if not node.entries:
        report.add(node, Code.FIELD_INVALID, f"{owner} has no limit", f"write {_QUEUES_EXAMPLE}")
        return None
    given = {
        field: value for field, (_, value) in read_fields(node, _FIELDS, owner, report).items()
    }
    checked: dict[str, Any] = {}
    for field, check in (("concurrency", _concurrency), ("rate", _rate)):
        if field in given and given[field].plain() is not BROKEN:
            with report.refusals(given[field]):
                checked[field] = check(f"{field} of {owner}", given[field].plain())
    return Queue(**checked) if checked else None


def _concurrency(what: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_AT_ONCE:
        return value
    raise refuse(f"{what} is {show(value)}", f"write a whole number from 1 to {MOST_AT_ONCE}")


def _rate(what: str, value: Any) -> Rate:
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except ValueError as error:
        raise refuse(f"{what} is {show(value)}", str(error)) from None
