"""Periodic tasks of Celery beat as schedules: of an application, a module, JSON or Django.

A crontab of Celery needs every field to match, days and weekdays included. Nothing of Celery is
imported here: its objects are known by their attributes, so that JSON needs no Celery at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from engine.errors import ImportUnreadable
from engine.imports.cron import (
    CELERY,
    MONTHS,
    WEEKDAYS,
    both_days,
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
    read_text,
)

WORKFLOW: Final = "run_task"
_MODEL: Final = "django_celery_beat."
_PARTS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_SOLAR: Final = "a solar schedule follows the sun, which no cron does"
_PART: Final = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_EXAMPLE: Final = "module:app, as shop.celery:app, or module:beat_schedule"


def read_beat(name: str, options: Options) -> Import:
    """Read the periodic tasks of ``module:app``, ``module:beat_schedule``, a JSON file or ``-``.

    JSON is a beat_schedule whose schedules are seconds, ``{"crontab": {"minute": "0"}}`` or
    ``{"timedelta": {"hours": 1}}``, or what ``dumpdata django_celery_beat`` of Django writes.

    Raises:
        ImportUnreadable: there is no such thing, or it has no periodic task.
    """
    if name == "-" or name.endswith(".json"):
        given = _from_json(name)
    else:
        given = load_object(name, _EXAMPLE)
    given = getattr(given, "conf", given)  # of an application
    zone = _zone_of(given) or options.timezone
    tasks = getattr(given, "beat_schedule", given)
    if isinstance(tasks, list):
        tasks = dict(_django(tasks))
    if not isinstance(tasks, Mapping) or not tasks:
        raise ImportUnreadable(f"{name} has no periodic task", cure=f"write {_EXAMPLE}")
    entries = Collector(options, WORKFLOW)
    for task_name, entry in tasks.items():
        read = _read(entry)
        draft = Draft(str(task_name), f"{read.task} {_shown(read.schedule)}", str(task_name))
        entries.add(draft, partial(_fill, entry=read, zone=zone, now=options.now))
    return entries.imported(f"the periodic tasks of {name}", *_remarks(zone))


def _remarks(zone: str) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each task starts a workflow that is yours to write; its input is {task, args, kwargs,"
        " options}, as of send_task: it sends the task to Celery, or does its work itself",
    )
    yield Remark("note", "timezone", f"crontabs are on the clock of {zone}")
    yield Remark(
        "difference",
        "catch-up",
        "Celery beat sends a task that was due while it was down once, at any age; here up to 365d",
    )


def _from_json(name: str) -> Any:
    try:
        return json.loads(read_text(name))
    except ValueError as error:
        raise ImportUnreadable(f"{name} is no JSON: {error}", cure=f"write {_EXAMPLE}") from None


def _zone_of(given: Any) -> str | None:
    if not hasattr(given, "beat_schedule"):
        return None
    return str(getattr(given, "timezone", None) or "UTC")


# --- entries ---


class BeatEntry(NamedTuple):
    """A periodic task, wherever it came from."""

    task: str
    schedule: Any
    args: Any = ()
    kwargs: Any = None
    options: Any = None
    relative: bool = False
    enabled: bool = True
    zone: str = ""
    lacking: str = ""


def _read(entry: Any) -> BeatEntry:
    """Return an entry of a beat_schedule, which is a mapping or an object of Celery's."""
    if isinstance(entry, BeatEntry):
        return entry
    given: dict[str, Any] = {
        name: entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)
        for name in (*BeatEntry._fields, "disabled")
    }
    given = {name: value for name, value in given.items() if value is not None}
    if given.pop("disabled", False):
        given["enabled"] = False
    return BeatEntry(**{"task": "", "schedule": None, **given})


def _shown(schedule: Any) -> str:
    return str(schedule) if not isinstance(schedule, Mapping) else json.dumps(schedule, default=str)


def _fill(draft: Draft, *, entry: BeatEntry, zone: str, now: datetime) -> None:
    _when(draft, entry, entry.zone or zone, now)
    draft.fields["catchUp"] = {"policy": "latest", "window": "365d"}
    given = {"task": str(entry.task), "args": _listed(entry.args), "kwargs": entry.kwargs}
    options = {
        name: value for name, value in dict(entry.options or {}).items() if value is not None
    }
    expires = options.get("expires")
    if expires is not None:
        draft.differs(
            "limits",
            "expires revokes a task that waits too long for a worker; a run waits"
            " (timeout.run ends one that takes too long)",
        )
        options["expires"] = _seconds_or_text(expires)
    if "queue" in options:
        draft.note(
            "action",
            f"queue {options['queue']} is an option of the task, no task queue of Temporal",
        )
    draft.fields["input"] = _json({**given, "options": options})
    if not entry.enabled:
        draft.fields["paused"] = True
        draft.note("pause", "disabled: the schedule begins paused; sched resume starts it")
    if entry.lacking:
        draft.lacks("limits", entry.lacking)


def _listed(args: Any) -> list[Any]:
    return list(args or ())


def _seconds_or_text(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, datetime) else value


def _json(value: dict[str, Any]) -> Any:
    """Return an input without what is empty.

    Raises:
        NotExpressed: an argument is no JSON.
    """
    kept = {name: one for name, one in value.items() if one not in ([], {}, None)}
    try:
        return json.loads(json.dumps(kept))
    except (TypeError, ValueError) as error:
        raise NotExpressed(f"an argument is no JSON: {error}") from None


# --- times ---


