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
from engine.imports.cron import KUBERNETES, Grammar, either_day, settle_clock
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
    shown,
)

WORKFLOW: Final = "run_job"
_ZONE: Final = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")
_GO_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s)")
_GO_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_OVERLAPS: Final = {"Allow": "allow", "Forbid": "skip", "Replace": "cancel_previous"}
_BOOKKEEPING: Final = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_GRAMMAR: Final = Grammar("Kubernetes", starts=True, question=True)


def read_cronjobs(name: str, options: Options) -> Import:
    """Read manifests: YAML documents or JSON, lists included, as ``kubectl get cronjobs -o yaml``.

    Raises:
        ImportUnreadable: there is no such file, it is not YAML, or it has no CronJob.
    """
    try:
        documents = [*yaml.safe_load_all(read_text(name))]
    except yaml.YAMLError as error:
        first = " ".join(str(error).split())[:200]
        hint = "a chart has to be rendered first, as by helm template"
        raise ImportUnreadable(f"{name} is no YAML: {first}", hint=hint) from None
    entries, others = Collector(options, WORKFLOW), []
    found = [each for document in documents for each in _objects(document)]
    for each in found:
        if isinstance(each, Mapping) and each.get("kind") == "CronJob":
            entries.add(Draft("CronJob", ""), partial(_fill, manifest=each, options=options))
        else:
            kind = each.get("kind") if isinstance(each, Mapping) else type(each).__name__
            others.append(str(kind))
    if len(others) == len(found):
        raise ImportUnreadable(f"{name} has no CronJob", hint="write kubectl get cronjobs -o yaml")
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
        yield Remark(
            "note", "action", f"objects of other kinds are left out: {len(others)} ({kinds})"
        )
    yield Remark(
        "note",
        "action",
        f"status and what the cluster writes ({', '.join(_BOOKKEEPING)}) stay there",
    )


def _objects(document: Any) -> Iterator[Any]:
    if isinstance(document, Mapping) and str(document.get("kind", "")).endswith("List"):
        for item in document.get("items") or ():
            yield from _objects(item)
    elif document is not None:
        yield document


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _fill(draft: Draft, manifest: Mapping[str, Any], options: Options) -> None:
    given = draft.open(manifest)
    given.pass_over("apiVersion", "kind", "status")
    meta, spec = draft.open(given.take("metadata"), "metadata."), given.take("spec", kind=Mapping)
    draft.name = resolve(meta.take("name", kind=str), "metadata.name", "a key is made of it")
    namespace = meta.take("namespace")
    draft.place = f"CronJob {namespace}/{draft.name}" if namespace else f"CronJob {draft.name}"
    meta.pass_over(*_BOOKKEEPING)
    fields = draft.open(resolve(spec, "spec", "it has the schedule"), "spec.")
    draft.text = resolve(fields.take("schedule", kind=str), "spec.schedule", "it is the time")
    _when(draft, draft.text, fields.take("timeZone", kind=str), options)
    job = fields.take("jobTemplate", {}, kind=Mapping)
    _policies(draft, fields, job)
    limits = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    if named := [name for name in limits if fields.take(name) is not None]:
        draft.note("limits", f"{' and '.join(named)}: retention says how long fires are kept here")
    labels, annotations = meta.take("labels"), dict(meta.take("annotations", {}, kind=Mapping))
    annotations.pop(_APPLIED, None)
    for name, found in (("labels", labels), ("annotations", annotations)):
        if found:
            draft.note("action", f"{name} of the CronJob itself stay there: {shown(_plain(found))}")
    draft.fields["input"] = as_input(namespace=namespace, name=draft.name)
    draft.fields["input"]["job"] = as_input(job=_plain(job)).get("job", {})


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
    if inside and named:
        raise NotExpressed("it has a timeZone and TZ in its schedule, which Kubernetes refuses")
    text = inside[2] if inside else text.strip()
    if text.startswith("@every"):
        _every(draft, text.removeprefix("@every").strip())
        return
    if not text.startswith("@"):
        _GRAMMAR.check(text)
        text = either_day(draft, text, "Kubernetes")
    draft.fields["cron"] = text
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


# --- policies ---


def _policies(draft: Draft, spec: SourceFields, job: Mapping[str, Any]) -> None:
    policy = spec.take("concurrencyPolicy", "Allow", kind=str)
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
        _replace(draft, job)
    deadline = spec.take("startingDeadlineSeconds", kind=int)
    age = None if deadline is None else timedelta(seconds=deadline)
    draft.catch_up(age, of="Kubernetes")
    if draft.fields["catchUp"]["policy"] == "latest":
        # A CronJob that is no longer suspended makes up for its newest window too.
        draft.fields["catchUp"]["pause"] = "latest"
    if spec.take("suspend", kind=bool):
        draft.fields["paused"] = True
        draft.note("pause", "suspend: the schedule begins paused; sched resume starts it")


def _replace(draft: Draft, job: Mapping[str, Any]) -> None:
    """Give a cancelled run as long as its pod would have."""
    found: Any = job
    for name in ("spec", "template", "spec"):
        found = _mapping(found).get(name)
    seconds = _mapping(found).get("terminationGracePeriodSeconds")
    if isinstance(seconds, int):
        draft.fields["cancelGrace"] = f"{seconds}s"
    draft.differs(
        "overlap",
        "Replace deletes the running Job at once; here its run is cancelled, and the next begins"
        " when it has ended or cancelGrace is over",
    )
