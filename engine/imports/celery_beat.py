"""Periodic tasks of Celery beat as schedules: of an application, a module, JSON or Django.

A crontab of Celery needs every field to match, days and weekdays included. Nothing of Celery is
imported here: its objects are known by their attributes, so that JSON needs no Celery at all.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
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
    SourceFields,
    as_input,
    load_object,
    read_text,
    resolve,
    shown,
)

WORKFLOW: Final = "run_task"
_MODEL: Final = "django_celery_beat."
_PARTS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_SOLAR: Final = "a solar schedule follows the sun, which no cron does"
_PART: Final = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_FILE: Final = "celery.beat:PersistentScheduler"
"""Beat's own scheduler, which reads beat_schedule; others keep tasks in a database."""
_KNOWN: Final = ("celery", "django_celery_beat", "builtins")
_EXAMPLE: Final = "module:app, as shop.celery:app, or module:beat_schedule"


def read_beat(name: str, options: Options) -> Import:
    """Read the periodic tasks of ``module:app``, ``module:beat_schedule``, a JSON file or ``-``.

    JSON is a beat_schedule whose schedules are seconds, ``{"crontab": {"minute": "0"}}`` or
    ``{"timedelta": {"hours": 1}}``, or what ``dumpdata django_celery_beat`` of Django writes.

    Raises:
        ImportUnreadable: there is no such thing, or it has no periodic task.
    """
    if name == "-" or name.endswith(".json"):
        given, beside = _from_json(name), None
    else:
        given, beside = _from_module(name)
    beat = _Beat.of(given, beside, options)
    tasks = getattr(given, "beat_schedule", given)
    remarks = [*_remarks(beat)]
    entries = Collector(options, WORKFLOW)
    if isinstance(tasks, list):
        remarks += _add_rows(entries, tasks, beat)
    elif isinstance(tasks, Mapping):
        for task_name, entry in tasks.items():
            draft = Draft(str(task_name), "", str(task_name))
            entries.add(draft, partial(_fill, entry=entry, beat=beat))
    if not (isinstance(tasks, list | Mapping) and tasks and entries.found):
        raise ImportUnreadable(f"{name} has no periodic task", hint=beat.hint)
    return entries.imported(f"the periodic tasks of {name}", *remarks)


class _Beat(NamedTuple):
    """The beat that sends the tasks: its clock and its settings."""

    zone: str
    now: datetime
    remarks: tuple[Remark, ...] = ()
    late: timedelta | None = None
    hint: str = f"write {_EXAMPLE}"

    @classmethod
    def of(cls, conf: Any, beside: Any, options: Options) -> _Beat:
        """Read the settings of an application, or those that stand beside a beat_schedule."""
        is_app = hasattr(conf, "beat_schedule")
        names = ("timezone",) if is_app else ("CELERY_TIMEZONE", "timezone")
        source = conf if is_app else beside
        named = next(filter(None, (getattr(source, name, None) for name in names)), None)
        utc = not is_app or getattr(conf, "enable_utc", True)
        remarks, hint = [], cls._field_defaults["hint"]
        if not (named or utc):
            sentence = f"enable_utc is off: {options.timezone} stands for the clock of its machine"
            remarks.append(Remark("difference", "timezone", sentence))
        scheduler = str(getattr(conf, "beat_scheduler", None) or _FILE)
        if is_app and not scheduler.endswith(_FILE):
            hint = f"beat reads its tasks with {scheduler}; see `sched docs coming-from`"
            sentence = f"beat reads its tasks with {scheduler}, and this import does not"
            if scheduler.startswith("django_celery_beat."):
                sentence += "; `manage.py dumpdata django_celery_beat` prints them for it"
            remarks.append(Remark("missing", "action", sentence))
        if is_app and getattr(conf, "result_expires", None):
            sentence = (
                "where results do not expire by themselves, beat sends celery.backend_cleanup"
            )
            remarks.append(Remark("note", "action", f"{sentence} at 04:00, too"))
        late = getattr(conf, "beat_cron_starting_deadline", None)
        zone = str(named) if named else "UTC" if is_app and utc else options.timezone
        return cls(zone, options.now, tuple(remarks), late and timedelta(seconds=late), hint)


