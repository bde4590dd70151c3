"""The commands `plan`, `at` and `reschedule` on a real ledger: what they print and how they end."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.cli.app import run

FILE = "schedules: [{key: nightly, workflow: w, cron: '0 2 * * *', timezone: %s}]"


@pytest.fixture
def sched(database_url, monkeypatch, tmp_path, capsys):
    """Run a command in a folder of the test's own; return its code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHED_DATABASE_URL", database_url)

    async def command(*arguments: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(run, list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def write(tmp_path, text: str) -> None:
    (tmp_path / "schedules.yaml").write_text(text)


async def test_a_plan_ends_with_3_while_something_would_change_and_with_0_afterwards(
    sched, tmp_path
):
    write(tmp_path, FILE % "America/Sao_Paulo")
    assert (await sched("plan"))[0] == 3
    assert (await sched("apply"))[0] == 0
    code, out, _ = await sched("plan")
    assert code == 0
    assert "0 unchanged" not in out
    assert out.rstrip().endswith("1 unchanged; fires on apply: 0")
    write(tmp_path, FILE % "Europe/Berlin")
    code, out, _ = await sched("plan")
    assert code == 3
    assert "~ nightly changed: timezone America/Sao_Paulo → Europe/Berlin" in out
    assert out.count("    - ") == out.count("    + ") == 7
    assert "\x1b" not in out, "no colour into a pipe"
    told = json.loads((await sched("plan", "--json"))[1])
    (change,) = told["changes"]
    assert (change["vanish"]["count"], len(change["appear"]["fire_times"])) == (7, 7)
    assert told["fires_on_apply"] == 0


async def test_a_plan_of_a_file_that_cannot_be_applied_ends_with_2_and_says_why(sched, tmp_path):
    write(tmp_path, "schedules: [{key: nightly}]")
    assert (await sched("plan"))[0] == 2
    write(tmp_path, FILE % "UTC")
    await sched("apply")
    write(tmp_path, "project: other\n" + FILE % "UTC")
    code, out, err = await sched("plan")
    assert code == 2
    assert "! nightly: belongs to project default" in out
    assert "SCHEDULE_KEY_FOREIGN" in err
    assert (
        json.loads((await sched("plan", "--json"))[1])["refused"]["code"] == "SCHEDULE_KEY_FOREIGN"
    )


async def test_a_one_shot_is_asked_for_moved_and_shown_by_its_key(sched):
    asked = ("at", "2031-12-24T18:00", "greeting", "--timezone", "Europe/Berlin", "--key", "wishes")
    code, out, _ = await sched(*asked, "--input", '{"to": "all"}', "--request-id", "r1")
    assert (code, out.splitlines()[0]) == (0, "wishes: greeting, 2031-12-24 18:00:00 +01")
    told = json.loads((await sched("reschedule", "wishes", "2031-12-24T16:00Z", "--json"))[1])
    assert told["next_fire_at"] == "2031-12-24T16:00:00Z"
    assert told["definition"]["input"] == {"to": "all"}
    (row,) = json.loads((await sched("list", "--json"))[1])
    assert (row["key"], row["origin"], row["kind"]) == ("wishes", "api", "at")
    assert "ORIGIN" in (await sched("list"))[1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("at", "2001-01-01T00:00Z", "w"), "SCHEDULE_MOMENT_IN_PAST"),
        (
            ("at", "2031-01-01T00:00Z", "w", "--request-id", "r1"),
            "SCHEDULE_CLIENT_REQUEST_ID_IN_USE",
        ),
        (("at", "2031-01-01T00:00Z", "w", "--key", "mine"), "SCHEDULE_KEY_IN_USE"),
        (("reschedule", "nobody", "2031-01-01T00:00Z"), "SCHEDULE_JOB_NOT_FOUND"),
        (("reschedule", "nightly", "2031-01-01T00:00Z"), "SCHEDULE_OWNED_BY_FILE"),
        (("reschedule", "mine"), "name one of MOMENT, --every and --cron"),
        (("at", "2031-01-01T00:00Z", "w", "--input", "{"), "is no JSON"),
    ],
)  # fmt: skip
async def test_what_cannot_be_asked_for_is_refused_by_name(sched, tmp_path, arguments, code):
    write(tmp_path, FILE % "UTC")
    await sched("apply")
    await sched("at", "2030-01-01T00:00Z", "w", "--key", "mine", "--request-id", "r1")
    ended, _, err = await sched(*arguments)
    assert ended == 2
    assert code in err
