"""Readers of the entries of a file: schedules, defaults, calendars, queues and webhooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from engine.errors import Code, extra_missing
from engine.schedules.hooks import HOOK_EXAMPLE, HOOK_FIELDS, HOOK_NEEDS, Hook
from engine.schedules.loader.nodes import ListNode, MapNode, Node, Report, Scalar, descend
from engine.schedules.model import DEFAULTS, FIELDS, NESTED, Queue, Schedule
from engine.schedules.rules import (
    BESIDE,
    KINDS,
    Fault,
    Neutral,
    Trait,
    all_faults,
    facts_of,
    faults_of,
    field_faults,
    fields_with,
    in_milliseconds,
    is_local,
    limit_faults,
    names_elsewhere,
    spec_faults,
    suggest,
)
from engine.schedules.terms import BROKEN
from engine.schedules.timing import croniter_check
from engine.schedules.timing.calendars import Calendar, is_item
from engine.schedules.validators import (
    RATE,
    Check,
    calendar_of,
    check_key,
    count,
    refuse,
    shorten,
    wrong,
)

# --- schedules and defaults ---
# Readers of one schedule, and of the ``defaults:`` that schedules share.

_CROWD = 200
_ELSEWHERE: Final = {**names_elsewhere(Schedule), "jobs": "schedules", "tasks": "schedules"}

_NO_DAYS = Calendar("broken", ())

_ANY_TIME: Final = {"everyMs": 1000}
"""Placeholder for unknown times, so that the rest of a schedule can be checked."""

# Fields of a mapping by their correct names: the name as written, and the value.
_Given = dict[str, tuple[Scalar, Node]]


def read_fields(
    node: MapNode, allowed: Iterable[str], owner: str, report: Report, key: str | None = None
) -> _Given:
    """Return the fields of ``node`` by their correct names; report the unknown ones.

    A field wrong only in case or punctuation is read as the known one. If it merely resembles a
    known one, that one counts as given, but its value is not checked: one mistake, one problem.
    """
    allowed = tuple(allowed)
    given: _Given = {name: pair for name, pair in node.entries.items() if name in allowed}
    if len(given) == len(node.entries):
        return given
    crowded = len(node.entries) > _CROWD  # guessing is slow, and this is not a schedule
    for name, (written, value) in node.entries.items():
        if name in given:
            continue
        # A schedule's field in the wrong place is not a misspelling.
        meant = None if name in FIELDS or crowded else suggest(name, allowed, _ELSEWHERE)
        hint = "write it in a schedule" if name in FIELDS else "remove it"
        if meant is not None:
            hint = meant.hint
        message = f"{shorten(name)} is not a field of {owner}"
        report.add(written, Code.FIELD_UNKNOWN, message, hint, key=key, value=written)
        if meant is not None and meant.name not in given:
            broken = Scalar(BROKEN, value.line, value.column)
            given[meant.name] = (written, value if meant.certain else broken)
    return given


def plain_values(
    given: _Given, report: Report, key: str | None, nullable: str = ""
) -> dict[str, Any]:
    """Return the values by name; BROKEN stands for a value whose problem has been reported."""
    values = {name: value.plain() for name, (_, value) in given.items()}
    for name, value in values.items():
        if value is None and name != nullable:
            node = given[name][1]
            hint = "write one, or remove the line"
            report.add(node, Code.FIELD_INVALID, f"{name} has no value", hint, key=key)
            values[name] = BROKEN
    return values


class Shared:
    """``defaults:`` of a file, checked once for all its schedules."""

    def __init__(self, calendars: dict[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        self._given: _Given = {}
        self._calendars = calendars or {}

    def read(self, node: MapNode, report: Report) -> None:
        """Store the fields of ``node``; invalid ones are reported and left out."""
        given = read_fields(node, DEFAULTS, "defaults", report)
        values = self._resolve(plain_values(given, report, None))
        sound = {name: value for name, value in values.items() if value is not BROKEN}
        faults = field_faults(Schedule, sound, partial=True)
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
        """Return ``fault`` with the default that causes it, or a similar calendar name.

        Args:
            fault: of a schedule.
            own: the fields that the schedule itself sets.
            values: all fields, including defaults.
        """
        fault = self._meant(fault, values.get("exclude"))
        name = str(fault.path[0]) if fault.path else ""
        if name in own or name not in self._values:
            return fault
        line = self._given[name][0].line
        hint = fault.hint
        for field, fact in facts_of(Schedule):
            if field == name and isinstance(fact, Neutral):
                hint = f"write {name}: {fact.text} here, or change the defaults"
        return replace(fault, message=f"{fault.message}, by defaults on line {line}", hint=hint)

    def _meant(self, fault: Fault, listed: Any) -> Fault:
        """Return ``fault``; for an item of ``exclude``, suggest the most similar calendar."""
        match fault.path:
            case ("exclude", int(index)) if isinstance(listed, list) and index < len(listed):
                item = listed[index]
                if isinstance(item, str) and not is_item(item):
                    meant = suggest(item, self._calendars)
                    return replace(fault, hint=meant.hint) if meant else fault
        return fault

    def _resolve(self, values: dict[str, Any]) -> dict[str, Any]:
        """Replace calendar names with calendars, so a definition does not depend on its file."""
        listed = values.get("exclude")
        if not isinstance(listed, list) or not self._calendars:
            return values
        found = [
            self._calendars.get(item, item) if isinstance(item, str) else item for item in listed
        ]
        # An empty calendar replaces a broken one, so that the other fields are still checked.
        sound = [_NO_DAYS if each is BROKEN else each for each in found]
        return {**values, "exclude": sound}

    def complete(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return a schedule's values, with defaults for the fields that it does not set."""
        values = self._resolve(values)
        if not self._values:
            return values
        merged = {**self._values, **values}
        for name in fields_with(Schedule, Trait.MERGED):
            own, default = (_written_out(name, of.get(name)) for of in (values, self._values))
            if isinstance(own, dict) and isinstance(default, dict):
                merged[name] = {**default, **own}
        useless = {*_useless(values, merged), *self._outvoted(values)} - values.keys()
        return {name: value for name, value in merged.items() if name not in useless}

    def _outvoted(self, own: dict[str, Any]) -> Iterator[str]:
        """Yield the default on open runs that contradicts a field which the schedule sets."""
        limit, policy = "maxConcurrentRuns", "overlap"
        for name, other in ((limit, policy), (policy, limit)):
            if other in own and limit_faults({**self._values, other: own[other]}):
                yield name


