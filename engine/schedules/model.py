"""The schedule model: one declared schedule and its policies."""

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
from engine.schedules.timing.cron import Dst
from engine.schedules.timing.spec import Spec
from engine.schedules.units import TICK, Rate, format_duration, from_seconds


@dataclass(frozen=True, slots=True)
class Queue:
    """Limits of a step queue across all replicas. At least one of them is given.

    Attributes:
        concurrency: how many run at once; None is as many as the workers take.
        rate: how many begin in so long a time; None is as fast as it goes.
    """

    concurrency: int | None = None
    rate: Rate | None = None

    def __str__(self) -> str:
        said = [f"concurrency {self.concurrency}"] if self.concurrency is not None else []
        return ", ".join([*said, *([f"rate {self.rate}"] if self.rate else [])])


# --- catch-up policy ---
# ``catchUp:``, what a schedule's definition says of windows that were missed.

Cause = Literal["pause", "deploy"]


class CatchUp(BaseModel):
    """Policy for windows that were missed for longer than ``grace``.

    Attributes:
        policy: after an outage. ``latest``: one run, of the newest missed window; ``all``: a run
            of each; ``none``: no run.
        window: older windows expire.
        max: with ``all``, the newest so many run and the others expire.
        order: with ``all``, whether the ``oldest`` or the ``newest`` of them starts first.
        rate: with ``all``, how fast they start; None as fast as it goes.
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
        """Return what holds after a pause or a deploy, or None where nothing is made up for."""
        policy = self.pause if cause == "pause" else self.deploy
        return None if policy == "none" else self.model_copy(update={"policy": policy})

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, by its file names."""
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
# ``retention:``, how long a schedule's fires keep their details, and how long their rows.


class Retention(BaseModel):
    """Retention of one schedule; None takes the fleet's setting.

    Attributes:
        keep: so many of the newest rows keep their details, whatever their age.
        age: how old other rows become with all their details.
        failed_age: the same of those that failed.
        max_age: no row becomes older.
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
        """Return what is said, by its file names."""
        return {
            to_camel(name): format_duration(value) if isinstance(value, timedelta) else value
            for name in type(self).model_fields
            if (value := getattr(self, name)) is not None
        }


# --- shared defaults ---
# The fields that schedules commonly share: what a file's ``defaults:`` may hold.

CONFIG: Final = ConfigDict(
    frozen=True,
    extra="forbid",
    alias_generator=to_camel,
    validate_by_name=True,
    validate_by_alias=True,
)
"""Of every model: camelCase in files, snake_case in Python, and nothing else."""


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
# ``after:`` and ``needs:``, what a definition says of the schedules that come before it.


class After(BaseModel):
    """The schedule before this one.

    Attributes:
        schedule: the parent's key.
        when: what its run has to come to.
        window: which of its windows is meant.
    """

    model_config = CONFIG

    schedule: validators.Parent
    when: validators.ParentWhen = "success"
    window: validators.ParentWindow = "same"

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, by its file names."""
        return self.model_dump(exclude_defaults=True)


