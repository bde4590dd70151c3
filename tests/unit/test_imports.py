"""``sched import``: what is named, what is refused, and the file that is written."""

from __future__ import annotations

import asyncio
import io
import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from celery import Celery, schedules

from engine.cli.app import run
from engine.cli.imports import local_zone
from engine.errors import ImportUnreadable
from engine.imports import apscheduler_jobs, celery_beat
from engine.imports.cloud_schedules import read_cloud
from engine.imports.crontab import read_crontab
from engine.imports.entries import ASPECTS, Import, ImportedEntry, Options
from engine.imports.github_workflows import read_workflows
from engine.imports.kubernetes import read_cronjobs
from engine.imports.quartz_triggers import read_triggers
from engine.imports.schedule_file import as_yaml_file
from engine.imports.sidekiq_jobs import read_ruby
from engine.imports.systemd_timers import read_timers
from engine.schedules import FIELDS, Schedule, load_schedules

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 20, tzinfo=UTC)
OPTIONS = Options(now=NOW, timezone="Europe/Berlin")


def crontab(tmp_path, text: str, **more: bool) -> Import:
    (tmp_path / "tab").write_text(text)
    return read_crontab(str(tmp_path / "tab"), OPTIONS, **more)


def cronjobs(tmp_path, *specs: dict[str, object]) -> Import:
    items = [
        {
            "kind": "CronJob",
            "metadata": {"name": f"job-{n}"},
            "spec": {"schedule": "0 4 * * *", **each},
        }
        for n, each in enumerate(specs)
    ]
    (tmp_path / "jobs.json").write_text(json.dumps({"kind": "List", "items": items}))
    return read_cronjobs(str(tmp_path / "jobs.json"), OPTIONS)


def beat(monkeypatch, tasks: object) -> Import:
    monkeypatch.setattr(celery_beat, "load_object", lambda *_: tasks)
    return celery_beat.read_beat("shop:tasks", Options(now=NOW))


def jobs(monkeypatch, *triggers: object, **more: object) -> Import:
    defaults = {
        "misfire_grace_time": 600,
        "coalesce": True,
        "max_instances": 1,
        "args": (),
        "kwargs": {},
    }
    found = [
        SimpleNamespace(id=f"job-{n}", trigger=each, func_ref="shop:work", **defaults | more)
        for n, each in enumerate(triggers)
    ]
    monkeypatch.setattr(apscheduler_jobs, "load_object", lambda *_: found)
    return apscheduler_jobs.read_jobs("shop:jobs", Options(now=NOW))


def only(found: Import) -> ImportedEntry:
    assert found.refused == ()
    (entry,) = found.entries
    return entry


def said(entry: ImportedEntry, kind: str) -> dict[str, str]:
    return {each.aspect: each.sentence for each in entry.remarks if each.kind == kind}


# --- crontabs ---


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("@reboot /bin/a", "@reboot is no time"),
        ("@dayly /bin/a", "did you mean @daily?"),
        ("0 0 30 2 * /bin/a", "can never fire"),
        ("61 * * * * /bin/a", "61"),
        ("0 4 * * *", "no entry of a crontab"),
        ("0 4 * * * -n /bin/a", "FreeBSD"),
        ("0/15 * * * * /bin/a", "a single value, as in '0/15'; if it was meant, write 0-59/15"),
        ("0 4 * * 5/2 /bin/a", "write 5-6/2"),
        ("0 22-4 * * * /bin/a", "goes backwards, as in '22-4'; if it was meant, write 22-23,0-4"),
        ("0 4 * * fri-sun /bin/a", "write 5-7"),
        ("0 4 L * * /bin/a", "cron does not read 'L' as day; a schedule file does: if it was"),
        ("0 4 15W * * /bin/a", "cron does not read '15W' as day; a schedule file does"),
        ("0 4 * * 1#2 /bin/a", "cron does not read '1#2' as weekday; a schedule file does"),
        ("0 4 ? * * /bin/a", "cron does not read '?' as day; a schedule file does"),
        ("H 4 * * * /bin/a", "cron does not read 'H' as minute; a schedule file does"),
        ("0 4 * 0 * /bin/a", "cron does not read '0' as month"),
        ("0 4 * * * root /bin/a", "begins with the user root; add --user-column"),
    ],
)
def test_a_line_without_a_counterpart_is_refused_by_its_number_and_the_others_go_on(
    tmp_path, line, sentence
):
    found = crontab(tmp_path, f"# nightly\n{line}\n0 5 * * * /bin/b\n")
    (refused,) = found.refused
    assert refused.place == "line 2"
    assert refused.text == line
    assert sentence in refused.sentence
    assert [each.key for each in found.entries] == ["b"]
    assert not found.is_complete
    assert f"# ! Not imported: line 2: {line}" in as_yaml_file(found)


def test_the_input_of_a_command_is_what_cron_gives_its_shell(tmp_path):
    text = 'PATH=/usr/bin\nNAME = "a b"\n0 4 * * * mail -s "\\%d" ops%Hello%you\n'
    given = only(crontab(tmp_path, text)).fields["input"]
    assert given == {
        "command": 'mail -s "%d" ops',
        "stdin": "Hello\nyou\n",
        "env": {"PATH": "/usr/bin", "NAME": "a b"},
    }


def test_a_user_column_is_the_user_of_the_command(tmp_path):
    entry = only(
        crontab(tmp_path, "17 * * * * root cd / && run-parts /etc/cron.hourly\n", user_column=True)
    )
    assert entry.fields["input"] == {
        "command": "cd / && run-parts /etc/cron.hourly", "user": "root",
    }  # fmt: skip
    assert entry.key == "cron.hourly"


def test_a_user_column_between_tabs_is_read_as_cron_reads_it(tmp_path):
    line = "17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n"
    assert only(crontab(tmp_path, line, user_column=True)).fields["input"] == {
        "command": "cd / && run-parts --report /etc/cron.hourly", "user": "root",
    }  # fmt: skip
    (refused,) = crontab(tmp_path, "0 4 * * *\troot\n", user_column=True).refused
    assert "no command" in str(refused)