def _useless(own: Mapping[str, Any], merged: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that do not belong to a schedule of this kind."""
    kinds = own.keys() & {*KINDS} or {*KINDS}
    for trait, beside in BESIDE.items():
        if kinds.isdisjoint(beside):
            yield from fields_with(Schedule, trait)
    at = own.get("at")
    clock = "cron" in own or (isinstance(at, str) and is_local(at))
    by_clock = fields_with(Schedule, Trait.BY_CLOCK)
    if not clock and not ("everyMs" in own and any(map(merged.get, by_clock))):
        yield "timezone"  # would contradict the offset of an ``at``


def _written_out(name: str, value: Any) -> Any:
    """Return a single value as the mapping for which it stands."""
    short = NESTED[name].short if name in NESTED else ""
    plain = short and isinstance(value, str)
    return {short: value} if plain else value


def read_schedule(
    node: Node,
    shared: Shared,
    report: Report,
    taken: dict[str, Any] | None = None,
    *,
    timeless: bool = False,
) -> Schedule | None:
    """Return the schedule that ``node`` declares, or None after reporting its problems.

    Args:
        node: the schedule as written in the file.
        shared: the defaults of the file.
        report: collects the problems.
        taken: the when-part inherited from a parent, if any.
        timeless: whether the times that it would inherit are unknown. The result then has any
            times, and none of the fields that depend on them.
    """
    key = report.begin(node)
    if not isinstance(node, MapNode):
        if not isinstance(node, Scalar) or node.value is not BROKEN:
            hint = "write a mapping with key, workflow and one of every, everyMs, cron and at"
            report.add(node, Code.FIELD_INVALID, "this is not a schedule", hint, value=node)
        return None
    given = read_fields(node, FIELDS, "a schedule", report, key)
    own = in_milliseconds(plain_values(given, report, key, nullable="input"))
    inherits = not any(name in own for name in KINDS)  # a misspelt kind is one too
    values = shared.complete({**own, **(taken or {})} if inherits else {**own})
    apart: list[Fault] = []
    if timeless and inherits:
        values, apart = _without_times(values)
    schedule, faults = _validated(values, partial=node.partial)
    faults += apart + _second_opinion(values, faults)
    faults = [shared.explained(fault, given, values) for fault in faults]
    if node.partial:  # a missing field may be in the part that could not be read
        faults = [fault for fault in faults if fault.path and fault.code != Code.FIELD_MISSING]
    report_faults(faults, node, report, key, given)
    return None if faults else schedule


def _validated(values: dict[str, Any], *, partial: bool) -> tuple[Schedule | None, list[Fault]]:
    """Return the schedule of these values, or their faults; ``partial``: some are not known."""
    if BROKEN in values.values() or partial:
        return None, all_faults(Schedule, values)
    try:
        return Schedule.model_validate(values, by_alias=True, by_name=False), []
    except ValidationError as error:
        # Validate again in parts, so that one fault does not hide another.
        return None, all_faults(Schedule, values) or faults_of(error)


def _without_times(values: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return the values with any times in place of unknown ones, and the faults of what it drops.

    Dropped are the fields that depend on the times. Their faults are those that they have whatever
    the times are: a relation to the placeholder would be an invented one.
    """
    by_times = fields_with(Schedule, Trait.BY_TIMES)
    dropped = {
        name: value for name, value in values.items() if name in by_times and value is not BROKEN
    }
    faults = field_faults(Schedule, dropped, partial=True)
    wrong = {fault.path[0] for fault in faults}
    faults += spec_faults({name: value for name, value in dropped.items() if name not in wrong})
    rest = {name: value for name, value in values.items() if name not in by_times}
    return {**rest, **_ANY_TIME}, faults


def _second_opinion(values: dict[str, Any], faults: list[Fault]) -> list[Fault]:
    """Return a fault if croniter parses a valid cron expression differently."""
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
    """Report faults, each as close to its place below ``node`` as its path leads.

    ``given`` holds the fields of ``node`` by their correct names, if some are misspelt.
    """
    if given is None:
        given = node.entries if isinstance(node, MapNode) else {}
    for fault in faults:
        place, value = _locate(fault, node, given)
        message, hint = fault.message, fault.hint
        if fault.code == Code.FIELD_UNKNOWN:  # a nested field
            name, owner = str(fault.path[-1]), str(fault.path[0])
            meant = suggest(name, [*map(to_camel, NESTED[owner].model_fields)])
            message = f"{shorten(name)} is not a field of {owner}"
            hint = meant.hint if meant else f"write {NESTED[owner].example}"
        report.add(place, fault.code, message, hint, key=key, value=value)


def _locate(fault: Fault, node: Node, given: _Given) -> tuple[Node, Node | None]:
    """Return the place of a fault and the value to show, as deep as its path leads."""
    first, *inner = fault.path or ("",)
    if str(first) not in given:
        return node, None
    field = given[str(first)][1]
    value = descend(field, inner)
    if fault.code == Code.FIELD_UNKNOWN:  # its name is wrong, not its value
        around = descend(field, inner[:-1])
        if isinstance(around, MapNode) and str(inner[-1]) in around.entries:
            return around.entries[str(inner[-1])][0], value
    return value, value


# --- calendars ---
# Reader of ``calendars:``: named days off, from a list or an .ics file.

OpenIcs = Callable[[str], str]
"""Function from the name of a calendar file, as in the schedule file, to the file's text.

It raises OSError or ValueError on failure.
"""

_EXAMPLE: Final = "{holidays: [2026-12-25, 2027-01-01], team: {ics: team.ics}}"


def read_calendars(node: Node | None, open_ics: OpenIcs | None, report: Report) -> dict[str, Any]:
    """Return the calendars by name; BROKEN stands for one whose problem has been reported."""
    found: dict[str, Any] = {}
    for name, (written, value) in _entries(node, "calendars", _EXAMPLE, report):
        found[name] = BROKEN
        with report.refusals(written):
            _check_name(name)
        plain = value.plain()
        if plain is not BROKEN:
            with report.refusals(value):
                found[name] = calendar_of(name, _dates(name, plain, open_ics))
    return found


def _entries(
    node: Node | None, name: str, example: str, report: Report
) -> Iterable[tuple[str, tuple[Scalar, Node]]]:
    """Return the entries of a mapping in the file; what is none is reported."""
    if isinstance(node, MapNode):
        return node.entries.items()
    if node is not None and node.plain() is not None:
        report.add_wrong(node, name, f"write {example}")
    return ()


def _check_name(name: str) -> None:
    if is_item(name):
        raise refuse(f"a calendar is called {name}", "give it a name that is no day")
    check_key(name, "the name of a calendar")


def _dates(name: str, value: Any, open_ics: OpenIcs | None) -> Any:
    if not isinstance(value, dict):
        return value
    file = value.get("ics")
    if value.keys() != {"ics"} or not isinstance(file, str):
        raise wrong(f"calendar {shorten(name)}", value, f"write {_EXAMPLE}")
    if "://" in file:
        raise refuse(f"{shorten(file)} is an address", "save the calendar here, and name that file")
    if open_ics is None:
        raise refuse(f"calendar {shorten(name)} names a file", "load the schedules from a file too")
    if missing := extra_missing("calendars", f"calendar {shorten(name)}"):
        raise refuse(missing.message, missing.hint or "", missing.code)
    from engine.schedules.timing.ics import read_ics  # noqa: PLC0415 - an extra

    try:
        return read_ics(open_ics(file))
    except OSError as error:
        what = f"{shorten(file)} cannot be read: {error.strerror}"
        raise refuse(what, "correct its name") from None
    except ValueError as error:
        what, hint = error.args if len(error.args) == len(("what", "hint")) else (error, "")
        raise refuse(f"{shorten(file)}: {what}", str(hint)) from None


# --- queues and webhooks ---
# Readers of ``queues:``, limits of steps by name, and of ``hooks:``, addresses that get events.

QUEUE_FIELDS: Final[Mapping[str, Check]] = {
    "concurrency": count(10_000),
    "perKey": count(10_000),
    "rate": RATE,
}
"""Limits of a queue, each with its check."""

_QUEUES_EXAMPLE: Final = "{concurrency: 5, rate: 100/1m}"
_PER_KEY_EXAMPLE: Final = "{concurrency: 5, perKey: 1}"


def _checked(
    node: MapNode, checks: Mapping[str, Check], owner: str, report: Report, *, secret: bool
) -> dict[str, Any]:
    """Return the valid fields of a mapping; problems of a ``secret`` one stand at the names."""
    checked: dict[str, Any] = {}
    for name, (written, value) in read_fields(node, checks, owner, report).items():
        plain = value.plain()
        with report.refusals(written if secret else value):
            if plain is not BROKEN:
                checked[name] = checks[name].of(plain, f"{name} of {owner}")
    return checked


def read_queues(node: Node | None, report: Report) -> dict[str, Queue]:
    """Return the queues by name; invalid limits are reported and left out."""
    found = {}
    example = f"{{emails: {_QUEUES_EXAMPLE}}}"
    for name, (written, value) in _entries(node, "queues", example, report):
        with report.refusals(written):
            check_key(name, "the name of a queue")
        limits = _limits(f"queue {shorten(name)}", value, report)
        if limits:
            found[name] = Queue(**limits)
    return found


def _limits(owner: str, node: Node, report: Report) -> dict[str, Any]:
    if not isinstance(node, MapNode):
        report.add_wrong(node, owner, f"write {_QUEUES_EXAMPLE}")
        return {}
    if not node.entries:
        report.add(node, Code.FIELD_INVALID, f"{owner} has no limit", f"write {_QUEUES_EXAMPLE}")
    limits = _checked(node, QUEUE_FIELDS, owner, report, secret=False)
    if "perKey" in node.entries and "concurrency" not in node.entries:
        message = f"{owner} has perKey, which shares out the places of a concurrency"
        place = node.entries["perKey"][1]
        report.add(place, Code.FIELD_INVALID, message, f"write {_PER_KEY_EXAMPLE}")
    return {"per_key" if name == "perKey" else name: each for name, each in limits.items()}


def read_hooks(node: Node | None, report: Report) -> tuple[Hook, ...]:
    """Return the webhooks in their order; invalid ones are reported and left out.

    Problems stand at the name of a field, because its value may be a secret.
    """
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return ()
    if not isinstance(node, ListNode):
        report.add_wrong(node, "hooks", f"write {HOOK_EXAMPLE}")
        return ()
    found: dict[str, Hook] = {}
    for number, item in enumerate(node.items, 1):
        hook = _read_hook(f"hook {number}", item, report)
        if hook is None:
            continue
        if hook.label in found:
            message, hint = f"hook {number} has the url of another one", "write both as one"
            report.add(item, Code.FIELD_INVALID, message, hint)
        found.setdefault(hook.label, hook)
    return tuple(found.values())


def _read_hook(owner: str, node: Node, report: Report) -> Hook | None:
    if not isinstance(node, MapNode):
        report.add(node, Code.FIELD_INVALID, f"{owner} is no mapping", f"write {HOOK_EXAMPLE}")
        return None
    checked = _checked(node, HOOK_FIELDS, owner, report, secret=True)
    for name in HOOK_NEEDS:
        if name not in node.entries:
            message, hint = f"{owner} has no {name}", f"write {HOOK_EXAMPLE}"
            report.add(node, Code.FIELD_MISSING, message, hint)
    return Hook(**checked) if {*HOOK_NEEDS} <= checked.keys() else None
