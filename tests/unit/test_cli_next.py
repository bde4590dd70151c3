"""``sched next`` without a server: of an expression, or of the schedule file."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from engine.cli.app import run
from engine.cli.next import _silence
from engine.cli.target import Target, note_running
from engine.errors import LedgerUnavailable
from engine.schedules.planner.decisions import Pause
from engine.service import ScheduleService
from tests.unit.test_cli_listing import row

FILE = """
schedules:
  - {key: nightly, workflow: w, cron: "0 2 * * *", timezone: America/Sao_Paulo}
  - {key: once, workflow: w, at: "2027-01-01T09:00:00Z"}
  - {key: off, workflow: w, everyMs: 1000, enabled: false}
  - {key: held, workflow: w, everyMs: 1000, paused: true}
"""
FROM = ("--from", "2026-11-22T04:59:59Z")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SCHED_DATABASE_URL", "SCHED_SCHEDULES", "SCHED_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "schedules.yaml").write_text(FILE)
    return tmp_path


def rows(capsys, *arguments):
    assert run(["next", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_expression_needs_neither_file_nor_server(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = rows(capsys, "--cron", "0 2 * * *", "--timezone", "America/Sao_Paulo", *FROM, "-n", "2")
    assert found[0] == {
        "key": None,
        "fireTime": "2026-11-22T05:00:00Z",
        "localTime": "2026-11-22T02:00:00-03:00",
        "timezone": "America/Sao_Paulo",
        "bucket": 1795323600000,
        "note": "",
    }
    assert [row["fireTime"] for row in found[1:]] == ["2026-11-23T05:00:00Z"]


def test_a_limited_schedule_fires_no_oftener_than_its_limit(folder, capsys):
    limited = "schedules: [{key: k, workflow: w, everyMs: 1000, limit: 3}]"
    (folder / "schedules.yaml").write_text(limited)
    assert [each["note"] for each in rows(capsys, "k", "-n", "9")] == ["", "", "last fire"]


@pytest.mark.parametrize(
    ("zone", "first"),
    [((), "2026-12-31T00:00:00Z"), (("--timezone", "Asia/Tokyo"), "2026-12-30T15:00:00Z")],
)
def test_a_date_alone_is_all_of_that_day_in_utc_or_the_zone_that_is_named(capsys, zone, first):
    (row,) = rows(capsys, "--cron", "0 0 * * *", "--from", "2026-12-31", "-n", "1", *zone)
    assert row["fireTime"] == first


def test_what_a_clock_change_does_is_said_before_it_happens(capsys):
    new_york = ("--timezone", "America/New_York", "--from", "2027-03-13", "-n", "9")
    assert run(["next", "--cron", "30 2 * * *", *new_york]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("at 02:30 every day. When the clock goes forward")
    assert "02:30 does not exist on 2027-03-14; fires at 03:00" in shown
    assert run(["next", "--cron", "*/30 2 * * *", *new_york]) == 0
    shown = capsys.readouterr().out
    assert "02:00 and 02:30 do not happen on 2027-03-14" in shown


def test_excluded_windows_are_not_among_what_fires(folder, capsys):
    text = FILE + '  - {key: work, workflow: w, cron: "0 9 * * *", exclude: [SAT, SUN]}\n'
    (folder / "schedules.yaml").write_text(text)
    found = rows(capsys, "work", *FROM, "-n", "6")
    assert [row["fireTime"][8:10] for row in found] == ["23", "24", "25", "26", "27", "30"]


def test_of_each_schedule_one_line_is_shown_so_that_a_busy_one_hides_no_other(folder, capsys):
    busy = "  - {key: busy, workflow: w, everyMs: 1000}\n"
    over = '  - {key: over, workflow: w, at: "2020-01-01T00:00:00Z"}\n'
    (folder / "schedules.yaml").write_text(FILE + busy + over)
    found = rows(capsys, *FROM)
    assert [row["key"] for row in found] == ["busy", "nightly", "once"]
    assert [row["key"] for row in rows(capsys, "busy", *FROM, "-n", "2")] == ["busy", "busy"]
    assert run(["next", *FROM, "-n", "1"]) == 0
    told = capsys.readouterr().out
    assert "and 2 more later; -n 3 shows them all" in told
    assert "over, so that nothing fires: over\n" in told
    assert "nightly" not in told


@pytest.mark.parametrize(("moment", "found"), [("1970-01-01", 2), ("2101-01-01", 0)])
def test_the_first_and_the_last_moment_of_all_can_be_asked_about(capsys, moment, found):
    assert len(rows(capsys, "--cron", "0 0 * * *", "--from", moment, "-n", "2")) == found


def test_from_itself_is_not_a_next_fire(folder, capsys):
    (row,) = rows(capsys, "nightly", "--from", "2026-11-22T02:00:00-03:00", "-n", "1")
    assert row["fireTime"] == "2026-11-23T05:00:00Z"


def test_without_a_ledger_the_file_answers_and_the_output_says_so(folder, capsys):
    assert run(["next", *FROM, "-n", "2"]) == 0
    told = capsys.readouterr().out
    assert "disabled, so that nothing fires: off\n" in told
    assert "paused at first, so that nothing fires: held\n" in told
    assert "(of the file schedules.yaml)" in told
    found = rows(capsys, *FROM, "-n", "50")
    assert {row["key"] for row in found} == {"nightly", "once"}


@pytest.mark.parametrize(
    ("arguments", "out", "err"),
    [
        (("once", "-n", "3", *FROM), 1, ""),
        (
            ("once", "--from", "2027-01-01T09:00:00Z"),
            0,
            "nothing fires after 2027-01-01 09:00:00 UTC\n",
        ),
        (("once", "--from", "2027-01-02"), 0, "nothing fires from 2027-01-02 00:00:00 UTC on\n"),
        (("off",), 0, "disabled, so that nothing fires: off\n"),
    ],
)
def test_fewer_fires_than_asked_for_are_no_fault_and_are_explained(
    folder, capsys, arguments, out, err
):
    assert run(["next", "--json", *arguments]) == 0
    told = capsys.readouterr()
    assert len(json.loads(told.out)) == out
    assert told.err == err


def test_a_file_that_is_named_is_read_and_a_ledger_that_is_configured_is_never_passed_over(
    folder, capsys, monkeypatch
):
    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert len(rows(capsys, "nightly", "--schedules", "schedules.yaml", "-n", "2")) == 2
    monkeypatch.setenv("SCHED_SCHEDULES", "schedules.yaml")
    assert run(["next", "nightly"]) == 2
    assert "SCHEDULE_LEDGER_UNAVAILABLE" in capsys.readouterr().err


def test_a_ledger_that_is_there_and_silent_is_not_said_to_be_gone(folder, capsys, monkeypatch):
    def silent(*_: object, **__: object) -> None:
        raise LedgerUnavailable("no answer") from TimeoutError()

    (folder / ".sched").mkdir()
    note_running(folder / ".sched", Target("postgresql://nobody@127.0.0.1:1/none", "default", None))
    monkeypatch.setattr(ScheduleService, "connect", silent)
    assert run(["next"]) == 2
    assert "it is there and does not answer" in capsys.readouterr().err


def test_a_pause_that_ends_is_named_with_its_end():
    until = datetime(2026, 12, 1, tzinfo=UTC)
    paused = replace(row("k", None), state="paused", pause=Pause(until, "x", "ana", until))
    assert _silence(paused) == "paused until 2026-12-01T00:00:00Z"
    assert _silence(replace(paused, pause=Pause(until, "x", "ana", None))) == "paused"


def test_the_note_of_an_up_that_was_killed_is_said_to_be_one(folder, capsys):
    (folder / ".sched").mkdir()
    note_running(folder / ".sched", Target("postgresql://nobody@127.0.0.1:1/none", "default", None))
    assert run(["next"]) == 2
    assert "the `sched up` of this folder seems not to run; start it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "2026-11-22T02:00"), "has no offset; append Z for UTC"),
        (("--from", "tomorrow"), "write 2026-11-22T02:00:00Z, or a date as 2026-11-22"),
        (("--from", "0001-01-01"), "write a moment of the years 1970 to 2100"),
        (("--from", "9999-12-31"), "write a moment of the years 1970 to 2100"),
        (("--from", "9999-12-31T23:59:59-14:00"), "is outside of the time in which anything fires"),
        (("--from", "0001-01-01T00:00+14:00"), "is outside of the time in which anything fires"),
        (("--from", "2026-11-22", "--cron", "* * * * *", "--timezone", "EST"), "TIMEZONE_INVALID"),
        (("nightly", "--cron", "* * * * *"), "KEY and --cron: name one of the two"),
        (("--timezone", "UTC"), "--timezone is the zone of --cron"),
        (("--cron", "0 2 30 2 *"), "SCHEDULE_CRON_INVALID"),
        (("--cron", "* * * * *", "--timezone", "EST"), "SCHEDULE_TIMEZONE_INVALID"),
        (("nihgtly",), "there is no schedule nihgtly; did you mean nightly?"),
        (("zzz",), "there is no schedule zzz; schedules.yaml has 4 schedules"),
        (("--schedules", "nothing.yaml"), "there is no such file"),
        (("-n", "0"), "'--count' / '-n': '0' is no whole number from 1 to 1000000"),
        (("-n", "abc"), "'abc' is no whole number from 1 to 1000000; write one, as 20"),
        (("-n", "9" * 30), "is no whole number from 1 to 1000000"),
    ],
)
def test_what_cannot_be_answered_ends_with_2_and_says_what_to_write(
    folder, capsys, arguments, said
):
    assert run(["next", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err


def test_a_spread_field_is_said_to_depend_on_the_key(folder, capsys):
    assert run(["next", "--cron", "H 2 * * THU"]) == 0
    assert "H is spread by a schedule's key" in capsys.readouterr().out
    assert run(["next", "--cron", "0 2 * MAR THU"]) == 0
    assert "spread" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("2026-11-01T00:30", "2026-11-01T05:00:00Z"),  # 01:00 EDT, half an hour later
        ("2026-11-01T01:30", "2026-11-01T06:00:00Z"),  # the first of the two 01:30
        ("2026-11-01T00:30Z", "2026-11-01T01:00:00Z"),
    ],
)
def test_a_time_without_offset_is_on_the_clock_of_the_expression(folder, capsys, start, first):
    zone = ("--timezone", "America/New_York")
    (row,) = rows(capsys, "--cron", "0 * * * *", *zone, "--from", start, "-n", "1")
    assert row["fireTime"] == first
