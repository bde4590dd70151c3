"""CronJobs of Kubernetes as schedules: each fire makes the Job of the CronJob's own template.

Kubernetes reads expressions with robfig/cron. In its day rule ``*/2`` is a list and no star, a
skipped local time passes, and a repeated one happens twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Final

import yaml

from engine.errors import ImportUnreadable
from engine.imports.cron import KUBERNETES, settle_clock
from engine.imports.entries import (
    Collector,
    Draft,
    Import,
    NotExpressed,
    Options,
    Remark,
    read_text,
)
from engine.schedules import format_duration

WORKFLOW: Final = "run_job"
_ZONE: Final = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")
_GO_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s)")
_GO_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_OVERLAPS: Final = {"Allow": "allow", "Forbid": "skip", "Replace": "cancel_previous"}
_DAY, _WEEKDAY, _FIELDS = 2, 4, 5
_KNOWN: Final = frozenset(
    {
        "schedule",
        "timeZone",
        "startingDeadlineSeconds",
        "concurrencyPolicy",
        "suspend",
        "jobTemplate",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    }
)


def read_cronjobs(name: str, options: Options) -> Import:
    """Read manifests: YAML documents or JSON, lists included, as ``kubectl get cronjobs -o yaml``.

    Raises:
        ImportUnreadable: there is no such file, it is not YAML, or it has no CronJob.
    """
    try:
        documents = [*yaml.safe_load_all(read_text(name))]
    except yaml.YAMLError as error:
        first = " ".join(str(error).split())[:200]
        cure = "a chart has to be rendered first, as by helm template"
        raise ImportUnreadable(f"{name} is no YAML: {first}", cure=cure) from None
    entries, others = Collector(options, WORKFLOW), []
    found = [each for document in documents for each in _objects(document)]
    for each in found:
        if each.get("kind") == "CronJob":
            meta = _mapping(each.get("metadata"))
            place = "/".join(filter(None, (meta.get("namespace"), str(meta.get("name", "")))))
            spec = _mapping(each.get("spec"))
            draft = Draft(
                f"CronJob {place}", str(spec.get("schedule", "")), str(meta.get("name", ""))
            )
            entries.add(draft, partial(_fill, spec=spec, meta=meta, options=options))
        else:
            others.append(str(each.get("kind")))
    if len(others) == len(found):
        raise ImportUnreadable(f"{name} has no CronJob", cure="write kubectl get cronjobs -o yaml")
    return entries.imported(f"the CronJobs of {name}", *_remarks(others))


def _remarks(others: list[str]) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each CronJob starts a workflow that is yours to write; its input is {namespace, name,"
        " job}, where job is the jobTemplate, from which it makes a Job and waits for it",
    )
    if others:
        kinds = ", ".join(sorted(set(others)))
        yield Remark("note", "action", f"{len(others)} other objects are left out: {kinds}")


def _objects(document: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(document, Mapping):
        if str(document.get("kind", "")).endswith("List"):
            for item in document.get("items") or ():
                yield from _objects(item)
        else:
            yield document


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _fill(draft: Draft, spec: Mapping[str, Any], meta: Mapping[str, Any], options: Options) -> None:
    _when(draft, str(spec.get("schedule", "")), spec.get("timeZone"), options)
    _policies(draft, spec)
    for name in sorted(set(spec) - _KNOWN):
        draft.lacks("action", f"spec.{name} has no counterpart in a schedule")
    limits = [
        name for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit") if name in spec
    ]
    if limits:
        draft.note("limits", f"{' and '.join(limits)}: retention says how long fires are kept here")
    given = {"namespace": meta.get("namespace"), "name": meta.get("name")}
    draft.fields["input"] = {
        **{name: value for name, value in given.items() if value},
        "job": _plain(spec.get("jobTemplate") or {}),
    }


def _plain(value: Any) -> Any:
    """Return a value of YAML as JSON: a moment there is a text here."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime | date) else value


# --- times ---


