"""The commands that a person types beside a running ``sched up``, in a project of `sched init`."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import pytest_asyncio
from temporalio.client import Client

from engine.schedules import load_schedules
from tests.acceptance.fleet import SCHED
from tests.acceptance.home import Home
from tests.acceptance.terminal import Terminal
from tests.servers import shared_folder
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MORE = """
  - {key: nightly, workflow: hello, cron: "0 2 * * *", timezone: America/Sao_Paulo, input: "1e3"}
  - {key: resting, workflow: hello, everyMs: 60000, paused: true}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def project():
    """A project that ``sched init`` has written and ``sched up`` runs, with two more schedules."""
    with shared_folder() as folder:
        home = Home(folder, example=False)
        for command in ("init", "check"):
            code, output = await home.sched(command)
            assert code == 0, output
        home.schedules.write_text(home.schedules.read_text() + MORE)
        await home.up()
        try:
            await home.until_fired("hello", 2)
            yield home
        finally:
            await home.stop()


async def connected(home: Home) -> Client:
    return await Client.connect(f"127.0.0.1:{home.port['temporal']}")


async def shown(home: Home, key: str) -> dict[str, Any]:
    code, output = await home.sched("show", key, "--json")
    assert code == 0, output
    page: dict[str, Any] = json.loads(output)
    return page


async def test_a_generated_project_greets_in_each_window(project: Home):
    client = await connected(project)
    fire = (await project.until_fired("hello", 2))[-1]
    result = await client.get_workflow_handle(str(fire["workflowId"])).result()
    moment = str(fire["fireTime"])[11:19]
    assert result == f"Hello world, this is the window of {moment} UTC."


async def test_links_lead_to_the_runs_of_the_key_and_to_each_run(project: Home):
    page = await shown(project, "hello")
    ui = f"http://127.0.0.1:{project.port['ui']}/"
    links = {fire["workflowId"]: fire["link"] for fire in page["lastFires"] if fire["runId"]}
    runs = {fire["workflowId"]: fire["runId"] for fire in page["lastFires"]}
    assert links
    for workflow_id, link in links.items():
        assert link.startswith(ui)
        *_, named, run, tab = urlsplit(link).path.split("/")
        assert (unquote(named), run, tab) == (workflow_id, runs[workflow_id], "history")
        assert ":" not in named
    assert page["link"].startswith(ui)
    query = parse_qs(urlsplit(page["link"]).query)["query"][0]
    client = await connected(project)

    async def listed() -> bool:
        return {run.id async for run in client.list_workflows(query)} >= set(links)

    assert await eventually(listed)


async def test_show_prints_a_definition_that_reads_back_as_it_was(project: Home):
    page = await shown(project, "nightly")
    code, output = await project.sched("show", "nightly")
    assert code == 0, output
    entry = [line for line in output.splitlines() if line.startswith(("  - ", "    "))]
    read = load_schedules("schedules:\n" + "\n".join(entry)).schedules[0]
    assert read.to_json() == page["definition"]
    assert read.input == "1e3"
    assert "America/Sao_Paulo" in output.splitlines()[0]


async def test_show_says_that_a_paused_schedule_does_not_fire(project: Home):
    page = await shown(project, "resting")
    assert (page["state"], page["next"], page["lastFires"]) == ("paused", [], [])
    _, output = await project.sched("show", "resting")
    assert "resting: paused; nothing fires until it is resumed" in output
    assert "no window has been decided yet" in output


