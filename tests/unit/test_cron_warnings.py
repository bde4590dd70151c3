"""Warnings about the classic mistakes in cron expressions, and how a file silences one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from engine.cli.app import run
from engine.schedules import CronWarning, Schedule, cron_doubts, other_instants
from engine.schedules.timing import croniter_check
from tests.examples import examples

NOW = datetime(2026, 11, 28, tzinfo=UTC)


def doubts(cron: str, timezone: str = "UTC", **fields) -> list[CronWarning]:
    given = {"key": "k", "workflow": "w", "cron": cron, "timezone": timezone, **fields}
    return cron_doubts(Schedule.from_json(given), NOW)


@pytest.mark.parametrize(
    ("cron", "message", "hint"),
    [
        ("* 5 * * *", "every minute from 05:00 to 05:59 every day: 60 times", '"0 5 * * *"'),
        ("* 0,12 * * *", "60 times an hour", '"0 0,12 * * *"'),
        ("* */2 * * *", "60 times an hour", '"0 */2 * * *"'),
        ("* * * * * *", "fires every second: 60 times a minute", '"* * * * *"'),
        ("* 5 4 * * *", "60 times a minute", '"0 5 4 * * *"'),
        ("*/59 * * * *", "minutes 0 and 59, and then 0 again after 1 minute", "every: 59m"),
        ("*/7 * * * *", "from 0 to 56, and then 0 again after 4 minutes", "every: 7m"),
        ("3/7 * * * *", "and then 3 again after 4 minutes", "every: 7m"),
        ("0 */5 * * *", "from 0 to 20, and then 0 again after 4 hours", "every: 5h"),
        ("0 0 1 */5 *", "months 1, 6 and 11, and then 1 again after 2 months", "the months"),
        ("0 0 * * */2", "weekdays 0, 2, 4 and 6, and then 0 again after 1 weekday", "weekdays"),
        ("0 0 */2 * *", "and begins anew on the 1st of each month", "every: 48h"),
        ("0 0 1 * 1", "day 1 of the month, and on every Monday: either field", '"1#1"'),
        ("0 0 13 * FRI", "on day 13 of the month, and on every Friday: either", '"FRI#1"'),
        ("0 0 */2 * MON", "only if it is Monday: both fields have to match", '"MON#1"'),
        ("0 0 31 * *", "not in February, April, June, September or November", "L as the day"),
        ("0 0 30 * *", "not in February", "L as the day"),
        ("0 0 29 * *", "not in February, except in leap years", "L as the day"),
        ("0 0 29 2 *", "only in leap years, once in four years", "L as the day"),
    ],
)  # fmt: skip
def test_a_classic_mistake_is_a_warning_with_what_to_write(cron, message, hint):
    (found,) = doubts(cron)
    assert message in found.message
    assert hint in found.hint


@pytest.mark.parametrize(
    "cron",
    [
        "0 5 * * *", "* * * * *", "* 9-17 * * MON-FRI", "*/15 * * * *", "5/20 * * * *",
        "*/7 9 * * *", "0 */6 * * *", "0 8-18/3 * * *", "0 0 28-31 * *", "0 0 L * *",
        "0 0 1,15 * *", "0 0 * * MON-FRI", "0 0 31 12 *", "H H * * *", "@daily", "*/10 * * * * *",
        "0 0 ? * MON",
    ],
)  # fmt: skip
def test_what_says_what_it_means_is_no_warning(cron):
    assert doubts(cron) == []


def test_a_time_that_the_clock_skips_within_400_days_is_named_as_next_names_it():
    (found,) = doubts("30 2 * * *", "Europe/Berlin")
    assert found.message == "02:30 does not exist on 2027-03-28; fires at 03:00"
    assert doubts("0 2 * * *", "America/New_York")
    for quiet in (
        doubts("30 3 * * *", "Europe/Berlin"),
        doubts("30 2 * * *", "America/Sao_Paulo"),  # without clock changes
        doubts("30 2 * * *", "Europe/Berlin", dst={"gap": "skip"}),
        doubts("30 2 * * *", "Europe/Berlin", end="2027-03-01"),
        doubts("30 * * * *", "Europe/Berlin"),
    ):
        assert quiet == []


_PARTS = st.sampled_from(["*", "*/2", "*/7", "5", "1-5", "1,3", "H", "3/5"])


@given(st.lists(_PARTS, min_size=5, max_size=6), st.sampled_from(["UTC", "Europe/Berlin"]))
@settings(max_examples=examples(300), deadline=None)
def test_a_step_is_called_uneven_only_if_two_fires_are_nearer_than_the_others(parts, timezone):
    """Whatever the expression, and each warning says what to write."""
    schedule = Schedule.from_json(
        {"key": "k", "workflow": "w", "cron": " ".join(parts), "timezone": timezone}
    )
    found = cron_doubts(schedule, NOW)
    assert all(each.message and each.hint for each in found)
    uneven = [each for each in found if " again after " in each.message and "minute" in each.hint]
    if len(parts) == 5 and parts[1:] == ["*"] * 4:
        fires = [*schedule.spec.fires(NOW, NOW + timedelta(hours=5))]
        gaps = {later - fire for fire, later in pairwise(fires)}
        assert bool(uneven) == ("/" in parts[0] and len(gaps) > 1)


# --- in a file ---

FILE = """
schedules:
  - key: flood
    workflow: w
    cron: "* 5 * * *"{mark}
  - {{key: odd, workflow: w, cron: "*/7 * * * *"}}{mark}
  - {{key: child, workflow: w, after: {{schedule: flood}}}}
  - {{key: good, workflow: w, cron: "0 5 * * *"}}
