"""Reads one schedule of a file, and the ``defaults:`` that schedules share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from engine.schedules import second_opinion
from engine.schedules.fields import FIELD_INVALID, shorten
from engine.schedules.model import FIELDS, FIELDS_ONLY, CatchUp, Defaults, Schedule
from engine.schedules.names import nearest
from engine.schedules.nodes import BROKEN, Mapping, Node, Scalar
from engine.schedules.report import Report
from engine.schedules.rules import Fault, is_local, relation_faults, spec_faults
from engine.schedules.sentences import faults_of

FIELD_UNKNOWN = "SCHEDULE_FIELD_UNKNOWN"
_FIELD_MISSING = "SCHEDULE_FIELD_MISSING"
_CRON_INVALID = "SCHEDULE_CRON_INVALID"
_CROWD = 200
_MERGED = ("metadata", "catchUp")
_CATCH_UP_FIELDS = tuple(CatchUp.model_fields)

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
        report.add(written, FIELD_UNKNOWN, message, cure, key=key, value=written)
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
            report.add(node, FIELD_INVALID, f"{name} has no value", cure, key=key)
            values[name] = BROKEN
    return values


class Shared:
    """The ``defaults:`` of a file, checked once, for every schedule of it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    @classmethod
    def read(cls, node: Mapping, report: Report) -> Shared:
        """Return what ``node`` says; fields that are wrong are reported and left out."""
        shared = cls()
        given = read_fields(node, _DEFAULTS, "defaults", report)
        values = plain_values(given, report, None)
        sound = {name: value for name, value in values.items() if value is not BROKEN}
        faults = _field_faults(Defaults, sound)
        if "timezone" in sound and not any(fault.path[:1] == ("timezone",) for fault in faults):
            faults += spec_faults({"timezone": sound["timezone"]})
        _report_faults(faults, node, given, report, None)
        wrong = {fault.path[0] for fault in faults}
        shared._values = {name: value for name, value in sound.items() if name not in wrong}
        return shared

    def complete(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return a schedule's values with the defaults for those it does not give."""
        if not self._values:
            return values
        merged = {**self._values, **values}
        for name in _MERGED:
            if isinstance(values.get(name), dict) and isinstance(self._values.get(name), dict):
                merged[name] = {**self._values[name], **values[name]}
        # A zone is of use to a local clock only; beside an offset it would contradict.
        at = values.get("at")
        clock = "cron" in values or (isinstance(at, str) and is_local(at))
        if "timezone" in merged and "timezone" not in values and not clock:
            del merged["timezone"]
        return merged


def read_schedule(node: Node, shared: Shared, report: Report) -> Schedule | None:
    """Return the schedule that ``node`` declares, or None after reporting what is wrong."""
    key = report.begin(node)
    if not isinstance(node, Mapping):
        if not isinstance(node, Scalar) or node.value is not BROKEN:
            cure = "write a mapping with key, workflow and one of everyMs, cron and at"
            report.add(node, FIELD_INVALID, "this is not a schedule", cure, value=node)
        return None
    given = read_fields(node, FIELDS, "a schedule", report, key)
    values = shared.complete(plain_values(given, report, key, nullable="input"))
    schedule = None
    faults: list[Fault] = []
    if BROKEN in values.values() or node.partial:
        faults = _all_faults(values)
    else:
        try:
            schedule = Schedule.model_validate(values, by_alias=True, by_name=False)
        except ValidationError:
            faults = _all_faults(values)
    faults += _second_opinion(values, faults)
    if node.partial:  # what seems to be missing may be in the part that could not be read
        faults = [fault for fault in faults if fault.path and fault.code != _FIELD_MISSING]
    _report_faults(faults, node, given, report, key)
    return None if faults else schedule


def _all_faults(values: dict[str, Any]) -> list[Fault]:
    """Return everything that is wrong: field by field, then between those that are sound."""
    sound = {name: value for name, value in values.items() if value is not BROKEN}
    faults = [
        fault
        for fault in _field_faults(Schedule, sound)
        if fault.code != _FIELD_MISSING or fault.path[0] not in values
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
    return [Fault(("cron",), _CRON_INVALID, doubt, "write it more plainly")] if doubt else []


def _report_faults(
    faults: Iterable[Fault], node: Mapping, given: _Given, report: Report, key: str | None
) -> None:
    for fault in faults:
        place, value = _locate(fault, node, given)
        message, cure = fault.message, fault.cure
        if fault.code == FIELD_UNKNOWN:  # only catchUp has fields of its own
            meant = nearest(str(fault.path[-1]), _CATCH_UP_FIELDS)
            message = f"{shorten(str(fault.path[-1]))} is not a field of {fault.path[0]}"
            cure = f"did you mean {meant.name}?" if meant else "write {policy: latest, window: 24h}"
        report.add(place, fault.code, message, cure, key=key, value=value)


def _locate(fault: Fault, node: Mapping, given: _Given) -> tuple[Node, Node | None]:
    """Return where a fault is, and the value to show: as deep as its path can be followed."""
    place: Node = node
    value: Node | None = None
    fields: _Given = given
    for step in fault.path:
        pair = fields.get(str(step))
        if pair is None:
            break
        place = value = pair[1]
        if fault.code == FIELD_UNKNOWN:
            place = pair[0]
        if not isinstance(value, Mapping):
            break
        fields = value.entries
    return place, value


_DEFAULTS = tuple(name for name, field in FIELDS.items() if field in Defaults.model_fields)
