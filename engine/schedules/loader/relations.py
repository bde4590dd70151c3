"""Checks across schedules: chains, other relations and expectations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from engine.errors import Code
from engine.schedules.model import Schedule
from engine.schedules.rules import KINDS, Fault, error_of, suggest
from engine.schedules.terms import SECONDS_PER_DAY, TICK, Rule, first_of, from_seconds
from engine.schedules.timing.cron_parser import depends_on_key
from engine.schedules.timing.spec import At
from engine.schedules.timing.zones import zone

# --- chains of schedules ---
# Rules between schedules that follow each other by `after` and `needs`. They apply to the
# schedules of a whole project; the caller knows the files and places.

_GUESSED: Final = 5000
"""Maximum keys searched for the one that a misspelt key stands for: guessing is slow."""


def chain_faults(
    schedules: Sequence[Schedule], keys: Collection[str] | None, timeless: Collection[str] = ()
) -> Iterator[tuple[str, Fault]]:
    """Yield the faults between schedules, each with the key of its schedule.

    Args:
        schedules: those that are valid by themselves, in file order.
        keys: of all schedules, valid or not; None if not all of them could be read.
        timeless: keys of schedules whose times are unknown.
    """
    known = {schedule.key: schedule for schedule in schedules}
    yield from _rename_faults(schedules, known if keys is None else keys)
    for schedule in schedules:
        for path, rule in rule_paths(schedule):
            fault = _name_fault(schedule, rule, path, keys)
            if fault is None and not {schedule.key, rule.parent} & {*timeless}:
                fault = _time_fault(schedule, rule, path, known)
            if fault is not None:
                yield schedule.key, fault
    yield from _cycles(known)


def _rename_faults(
    schedules: Sequence[Schedule], keys: Collection[str]
) -> Iterator[tuple[str, Fault]]:
    """Yield the former keys that a schedule of the file still has, or that two claim."""
    heirs: dict[str, str] = {}
    for schedule in schedules:
        if schedule.was is None:
            continue
        heir = heirs.setdefault(schedule.was, schedule.key)
        if schedule.was in keys:
            message = f"{schedule.was} is the key of a schedule"
            hint = "remove that one, or write the key that this one had before"
        elif heir != schedule.key:
            message = f"{schedule.was} became {heir}"
            hint = "remove was: from one of the two"
        else:
            continue
        yield schedule.key, Fault(("was",), Code.FIELD_INVALID, message, hint)


def with_present_parents(schedules: Sequence[Schedule]) -> list[Schedule]:
    """Return the schedules with the present keys of parents that they name by former ones."""
    present = {schedule.was: schedule.key for schedule in schedules if schedule.was}
    return [
        schedule
        if present.keys().isdisjoint(rule.parent for rule in schedule.follows)
        else with_parents(schedule, present)
        for schedule in schedules
    ]


def with_parents(schedule: Schedule, present: Mapping[str, str]) -> Schedule:
    """Return a schedule that names its parents by their present keys, by former ones."""
    changed: dict[str, Any] = {}
    if after := schedule.after:
        parent = present.get(after.schedule, after.schedule)
        changed["after"] = after.model_copy(update={"schedule": parent})
    if schedule.needs:
        changed["needs"] = tuple(present.get(key, key) for key in schedule.needs)
    return schedule.model_copy(update=changed)


def require_fitting(schedules: Sequence[Schedule], key: str) -> None:
    """Check one of these schedules against its parents, all of which are among them.

    Raises:
        ParentUnknown, ParentCycle, ParentTimesDiffer, ScheduleError: the first fault.
    """
    for found, fault in chain_faults(schedules, {each.key for each in schedules}):
        if found == key:
            raise error_of(fault.code, fault.message, fault.hint)


def rule_paths(schedule: Schedule) -> Iterator[tuple[tuple[str | int, ...], Rule]]:
    """Yield the rules of a schedule, each with the path of the field that names its parent."""
    number = -1 if schedule.after else 0
    for rule in schedule.follows:
        yield (("after", "schedule") if number < 0 else ("needs", number)), rule
        number += 1


def _name_fault(
    schedule: Schedule, rule: Rule, path: tuple[str | int, ...], keys: Collection[str] | None
) -> Fault | None:
    if rule.parent == schedule.key:
        return Fault(
            path, Code.PARENT_CYCLE, "the schedule waits for itself", "name another, or remove it"
        )
    after = schedule.after
    if path[0] == "needs" and after is not None and rule.parent == after.schedule:
        message = f"{rule.parent} is in after and in needs"
        return Fault(path, Code.FIELD_INVALID, message, "keep one of the two")
    if keys is not None and rule.parent not in keys:
        meant = suggest(rule.parent, keys) if len(keys) <= _GUESSED else None
        hint = meant.hint if meant else "name a schedule of this project"
        return Fault(path, Code.PARENT_UNKNOWN, f"no schedule has the key {rule.parent}", hint)
    return None


def _time_fault(
    schedule: Schedule, rule: Rule, path: tuple[str | int, ...], known: Mapping[str, Schedule]
) -> Fault | None:
    parent = known.get(rule.parent)
    if parent is None:  # the parent itself is invalid
        return None
    if parent.kind == "at" and schedule.kind != "at":
        message = f"{parent.key} fires once, and {schedule.key} again and again"
        return Fault(path, Code.PARENT_TIMES_DIFFER, message, "name a schedule that continues")
    if rule.window == "same" and fire_times(parent) != fire_times(schedule):
        message = (
            f"{schedule.key} fires {_times(schedule)}, its parent {parent.key} {_times(parent)}"
        )
        by_key = any(depends_on_key(each.cron or "") for each in (parent, schedule))
        hint = "write the same times for both, or after: {schedule: …, window: latest}"
        if by_key:
            hint = "write the time instead of H, which is another one for each key"
        return Fault(path, Code.PARENT_TIMES_DIFFER, message, hint)
    return None


def fire_times(schedule: Schedule) -> tuple[Any, ...]:
    """Return the values that determine the fire times, to compare two schedules."""
    bounds: tuple[Any, ...] = (schedule.start, schedule.end)
    if isinstance(schedule.spec, At):
        return ("at", schedule.spec.instant)
    if schedule.every_ms is not None:
        zone = schedule.timezone if any(bounds) else None
        return (
            "interval",
            schedule.every_ms,
            schedule.offset_ms % schedule.every_ms,
            *bounds,
            zone,
        )
    cron = " ".join((schedule.cron or "").upper().split())
    key = schedule.seed if depends_on_key(cron) else None
    return ("cron", cron, schedule.timezone, schedule.dst, *bounds, key)


def _times(schedule: Schedule) -> str:
    """Return when a schedule fires, in words, with everything that `fire_times` compares."""
    parts = [schedule.when]
    if schedule.kind == "cron":
        parts = [f"'{schedule.when}' {schedule.timezone}"]
        if schedule.dst != "standard":
            parts.append(f"dst {schedule.dst.gap}/{schedule.dst.fold}")
    parts += [f"{name} {value}" for name in ("start", "end") if (value := getattr(schedule, name))]
    return ", ".join(parts)


def _cycles(known: Mapping[str, Schedule]) -> Iterator[tuple[str, Fault]]:
    """Yield each cycle once, at the schedule that closes it, searching in file order."""
    done: set[str] = set()
    for start in known:
        trail: dict[str, Iterator[tuple[tuple[str | int, ...], Rule]]] = {}
        key: str | None = start if start not in done else None
        while key is not None:
            trail.setdefault(key, rule_paths(known[key]))
            path, rule = next(trail[key], ((), None))
            if rule is None:  # all its rules are checked
                done.add(key)
                del trail[key]
                key = next(reversed(trail), None)
            elif rule.parent in trail and rule.parent != key:
                names = [*trail][[*trail].index(rule.parent) :]
                shown = " → ".join([*names, rule.parent])
                message = f"the schedules wait for each other: {shown}"
                yield key, Fault(path, Code.PARENT_CYCLE, message, "let one of them go first")
            elif rule.parent in known and rule.parent not in done and rule.parent != key:
                key = rule.parent


def inherited(values: Mapping[str, Any], known: Mapping[str, Schedule]) -> dict[str, Any] | None:
    """Return the when-part that a schedule without one takes from its parents.

    Args:
        values: the fields that it sets, by their file names.
        known: the schedules with known times, by key.

    Returns:
        The fields, without those that it sets itself; None if no parent is known yet.
    """
    parent = next((known[key] for key in parents_of(values) if key in known), None)
    if parent is None:
        return None
    return {name: value for name, value in parent.declared_when.items() if name not in values}


def takes_times(values: Mapping[str, Any]) -> bool:
    """Return whether a schedule of these fields has no times of its own, and names parents."""
    return not any(name in values for name in KINDS) and any(parents_of(values))


def parents_of(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the readable parents that raw values name, those of the same window first."""
    after, needs = values.get("after"), values.get("needs")
    first = [after] if isinstance(after, dict) and isinstance(after.get("schedule"), str) else []
    listed = needs if isinstance(needs, list) else []
    yield from (each["schedule"] for each in first if each.get("window", "same") == "same")
    yield from (key for key in listed if isinstance(key, str))
    yield from (each["schedule"] for each in first if each.get("window", "same") != "same")


