"""What a user declares: `Schedule`.

Names are snake_case in Python and camelCase in files and JSON. A `Schedule` that exists is
valid: its when-part has been built, and nothing about it needs checking again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ValidationError, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel

from engine.errors import Code, ScheduleError
from engine.schedules import chain_fields, fields, policy_fields, when_fields
from engine.schedules.awaiting import Rule
from engine.schedules.canonical import definition_digest, jsonable
from engine.schedules.catch_up import CatchUp
from engine.schedules.defaults import CONFIG
from engine.schedules.durations import format_duration
from engine.schedules.exclusions import Exclusions, exclusions
from engine.schedules.follow import After, rules
from engine.schedules.instants import TICK, from_seconds
from engine.schedules.retention import Retention
from engine.schedules.rules import (
    Fault,
    build_spec,
    error_class,
    is_local,
    relation_faults,
    spec_faults,
)
from engine.schedules.sentences import as_validation_error, faults_of
from engine.schedules.timing import Spec

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

    key: fields.Key
    workflow: fields.Workflow
    input: fields.Json = None
    task_queue: fields.TaskQueue = "sched"
    external: fields.External = False
    every_ms: fields.EveryMs = None
    offset_ms: fields.OffsetMs = 0
    cron: fields.CronText | None = None
    timezone: fields.Timezone = "UTC"
    at: fields.AtText | None = None
    enabled: fields.Enabled = True
    paused: fields.Paused = False
    first_fire: fields.FirstFire = None
    overlap: policy_fields.OverlapPolicy = "allow"
    max_concurrent_runs: policy_fields.MaxConcurrentRuns = 1
    max_queued: policy_fields.MaxQueued = 1000
    cancel_grace: policy_fields.CancelGrace = timedelta(minutes=10)
    catch_up: Annotated[CatchUp, policy_fields.IsCatchUp] = CatchUp()
    grace: fields.Grace = timedelta(seconds=60)
    start: when_fields.StartText | None = None
    end: when_fields.EndText | None = None
    dst: when_fields.DstPolicy = "standard"
    exclude: when_fields.Exclude = ()
    spread: fields.Spread = timedelta(0)
    on_dead: fields.OnDead = None
    after: Annotated[After | None, chain_fields.IsAfter] = None
    needs: chain_fields.Needs = ()
    retention: Annotated[Retention, policy_fields.IsRetention] = Retention()
    expect: when_fields.Expect = ()
    description: fields.Prose = None
    metadata: fields.Metadata = {}  # pydantic copies it for each instance

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
        """Which of the three ways says when."""
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
        """What each of its windows waits for; empty where it depends on no other schedule."""
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
        for name, field in FIELDS.items():
            value = getattr(self, field)
            keep = value != declared[field].default
            if field == "input":
                keep = self.has_input
            elif field == "timezone" and self.kind == "at":
                keep = field in self.model_fields_set  # of a local moment even UTC must be said
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
            context = fields.STORED if stored else None
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