def test_variables_hold_for_the_lines_below_them(tmp_path):
    found = crontab(
        tmp_path,
        "0 4 * * * /bin/a\nCRON_TZ=America/New_York\nRANDOM_DELAY=5\nMAILTO=\n0 4 * * * /bin/b\n"
        "TZ=Asia/Tokyo\n0 4 * * * /bin/c\n",
    )
    zones = [each.fields["timezone"] for each in found.entries]
    assert zones == ["Europe/Berlin", "America/New_York", "America/New_York"]
    text = as_yaml_file(found)
    assert "defaults:\n  timezone: America/New_York\n" in text  # the usual one; the other overrides
    assert [each.timezone for each in load_schedules(text).schedules] == zones
    assert ["spread" in each.fields for each in found.entries] == [False, True, True]
    assert "cronie" in said(found.entries[1], "note")["timezone"]
    assert any("TZ is for the command" in each.sentence for each in found.entries[2].remarks)
    assert not any(each.aspect == "output" for each in found.remarks)


def test_a_user_column_that_is_none_is_refused(tmp_path):
    (refused,) = crontab(tmp_path, "0 4 * * * /bin/a --all\n", user_column=True).refused
    assert refused.sentence == "/bin/a is no user; leave out --user-column"


def test_a_user_that_a_comment_announces_is_no_command(tmp_path):
    columns = "# m h dom mon dow user command\n"
    (refused,) = crontab(tmp_path, f"{columns}0 4 * * * mirror $BIN/update\n").refused
    assert "begins with the user mirror; add --user-column" in refused.sentence
    # The same comment stands in crontabs of a user, too.
    assert only(crontab(tmp_path, f"{columns}0 4 * * * /bin/a --all\n")).key == "a"


def test_mail_is_that_of_each_line(tmp_path):
    found = crontab(
        tmp_path,
        "MAILTO=ops\n0 4 * * * /bin/a\nMAILTO=dev\nMAILFROM=me\n0 4 * * * /bin/b\nMAILTO=''\n"
        "0 4 * * * /bin/c\n",
    )
    to = [said(each, "difference").get("output", "") for each in found.entries]
    assert ["mails what a command prints to ops" in to[0], "to dev" in to[1], to[2]] == [
        True, True, "",
    ]  # fmt: skip
    assert "MAILFROM me" in to[1]
    assert not any(each.aspect == "output" for each in found.remarks)
    same = crontab(tmp_path, "MAILTO=ops\n0 4 * * * /bin/a\n0 5 * * * /bin/b\n")
    assert "to ops" in next(each.sentence for each in same.remarks if each.aspect == "output")


def test_random_values_become_hashes_of_the_key(tmp_path):
    entry = only(crontab(tmp_path, "0~30 ~ * * * /bin/a\n"))
    assert entry.fields["cron"] == "H(0-30) H(0-23) * * *"
    assert "draws" in said(entry, "difference")["jitter"]


def test_skipped_times_that_cron_runs_one_by_one_are_named(tmp_path):
    entry = only(crontab(tmp_path, "0,20,40 2 * * * /bin/a\n"))
    assert (
        "3 skipped times one after the other, as on 2027-03-28" in said(entry, "difference")["dst"]
    )


# --- Kubernetes ---


def test_policies_of_a_cronjob_are_those_of_its_schedule(tmp_path):
    found = cronjobs(
        tmp_path,
        {"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 900, "suspend": True},
        {
            "concurrencyPolicy": "Replace",
            "startingDeadlineSeconds": 5,
            "jobTemplate": {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 45}}}},
        },
        {"timeZone": "Asia/Tokyo", "failedJobsHistoryLimit": 1},
    )
    one, two, three = found.entries
    assert one.fields["overlap"] == "skip"
    assert one.fields["paused"] is True
    assert one.fields["catchUp"] == {"policy": "latest", "window": "15m", "pause": "latest"}
    assert "queue_one" in said(one, "difference")["overlap"]
    assert "kube-controller-manager" in said(one, "note")["timezone"]
    assert two.fields["overlap"] == "cancel_previous"
    assert two.fields["cancelGrace"] == "45s"
    assert two.fields["grace"] == "10s"
    assert two.fields["catchUp"] == {"policy": "none"}
    assert "nothing later than 5s" in said(two, "difference")["catch-up"]
    assert three.fields["timezone"] == "Asia/Tokyo"
    assert "at any age" in said(three, "difference")["catch-up"]
    assert "retention" in said(three, "note")["limits"]


def test_the_input_of_a_cronjob_has_all_of_its_template(tmp_path):
    template = {
        "spec": {"backoffLimit": 1, "template": {"spec": {"containers": [{"image": "a:1"}]}}}
    }
    entry = only(cronjobs(tmp_path, {"jobTemplate": template}))
    assert entry.fields["input"] == {"name": "job-0", "job": template}


def test_a_duration_of_go_is_an_interval_whose_phase_differs(tmp_path):
    found = cronjobs(
        tmp_path,
        {"schedule": "@every 1h30m"},
        {"schedule": "@every 1.5h"},
        {"schedule": "@every x"},
    )
    assert [each.fields["everyMs"] for each in found.entries] == [5_400_000, 5_400_000]
    assert "phase" in said(found.entries[0], "difference")
    assert "no duration" in found.refused[0].sentence


def test_what_kubernetes_has_and_a_schedule_has_not_is_missing_and_not_dropped(tmp_path):
    found = cronjobs(
        tmp_path, {"newField": 1}, {"concurrencyPolicy": "Sometimes"}, {"schedule": "0 0 4 * * *"}
    )
    assert "newField" in said(found.entries[0], "missing")["action"]
    assert "Sometimes" in found.refused[0].sentence
    assert "6 fields" in found.refused[1].sentence


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"schedule": "0 4 * * 7"}, "Kubernetes does not read '7'"),
        ({"schedule": "0 22-4 * * *"}, "write 22-23,0-4"),
        ({"schedule": "0 4 L * *"}, "Kubernetes does not read 'L'"),
        ({"schedule": "H 4 * * *"}, "Kubernetes does not read 'H'"),
        ({"schedule": "TZ=UTC 0 4 * * *", "timeZone": "UTC"}, "which Kubernetes refuses"),
        ({"schedule": ""}, "spec.schedule is missing"),
        ({"suspend": "false"}, 'spec.suspend is "false", which is no true or false'),
        ({"startingDeadlineSeconds": "soon"}, "which is no whole number"),
    ],
)
def test_a_cronjob_that_kubernetes_refuses_is_refused_and_the_others_go_on(
    tmp_path, spec, sentence
):
    found = cronjobs(tmp_path, spec, {})
    (refused,) = found.refused
    assert refused.place == "CronJob job-0"
    assert sentence in refused.sentence
    assert [each.key for each in found.entries] == ["job-1"]


