"""Commands on a real ledger: what plan, at and reschedule print, and which files a pause enters."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import engine
from engine.cli.app import run
from engine.cli.target import Target, note_running
from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.service import ScheduleService
from tests.waiting import eventually

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
    assert (change["vanish"]["count"], len(change["appear"]["fireTimes"])) == (7, 7)
    assert told["firesOnApply"] == 0


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
    assert told["nextFireAt"] == "2031-12-24T16:00:00Z"
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


NOBODY = "no worker lives that starts what comes due of project shop, task queue sched"
SHOP = Serving("replica", "shop", "sched", frozenset({"w@1"}))


@pytest.fixture
async def ledger(database_url):
    opened = await Ledger.connect(database_url)
    yield opened
    await opened.close()


async def announce(ledger) -> None:
    await ledger.announce(SHOP, engine="0", tzdata="0", retention=timedelta(days=1))


async def test_a_one_shot_belongs_to_the_project_of_the_folder(sched, ledger, tmp_path):
    write(tmp_path, "project: shop\n" + FILE % "UTC")
    code, out, err = await sched("at", "2031-01-01T00:00Z", "w", "--json")
    assert (code, json.loads(out)["project"]) == (0, "shop")
    assert err.startswith("no worker on task queue sched knows w; no worker has ever served that")
    await announce(ledger)
    code, _, err = await sched("at", "2031-01-01T00:00Z", "w")
    assert (code, err) == (0, ""), "a worker lives"
    other = await sched("at", "2031-01-01T00:00Z", "w", "--project", "other", "--json")
    assert json.loads(other[1])["project"] == "other"
    assert "no worker lives that starts what comes due of project other, task queue" in other[2]
    url = os.environ["SCHED_DATABASE_URL"]
    note_running(tmp_path, Target(url, "default", project="running"))
    told = await sched("at", "2031-01-01T00:00Z", "w", "--data-dir", str(tmp_path), "--json")
    assert json.loads(told[1])["project"] == "running", "`sched up` runs it here"


async def test_what_no_living_worker_serves_is_done_and_warned_of(sched, ledger, tmp_path):
    write(tmp_path, "project: shop\n" + FILE % "UTC")
    await announce(ledger)
    assert (await sched("apply"))[2] == ""
    await ledger.withdraw(SHOP)
    for command in (("apply",), ("apply", "--json"), ("trigger", "nightly")):
        code, _, err = await sched(*command)
        assert (code, err.startswith(NOBODY)) == (0, True), (command, err)
        assert "start a worker" in err
    async with ScheduleService.connect(
        os.environ["SCHED_DATABASE_URL"], namespace="default", schema="sched", actor="shop"
    ) as service:
        asked = await service.schedule_at("w", "2031-01-01T00:00Z", project="shop")
    assert (asked.waiting or "").startswith(NOBODY)


@pytest.mark.parametrize(
    "command", [("apply",), ("trigger", "nightly"), ("at", "2031-01-01T00:00Z", "w")]
)
async def test_a_command_waits_for_a_worker_where_that_is_wanted(sched, ledger, tmp_path, command):
    write(tmp_path, "project: shop\n" + FILE % "UTC")
    await announce(ledger)
    await sched("apply")
    await ledger.withdraw(SHOP)
    waits = asyncio.create_task(sched(*command, "--wait-for-worker"))
    printed: Any = sys.stderr  # of capsys, which can be read before it is taken
    await eventually(lambda: NOBODY in printed.getvalue())
    assert not waits.done(), "nobody is there"
    await announce(ledger)
    async with asyncio.timeout(20):
        code, _, err = await waits
    assert code == 0
    if command[0] == "trigger":
        first, _, err = err.partition("\n")
        assert first.startswith("requested: sched:nightly:manual:"), "Ctrl-C leaves the request"
    assert err.startswith(NOBODY)
    assert err.count(NOBODY) == 1
    assert err.rstrip().endswith("a worker lives that starts it")


def entered(*arguments: str) -> set[str]:
    """Run a command; return the files of the engine whose functions it called, as paths.

    What is called to import a module is left out.
    """
    engine_folder = f"{Path(engine.__file__).parent}{os.sep}"
    importing = f"{engine_folder}lazy.py"
    found = {importing}

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or path in found or not path.startswith(engine_folder):
            return
        above: FrameType | None = frame
        while above is not None and above.f_code.co_name != "<module>":
            above = above.f_back
        if above is None or not above.f_code.co_filename.startswith(engine_folder):
            found.add(path)

    sys.setprofile(note)
    try:
        assert run(list(arguments)) == 0
    finally:
        sys.setprofile(None)
    return found - {importing}


async def test_a_pause_enters_the_files_that_the_map_names(sched, tmp_path):
    write(tmp_path, "schedules: [{key: often, workflow: w, every: 10s}]")
    assert (await sched("apply"))[0] == 0
    page = (Path(__file__).parents[2] / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.partition("## The way of `sched pause`\n")[2].partition("\n## ")[0]
    way, _, beside = section.partition("Beside them")
    counted, aside = (set(re.findall(r"`([\w/]+\.py)`", part)) for part in (way, beside))
    files = await asyncio.to_thread(entered, "pause", "often", "--reason", "the warehouse moves")
    unnamed = {file for file in files if not file.endswith(tuple(f"/{n}" for n in counted | aside))}
    assert unnamed == set()
    unused = {name for name in counted if not any(file.endswith(f"/{name}") for file in files)}
    assert unused == set()


async def test_plan_names_what_catches_up_more_than_temporal_keeps(sched, ledger, tmp_path):
    (tmp_path / "schedules.yaml").write_text(
        "schedules:\n"
        "  - {key: long, workflow: w, every: 1h, catchUp: {policy: all, window: 7d}}\n"
        "  - {key: short, workflow: w, every: 1h, catchUp: {policy: all, window: 1d}}\n"
        "  - {key: never, workflow: w, every: 1h, catchUp: {policy: none, window: 7d}}\n"
    )
    _, _, said = await sched("plan")
    assert "catchUp.window" not in said, "no worker has read the retention"
    serving = Serving("one", "default", "sched", frozenset({"w@1"}))
    await ledger.announce(serving, engine="0", tzdata="0", retention=timedelta(days=3))
    _, out, said = await sched("plan", "--json")
    found = json.loads(out)
    assert (found["retentionMs"], found["forgetful"]) == (259_200_000, ["long"])
    _, _, said = await sched("plan")
    assert "longer than Temporal keeps closed runs (3d): long; after an outage" in said
