"""``sched simulate``: what a file would do, for people, for programs and as a page."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from engine.cli.app import run
from engine.cli.simulate_report import busiest, load_map
from engine.schedules import Schedule
from engine.schedules.simulation import simulate

FILE = """
schedules:
  - {key: nightly, workflow: w, cron: "0 2 * * *"}
  - {key: backup, workflow: w, cron: "0 2 * * *", exclude: [SUN]}
  - {key: sync, workflow: w, everyMs: 300000}
  - {key: off, workflow: w, everyMs: 60000, enabled: false}
"""
FROM = ("--from", "2026-12-20T00:00Z")  # a Sunday
WEEK = (*FROM, "--to", "2026-12-27T00:00Z")
OUTAGE = ("--outage", "2026-12-22T01:30Z/2026-12-22T09:15Z")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCHED_SCHEDULES", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "schedules.yaml").write_text(FILE)
    return tmp_path


def told(capsys, *arguments):
    assert run(["simulate", *arguments]) == 0
    return capsys.readouterr().out


def test_every_window_is_in_the_json_and_the_minutes_add_up(folder, capsys):
    found = json.loads(told(capsys, *WEEK, *OUTAGE, "--json"))
    by_key = {row.pop("key"): row for row in found["schedules"]}
    assert by_key["nightly"]["outcomes"] == {"on_time": 6, "caught_up": 1}
    assert by_key["backup"]["outcomes"]["excluded"] == 1
    assert by_key["off"]["outcomes"]["disabled"] == by_key["off"]["windows"] == 7 * 1440
    for row in by_key.values():
        assert row["windows"] == sum(row["outcomes"].values())
    assert found["windows"] == sum(found["totals"].values())
    runs = sum(found["totals"].get(name, 0) for name in ("on_time", "late", "caught_up"))
    assert sum(each["starts"] for each in found["minutes"]) == runs
    assert {"minute": "2026-12-22T09:15:00Z", "starts": 3, "mostOpen": None} in found["minutes"]


def test_durations_tell_how_many_runs_are_open_at_once(folder, capsys):
    arguments = (*WEEK, "--duration", "nightly=20m", "--duration", "sync=7m", "--json")
    minutes = {
        each["minute"]: each["mostOpen"] for each in json.loads(told(capsys, *arguments))["minutes"]
    }
    assert minutes["2026-12-21T02:00:00Z"] == minutes["2026-12-21T02:05:00Z"] == 3
    assert minutes["2026-12-21T02:03:00Z"] == 2
    assert minutes["2026-12-21T03:03:00Z"] == 1


@pytest.mark.parametrize(
    ("end", "rows"),
    [("2026-12-20T12:00Z", 12), ("2026-12-27T00:00Z", 7), ("2027-12-20T00:00Z", 53)],
)
def test_the_map_fits_a_terminal_and_is_readable_without_colour(
    folder, capsys, monkeypatch, end, rows
):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = told(capsys, *FROM, "--to", end)
    assert "\x1b[" not in out
    assert max(map(len, out.splitlines())) <= 80
    drawn = [
        line for line in out.splitlines() if re.match(r"(\w{3} )?20\d\d-\d\d-\d\d( \d\dh)?  ", line)
    ]
    assert len(drawn) == rows
    assert all(set(line) & set("▁▂▃▄▅▆▇█") for line in drawn)
    assert out.count("█") >= 1
    assert "busiest  02:00 UTC: 3 starts" in out or "busiest  02:00 UTC: 2 starts" in out


def test_a_date_alone_is_its_midnight_in_utc_as_everywhere(folder, capsys):
    dates = ("--from", "2026-12-20", "--to", "2026-12-27", "--outage", "2026-12-22/2026-12-23")
    found = json.loads(told(capsys, *dates, "--json"))
    assert (found["from"], found["to"]) == ("2026-12-20T00:00:00Z", "2026-12-27T00:00:00Z")
    assert found["outages"] == [{"from": "2026-12-22T00:00:00Z", "to": "2026-12-23T00:00:00Z"}]


def test_the_busiest_minutes_are_named_and_equal_days_are_one_line(folder, capsys):
    out = told(capsys, *WEEK)
    assert "busiest  02:00 UTC: 3 starts, on 2026-12-21 and 5 more days\n" in out
    assert "         02:00 UTC: 2 starts, on 2026-12-20\n" in out


def test_each_cell_is_the_busiest_minute_of_its_stretch():
    schedule = Schedule.from_json({"key": "k", "workflow": "w", "cron": "59 13 21 12 *"})
    start = datetime(2026, 12, 20, 22, 10, tzinfo=UTC)
    found = simulate([schedule], start, start + timedelta(days=5))
    drawn = load_map(found, found.starts)
    assert [row.begin.day for row in drawn.rows] == [20, 21, 22, 23, 24, 25]
    cells = {(row.begin.day, n): value for row in drawn.rows for n, value in enumerate(row.cells)}
    assert [place for place, value in cells.items() if value] == [(21, 27)]
    assert cells[20, 43] is None, "before the beginning"
    assert cells[20, 44] == 0
    (peak,) = busiest(found, found.starts)
    assert (peak.value, peak.clock, peak.when) == (1, "13:59", "on 2026-12-21")


def test_equal_minutes_in_a_row_are_one_peak_and_leave_room_for_others():
    schedule = Schedule.from_json({"key": "k", "workflow": "w", "cron": "0 2 * * *"})
    start = datetime(2026, 12, 20, tzinfo=UTC)
    found = simulate([schedule], start, start + timedelta(days=2))
    values = [3 if 120 <= n % 1440 < 150 else 1 if n > 1500 else 0 for n in range(2880)]
    told = [(peak.value, peak.clock, peak.when) for peak in busiest(found, values)]
    assert told == [
        (3, "02:00 to 02:29", "on 2026-12-20 and 1 more day"),
        (1, "01:01 to 01:59", "on 2026-12-21"),
        (1, "02:30 to 23:59", "on 2026-12-21"),
    ]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href"} and value]


def test_the_page_is_one_file_with_charts_and_every_schedule(folder, capsys):
    out = told(capsys, *WEEK, *OUTAGE, "--duration", "sync=7m", "--html", "load.html")
    assert "load.html: the same as a page" in out
    text = (folder / "load.html").read_text()
    parsed = Page()
    parsed.feed(text)
    assert parsed.addresses == []
    assert parsed.tags.count("svg") == 4
    assert "script" not in parsed.tags
    assert 'class="gap"' in text
    for key in ("nightly", "backup", "sync", "off"):
        assert f"<td>{key}</td>" in text
    assert "<title>outage</title>" in text


@pytest.mark.parametrize("when", ["everyMs: 86400000", 'at: "2030-01-01T00:00:00Z"'])
def test_a_file_of_which_little_or_nothing_fires_is_no_fault(folder, capsys, when):
    (folder / "schedules.yaml").write_text(f"schedules: [{{key: k, workflow: w, {when}}}]")
    told(capsys, *FROM, "--to", "2026-12-20T00:05Z", "--duration", "k=1s", "--html", "load.html")
    told(capsys, *FROM, "--to", "2026-12-20T00:05Z", "--json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*FROM, "--to", "2026-12-21T00:00"), "has no offset; append Z for UTC"),
        (("--from", "0001-01-01", "--to", "2026-12-21"), "'--from': '0001-01-01' is outside"),
        ((*FROM, "--to", "9999-12-31T23:59-14:00"), "write a moment of the years 1970 to 2100"),
        ((*WEEK, "--outage", "2026-12-21T00Z/12"), "'--outage': '12' is no moment"),
        ((*FROM, "--to", "later"), "write 2026-11-22T02:00:00Z"),
        ((*FROM, "--to", "2026-12-19T00Z"), "the end is not after the start"),
        ((*WEEK, "--outage", "2026-12-21T00Z"), "is not two moments; write"),
        ((*WEEK, "--outage", "2026-12-26T00Z/2026-12-28T00Z"), "within the simulated time"),
        ((*WEEK, "--duration", "nightly"), "write nightly-report=20m"),
        ((*WEEK, "--duration", "nihgtly=20m"), "did you mean nightly?"),
        ((*WEEK, "--duration", "nightly=20"), "a number and a unit"),
        ((*WEEK, "--html", "no/such/folder.html"), "cannot be written"),
        (("missing.yaml", *WEEK), "there is no such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_simulated_ends_with_2_and_says_what_to_write(
    folder, capsys, arguments, said
):
    assert run(["simulate", *arguments]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert said in " ".join(out.err.replace("│", "").split())


def test_where_it_is_not_known_what_is_in_the_way_text_page_and_json_say_so(folder, capsys):
    declared = "schedules: [{key: import, workflow: w, everyMs: 600000, overlap: skip}]"
    (folder / "schedules.yaml").write_text(declared)
    remark = "not known how runs get in each other's way: import; counted as with `overlap: allow`"
    assert remark in told(capsys, *WEEK, "--html", "load.html")
    assert "not known how runs get in each other" in (folder / "load.html").read_text()
    (row,) = json.loads(told(capsys, *WEEK, "--json"))["schedules"]
    assert (row["overlapUnknown"], "overlapped" in row["outcomes"]) == (True, False)
    known = (*WEEK, "--duration", "import=15m")
    assert "not known" not in told(capsys, *known)
    (row,) = json.loads(told(capsys, *known, "--json"))["schedules"]
    assert (row["overlapUnknown"], row["outcomes"]) == (False, {"on_time": 504, "overlapped": 504})


def test_that_schedules_wait_for_others_is_not_simulated_and_text_page_and_json_say_so(
    folder, capsys
):
    declared = (
        "schedules: [{key: first, workflow: w, everyMs: 600000},"
        " {key: then, workflow: w, needs: [first]}]"
    )
    (folder / "schedules.yaml").write_text(declared)
    remark = "not simulated that they wait for other schedules: then;"
    assert remark in told(capsys, *WEEK, "--html", "load.html")
    assert remark in (folder / "load.html").read_text()
    first, then = json.loads(told(capsys, *WEEK, "--json"))["schedules"]
    assert (first["follows"], then["follows"]) == (False, True)
    assert first["outcomes"] == then["outcomes"]