def _remarks(beat: _Beat) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each task starts a workflow that is yours to write; its input is {task, args, kwargs,"
        " options}, as of send_task: it sends the task to Celery, or does its work itself",
    )
    yield Remark("note", "timezone", f"crontabs are on the clock of {beat.zone}")
    yield Remark(
        "difference",
        "catch-up",
        "Celery beat sends a task that was due while it was down once, at any age; here up to 365d",
    )
    yield from beat.remarks


def _from_json(name: str) -> Any:
    try:
        return json.loads(read_text(name))
    except ValueError as error:
        raise ImportUnreadable(f"{name} is no JSON: {error}", hint=f"write {_EXAMPLE}") from None


def _from_module(name: str) -> tuple[Any, Any]:
    """Return the settings of an application, or a beat_schedule, and the module that has it.

    An application is loaded and finalized as ``celery beat`` does it: tasks may be added then.
    """
    given = load_object(name, _EXAMPLE)
    if hasattr(given, "conf") and callable(getattr(given, "finalize", None)):
        try:
            given.loader.init_worker()
            given.finalize()
        except Exception as error:  # code of the user, which may fail with anything
            raise ImportUnreadable(
                f"loading the tasks of {name} failed: {type(error).__name__}: {error}",
                hint="run it where celery beat runs, with its packages",
            ) from error
    return getattr(given, "conf", given), sys.modules.get(name.partition(":")[0])


# --- entries ---


def _fill(draft: Draft, *, entry: Any, beat: _Beat) -> None:
    """Fill a schedule from an entry of a beat_schedule: a mapping, or an object of Celery's."""
    given = draft.open(entry)
    given.pass_over("name", "app", "last_run_at", "total_run_count")
    schedule = given.take("schedule")
    draft.text = f"{given.take('task')} {shown(schedule)}"
    relative = bool(given.take("relative"))
    _when(draft, schedule, beat, relative=relative)
    enabled = bool(given.take("enabled", True)) and not given.take("disabled", False)
    _task(draft, given, dict(given.take("options", {}, kind=Mapping)), enabled=enabled)


def _task(draft: Draft, given: SourceFields, options: dict[str, Any], *, enabled: bool) -> None:
    """Fill what a schedule starts; ``given`` has the task and its arguments."""
    task = given.take("task", kind=str)
    if not task:
        raise NotExpressed("it names no task")
    expires = options.get("expires")
    if expires is not None:
        draft.differs(
            "limits",
            "expires revokes a task that waits too long for a worker; a run waits"
            " (timeout.run ends one that takes too long)",
        )
        options["expires"] = _seconds_or_text(expires)
    if options.get("queue"):
        draft.note(
            "action",
            f"queue {options['queue']} is an option of the task, no task queue of Temporal",
        )
    draft.fields["input"] = as_input(
        task=task,
        args=list(given.take("args", (), kind=(list, tuple))),
        kwargs=dict(given.take("kwargs", {}, kind=Mapping)),
        options={name: value for name, value in options.items() if value is not None},
    )
    if not enabled:
        draft.fields["paused"] = True
        draft.note("pause", "disabled: the schedule begins paused; sched resume starts it")


def _seconds_or_text(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, datetime) else value


# --- times ---


def _when(draft: Draft, schedule: Any, beat: _Beat, *, relative: bool = False) -> None:
    _refuse_own_rules(schedule)
    if isinstance(schedule, Mapping):
        schedule = _of_json(draft, schedule)
    every = getattr(schedule, "run_every", schedule)
    if isinstance(every, int | float) and not isinstance(every, bool):
        every = timedelta(seconds=every)
    if isinstance(every, timedelta):
        _interval(draft, every, relative=relative or getattr(schedule, "relative", False))
    elif isinstance(schedule, Mapping):
        _crontab(draft, [schedule[part] for part in _PARTS], beat)
    elif all(hasattr(schedule, part) for part in _PARTS):
        ours = beat._replace(zone=str(schedule.tz)) if _is_of_django(schedule) else beat
        _crontab(draft, [getattr(schedule, part) for part in _PARTS], ours)
    elif isinstance(schedule, str):
        draft.fields["at"] = schedule
    elif hasattr(schedule, "clocked_time"):
        draft.fields["at"] = schedule.clocked_time.isoformat()
    elif hasattr(schedule, "event") and hasattr(schedule, "lat"):
        raise NotExpressed(_SOLAR)
    elif schedule is None:
        raise NotExpressed("it has no schedule")
    else:
        raise NotExpressed(f"{type(schedule).__name__} is no schedule that is known here")
    draft.fields.setdefault("catchUp", {"policy": "latest", "window": "365d"})


