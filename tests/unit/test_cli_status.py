"""The command status: its exit code, and what it says without a ledger."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.cli.app import run
from engine.cli.target import Session
from engine.errors import Code, TemporalUnavailable
from engine.service import Condition, ServerState, StatusReport

NOW = datetime(2026, 11, 24, tzinfo=UTC)
UP = (ServerState("ledger"),)


def answering(monkeypatch: pytest.MonkeyPatch, report: StatusReport, temporal: Any = None) -> None:
    """Let the ledger say this, and Temporal answer unless it is an error."""

    async def answer(*_: object) -> StatusReport:
        return report

    async def connected(*_: object) -> None:
        if temporal is not None:
            raise temporal

    monkeypatch.setattr(Session, "answer", answer)
    monkeypatch.setattr("engine.cli.temporal.connected", connected)


def condition(number: int) -> Condition:
    return Condition(
        name=f"not-fired:k{number}", code=Code.NOT_FIRED, text=f"k{number} has not fired", since=NOW
    )


@pytest.mark.parametrize(
    ("report", "temporal", "code"),
    [
        (StatusReport(at=NOW, servers=UP), None, 0),
        (StatusReport(at=NOW, servers=UP, conditions=[condition(1)]), None, 1),
        (StatusReport(at=NOW, servers=UP), TemporalUnavailable("refused"), 1),
    ],
)
def test_it_ends_with_one_unless_all_is_well(report, temporal, code, monkeypatch, capsys):
    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://u:secret@db.example/ledger")
    answering(monkeypatch, report, temporal)
    assert run(["status"]) == code
    shown = capsys.readouterr().out
    assert shown.startswith("ledger db.example:5432        answers\n")
    assert "secret" not in shown
    assert run(["status", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["good"] is (code == 0)


def test_many_of_a_kind_stay_on_one_screen(monkeypatch, capsys):
    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://db.example/ledger")
    report = StatusReport(
        at=NOW, servers=UP, lag=timedelta(seconds=90), conditions=[condition(n) for n in range(25)]
    )
    answering(monkeypatch, report)
    run(["status"])
    lines = capsys.readouterr().out.splitlines()
    assert "lag                           1 min 30 s" in lines
    assert sum("has not fired" in line for line in lines) == 10
    assert lines[-1] == "  and 15 more; --json has all"


def test_a_ledger_that_is_away_is_what_it_says_and_temporal_is_asked_all_the_same(
    monkeypatch, capsys
):
    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://u:secret@127.0.0.1:1/ledger")

    async def nobody(*_: object) -> None:
        raise TemporalUnavailable("no server here")

    monkeypatch.setattr("engine.cli.temporal.connected", nobody)
    assert run(["status"]) == 1
    ledger, temporal = capsys.readouterr().out.splitlines()
    assert ledger.startswith("ledger 127.0.0.1:1            away: the ledger's database cannot be")
    assert temporal.endswith("away: no server here")
    assert run(["status", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["answers"] for each in told["servers"]] == [False, False]
