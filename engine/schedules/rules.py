"""Traits of fields, and rules between the fields of one schedule."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Flag
from functools import cache, lru_cache
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from engine.errors import Code, ScheduleError, nearest, question
from engine.schedules.terms import BROKEN, LOOKS, LOOKS_AT_ONCE, STOPS, format_duration
from engine.schedules.timing.spec import At, Cron, Interval, Spec, bounded, moment
from engine.schedules.timing.zones import zone
from engine.schedules.validators import interval, refuse, shorten, show

# --- traits of fields ---
# A model has all that is known of a field in one place: type, check, default and sentence, and the
# traits by which loader, schema, simulation, comparisons and imports find it.


class Trait(Flag):
    """Property of a field. Some imply others."""

    SHARED = 1  # may stand below ``defaults``
    MERGED = 2 | SHARED  # and is merged with the default name by name
    STARTS = 4  # decides when runs start
    LINE = 8  # does so too where the length of runs is known
    CHOOSES = 16 | STARTS  # decides which windows start
    BY_TIMES = 32  # is right or wrong only together with the times of the schedule
    TIMES = 64 | CHOOSES | BY_TIMES  # determines the fire times
    OF_INTERVAL = 128  # stands beside an interval only
    OF_CRON = 256  # stands beside a cron only
    BY_CLOCK = 512  # stands beside no moment; an interval needs a timezone for it
    GIVES_TIMES = 1024  # names a parent, whose times a schedule without times of its own takes


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Names of a field in other schedulers, in small letters and digits."""

    words: str


@dataclass(frozen=True, slots=True)
class Neutral:
    """Value by which a schedule overrides a default that does not suit it."""

    text: str


@cache
def fields_with(model: type[BaseModel], trait: Trait) -> tuple[str, ...]:
    """Return the fields that have a trait, by their names in a file, in the order of the model."""
    return tuple(
        name for name, each in facts_of(model) if isinstance(each, Trait) and trait in each
    )


