"""Schedule model: one declared schedule and its policies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel

from engine.errors import Code, Problem, ScheduleError
from engine.schedules import validators
from engine.schedules.policies import Rule
from engine.schedules.rules import (
    Fault,
    as_validation_error,
    build_spec,
    error_class,
    faults_of,
    is_local,
    relation_faults,
    spec_faults,
)
from engine.schedules.timing.calendars import Exclusions, exclusions
from engine.schedules.timing.spec import Dst, Spec
from engine.schedules.units import TICK, Rate, format_duration, from_seconds


@dataclass(frozen=True, slots=True)
class Queue:
    """Limits of a step queue across all replicas; at least one is given.

    Attributes:
        concurrency: how many steps run at once; None is as many as the workers take.
        rate: how fast steps begin; None is unlimited.
    """

    concurrency: int | None = None
    rate: Rate | None = None

    def __str__(self) -> str:
        said = [f"concurrency {self.concurrency}"] if self.concurrency is not None else []
        return ", ".join([*said, *([f"rate {self.rate}"] if self.rate else [])])


# --- catch-up policy ---

Cause = Literal["pause", "deploy"]


class CatchUp(BaseModel):
    """Policy for windows missed by more than ``grace``: the field ``catchUp``.

    Attributes:
        policy: after an outage, ``latest`` runs the newest missed window, ``all`` runs each of
            them, ``none`` runs none.
        window: the age beyond which windows expire.
        max: with ``all``, how many of the newest windows run; the others expire.
        order: with ``all``, whether the ``oldest`` or the ``newest`` of them starts first.
        rate: with ``all``, how fast they start; None is unlimited.
        pause: the policy after an operator's pause.
        deploy: the policy after a time in which the file had disabled the schedule.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    policy: validators.Policy = "latest"
    window: validators.Window = timedelta(hours=24)
    max: validators.Max = validators.MOST_CAUGHT_UP
    order: validators.Order = "oldest"
    rate: validators.StartRate = None
    pause: validators.AfterPause = "none"
    deploy: validators.AfterDeploy = "none"

    def after(self, cause: Cause) -> CatchUp | None:
        """Return the policy after a pause or a deploy, or None if it catches up nothing."""
        policy = self.pause if cause == "pause" else self.deploy
        return None if policy == "none" else self.model_copy(update={"policy": policy})

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, by their names in a file."""
        return {
            name: _jsonable(value)
            for name, field in type(self).model_fields.items()
            if (value := getattr(self, name)) != field.default
        }


def _jsonable(value: object) -> object:
    if isinstance(value, timedelta):
        return format_duration(value)
    return str(value) if isinstance(value, Rate) else value


# --- retention policy ---


class Retention(BaseModel):
    """Retention of one schedule's fires: the field ``retention``. None takes the fleet's setting.

    Attributes:
        keep: how many of the newest rows keep their details at any age.
        age: how long other rows keep their details.
        failed_age: the same for failed ones.
        max_age: the maximum age of any row.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    keep: validators.Keep = None
    age: validators.Age = None
    failed_age: validators.FailedAge = None
    max_age: validators.MaxAge = None

    def to_json(self) -> dict[str, Any]:
        """Return the given fields, by their names in a file."""
        return {
            to_camel(name): format_duration(value) if isinstance(value, timedelta) else value
            for name in type(self).model_fields
            if (value := getattr(self, name)) is not None
        }


# --- shared defaults ---

CONFIG: Final = ConfigDict(
    frozen=True,
    extra="forbid",
    alias_generator=to_camel,
    validate_by_name=True,
    validate_by_alias=True,
)
"""Configuration of the models: camelCase in files, snake_case in Python, no extra fields."""


class Defaults(BaseModel):
    """The ``defaults:`` of a file: fields that schedules commonly share."""

    model_config = CONFIG

    timezone: validators.Timezone | None = None
    task_queue: validators.TaskQueue | None = None
    overlap: validators.OverlapPolicy | None = None
    max_concurrent_runs: validators.MaxConcurrentRuns | None = None
    catch_up: Annotated[CatchUp, validators.IsCatchUp] | None = None
    grace: validators.Grace | None = None
    enabled: validators.Enabled | None = None
    external: validators.External | None = None
    first_fire: validators.FirstFire = None
    dst: validators.DstPolicy | None = None
    exclude: validators.Exclude | None = None
    spread: validators.Spread | None = None
    on_dead: validators.OnDead = None
    retention: Annotated[Retention, validators.IsRetention] | None = None
    metadata: validators.Metadata | None = None


# --- links to other schedules ---


