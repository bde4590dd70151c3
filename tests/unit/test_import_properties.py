"""What an entry of a source says is never dropped, and one entry's fault is its own."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.sax.saxutils import escape

import pytest
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings, strategies as st
from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.client import ScheduleDescription
from temporalio.converter import DataConverter

from engine.imports import apscheduler_jobs, temporal_schedules
from engine.imports.apscheduler_jobs import read_jobs
from engine.imports.celery_beat import read_beat
from engine.imports.cloud_schedules import read_cloud
from engine.imports.crontab import read_crontab
from engine.imports.entries import Collector, Import, Options
from engine.imports.github_workflows import read_workflows
from engine.imports.kubernetes import read_cronjobs
from engine.imports.quartz_triggers import read_triggers
from engine.imports.schedule_file import as_yaml_file
from engine.imports.sidekiq_jobs import read_ruby
from engine.imports.systemd_timers import read_timers
from engine.schedules import load_schedules
from tests.examples import examples

NOW = datetime(2026, 11, 20, tzinfo=UTC)
OPTIONS = Options(now=NOW)
Fields = Mapping[str, Any]
Write = Callable[[list[Any]], Import]


@dataclass(frozen=True)
class Source:
    """A source, its fields with a value that is not their default, and those that go together.

    Attributes:
        read: imports entries; the first one is good, and the others may be anything.
        good: fields that an entry has in any case.
        times: names of which it has one.
        more: each name with values; what is drawn beside them is unknown to the import.
        idle: fields without a meaning beside others, or named for all entries at once.
    """

    read: Write
    good: Fields
    times: tuple[str, ...]
    more: Mapping[str, list[Any]]
    idle: Callable[[Fields], set[str]] = lambda _: set()


FOLDER: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory):
    FOLDER.append(tmp_path_factory.mktemp("sources"))


def _file(text: str, name: str = "source") -> str:
    path = FOLDER[-1] / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def beat(entries: list[Any]) -> Import:
    named = {f"task-{n}": entry for n, entry in enumerate(entries)}
    return read_beat(_file(json.dumps(named), "beat.json"), OPTIONS)


def django(entries: list[Any]) -> Import:
    when = {
        "crontab": {"minute": "5", "hour": "4"},
        "interval": {"every": 3, "period": "hours"},
        "clocked": {"clocked_time": "2027-01-01T09:00:00Z"},
    }
    rows = [
        *({"model": f"django_celery_beat.{kind}schedule", "pk": 1, "fields": fields}
          for kind, fields in when.items()),
        *({"model": "django_celery_beat.periodictask", "pk": n, "fields": entry}
          for n, entry in enumerate(entries)),
    ]  # fmt: skip
    return read_beat(_file(json.dumps(rows), "rows.json"), OPTIONS)


def cronjobs(entries: list[Any]) -> Import:
    items = [
        {"kind": "CronJob", **_nested(entry)} if isinstance(entry, dict) else entry
        for entry in entries
    ]
    return read_cronjobs(_file(json.dumps({"kind": "List", "items": items})), OPTIONS)


def _nested(flat: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in flat.items():
        outer, dot, inner = name.partition(".")
        if dot:
            found.setdefault(outer, {})[inner] = value
        else:
            found[name] = value
    return found


def timers(entries: list[Any]) -> Import:
    texts = []
    for number, entry in enumerate(entries):
        lines = entry if isinstance(entry, dict) else {"Timer.OnCalendar": str(entry)}
        body = "".join(
            f"[{name.partition('.')[0]}]\n{name.partition('.')[2]}={' '.join(str(value).split())}\n"
            for name, value in lines.items()
        )
        texts.append(f"# /etc/systemd/system/job{number}.timer\n[Timer]\n{body}")
    return read_timers([_file("\n".join(texts))], OPTIONS)


def workflows(entries: list[Any]) -> Import:
    return read_workflows([_file(json.dumps({"on": {"schedule": entries}}))], OPTIONS)


def crontab(entries: list[Any]) -> Import:
    text = ""
    for entry in entries:
        if isinstance(entry, dict):
            text += "".join(f"{name}={value}\n" for name, value in entry.items() if name != "line")
            text += f"{entry.get('line', '')}\n"
        else:
            text += f"{' '.join(str(entry).split()).lstrip('#')}\n"
    return read_crontab(_file(text), OPTIONS)


def quartz(entries: list[Any]) -> Import:
    texts = []
    for entry in entries:
        fields = entry if isinstance(entry, dict) else {str(entry): entry}
        inner = "".join(
            f"<{name}>{escape(str(value))}</{name}>"
            for name, value in fields.items()
            if _NAME.fullmatch(name)
        )
        texts.append(f"<trigger><cron>{_PRINTABLE.sub('', inner)}</cron></trigger>")
    job = "<job><name>report</name><job-class>shop.Report</job-class></job>"
    return read_triggers(_file(f"<data>{job}{''.join(texts)}</data>"), OPTIONS)


_NAME = re.compile(r"[a-z][a-z-]*\d?")
_PRINTABLE = re.compile(r"[^ -~]")


def ruby(entries: list[Any]) -> Import:
    named = {f"job-{n}": entry for n, entry in enumerate(entries)}
    return read_ruby(_file(json.dumps(named)), OPTIONS)


def cloud(entries: list[Any]) -> Import:
    return read_cloud(_file("\n".join(map(json.dumps, entries))), OPTIONS)


def native(entries: list[Any]) -> Import:
    """Schedules as a Temporal server describes them."""
    found = Collector(OPTIONS)
    for number, entry in enumerate(entries):
        fields: dict[str, Any] = {"action": {}, **_nested(entry)}
        always = {"workflowType": {"name": "Report"}, "taskQueue": {"name": "reports"}}
        start = {**always, **fields["action"]}
        fields["action"] = {"startWorkflow": start}
        fields["policies"] = {
            "overlapPolicy": 1,
            **fields.get("policies", {}),
        }  # as the server does
        own: dict[str, Any] = {
            name: fields.pop(name) for name in ("memo", "searchAttributes") if name in fields
        }
        described: dict[str, Any] = {"schedule": fields, **own}
        answer = ParseDict(described, DescribeScheduleResponse())
        of = ScheduleDescription._from_proto(f"s{number}", answer, DataConverter.default)
        asyncio.run(temporal_schedules._add(found, of, OPTIONS))
    return found.imported("Temporal")


def payloads(value: object, within: str) -> dict[str, Any]:
    data, encoding = (
        b64encode(each).decode() for each in (json.dumps(value).encode(), b"json/plain")
    )
    return {within: {"a": {"metadata": {"encoding": encoding}, "data": data}}}


def jobs(entries: list[Any]) -> Import:
    listed = [
        SimpleNamespace(**{"trigger": None, **(each if isinstance(each, dict) else {"id": each})})
        for each in entries
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apscheduler_jobs, "load_object", lambda *_: listed)
        return read_jobs("shop:jobs", OPTIONS)


EVERY = {"timedelta": {"hours": 1}}
AT_FOUR = {"crontab": {"hour": "4", "minute": "5"}}
MOMENT = "2027-03-01T00:00:00Z"
CALENDAR = {
    name: [{"start": first, "end": last}]
    for name, first, last in (
        ("second", 0, 0), ("minute", 5, 5), ("hour", 4, 4), ("dayOfMonth", 1, 31),
        ("month", 1, 12), ("dayOfWeek", 0, 6),
    )
}  # fmt: skip
SOURCES = {
    "beat": Source(
        beat,
        {"task": "shop.sync"},
        ("schedule",),
        {
            "schedule": [EVERY, AT_FOUR, 30], "args": [[1], ["a", {}]], "kwargs": [{"dry": True}],
            "options": [{"queue": "q"}, {"expires": 5}, {"priority": 3, "x": "y"}],
            "relative": [True], "enabled": [False], "disabled": [True],
        },
        lambda one: (
            ({"relative"} if one.get("schedule") == AT_FOUR else set())
            | ({"enabled", "disabled"} if {"enabled", "disabled"} <= one.keys() else set())
        ),
    ),
    "django": Source(
        django,
        {"task": "shop.sync"},
        ("interval", "crontab", "clocked"),
        {
            "name": ["Nightly"], "interval": [1], "crontab": [1, 7], "clocked": [1], "solar": [1],
            "args": ["[1]", "[1,"], "kwargs": ['{"a": 1}', "[]"], "queue": ["q"],
            "exchange": ["e"], "routing_key": ["r"], "headers": ['{"tenant": "acme"}'],
            "priority": [3], "expires": [MOMENT], "expire_seconds": [60], "one_off": [True],
            "start_time": [MOMENT], "enabled": [False], "description": ["what it does"],
        },
        # A moment is one run in any case, and an absolute end takes precedence.
        lambda one: (
            ({"one_off", "start_time", "expires"} if "clocked" in one else set())
            | ({"expire_seconds"} if "expires" in one else set())
        ),
    ),
    "cronjob": Source(
        cronjobs,
        {"metadata.name": "job"},
        ("spec.schedule",),
        {
            "metadata.namespace": ["shop"], "metadata.labels": [{"a": "b"}],
            "metadata.annotations": [{"a": "b"}], "metadata.finalizers": [["x"]],
            "spec.schedule": ["0 4 * * *", "CRON_TZ=UTC 0 4 * * *", "@every 1h"],
            "spec.timeZone": ["Asia/Tokyo", "UTC"], "spec.suspend": [True],
            "spec.startingDeadlineSeconds": [5, 900], "spec.concurrencyPolicy": ["Forbid", "Never"],
            "spec.jobTemplate": [{"spec": {"backoffLimit": 1}}],
            "spec.successfulJobsHistoryLimit": [1], "spec.failedJobsHistoryLimit": [0],
        },
        lambda one: (
            {"spec.timeZone"} if one.get("spec.schedule") == "@every 1h" else set()
        ),
    ),
    "timer": Source(
        timers,
        {},
        ("Timer.OnCalendar", "Timer.OnUnitActiveSec", "Timer.OnUnitInactiveSec"),
        {
            "Timer.OnCalendar": ["daily", "Mon *-*-* 4:00"], "Timer.OnBootSec": ["15min"],
            "Timer.OnStartupSec": ["1min"], "Timer.OnActiveSec": ["2min"],
            "Timer.OnUnitActiveSec": ["1d"], "Timer.OnUnitInactiveSec": ["2h"],
            "Timer.Persistent": ["true"], "Timer.RandomizedDelaySec": ["1h", "5 parsecs"],
            "Timer.FixedRandomDelay": ["yes"], "Timer.AccuracySec": ["1us"],
            "Timer.WakeSystem": ["true"], "Timer.OnClockChange": ["on"],
            "Timer.Unit": ["x.service"],
            "Unit.Description": ["what it does"], "Unit.After": ["network.target"],
            "Unit.ConditionACPower": ["true"], "Other.Name": ["1"],
        },
        lambda one: (
            (set() if "Timer.OnCalendar" in one else {"Timer.Persistent"})
            | (set() if "Timer.RandomizedDelaySec" in one else {"Timer.FixedRandomDelay"})
        ),
    ),
    "workflow": Source(
        workflows,
        {},
        ("cron",),
        {"cron": ["0 5 * * 1", "7/20 * * * *"], "timezone": ["Europe/Berlin", "Mars"]},
    ),
    "crontab": Source(
        crontab,
        {"line": "0 4 * * * /bin/a"},
        (),
        {
            "MAILTO": ["ops", '""'], "MAILFROM": ["me"], "CONTENT_TYPE": ["text/plain"],
            "CRON_TZ": ["Asia/Tokyo"], "RANDOM_DELAY": ["5", "x"], "PATH": ["/bin"], "TZ": ["EST"],
        },
        lambda one: {"MAILFROM", "CONTENT_TYPE"} if one.get("MAILTO") == '""' else set(),
    ),
    "quartz": Source(
        quartz,
        {"name": "t", "job-name": "report"},
        ("cron-expression",),
        {
            "cron-expression": ["0 0 4 * * ?", "0 0 4 * * ? 2027"],
            "group": ["nightly"], "description": ["what it does"], "priority": ["7"],
            "calendar-name": ["holidays"], "start-time": [MOMENT], "end-time": [MOMENT],
            "misfire-instruction": ["MISFIRE_INSTRUCTION_DO_NOTHING"],
            "time-zone": ["Asia/Tokyo"],
        },
        lambda _: {"group"},  # of triggers; it is the place of a remark
    ),
    "sidekiq": Source(
        ruby,
        {"class": "Nightly"},
        ("cron", "every"),
        {
            "cron": ["0 4 * * *", "0 4 */2 * 5 Asia/Tokyo"], "every": ["1h", ["5m", {"a": 1}]],
            "args": [[1]], "queue": ["low"], "description": ["what it does"],
            "status": ["disabled"], "active_job": [True], "date_as_argument": [True],
        },
    ),
    "eventbridge": Source(
        cloud,
        {"Name": "s"},
        ("ScheduleExpression",),
        {
            "ScheduleExpression": [
                "cron(5 4 * * ? *)", "rate(5 minutes)", "at(2027-03-01T04:00:00)",
            ],
            "ScheduleExpressionTimezone": ["Asia/Tokyo"], "StartDate": [MOMENT],
            "EndDate": [MOMENT],
            "State": ["DISABLED"], "Description": ["what it does"], "GroupName": ["g"],
            "FlexibleTimeWindow": [{"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 5}],
            "Target": [{"Arn": "a"}], "ActionAfterCompletion": ["DELETE"], "KmsKeyArn": ["k"],
        },
        lambda one: (
            ({"ScheduleExpressionTimezone"} if one["ScheduleExpression"][0] == "r" else set())
            | ({"StartDate", "EndDate"} if one["ScheduleExpression"][0] == "a" else set())
        ),
    ),
    "google": Source(
        cloud,
        {"name": "jobs/s"},
        ("schedule",),
        {
            "schedule": ["5 4 * * *"], "timeZone": ["Asia/Tokyo"], "state": ["PAUSED"],
            "description": ["what it does"], "httpTarget": [{"uri": "https://a.example"}],
            "pubsubTarget": [{"topicName": "t"}], "attemptDeadline": ["180s"],
            "retryConfig": [{"retryCount": 3}],
        },
    ),
    "job": Source(
        jobs,
        {"id": "job", "func_ref": "shop:work"},
        ("trigger",),
        {
            "trigger": [
                CronTrigger(hour=4, timezone="UTC"),
                CronTrigger(hour=4, jitter=5, timezone="UTC"),
                IntervalTrigger(hours=7, start_date=NOW, timezone="UTC"),
            ],
            "args": [(1,)], "kwargs": [{"a": 1}], "executor": ["processes"], "coalesce": [False],
            "misfire_grace_time": [3600], "max_instances": [3, 500], "next_run_time": [
                None, NOW + timedelta(days=3, hours=4), NOW + timedelta(minutes=7),
            ],
        },
        lambda one: (
            # Without a grace nothing is started late, so nothing is joined.
            (set() if "misfire_grace_time" in one else {"coalesce"})
            | ({"next_run_time"} if getattr(one.get("trigger"), "jitter", None)
               and one.get("next_run_time") else set())
        ),
    ),
}  # fmt: skip
NATIVE = Source(
    native,
    {},
    ("spec.structuredCalendar", "spec.interval"),
    {
        "spec.structuredCalendar": [[CALENDAR], [{**CALENDAR, "comment": "why"}]],
        "spec.interval": [[{"interval": "3600s"}], [{"interval": "5400s", "phase": "60s"}]],
        "spec.jitter": ["60s"], "spec.startTime": [MOMENT], "spec.endTime": [MOMENT],
        "spec.timezoneName": ["Asia/Tokyo"], "spec.timezoneData": ["AAAA"],
        "spec.excludeStructuredCalendar": [[{**CALENDAR, "dayOfWeek": [{"start": 1}]}]],
        "policies.overlapPolicy": [2, 6], "policies.catchupWindow": ["600s"],
        "policies.pauseOnFailure": [True], "policies.keepOriginalWorkflowId": [True],
        "state.notes": ["why"], "state.paused": [True],
        "action.taskQueue": [{"name": "jobs"}], "action.cronSchedule": ["* * * * *"],
        "action.workflowRunTimeout": ["60s"], "action.workflowTaskTimeout": ["5s"],
        "action.workflowIdReusePolicy": [2], "action.memo": [payloads("x", "fields")],
        "action.retryPolicy": [{"maximumAttempts": 3}], "action.priority": [{"priorityKey": 2}],
        "action.header": [payloads("x", "fields")], "action.versioningOverride": [{"behavior": 1}],
        "memo": [payloads("x", "fields")], "searchAttributes": [payloads("x", "indexedFields")],
    },
    # An interval has no clock but for the days that it leaves out.
    lambda one: set() if "spec.structuredCalendar" in one else {"spec.timezoneName"},
)  # fmt: skip
UNKNOWN = {"timer": "Timer.X{}", "cronjob": "spec.x{}", "crontab": "X{}", "temporal": ""}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)  # fmt: skip


@st.composite
def an_entry(draw: st.DrawFn, source: Source, unknown: str) -> dict[str, Any]:
    others = sorted(source.more.keys() - source.times)
    names = draw(st.lists(st.sampled_from(others), unique=True, max_size=6))
    names += [draw(st.sampled_from(source.times))] if source.times else []
    entry = {**source.good, **{name: draw(st.sampled_from(source.more[name])) for name in names}}
    if unknown and draw(st.booleans()):
        entry[unknown.format(draw(st.integers(0, 9)))] = draw(st.sampled_from(["1", "true"]))
    return entry


def outcome(found: Import) -> object:
    """Everything that a person gets to know; not the text of the source itself."""
    return (
        [(json.dumps(dict(each.fields), sort_keys=True), each.remarks) for each in found.entries],
        [each.sentence for each in found.refused],
        found.remarks,
    )


@pytest.mark.parametrize("name", [*SOURCES, "temporal"])
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_each_field_of_an_entry_changes_its_schedule_or_is_named(name, data):
    source = SOURCES.get(name, NATIVE)
    entry = data.draw(an_entry(source, UNKNOWN.get(name, "x{}")))
    found = source.read([entry])
    if found.refused:
        return  # nothing is imported, and the refusal names one fault at a time
    for field in entry.keys() - source.idle(entry) - source.good.keys():
        without = {one: value for one, value in entry.items() if one != field}
        assert outcome(source.read([without])) != outcome(found), f"{field} is dropped"


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_an_entry_that_may_be_anything_keeps_no_other_from_being_imported(name, data):
    source = SOURCES[name]
    good = {**source.good, **{name: source.more[name][0] for name in source.times[:1]}}
    entry = data.draw(an_entry(source, UNKNOWN.get(name, "x{}")))
    field = data.draw(st.sampled_from(sorted({*source.more, *source.good})))
    broken = data.draw(st.sampled_from([{**entry, field: data.draw(JSON)}, data.draw(JSON)]))
    found = source.read([good, broken])
    assert dict(found.entries[0].fields) == dict(source.read([good]).entries[0].fields)
    load_schedules(as_yaml_file(found))  # what was imported can be loaded


def test_what_temporal_says_of_a_schedule_beside_its_times_is_named():
    calendar = {**CALENDAR, "comment": "after the close of markets"}
    schedule = {
        "spec.structuredCalendar": [calendar],
        "spec.interval": [{"interval": "5400.5s"}],
        "policies.keepOriginalWorkflowId": True,
    }
    at_four, often = native([schedule]).entries
    assert any("after the close of markets" in each.sentence for each in at_four.remarks)
    assert any("keep_original_workflow_id: true" in each.sentence for each in at_four.remarks)
    assert often.fields["everyMs"] == 5_400_000
    assert any("Temporal drops fractions" in each.sentence for each in often.remarks)
