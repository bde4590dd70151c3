"""``sched up`` in a terminal: a live table that a person looks at."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from tests.acceptance.fleet import ROOT, SCHED
from tests.acceptance.home import Home
from tests.acceptance.terminal import Terminal
from tests.waiting import eventually

SLOW = "schedules: [{key: slow, workflow: slow, everyMs: 1000}]"


@pytest.fixture
async def terminal() -> AsyncIterator[Terminal]:
    made = Terminal()
    yield made
    if made.process and made.process.returncode is None:
        made.process.kill()
        await made.process.wait()
    made.close()


def shows(terminal: Terminal, *patterns: str):
    def condition() -> bool:
        text = terminal.text
        missing = [each for each in patterns if not re.search(each, text)]
        assert not missing, f"{missing} not in\n{text}"
        return True

    return condition


@pytest.mark.prove
async def test_a_person_sees_windows_edits_and_mistakes_and_leaves_a_clean_terminal(
    home: Home, terminal: Terminal
):
    opened, browser = home.folder / "opened", home.folder / "browser"
    browser.write_text(f"#!/bin/sh\nprintf %s $1 > {opened}")
    browser.chmod(0o755)
    await terminal.run(
        str(SCHED), "up", *home.ports, "--open",
        cwd=home.folder, env={**home.environment, "BROWSER": str(browser)},
    )  # fmt: skip
    await eventually(
        shows(
            terminal,
            "starting PostgreSQL and Temporal",
            r"heartbeat +2\d{3}-\S+ \S+ UTC +\S+ s +\S+ s +completed +sched:heartbeat:\d+",
            # one invoice in five is declined on purpose, and the row then says why
            r"invoice-run .*(sched:invoice-run:\d+|card declined)",
            r"\d+ completed .*since the start",
            r"nightly-report +in .* -03 +2\d{3}-\S+ \d\d:00:00Z",
            r"schedules.yaml +4 schedules, applied",
        ),
        timeout=60,
    )
    assert opened.read_text() == f"http://127.0.0.1:{home.port['ui']}"

    text = home.schedules.read_text()
    home.schedules.write_text(text.replace("every: 10s", "every: 1s"))
    await eventually(shows(terminal, "~ heartbeat: every 10s → 1s"))
    home.schedules.write_text(text.replace("every: 10s", "every: soon"))
    await eventually(
        shows(
            terminal,
            r"schedules.yaml is broken; the last good definitions stay in force \(4 schedules\)",
            r"schedules.yaml:\d+:\d+: SCHEDULE_FIELD_INVALID: every is 'soon'",
        )
    )
    home.schedules.write_text(text)
    await eventually(shows(terminal, "schedules.yaml is good again"))
    await eventually(lambda: "is broken" not in terminal.text)

    terminal.type("\x03")
    await eventually(shows(terminal, "stopped"), timeout=30)
    assert await terminal.ended() == 0
    assert not terminal.cursor_is_hidden
    # The table was drawn over itself, not printed again and again.
    assert terminal.text.count("KEY  ") == 1, terminal.text
    assert "Traceback" not in terminal.text


@pytest.mark.prove
async def test_a_second_ctrl_c_leaves_at_once_and_gives_the_terminal_back(
    home: Home, terminal: Terminal
):
    home.schedules.write_text(SLOW)
    await terminal.run(
        str(SCHED), "up", *home.ports, "--import", "tests.slow_workflows",
        cwd=home.folder, env={**home.environment, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    # With the second run under way the step of the first, which takes 3 s, is in flight.
    await eventually(shows(terminal, "[23] started  since"), timeout=60)
    assert terminal.cursor_is_hidden
    terminal.type("\x03")
    await eventually(shows(terminal, "draining"))
    terminal.type("\x03")
    assert await terminal.ended() == 130
    await eventually(lambda: not terminal.cursor_is_hidden)


@pytest.mark.prove
async def test_a_window_that_is_resized_shows_one_whole_table_and_what_was_said_last(
    home: Home, terminal: Terminal
):
    home.schedules.write_text("schedules: [{key: beat, workflow: heartbeat, everyMs: 1000}]")
    await terminal.run(
        str(SCHED), "up", *home.ports, cwd=home.folder, env=home.environment
    )  # fmt: skip
    await eventually(shows(terminal, "[1-9] completed .*since the start"), timeout=60)

    def whole() -> bool:
        shown = terminal.visible
        for heading in ("KEY  ", "since the start", "next  ", "saving it applies it"):
            assert shown.count(heading) == 1, f"{heading} in\n{shown}"
        assert "Web UI " in terminal.text
        return True

    for columns, rows in [(90, 30), (130, 20), (160, 60)]:
        terminal.resize(columns, rows)
        await eventually(whole)
    terminal.type("\x03")
    assert await terminal.ended() == 0