class After(BaseModel):
    """Parent of a schedule: the field ``after``.

    Attributes:
        schedule: the parent's key.
        when: the required outcome of its run.
        window: which of its windows is awaited.
    """

    model_config = CONFIG

    schedule: validators.Parent
    when: validators.ParentWhen = "success"
    window: validators.ParentWindow = "same"

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, by their names in a file."""
        return self.model_dump(exclude_defaults=True)


def rules(after: After | None, needs: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules of ``after`` and ``needs``."""
    first = (Rule(after.schedule, after.when, after.window),) if after else ()
    return (*first, *(Rule(key) for key in needs))


# --- canonical JSON and digest ---


def jsonable(value: Any) -> Any:
    """Return the value of a field as JSON, without nested defaults."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, tuple):
        return validators.jsonable(value)
    if isinstance(value, Dst):
        return asdict(value)
    if isinstance(value, After | CatchUp | Retention):
        return value.to_json()
    return value


def definition_digest(dump: dict[str, Any]) -> str:
    """Return the SHA-256, in hex, of a definition as JSON.

    The order of names does not count, and 1 equals 1.0: neither JSON nor a database column of it
    distinguishes them.
    """
    text = json.dumps(_canonical(dump), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: Any) -> Any:
    """Return a JSON value in which equal numbers have one spelling."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _canonical(item) for name, item in value.items()}
    return [_canonical(item) for item in value] if isinstance(value, list) else value


# --- schedule ---
# An existing `Schedule` is valid: its when-part has been built, and it needs no further check.

_MILLISECOND: Final = timedelta(milliseconds=1)
_BEGINNING: Final = from_seconds(0)

FIELDS_ONLY: Final = {"check": "fields only"}
"""Validation context that checks each field, but neither their relations nor the when-part."""


