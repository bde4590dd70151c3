"""Jobs of APScheduler 3 as schedules: of a scheduler, or a list of jobs, known by attributes.

A cron trigger needs every field to match, begins the week on Monday, has seconds last, and knows
years and weeks. Interval triggers count from their start date. Nothing of APScheduler is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from engine.errors import ImportUnreadable
from engine.imports.cron import (
    APSCHEDULER,
    MONTHS,
    WEEKDAYS,
    both_days,
    exclude_weekdays,
    expression,
    settle_clock,
    values_text,
)
from engine.imports.entries import (
    Collector,
    Draft,
    Import,
    NotExpressed,
    Options,
    Remark,
    SourceFields,
    as_input,
    load_object,
)

WORKFLOW: Final = "run_function"
_EXAMPLE: Final = "module:scheduler, as shop.jobs:scheduler"
_BOUNDS: Final = {
    "month": (1, 12),
    "day": (1, 31),
    "day_of_week": (0, 6),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_PART: Final = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_POSITION: Final = re.compile(r"(1st|2nd|3rd|4th|5th|last) +([a-z]{3})\w*")
_YEARS: Final = re.compile(r"(\d{4})(?:-(\d{4}))?")
_FROM_MONDAY: Final = (*WEEKDAYS[1:], WEEKDAYS[0])
_TWICE: Final = (
    "the triggers of an OrTrigger are a schedule each: fires at one moment are two runs, and"
    " overlap is that of each"
)
_MOST_WITH_SKIP: Final = 100
_STOPPED, _PAUSED = 0, 2
"""States of a scheduler."""


def read_jobs(name: str, options: Options) -> Import:
    """Read the jobs of ``module:scheduler``, or of a list of jobs.

    Raises:
        ImportUnreadable: there is no such object, or it has no job.
    """
    found, source = load_object(name, _EXAMPLE), name
    get_jobs = getattr(found, "get_jobs", None)
    jobs = get_jobs() if callable(get_jobs) else found
    if not isinstance(jobs, list | tuple) or not all(hasattr(job, "trigger") for job in jobs):
        raise ImportUnreadable(
            f"{name} is no scheduler and no list of jobs", hint=f"write {_EXAMPLE}"
        )
    if not jobs:
        raise ImportUnreadable(f"{name} has no job", hint="add them before the import reads it")
    entries = Collector(options, WORKFLOW)
    scheduler = _Scheduler.of(found)
    for job in jobs:
        name = str(getattr(job, "id", ""))
        for number, trigger in enumerate(_triggers(job.trigger)):
            draft = Draft(f"job {name}", str(trigger), name)
            if number:
                draft.differs("twice", _TWICE)
            fill = partial(_fill, job=job, trigger=trigger, scheduler=scheduler, now=options.now)
            entries.add(draft, fill)
    return entries.imported(f"the jobs of {source}", *_remarks(scheduler))


class _Scheduler(NamedTuple):
    """The scheduler that runs the jobs, as far as it says what becomes of them.

    Attributes:
        defaults: fields of jobs that have none; a job has them once the scheduler was started.
        unread: job stores that are not read before the scheduler was started.
    """

    defaults: Mapping[str, Any] = MappingProxyType({})
    is_paused: bool = False
    unread: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Any) -> _Scheduler:
        """Read a scheduler; a list of jobs has none of it."""
        state = getattr(found, "state", None)
        stores = getattr(found, "_jobstores", {}) if state == _STOPPED else {}
        kept = (f"{alias} ({type(store).__name__})" for alias, store in stores.items())
        return cls(
            getattr(found, "_job_defaults", {}),
            state == _PAUSED,
            tuple(each for each in kept if not each.endswith("(MemoryJobStore)")),
        )


def _remarks(scheduler: _Scheduler) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each job starts a workflow that is yours to write; its input is {function, args, kwargs}",
    )
    if scheduler.unread:
        yield Remark(
            "missing",
            "action",
            f"the scheduler is not started, so that its job store {', '.join(scheduler.unread)} is"
            " not read: import a list of jobs, from a scheduler that was started paused",
        )


def _triggers(trigger: Any) -> list[Any]:
    """Return the triggers of an OrTrigger, of those in it too; any other is one."""
    if type(trigger).__name__ != "OrTrigger" or getattr(trigger, "jitter", None):
        return [trigger]
    return [one for part in trigger.triggers for one in _triggers(part)]


def _fill(draft: Draft, *, job: Any, trigger: Any, scheduler: _Scheduler, now: datetime) -> None:
    given = draft.open(job)
    given.pass_over("id", "trigger", "name", "func", "func_ref")
    when = draft.open(trigger, "trigger.")
    later = given.take("next_run_time")
    if hasattr(trigger, "fields"):
        _cron(draft, when, now)
        if later and not when.take("jitter"):
            _first_run(draft, trigger, later, now)
    elif hasattr(trigger, "interval"):
        _interval(draft, when, later)
        if trigger is not job.trigger:
            draft.differs("phase", "inside of an OrTrigger it counts from the last run of any part")
    elif hasattr(trigger, "run_date"):
        draft.fields["at"] = when.take("run_date").isoformat()
    else:
        raise NotExpressed(f"{type(trigger).__name__} has no counterpart in a schedule")
    if when.take("jitter"):
        draft.jitter(timedelta(seconds=trigger.jitter), of="APScheduler")
    _policies(draft, given, scheduler)
    if scheduler.is_paused or (hasattr(job, "next_run_time") and later is None):
        draft.fields["paused"] = True
        who = "the scheduler" if scheduler.is_paused else "the job"
        draft.note("pause", f"{who} is paused, and so begins the schedule; sched resume starts it")
    args, kwargs = given.take("args", ()), given.take("kwargs", {})
    draft.fields["input"] = _input(job, list(args), dict(kwargs))


def _first_run(draft: Draft, trigger: Any, first: datetime, now: datetime) -> None:
    """Begin with the run that a job was given as its first, if its trigger knows that moment."""
    if trigger.get_next_fire_time(None, first - timedelta(microseconds=1)) != first:
        draft.lacks("phase", f"it runs at {first.isoformat()} too, which its trigger does not")
    elif trigger.get_next_fire_time(None, now) not in (first, None):
        draft.fields["start"] = first.astimezone(UTC).isoformat()


def _input(job: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    function = getattr(job, "func_ref", None) or getattr(job, "func", None)
    while isinstance(function, partial):
        args, kwargs = [*function.args, *args], {**function.keywords, **kwargs}
        function = function.func
    if not isinstance(function, str):
        name = getattr(function, "__qualname__", "")
        module = getattr(function, "__module__", None)
        if not name or "<" in name or not module:
            what = name or f"a {type(function).__name__}"
            raise NotExpressed(f"its function is {what}, which no name leads to; write it as a def")
        function = f"{module}:{name}"
    return as_input(function=function, args=args, kwargs=kwargs)


def _policies(draft: Draft, given: SourceFields, scheduler: _Scheduler) -> None:
    most = _own(given, scheduler, "max_instances", 1)
    draft.fields["overlap"] = "skip"
    if most > _MOST_WITH_SKIP:
        draft.fields["overlap"] = "allow"
        draft.differs("overlap", f"max_instances {most} is more than skip can count; here no limit")
    elif most > 1:
        draft.fields["maxConcurrentRuns"] = most
    late = _own(given, scheduler, "misfire_grace_time", 1)
    policy = "latest" if _own(given, scheduler, "coalesce", True) else "all"
    age = None if late is None else timedelta(seconds=late)
    draft.catch_up(age, of="APScheduler", policy=policy)
    executor = _own(given, scheduler, "executor", "default")
    if executor != "default":
        draft.note("action", f"executor {executor}: the workers of the task queue run it here")


def _own(given: SourceFields, scheduler: _Scheduler, name: str, default: Any) -> Any:
    """Return a field of a job, where None is a value; else the scheduler's default."""
    if given.has(name):
        return given.take(name)
    return scheduler.defaults.get(name, default)


