"""Schedule model: one declared schedule and its policies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel

from engine.errors import Code, Problem, ScheduleError
from engine.schedules import validators as checks
from engine.schedules.hooks import Hook
from engine.schedules.rules import (
    FIELDS_ONLY,
    Elsewhere,
    Fault,
    Neutral,
    Trait,
    all_faults,
    as_error,
    as_validation_error,
    build_spec,
    faults_of,
    fields_with,
    in_milliseconds,
    is_local,
    relation_faults,
    spec_faults,
)
from engine.schedules.run_attributes import ATTRIBUTES, MEMO
from engine.schedules.terms import (
    EPOCH,
    HORIZON,
    SEALED_INPUT,
    TICK,
    CatchUpOrder,
    CatchUpPolicy,
    FirstFire,
    Mode,
    Overlap,
    Rate,
    Rule,
    Sealed,
    When,
    Which,
    format_duration,
    from_seconds,
    readable_definition,
    share_of,
)
from engine.schedules.timing.calendars import Calendar, Exclusions, Item, exclusions
from engine.schedules.timing.cron_parser import plain
from engine.schedules.timing.spec import Dst, Spec, moment


@dataclass(frozen=True, slots=True)
class Queue:
    """Limits of a step queue across all replicas; at least one is given.

    Attributes:
        concurrency: how many steps run at once; None is as many as the workers take.
        per_key: how many steps of one fairness key run at once; None is as many as there are
            places. It needs a concurrency.
        rate: how fast steps begin; None is unlimited.
    """

    concurrency: int | None = None
    per_key: int | None = None
    rate: Rate | None = None

    def __str__(self) -> str:
        limits = {"concurrency": self.concurrency, "perKey": self.per_key, "rate": self.rate}
        return ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)


# --- fields with nested fields ---
# In this table and in that of `Schedule` each field of the file stands once: its type, its check
# with the shape of its values for editors, its traits, its names elsewhere, the sentence that
# editors show, and its default.

CONFIG: Final = ConfigDict(
    frozen=True,
    extra="forbid",
    alias_generator=to_camel,
    validate_by_name=True,
    validate_by_alias=True,
)
"""Configuration of the models: camelCase in files, snake_case in Python, no extra fields."""

HoldCause = Literal["pause", "deploy"]


def doc(words: str, default: Any = None) -> Any:
    """Return a field with the sentence that editors show; ``...`` is no default."""
    return Field(default, description=words)


Length = Annotated[timedelta, checks.DURATION]
Key = Annotated[str, checks.NAME]


MOST_CAUGHT_UP: Final = 1500
"""More than a day of minutes, and as many as one transaction of the tick can hold."""


class Part(BaseModel):
    """Field with nested fields; the title of its class is the name of the field.

    Attributes:
        example: what a hint proposes to write.
        short: the nested field for which a single value stands, if there is one.
        code: of the error for a value that is none.
        listed: the field whose items they are; without it the title is the field.
    """

    model_config = CONFIG
    example: ClassVar[str]
    short: ClassVar[str] = ""
    code: ClassVar[Code] = Code.FIELD_INVALID
    listed: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, given: Any) -> Any:
        """Accept a single value where one stands for the mapping, and refuse any other."""
        if isinstance(given, Mapping | Part):
            return given
        if cls.short and given is not None:
            return {cls.short: given}
        if cls.listed:
            what = f"{cls.listed} holds {checks.show(given)}"
            raise checks.refuse(what, f"write {cls.example}")
        guess = None if isinstance(given, bool) else cls.meant(given)
        raise checks.wrong(
            str(cls.model_config.get("title")), given, f"write {guess or cls.example}", cls.code
        )

    @classmethod
    def meant(cls, given: Any) -> str | None:  # noqa: ARG003 - that of a part which can guess
        """Return the mapping that a text or a number probably stands for, if it can be guessed."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, by their names in a file."""
        return {
            to_camel(name): jsonable(value)
            for name, field in type(self).model_fields.items()
            if (value := getattr(self, name)) != field.default
        }


