"""Jobs of APScheduler 3 as schedules: of a scheduler, or a list of jobs, known by attributes.

A cron trigger needs every field to match, begins the week on Monday, has seconds last, and knows
years and weeks. Interval triggers count from their start date. Nothing of APScheduler is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

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


def read_jobs(name: str, options: Options) -> Import:
    """Read the jobs of ``module:scheduler``, or of a list of jobs.

    Raises:
        ImportUnreadable: there is no such object, or it has no job.
    """
    found = load_object(name, _EXAMPLE)
    get_jobs = getattr(found, "get_jobs", None)
    jobs = get_jobs() if callable(get_jobs) else found
    if not isinstance(jobs, list | tuple) or not all(hasattr(job, "trigger") for job in jobs):
        raise ImportUnreadable(
            f"{name} is no scheduler and no list of jobs", cure=f"write {_EXAMPLE}"
        )
    if not jobs:
        raise ImportUnreadable(f"{name} has no job", cure="add them before the import reads it")
    entries = Collector(options, WORKFLOW)
    running = bool(getattr(found, "running", False))
    for job in jobs:
        for number, trigger in enumerate(_triggers(job.trigger)):
            draft = Draft(f"job {job.id}", str(trigger), str(job.id))
            if number:
                draft.differs("twice", _TWICE)
            fill = partial(_fill, job=job, trigger=trigger, running=running, now=options.now)
            entries.add(draft, fill)
    return entries.imported(f"the jobs of {name}", *_remarks())


def _remarks() -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each job starts a workflow that is yours to write; its input is {function, args, kwargs}",
    )


def _triggers(trigger: Any) -> list[Any]:
    parts = getattr(trigger, "triggers", None)
    is_or = type(trigger).__name__ == "OrTrigger"
    return list(parts) if is_or and parts else [trigger]


def _fill(draft: Draft, *, job: Any, trigger: Any, running: bool, now: datetime) -> None:
    if hasattr(trigger, "fields"):
        _cron(draft, trigger, now)
    elif hasattr(trigger, "interval"):
        _interval(draft, trigger)
    elif hasattr(trigger, "run_date"):
        draft.fields["at"] = trigger.run_date.isoformat()
    else:
        raise NotExpressed(f"{type(trigger).__name__} has no counterpart in a schedule")
    if getattr(trigger, "jitter", None):
        draft.jitter(timedelta(seconds=trigger.jitter), of="APScheduler")
    _policies(draft, job, running=running)
    draft.fields["input"] = _input(job)


def _input(job: Any) -> Any:
    reference = getattr(job, "func_ref", None) or getattr(job, "func", None)
    given = {
        "function": reference
        if isinstance(reference, str)
        else getattr(reference, "__qualname__", str(reference)),
        "args": list(getattr(job, "args", None) or ()),
        "kwargs": dict(getattr(job, "kwargs", None) or {}),
    }
    try:
        return json.loads(json.dumps({name: value for name, value in given.items() if value}))
    except (TypeError, ValueError) as error:
        raise NotExpressed(f"an argument is no JSON: {error}") from None


def _policies(draft: Draft, job: Any, *, running: bool) -> None:
    most = getattr(job, "max_instances", None) or 1
    draft.fields["overlap"] = "skip"
    if most > _MOST_WITH_SKIP:
        draft.fields["overlap"] = "allow"
        draft.differs("overlap", f"max_instances {most} is more than skip can count; here no limit")
    elif most > 1:
        draft.fields["maxConcurrentRuns"] = most
    late = getattr(job, "misfire_grace_time", 1)
    policy = "latest" if getattr(job, "coalesce", True) else "all"
    age = None if late is None else timedelta(seconds=late)
    draft.catch_up(age, of="APScheduler", policy=policy)
    if running and getattr(job, "next_run_time", None) is None:
        draft.fields["paused"] = True
        draft.note("pause", "the job is paused, and so begins the schedule; sched resume starts it")


# --- triggers ---


def _interval(draft: Draft, trigger: Any) -> None:
    milliseconds, finer = divmod(trigger.interval, timedelta(milliseconds=1))
    start = trigger.start_date.astimezone(UTC)
    since_epoch = start - datetime(1970, 1, 1, tzinfo=UTC)
    offset, rest = divmod(since_epoch % trigger.interval, timedelta(milliseconds=1))
    if finer:
        raise NotExpressed(f"an interval of {trigger.interval} is finer than a millisecond")
    if rest:
        draft.differs("phase", "its start is finer than a millisecond, which is dropped")
    draft.fields["everyMs"] = milliseconds
    if offset:
        draft.fields["offsetMs"] = offset
        draft.note("phase", f"offsetMs keeps the phase of start_date {start.isoformat()}")
    _bounds(draft, trigger)


def _bounds(draft: Draft, trigger: Any) -> None:
    for name, ours in (("start_date", "start"), ("end_date", "end")):
        moment = getattr(trigger, name, None)
        if moment is not None:
            draft.fields[ours] = moment.astimezone(UTC).replace(microsecond=0).isoformat()


def _cron(draft: Draft, trigger: Any, now: datetime) -> None:
    fields = {field.name: str(field).lower() for field in trigger.fields}
    if fields["week"] != "*":
        raise NotExpressed(f"week={fields['week']}: a schedule knows no weeks of the year")
    day, weekday = _days(draft, fields["day"], fields["day_of_week"])
    second, minute, hour, month = (
        values_text(_values(fields, name), *_BOUNDS[name])
        for name in ("second", "minute", "hour", "month")
    )
    draft.fields["cron"] = expression((second, minute, hour, day, month, weekday))
    draft.fields["timezone"] = str(trigger.timezone)
    _bounds(draft, trigger)
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