# --- triggers ---


def _interval(draft: Draft, trigger: SourceFields, later: datetime | None) -> None:
    interval = trigger.take("interval")
    trigger.pass_over("interval_length", "timezone")
    milliseconds, finer = divmod(interval, timedelta(milliseconds=1))
    if finer:
        raise NotExpressed(f"an interval of {interval} is finer than a millisecond")
    start = trigger.take("start_date").astimezone(UTC)
    # Each run counts from the one before, so from a first one that the job was given.
    phase = start if trigger.take("jitter") or later is None else later.astimezone(UTC)
    since_epoch = phase - datetime(1970, 1, 1, tzinfo=UTC)
    offset, rest = divmod(since_epoch % interval, timedelta(milliseconds=1))
    if rest:
        draft.differs("phase", "its start is finer than a millisecond, which is dropped")
    draft.fields["everyMs"] = milliseconds
    if offset:
        draft.fields["offsetMs"] = offset
        named = "start_date" if phase == start else "next_run_time"
        draft.note("phase", f"offsetMs keeps the phase of {named} {phase.isoformat()}")
    _bounds(draft, phase, trigger.take("end_date"))


def _bounds(draft: Draft, start: datetime | None, end: datetime | None) -> None:
    if start is not None:
        whole = start.astimezone(UTC).replace(microsecond=0)
        draft.fields["start"] = whole.isoformat()
    if end is not None:
        draft.fields["end"] = end.astimezone(UTC).replace(microsecond=0).isoformat()