async def test_next_has_each_schedule_of_the_ledger_once_and_names_what_is_paused(
    project: Home, monkeypatch
):
    # The file named here says something else; the ledger is what fires.
    other = project.folder / "other.yaml"
    other.write_text("schedules: [{key: other, workflow: w, everyMs: 1000}]")
    monkeypatch.setitem(project.environment, "SCHED_SCHEDULES", str(other))
    moment = ("--from", "2026-11-22T04:59:55Z")
    code, output = await project.sched("next", *moment, "--json")
    assert code == 0, output
    assert [(row["key"], row["localTime"]) for row in json.loads(output)] == [
        ("hello", "2026-11-22T05:00:00+00:00"),
        ("nightly", "2026-11-22T02:00:00-03:00"),
    ]
    _, told = await project.sched("next")
    assert "paused, so that nothing fires: resting" in told
    assert f"(of the ledger 127.0.0.1:{project.port['postgres']}/" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "--project", "defualt"], "no schedule of project defualt; did you mean default?"),
        (["fires", "--status", "queued"], "no window is queued now"),
        (
            ["fires", "--reason-code", "paused"],
            "no window with the reason code paused has been decided yet",
        ),
    ],
)
async def test_an_empty_list_is_explained(project: Home, arguments, said):
    assert await project.sched(*arguments) == (0, f"{said}\n")
    code, output = await project.sched(*arguments, "--json")
    assert code == 0
    assert "[]" in output.splitlines()


@pytest.mark.prove
@pytest.mark.parametrize(
    "arguments",
    [["fires"], *map(str.split, ("list", "show hello", "next", "next hello"))],
)
async def test_a_line_is_one_line_in_a_narrow_terminal(project: Home, arguments):
    code, whole = await project.sched(*arguments)
    assert code == 0, whole
    terminal = Terminal(columns=60)
    try:
        await terminal.run(str(SCHED), *arguments, cwd=project.folder, env=project.environment)
        assert await terminal.ended() == 0
        # Which columns are spared depends on how wide the others are today; a sentence that the
        # terminal folds may begin with the workflow's type.
        await eventually(lambda: re.search(r"20\d\d-\d\d-\d\dT", terminal.text))
        rows = [line for line in terminal.text.splitlines() if line.startswith(("hello ", "20"))]
        assert rows
        for row in rows[1:]:
            assert re.search(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ(  |$)", row)
    finally:
        terminal.close()


@pytest.mark.prove
@pytest.mark.parametrize(
    "arguments",
    [["fires"], *map(str.split, ("list", "show hello", "next"))],
)
async def test_a_reader_that_has_seen_enough_is_no_fault(project: Home, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        process = await asyncio.create_subprocess_exec(
            str(SCHED), *arguments, cwd=project.folder, env=project.environment,
            stdout=gone, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, told = await process.communicate()
    assert (process.returncode, told) == (141, b"")


async def test_a_misspelt_key_is_answered_with_the_one_that_was_meant(project: Home):
    code, output = await project.sched("show", "helo")
    assert code == 2
    assert output == (
        "sched: SCHEDULE_JOB_NOT_FOUND: there is no schedule helo; did you mean hello?\n"
    )


async def test_an_apply_that_would_retire_more_than_half_is_refused_before_it_does_anything(
    project: Home,
):
    before = await shown(project, "hello")
    small = project.folder / "small.yaml"
    small.write_text("schedules: [{key: hello, workflow: hello, everyMs: 77000}]")
    code, output = await project.sched("apply", "small.yaml", "--prune")
    assert code == 2
    assert output == (
        "sched: SCHEDULE_PRUNE_REFUSED: 2 of the 3 schedules of project default are not in"
        " small.yaml: nightly, resting; that is more than half, so none of them is retired, and"
        " they continue to fire; put them back, or retire them with"
        " `sched apply small.yaml --prune --force`\n"
    )
    after = await shown(project, "hello")
    assert after["definition"] == before["definition"]


async def test_an_apply_says_what_is_probably_not_meant(project: Home):
    project.schedules.with_name("warned.yaml").write_text(
        "project: warned\nschedules:\n"
        "  - {key: warned, workflow: w, external: true, everyMs: 3600000, input: 010}\n"
    )
    code, output = await project.sched("apply", "warned.yaml")
    assert code == 0
    assert "warning: warned.yaml:3:" in output
    assert "no worker lives that starts what comes due of project warned (1 schedule)" in output
    code, output = await project.sched("apply", "warned.yaml", "--json")
    assert code == 0
    told, _ = json.JSONDecoder().raw_decode(output)  # what stands behind it is on stderr
    assert told["warnings"][0]["message"] == "010 is read as the number 10"