def facts_of(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """Yield what stands beside the type of each field, with the field's name in a file."""
    for name, field in model.model_fields.items():
        yield from ((field.alias or name, each) for each in field.metadata)


@cache
def names_elsewhere(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the fields by the names that they have in other schedulers."""
    facts = ((name, each) for name, each in facts_of(model) if isinstance(each, Elsewhere))
    return {word: name for name, each in facts for word in each.words.split()}


# --- rules between fields ---
# The rules take values as declared, by their names in a file, so that the loader can check them
# even if another field of the schedule is wrong.

KINDS: Final = ("every", "everyMs", "cron", "at")
"""Fields that define the fire times, of which a schedule has exactly one."""

_VERSIONED = re.compile(r"[^@]+@[0-9]{1,9}(?:\.[0-9]{1,9}){0,9}")
_OFFSET = re.compile(r"(?:Z|[+-][0-9]{2}:?[0-9]{2})\Z")
BESIDE: Final[Mapping[Trait, tuple[str, ...]]] = {
    Trait.OF_INTERVAL: KINDS[:2],
    Trait.OF_CRON: ("cron",),
    Trait.BY_CLOCK: KINDS[:3],
}
"""Kinds beside which fields of a trait may stand."""

_KEEP_ONE = "keep exactly one of every, everyMs, cron and at"


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a schedule, at the path of a field; () is the schedule itself."""

    path: tuple[str | int, ...]
    code: Code
    message: str
    hint: str


def in_milliseconds(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with a valid ``every`` as the ``everyMs`` that it means.

    Definitions have ``everyMs`` only, however the interval was written. An ``every`` beside another
    field of its kind, or with an invalid value, stays, so that its fault is reported by its name.
    """
    every = given.get("every")
    if every is None or any(name in given for name in (*KINDS[1:], "every_ms")):
        return given
    try:
        length = interval(every)
    except PydanticCustomError:
        return given
    rest = {name: value for name, value in given.items() if name != "every"}
    return {**rest, "everyMs": length // timedelta(milliseconds=1)}


def is_local(at: str) -> bool:
    """Return whether a moment has no offset of its own, so that it needs a timezone."""
    return _OFFSET.search(at) is None


def relation_faults(model: type[BaseModel], given: Mapping[str, Any]) -> list[Fault]:
    """Return the faults between fields; ``given`` holds BROKEN for values that are not checked."""
    faults = []
    kinds = [name for name in given if name in KINDS]
    if not kinds and any(
        given.get(name) is BROKEN for name in fields_with(model, Trait.GIVES_TIMES)
    ):
        pass  # its times come from its parents, whose fault is reported already
    elif not kinds:
        hint = "give one of every, everyMs, cron and at"
        faults.append(Fault((), Code.KIND_INVALID, "the schedule does not say when it fires", hint))
    elif len(kinds) > 1:
        message = f"{' and '.join(kinds)} are given together"
        faults.append(Fault((kinds[1],), Code.KIND_INVALID, message, _KEEP_ONE))
    else:
        faults += _beside_faults(model, kinds[0], given)
    faults += _spread_faults(given) + limit_faults(given) + _interval_faults(given)
    faults += _shadow_faults(given)
    workflow = given.get("workflow")
    if isinstance(workflow, str) and "@" in workflow and given.get("external", False) is False:
        faults += _workflow_faults(workflow)
    return faults


def _beside_faults(model: type[BaseModel], kind: str, given: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the fault of each field that does not belong to a schedule of this kind."""
    for trait, kinds in BESIDE.items():
        for name in fields_with(model, trait):
            if name in given and kind not in kinds:
                what = f"schedule with {kind}" if trait != Trait.BY_CLOCK else "single moment"
                message = f"{name} does not belong to a {what}"
                yield Fault((name,), Code.FIELD_INVALID, message, "remove it")
    by_clock = fields_with(model, Trait.BY_CLOCK)
    if (
        "timezone" in given
        and kind in BESIDE[Trait.OF_INTERVAL]
        and not any(map(given.get, by_clock))
    ):
        message = "an interval without start, end or exclude has no timezone"
        hint = "remove it, or use cron"
        yield Fault(("timezone",), Code.FIELD_INVALID, message, hint)


def _spread_faults(given: Mapping[str, Any]) -> list[Fault]:
    spread, every = given.get("spread"), given.get("everyMs")
    if not isinstance(spread, timedelta) or not isinstance(every, int):
        return []
    if spread <= timedelta(milliseconds=every):
        return []
    hint = f"write at most {format_duration(timedelta(milliseconds=every))}"
    return [Fault(("spread",), Code.FIELD_INVALID, "spread is longer than the interval", hint)]


def _interval_faults(given: Mapping[str, Any]) -> list[Fault]:
    """Return the fault of waits in a list for a workflow that cannot ask for them."""
    retry = given.get("retry")
    if isinstance(retry, Mapping):
        listed = retry.get("intervals")
    else:
        listed = getattr(retry, "intervals", None)
    if not listed or given.get("external") is not True:
        return []
    message = "retry.intervals is given for an external workflow, and only workflows of this engine"
    message += " ask Temporal for the next wait"
    hint = "write initial, coefficient and max"
    return [Fault(("retry", "intervals"), Code.RETRY_POLICY_INVALID, message, hint)]


def _shadow_faults(given: Mapping[str, Any]) -> list[Fault]:
    """Return the fault of an end of shadow mode: it needs that mode, and an offset."""
    until, mode = given.get("shadowUntil"), given.get("mode", "live")
    if not isinstance(until, str):
        return []
    path = ("shadowUntil",)
    if mode == "live":
        message = "shadowUntil is given, and the mode is not shadow"
        return [Fault(path, Code.FIELD_INVALID, message, "add mode: shadow, or remove it")]
    hint = 'write a moment with its offset, for example "2027-01-01T09:00:00Z"'
    if is_local(until):
        message = f"shadowUntil is {show(until)}, without an offset"
        return [Fault(path, Code.FIELD_INVALID, message, hint)]
    found = _refused("shadowUntil", moment, "shadowUntil", until, "UTC")
    return [replace(fault, hint=hint) for fault in found]


def limit_faults(given: Mapping[str, Any]) -> list[Fault]:
    """Return the fault of ``maxConcurrentRuns`` if it does not fit ``overlap``."""
    most, policy = given.get("maxConcurrentRuns"), given.get("overlap")
    if not isinstance(most, int) or not isinstance(policy, str):
        return []
    if policy == "allow":
        message = f"maxConcurrentRuns is {most}, and overlap allow sets no limit"
        hint = "remove one of them"
    elif policy in LOOKS and most > LOOKS_AT_ONCE:
        message = f"maxConcurrentRuns is {most}, and overlap {policy} looks at each of them first"
        hint = f"write {LOOKS_AT_ONCE} or less, or overlap: queue"
    elif policy in STOPS and most > 1:
        message = f"maxConcurrentRuns is {most}, and with overlap {policy} it is not known which"
        message += f" of {most} runs is the previous one"
        hint = "write overlap: queue, queue_one or skip"
    else:
        return []
    return [Fault(("maxConcurrentRuns",), Code.FIELD_INVALID, message, hint)]


def _workflow_faults(workflow: str) -> list[Fault]:
    if _VERSIONED.fullmatch(workflow):
        return []
    message = f"workflow is {show(workflow)}, whose version is not dotted numbers"
    hint = "write name@1 or name@1.2, or external: true for a Temporal type as written"
    return [Fault(("workflow",), Code.FIELD_INVALID, message, hint)]


def build_spec(given: Mapping[str, Any]) -> Spec:
    """Return the when-part; exactly one of the three kinds must be given.

    Raises:
        ScheduleError: the values are not a valid interval, cron or moment.
    """
    timezone = given.get("timezone", "UTC")
    if "at" in given:
        return At(given["at"], timezone=given.get("timezone"))
    spec: Spec
    if "everyMs" in given:
        zone(timezone)  # checks the zone of its bounds and exclusions
        spec = Interval(given["everyMs"], given.get("offsetMs", 0))
    else:
        dst = given.get("dst", "standard")
        spec = Cron(given["cron"], timezone=timezone, dst=dst, key=given.get("was") or given["key"])
    return bounded(spec, given.get("start"), given.get("end"), timezone)


def spec_faults(given: Mapping[str, Any]) -> list[Fault]:
    """Return the faults of the when-part; timezone and expression are checked separately."""
    faults: list[Fault] = []
    kinds = [name for name in given if name in KINDS]
    sound = {name: value for name, value in given.items() if value is not BROKEN}
    if isinstance(sound.get("timezone"), str):
        faults += _refused("timezone", zone, sound["timezone"])
    if faults or given.get("timezone") is BROKEN:
        sound["timezone"] = "UTC"
    for kind in kinds:
        value = sound.get(kind)  # the field's own check is all that an interval needs
        if isinstance(value, str) and kind == "cron":
            faults += _refused(kind, Cron, value, key=str(sound.get("key", "")))
        elif isinstance(value, str) and kind == "at":
            faults += _refused(kind, At, value, timezone=sound.get("timezone"))
    bounds = [name for name in ("start", "end") if isinstance(sound.get(name), str)]
    for name in bounds:
        faults += _refused(name, moment, name, sound[name], sound.get("timezone", "UTC"))
    if bounds and not faults and len(kinds) == 1 and BROKEN not in given.values():
        faults += _refused(bounds[-1], build_spec, sound)  # no fire between them
    return faults


def _refused(field: str, read: Callable[..., Any], *values: Any, **more: Any) -> list[Fault]:
    """Return the fault of a field if it cannot be read."""
    try:
        read(*values, **more)
    except ScheduleError as error:
        return [Fault((field,), error.code, error.message, error.hint or "")]
    return []


def error_of(code: Code, message: str, hint: str | None = None) -> ScheduleError:
    """Return the error with this code, of its own class if it has one."""
    classes = (each for each in ScheduleError.__subclasses__() if each.code == code)
    return next(classes, ScheduleError)(message, hint=hint, code=code)


# --- pydantic errors ---
# Conversion of pydantic's errors to faults and back: users read about fields, not about models.


FIELDS_ONLY: Final = {"check": "fields only"}
"""Validation context that checks each field, but neither their relations nor the when-part."""


def faults_of(error: ValidationError) -> list[Fault]:
    """Return a validation error as faults in plain words."""
    return [_as_fault(dict(line)) for line in error.errors(include_url=False)]


def field_faults(
    model: type[BaseModel], values: Mapping[str, Any], *, partial: bool = False
) -> list[Fault]:
    """Return the faults of single fields; if ``partial``, those of the values alone."""
    try:
        model.model_validate(values, by_alias=True, by_name=False, context=FIELDS_ONLY)
    except ValidationError as error:
        faults = faults_of(error)
        return [each for each in faults if not partial or {*each.path[:1]} & values.keys()]
    return []


def all_faults(model: type[BaseModel], values: Mapping[str, Any]) -> list[Fault]:
    """Return all faults of a schedule: of fields, then of relations between the valid ones.

    A validation in one piece would leave out the relations if a field is wrong.
    """
    sound = {name: value for name, value in values.items() if value is not BROKEN}
    faults = [
        _with_near(fault, model)
        for fault in field_faults(model, sound)
        # A field with a reported problem is not missing; a field nested in it may be.
        if fault.code != Code.FIELD_MISSING or len(fault.path) > 1 or fault.path[0] not in values
    ]
    wrong = {fault.path[0] for fault in faults}
    judged = {name: BROKEN if name in wrong else value for name, value in values.items()}
    return faults + relation_faults(model, judged) + spec_faults(judged)


def _with_near(fault: Fault, model: type[BaseModel]) -> Fault:
    """Return the fault of an unknown field with the name that was probably meant."""
    if fault.code != Code.FIELD_UNKNOWN or len(fault.path) > 1:
        return fault
    known = [each.alias or name for name, each in model.model_fields.items()]
    meant = suggest(str(fault.path[0]), known, names_elsewhere(model))
    return replace(fault, hint=meant.hint) if meant else fault


_MOST_NAMED: Final = 20


def as_error(faults: Sequence[Fault]) -> ScheduleError:
    """Return the error with all of these faults, which has the code of the first."""
    texts = [f"{each.message}; {each.hint}".rstrip("; ") for each in faults[:_MOST_NAMED]]
    return error_of(faults[0].code, "; ".join(texts))


def _as_fault(line: dict[str, Any]) -> Fault:
    path, code, context = tuple(line["loc"]), line["type"], line.get("ctx", {})
    name = str(path[-1]) if path else "the schedule"
    if code.startswith("SCHEDULE_"):
        return Fault(path, Code(code), context["message"], context["hint"])
    if code == "missing":
        example = {
            "key": "key: nightly-report",
            "workflow": "workflow: daily-report",
            "schedule": "schedule: nightly-extract",
        }.get(name, name)
        return Fault(path, Code.FIELD_MISSING, f"{name} is missing", f"add {example}")
    if code == "extra_forbidden":
        return Fault(path, Code.FIELD_UNKNOWN, f"{name[:80]} is not a field", "remove it")
    # Fallback: every field should have a check of its own.
    return Fault(path, Code.FIELD_INVALID, f"{name} is {show(line['input'])}", "correct it")


def as_validation_error(faults: Iterable[Fault], given: Mapping[str, Any]) -> ValidationError:
    """Return faults between fields as the error that a pydantic model raises."""
    lines = []
    for fault in faults:
        value = given.get(str(fault.path[0])) if fault.path else None
        error = refuse(fault.message, fault.hint, fault.code)
        lines.append(InitErrorDetails(type=error, loc=fault.path, input=value))
    return ValidationError.from_exception_data("Schedule", lines)


# --- misspelt fields ---
# The field, or the name of a calendar or a parent, that was probably meant. The name that a field
# has in another scheduler may resemble none.

_CLOSE_ENOUGH = 0.7
_SHORTEST = 3
_COMPARED = 50  # characters
_NO_NAMES: Final[Mapping[str, str]] = {}

MAX_PROPOSED: Final = 200
"""Maximum characters of a name that a hint proposes: those of a key."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Name that was meant; ``certain`` if only case or punctuation differs."""

    name: str
    certain: bool

    @property
    def hint(self) -> str:
        """The question that proposes it. Names in a file may be long, or not printable."""
        return question(shorten(self.name, MAX_PROPOSED))


def suggest(
    name: str, allowed: Collection[str], elsewhere: Mapping[str, str] = _NO_NAMES
) -> Suggestion | None:
    """Return the one of ``allowed`` that ``name`` probably stands for, or None.

    ``elsewhere``: names of other schedulers, with ours.
    """
    bare = _bare(name)
    return _suggest(bare, tuple(allowed), elsewhere.get(bare))


@lru_cache(maxsize=1024)
def _suggest(bare: str, allowed: tuple[str, ...], elsewhere: str | None) -> Suggestion | None:
    by_bare = {_bare(known): known for known in allowed}
    if bare in by_bare:
        return Suggestion(by_bare[bare], certain=True)
    if elsewhere in allowed:
        return Suggestion(elsewhere, certain=False)
    # Skip very short names: ``at`` resembles half of all short words.
    long = [known for known in by_bare if len(known) >= _SHORTEST]
    close = nearest(bare, long, cutoff=_CLOSE_ENOUGH)
    return Suggestion(by_bare[close[0]], certain=False) if close else None


def _bare(name: str) -> str:
    """Reduce a name to letters and digits, so that ``every_ms`` and ``everyMs`` are equal."""
    return "".join(sign for sign in name[:_COMPARED].lower() if sign.isalnum())
