"""Reads one schedule of a file, and the ``defaults:`` that schedules share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from engine.errors import Code
from engine.schedules import second_opinion
from engine.schedules.catch_up import CatchUp
from engine.schedules.defaults import Defaults
from engine.schedules.exclusions import Calendar, is_item
from engine.schedules.fields import shorten
from engine.schedules.follow import After
from engine.schedules.model import FIELDS, FIELDS_ONLY, Schedule
from engine.schedules.names import nearest
from engine.schedules.nodes import BROKEN, Mapping, Node, Scalar, Sequence
from engine.schedules.report import Report
from engine.schedules.retention import Retention
from engine.schedules.rules import (
    BY_CLOCK,
    Fault,
    is_local,
    limit_faults,
    relation_faults,
    spec_faults,
)
from engine.schedules.sentences import faults_of
from engine.schedules.when_fields import Expectation

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
    node: Mapping, allowed: Iterable[str], owner: str, report: Report, key: str | None = None
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

    def read(self, node: Mapping, report: Report) -> None:
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
    if not isinstance(node, Mapping):
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
    doubt = second_opinion.disagreement(cron)
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
        given = node.entries if isinstance(node, Mapping) else {}
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
        if isinstance(value, Sequence) and isinstance(step, int) and step < len(value.items):
            place = value = value.items[step]
        elif (pair := fields.get(str(step))) is not None:
            place = value = pair[1]
            if fault.code == Code.FIELD_UNKNOWN:
                place = pair[0]
        else:
            break
        fields = value.entries if isinstance(value, Mapping) else {}
    return place, value


_DEFAULTS = tuple(name for name, field in FIELDS.items() if field in Defaults.model_fields)
