"""Triggers of Quartz as schedules, from a file of job-scheduling-data in XML.

A cron of Quartz has seconds and years, and its week begins with 1 on Sunday. A job is a class, with
a map of data that a trigger may add to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError, fromstring

from engine.errors import ImportUnreadable
from engine.imports.cron import QUARTZ, quartz_cron, settle_clock
from engine.imports.entries import (
    Collector,
    Draft,
    Import,
    NotExpressed,
    Options,
    Remark,
    SourceFields,
    as_input,
    read_text,
    resolve,
)
from engine.schedules import zone

WORKFLOW: Final = "run_quartz_job"
_HINT: Final = "write an XML file of job-scheduling-data, as of XMLSchedulingDataProcessorPlugin"
_MISFIRE: Final = "MISFIRE_INSTRUCTION_"
_POLICIES: Final = {
    "": "latest",
    "SMART_POLICY": "latest",
    "FIRE_ONCE_NOW": "latest",
    "FIRE_NOW": "latest",
    "RESCHEDULE_NOW_WITH_EXISTING_REPEAT_COUNT": "latest",
    "RESCHEDULE_NOW_WITH_REMAINING_REPEAT_COUNT": "latest",
    "DO_NOTHING": "none",
    "RESCHEDULE_NEXT_WITH_EXISTING_COUNT": "none",
    "RESCHEDULE_NEXT_WITH_REMAINING_COUNT": "none",
    "IGNORE_MISFIRE_POLICY": "all",
}


def read_triggers(name: str, options: Options) -> Import:
    """Read the triggers of an XML file, and the jobs that they name.

    Raises:
        ImportUnreadable: there is no such file, it is not XML, or it has no trigger.
    """
    try:
        root = fromstring(read_text(name))  # noqa: S314 - the caller's own file; expat bounds entities
    except ParseError as error:
        raise ImportUnreadable(f"{name} is no XML: {error}", hint=_HINT) from None
    jobs = {
        (str(job.get("name")), str(job.get("group", "DEFAULT"))): job
        for job in (_fields(each) for each in root.iter() if _tag(each) == "job")
    }
    entries = Collector(options, WORKFLOW)
    for trigger in (each for each in root.iter() if _tag(each) == "trigger"):
        for kind in trigger:
            fill = partial(_fill, kind=_tag(kind), of=kind, jobs=jobs, options=options)
            entries.add(Draft("trigger", ""), fill)
    if not entries.found:
        raise ImportUnreadable(f"{name} has no trigger", hint=_HINT)
    return entries.imported(f"the triggers of {name}", *_remarks(options))


def _remarks(options: Options) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each trigger starts a workflow that is yours to write; its input is {job, group, class,"
        " data}. A class with @DisallowConcurrentExecution needs overlap: queue",
    )
    yield Remark(
        "note",
        "timezone",
        f"triggers without a time zone are in {options.timezone}; --timezone names another",
    )


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _fields(element: Element) -> dict[str, Any]:
    """Return the children of an element, with their texts or children of their own."""
    return {
        _tag(child): _data(child)
        if _tag(child) == "job-data-map"
        else (_fields(child) if len(child) else (child.text or "").strip())
        for child in element
    }


def _data(element: Element) -> dict[str, Any]:
    entries = [_fields(each) for each in element if _tag(each) == "entry"]
    return {str(each.get("key")): each.get("value", "") for each in entries}


def _fill(
    draft: Draft,
    *,
    kind: str,
    of: Element,
    jobs: Mapping[tuple[str, str], Mapping[str, Any]],
    options: Options,
) -> None:
    given = draft.open(_fields(of))
    draft.name = resolve(given.take("name"), "name", "a key is made of it")
    group = given.take("group", "DEFAULT")
    draft.place = f"trigger {draft.name}" if group == "DEFAULT" else f"trigger {group}.{draft.name}"
    if calendar := given.take("calendar-name"):
        raise NotExpressed(f"calendar {calendar} leaves out times: exclude has days")
    place = zone(given.take("time-zone", options.timezone)).name
    for name, ours in (("start-time", "start"), ("end-time", "end")):
        if text := given.take(name):
            moment = datetime.fromisoformat(text)
            aware = moment if moment.tzinfo else moment.replace(tzinfo=zone(place).tzinfo)
            draft.fields[ours] = aware.astimezone(UTC).isoformat()
    if kind == "cron":
        draft.text = resolve(given.take("cron-expression"), "cron-expression", "it is the time")
        quartz_cron(draft, draft.text, "Quartz")
        draft.fields["timezone"] = place
        settle_clock(draft, QUARTZ, options.now)
    elif kind == "simple":
        _simple(draft, given)
    else:
        raise NotExpressed(f"a trigger of kind {kind} has no counterpart in a schedule")
    _misfire(draft, given)
    _job(draft, given, jobs)


def _simple(draft: Draft, given: SourceFields) -> None:
    count = int(given.take("repeat-count", "0"))
    every = int(given.take("repeat-interval", "0"))
    draft.text = f"every {every} ms, repeated {count} times"
    if count == 0 or not every:
        draft.fields["at"] = resolve(
            draft.fields.pop("start", None), "start-time", "it is the time"
        )
        if draft.fields.pop("end", None):
            draft.lacks("limits", "end-time of a single run")
        return
    if count > 0:
        draft.fields["limit"] = count + 1
    draft.every(every, start="start-time", counts="Quartz counts from the start of the scheduler")


def _misfire(draft: Draft, given: SourceFields) -> None:
    named = given.take("misfire-instruction", "").removeprefix(_MISFIRE)
    if named not in _POLICIES:
        raise NotExpressed(f"misfire-instruction {named} is not known here")
    policy = _POLICIES[named]
    if policy == "none":
        draft.fields["catchUp"] = {"policy": "none"}
    else:
        draft.catch_up(None, of="Quartz", policy=policy)
    if priority := given.take("priority"):
        draft.lacks("limits", f"priority {priority}: it orders triggers of one moment")


def _job(
    draft: Draft, given: SourceFields, jobs: Mapping[tuple[str, str], Mapping[str, Any]]
) -> None:
    name, group = given.take("job-name"), given.take("job-group", "DEFAULT")
    found = resolve(jobs.get((name, group)), f"the job {group}.{name}", "give the file that has it")
    job = draft.open(found, f"job {name}: ")
    job.pass_over("name", "group")
    about = [one for part in (given, job) if (one := part.take("description"))]
    if about:
        draft.fields["description"] = "\n".join(about)
    for each in ("durability", "recover"):
        if job.take(each) == "true":
            draft.note("action", f"{each}: the ledger keeps schedules, and Temporal keeps runs")
    data = {**job.take("job-data-map", {}), **given.take("job-data-map", {})}
    draft.fields["input"] = as_input(
        **{"job": name, "group": group, "class": job.take("job-class"), "data": data}
    )