def _when(draft: Draft, entry: BeatEntry, zone: str, now: datetime) -> None:
    schedule = entry.schedule
    if isinstance(schedule, Mapping):
        schedule = _of_json(schedule)
    every = getattr(schedule, "run_every", schedule)
    if isinstance(every, int | float) and not isinstance(every, bool):
        every = timedelta(seconds=every)
    if isinstance(every, timedelta):
        _interval(draft, every, relative=entry.relative or getattr(schedule, "relative", False))
    elif isinstance(schedule, Mapping):
        _crontab(draft, [schedule[part] for part in _PARTS], zone, now)
    elif all(hasattr(schedule, part) for part in _PARTS):
        _crontab(draft, [getattr(schedule, part) for part in _PARTS], zone, now)
    elif isinstance(schedule, str):
        draft.fields["at"] = schedule
    elif hasattr(schedule, "event") and hasattr(schedule, "lat"):
        raise NotExpressed(_SOLAR)
    else:
        raise NotExpressed(f"{type(schedule).__name__} is no schedule that is known here")


def _of_json(schedule: Mapping[str, Any]) -> Any:
    """Return the schedule that JSON names: a length, a moment, or the values of each field."""
    if "solar" in schedule:
        raise NotExpressed(_SOLAR)
    if "timedelta" in schedule:
        return timedelta(**schedule["timedelta"])
    if "clocked" in schedule:
        return str(schedule["clocked"])
    fields = schedule.get("crontab", schedule)
    unknown = sorted(set(fields) - set(_PARTS))
    if unknown:
        raise NotExpressed(f"{unknown[0]} is no field of a crontab: {', '.join(_PARTS)}")
    return {
        part: _values(fields.get(part, "*"), *bounds)
        for part, bounds in zip(_PARTS, _BOUNDS, strict=True)
    }


def _interval(draft: Draft, every: timedelta, *, relative: bool) -> None:
    milliseconds, finer = divmod(every, timedelta(milliseconds=1))
    if finer:
        raise NotExpressed(f"an interval of {every} is finer than a millisecond")
    draft.fields["everyMs"] = milliseconds
    since = "the clock's own hours and days" if relative else "its last run, or the start of beat"
    draft.differs(
        "phase", f"Celery beat counts from {since}; an interval from 1970-01-01T00:00:00Z"
    )


def _crontab(draft: Draft, values: list[Collection[int]], zone: str, now: datetime) -> None:
    minute, hour, days, months, weekdays = values
    day, weekday = both_days(draft, days, weekdays, "Celery beat")
    draft.fields["cron"] = expression(
        (
            "0",
            values_text(minute, 0, 59),
            values_text(hour, 0, 23),
            day,
            values_text(months, 1, 12),
            weekday,
        )
    )
    draft.fields["timezone"] = zone
    settle_clock(draft, CELERY, now)


def _values(text: Any, least: int, most: int) -> set[int]:
    """Return the values of a field in Celery's grammar, in which ranges wrap."""
    found: set[int] = set()
    for part in str(text).replace(" ", "").split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise NotExpressed(f"{text!r} is no field of a crontab")
        star, first, last, step = match.groups()
        begin = least if star else _number(first, least, most)
        end = most if star else _number(last or first, least, most)
        span = (
            [*range(begin, end + 1)]
            if begin <= end
            else [*range(begin, most + 1), *range(least, end + 1)]
        )
        found.update(span[:: int(step or 1)])
    return found


def _number(text: str, least: int, most: int) -> int:
    names = {name: number for number, name in enumerate(WEEKDAYS)} if most == _BOUNDS[-1][1] else {}
    names |= {name: number for number, name in enumerate(MONTHS, 1)} if most == len(MONTHS) else {}
    number = int(text) if text.isdigit() else names.get(text[:3].upper(), -1)
    if not least <= number <= most:
        raise NotExpressed(f"{text!r} is not from {least} to {most}")
    return number


# --- Django ---


def _django(rows: list[Any]) -> Iterator[tuple[str, BeatEntry]]:
    """Yield the periodic tasks of ``dumpdata django_celery_beat``."""
    ours = [row for row in rows if str(row.get("model", "")).startswith(_MODEL)]
    by_id = {(row["model"].removeprefix(_MODEL), row["pk"]): row["fields"] for row in ours}
    for (model, number), fields in by_id.items():
        if model == "periodictask":
            yield str(fields.get("name") or number), _of_row(fields, by_id)


def _of_row(fields: Mapping[str, Any], by_id: Mapping[tuple[str, Any], Any]) -> BeatEntry:
    kinds = ("interval", "crontab", "solar", "clocked")
    kind = next((kind for kind in kinds if fields.get(kind) is not None), "")
    when = by_id.get((f"{kind}schedule", fields.get(kind)), {})
    options = {name: fields.get(name) for name in ("queue", "exchange", "routing_key", "priority")}
    options["expires"] = fields.get("expires") or fields.get("expire_seconds")
    once = fields.get("one_off") and kind != "clocked"
    return BeatEntry(
        task=fields.get("task", ""),
        schedule=_row_schedule(kind, when),
        args=json.loads(fields.get("args") or "[]"),
        kwargs=json.loads(fields.get("kwargs") or "{}"),
        options=options,
        enabled=bool(fields.get("enabled", True)),
        zone=str(when.get("timezone") or ""),
        lacking="one_off: it runs once, and a schedule until its end" if once else "",
    )


def _row_schedule(kind: str, when: Mapping[str, Any]) -> Any:
    if kind == "interval":
        return {"timedelta": {when["period"]: when["every"]}}
    if kind == "crontab":
        return {"crontab": {part: when.get(part, "*") for part in _PARTS}}
    if kind == "clocked":
        return {"clocked": when["clocked_time"]}
    return {kind: dict(when)}
