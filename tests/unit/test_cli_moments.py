"""The one parser of moments of the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from engine.cli import target
from engine.cli.app import run
from engine.cli.target import Side, moment

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


class Frozen(datetime):
    """The clock of the command line."""

    @classmethod
    def now(cls, tz=None):
        return NOW.astimezone(tz)


@pytest.fixture(autouse=True)
def _frozen(monkeypatch):
    monkeypatch.setattr(target, "datetime", Frozen)


@pytest.mark.parametrize(
    ("text", "bare", "found"),
    [
        ("now", None, timedelta(0)),
        ("+10m", None, timedelta(minutes=10)),
        ("-1h30m", None, -timedelta(hours=1, minutes=30)),
        ("2h", "ahead", timedelta(hours=2)),
        ("7d", "ago", -timedelta(days=7)),
        ("-7d", "ahead", -timedelta(days=7)),
        ("+250ms", "ago", timedelta(milliseconds=250)),
        ("2026-11-25", None, -timedelta(hours=12)),
        ("2026-11-25T14:00:00+01:00", "ago", timedelta(hours=1)),
        ("11:59:30", "ago", -timedelta(seconds=30)),
        ("9:30", "ago", -timedelta(hours=2, minutes=30)),
        ("19:17:40", "ago", timedelta(hours=7, minutes=17, seconds=40) - timedelta(days=1)),
        ("19:17Z", "ahead", timedelta(hours=7, minutes=17)),
        ("09:00", "ahead", timedelta(hours=21)),
    ],
)
def test_a_moment_is_absolute_or_relative_to_now(text: str, bare: Side | None, found: timedelta):
    assert moment(text, "--from", bare=bare) == NOW + found


@pytest.mark.parametrize(
    ("text", "bare", "hint"),
    [
        ("2h", None, "may lie before or after now; write [+]2h or -2h"),
        ("+2", None, "write a number and a unit"),
        ("-soon", "ago", "write a number and a unit"),
        ("19:17:40", None, "is no moment"),
        ("25:00", "ago", "is no moment"),
        ("soon", "ago", "as 2026-11-22, or [+]10m or -1h from now"),
        ("36525d", "ahead", "years 1970 to 2100"),
        ("2026-11-25T12:00:00", "ago", "append Z for UTC"),
    ],
)
def test_what_is_no_moment_is_refused_with_what_to_write(text: str, bare: Side | None, hint: str):
    with pytest.raises(typer.BadParameter, match=hint):
        moment(text, "--from", bare=bare)


@pytest.mark.parametrize(
    "arguments",
    [
        "pause k --reason x --until 2x",
        "backfill k --from 2x --to now",
        "backfill k --from -2h --to 1x",
        "next --cron @hourly --from 1x",
        "skip k --at 1x",
        "rerun k --at 1x",
        "dead rerun k --at 1x",
        "show k --at 1x",
        "explain k 1x",
        "audit --since 1x",
        "at +1x w",
        "reschedule k +1x",
        "token create t --expires 1x",
    ],
)
def test_every_command_that_asks_for_a_moment_has_the_same_parser(capsys, arguments):
    assert run(arguments.split()) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "-1h from now" in told or "write a number and a unit" in told