def test_a_step_after_a_value_is_a_range_in_kubernetes(tmp_path):
    entry = only(cronjobs(tmp_path, {"schedule": "5/20 4 * * ?"}))
    assert entry.fields["cron"] == "5/20 4 * * *"


# --- Celery beat ---


def test_periodic_tasks_of_an_application_keep_their_arguments(monkeypatch):
    app = Celery(set_as_current=False)
    app.conf.timezone = "Asia/Tokyo"
    app.conf.beat_schedule = {
        "Send mails": {
            "task": "shop.mails.send",
            "schedule": schedules.crontab(minute=0, hour=7),
            "args": (1, "a"),
            "kwargs": {"dry": True},
            "options": {"queue": "mails", "expires": timedelta(minutes=5)},
        }
    }
    entry = only(beat(monkeypatch, app))
    assert entry.key == "send-mails"
    assert entry.fields["timezone"] == "Asia/Tokyo"
    assert entry.fields["input"] == {
        "task": "shop.mails.send", "args": [1, "a"], "kwargs": {"dry": True},
        "options": {"queue": "mails", "expires": 300.0},
    }  # fmt: skip
    assert "expires" in said(entry, "difference")["limits"]
    assert "no task queue of Temporal" in said(entry, "note")["action"]


def test_intervals_of_celery_name_their_phase_and_what_is_too_short_is_refused(monkeypatch):
    class Sun:
        event, lat, lon = "sunset", 1, 2

    found = beat(
        monkeypatch,
        {
            "a": {"task": "t", "schedule": 30.0},
            "b": {"task": "t", "schedule": timedelta(hours=2)},
            "c": {"task": "t", "schedule": schedules.schedule(60, relative=True)},
            "d": {"task": "t", "schedule": 0.5},
            "e": {"task": "t", "schedule": Sun()},
            "f": {"task": "t", "schedule": object()},
            "g": {"task": "t", "schedule": 60, "args": [object()]},
        },
    )
    assert [each.fields["everyMs"] for each in found.entries] == [30_000, 7_200_000, 60_000]
    assert all("phase" in said(each, "difference") for each in found.entries)
    reasons = {each.place: each.sentence for each in found.refused}
    assert reasons.keys() == {"d", "e", "f", "g"}
    assert "500" in reasons["d"]
    assert "sun" in reasons["e"]
    assert "no JSON" in reasons["g"]


def test_rows_of_django_celery_beat_are_read_with_their_own_zone(tmp_path):
    of = "django_celery_beat."
    when = {
        "crontab": {"minute": "5", "hour": "4", "timezone": "Asia/Tokyo"},
        "interval": {"every": 3, "period": "hours"},
        "clocked": {"clocked_time": "2027-01-01T09:00:00Z"},
        "solar": {"event": "sunset"},
    }
    tasks = {
        "a": {"crontab": 1},
        "b": {"interval": 1, "enabled": False},
        "c": {"clocked": 1, "one_off": True},
        "d": {"solar": 1},
        "e": {"interval": 1, "one_off": True},
    }
    row = {"task": "t", "args": "[1]", "kwargs": "{}", "enabled": True}
    rows = [
        *(
            {"model": f"{of}{kind}schedule", "pk": 1, "fields": fields}
            for kind, fields in when.items()
        ),
        *(
            {"model": f"{of}periodictask", "pk": n, "fields": {**row, "name": name, **fields}}
            for n, (name, fields) in enumerate(tasks.items())
        ),
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    found = celery_beat.read_beat(str(tmp_path / "rows.json"), Options(now=NOW))
    by_key = {each.key: each.fields for each in found.entries}
    assert by_key.keys() == {"a", "b", "c", "e"}
    assert (by_key["a"]["cron"], by_key["a"]["timezone"]) == ("5 4 * * *", "Asia/Tokyo")
    assert (by_key["b"]["everyMs"], by_key["b"]["paused"]) == (10_800_000, True)
    assert by_key["c"]["at"] == "2027-01-01T09:00:00Z"
    assert by_key["e"]["limit"] == 1
    assert found.refused[0].place == "d"


def rows(tmp_path, *tasks: dict[str, object], **when: dict[str, object]) -> Import:
    """Rows of Django: tasks, and what they refer to as ``crontab_7``."""
    of = "django_celery_beat."
    listed = [
        *({"model": f"{of}{name.partition('_')[0]}schedule", "pk": int(name.partition("_")[2]),
           "fields": fields} for name, fields in when.items()),
        *({"model": f"{of}periodictask", "pk": n, "fields": {"task": "shop.work", **each}}
          for n, each in enumerate(tasks)),
    ]  # fmt: skip
    (tmp_path / "rows.json").write_text(json.dumps(listed))
    return celery_beat.read_beat(str(tmp_path / "rows.json"), Options(now=NOW))


AT_SIX: dict[str, object] = {"minute": "0", "hour": "6"}


def test_a_task_whose_row_is_not_in_the_dump_is_refused_and_never_runs_each_minute(tmp_path):
    found = rows(
        tmp_path,
        {"name": "monthly", "crontab": 7},
        {"name": "reindex", "interval": 2},
        {"name": "two", "interval": 2, "crontab": 1},
        {"name": "good", "crontab": 1},
        crontab_1=AT_SIX,
    )
    assert [each.key for each in found.entries] == ["good"]
    assert {each.place: each.sentence for each in found.refused} == {
        "monthly": "the row crontab 7 is missing; dump all of django_celery_beat",
        "reindex": "the row interval 2 is missing; dump all of django_celery_beat",
        "two": "it has 2 of interval, crontab, solar, clocked; beat wants one",
    }


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"args": "[1,"}, 'its args are no JSON: "[1,"'),
        ({"args": '"ab"'}, "its args are no list"),
        ({"headers": "[]x"}, "its headers are no JSON"),
        ({"task": ""}, "it names no task"),
        ({"start_time": "soon"}, "it cannot be read: ValueError: Invalid isoformat string: 'soon'"),
        ({"interval": 3, "crontab": None}, 'interval.every is "3", which is no whole number'),
    ],
)
def test_a_task_that_cannot_be_read_keeps_no_other_from_being_imported(tmp_path, fault, sentence):
    found = rows(
        tmp_path,
        {"name": "broken", "crontab": 1, **fault},
        {"name": "good", "crontab": 1},
        crontab_1=AT_SIX,
        interval_3={"every": "3", "period": "hours"},
    )
    assert [each.key for each in found.entries] == ["good"]
    (refused,) = found.refused
    assert refused.sentence.startswith(sentence)