class Schedule(BaseModel):
    """One schedule: the workflow to start, and when.

    Schedules are equal when their definitions and initial states are. ``input`` and ``metadata``
    are copies of the given values; do not change them.

    Attributes:
        key: the schedule's name; unique within the ledger.
        workflow: ``name`` (the newest version), ``name@version``, or any Temporal type.
        input: the workflow's argument; absent differs from null, see ``has_input``.
        task_queue: the task queue of its workers.
        external: ``workflow`` is the Temporal type as written, without a lookup of announced types.
        every_ms, offset_ms: an interval, epoch-aligned and shifted.
        cron, timezone: a cron expression and the IANA zone of its clock.
        at: one moment; without an offset it is local to ``timezone``.
        enabled: set by the file, and stronger than any pause or resume.
        paused: the initial state only; an operator's pause or resume overrides it.
        first_fire: overrides whether the window open at first sight fires.
        overlap: whether a window starts while an older run is open.
        max_concurrent_runs: how many runs may be open before ``overlap`` applies; irrelevant with
            ``allow``. If it is given without ``overlap``, the policy is ``queue``.
        max_queued: how many windows may wait, with ``overlap: queue`` or for other schedules.
        cancel_grace: with ``overlap: cancel_previous``, how long a cancelled run has to undo its
            work before it is terminated.
        catch_up: the policy for missed windows.
        grace: how old the oldest undecided window may be while every window still starts.
        start, end: bounds of the fire times, both included; see `bounded`.
        dst: how a fixed-time cron treats times that its clock skips or repeats.
        exclude: days and stretches whose windows are skipped; see `exclusions`.
        spread: the longest delay of a run after its window; the key decides its share of it.
        on_dead: the workflow started for each fire that failed, timed out or was rejected.
        after, needs: the schedules whose windows come before this one's; see `follows`.
        retention: how long its fires keep their details, and how long their rows.
        expect: expected fire times on certain days, for ``sched check``; no effect on fires.
        description, metadata: for people, and for tenant, owner or correlation ids.
    """

    model_config = CONFIG

    key: validators.Key
    workflow: validators.Workflow
    input: validators.Json = None
    task_queue: validators.TaskQueue = "sched"
    external: validators.External = False
    every_ms: validators.EveryMs = None
    offset_ms: validators.OffsetMs = 0
    cron: validators.CronText | None = None
    timezone: validators.Timezone = "UTC"
    at: validators.AtText | None = None
    enabled: validators.Enabled = True
    paused: validators.Paused = False
    first_fire: validators.FirstFire = None
    overlap: validators.OverlapPolicy = "allow"
    max_concurrent_runs: validators.MaxConcurrentRuns = 1
    max_queued: validators.MaxQueued = 1000
    cancel_grace: validators.CancelGrace = timedelta(minutes=10)
    catch_up: Annotated[CatchUp, validators.IsCatchUp] = CatchUp()
    grace: validators.Grace = timedelta(seconds=60)
    start: validators.StartText | None = None
    end: validators.EndText | None = None
    dst: validators.DstPolicy = "standard"
    exclude: validators.Exclude = ()
    spread: validators.Spread = timedelta(0)
    on_dead: validators.OnDead = None
    after: Annotated[After | None, validators.IsAfter] = None
    needs: validators.Needs = ()
    retention: Annotated[Retention, validators.IsRetention] = Retention()
    expect: validators.Expect = ()
    description: validators.Prose = None
    metadata: validators.Metadata = {}  # pydantic copies it for each instance

    @model_validator(mode="before")
    @classmethod
    def _limited(cls, given: Any) -> Any:
        """Default ``overlap`` to ``queue`` if a limit of concurrent runs is given without it."""
        names = {"maxConcurrentRuns", "max_concurrent_runs"}
        if isinstance(given, Mapping) and "overlap" not in given and names & given.keys():
            return {**given, "overlap": "queue"}
        return given

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if info.context == FIELDS_ONLY:
            return self
        faults = relation_faults(self._given)
        if not faults:
            try:
                _ = self.spec  # built now rather than during a tick
                if self.exclusions is not None and self.first_start(_BEGINNING) is None:
                    what, cure = "every window is excluded", "leave a day on which it fires"
                    faults = [Fault(("exclude",), Code.FIELD_INVALID, what, cure)]
            except ScheduleError as error:
                faults = [Fault((), error.code, error.message, error.cure or "")]
        if faults:
            # Report every fault with its location; the error above has only the first.
            faults = spec_faults(self._given) + [fault for fault in faults if fault.path] or faults
            raise as_validation_error(faults, self._given)
        return self

    @property
    def has_input(self) -> bool:
        """Whether the workflow receives an argument; null is one."""
        return "input" in self.model_fields_set

    @property
    def kind(self) -> Literal["interval", "cron", "at"]:
        """The kind of spec: cron, interval or at."""
        if self.every_ms is not None:
            return "interval"
        return "cron" if self.cron is not None else "at"

    @cached_property
    def spec(self) -> Spec:
        """The when-part: an `Interval`, a `Cron` or an `At`."""
        return build_spec(self._given)

    @cached_property
    def exclusions(self) -> Exclusions | None:
        """The days and stretches whose windows are skipped, if any."""
        return exclusions(self.exclude, self.timezone) if self.exclude else None

    @property
    def lane(self) -> str:
        """Task queue whose workers start it; "" is any worker of its project."""
        return "" if self.external else self.task_queue

    @property
    def follows(self) -> tuple[Rule, ...]:
        """Rules that each window waits for; empty without parents."""
        return rules(self.after, self.needs)

    @property
    def declared_when(self) -> dict[str, Any]:
        """The given fields of the when-part, by their names in a file."""
        return {name: value for name, value in self._given.items() if name in WHEN_PART}

    def starts(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Return the fires with ``after < t <= until`` that no exclusion skips."""
        if self.exclusions is None:
            return self.spec.fires(after, until)
        return self._kept(after, until)

    def _kept(self, after: datetime, until: datetime) -> Iterator[datetime]:
        fire = self.first_start(after + TICK)
        while fire is not None and fire <= until:
            yield fire
            fire = self.first_start(fire + TICK)

    def first_start(self, at: datetime, *, but: Collection[datetime] = ()) -> datetime | None:
        """Return the first window at or after ``at`` that no exclusion skips.

        Args:
            at: the earliest fire time.
            but: windows that an operator skipped.
        """
        fire = self.spec.next(at - TICK)
        while fire is not None:
            day = self.exclusions.day_of(fire) if self.exclusions else None
            if day is not None and day.reason is not None:
                fire = self.spec.next(from_seconds(day.end) - TICK)
            elif fire in but:
                fire = self.spec.next(fire)
            else:
                break
        return fire

    def delay(self, fire_time: datetime) -> timedelta:
        """Return the delay of a run after its window: the key's share of ``spread``.

        It is constant for a key and a window, and shorter than the time until the next window.
        """
        following = self.spec.next(fire_time) if self.spread else None
        room = min(self.spread, following - fire_time) if following else self.spread
        return room // _MILLISECOND * _part(self.key) // 2**32 * _MILLISECOND

    @property
    def when(self) -> str:
        """The when-part in a few words for people."""
        if self.every_ms is not None:
            offset = f" offset {_signed(self.offset_ms)}" if self.offset_ms else ""
            return f"every {format_duration(timedelta(milliseconds=self.every_ms))}{offset}"
        if self.cron is not None:
            return self.cron
        return f"at {self.at} {self.timezone}" if is_local(self.at or "") else f"at {self.at}"

    @property
    def _given(self) -> dict[str, Any]:
        """The given fields that the rules between fields use, by their names in a file."""
        given = self.model_fields_set
        values = {name: getattr(self, field) for name, field in _DECLARED.items() if field in given}
        return {name: value for name, value in values.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults as JSON, by their names in a file.

        Defaults are left out so that a field added to sched-engine later changes no digest.
        ``Schedule.from_json`` reads the result back exactly.
        """
        dump: dict[str, Any] = {}
        declared = type(self).model_fields  # read once: each access computes it
        for name, attribute in FIELDS.items():
            value = getattr(self, attribute)
            keep = value != declared[attribute].default
            if attribute == "input":
                keep = self.has_input
            elif attribute == "timezone" and self.kind == "at":
                keep = attribute in self.model_fields_set  # a local moment needs its zone, even UTC
            if keep:
                dump[name] = jsonable(value)
        return dump

    @classmethod
    def from_json(cls, dump: Mapping[str, Any], *, stored: bool = False) -> Self:
        """Return the schedule that ``to_json`` wrote.

        Args:
            dump: the output of ``to_json``.
            stored: whether the dump was read from the ledger and is not shared. Its input, which
                may be large, is then neither checked nor copied again.

        Raises:
            ScheduleError: the dump is not, or no longer, a valid schedule.
        """
        try:
            context = validators.STORED if stored else None
            return cls.model_validate(dict(dump), by_alias=True, by_name=False, context=context)
        except ValidationError as error:
            faults = faults_of(error)
            message = "; ".join(f"{fault.message}; {fault.cure}".rstrip("; ") for fault in faults)
            raise error_class(faults[0].code)(message) from None

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the definition, in hex; equal definitions have equal digests.

        ``paused`` is left out: it is only an initial state, and changing it is no edit. ``expect``
        is left out because it only restates what the other fields mean.
        """
        dump = self.to_json()
        for name in ("paused", "expect"):
            dump.pop(name, None)
        return definition_digest(dump)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002 - pydantic's signature
        """Return a validated copy with some fields changed.

        Pydantic's method would check nothing, and keep the digest and when-part of the original.
        """
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**values, **(update or {})})

    def __getstate__(self) -> dict[Any, Any]:
        """Leave out values that can be rebuilt; they are larger than the declaration."""
        state = super().__getstate__()
        kept = {name: item for name, item in self.__dict__.items() if name not in _BUILT}
        return {**state, "__dict__": kept}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self.digest == other.digest and self.paused == other.paused

    def __hash__(self) -> int:
        return hash(self.digest)


_BUILT: Final = ("spec", "exclusions")

FIELDS: Final = {to_camel(name): name for name in Schedule.model_fields}
"""Fields of a schedule by their names in a file."""

WHEN_PART: Final = (
    "everyMs", "offsetMs", "cron", "timezone", "at", "start", "end", "dst",
)  # fmt: skip
"""Fields that determine the fire times."""

_DECLARED: Final = {
    name: FIELDS[name]
    for name in (
        *("key", "workflow", "external", "everyMs", "offsetMs", "cron", "timezone", "at"),
        *("start", "end", "dst", "exclude", "spread", "overlap", "maxConcurrentRuns"),
    )
}
"""Fields that the rules between fields use."""


@lru_cache(maxsize=100_000)
def _part(key: str) -> int:
    """Return the key's share of ``spread`` in 2**32ths."""
    return int.from_bytes(hashlib.sha256(f"spread\0{key}".encode()).digest()[:4], "big")


def _signed(milliseconds: int) -> str:
    sign = "-" if milliseconds < 0 else ""
    return sign + format_duration(timedelta(milliseconds=abs(milliseconds)))


# --- schedule file ---


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A file of schedules that has passed every check.

    Attributes:
        project: the owner of the schedules.
        revision: orders the files of one project, if given.
        schedules: in the file's order; never empty.
        queues: the step queues, by name.
        name: the file's name, for messages.
        digest: the SHA-256, in hex, of all that the meaning depends on; see `file_digest`.
        warnings: probable mistakes.
        calendars: the .ics files that were read, as (file that names it, its name there).
    """

    project: str
    revision: int | None
    schedules: tuple[Schedule, ...]
    name: str
    digest: str
    queues: Mapping[str, Queue] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    calendars: tuple[tuple[str, str], ...] = ()
