"""What the commands of operators read and say, without any server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from engine.cli import operate
from engine.cli.app import run
from engine.cli.backfill import _Lines, _shown, describe_end, describe_preview
from engine.cli.operate import describe_request
from engine.cli.output import fire_lag
from engine.cli.target import Session, parse_json_input
from engine.errors import LedgerUnavailable, NotCancellable
from engine.ledger.fires import Fire
from engine.ledger.records import Backfill
from engine.schedules.planner import Pause
from engine.service.backfill import BackfillRequested
from engine.service.operate import Cancelled, Paused, Requested
from engine.views.answers import BACKFILL_FOLLOWED

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FIRE = Fire(
    key="k", series=1, bucket=7, fire_time=NOON, windows=1, last_fire_time=NOON,
    workflow_id="sched:k:7", run_id="r", decided_at=NOON,
    status="completed", reason=None, timing="on_time",
    started_at=NOON, closed_at=NOON, lag_ms=12, error=None, replica=None,
    definition_version=1, project="default",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pause", "k"], "Missing option '--reason'"),
        (["pause", "k", "--reason", " "], "'--reason': it is empty; write why"),
        (
            ["at", "2027-12-24T18:00", "w"],
            "has no offset; append Z for UTC, or name its --timezone",
        ),
        (["reschedule", "k", "2027-12-24T18:00"], "or name its --timezone"),
        (["at", "2027-12-24T18:00Z", "w", "--input", "NaN"], "'NaN' is no JSON"),
        (["backfill", "k", "--from", "2026-11-02", "--to", "2026-11-01"], "earlier moment first"),
        (
            ["pause", "", "--reason", "x"],
            "Invalid value for KEYS: it is empty; is a variable not set?",
        ),
        (["trigger", ""], "it is empty; is a variable not set?"),
        (["pause", "k", "--reason", "x", "--until", "soon"], "'soon' is no moment; write"),
        (["explain", "k", "25:00"], "-1h from now, or a time as 19:17:40"),
        (["resume", "k", "--catch-up", "lates"], "no policy; did you mean latest?"),
        (["resume", "k", "--max", "5"], "'--max': goes with `--catch-up all`"),
        (["resume", "k", "--catch-up", "latest", "--rate", "5/1s"], "'--rate': goes with"),
        (["resume", "k", "--catch-up", "none", "--window", "1h"], "'--window': goes with"),
        (["resume", "k", "--catch-up", "all", "--max", "1501"], "write at most 1500"),
        (["resume", "k", "--catch-up", "all", "--rate", "fast"], "'fast'; write a number and"),
        (["resume", "k", "--catch-up", "all", "--window", "1 h"], "'1 h'; write 1h"),
        (["trigger", "k", "--overlap", "que"], "'que' is no policy; did you mean queue?"),
        (["trigger", "k", "--input", "{a: 1}"], "'{a: 1}' is no JSON; write for example"),
        (["trigger", "k", "--input", "NaN"], "'NaN' is no JSON"),
        (["trigger", "k", "--input", '"\\u0000"'], "no database keeps the character U+0000"),
        (["trigger", "k", "--input", "1e400"], "'1e400' is no JSON"),
        (["pause", "k", "--reason", "\udc80x"], "'\\udc80x' is not UTF-8"),
        (["dead", "drop", "k", "7", "--reason", "\udc80x"], "'\\udc80x' is not UTF-8"),
        (["show", "\udc80x"], "'\\udc80x' is not UTF-8"),
        (["rerun", "k", "1.5"], "'1.5' is no bucket; write the number in the run's id"),
        (["skip", "k", "--at", "2026-12-25T02:00:00"], "has no offset; append Z for UTC"),
        (["backfill", "k", "--from", "2026-12-25"], "Missing option '--to'"),
    ],
)
def test_a_slip_is_answered_before_anything_is_asked_of_a_ledger(capsys, arguments, said):
    assert run(arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())


class Several:
    """A service with three schedules, one of which fails at everything."""

    async def select(self, keys, **_) -> tuple[SimpleNamespace, ...]:
        return tuple(SimpleNamespace(key=key, pause=None, state="active") for key in "abc")

    async def pause(self, key: str, *, reason: str, until: datetime | None) -> Paused:
        if key == "b":
            raise LedgerUnavailable("the line is cut", hint="wait")
        return Paused(key, Pause(NOON, reason, "ops", until), None)


@pytest.mark.parametrize("as_json", [False, True])
def test_one_of_several_that_fails_is_reported_and_the_others_go_on(capsys, monkeypatch, as_json):
    monkeypatch.setattr(
        Session, "ask", lambda _, question: asyncio.run(question(cast("Any", Several())))
    )
    more = ["--json"] if as_json else []
    assert run(["pause", "*", "--reason", "incident", "--yes", *more]) == 1
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "pause 3 schedules: a, b, c",
        "sched: SCHEDULE_LEDGER_UNAVAILABLE: b: the line is cut; wait",
        "1 of 3 schedules failed",
    ]
    if as_json:
        answers = json.loads(told.out)
        assert [each["key"] for each in answers] == ["a", "b", "c"]
        assert answers[1]["error"]["code"] == "SCHEDULE_LEDGER_UNAVAILABLE"
        assert answers[2]["paused"]["reason"] == "incident"
    else:
        assert told.out.splitlines() == [
            f"{key} is paused until it is resumed: incident" for key in "ac"
        ]


def test_runs_of_several_are_cancelled_and_their_schedules_go_on(capsys, monkeypatch):
    class Service(Several):
        async def cancel(self, name: str, *, goes_on: bool, **_) -> Cancelled:
            assert goes_on
            if name == "b":
                raise NotCancellable("no run of b is open")
            return Cancelled(name, asked=(f"sched:{name}:1",))

    monkeypatch.setattr(
        Session, "ask", lambda _, question: asyncio.run(question(cast("Any", Service())))
    )
    assert run(["cancel", "--tag", "billing", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "sched:a:1 is being cancelled", "b: nothing is open", "sched:c:1 is being cancelled",
    ]  # fmt: skip


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_several_are_acted_on_only_if_the_answer_is_yes(capsys, monkeypatch, answer):
    monkeypatch.setattr(
        Session, "ask", lambda _, question: asyncio.run(question(cast("Any", Several())))
    )
    terminal = StringIO(f"{answer}\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign] # as a terminal does
    monkeypatch.setattr("sys.stdin", terminal)
    assert run(["pause", "*", "--reason", "incident"]) == 1, "one fails, or the answer is no"
    told = capsys.readouterr()
    assert "pause them?" in told.err
    assert ("a is paused" in told.out) == (answer == "y")


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        (None, ()), ("null", (None,)), ('"text"', ("text",)), ('{"a": [1.5]}', ({"a": [1.5]},)),
        ('"\\ud83d\\ude00"', ("😀",)), ('"\\\\u0000"', ("\\u0000",)),
    ],
)  # fmt: skip
def test_an_argument_is_whatever_json_says_and_without_one_there_is_none(text, argument):
    assert parse_json_input(text) == argument


@pytest.mark.parametrize("text", ['"\\ud83d"', "1e400", "[-1e999]", "[" * 100_000, "", "{"])
def test_what_cannot_be_an_argument_is_refused(text):
    with pytest.raises(typer.BadParameter):
        parse_json_input(text)


def of(**fields) -> Backfill:
    said = {
        "id": 7, "project": "default", "key": "k", "series": 1, "definition_version": 1,
        "first": NOON, "last": NOON, "cursor": NOON, "overlap": "allow", "include": ("paused",),
        "requested_by": "ops", "requested_at": NOON, "next_at": NOON, "windows": 1000, **fields,
    }  # fmt: skip
    return Backfill(**said)


def test_a_backfill_tells_each_tenth_once_where_there_is_no_terminal(capsys):
    show = _Lines()
    for done in (20, 99, 200, 201, 999, 1000):
        show(of(laid=done - 5, left_alone={"completed": 5}))
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "200 of 1000 windows, up to 2026-11-21T12:00:00Z",
        "999 of 1000 windows, up to 2026-11-21T12:00:00Z",
    ]


def test_a_backfill_that_prints_json_tells_nothing_else(capsys):
    with _shown(quiet=True) as show:
        show(of(laid=500))
    assert capsys.readouterr() == ("", "")


def test_a_backfill_says_what_will_start_what_is_left_alone_and_what_it_costs():
    asked = BackfillRequested(
        of(first=NOON - timedelta(hours=1)),
        {"paused": 900, "undeclared": 75},
        {"completed": 24, "user": 1},
        "overlap: skip: own windows are",
    )
    span = "from 2026-11-21T11:00:00Z to 2026-11-21T12:00:00Z"
    assert [*describe_preview(asked)] == [
        f"k: 1000 windows {span}: 975 to start, 25 left alone",
        "to start, paused: 900 windows",
        "to start, undeclared: 75 windows, from before the schedule was declared",
        "they start as fast as workers take them; `--overlap queue` starts one after another",
        "left alone, completed: 24 windows",
        "left alone, user: 1 window; `--include user` starts it",
        "overlap: skip: own windows are",
    ]
    shown = BACKFILL_FOLLOWED(asked, started=[])
    backfill = shown.pop("backfill")
    assert (backfill["id"], backfill["state"]) == (7, "laying")
    assert shown == {
        "wouldStart": 975,
        "starts": {"paused": 900, "undeclared": 75},
        "leftAlone": {"completed": 24, "user": 1},
        "cost": "overlap: skip: own windows are",
        "started": [],
    }


class PastWindows:
    """A service with a window in the past."""

    def __init__(self, starts: int) -> None:
        self.starts, self.requested = starts, 0

    async def preview_backfill(self, *_: object, **__: object) -> BackfillRequested:
        return BackfillRequested(of(windows=1), {"undeclared": self.starts}, {})

    def windows_of(self, _: Backfill) -> None:
        pytest.fail("only --dry-run lists the windows")

    async def backfill(self, *_: object, **__: object) -> BackfillRequested:
        self.requested += 1
        return await self.preview_backfill()


BACKFILL = ["backfill", "k", "--from", "2026-11-20", "--to", "2026-11-21"]


@pytest.mark.parametrize(
    ("answer", "options", "starts", "code"),
    [
        ("y", [], 289, 0), ("n", [], 289, 1), (None, [], 289, 2), (None, ["--json"], 289, 2),
        (None, ["--yes"], 289, 0), (None, ["-y", "--json"], 289, 0), (None, [], 0, 0),
    ],
)  # fmt: skip
def test_a_backfill_starts_what_it_has_shown_only_after_a_yes(
    capsys, monkeypatch, answer, options, starts, code
):
    service = PastWindows(starts)
    monkeypatch.setattr(
        Session, "ask", lambda _, question: asyncio.run(question(cast("Any", service)))
    )
    terminal = StringIO(f"{answer}\n")
    terminal.isatty = lambda: answer is not None  # type: ignore[method-assign] # as a terminal does
    monkeypatch.setattr("sys.stdin", terminal)
    assert run([*BACKFILL, *options]) == code
    told = capsys.readouterr()
    assert service.requested == (code == 0)
    assert ("start 289 runs of k?" in told.err) == (answer is not None)
    if "--json" not in options:
        assert told.out.startswith("k: 1 window 2026-11-21T12:00:00Z: ")
    if code == 2:
        assert "write --yes" in told.err


def test_a_backfill_that_was_followed_says_what_it_came_to():
    assert describe_end(of(state="done", laid=990, left_alone={"started": 10})) == (
        "k: 990 laid, 10 left alone"
    )
    assert describe_end(of(state="ended", laid=4, ended_reason="user: no")) == (
        "k: 4 laid, 0 left alone, 996 not laid: user: no"
    )


def test_a_cancel_says_that_a_schedule_in_no_file_is_over_for_good():
    assert list(operate._describe_cancel(Cancelled("k", retired=True), "cancelled")) == [
        "k is cancelled for good: none of its windows will come"
    ]
    assert list(operate._describe_cancel(Cancelled("k", was_retired=True), "cancelled")) == [
        "k was cancelled before"
    ]


def test_a_cancel_of_thousands_of_runs_names_some_and_counts_the_rest():
    done = Cancelled("k", asked=("sched:k:1",), skipped=tuple(f"sched:k:{n}" for n in range(500)))
    lines = list(operate._describe_cancel(done, "terminated"))
    assert lines[0] == "sched:k:1 is being terminated"
    assert len(lines) == 22
    assert lines[-1] == "and 480 more had not begun to start, and will not; --json names them all"


def test_a_request_that_no_worker_will_take_up_is_not_said_to_start_at_once():
    asked = Requested(replace(FIRE, status="claimed"), new=True)
    assert describe_request(asked, alone=False) == "sched:k:7 claimed: starts at once"
    assert describe_request(asked, alone=True) == "sched:k:7 claimed"


@pytest.mark.parametrize("asks", [True, False])
def test_a_request_that_waits_during_a_pause_is_said_to_wait_for_its_end(asks):
    asked = Requested(replace(FIRE, status="queued"), new=True, asks=asks)
    assert describe_request(asked, alone=False).startswith("sched:k:7 queued: starts ")
    assert (
        describe_request(asked, alone=False, held=True)
        == "sched:k:7 queued: waits for the end of the pause"
    )


@pytest.mark.parametrize(
    ("timing", "lag"),
    [("on_time", "0.012 s"), ("manual", "0.012 s"), ("backfill", None), ("rerun", None)],
)
def test_a_run_that_was_asked_for_long_after_its_window_is_not_called_late(timing, lag):
    assert fire_lag(replace(FIRE, timing=timing)) == lag