defaults: {{timezone: UTC}}
"""


def checked(capsys, *arguments: str) -> tuple[int, str, str]:
    code = run(["check", "--no-import", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_check_prints_each_with_its_place_and_strict_makes_it_an_error(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schedules.yaml").write_text(FILE.format(mark=""))
    code, out, err = checked(capsys)
    assert code == 0
    assert "good, 4 schedules" in out
    flood, odd = err.strip().splitlines()
    assert flood.startswith("warning: schedules.yaml:5:11: SCHEDULE_CRON_DOUBTFUL: ")
    assert "if it is meant, write # sched: ok behind it" in flood
    assert ":6:" in odd
    code, _, err = checked(capsys, "--strict")
    assert code == 2
    assert [line.split(":")[1] for line in err.strip().splitlines()] == ["5", "6"]
    code, out, _ = checked(capsys, "--json")
    assert [each["key"] for each in json.loads(out)["warnings"]] == ["flood", "odd"]


def test_a_comment_behind_the_expression_silences_its_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schedules.yaml").write_text(FILE.format(mark="  # sched: ok, each minute"))
    assert checked(capsys, "--strict")[0] == 0
    padding = f"# {'x' * 600_000}\n"  # too large to look for places
    (tmp_path / "schedules.yaml").write_text(padding + FILE.format(mark=" # sched:ok"))
    assert checked(capsys, "--strict")[0] == 0
    (tmp_path / "schedules.yaml").write_text(padding + FILE.format(mark=""))
    assert checked(capsys, "--strict")[0] == 2


# --- instants of croniter ---

FIELD = st.sampled_from(["*", "0", "7", "*/15", "3-9/2", "1,20", "10-20"])
EXPRESSIONS = st.tuples(
    FIELD,
    FIELD,
    st.sampled_from(["*", "1", "31", "*/2", "15W", "L", "28-31"]),
    st.sampled_from(["*", "2-3", "*/3", "JAN-MAR"]),
    st.sampled_from(["*", "1", "MON-FRI", "*/2", "5L", "TUE#2", "0,6"]),
).map(" ".join)


@given(EXPRESSIONS, st.integers(0, 5000).map(lambda hours: NOW + timedelta(hours=37 * hours)))
@settings(max_examples=examples(300), deadline=None)
def test_croniter_computes_the_same_instants_in_utc(cron: str, now: datetime):
    schedule = Schedule.from_json(
        {"key": "k", "workflow": "w", "cron": cron, "timezone": "America/Sao_Paulo"}
    )
    assert other_instants(schedule, now) == []


def test_other_instants_are_a_warning_of_check_and_apply_with_both_readings(
    tmp_path, monkeypatch, capsys, database_url
):
    """A stand-in for a croniter that is wrong: each version so far agrees where it is asked."""
    wrong = (datetime(2027, 1, 1, tzinfo=UTC),)
    monkeypatch.setattr("engine.schedules.cron_warnings.instants", lambda *_: wrong)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schedules.yaml").write_text(
        'schedules: [{key: k, workflow: w, cron: "0 2 1 1 *", timezone: UTC}]'
    )
    monkeypatch.setenv("SCHED_DATABASE_URL", database_url)
    both = "in UTC it fires at 2027-01-01 02:00:00Z; croniter computes 2027-01-01 00:00:00Z"
    for command in ("check", "plan", "apply"):
        run([command])
        assert f"SCHEDULE_CRON_DOUBTFUL: {both}" in capsys.readouterr().err


def test_croniter_is_not_asked_for_what_it_cannot_judge():
    assert croniter_check.instants("H 3 * * *", NOW, 3) is None


CODE = """
# {padding}
from engine import Context, cron, workflow


@workflow(
    name="{name}",
    schedule=[
        cron("* 5 * * *", timezone="UTC"),{mark}
        cron("*/7 * * * *", timezone="UTC"),
    ]
)
class Feed:
    async def run(self, ctx: Context) -> None: ...
"""


def test_a_schedule_in_code_is_warned_of_and_silenced_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    file = "schedules: [{key: a, workflow: w, every: 1h, external: true}]"
    (tmp_path / "schedules.yaml").write_text(file)
    for name, mark, keys in (
        ("doubtful", "", ["doubtful", "doubtful-2"]),
        ("silenced", "  # sched: ok", ["silenced-2"]),
    ):
        text = CODE.format(name=name, padding="\n# " * 20, mark=mark)  # longer than the file
        (tmp_path / f"its_{name}.py").write_text(text)
        assert run(["check", "--import", f"its_{name}", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["warnings"]
        assert [each["key"] for each in found] == keys
        assert {each["file"] for each in found} == {f"its_{name}.py"}


def test_the_hint_of_a_json_file_proposes_no_comment_in_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    entry = {"key": "a", "workflow": "w", "cron": "* 5 * * *", "timezone": "UTC"}
    (tmp_path / "s.json").write_text(json.dumps({"schedules": [entry]}))
    _, _, err = checked(capsys, "s.json")
    assert err.strip().endswith("write the file as YAML, with # sched: ok behind it")