def _refuse_own_rules(schedule: Any) -> None:
    """Refuse a class of the application that decides by itself when a task is due."""
    if callable(getattr(schedule, "nowfun", None)) and not _is_of_django(schedule):
        raise NotExpressed("its schedule has a clock of its own (nowfun)")
    for rule in ("is_due", "remaining_delta", "remaining_estimate"):
        owner = getattr(getattr(type(schedule), rule, None), "__module__", _KNOWN[0])
        if owner.partition(".")[0] not in _KNOWN:
            raise NotExpressed(
                f"{type(schedule).__name__} decides by itself when it is due: {rule}"
            )


def _is_of_django(schedule: Any) -> bool:
    """Whether a crontab has a zone of its own."""
    return type(schedule).__module__.startswith("django_celery_beat.")


def _of_json(draft: Draft, schedule: Mapping[str, Any]) -> Any:
    """Return the schedule that JSON names: a length, a moment, or the values of each field."""
    if "solar" in schedule:
        raise NotExpressed(_SOLAR)
    given = draft.open(schedule, "schedule.")
    if "timedelta" in schedule:
        return timedelta(**given.take("timedelta", kind=Mapping))
    if "clocked" in schedule:
        return given.take("clocked", kind=str)
    fields = given.take("crontab", {}, kind=Mapping)
    if "crontab" not in schedule:
        given.pass_over(*schedule)
        fields = schedule
    unknown = sorted(set(fields) - set(_PARTS))
    if unknown or not fields:
        what = f"{unknown[0]} is no field of a crontab" if unknown else "it has no field"
        raise NotExpressed(f"{what}: {', '.join(_PARTS)}")
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


def _crontab(draft: Draft, values: list[Collection[int]], beat: _Beat) -> None:
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
    draft.fields["timezone"] = beat.zone
    settle_clock(draft, CELERY, beat.now)
    if beat.late:
        draft.catch_up(beat.late, of="beat_cron_starting_deadline")


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

_KINDS: Final = ("interval", "crontab", "solar", "clocked")
_HISTORY: Final = ("last_run_at", "total_run_count", "date_changed")
_DUMP: Final = "dump all of django_celery_beat"


def _add_rows(entries: Collector, rows: list[Any], beat: _Beat) -> Iterator[Remark]:
    """Add the periodic tasks of ``dumpdata django_celery_beat``; return what concerns all."""
    others = Counter[str]()
    when: dict[tuple[str, str], Any] = {}
    tasks = []
    for row in rows:
        model = str(row.get("model")) if isinstance(row, Mapping) else "no row"
        kind = model.removeprefix(_MODEL)
        if kind == "periodictask":
            tasks.append(row)
        elif kind.removesuffix("schedule") in _KINDS:
            when[kind.removesuffix("schedule"), str(row.get("pk"))] = row.get("fields")
        elif kind != "periodictasks":  # when beat looked last
            others[model] += 1
    for row in tasks:
        draft = Draft(f"row {row.get('pk')}", "")
        entries.add(draft, partial(_fill_row, row=row, when=when, beat=beat))
    history = f"{', '.join(_HISTORY)} are history, which is not imported"
    yield Remark("note", "limits", history)
    if others:
        listed = ", ".join(sorted(others))
        yield Remark("note", "action", f"other rows are left out: {others.total()} ({listed})")


