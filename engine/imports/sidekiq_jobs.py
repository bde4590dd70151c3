"""Jobs of sidekiq-cron, sidekiq-scheduler and resque-scheduler as schedules, from their YAML.

Their expressions are read by fugit: five fields or six with seconds first, and a time zone behind
them. In its day rule ``*/2`` is a list and no star.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

import yaml

from engine.errors import ImportUnreadable
from engine.imports.cron import SIDEKIQ, either_day, settle_clock
from engine.imports.entries import (
    Collector,
    Draft,
    Import,
    NotExpressed,
    Options,
    Remark,
    as_input,
    read_text,
    resolve,
    shown,
)

WORKFLOW: Final = "run_ruby_job"
_HINT: Final = "write the YAML file of the schedule, as config/schedule.yml"
_LEAST, _MOST = 5, 6
"""Fields of an expression."""
_PLACE: Final = re.compile(r"[A-Z]\w+(?:/[\w+-]+)+|UTC|GMT|Z")
_MODULO: Final = re.compile(r"%|&")
_LENGTH: Final = re.compile(r"(\d+)(w|d|h|m|s)")
_UNITS: Final = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}


def read_ruby(name: str, options: Options) -> Import:
    """Read jobs by name, or a list of jobs; ``schedule`` may be around them, as in sidekiq.yml.

    Raises:
        ImportUnreadable: there is no such file, it is not YAML, or it has no job.
    """
    try:
        found = yaml.safe_load(read_text(name))
    except yaml.YAMLError as error:
        first = " ".join(str(error).split())[:200]
        raise ImportUnreadable(f"{name} is no YAML: {first}", hint=_HINT) from None
    for around in ("scheduler", "schedule"):
        inner = _plain(found).get(around)
        found = inner if isinstance(inner, Mapping | list) else found
    several = found if isinstance(found, list) else ()
    listed = [*found.items()] if isinstance(found, Mapping) else [("", each) for each in several]
    entries = Collector(options, WORKFLOW)
    for job, entry in listed:
        draft = Draft(f"job {job}", "", str(job))
        entries.add(draft, partial(_fill, entry=entry, options=options))
    if not entries.found:
        raise ImportUnreadable(f"{name} has no job", hint=_HINT)
    return entries.imported(f"the jobs of {name}", *_remarks(options))


def _remarks(options: Options) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each job starts a workflow that is yours to write; its input is {class, args, queue}: it"
        " pushes the job to Sidekiq or Resque, or does its work itself",
    )
    yield Remark("note", "catch-up", "they make up for nothing that they missed: policy none")
    yield Remark(
        "note",
        "timezone",
        f"expressions without a zone are in {options.timezone}; --timezone names another",
    )


def _plain(value: Any) -> dict[str, Any]:
    """Return a mapping without the colons of Ruby's symbols; no field for anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name).removeprefix(":"): one for name, one in value.items()}


def _fill(draft: Draft, *, entry: Any, options: Options) -> None:
    given = draft.open(_plain(entry) if isinstance(entry, Mapping) else entry)
    draft.name = draft.name or resolve(given.take("name", kind=str), "name", "a key is made of it")
    given.pass_over("name")
    draft.place = f"job {draft.name}"
    cron, every = given.take("cron"), given.take("every")
    if isinstance(cron, list):  # with options of the scheduler behind it
        raise NotExpressed("its cron is a list; write its first element, and see to the options")
    if cron is not None:
        _cron(draft, str(cron), options)
    elif every is not None:
        _every(draft, every)
    else:
        raise NotExpressed("it has no cron and no every; at and in are moments of its start")
    draft.fields["catchUp"] = {"policy": "none"}
    if about := given.take("description", kind=str):
        draft.fields["description"] = about
    if given.take("status", "enabled") == "disabled" or not given.take("enabled", True):
        draft.fields["paused"] = True
        draft.note("pause", "disabled: the schedule begins paused; sched resume starts it")
    queue = given.take("queue") or given.take("queue_name")
    if queue:
        draft.note("action", f"queue {queue} is that of the job, no task queue of Temporal")
    named = given.take("class") or given.take("klass")
    if not named:
        raise NotExpressed("it names no class")
    args = given.take("args")
    given.pass_over("queue_name", "klass")
    draft.fields["input"] = as_input(
        **{"class": named, "args": args, "queue": queue, "active_job": given.take("active_job")}
    )


def _cron(draft: Draft, text: str, options: Options) -> None:
    draft.text = text
    words = text.split()
    place = options.timezone
    if len(words) > 1 and _PLACE.fullmatch(words[-1]):
        named = words.pop()
        place = "UTC" if named == "Z" else named
    if words and words[0].startswith("@") and len(words) == 1:
        draft.fields["cron"] = words[0]
    elif not _LEAST <= len(words) <= _MOST or not re.match(r"[\d*]", words[0]):
        raise NotExpressed(f"{text!r} is no cron of five or six fields; write it as one")
    elif _MODULO.search(text) or any(word.startswith("-") for word in words):
        raise NotExpressed(f"{text!r} has weeks (%) or days from the end, which no cron here has")
    else:
        draft.fields["cron"] = either_day(draft, " ".join(words), "fugit")
    draft.fields["timezone"] = place
    settle_clock(draft, SIDEKIQ, options.now)


def _every(draft: Draft, given: Any) -> None:
    text, *others = given if isinstance(given, list) else [given]
    draft.text = f"every {text}"
    parts = _LENGTH.findall(str(text))
    if not parts or "".join(number + unit for number, unit in parts) != str(text):
        raise NotExpressed(f"every {text} is no length of time, as 1h30m")
    length = timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))
    draft.fields["everyMs"] = length // timedelta(milliseconds=1)
    draft.differs(
        "phase",
        "it counts from the start of the scheduler there; an interval from 1970-01-01T00:00:00Z",
    )
    for each in others:
        draft.lacks("phase", f"{shown(each)} beside every is not imported")