def test_bounds_headers_and_single_runs_of_django_are_those_of_the_schedule(tmp_path):
    campaign, once, gone = rows(
        tmp_path,
        {
            "name": "campaign", "crontab": 1, "headers": '{"tenant": "acme"}',
            "start_time": "2027-01-01T00:00:00Z", "expires": "2027-02-01T00:00:00Z",
        },
        {"name": "once", "crontab": 1, "one_off": True},
        {"name": "gone", "crontab": 1, "one_off": True, "total_run_count": 1},
        crontab_1=AT_SIX,
    ).entries  # fmt: skip
    schedule = Schedule.from_json(dict(campaign.fields))
    begin, end = datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC)
    fires = [*schedule.starts(begin - timedelta(days=40), end + timedelta(days=40))]
    assert (fires[0], fires[-1]) == (begin.replace(hour=6), end.replace(month=1, day=31, hour=6))
    assert campaign.fields["input"]["options"]["headers"] == {"tenant": "acme"}
    assert once.fields["limit"] == 1
    assert gone.fields["paused"] is True


def test_tasks_that_an_application_adds_late_are_those_that_beat_reads(tmp_path, monkeypatch):
    """Added when it is finalized, or by a module that it imports by itself."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "late_shop.py").write_text(
        "from celery import Celery\nfrom celery.schedules import crontab\n"
        "app = Celery('shop', set_as_current=False)\n"
        "app.conf.imports = ['late_tasks']\n"
        "app.conf.beat_schedule = {'static': {'task': 'shop.static', 'schedule': 60.0}}\n"
        "@app.on_after_finalize.connect\n"
        "def periodic(sender, **_):\n"
        "    sender.add_periodic_task(crontab(hour=3, minute=0), sender.signature('a'), name='n')\n"
    )
    (tmp_path / "late_tasks.py").write_text(
        "from late_shop import app\n"
        "app.add_periodic_task(30.0, app.signature('b'), name='imported')\n"
    )
    found = celery_beat.read_beat("late_shop:app", Options(now=NOW))
    assert {each.key for each in found.entries} == {"static", "n", "imported"}


def test_settings_of_beat_that_hold_for_every_task_are_kept(tmp_path, monkeypatch):
    app = Celery(set_as_current=False)
    app.conf.enable_utc = False
    app.conf.beat_cron_starting_deadline = 3600
    app.conf.beat_scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
    app.conf.beat_schedule = {"a": {"task": "t", "schedule": schedules.crontab(hour=3)}}
    found = beat(monkeypatch, app)
    assert only(found).fields["catchUp"] == {"policy": "latest", "window": "1h"}
    told = [str(each) for each in found.remarks]
    assert any(each.startswith("difference (timezone): enable_utc is off") for each in told)
    (elsewhere,) = [each for each in told if each.startswith("missing (action): beat reads its")]
    assert "DatabaseScheduler" in elsewhere
    assert "`manage.py dumpdata django_celery_beat` prints them" in elsewhere
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "beat_settings.py").write_text(
        "from celery.schedules import crontab\nCELERY_TIMEZONE = 'Asia/Tokyo'\n"
        "CELERY_BEAT_SCHEDULE = {'a': {'task': 't', 'schedule': crontab(hour=3)}}\n"
    )
    found = celery_beat.read_beat("beat_settings:CELERY_BEAT_SCHEDULE", Options(now=NOW))
    assert only(found).fields["timezone"] == "Asia/Tokyo"


def test_schedules_that_decide_for_themselves_are_refused(monkeypatch):
    class Workdays(schedules.crontab):  # type: ignore[misc]  # Celery has no types
        def is_due(self, last_run_at):
            return super().is_due(last_run_at)

    found = beat(
        monkeypatch,
        {
            "own": {"task": "t", "schedule": Workdays(hour=3)},
            "clock": {"task": "t", "schedule": schedules.crontab(hour=3, nowfun=datetime.now)},
            "none": {"task": "t"},
            "untold": {"schedule": 60},
            "no-field": {"task": "t", "schedule": {"crontab": {}}},
            "number": 5,
        },
    )
    assert found.entries == ()
    assert {each.place: each.sentence for each in found.refused} == {
        "own": "Workdays decides by itself when it is due: is_due",
        "clock": "its schedule has a clock of its own (nowfun)",
        "none": "it has no schedule",
        "untold": "it names no task",
        "no-field": "it has no field: minute, hour, day_of_month, month_of_year, day_of_week",
        "number": "the entry is 5, which has no fields",
    }


# --- APScheduler ---


def test_jobs_of_a_scheduler_keep_their_policies(monkeypatch):
    scheduler = BackgroundScheduler(timezone="Asia/Tokyo")
    scheduler.add_job(print, "cron", id="Nightly", hour=4, args=["x"], jitter=120, max_instances=3,
                      misfire_grace_time=None, coalesce=False)  # fmt: skip
    monkeypatch.setattr(apscheduler_jobs, "load_object", lambda *_: scheduler)
    entry = only(apscheduler_jobs.read_jobs("shop:scheduler", Options(now=NOW)))
    expected = {
        "key": "nightly", "workflow": "run_function", "cron": "0 4 * * *", "timezone": "Asia/Tokyo",
        "spread": "2m", "overlap": "skip", "maxConcurrentRuns": 3,
        "catchUp": {"policy": "all", "window": "365d"},
        "input": {"function": "builtins:print", "args": ["x"]},
    }  # fmt: skip
    assert dict(entry.fields) == expected
    assert said(entry, "difference").keys() == {"jitter", "catch-up"}


def work(*_: object, **more: object) -> None:
    """Do nothing."""


def test_what_a_scheduler_that_is_not_started_knows_of_its_jobs_is_kept(monkeypatch):
    scheduler = BackgroundScheduler(
        timezone="Europe/Berlin",
        job_defaults={"misfire_grace_time": 3600, "coalesce": False, "max_instances": 3},
    )
    first = datetime(2026, 11, 22, 3, 20, tzinfo=UTC)
    scheduler.add_job(work, "cron", hour=3, id="held", next_run_time=None)
    scheduler.add_job(work, "cron", hour=4, id="live")
    scheduler.add_job(work, "interval", hours=7, id="phase", next_run_time=first)
    scheduler.add_job(work, "cron", hour=4, id="early", next_run_time=first)
    scheduler.add_job(partial(partial(work, 1), a=2), "cron", hour=4, id="partial", args=[3])
    scheduler.add_job(lambda: None, "cron", hour=4, id="lambda")
    monkeypatch.setattr(apscheduler_jobs, "load_object", lambda *_: scheduler)
    found = apscheduler_jobs.read_jobs("shop:scheduler", Options(now=NOW))
    by_key = {each.key: each for each in found.entries}
    assert {key: each.fields.get("paused") for key, each in by_key.items()} == {
        "held": True, "live": None, "phase": None, "early": None, "partial": None,
    }  # fmt: skip
    assert by_key["live"].fields["maxConcurrentRuns"] == 3
    assert by_key["live"].fields["catchUp"] == {"policy": "all", "window": "1h"}
    fires = Schedule.from_json(dict(by_key["phase"].fields)).starts(NOW, NOW + timedelta(days=9))
    assert next(iter(fires)) == first
    assert "2026-11-22T03:20:00+00:00" in said(by_key["early"], "missing")["phase"]
    assert by_key["partial"].fields["input"] == {
        "function": f"{__name__}:work", "args": [1, 3], "kwargs": {"a": 2},
    }  # fmt: skip
    (refused,) = found.refused
    assert refused.sentence.startswith("its function is test_what_a_scheduler")
    assert "<lambda>, which no name leads to" in refused.sentence


def test_jobs_that_a_stopped_scheduler_keeps_elsewhere_are_named(monkeypatch):
    class SQLAlchemyJobStore:
        """As of APScheduler, whose jobs are read once it runs."""

    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_job(work, "cron", hour=3, id="a")
    scheduler._jobstores["jobs"] = SQLAlchemyJobStore()
    monkeypatch.setattr(apscheduler_jobs, "load_object", lambda *_: scheduler)
    found = apscheduler_jobs.read_jobs("shop:scheduler", Options(now=NOW))
    assert "job store jobs (SQLAlchemyJobStore) is not read" in found.remarks[1].sentence
    assert not found.is_complete


def test_triggers_without_a_counterpart_are_refused_by_name(monkeypatch):
    cron = CronTrigger(hour=4, timezone="UTC")
    found = jobs(
        monkeypatch,
        AndTrigger([cron, cron]),
        CronTrigger(week="1-10", timezone="UTC"),
        CronTrigger(year="2027,2029", timezone="UTC"),
        CronTrigger(day="1st mon", day_of_week="fri", timezone="UTC"),
        IntervalTrigger(seconds=0.0005, start_date=NOW, timezone="UTC"),
        cron,
    )
    assert [each.key for each in found.entries] == ["job-5"]
    sentences = [each.sentence for each in found.refused]
    for given, sentence in zip(
        ("AndTrigger", "week", "year", "1st mon", "millisecond"), sentences, strict=True
    ):
        assert given in sentence


def test_an_or_trigger_is_several_schedules_and_a_date_is_a_moment(monkeypatch):
    either = OrTrigger([CronTrigger(hour=4, timezone="UTC"), CronTrigger(hour=9, timezone="UTC")])
    found = jobs(
        monkeypatch, either, DateTrigger(datetime(2027, 1, 1, tzinfo=UTC)), misfire_grace_time=1
    )
    assert [each.key for each in found.entries] == ["job-0", "job-0-2", "job-1"]
    assert "two runs" in said(found.entries[1], "difference")["twice"]
    assert found.entries[2].fields["at"] == "2027-01-01T00:00:00+00:00"
    assert "nothing later than 1s" in said(found.entries[0], "difference")["catch-up"]


# --- systemd ---


def timer(tmp_path, *texts: str) -> Import:
    names = []
    for number, text in enumerate(texts):
        (tmp_path / f"job{number}.timer").write_text(text)
        names.append(str(tmp_path / f"job{number}.timer"))
    return read_timers(names, OPTIONS)


def test_what_systemctl_cat_prints_is_read_with_drop_ins_and_services(tmp_path):
    (tmp_path / "cat").write_text(
        "# /etc/systemd/system/backup.timer\n[Unit]\nDescription=Nightly backup\n"
        "[Timer]\nOnCalendar=daily\nPersistent=true\nRandomizedDelaySec=1h 30min\n"
        "[Install]\nWantedBy=timers.target\n\n"
        "# /etc/systemd/system/backup.timer.d/later.conf\n[Timer]\nOnCalendar=\n"
        "OnCalendar=Mon..Fri 02:30 Europe/Berlin\nOnCalendar=Sat *-*~07/1 4:00\n\n"
        "# /etc/systemd/system/backup.service\n[Service]\nType=oneshot\n"
        "ExecStartPre=/bin/a\nExecStart=/usr/bin/backup \\\n  --all\nExecStart=/bin/b\n"
    )
    found = read_timers([str(tmp_path / "cat")], OPTIONS)
    week, last = found.entries
    assert (week.key, week.fields["cron"], week.fields["timezone"]) == (
        "backup", "30 2 * * MON-FRI", "Europe/Berlin",
    )  # fmt: skip
    assert (last.fields["cron"], "twice" in said(last, "difference")) == ("0 4 * * SAT#L", True)
    assert week.fields["description"] == "Nightly backup"
    assert week.fields["catchUp"] == {"policy": "latest", "window": "365d"}
    assert (week.fields["spread"], week.fields["overlap"]) == ("1h30m", "skip")
    assert week.fields["input"] == {
        "unit": "backup.service",
        "service": {
            "Type": "oneshot", "ExecStartPre": "/bin/a",
            "ExecStart": ["/usr/bin/backup    --all", "/bin/b"],
        },
    }  # fmt: skip


def test_timers_without_a_counterpart_are_refused_and_parts_of_others_are_named(tmp_path):
    begin = "[Timer]\n"
    found = timer(
        tmp_path,
        f"{begin}OnBootSec=15min\n",
        f"{begin}OnBootSec=15min\nOnUnitActiveSec=1d\nPersistent=true\n",
        f"{begin}OnCalendar=daily\nOnBootSec=5min\nWakeSystem=true\nDeferReactivation=yes\n",
        f"{begin}OnCalendar=*:*/15\n",
        f"{begin}OnCalendar=Fri..Mon 4:00\n",
        f"{begin}OnCalendar=*-*-* 22..2:00\n",
        f"{begin}OnCalendar=daily Mars/North\n",
        f"{begin}OnCalendar=*-*-* 4:00:30.5\n",
        f"{begin}OnCalendar=2027,2029-*-* 4:00\n",
        f"{begin}OnCalendar=daily\nRandomizedDelaySec=5min\nFixedRandomDelay=true\n",
    )
    by_key = {each.key: each for each in found.entries}
    assert by_key.keys() == {"job1", "job2", "job9"}
    assert by_key["job1"].fields["everyMs"] == 86_400_000
    assert "the first after OnBootSec 15min" in said(by_key["job1"], "difference")["phase"]
    missing = "\n".join(str(each) for each in by_key["job2"].remarks if each.kind == "missing")
    for name in ("OnBootSec 5min", "WakeSystem", "DeferReactivation"):
        assert name in missing
    assert by_key["job2"].fields["catchUp"] == {"policy": "none"}
    assert by_key["job9"].fields["spread"] == "5m"  # and it is fixed there, too
    assert "jitter" not in said(by_key["job9"], "difference")
    for refused, sentence in zip(
        found.refused,
        ("once after a start", "'*/15'", "backwards", "'22..2'", "Mars/North", "'30.5'", "gaps"),
        strict=True,
    ):
        assert sentence in refused.sentence


# --- GitHub ---


def workflows(tmp_path, *documents: object) -> Import:
    names = []
    for number, each in enumerate(documents):
        (tmp_path / f"nightly{number}.yml").write_text(
            each if isinstance(each, str) else json.dumps(each)
        )
        names.append(str(tmp_path / f"nightly{number}.yml"))
    return read_workflows(names, OPTIONS)


def test_workflows_of_github_are_read_with_their_zones(tmp_path):
    found = workflows(
        tmp_path,
        "name: Nightly\non:\n  push:\n  schedule:\n    - cron: '0 5 * * 1-5'\n"
        "      timezone: America/New_York\n    - cron: '30 5,17 * * *'\njobs: {}\n",
        {"on": ["push"]},
        {"on": {"schedule": [{"cron": "* * * * *"}]}},
    )
    first, second, often = found.entries
    assert [each.key for each in found.entries] == ["nightly0", "nightly0-2", "nightly2"]
    assert (first.fields["cron"], first.fields["timezone"]) == ("0 5 * * 1-5", "America/New_York")
    assert second.fields["timezone"] == "UTC"  # and not the zone of this machine
    assert first.fields["input"] == {
        "file": "nightly0.yml", "name": "Nightly", "schedule": "0 5 * * 1-5",
    }  # fmt: skip
    assert "five minutes" in said(often, "difference")["limits"]
    assert "left out, without on.schedule: nightly1.yml" in found.remarks[-1].sentence
    assert found.is_complete


def test_crons_that_github_does_not_read_are_refused_and_the_others_go_on(tmp_path):
    crons = ["@daily", "0 4 * * 7", "0 4 L * *", "0 22-4 * * *", "0 0 4 * * *", "", None]
    listed = [{"cron": each} for each in crons]
    found = workflows(
        tmp_path, {"on": {"schedule": [*listed, "0 4 * * *", {"cron": "0 4 * * *", "zone": "UTC"}]}}
    )
    assert len(found.refused) == len(crons) + 1
    assert "schedule.zone" in said(only(Import("x", found.entries, ())), "missing")["action"]


# --- Quartz, EventBridge Scheduler, Cloud Scheduler ---


def quartz(tmp_path, *triggers: str) -> Import:
    (tmp_path / "quartz.xml").write_text(
        "<job-scheduling-data xmlns='http://www.quartz-scheduler.org/xml/JobSchedulingData'>"
        "<schedule><job><name>report</name><job-class>shop.Report</job-class><job-data-map>"
        "<entry><key>format</key><value>html</value></entry></job-data-map></job>"
        + "".join(f"<trigger>{each}</trigger>" for each in triggers)
        + "</schedule></job-scheduling-data>"
    )
    return read_triggers(str(tmp_path / "quartz.xml"), OPTIONS)


def test_triggers_of_quartz_keep_their_jobs_and_misfire_instructions(tmp_path):
    job = "<job-name>report</job-name>"
    found = quartz(
        tmp_path,
        f"<cron><name>Nightly</name>{job}<misfire-instruction>MISFIRE_INSTRUCTION_DO_NOTHING"
        "</misfire-instruction><cron-expression>0 15 2 ? * 2-6 2027-2028</cron-expression>"
        "<time-zone>America/New_York</time-zone><job-data-map><entry><key>to</key>"
        "<value>ops</value></entry></job-data-map></cron>",
        f"<simple><name>often</name>{job}<start-time>2027-01-01T00:20:00Z</start-time>"
        "<repeat-count>9</repeat-count><repeat-interval>3600000</repeat-interval></simple>",
        f"<simple><name>once</name>{job}<start-time>2027-01-01T00:20:00</start-time></simple>",
        "<cron><name>lost</name><job-name>gone</job-name><cron-expression>0 0 4 * * ?"
        "</cron-expression></cron>",
        f"<cron><name>days</name>{job}<cron-expression>0 0 4 1 * 2</cron-expression></cron>",
        f"<cron><name>off</name>{job}<calendar-name>holidays</calendar-name>"
        "<cron-expression>0 0 4 * * ?</cron-expression></cron>",
        f"<calendar-interval><name>month</name>{job}</calendar-interval>",
    )
    nightly, often, once = found.entries
    expected = {
        "key": "nightly", "workflow": "run_quartz_job", "timezone": "America/New_York",
        "cron": "15 2 * * MON,TUE,WED,THU,FRI", "start": "2027-01-01", "end": "2028-12-31",
        "catchUp": {"policy": "none"},
        "input": {"job": "report", "group": "DEFAULT", "class": "shop.Report",
                  "data": {"format": "html", "to": "ops"}},
    }  # fmt: skip
    assert {name: nightly.fields[name] for name in expected} == expected
    assert (often.fields["everyMs"], often.fields["limit"], often.fields["offsetMs"]) == (
        3_600_000, 10, 1_200_000,
    )  # fmt: skip
    assert once.fields["at"] == "2026-12-31T23:20:00+00:00"  # on the clock of Berlin
    sentences = [each.sentence for each in found.refused]
    for given, sentence in zip(
        ("the job DEFAULT.gone is missing", "needs ?", "calendar holidays", "calendar-interval"),
        sentences,
        strict=True,
    ):
        assert given in sentence


def ruby(tmp_path, text: str) -> Import:
    (tmp_path / "schedule.yml").write_text(text)
    return read_ruby(str(tmp_path / "schedule.yml"), OPTIONS)


def test_jobs_of_sidekiq_keep_their_classes_and_zones(tmp_path):
    found = ruby(
        tmp_path,
        ":concurrency: 5\n:scheduler:\n  :schedule:\n"
        "    nightly: {cron: '0 4 */2 * 5 Asia/Tokyo', class: Nightly, args: [1, a], queue: low}\n"
        "    often: {every: [1h30m, {first_in: 5s}], class: Often, enabled: false}\n"
        "    seconds: {cron: '15 0 4 * * MON', class: A, date_as_argument: true}\n"
        "    words: {cron: every 5 minutes, class: A}\n"
        "    weeks: {cron: '0 4 * * mon%2', class: A}\n"
        "    nobody: {cron: '0 4 * * *'}\n"
        "    never: {at: 2030-01-01, class: A}\n",
    )
    nightly, often, seconds = found.entries
    assert (nightly.fields["cron"], nightly.fields["timezone"]) == ("0 4 1-31/2 * 5", "Asia/Tokyo")
    assert nightly.fields["input"] == {"class": "Nightly", "args": [1, "a"], "queue": "low"}
    assert (often.fields["everyMs"], often.fields["paused"]) == (5_400_000, True)
    assert '{"first_in": "5s"} beside every is not imported' in said(often, "missing")["phase"]
    assert (seconds.fields["cron"], seconds.fields["timezone"]) == (
        "15 0 4 * * MON",
        "Europe/Berlin",
    )
    assert "date_as_argument" in said(seconds, "missing")["action"]
    for refused, sentence in zip(
        found.refused, ("no cron of five", "weeks (%)", "names no class", "no cron and no every"),
        strict=True,
    ):  # fmt: skip
        assert sentence in refused.sentence
    (listed,) = ruby(tmp_path, "[{name: a, cron: '@daily', class: A}]").entries
    assert listed.key == "a"


def test_schedules_of_clouds_keep_their_targets(tmp_path):
    aws = {
        "Arn": "arn:aws:scheduler:eu-central-1:1:schedule/default/night", "GroupName": "default",
        "Name": "night", "ScheduleExpression": "cron(15 2 ? * 2-6 *)", "State": "DISABLED",
        "ScheduleExpressionTimezone": "Europe/Berlin", "StartDate": "2027-01-01T00:00:00+01:00",
        "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 10},
        "Target": {"Arn": "arn:aws:sqs:queue", "Input": "{}"}, "NewField": 1,
    }  # fmt: skip
    rate = {"Name": "often", "ScheduleExpression": "rate(5 minutes)", "Target": {"Arn": "a"}}
    once = {"Name": "once", "ScheduleExpression": "at(2027-01-01T10:00:00)", "Target": {"Arn": "a"}}
    google = [
        {
            "name": "projects/p/locations/l/jobs/sync", "schedule": "*/10 * * * *",
            "timeZone": "Etc/UTC", "state": "PAUSED", "httpTarget": {"uri": "https://a.example"},
            "retryConfig": {"retryCount": 3}, "attemptDeadline": "180s", "pubsubTarget": None,
        },
        {"name": "jobs/groc", "schedule": "every 5 minutes"},
    ]  # fmt: skip
    broken = {"Name": "broken", "ScheduleExpression": "cron(15 2 * * *)"}
    listed = {"Schedules": [{"Name": "listed", "State": "ENABLED", "Target": {"Arn": "a"}}]}
    rule = {"Name": "rule", "ScheduleExpression": "rate(1 hour)", "EventBusName": "default"}
    (tmp_path / "all.json").write_text(
        "\n".join(map(json.dumps, (aws, rate, once, google, broken, listed, {"Rules": [rule]})))
    )
    found = read_cloud(str(tmp_path / "all.json"), OPTIONS)
    night, often, at, sync, hourly = found.entries
    assert (hourly.key, hourly.fields["everyMs"]) == ("rule", 3_600_000)
    assert said(hourly, "missing") == {"action": "its target is not in this JSON"}
    assert night.fields["cron"] == "15 2 * * MON,TUE,WED,THU,FRI"
    assert (night.fields["paused"], night.fields["spread"]) == (True, "10m")
    assert night.fields["start"] == "2026-12-31T23:00:00+00:00"
    assert night.fields["input"]["target"] == aws["Target"]
    assert "NewField: 1" in said(night, "missing")["action"]
    assert often.fields["everyMs"] == 300_000
    assert at.fields["timezone"] == "UTC"
    assert (sync.key, sync.fields["cron"], sync.fields["paused"]) == ("sync", "*/10 * * * *", True)
    assert sync.fields["input"]["retry"] == {"retryCount": 3}
    for refused, sentence in zip(
        found.refused, ("3 fields", "needs ?", "aws scheduler list-schedules leaves it out"),
        strict=True,
    ):  # fmt: skip
        assert sentence in refused.sentence


# --- the file ---

HOSTILE = (
    "yes",
    "012",
    "0o14",
    "1e3",
    "a: b",
    "# no comment",
    "*x",
    "'",
    '"',
    "é\u2028\x07",
    "",
    " a ",
    "- a",
)


def test_the_file_has_every_value_as_it_was(monkeypatch):
    args = [*HOSTILE, {"deep": [{name or "-": [1, 2.5, None, True, {}]} for name in HOSTILE]}]
    entry = only(beat(monkeypatch, {"a": {"task": "t", "schedule": 60, "args": args}}))
    (schedule,) = load_schedules(as_yaml_file(Import("x", (entry,), ()))).schedules
    assert schedule.input == {"task": "t", "args": json.loads(json.dumps(args))}


def test_keys_are_valid_and_one_each(monkeypatch):
    names = ["Über Nacht!", "a b", "a-b", "A B", "___", "x" * 300]
    found = beat(monkeypatch, {name: {"task": "t", "schedule": 60} for name in names})
    keys = [each.key for each in found.entries]
    assert keys == ["ber-nacht", "a-b", "a-b-2", "a-b-3", "schedule", "x" * 195]
    assert "'Über Nacht!' is written ber-nacht" in said(found.entries[0], "note")["key"]
    assert (
        "key" not in said(found.entries[2], "note")
        or "a-b-2" in said(found.entries[2], "note")["key"]
    )
    assert len(load_schedules(as_yaml_file(found)).schedules) == len(names)


def test_what_all_share_stands_below_defaults_once(tmp_path):
    text = as_yaml_file(crontab(tmp_path, "0 1 * * * /bin/a\n0 2 * * * /bin/b\n0 3 * * * /bin/c\n"))
    assert text.count("Europe/Berlin") == 2  # the remark and the default
    assert text.count("policy: none}") == 1
    assert {each.timezone for each in load_schedules(text).schedules} == {"Europe/Berlin"}


def test_shadow_and_workflow_are_those_of_every_schedule(tmp_path):
    (tmp_path / "tab").write_text("0 1 * * * /bin/a\n0 2 * * * /bin/b\n")
    found = read_crontab(str(tmp_path / "tab"), Options(now=NOW, workflow="shell@2", shadow=True))
    text = as_yaml_file(found, project="ops")
    read = yaml.safe_load(text)
    assert read["project"] == "ops"
    assert [(each["workflow"], each["mode"]) for each in read["schedules"]] == [
        ("shell@2", "shadow")
    ] * 2
    if "mode" in FIELDS:
        load_schedules(text)


# --- the command ---


def test_the_command_writes_yaml_and_names_on_stderr_what_differs(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("@reboot /bin/a\n0 4 * * * /bin/b\n"))
    assert run(["import", "crontab", "--timezone", "UTC"]) == 1
    told = capsys.readouterr()
    (schedule,) = load_schedules(told.out).schedules
    assert schedule.key == "b"
    assert told.err.startswith("SCHEDULE_IMPORT_NOT_EXPRESSED: line 1: @reboot is no time")
    assert "difference (output): cron mails" in told.err


def test_the_exit_code_is_zero_when_everything_could_be_expressed(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("0 4 * * * /bin/b\n"))
    assert run(["import", "crontab", "--timezone", "UTC", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["complete"] is True
    (entry,) = document["schedules"]
    assert entry["from"] == "line 1"
    assert entry["schedule"]["cron"] == "0 4 * * *"
    assert load_schedules(document["yaml"]).schedules[0].key == "b"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["crontab", "none"], "none cannot be read: No such file or directory"),
        (["crontab", "empty"], "the crontab empty has no entry"),
        (["crontab", "empty", "--timezone", "Europe/Berln"], "did you mean Europe/Berlin or"),
        (["k8s-cronjob", "empty"], "empty has no CronJob"),
        (["k8s-cronjob", "chart"], "chart is no YAML"),
        (["systemd-timer", "empty"], "empty has no timer; write systemctl cat"),
        (["github-workflow", "empty"], "empty has no on.schedule"),
        (["github-workflow", "chart"], "chart is no YAML"),
        (["quartz", "empty"], "empty is no XML"),
        (["sidekiq", "empty"], "empty has no job"),
        (["cloud-schedules", "empty"], "empty has no schedule"),
        (["cloud-schedules", "chart"], "chart is no JSON"),
        (["celery-beat", "empty.json"], "empty.json is no JSON"),
        (["celery-beat", "shop"], "'shop' names no object of a module; write module:app"),
        (["celery-beat", "no_such_module:app"], "importing no_such_module failed"),
        (["celery-beat", "json:lods"], "did you mean loads?"),
        (["celery-beat", "json:__doc__"], "has no periodic task"),
        (["apscheduler", "json:dumps"], "is no scheduler and no list of jobs"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error_with_its_hint(
    tmp_path, monkeypatch, capsys, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "empty.json"):
        (tmp_path / name).write_text("")
    (tmp_path / "chart").write_text("{{- if .Values.x }}\na: [")
    assert run(["import", *arguments]) == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert told.out == ""


def test_an_empty_scheduler_says_when_its_jobs_have_to_be_there(monkeypatch):
    with pytest.raises(ImportUnreadable, match="add them before"):
        jobs(monkeypatch)


@pytest.mark.parametrize(
    ("variable", "link", "expected"),
    [
        ("", "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        (":Asia/Tokyo", "/usr/share/zoneinfo/Europe/Berlin", "Asia/Tokyo"),
        ("EST", "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("", "/etc/localtime", "UTC"),
    ],
)
def test_the_clock_of_a_crontab_is_that_of_the_machine(monkeypatch, variable, link, expected):
    monkeypatch.setenv("TZ", variable)
    assert local_zone(lambda _: link) == expected


def test_the_documentation_explains_every_aspect_of_a_remark():
    page = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8").partition("## Remarks")[2]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == sorted(ASPECTS)


def test_the_documentation_has_a_workflow_for_crontabs_that_runs_their_commands(tmp_path):
    page = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(code, names)  # noqa: S102 - the documentation's own code
    entry = only(crontab(tmp_path, "NAME=cron\n0 4 * * * read x; echo $x $NAME%hello\n"))
    assert names["RunCommand"].__name__ == "RunCommand"
    assert asyncio.run(names["run_in_shell"](entry.fields["input"])) == "hello cron\n"