def _when(draft: Draft, text: str, named: Any, options: Options) -> None:
    inside = _ZONE.fullmatch(text.strip())
    text = inside[2] if inside else text.strip()
    if text.startswith("@every"):
        _every(draft, text.removeprefix("@every").strip())
        return
    draft.fields["cron"] = text if text.startswith("@") else _cron(draft, text)
    draft.fields["timezone"] = (inside[1] if inside else named) or options.timezone
    if not inside and not named:
        draft.note(
            "timezone",
            f"no timeZone: {options.timezone} stands for the clock of kube-controller-manager",
        )
    settle_clock(draft, KUBERNETES, options.now)


def _every(draft: Draft, text: str) -> None:
    parts = _GO_DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise NotExpressed(f"@every {text} is no duration")
    seconds = sum(float(number) * _GO_UNITS[unit] for number, unit in parts)
    draft.fields["everyMs"] = max(1, int(seconds)) * 1000
    draft.differs("phase", "@every counts from the last run; an interval from 1970-01-01T00:00:00Z")


def _cron(draft: Draft, text: str) -> str:
    """Return the expression with the day rule of robfig/cron: only a plain star is a star."""
    fields = [_without_stars(field) for field in text.split()]
    if len(fields) != _FIELDS:
        raise NotExpressed(f"{text!r} has {len(fields)} fields; a CronJob has five")
    day, weekday = fields[_DAY], fields[_WEEKDAY]
    if "*" not in (day, weekday) and "*" in (day[0], weekday[0]):
        fields[_DAY] = day.replace("*", "1-31", 1) if day.startswith("*") else day
        fields[_WEEKDAY] = weekday.replace("*", "0-6", 1) if weekday.startswith("*") else weekday
        draft.note(
            "day-rule",
            f"{text}: Kubernetes fires on either day, where a schedule with */n needs both; so the"
            " range is written out",
        )
    return " ".join(fields)


def _without_stars(field: str) -> str:
    """Return ``*`` for a field that has a plain star anywhere, and else the field."""
    parts = field.replace("?", "*").split(",")
    stars = [part for part in parts if part in {"*", "*/1"}]
    return "*" if stars else ",".join(parts)


# --- policies ---


def _policies(draft: Draft, spec: Mapping[str, Any]) -> None:
    policy = str(spec.get("concurrencyPolicy") or "Allow")
    if policy not in _OVERLAPS:
        raise NotExpressed(f"concurrencyPolicy is {policy!r}; it is Allow, Forbid or Replace")
    draft.fields["overlap"] = _OVERLAPS[policy]
    if policy == "Forbid":
        draft.differs(
            "overlap",
            "Forbid starts the newest missed run when the running one ends, within the deadline;"
            " skip does not (queue_one is nearer)",
        )
    if policy == "Replace":
        _replace(draft, spec)
    deadline = spec.get("startingDeadlineSeconds")
    age = None if deadline is None else timedelta(seconds=int(deadline))
    draft.catch_up(age, of="Kubernetes")
    if draft.fields["catchUp"]["policy"] == "latest":
        # A CronJob that is no longer suspended makes up for its newest window too.
        draft.fields["catchUp"]["pause"] = "latest"
    if spec.get("suspend"):
        draft.fields["paused"] = True
        draft.note("pause", "suspend: the schedule begins paused; sched resume starts it")


def _replace(draft: Draft, spec: Mapping[str, Any]) -> None:
    """Give a cancelled run as long as its pod would have."""
    found: Any = spec
    for name in ("jobTemplate", "spec", "template", "spec"):
        found = _mapping(found).get(name)
    seconds = _mapping(found).get("terminationGracePeriodSeconds")
    if isinstance(seconds, int):
        draft.fields["cancelGrace"] = format_duration(timedelta(seconds=seconds))
    draft.differs(
        "overlap",
        "Replace deletes the running Job at once; here its run is cancelled, and the next begins"
        " when it has ended or cancelGrace is over",
    )
