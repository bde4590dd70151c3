"""Imported schedules fire when their source does, or name the difference.

For half a year, or with ``make prove-tests`` for 400 days.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from celery import Celery
from celery.schedules import crontab

from engine.imports import apscheduler_jobs, celery_beat
from engine.imports.cloud_schedules import read_cloud
from engine.imports.crontab import read_crontab
from engine.imports.entries import Import, Options
from engine.imports.github_workflows import read_workflows
from engine.imports.kubernetes import read_cronjobs
from engine.imports.quartz_triggers import read_triggers
from engine.imports.schedule_file import as_yaml_file
from engine.imports.sidekiq_jobs import read_ruby
from engine.imports.systemd_timers import read_timers
from engine.schedules import Schedule, load_schedules
from tests.examples import PROVING
from tests.unit.peer_schedulers import (
    apscheduler,
    celery_beat as beat,
    on_days,
    robfig,
    systemd,
    vixie,
)

START = datetime(2026, 10, 1, 10, 7, tzinfo=UTC)
END = START + timedelta(days=400 if PROVING else 190)
"""A spring and an autumn of both hemispheres."""
BERLIN, NEW_YORK, SAO_PAULO, SYDNEY, UTC_ZONE = map(
    ZoneInfo,
    ("Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Sydney", "UTC"),
)
Fires = Callable[[], set[datetime]]


def written(found: Import) -> dict[str, Schedule]:
    """The schedules of the file that the import writes, read back by the loader."""
    return {each.key: each for each in load_schedules(as_yaml_file(found)).schedules}


def compare(found: Import, theirs: Iterable[Fires]) -> list[str]:
    """Compare all; return the keys whose fires differ, each with a named difference at a change."""
    schedules = written(found)
    differing = []
    for entry, fires in zip(found.entries, theirs, strict=True):
        schedule = schedules[entry.key]
        apart = fires() ^ set(schedule.starts(START, END))
        named = [str(each) for each in entry.remarks if str(each).startswith("difference (dst)")]
        zone = ZoneInfo(schedule.timezone)
        assert all(is_near_a_change(at, zone) for at in apart), (entry.text, sorted(apart)[:5])
        assert bool(named) == bool(apart), (entry.text, named, sorted(apart)[:5])
        if apart:
            days = {at.astimezone(zone).date().isoformat() for at in apart}
            assert any(day in named[0] for day in days), (entry.text, named, days)
            differing.append(entry.key)
    return differing


def is_near_a_change(at: datetime, zone: ZoneInfo) -> bool:
    hours = timedelta(hours=3)
    return (at - hours).astimezone(zone).utcoffset() != (at + hours).astimezone(zone).utcoffset()


LINES = (
    "0 2 * * *", "30 2 * * *", "30 1 * * *", "15 2,3 * * *", "0 */2 * * *", "30 * * * *",
    "5 4 * * sun", "0 22 * * 1-5", "23 0-20/2 * * *", "0 0,12 1 */2 *", "0 4 8-14 * *",
    "0 0 1,15 * 3", "30 3 */2 * fri", "0 9 * jan-mar,dec mon-fri", "59 23 31 12 *", "0 6 * * 7",
    "@daily", "@weekly", "@monthly", "*/20 9-17 * * 1,3,5", "10 2 * * 6,0", "0 0 29 2 *",
)  # fmt: skip


@pytest.mark.parametrize("zone", [BERLIN, SYDNEY], ids=str)
def test_a_crontab_fires_as_cron_does(tmp_path, zone):
    (tmp_path / "tab").write_text("".join(f"{line} /bin/job{n}\n" for n, line in enumerate(LINES)))
    found = read_crontab(str(tmp_path / "tab"), Options(now=START, timezone=str(zone)))
    assert len(found.entries) == len(LINES)
    assert compare(found, [partial(vixie, line, zone, START, END) for line in LINES]) == []


@pytest.mark.parametrize("zone", [NEW_YORK, SAO_PAULO], ids=str)
def test_cronjobs_fire_as_kubernetes_does(tmp_path, zone):
    lines = [line.removesuffix("7") + "0" if line.endswith("* 7") else line for line in LINES]
    jobs = [
        {
            "kind": "CronJob",
            "metadata": {"name": f"job-{n}"},
            "spec": {"schedule": line, "timeZone": str(zone)},
        }
        for n, line in enumerate(lines)
    ]
    (tmp_path / "jobs.json").write_text(json.dumps({"kind": "List", "items": jobs}))
    found = read_cronjobs(str(tmp_path / "jobs.json"), Options(now=START))
    assert compare(found, [partial(robfig, line, zone, START, END) for line in lines]) == []


def test_a_step_is_no_star_in_kubernetes(tmp_path):
    (tmp_path / "job.yaml").write_text(
        "{kind: CronJob, metadata: {name: j}, spec: {schedule: '0 4 */3 * 5', timeZone: UTC}}"
    )
    found = read_cronjobs(str(tmp_path / "job.yaml"), Options(now=START))
    (entry,) = found.entries
    assert entry.fields["cron"] == "0 4 1-31/3 * 5"
    assert [each.aspect for each in entry.remarks if "either day" in each.sentence] == ["day-rule"]
    assert compare(found, [lambda: robfig("0 4 */3 * 5", UTC_ZONE, START, END)]) == []


TIMERS = (
    "hourly", "daily", "weekly", "monthly", "quarterly", "*-*-* 02:30:00", "*-*-* 01:30",
    "*:0/30", "*-*-* 0/2:00:00", "Mon..Fri 9:00", "Mon-Fri 7:45", "Sat,Sun 10:15",
    "Mon *-*-1..7 4:00", "*-*~01", "*-*~03 12:00", "Mon *-05~07/1", "Fri *-*~07/1 17:00",
    "*-*~1..3 6:00", "*-*~06/2 3:00", "12-25", "2027-01-01", "2027..2029-*-01 4:00",
    "*-1/3-1 0:0", "*-*-1/5 3:00", "*-*-* 0..5,22:00", "*-*-* 4:00:30", "Sun *:15",
    "Mon,Wed *-*-10..20 8:00", "Fri *-*-13 13:13", "weekly UTC", "*-*-* 2:15 Australia/Sydney",
)  # fmt: skip


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK], ids=str)
def test_timers_fire_as_systemd_does(tmp_path, zone):
    text = "".join(
        f"# /etc/systemd/system/t{n}.timer\n[Timer]\nOnCalendar={each}\n"
        for n, each in enumerate(TIMERS)
    )
    (tmp_path / "cat").write_text(text)
    found = read_timers([str(tmp_path / "cat")], Options(now=START, timezone=str(zone)))
    assert found.refused == ()
    differing = compare(found, [partial(systemd, each, zone, START, END) for each in TIMERS])
    # Of a repeated hour systemd leaves out the second one of frequent timers too.
    texts = [TIMERS[int(key.removeprefix("t"))] for key in differing]
    two_hours = ["*-*-* 0/2:00:00"] if zone is BERLIN else []  # one of them is 02:00
    assert texts == ["hourly", "*:0/30", *two_hours, "Sun *:15"]


def test_crons_of_github_fire_as_documented(tmp_path):
    listed = [{"cron": line, "timezone": "America/New_York"} for line in LINES if line[0] != "@"]
    listed = [each for each in listed if not each["cron"].endswith("* 7")]
    listed += [{"cron": "20/15 * * * *"}, {"cron": "30 5,17 * * *"}]
    (tmp_path / "w.yml").write_text(json.dumps({"on": {"schedule": listed}}))
    found = read_workflows([str(tmp_path / "w.yml")], Options(now=START, timezone="Asia/Tokyo"))
    assert found.refused == ()
    zones = [NEW_YORK] * (len(listed) - 2) + [UTC_ZONE] * 2
    theirs = [
        partial(vixie, each["cron"], zone, START, END)
        for each, zone in zip(listed, zones, strict=True)
    ]
    assert compare(found, theirs) == []
    named = {
        entry.text for entry in found.entries
        if any(each.aspect == "day-rule" for each in entry.remarks)
    }  # fmt: skip
    assert named == {"30 3 */2 * fri"}


BEAT = (
    {"minute": "0", "hour": "2"}, {"minute": "30", "hour": "2"}, {"minute": "30", "hour": "1"},
    {"minute": "0", "hour": "*/3"}, {"minute": "15", "hour": "3", "day_of_week": "mon-fri"},
    {"minute": "0", "hour": "6", "day_of_month": "1"},
    {"minute": "0", "hour": "6", "day_of_month": "1-7", "day_of_week": "mon"},
    {"minute": "0", "hour": "6", "day_of_month": "10-20", "day_of_week": "tue,thu"},
    {"minute": "45", "hour": "23", "day_of_week": "sun"},
    {"minute": "0", "hour": "0", "day_of_month": "*/2"},
    {"minute": "0", "hour": "0", "day_of_month": "2-30/2", "day_of_week": "sat"},
    {"minute": "10", "hour": "4", "month_of_year": "*/3", "day_of_month": "15"},
    {"minute": "10,40", "hour": "8-18/5"}, {"minute": "5", "hour": "22-2"},
    {"minute": "0", "hour": "12", "day_of_week": "fri-mon"}, {"minute": "30", "hour": "*/6"},
    {"minute": "0", "hour": "7", "month_of_year": "jan,jul"}, {"minute": "0", "hour": "3"},
    {"minute": "59", "hour": "1", "day_of_week": "0"}, {"minute": "20", "hour": "0,12"},
    {"minute": "35", "day_of_week": "sun"},
)  # fmt: skip


def test_crontabs_of_celery_beat_fire_as_beat_does(monkeypatch):
    app = Celery(set_as_current=False)
    app.conf.timezone = "America/New_York"
    schedules = [crontab(**each, app=app) for each in BEAT]
    app.conf.beat_schedule = {
        f"task-{n}": {"task": "t", "schedule": each} for n, each in enumerate(schedules)
    }
    monkeypatch.setattr(celery_beat, "load_object", lambda *_: app)
    found = celery_beat.read_beat("shop:app", Options(now=START))
    differing = compare(found, [partial(beat, each, NEW_YORK, START, END) for each in schedules])
    # Beat runs at 03:30 what a clock skips at 02:30, and drops a repeated hour of each hour.
    texts = [BEAT[int(key.partition("-")[2])] for key in differing]
    assert texts == [BEAT[1], BEAT[13], BEAT[20]]


def test_what_celery_reads_of_text_is_read_alike(tmp_path):
    """JSON has the texts, an application the sets that Celery made of them."""
    as_json = {str(n): {"task": "t", "schedule": {"crontab": each}} for n, each in enumerate(BEAT)}
    (tmp_path / "beat.json").write_text(json.dumps(as_json))
    found = celery_beat.read_beat(str(tmp_path / "beat.json"), Options(now=START))
    for entry, each in zip(found.entries, BEAT, strict=True):
        theirs, ours = crontab(**each), Schedule.from_json(dict(entry.fields))
        fires = list(ours.starts(START, START + timedelta(days=60)))
        assert all(
            at.minute in theirs.minute and at.hour in theirs.hour
            and at.isoweekday() % 7 in theirs.day_of_week and at.day in theirs.day_of_month
            and at.month in theirs.month_of_year
            for at in fires
        ), each  # fmt: skip


JOBS = (
    {"hour": 2}, {"hour": 2, "minute": 30}, {"hour": 1, "minute": 30}, {"hour": "*/4"},
    {"day_of_week": "mon-fri", "hour": 9}, {"day_of_week": 0, "hour": 9},
    {"day_of_week": "6", "hour": 3}, {"day": "last", "hour": 23}, {"day": "1st mon", "hour": 8},
    {"day": "*/2,1st mon", "hour": 9},
    {"day": "last fri", "hour": 17}, {"day": "3rd wed,last", "hour": 5},
    {"day": "1-7", "day_of_week": "tue", "hour": 6}, {"month": "1-12/3", "day": 1},
    {"day": "10-20", "day_of_week": "tue,thu", "hour": 6}, {"hour": 4, "minute": "*/25"},
    {"month": "jun-aug", "day_of_week": "sat,sun", "hour": "10,22"}, {"year": 2027, "hour": 7},
    {"hour": 12, "minute": 0, "second": 30}, {"day": "*/10", "hour": 0},
    {"hour": 3, "start_date": "2027-02-01", "end_date": "2027-06-30"},
)  # fmt: skip


@pytest.mark.parametrize("zone", [BERLIN, SAO_PAULO], ids=str)
def test_cron_triggers_fire_as_apscheduler_does(monkeypatch, zone):
    triggers = [CronTrigger(**each, timezone=zone) for each in JOBS]
    found = imported_jobs(monkeypatch, triggers)
    theirs = [partial(apscheduler, each, START, END) for each in triggers]
    differing = compare(found, theirs)
    assert differing == (["job-1"] if zone is BERLIN else [])  # 02:30 runs at 03:30


def test_intervals_keep_the_phase_of_apscheduler(monkeypatch):
    begin = datetime(2026, 11, 22, 3, 20, 5, tzinfo=UTC)
    triggers = [
        IntervalTrigger(hours=7, start_date=begin, timezone=NEW_YORK),
        IntervalTrigger(
            days=2, start_date=begin, end_date=begin + timedelta(days=60), timezone=UTC_ZONE
        ),
    ]
    found = imported_jobs(monkeypatch, triggers)
    assert compare(found, [partial(apscheduler, each, START, END) for each in triggers]) == []


def imported_jobs(monkeypatch, triggers) -> Import:
    jobs = [
        SimpleNamespace(
            id=f"job-{n}", trigger=each, func_ref="shop:work", args=(n,), kwargs={},
            misfire_grace_time=3600, coalesce=True, max_instances=1,
        )
        for n, each in enumerate(triggers)
    ]  # fmt: skip
    monkeypatch.setattr(apscheduler_jobs, "load_object", lambda *_: jobs)
    return apscheduler_jobs.read_jobs("shop:jobs", Options(now=START))


def test_jobs_of_sidekiq_fire_as_fugit_does(tmp_path):
    """Fugit 1.5 itself was asked for such lines: it runs as Kubernetes does."""
    lines = [line for line in LINES if not line.endswith("* 7")] + ["5/20 4 * * *"]
    jobs = {
        f"j{n}": {"class": "A", "cron": line if line[0] == "@" else f"{line} America/New_York"}
        for n, line in enumerate(lines)
    }
    (tmp_path / "schedule.yml").write_text(json.dumps(jobs))
    options = Options(now=START, timezone="America/New_York")
    found = read_ruby(str(tmp_path / "schedule.yml"), options)
    assert compare(found, [partial(robfig, line, NEW_YORK, START, END) for line in lines]) == []


def week_of_month(day: date, weekday: int) -> bool:
    return day.isoweekday() == weekday and (day + timedelta(days=7)).month != day.month


def last_working_day(day: date) -> bool:
    following = [day + timedelta(days=n) for n in range(1, 4)]
    return day.isoweekday() <= 5 and not any(
        each.month == day.month and each.isoweekday() <= 5 for each in following
    )


QUARTZ_TRIGGERS: dict[str, tuple[Callable[[date], bool], set[int], set[int]]] = {
    "0 30 2 * * ?": (lambda _: True, {2}, {30}),
    "0 30 1 * * ?": (lambda _: True, {1}, {30}),
    "0 0 12 ? * 2-6": (lambda day: day.isoweekday() <= 5, {12}, {0}),
    "0 0/20 * ? * SUN": (lambda day: day.isoweekday() == 7, set(range(24)), {0, 20, 40}),
    "0 0 8 ? * 6L": (lambda day: week_of_month(day, 5), {8}, {0}),
    "0 0 8 ? * L": (lambda day: day.isoweekday() == 6, {8}, {0}),
    "0 0 22-2 * * ?": (lambda _: True, {22, 23, 0, 1, 2}, {0}),
    "0 15 10 ? * FRI-MON": (lambda day: day.isoweekday() in {5, 6, 7, 1}, {10}, {15}),
    "0 0 9 LW * ?": (last_working_day, {9}, {0}),
    "0 0 9 ? * 2#1": (lambda day: day.isoweekday() == 1 and day.day <= 7, {9}, {0}),
    "0 0 9 ? * 2/2": (lambda day: day.isoweekday() in {1, 3, 5}, {9}, {0}),
    "0 0 12 1/5 * ?": (lambda day: day.day % 5 == 1, {12}, {0}),
    "0 0 6 1,15 JAN-JUN ? 2027": (
        lambda day: day.day in {1, 15} and day.month <= 6 and day.year == 2027, {6}, {0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK], ids=str)
def test_triggers_fire_as_quartz_does(tmp_path, zone):
    """Quartz 2.3.2 itself was asked for these, and for sixteen others."""
    (tmp_path / "quartz.xml").write_text(
        "<job-scheduling-data><schedule><job><name>j</name></job>"
        + "".join(
            f"<trigger><cron><name>t{n}</name><job-name>j</job-name>"
            f"<cron-expression>{each}</cron-expression></cron></trigger>"
            for n, each in enumerate(QUARTZ_TRIGGERS)
        )
        + "</schedule></job-scheduling-data>"
    )
    options = Options(now=START, timezone=str(zone))
    found = read_triggers(str(tmp_path / "quartz.xml"), options)
    theirs = [
        partial(on_days, *parts, zone, START, END, last=True) for parts in QUARTZ_TRIGGERS.values()
    ]
    assert compare(found, theirs) == ["t3"]  # of a repeated hour only the second one runs


def test_schedules_of_eventbridge_fire_as_documented(tmp_path):
    """Weekdays from 1, Sunday; a skipped time passes, and a repeated one runs once."""
    texts = {name.removeprefix("0 "): parts for name, parts in QUARTZ_TRIGGERS.items()}
    listed = [
        {
            "Name": f"s{n}",
            "ScheduleExpression": f"cron({each if '2027' in each else f'{each} *'})",
            "ScheduleExpressionTimezone": "America/New_York",
        }
        for n, each in enumerate(texts)
    ]
    (tmp_path / "aws.json").write_text("\n".join(map(json.dumps, listed)))
    found = read_cloud(str(tmp_path / "aws.json"), Options(now=START))
    theirs = [partial(on_days, *parts, NEW_YORK, START, END) for parts in texts.values()]
    assert compare(found, theirs) == ["s3"]


def test_jobs_of_cloud_scheduler_fire_as_cron_does(tmp_path):
    lines = ("30 2 * * *", "*/20 9-17 * * 1,3,5", "0 9 1 * SAT", "0 6 * * 7")
    listed = [
        {"name": f"projects/p/jobs/j{n}", "schedule": each, "timeZone": "Europe/Berlin"}
        for n, each in enumerate(lines)
    ]
    (tmp_path / "gcloud.json").write_text(json.dumps(listed))
    found = read_cloud(str(tmp_path / "gcloud.json"), Options(now=START))
    assert compare(found, [partial(vixie, each, BERLIN, START, END) for each in lines]) == []


# --- found in public repositories: the times, not the files ---

CRONTABS = {
    "DragonFlyBSD/DragonFlyBSD etc/crontab": (
        "*/5 * * * *", "0 * * * *", "1 3 * * *", "15 4 * * 6", "30 5 1 * *",
    ),
    "NetBSD/src etc/crontab": ("0 2 * * *", "30 3 * * 6", "30 5 1 * *"),
    "Debian/debsources etc/crontab": ("1 0,6,12,18 * * *",),
    "SpiderOak/netkes etc/crontab": ("17 * * * *", "25 6 * * *", "47 6 * * 7", "52 6 1 * *"),
    "AndyNor/systemoversikt crontab.txt": (
        "10 6,11,13,17 * * *", "0 6 * * *", "20 1 * * *", "45 0 * * *", "40 2 * * *", "30 7 * * *",
    ),
    "vibribbon/cheatsheets csheet_cron.md": ("01 01 * * *", "03 05 * * *"),
    "e2fsprogs cron.d/e2scrub_all": ("30 3 * * 0", "10 3 * * *"),
}  # fmt: skip
CRONJOBS = {
    "BeryJu/acme-for-appliances": "5 3 * * *", "Jdavid77/akeyless-to-s3": "0 2 * * *",
    "Germain-L/rss-digest": "0 7 * * *", "GoldmanDrew/shortstockmonitor": "39 0 * * *",
}  # fmt: skip
BEATS: dict[str, tuple[dict[str, Any], ...]] = {
    "paperless-ngx/paperless-ngx settings.py": (
        {"minute": "5", "hour": "*/1"}, {"minute": "0", "hour": "0"},
        {"minute": "30", "hour": "0", "day_of_week": "sun"}, {"minute": "0", "hour": "1"},
    ),
    "McTechie/cropkart celery_config.py": ({"minute": 0, "hour": 5},),
}  # fmt: skip
GITHUBS = {
    "nodejs/node tools.yml": ("5 0 * * 0",),
    "rust-lang/rust dependencies.yml": ("0 0 * * Sun", "0 */4 * * *"),
    "python/cpython stale.yml": ("0 0 * * *",), "home-assistant/core stale.yml": ("0 * * * *",),
    "pandas-dev/pandas wheels.yml": ("27 3 * * *",),
}  # fmt: skip
UNITS = {
    "apt apt-daily.timer": "*-*-* 6,18:00", "e2fsprogs e2scrub_all.timer": "Sun *-*-* 03:10:00",
    "util-linux fstrim.timer": "weekly", "adeverteuil/backup backup.timer": "hourly",
    "lonkaars/backup backup.timer": "*-*-* 03:00:00",
    "treyturner/nurevolution.net backup.timer": "Sun *-*-* 04:00:00 UTC",
}  # fmt: skip


def test_crontabs_found_in_public_fire_as_cron_does(tmp_path):
    lines = [line for found in CRONTABS.values() for line in found]
    (tmp_path / "tab").write_text("".join(f"{line}\t/bin/job{n}\n" for n, line in enumerate(lines)))
    found = read_crontab(str(tmp_path / "tab"), Options(now=START, timezone=str(NEW_YORK)))
    assert compare(found, [partial(vixie, line, NEW_YORK, START, END) for line in lines]) == []


def test_what_cron_runs_twice_after_a_gap_is_named(tmp_path):
    """The line of DragonFlyBSD for clocks that keep local time."""
    (tmp_path / "tab").write_text("1,31 0-5 * * * adjkerntz -a\n")
    (entry,) = read_crontab(
        str(tmp_path / "tab"), Options(now=START, timezone=str(NEW_YORK))
    ).entries
    fires = set(Schedule.from_json(dict(entry.fields)).starts(START, END))
    assert fires == vixie("1,31 0-5 * * *", NEW_YORK, START, END)
    assert any("2 skipped times one after the other" in each.sentence for each in entry.remarks)


def test_cronjobs_found_in_public_fire_as_kubernetes_does(tmp_path):
    items = [
        {
            "kind": "CronJob",
            "metadata": {"name": name},
            "spec": {"schedule": each, "timeZone": "Europe/Berlin"},
        }
        for name, each in CRONJOBS.items()
    ]
    (tmp_path / "jobs.json").write_text(json.dumps({"kind": "List", "items": items}))
    found = read_cronjobs(str(tmp_path / "jobs.json"), Options(now=START))
    theirs = [partial(robfig, each, BERLIN, START, END) for each in CRONJOBS.values()]
    assert compare(found, theirs) == []


def test_beats_found_in_public_fire_as_beat_does(monkeypatch):
    app = Celery(set_as_current=False)
    app.conf.timezone = "Europe/Berlin"
    schedules = [crontab(**each, app=app) for several in BEATS.values() for each in several]
    app.conf.beat_schedule = {
        f"task-{n}": {"task": "t", "schedule": each} for n, each in enumerate(schedules)
    }
    monkeypatch.setattr(celery_beat, "load_object", lambda *_: app)
    found = celery_beat.read_beat("shop:app", Options(now=START))
    differing = compare(found, [partial(beat, each, BERLIN, START, END) for each in schedules])
    assert differing == ["task-0"]  # a repeated hour is left out


def test_workflows_found_in_public_fire_as_documented(tmp_path):
    lines = [line for several in GITHUBS.values() for line in several]
    (tmp_path / "w.yml").write_text(json.dumps({"on": {"schedule": [{"cron": x} for x in lines]}}))
    found = read_workflows([str(tmp_path / "w.yml")], Options(now=START))
    assert compare(found, [partial(vixie, line, UTC_ZONE, START, END) for line in lines]) == []


def test_timers_found_in_public_fire_as_systemd_does(tmp_path):
    names = []
    for number, each in enumerate(UNITS.values()):
        (tmp_path / f"t{number}.timer").write_text(f"[Timer]\nOnCalendar={each}\n")
        names.append(str(tmp_path / f"t{number}.timer"))
    found = read_timers(names, Options(now=START, timezone=str(BERLIN)))
    theirs = [partial(systemd, each, BERLIN, START, END) for each in UNITS.values()]
    assert compare(found, theirs) == ["t3"]  # hourly: a repeated hour is left out
    for name, length in (("psamim/dotfiles", "1d"), ("davidhi7/backup", "12h")):
        (tmp_path / "x.timer").write_text(f"[Timer]\nOnBootSec=15min\nOnUnitActiveSec={length}\n")
        (entry,) = read_timers([str(tmp_path / "x.timer")], Options(now=START)).entries
        assert any(each.aspect == "phase" for each in entry.remarks), name
