"""Texts from people on terminals and in logs: what could act there is an escape, or is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.cli.app import run
from engine.cli.output import console
from engine.cli.target import Target, note_running
from engine.cli.up.live_table import LinePrinter
from engine.errors import ScheduleError, TemporalUnavailable
from engine.runtime.events import Alert, log
from engine.safe_text import LINE, SafeStream, escaped, json_text, unsafe_in
from engine.service import ScheduleService
from engine.telemetry.logs import JsonLines, TextLines
from engine.testing import FrozenClock
from tests.unit import test_recorded_commands as recorded
from tests.unit.test_recorded_commands import FILE, Recorder, virtual_url

__all__ = ["virtual_url"]

UGLY = "\x1b[2J\x9b31m\u202egnp.exe\u2066\u200b\ufeff"
BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"


def acts(sign: str) -> bool:
    """Whether a character acts on a terminal, turns the order of a line, or cannot be seen."""
    control = unicodedata.category(sign) == "Cc"
    return control or unicodedata.bidirectional(sign) in BIDI or sign in ZERO_WIDTH


def test_every_character_that_acts_is_escaped_without_loss_and_refused_in_a_line():
    wrong = [sign for sign in map(chr, range(0x3000)) if acts(sign)]
    assert len(wrong) > 70
    for sign in [*wrong, "\ufeff"]:
        shown = escaped(f"a{sign}b", one_line=True)
        assert not any(map(acts, shown))
        assert json.loads(f'"{shown}"') == f"a{sign}b"
        assert json.loads(json_text(f"a{sign}b")) == f"a{sign}b"
        assert not any(map(acts, json_text(f"a{sign}b")))
        assert unsafe_in(f"a{sign}b") == f"U+{ord(sign):04X}"
        assert re.fullmatch(LINE, f"a{sign}b") is None
    for good in ("Zoë ☃ 日本\u3000語", "עברית", "العربية", "€ 😀"):
        assert escaped(good) == good
        assert unsafe_in(good) is None
        assert re.fullmatch(LINE, good)
    assert escaped("two\n\tlines") == "two\n\tlines"


def clean(text: str) -> bool:
    return not any(acts(sign) for sign in text if sign not in "\n\t")


def test_what_a_log_and_a_worker_print_of_it_is_safe(capsys, caplog):
    with caplog.at_level(logging.INFO, "sched"):
        log(Alert(ScheduleError.code, UGLY))
    (record,) = caplog.records
    assert clean(record.getMessage()), "also in the log of an application of its own"
    user = logging.LogRecord("app", logging.INFO, "", 1, UGLY, None, None)
    assert TextLines(plain=False).format(user).count("\x1b") == 1, "colours of programs stay"
    assert clean(TextLines(plain=True).format(user))
    line = JsonLines().format(user)
    assert clean(line)
    assert "gnp.exe" in json.loads(line)["message"]
    for out in (console(), console(wraps=True)):
        LinePrinter(out).log(UGLY, "red")
        out.print(UGLY)
    assert clean(capsys.readouterr().out)


def test_colours_of_commands_pass_and_those_of_people_do_not(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console().print("\x1b[2J", style="red")
    shown = capsys.readouterr().out
    assert "\x1b[31m\\u001b[2J\x1b[0m" in shown
    stream = SafeStream(__import__("sys").stdout)
    stream.write(UGLY)
    assert clean(capsys.readouterr().out)


READING = """
status
list --wide
show hourly
show resting
show hourly --at 2026-11-21T10:30:00Z
fires
log
events
dead list
dead show hourly --at 2026-11-21T10:30:00Z
explain hourly 2026-11-21T10:30:00Z
plan
next
"""


@pytest.fixture
def ugly_ledger(
    virtual_url: str, clock: FrozenClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Recorder:
    """A ledger whose descriptions, inputs, errors and reasons could act on a terminal."""
    made = Recorder(virtual_url, clock)
    told = recorded.how_it_failed

    @asynccontextmanager
    async def connect(*_: Any, **__: Any) -> AsyncIterator[ScheduleService]:
        async with made.opened() as ledger:
            yield ScheduleService(ledger, actor="ops@host")

    async def nobody(*_: Any, **__: Any) -> None:
        raise TemporalUnavailable(UGLY)

    for variable in [name for name in os.environ if name.startswith(("SCHED_", "TEMPORAL_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recorded, "how_it_failed", lambda *of: {**told(*of), "error": UGLY})
    monkeypatch.setattr(ScheduleService, "connect", connect)
    monkeypatch.setattr("engine.cli.temporal.connected", nobody)
    quoted = json.dumps(UGLY)
    text = FILE.replace("each hour", quoted).replace("{a: 1}", f"{{a: {quoted}}}")
    Path("schedules.yaml").write_text(text, encoding="utf-8")
    Path(".sched").mkdir()
    note_running(Path(".sched"), Target("memory://here", "default", "http://ui", "t", None))
    asyncio.run(made.live())
    asyncio.run(pause_as_an_older_version_did(made))
    return made


async def pause_as_an_older_version_did(made: Recorder) -> None:
    async with made.opened() as ledger, ledger.transaction() as transaction:
        ugly = "UPDATE schedules SET paused_reason = $1 WHERE key = 'resting'"
        await transaction.connection.execute(ugly, UGLY)


def test_no_command_prints_what_acts_on_the_terminal(ugly_ledger, capsys):
    seen = ""
    for line in READING.strip().splitlines():
        for options in ("", " --json"):
            run(shlex.split(line + options))
            told = capsys.readouterr()
            assert clean(told.out + told.err), line + options
            seen += told.out
    assert seen.count("gnp.exe") > 10
    Path("schedules.yaml").write_text("schedules: [{key: " + json.dumps(UGLY) + "}]")
    run(["check"])
    told = capsys.readouterr()
    assert clean(told.out + told.err)


def test_a_reason_that_acts_on_the_terminal_is_refused_by_every_verb(ugly_ledger, capsys):
    past = "--from 2026-11-20 --to 2026-11-21 --yes"
    for verb in (
        *("pause hourly", "resume resting", "trigger hourly", "cancel queued"),
        *("skip hourly --at 2026-11-21T15:00Z", f"backfill hourly {past}"),
        *("dead drop --all hourly", "at +10m noop"),
    ):
        assert run([*shlex.split(verb), "--reason", UGLY]) == 2, verb
        told = capsys.readouterr()
        assert "SCHEDULE_FIELD_INVALID: the reason has the character U+001B; write" in told.err
    assert run(["log", "--json"]) == 0
    actions = json.loads(capsys.readouterr().out)
    assert {each["verb"] for each in actions} == {"apply"}
