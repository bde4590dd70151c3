"""Schedules of EventBridge Scheduler and of Cloud Scheduler, from the JSON that their tools print.

Amazon's has expressions ``cron(…)`` as of Quartz without seconds, ``rate(…)`` and ``at(…)``;
Google's has five fields of Unix. Their targets stay what they are, in the input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from engine.errors import ImportUnreadable
from engine.imports.cron import EVENTBRIDGE, GOOGLE, Grammar, quartz_cron, settle_clock
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

WORKFLOW: Final = "run_target"
_HINT: Final = "write aws scheduler get-schedule …, or gcloud scheduler jobs list --format json"
_NO_EXPRESSION: Final = (
    "rules of events have none; aws scheduler list-schedules leaves it out, get-schedule prints it"
)
_EXPRESSION: Final = re.compile(r"(cron|rate|at)\((.*)\)")
_RATE: Final = re.compile(r"(\d+) (minute|hour|day)s?")
_GRAMMAR: Final = Grammar("Cloud Scheduler", sunday=7)
_TARGETS: Final = ("httpTarget", "pubsubTarget", "appEngineHttpTarget")
_HISTORY: Final = (
    *("Arn", "CreationDate", "LastModificationDate", "ResponseMetadata"),
    *("lastAttemptTime", "scheduleTime", "status", "userUpdateTime", "satisfiesPzs"),
)


def read_cloud(name: str, options: Options) -> Import:
    """Read JSON documents one after the other, each an object or a list of objects.

    ``Schedules`` or ``Rules`` may be around them, as tools of Amazon print lists.

    Raises:
        ImportUnreadable: there is no such file, it is not JSON, or it has no schedule.
    """
    entries = Collector(options, WORKFLOW)
    for each in _objects(name):
        is_amazon = isinstance(each, Mapping) and "Name" in each
        fill = partial(_amazon if is_amazon else _google, entry=each, options=options)
        entries.add(Draft("schedule", ""), fill)
    if not entries.found:
        raise ImportUnreadable(f"{name} has no schedule", hint=_HINT)
    return entries.imported(f"the schedules of {name}", *_remarks())


def _remarks() -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each schedule starts a workflow that is yours to write; its input is {name, group, target}"
        " of Amazon, or {name, target, retry, deadline} of Google",
    )
    yield Remark("note", "limits", f"{', '.join(_HISTORY)} are history, which is not imported")


def _objects(name: str) -> Iterator[Any]:
    text, decoder = read_text(name).strip(), json.JSONDecoder()
    while text:
        try:
            found, end = decoder.raw_decode(text)
        except ValueError as error:
            raise ImportUnreadable(f"{name} is no JSON: {error}", hint=_HINT) from None
        for around in ("Schedules", "Rules"):
            if isinstance(found, Mapping) and isinstance(found.get(around), list):
                found = found[around]
        yield from found if isinstance(found, list) else [found]
        text = text[end:].lstrip()


# --- EventBridge Scheduler ---


def _amazon(draft: Draft, *, entry: Any, options: Options) -> None:
    given = draft.open(entry)
    given.pass_over(*_HISTORY, "EventBusName")  # of rules, which fire on one bus
    draft.name = resolve(given.take("Name", kind=str), "Name", "a key is made of it")
    draft.place = f"schedule {draft.name}"
    expression = given.take("ScheduleExpression", kind=str)
    draft.text = resolve(expression, "ScheduleExpression", _NO_EXPRESSION)
    match = _EXPRESSION.fullmatch(draft.text)
    if match is None:
        raise NotExpressed(f"{draft.text!r} is no cron(…), rate(…) or at(…)")
    place = given.take("ScheduleExpressionTimezone", "UTC", kind=str)
    for name, ours in (("StartDate", "start"), ("EndDate", "end")):
        if moment := given.take(name):
            draft.fields[ours] = _moment(moment).isoformat()
    if match[1] == "cron":
        quartz_cron(draft, f"0 {match[2]}", "EventBridge Scheduler")
        draft.fields["timezone"] = place
        settle_clock(draft, EVENTBRIDGE, options.now)
    elif match[1] == "at":
        draft.fields |= {"at": match[2], "timezone": place}
        if draft.fields.pop("start", None) or draft.fields.pop("end", None):
            draft.lacks("limits", "StartDate and EndDate beside a moment")
    else:
        _rate(draft, match[2])
    window = draft.open(given.take("FlexibleTimeWindow"), "FlexibleTimeWindow.")
    window.pass_over("Mode")
    if minutes := window.take("MaximumWindowInMinutes", kind=int):
        draft.jitter(timedelta(minutes=minutes), of="EventBridge Scheduler")
    if given.take("ActionAfterCompletion", "NONE") != "NONE":
        draft.note("limits", "ActionAfterCompletion: a schedule that has ended stays in the ledger")
    _paused(draft, given.take("State", "ENABLED"))
    _described(draft, given.take("Description", kind=str))
    if key := given.take("KmsKeyArn"):
        draft.lacks("action", f"KmsKeyArn {key}: inputs are sealed by a codec here")
    _target(draft, given)


def _target(draft: Draft, given: SourceFields) -> None:
    target = given.take("Target")
    if target is None:
        draft.lacks("action", "its target is not in this JSON")
    draft.fields["input"] = as_input(name=draft.name, group=given.take("GroupName"), target=target)


def _moment(value: Any) -> datetime:
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC).replace(microsecond=0)
    moment = datetime.fromisoformat(str(value))
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).replace(microsecond=0)


def _rate(draft: Draft, text: str) -> None:
    match = _RATE.fullmatch(text)
    if match is None or not int(match[1]):
        raise NotExpressed(f"rate({text}) has no number of minutes, hours or days")
    every = timedelta(**{f"{match[2]}s": int(match[1])}) // timedelta(milliseconds=1)
    draft.every(every, start="StartDate", counts="a rate counts from the moment of its creation")


def _paused(draft: Draft, state: str) -> None:
    if state != "ENABLED":
        draft.fields["paused"] = True
        draft.note("pause", f"{state}: the schedule begins paused; sched resume starts it")


def _described(draft: Draft, text: str | None) -> None:
    if text:
        draft.fields["description"] = text


# --- Cloud Scheduler ---


def _google(draft: Draft, *, entry: Any, options: Options) -> None:
    given = draft.open(entry)
    given.pass_over(*_HISTORY)
    name = resolve(given.take("name", kind=str), "name", "a key is made of it")
    draft.name, draft.place = name.rpartition("/")[2], f"job {name}"
    draft.text = resolve(given.take("schedule", kind=str), "schedule", "it is the time")
    _GRAMMAR.check(draft.text)
    place = given.take("timeZone", "Etc/UTC", kind=str)
    draft.fields |= {"cron": draft.text, "timezone": place}
    settle_clock(draft, GOOGLE, options.now)
    if place not in {"Etc/UTC", "UTC"}:
        draft.note("dst", "Cloud Scheduler does not say what it does when a clock changes")
    _paused(draft, given.take("state", "ENABLED"))
    _described(draft, given.take("description", kind=str))
    targets = {each: found for each in _TARGETS if (found := given.take(each)) is not None}
    draft.fields["input"] = as_input(
        name=name,
        target=targets,
        retry=given.take("retryConfig", {}, kind=Mapping),
        deadline=given.take("attemptDeadline"),
    )