class CatchUp(Part, title="catchUp"):
    """Policy for windows missed by more than ``grace``: the field ``catchUp``."""

    example = "{policy: latest, window: 24h}"

    policy: Annotated[CatchUpPolicy, checks.choice(CatchUpPolicy)] = doc(
        "After an outage. `latest`: one run, of the newest missed window, stands for all of them.",
        "latest",
    )
    window: Length = doc(
        "Windows older than this expire instead of being caught up.", timedelta(hours=24)
    )
    max: Annotated[int, checks.count(MOST_CAUGHT_UP)] = doc(
        "With `all`, the newest so many run and the others expire.", MOST_CAUGHT_UP
    )
    order: Annotated[CatchUpOrder, checks.choice(CatchUpOrder)] = doc(
        "With `all`, which of them starts first.", "oldest"
    )
    rate: Annotated[Rate, checks.RATE] | None = doc("With `all`, how fast they start.")
    pause: Annotated[CatchUpPolicy, checks.choice(CatchUpPolicy)] = doc(
        "The policy after an operator's pause.", "none"
    )
    deploy: Annotated[CatchUpPolicy, checks.choice(CatchUpPolicy)] = doc(
        "The policy after `enabled: false`.", "none"
    )

    @classmethod
    def meant(cls, given: Any) -> str | None:
        """Return the mapping with a policy."""
        known = given in get_args(CatchUpPolicy)
        return cls.example.replace("latest", given) if known else None

    def after(self, cause: HoldCause) -> CatchUp | None:
        """Return the policy after a pause or a deploy, or None if it catches up nothing."""
        policy = self.pause if cause == "pause" else self.deploy
        return None if policy == "none" else self.model_copy(update={"policy": policy})


_OVERLAP_ELSEWHERE: Final = {
    "allow_all": "allow",  # Temporal
    "buffer_one": "queue_one",
    "buffer_all": "queue",
    "cancel_other": "cancel_previous",
    "terminate_other": "terminate_previous",
    "forbid": "skip",  # Kubernetes
    "replace": "cancel_previous",
}


class Retention(Part, title="retention"):
    """Retention of one schedule's fires: the field ``retention``; None is the fleet's setting."""

    example = "{keep: 1000, age: 90d}"

    keep: Annotated[int, checks.count(1_000_000)] | None = doc(
        "So many of the newest rows keep their details, whatever their age."
    )
    age: Length | None = doc("How old other rows become with all their details.")
    failed_age: Length | None = doc("The same of runs that failed.")
    max_age: Length | None = doc("No row becomes older.")


MOST_IN_ROW: Final = 50
"""Most runs in a row that a limit may count; a look reads the newest rows alone."""


class Alerting(Part, title="alert"):
    """Limits from which on a schedule needs attention: the field ``alert``; None is no limit."""

    example = "{lateAfter: 5m, failuresInRow: 3}"

    late_after: Length | None = doc("A window has not started so long after its time.")
    failures_in_row: Annotated[int, checks.count(MOST_IN_ROW)] | None = doc(
        "So many of its runs in a row have failed, timed out or were rejected."
    )
    skipped_in_row: Annotated[int, checks.count(MOST_IN_ROW)] | None = doc(
        "So many of its windows in a row had no run, those excluded or skipped by hand not counted."
    )


MOST_TRIES: Final = 100
"""Most tries of a run, and most intervals between them, that a schedule may ask for."""
_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(seconds=1), timedelta(days=30)
_TRIES_BY_DEFAULT: Final = 5


def _retry(check: checks.Check) -> checks.Check:
    return checks.coded(check, Code.RETRY_POLICY_INVALID)


_Wait = Annotated[timedelta, _retry(checks.between(_SHORTEST_WAIT, _LONGEST_WAIT))]


