"""The command status: its exit code, and what it says without a ledger."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.cli.app import run
from engine.cli.status import _print_findings
from engine.cli.target import Session
from engine.errors import Code, TemporalUnavailable
from engine.ledger import Facts, Load, SeenReplica, Totals
from engine.service import Condition, Finding, ServerState, StatusReport
from engine.service.status import _in_order, _workers

NOW = datetime(2026, 11, 24, tzinfo=UTC)
UP = (ServerState("ledger"),)


def answering(monkeypatch: pytest.MonkeyPatch, report: StatusReport, temporal: Any = None) -> None:
    """Let the ledger say this, and Temporal answer unless it is an error."""

    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://u:secret@db.example/ledger")

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
    answering(monkeypatch, report, temporal)
    assert run(["status"]) == code
    shown = capsys.readouterr().out
    assert shown.startswith("ledger db.example:5432        answers\n")
    assert "secret" not in shown
    assert run(["status", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["good"] is (code == 0)


def test_many_of_a_kind_stay_on_one_screen(monkeypatch, capsys):
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


def dead(key: str, number: int) -> Condition:
    text = f"{key} has {number} dead letters"
    return Condition(
        name=f"dead:{key}", code=Code.DEAD_LETTERS, text=text, since=NOW, number=number
    )


def test_the_worst_comes_first_and_numbers_are_whole(monkeypatch, capsys):
    nine = [dead(f"k{number}", 1) for number in range(9)]
    late = Condition(name="late:z", code=Code.FIRED_LATE, text="z is late", since=NOW)
    report = StatusReport(
        at=NOW,
        servers=UP,
        conditions=_in_order([*nine, dead("z", 24), late, condition(1)]),
        totals=Totals(queued=2000, pending=10_000, open_runs=0, dead_letters=33, overdue=0),
    )
    answering(monkeypatch, report)
    run(["status"])
    lines = capsys.readouterr().out.splitlines()
    assert "windows                       2,000 queued, 10,000 or more to be started" in lines
    wrong = lines[lines.index("wrong") + 1 :]
    assert wrong[0] == "  SCHEDULE_FIRED_LATE: z is late"
    assert wrong[1] == "  SCHEDULE_DEAD_LETTERS: z has 24 dead letters"


def test_a_long_line_hangs_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    text = "the run sched:nightly-report:1795312800000 cannot continue, because " + "no " * 30
    report = StatusReport(at=NOW, servers=UP, conditions=[replace(condition(1), text=text)])
    answering(monkeypatch, report)
    run(["status"])
    lines = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(lines) if "the run sched:" in line)
    assert lines[begin].startswith("  the run")
    assert all(line.startswith("    ") for line in lines[begin + 1 :])
    assert max(map(len, lines)) <= 80


def test_findings_hang_below_their_texts_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    long = Finding("search attributes", None, "not asked: " + "no " * 40, "see " + "it " * 40)
    _print_findings([Finding("clock", True, "fine"), long])
    first, second, *others = capsys.readouterr().out.splitlines()
    assert first == "ok     clock              fine"
    assert second.startswith("?      search attributes  not asked: no")
    assert all(line.startswith(" " * 26) and line[26] != " " for line in others)
    assert max(map(len, (second, *others))) <= 80


def test_a_silent_replica_that_was_replaced_leaves_the_workers():
    def seen(name: str, silent: timedelta, queue: str = "sched") -> SeenReplica:
        return SeenReplica(
            replica=name, project="default", task_queue=queue, types=frozenset(), engine="0",
            tzdata="0", started_at=NOW - timedelta(days=1), seen_at=NOW - silent,
            heartbeat=timedelta(seconds=10),
        )  # fmt: skip

    alive, hour = timedelta(0), timedelta(hours=1)
    facts = Facts(
        now=NOW,
        replicas=[
            seen("a:1:x", alive), seen("b:2:x", hour), seen("c:3:x", timedelta(minutes=5)),
            seen("d:4:x", hour, "mail"),
        ],
    )  # fmt: skip
    shown = {each.host: each.state for each in _workers(facts, Load({}, None, awaits=False))}
    assert shown == {"a": "alive", "c": "silent", "d": "silent"}