def _fill_row(
    draft: Draft, *, row: Mapping[str, Any], when: Mapping[tuple[str, str], Any], beat: _Beat
) -> None:
    given = draft.open(row.get("fields"))
    draft.name = given.take("name", str(row.get("pk")), kind=str)
    draft.place = draft.name
    kinds = [(kind, given.take(kind)) for kind in _KINDS]
    named = [(kind, reference) for kind, reference in kinds if reference is not None]
    draft.text = f"{given.take('task')} {' '.join(f'{one} {of}' for one, of in named)}"
    if len(named) != 1:
        raise NotExpressed(f"it has {len(named)} of {', '.join(_KINDS)}; beat wants one")
    ((kind, reference),) = named
    found = resolve(when.get((kind, str(reference))), f"the row {kind} {reference}", _DUMP)
    _row_schedule(draft, kind, draft.open(found, f"{kind}."), beat)
    draft.text = f"{given.take('task')} {kind} {shown(found)}"
    once = bool(given.take("one_off"))
    enabled = _bounds(draft, given, once=once and kind != "clocked")
    options = {name: given.take(name) for name in ("queue", "exchange", "routing_key", "priority")}
    options["expires"] = given.take("expires") or given.take("expire_seconds")
    options["headers"] = _decoded(given, "headers", Mapping)
    if text := given.take("description", kind=str):
        draft.fields["description"] = text
    args, kwargs = _decoded(given, "args", list), _decoded(given, "kwargs", Mapping)
    given.pass_over(*_HISTORY, "expire_seconds")
    arguments = draft.open({"task": given.take("task"), "args": args, "kwargs": kwargs})
    _task(draft, arguments, options, enabled=enabled)


def _bounds(draft: Draft, given: SourceFields, *, once: bool) -> bool:
    """Set what begins and ends the schedule; return whether the task is enabled."""
    enabled = bool(given.take("enabled", True))
    start, expires = given.take("start_time", kind=str), given.take("expires", kind=str)
    if "at" in draft.fields:
        if start or expires:
            draft.lacks("limits", "start_time and expires beside a moment")
        return enabled
    if start:
        draft.fields["start"] = _whole(start)
    if expires:  # at that moment beat sends nothing more, where `end` is included
        draft.fields["end"] = _whole(expires, earlier=timedelta(seconds=1))
    if once and given.take("total_run_count"):
        draft.differs("limits", "one_off, and it has run: beat sends it no more; it begins paused")
        enabled = False
    if once:
        draft.fields["limit"] = 1
    return enabled


def _whole(text: str, *, earlier: timedelta = timedelta(0)) -> str:
    """Return the first whole second that is not before a moment, or is so much earlier."""
    moment = datetime.fromisoformat(text)
    more = timedelta(microseconds=-moment.microsecond % 1_000_000)
    return (moment + more - earlier).isoformat()


def _decoded(given: SourceFields, name: str, kind: type) -> Any:
    """Return what a row keeps as JSON in a text."""
    text = given.take(name, kind=str)
    try:
        value = json.loads(text) if text else None
    except ValueError:
        raise NotExpressed(f"its {name} are no JSON: {shown(text)}") from None
    if value is not None and not isinstance(value, kind):
        raise NotExpressed(f"its {name} are no {'list' if kind is list else 'mapping'}: {text}")
    return value


def _row_schedule(draft: Draft, kind: str, row: SourceFields, beat: _Beat) -> None:
    if kind == "solar":
        raise NotExpressed(_SOLAR)
    if kind == "clocked":
        row.pass_over("enabled")  # of versions before 2
        _when(draft, resolve(row.take("clocked_time", kind=str), "clocked_time", _DUMP), beat)
    elif kind == "interval":
        period = resolve(row.take("period", kind=str), "period", _DUMP)
        every = resolve(row.take("every", kind=int), "every", _DUMP)
        _when(draft, {"timedelta": {period: every}}, beat)
    else:
        zone = row.take("timezone", beat.zone, kind=str)
        taken = {part: row.take(part) for part in _PARTS}
        fields = {part: text for part, text in taken.items() if text is not None}
        _when(draft, {"crontab": fields}, beat._replace(zone=zone))