def _cron(draft: Draft, given: SourceFields, now: datetime) -> None:
    fields = {field.name: str(field).lower() for field in given.take("fields")}
    if fields["week"] != "*":
        raise NotExpressed(f"week={fields['week']}: a schedule knows no weeks of the year")
    day, weekday = _days(draft, fields["day"], fields["day_of_week"])
    second, minute, hour, month = (
        values_text(_values(fields, name), *_BOUNDS[name])
        for name in ("second", "minute", "hour", "month")
    )
    draft.fields["cron"] = expression((second, minute, hour, day, month, weekday))
    draft.fields["timezone"] = str(given.take("timezone"))
    start = given.take("start_date")
    if start is not None and start.microsecond:
        start = start.replace(microsecond=0) + timedelta(seconds=1)
    _bounds(draft, start, given.take("end_date"))
    _years(draft, fields["year"])
    settle_clock(draft, APSCHEDULER, now)


def _years(draft: Draft, text: str) -> None:
    if text == "*":
        return
    match = _YEARS.fullmatch(text)
    if match is None:
        raise NotExpressed(f"year={text}: a schedule has no field for years, only start and end")
    if {"start", "end"} & draft.fields.keys():
        raise NotExpressed(f"year={text} beside start_date or end_date")
    draft.fields |= {"start": f"{match[1]}-01-01", "end": f"{match[2] or match[1]}-12-31"}


def _days(draft: Draft, day: str, weekday: str) -> tuple[str, str]:
    """Return the day and weekday fields; ``day`` may have places of weekdays and the last day."""
    weekdays = {(value + 1) % 7 for value in _values({"day_of_week": weekday}, "day_of_week")}
    parts = [part.strip() for part in day.split(",")]
    places = [match for part in parts if (match := _POSITION.fullmatch(part))]
    plain = [part for part in parts if part != "last" and not _POSITION.fullmatch(part)]
    if len(plain) == len(parts):
        return both_days(draft, _values({"day": day}, "day"), weekdays, "APScheduler")
    days = [values_text(_values({"day": ",".join(plain)}, "day"), 1, 31)] if plain else []
    if places and days[:1] != ["*"]:
        # A day field that begins with * would have to match beside the weekday.
        days = [each.replace("*", "1-31") for each in days]
    days += ["L"] if "last" in parts else []
    placed = ",".join(
        f"{match[2].upper()}#{'L' if match[1] == 'last' else match[1][0]}" for match in places
    )
    if len(weekdays) < len(WEEKDAYS):
        if not places:
            exclude_weekdays(draft, weekdays, "APScheduler")
        else:
            raise NotExpressed(f"day={day} together with day_of_week={weekday}")
    if "*" in days:
        return "*", "*"
    # A day field and a weekday field that are both lists are joined by "or", as the parts of `day`.
    return ",".join(days) or "*", placed or "*"


def _values(fields: Mapping[str, str], name: str) -> set[int]:
    """Return the values of a field in APScheduler's grammar; weekdays count from Monday."""
    least, most = _BOUNDS[name]
    found: set[int] = set()
    for part in fields[name].replace(" ", "").split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise NotExpressed(f"{name}={fields[name]} is not known here")
        star, first, last, step = match.groups()
        begin = least if star else _number(name, first)
        end = _number(name, last) if last else most if star or step else begin
        found.update(range(begin, end + 1, int(step or 1)))
    return found


def _number(name: str, text: str) -> int:
    names = {"day_of_week": _FROM_MONDAY, "month": MONTHS}.get(name, ())
    if text.isdigit():
        return int(text)
    try:
        return names.index(text[:3].upper()) + (name == "month")
    except ValueError:
        raise NotExpressed(f"{name}={text} is not known here") from None