def rules(after: After | None, needs: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return everything that the two fields ask for."""
    first = (Rule(after.schedule, after.when, after.window),) if after else ()
    return (*first, *(Rule(key) for key in needs))


# --- canonical JSON and digest ---
# Values of a definition as JSON, and the digest that equal definitions share.


def jsonable(value: Any) -> Any:
    """Return the value of a field as JSON has it, without what equals a default."""
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

    Neither the order of names counts, nor whether a number is written 1 or 1.0: JSON, and a
    database column of it, knows neither.
    """
    text = json.dumps(_canonical(dump), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: Any) -> Any:
    """Return a JSON value in which equal numbers are written alike."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _canonical(item) for name, item in value.items()}
    return [_canonical(item) for item in value] if isinstance(value, list) else value


# --- schedule ---
# What a user declares: `Schedule`.
#
# Names are snake_case in Python and camelCase in files and JSON. A `Schedule` that exists is
# valid: its when-part has been built, and nothing about it needs checking again.

_MILLISECOND: Final = timedelta(milliseconds=1)
_BEGINNING: Final = from_seconds(0)

FIELDS_ONLY: Final = {"check": "fields only"}
"""A validation context: judge every field, but neither the whole nor the when-part."""


class Schedule(BaseModel):
    """One schedule: which workflow is started, and when.

    Two schedules are equal when their definitions and initial states are. ``input`` and
    ``metadata`` are copies of what was given; do not change them.

    Attributes:
        key: names the schedule; unique within the ledger.
        workflow: ``name`` (the newest version), ``name@version``, or any Temporal type.
        input: the workflow's argument; absent is not the same as null, see ``has_input``.
        task_queue: where workers for it listen.
        external: ``workflow`` is the Temporal type as written; our registry is not asked.
        every_ms, offset_ms: an interval, epoch-aligned and shifted.
        cron, timezone: a cron expression and the IANA zone of its clock.
        at: one moment; without an offset it is local to ``timezone``.
        enabled: belongs to the file and always wins.
        paused: the initial state only; an operator's pause or resume outlives it.
        first_fire: overrides whether the window open at first sight fires.
        overlap: whether a window starts while an older run is open.
        max_concurrent_runs: how many runs have to be open until ``overlap`` is asked; no matter
            with ``allow``. Where it is given without ``overlap``, that is ``queue``.
        max_queued: with ``overlap: queue``, how many windows may wait.
        cancel_grace: with ``overlap: cancel_previous``, how long a cancelled run may go on,
            to undo what it did, until it is terminated.
        catch_up: what happens to missed windows.
        grace: how old a window may be and still start in any case.
        start, end: the schedule fires between them, both included; see `bounds`.
        dst: what a fixed-time cron does where its clock skips or repeats a time.
        exclude: days and stretches whose windows are skipped; see `exclusions`.
        spread: each run starts later than its window by a part of this that the key decides.
        on_dead: the workflow that is told of each fire that failed, timed out or was rejected.
        after, needs: the schedules whose windows come before this one's; see `follows`.
        retention: how long its fires keep their details, and how long their rows.
        expect: when it should fire on certain days, for ``sched check``. Changes nothing.
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
        """Let windows wait where a limit says nothing of what becomes of those beyond it."""
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
                _ = self.spec  # built now, not in the middle of a tick
                if self.exclusions is not None and self.first_start(_BEGINNING) is None:
                    what, cure = "every window is excluded", "leave a day on which it fires"
                    faults = [Fault(("exclude",), Code.FIELD_INVALID, what, cure)]
            except ScheduleError as error:
                faults = [Fault((), error.code, error.message, error.cure or "")]
        if faults:
            # Apart from each other, and located; the error above knows only the first.
            faults = spec_faults(self._given) + [fault for fault in faults if fault.path] or faults
            raise as_validation_error(faults, self._given)
        return self

    @property
    def has_input(self) -> bool:
        """Whether the workflow gets an argument; null is one."""
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
        """The days and stretches whose windows are skipped, if there are any."""
        return exclusions(self.exclude, self.timezone) if self.exclude else None

    @property
    def lane(self) -> str:
        """Whose workers start it: those of its task queue; "" is any of its project."""
        return "" if self.external else self.task_queue

    @property
    def follows(self) -> tuple[Rule, ...]:
        """Rules that each window waits for; empty where it depends on no other schedule."""
        return rules(self.after, self.needs)

    @property
    def declared_when(self) -> dict[str, Any]:
        """The fields that say when windows open, as far as they were given, by their file names."""
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
        """Return the first window from ``at`` on, included, that no exclusion skips.

        Args:
            at: windows before it do not count.
            but: windows that somebody skipped.
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
        """Return how much later than its window a run starts: the key's part of ``spread``.

        Always the same for a key and a window, and less than the time until the next window.
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
        """The fields that say which and when, as far as they were given, by their file names."""
        given = self.model_fields_set
        values = {name: getattr(self, field) for name, field in _DECLARED.items() if field in given}
        return {name: value for name, value in values.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the definition for JSON: what differs from the defaults, by its file names.

        What equals a default is left out, so that a field added to sched-engine later changes
        no digest. ``Schedule.from_json`` reads it back exactly.
        """
        dump: dict[str, Any] = {}
        declared = type(self).model_fields  # asked for once: each time it is computed
        for name, attribute in FIELDS.items():
            value = getattr(self, attribute)
            keep = value != declared[attribute].default
            if attribute == "input":
                keep = self.has_input
            elif attribute == "timezone" and self.kind == "at":
                keep = attribute in self.model_fields_set  # of a local moment even UTC must be said
            if keep:
                dump[name] = jsonable(value)
        return dump

    @classmethod
    def from_json(cls, dump: Mapping[str, Any], *, stored: bool = False) -> Self:
        """Return the schedule that ``to_json`` wrote.

        Args:
            dump: what it wrote.
            stored: the ledger has kept it, and nobody else has this copy: its input, which may be
                large, is not looked through again.

        Raises:
            ScheduleError: it is not a valid schedule (any more).
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

        ``paused`` is no part of it: it is only an initial state, and changing it is no edit.
        ``expect`` is none either: it says what the rest means.
        """
        dump = self.to_json()
        for name in ("paused", "expect"):
            dump.pop(name, None)
        return definition_digest(dump)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002 - pydantic's signature
        """Return a schedule with some fields changed, checked like any other.

        Pydantic's own would check nothing, and keep the digest and when-part of the original.
        """
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**values, **(update or {})})

    def __getstate__(self) -> dict[Any, Any]:
        """Leave out what can be built again: it is larger than all that was declared."""
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
"""The fields of a schedule by their file names."""

WHEN_PART: Final = (
    "everyMs", "offsetMs", "cron", "timezone", "at", "start", "end", "dst",
)  # fmt: skip
"""The fields that its fire times follow from."""

_DECLARED: Final = {
    name: FIELDS[name]
    for name in (
        *("key", "workflow", "external", "everyMs", "offsetMs", "cron", "timezone", "at"),
        *("start", "end", "dst", "exclude", "spread", "overlap", "maxConcurrentRuns"),
    )
}
"""The fields that the rules between fields are about."""


@lru_cache(maxsize=100_000)
def _part(key: str) -> int:
    """Return the key's part of ``spread`` in 2**32ths."""
    return int.from_bytes(hashlib.sha256(f"spread\0{key}".encode()).digest()[:4], "big")


def _signed(milliseconds: int) -> str:
    sign = "-" if milliseconds < 0 else ""
    return sign + format_duration(timedelta(milliseconds=abs(milliseconds)))


# --- schedule file ---
# A file of schedules that has passed every check, as a value.


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