# --- expectations ---
# Comparison of a schedule's ``expect:`` with its fires.

_SHOWN: Final = 5


def unmet(schedule: Schedule) -> list[Fault]:
    """Return a fault for each day on which the fires differ from the expected ones."""
    faults = []
    for index, expected in enumerate(schedule.expect):
        times = local_times(schedule, expected.on)
        wanted = [time if time.count(":") > 1 else f"{time}:00" for time in expected.fires]
        if times != wanted:
            message = f"on {expected.on} it fires {_listed(times)}, not {_listed(wanted)}"
            hint = "correct the schedule or the expectation"
            faults.append(Fault(("expect", index), Code.EXPECTATION_FAILED, message, hint))
    return faults


def local_times(schedule: Schedule, day: str) -> list[str]:
    """Return the local times, as ``03:00:00``, of the windows of one local day that start runs."""
    rules = zone(schedule.timezone)
    midnight = int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())
    # A local day has 22 to 26 hours, and a clock that goes back may begin it twice.
    begin, end = midnight - SECONDS_PER_DAY, midnight + 2 * SECONDS_PER_DAY
    local = (
        fire + timedelta(seconds=rules.offset(int(fire.timestamp())))
        for fire in schedule.starts(from_seconds(begin) - TICK, from_seconds(end))
    )
    return [f"{moment:%H:%M:%S}" for moment in local if f"{moment:%Y-%m-%d}" == day]


def _listed(times: list[str]) -> str:
    if not times:
        return "never"
    return f"at {first_of([time.removesuffix(':00') for time in times], _SHOWN)}"