class RunRetry(Part, title="retry"):
    """Tries of a failed run: the field ``retry``; it precedes that of the workflow's class."""

    example = "{attempts: 5, initial: 10s, coefficient: 2, max: 10m}"
    code = Code.RETRY_POLICY_INVALID

    attempts: Annotated[int, _retry(checks.count(MOST_TRIES))] | None = doc(
        "How often it is tried, the first time included; 5, or one more than there are intervals."
    )
    intervals: Annotated[
        tuple[
            Annotated[
                timedelta, _retry(checks.between(_SHORTEST_WAIT, _LONGEST_WAIT, "an interval"))
            ],
            ...,
        ],
        _retry(checks.list_check("[1m, 5m, 15m]", MOST_TRIES)),
    ] = doc("The waits in order, the last one repeating; for workflows of this engine.", ())
    initial: _Wait | None = doc("The wait before the second try; 1s.")
    coefficient: Annotated[float, _retry(checks.factor(10))] | None = doc(
        "The factor by which each further wait grows; 2."
    )
    max: _Wait | None = doc("The longest wait; a hundred times the first.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [name for name in ("initial", "coefficient", "max") if getattr(self, name)]
        if self.intervals and given:
            message = f"retry has intervals and {given[0]}"
            raise checks.refuse(message, "keep one of the two", Code.RETRY_POLICY_INVALID)
        if self.max is not None and self.max < (self.initial or _SHORTEST_WAIT):
            message = f"retry.max is {format_duration(self.max)}, which is below the first wait"
            raise checks.refuse(message, "write a longer one", Code.RETRY_POLICY_INVALID)
        return self

    @classmethod
    def meant(cls, given: Any) -> str | None:
        """Return the policy that a number of retries stands for, as others count them."""
        if not isinstance(given, int) or not 0 <= given < MOST_TRIES:
            return None
        return f"{{attempts: {given + 1}}}, which counts the first run too"

    @property
    def tries(self) -> int:
        """Most tries of a run, the first included."""
        if self.attempts is not None:
            return self.attempts
        return min(len(self.intervals) + 1, MOST_TRIES) if self.intervals else _TRIES_BY_DEFAULT


_LONGEST_RUN: Final = timedelta(days=3650)
_LONGEST_TASK: Final = timedelta(minutes=2)
"""Temporal shortens a longer one."""
_RunTime = Annotated[timedelta, checks.between(_SHORTEST_WAIT, _LONGEST_RUN)]


class RunTimeout(Part, title="timeout"):
    """Limits of the time of a run: the field ``timeout``."""

    example = "{run: 1h}"
    short = "run"

    run: _RunTime | None = doc("How long one try of its run may take; Temporal ends a longer one.")
    execution: _RunTime | None = doc(
        "How long the run may take with all its tries and continuations."
    )
    task: Annotated[timedelta, checks.between(_SHORTEST_WAIT, _LONGEST_TASK)] | None = doc(
        "How long a worker may take for one step of the workflow's own code; 10s."
    )

    @model_validator(mode="after")
    def _run_fits(self) -> Self:
        if self.run and self.execution and self.run > self.execution:
            message = f"timeout.run is {format_duration(self.run)}, which is longer than execution"
            hint = f"write at most {format_duration(self.execution)}"
            raise checks.refuse(message, hint)
        return self


class Fairness(Part, title="fairness"):
    """Whose turn its runs and their steps take while they wait for a worker: ``fairness``."""

    example = "{key: acme, weight: 2}"
    short = "key"

    key: Annotated[str, checks.text("acme")] = doc(
        "Runs of one key share one turn: those of a tenant, for example.", ...
    )
    weight: Annotated[float, checks.factor(1000, least=0.001)] = doc(
        "How large its share is, beside keys of weight 1.", 1.0
    )


class Expectation(Part):
    """Expected fire times of a schedule on one day: an item of the field ``expect``."""

    example = '{on: 2027-03-14, fires: ["03:00"]}'
    listed = "expect"

    on: Annotated[str, checks.ON] = doc("The day, by the schedule's own clock.", ...)
    fires: Annotated[
        tuple[Annotated[str, checks.TIME], ...], checks.list_check('["03:00"]', 1000)
    ] = doc("The local times at which runs start on that day, in their order; [] is never.", ...)


class After(Part, title="after"):
    """Parent of a schedule: the field ``after``.

    Attributes:
        schedule: the parent's key.
        when: the required outcome of its run.
        window: which of its windows is awaited.
    """

    example = "{schedule: nightly-extract, when: success}"

    schedule: Annotated[str, checks.PARENT_NAME]
    when: Annotated[When, checks.choice(When)] = "success"
    window: Annotated[Which, checks.choice(Which)] = "same"

    @classmethod
    def meant(cls, given: Any) -> str | None:
        """Return the mapping with a parent."""
        return f"{{schedule: {given}}}" if checks.can_be_shown(str(given)) else None


# --- canonical JSON and digest ---


def jsonable(value: Any) -> Any:  # noqa: PLR0911 - a table of one line each
    """Return the value of a field as JSON, without nested defaults."""
    match value:
        case timedelta():
            return format_duration(value)
        case Calendar():
            return {"name": value.name, "dates": list(value.dates)}
        case tuple():
            return [jsonable(item) for item in value]
        case Dst():
            return asdict(value)
        case Rate():
            return str(value)
        case Part():
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

MOST_OPEN: Final = 10_000
"""Most concurrent runs of one schedule; a plan counts them up to its limit."""

MOST_LIMITED: Final = 10_000
"""Highest ``limit`` of a schedule; each plan counts up to it."""

_MILLISECOND: Final = timedelta(milliseconds=1)


SHARED, MERGED, STARTS = Trait.SHARED, Trait.MERGED, Trait.STARTS
TIMES, BY_CLOCK, LINE = Trait.TIMES, Trait.BY_CLOCK, Trait.LINE

_Moment = Annotated[str, checks.text('"2027-01-01T09:00:00Z"', shape=checks.MOMENT)]
_Bound = Annotated[str, checks.text("2027-01-01", shape=checks.BOUND)]


class Schedule(BaseModel):
    """One schedule: the workflow to start, and when.

    Schedules are equal when their definitions and initial states are. ``input`` and ``metadata``
    are copies of the given values; do not change them. Each field has its sentence
    beside it; docs/schedules.md explains them all.
    """

    model_config = CONFIG

    key: Annotated[str, checks.NAME, STARTS, Elsewhere("id name")] = doc(
        "Names the schedule, once in the ledger's namespace, and begins the id of each run.", ...
    )
    was: Annotated[Key | None, STARTS, Elsewhere("renamedfrom formerkey oldkey previouskey")] = doc(
        "The key that it had before it was renamed. It may stay in the file for ever."
    )
    workflow: Annotated[
        str, checks.text("daily-report", "daily-report@1"), Elsewhere("jobtype")
    ] = doc("What is started: a name (its newest version), name@1.2, or any Temporal type.", ...)
    input: Annotated[Any, checks.INPUT, Elsewhere("args data jobpayload payload")] = doc(
        "The workflow's argument, any JSON value; without the field there is none."
    )
    task_queue: Annotated[str, checks.text("sched"), SHARED, Elsewhere("queue")] = doc(
        "Where the workflow's workers listen.", "sched"
    )
    external: Annotated[bool, checks.SWITCH, SHARED] = doc(
        "Whether `workflow` is a Temporal type as written, which is not looked up.", False
    )
    every: Annotated[Annotated[timedelta, checks.EVERY] | None, TIMES, Elsewhere("interval")] = doc(
        "An interval, aligned to 1970-01-01T00:00:00Z: 5m is :00, :05, :10. Kept as `everyMs`."
    )
    every_ms: Annotated[Annotated[int, checks.milliseconds(1000, 60000, 300000)] | None, TIMES] = (
        doc("The same in milliseconds: 300000 is :00, :05, :10.")
    )
    offset_ms: Annotated[
        int, checks.milliseconds(-checks.MAX_MS), TIMES | Trait.OF_INTERVAL, Elsewhere("offset")
    ] = doc("Shifts an interval, in milliseconds; it may be negative.", 0)
    cron: Annotated[
        Annotated[str, checks.text('"0 2 * * *"', shape=checks.CRON), AfterValidator(plain)] | None,
        TIMES,
        Elsewhere("crontab cronexpression expression pattern schedule scheduleinterval"),
    ] = doc("Five fields `minute hour day month weekday`, in quotes; six have leading seconds.")
    timezone: Annotated[
        str,
        checks.text("America/Sao_Paulo", shape=checks.ZONE),
        TIMES | SHARED,
        Elsewhere("tz zone"),
    ] = doc(
        "The IANA zone whose clock the cron, the local moment and the days are meant on.", "UTC"
    )
    at: Annotated[_Moment | None, TIMES, Elsewhere("runat")] = doc(
        "One moment: with an offset, or without and local to `timezone`."
    )
    enabled: Annotated[
        bool, checks.SWITCH, STARTS | SHARED, Elsewhere("active disabled suspend suspended")
    ] = doc("Whether it fires; this always wins over the ledger.", True)
    paused: Annotated[bool, checks.SWITCH, STARTS] = doc(
        "Whether it is paused when first seen; later edits change nothing.", False
    )
    mode: Annotated[Mode, checks.choice(Mode), SHARED, Elsewhere("dryrun shadow")] = doc(
        "`shadow`: its windows are recorded, and nothing starts.", "live"
    )
    shadow_until: _Moment | None = doc(
        "With `mode: shadow`, the moment from which on its windows start, included."
    )
    first_fire: Annotated[
        Annotated[FirstFire, checks.choice(FirstFire)] | None, STARTS | SHARED
    ] = doc("Whether the window open at first sight is owed; without it, that of an interval is.")
    overlap: Annotated[
        Overlap,
        checks.choice(Overlap, _OVERLAP_ELSEWHERE),
        LINE | SHARED,
        Elsewhere("concurrencypolicy"),
    ] = doc("What happens to a window while an older run is open; `allow` starts it.", "allow")
    max_concurrent_runs: Annotated[
        int,
        checks.count(MOST_OPEN),
        LINE | SHARED,
        Elsewhere("concurrency maxactiveruns maxconcurrency maxinstances"),
    ] = doc(
        "How many runs may be open at once; what becomes of more, `overlap` says: else `queue`.", 1
    )
    max_queued: Annotated[int, checks.count(100_000), LINE] = doc(
        "With `overlap: queue`, how many windows may wait; the others are skipped.", 1000
    )
    cancel_grace: Length = doc(
        "With `overlap: cancel_previous`, how long a cancelled run has until it is terminated.",
        timedelta(minutes=10),
    )
    catch_up: Annotated[CatchUp, STARTS | MERGED] = doc(
        "What happens to windows that were missed for longer than `grace`.", CatchUp()
    )
    grace: Annotated[Length, STARTS | SHARED] = doc(
        "How old a window may be and still start in any case.", timedelta(seconds=60)
    )
    start: Annotated[_Bound | None, TIMES | BY_CLOCK, Elsewhere("startdate starttime")] = doc(
        "It fires from then on, included; a day begins at its midnight."
    )
    end: Annotated[_Bound | None, TIMES | BY_CLOCK, Elsewhere("enddate endtime")] = doc(
        "It fires until then, included; a day counts as the whole of it."
    )
    limit: Annotated[
        Annotated[int, checks.count(MOST_LIMITED)] | None,
        STARTS,
        Elsewhere("maxruns remainingactions repeatcount"),
    ] = doc("It ends once so many of its windows have started.")
    dst: Annotated[Literal["standard"] | Dst, checks.DST, TIMES | SHARED | Trait.OF_CRON] = doc(
        "What a fixed-time cron does where its clock skips (gap) or repeats (fold) a time.",
        "standard",
    )
    exclude: Annotated[
        tuple[Annotated[Item, checks.EXCLUDED], ...],
        checks.EXCLUDE,
        AfterValidator(checks.whole_list),
        Trait.CHOOSES | SHARED | BY_CLOCK,
        Elsewhere("calendar"),
        Neutral("[]"),
    ] = doc(
        "Weekdays, days, ranges, stretches and names from `calendars` whose windows are skipped.",
        (),
    )
    spread: Annotated[
        Length, STARTS | SHARED | Trait.BY_TIMES, Elsewhere("jitter"), Neutral("0s")
    ] = doc("Each run starts later than its window by the key's part of this.", timedelta(0))
    on_dead: Annotated[str | None, checks.text("alert-team", "alert-team@1"), SHARED] = doc(
        "The workflow that receives each fire that failed, timed out or was rejected."
    )
    pause_after_failures: Annotated[
        Annotated[int, checks.count(MOST_IN_ROW)] | None,
        SHARED,
        Elsewhere("maxfailures pauseonfailure"),
    ] = doc("It is paused once so many of its runs in a row have failed.")
    after: Annotated[After | None, Trait.GIVES_TIMES] = doc(
        "The schedule before this one: a window starts once that one's has ended like this."
    )
    needs: Annotated[tuple[str, ...], checks.NEEDS, Trait.GIVES_TIMES] = doc(
        "Schedules whose windows of the same fire time have to complete first.", ()
    )
    retention: Annotated[Retention, MERGED] = doc(
        "How long its fires keep their details, and how long their rows.", Retention()
    )
    alert: Annotated[Alerting, MERGED] = doc(
        "Limits from which on it needs attention, beside a window that has not fired.", Alerting()
    )
    expect: Annotated[
        tuple[Expectation, ...],
        checks.list_check(f"[{Expectation.example}]", 1000),
        Trait.BY_TIMES,
    ] = doc("When it should fire, for `sched check`.", ())
    retry: Annotated[RunRetry | None, SHARED, Elsewhere("maxretries retries retrypolicy")] = doc(
        "How often a failed run is tried; without it as its class says, else once."
    )
    timeout: Annotated[RunTimeout | None, MERGED, Elsewhere("timeoutms timeoutseconds")] = doc(
        "How long a run may take; without it as its class says, else without limit."
    )
    priority: Annotated[Annotated[int, checks.count(5)] | None, SHARED] = doc(
        "How soon its runs and their steps get a worker, from 1 (first) to 5 (last); else 3."
    )
    fairness: Annotated[Fairness | None, SHARED] = doc(
        "Whose turn its runs and their steps take; without it each schedule has its own."
    )
    topic: Annotated[str | None, checks.TOPIC] = doc(
        "What its events are named by, besides `schedule.arrived`: `schedule.<topic>.arrived`."
    )
    search_attributes: Annotated[dict[str, Any], ATTRIBUTES, MERGED] = doc(
        "Search attributes of its runs, by which the Web UI filters; the namespace has to have "
        "them.",
        {},
    )
    memo: Annotated[dict[str, Any], MEMO, MERGED] = doc(
        "Fields of its runs' memo, any JSON, which Temporal shows beside each run.", {}
    )
    tags: Annotated[tuple[str, ...], checks.TAGS, SHARED, Elsewhere("labels")] = doc(
        "Words by which lists and commands select it, beside others.", ()
    )
    description: Annotated[str | None, checks.PROSE] = doc("Shown above the details of each run.")
    metadata: Annotated[dict[str, Any], checks.METADATA, MERGED, Elsewhere("annotations")] = doc(
        "Names with texts, numbers, true, false or null; kept with the definition, for people.", {}
    )  # pydantic copies it for each instance

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, given: Any) -> Any:
        """Replace ``every``, and default ``overlap`` to ``queue`` if only a limit is given."""
        if not isinstance(given, Mapping):
            return given
        names = {"maxConcurrentRuns", "max_concurrent_runs"}
        if "overlap" not in given and names & given.keys():
            given = {**given, "overlap": "queue"}
        return in_milliseconds(given)

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if info.context == FIELDS_ONLY:
            return self
        faults = relation_faults(Schedule, self._given)
        if not faults:
            try:
                _ = self.spec  # built now rather than during a tick
                if self.exclusions is not None and self.first_start(EPOCH) is None:
                    what, hint = "every window is excluded", "leave a day on which it fires"
                    faults = [Fault(("exclude",), Code.FIELD_INVALID, what, hint)]
            except ScheduleError as error:
                faults = [Fault((), error.code, error.message, error.hint or "")]
        if faults:
            # Report every fault with its location; the error above has only the first.
            faults = spec_faults(self._given) + [fault for fault in faults if fault.path] or faults
            raise as_validation_error(faults, self._given)
        return self

    @property
    def seed(self) -> str:
        """The key that its times are derived from: ``H`` and ``spread`` survive a rename.

        In a file it is the key before the last rename; the ledger knows the first one, and has it
        in the place of ``was``.
        """
        return self.was or self.key

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
        return "" if self.external or self.starts_nothing else self.task_queue

    @property
    def starts_nothing(self) -> bool:
        """Whether it is in shadow mode without an end, so that no worker needs its workflow."""
        return self.mode == "shadow" and self.shadow_until is None

    @property
    def share(self) -> str:
        """Its tenant and workflow, which take turns with others when too much is due."""
        tenant = str(self.metadata.get("tenantId") or "")
        return share_of(tenant, self.workflow, once=self.kind == "at")

    @property
    def follows(self) -> tuple[Rule, ...]:
        """Rules that each window waits for; empty without parents."""
        after = self.after
        first = (Rule(after.schedule, after.when, after.window),) if after else ()
        return (*first, *(Rule(key) for key in self.needs))

    @property
    def declared_when(self) -> dict[str, Any]:
        """The given fields of the when-part, by their names in a file."""
        return {
            name: value
            for name, value in self._given.items()
            if name in fields_with(Schedule, TIMES)
        }

    @cached_property
    def shadow_end(self) -> datetime | None:
        """Windows before it are recorded in shadow mode and never start; None if there are none."""
        if self.mode == "live":
            return None
        if self.shadow_until is None:
            return from_seconds(HORIZON)
        return moment("shadowUntil", self.shadow_until, "UTC")

    def stretches(
        self, after: datetime, until: datetime
    ) -> Iterator[tuple[datetime, datetime, str | None]]:
        """Divide ``(after, until]`` by the exclusion that skips the windows in it, or None."""
        if self.exclusions is None:
            return iter([(after, until, None)])
        return self.exclusions.divide(after, until)

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
        asked: tuple[datetime, datetime | None] | None = self.__dict__.get(_ASKED)
        if asked and asked[0] == at and not but:
            return asked[1]  # lists of schedules ask for the same again and again
        fire = self.spec.next(at - TICK)
        while fire is not None:
            day = self.exclusions.day_of(fire) if self.exclusions else None
            if day is not None and day.reason is not None:
                fire = self.spec.next(from_seconds(day.end) - TICK)
            elif fire in but:
                fire = self.spec.next(fire)
            else:
                break
        if not but:
            self.__dict__[_ASKED] = at, fire
        return fire

    def last_start(
        self, after: datetime, room: int | None, *, but: Collection[datetime] = ()
    ) -> datetime | None:
        """Return the window after ``after`` with which a ``limit`` ends the schedule.

        Args:
            after: windows up to it are decided.
            room: how many more may start; None without a limit.
            but: windows that an operator skipped.

        Returns:
            ``after`` itself without room; None if no limit ends it.
        """
        if not room:
            return None if room is None else after
        after = max(after, self.shadow_end - TICK) if self.shadow_end else after
        starts = (at for at in self.starts(after, from_seconds(HORIZON)) if at not in but)
        return next(islice(starts, room - 1, None), None)

    def delay(self, fire_time: datetime) -> timedelta:
        """Return the delay of a run after its window: the key's share of ``spread``.

        It is constant for a key and a window, and shorter than the time until the next window.
        """
        following = self.spec.next(fire_time) if self.spread else None
        room = min(self.spread, following - fire_time) if following else self.spread
        return room // _MILLISECOND * _share_of_spread(self.seed) // 2**32 * _MILLISECOND

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
        """The given fields, by their names in a file."""
        given = self.model_fields_set
        values = {name: getattr(self, field) for name, field in FIELDS.items() if field in given}
        return {name: value for name, value in values.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults as JSON, by their names in a file.

        Defaults are left out so that a field added to sched-engine later changes no digest.
        ``Schedule.from_json`` reads the result back exactly. A sealed input has a name of its own.
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
            if isinstance(value, Sealed):
                dump[SEALED_INPUT] = value.to_json()
            elif keep:
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
            DefinitionUnreadable: its input is sealed by a later version.
        """
        context, given = (checks.STORED if stored else None), dict(dump)
        try:
            if (envelope := given.pop(SEALED_INPUT, None)) is not None:
                given["input"] = Sealed.from_json(envelope)
            return cls.model_validate(given, by_alias=True, by_name=False, context=context)
        except ValidationError as error:
            found = [] if stored else all_faults(cls, given)
            raise as_error(found or faults_of(error)) from None

    @cached_property
    def shown(self) -> Mapping[str, Any]:
        """The output of ``to_json`` as people read it, without a sealed input; do not change it."""
        return readable_definition(self.to_json())

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the definition, in hex; equal definitions have equal digests.

        ``paused`` is left out: it is only an initial state, and changing it is no edit. ``expect``
        is left out because it only restates what the other fields mean. Of a sealed input its own
        digest counts: a codec may encode the same input in many ways.
        """
        dump = self.to_json()
        if isinstance(self.input, Sealed):
            dump[SEALED_INPUT] = self.input.digest
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


_ASKED: Final = "_asked"
_BUILT: Final = ("spec", "exclusions", "shadow_end", "shown", _ASKED)

FIELDS: Final = {to_camel(name): name for name in Schedule.model_fields}
"""Fields of a schedule by their names in a file."""

WHEN: Final = fields_with(Schedule, Trait.CHOOSES)
"""Fields that decide when windows open and which of them start, by their names in a file."""

DEFAULTS: Final = fields_with(Schedule, SHARED)
"""Fields that may stand below ``defaults``, by their names in a file."""

NESTED: Final[dict[str, type[Part]]] = {
    to_camel(name): part
    for name, each in Schedule.model_fields.items()
    for part in (each.annotation, *get_args(each.annotation))
    if isinstance(part, type) and issubclass(part, Part)
}
"""Fields with nested fields, by their names in a file."""


@lru_cache(maxsize=100_000)
def _share_of_spread(key: str) -> int:
    """Return the key's share of ``spread`` in 2**32ths."""
    return int.from_bytes(hashlib.sha256(f"spread\0{key}".encode()).digest()[:4], "big")


def _signed(milliseconds: int) -> str:
    sign = "-" if milliseconds < 0 else ""
    return sign + format_duration(timedelta(milliseconds=abs(milliseconds)))


# --- schedule file ---


@dataclass(frozen=True, slots=True)
class Declaration:
    """A schedule as code declares it, before it is checked, and its place there.

    Attributes:
        fields: by their names in a file or in Python, with ``key`` and ``workflow``.
        file: the path of the module; ``line``: the line there.
    """

    fields: Mapping[str, Any]
    file: str
    line: int

    @property
    def place(self) -> str:
        """The place, for people."""
        return f"{self.file}:{self.line}"


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
        hooks: the webhooks of the project.
        declared: what code declares beside the file; ``schedules`` has them too.
    """

    project: str
    revision: int | None
    schedules: tuple[Schedule, ...]
    name: str
    digest: str
    queues: Mapping[str, Queue] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    calendars: tuple[tuple[str, str], ...] = ()
    hooks: tuple[Hook, ...] = ()
    declared: tuple[Declaration, ...] = ()

    @property
    def places(self) -> dict[str, str]:
        """The places of the schedules that code declares, by key."""
        return {str(each.fields["key"]): each.place for each in self.declared}
