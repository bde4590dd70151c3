"""The live table of ``sched up``: what it counts and how it fits a terminal."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from engine.cli.up.board import Board, FileState
from engine.cli.up.live_table import LinePrinter, picture
from engine.ledger import FailingStep
from engine.ledger.fires import Claim, Evidence, Fire, FireIdentity, Outcome, common_fields
from engine.ledger.schedule_rows import NextFire
from engine.runtime.events import Closed, Decided, Settled
from engine.schedules import Schedule
from engine.schedules.planner.decisions import Decision
from engine.schedules.terms import Window

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
TOKEN = uuid.UUID(int=1)


def claim(number: int, key: str = "nightly", **changes) -> Claim:
    schedule = Schedule(
        key=key, workflow="w", cron="0 * * * *", timezone="America/Sao_Paulo", task_queue="sched"
    )
    made = Claim(
        fire_id=number, key=key, project="default", series=1, bucket=number,
        fire_time=NOON + timedelta(hours=number), schedule=schedule, definition_version=1,
        workflow_id=f"sched:{key}:{number}", workflow_type="w@1", task_queue="sched",
        timing="on_time", missed=0, reason=None, token=TOKEN, attempts=1, starting_at=NOON,
    )  # fmt: skip
    return replace(made, **changes)


def settled(number: int, status: str = "started", **changes) -> Settled:
    made = claim(number, **changes)
    outcome = Outcome(number, TOKEN, status, "on_time", run_id="r", reason="as it is")  # type: ignore[arg-type]
    return Settled(made, outcome, timedelta(seconds=0.031))


def closed(number: int, how: str = "completed", error: str | None = None) -> Closed:
    evidence = Evidence(f"sched:nightly:{number}", "r", NOON, how, NOON, error)  # type: ignore[arg-type]
    return Closed(evidence)


def decided(first: int, count: int, verdict: str = "skipped") -> Decided:
    """As many windows from the first one on, an hour apart, in one row."""
    window = Window("nightly", 1, first, NOON + timedelta(hours=first))
    last = NOON + timedelta(hours=first + count - 1)
    decision = Decision(window, verdict, "as it is", windows=count, last=last)  # type: ignore[arg-type]
    return Decided(decision, window.workflow_id(suffixed=False), "UTC")


def heard(*events) -> Board:
    board = Board()
    for event in events:
        board.on_event(event)
    return board


def counted(board: Board) -> dict[str, int]:
    return {status: count for status, count in board.counts.items() if count}


def shown(board: Board, width: int = 130, height: int = 40, now: datetime = NOON) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, force_terminal=False)
    console.print(picture(board, now, width, height, lambda *_: "http://ui/run"))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def ended(number: int, **more: Any) -> Fire:
    """The ledger's row of a window whose run was completed."""
    made = claim(number)
    fields: dict[str, Any] = {
        "windows": 1, "last_fire_time": made.fire_time, "run_id": "r", "status": "completed",
        "reason": None, "timing": "on_time", "started_at": NOON, "closed_at": NOON, "lag_ms": 31,
        "error": None, "replica": None, "definition_version": 1,
    }  # fmt: skip
    return Fire(**{**common_fields(FireIdentity, made), **fields, **more})


def test_a_closed_run_shows_how_long_it_took_and_how_often_it_was_tried():
    board = heard(settled(1), settled(2))
    assert not any("TOOK" in line for line in shown(board))
    took = timedelta(seconds=2.5)
    board.on_event(Closed(Evidence("sched:nightly:1", "r", NOON, "completed", NOON + took)))
    (line,) = [line for line in shown(board) if "completed  sched" in line]
    assert "2.500 s  completed" in line
    board.learn([ended(1, duration_ms=2400, tries=3, step_retries=1), ended(2, duration_ms=1)])
    (line,) = [line for line in shown(board) if "completed  sched" in line]
    assert "2.400 s  completed  sched:nightly:1  3 tries, 1 step retry" in line
    assert not any("0.001 s" in line for line in shown(board)), "its close is still to come"
    assert not any("TOOK" in line for line in shown(board, width=60)), "the run matters more"


def test_a_closed_run_of_an_earlier_session_shows_it_too():
    board = Board()
    fires = [ended(1, duration_ms=2400, tries=1, step_retries=0)]
    board.remember(fires, {})
    board.learn(fires)
    (line,) = [line for line in shown(board) if "completed  sched" in line]
    assert line.split()[-4:] == ["2.400", "s", "completed", "sched:nightly:1"]


def test_a_run_that_cannot_go_on_is_marked_until_it_can():
    board = heard(settled(1))
    stuck = FailingStep(
        step="workflow task", place="", run_id="r", attempts=3, max_attempts=None,
        error_type="X", error="the code differs", since=NOON, next_attempt_at=None,
    )  # fmt: skip
    seen = []
    for failing in ((stuck,), (), (stuck,)):
        board.learn([ended(1, status="started", closed_at=None, failing=failing)])
        seen += [line.status for line in board.lines]
    assert seen == ["stuck", "started", "stuck"]
    board.on_event(closed(1))
    board.learn([ended(1, status="started", closed_at=None, failing=(stuck,))])
    assert [line.status for line in board.lines] == ["completed"]
    assert counted(board) == {"completed": 1}


def test_a_window_that_waited_is_counted_once():
    board = heard(decided(1, 1, "queued"), decided(2, 1, "queued"), settled(1))
    assert counted(board) == {"queued": 1, "started": 1}
    board.on_event(decided(2, 1, "skipped"))
    assert counted(board) == {"skipped": 1, "started": 1}


def test_a_window_counts_once_under_its_newest_status():
    board = heard(settled(1, "starting"), settled(1), closed(1), settled(2), closed(2, "failed"))
    assert counted(board) == {"completed": 1, "failed": 1}
    assert [line.status for line in board.lines] == ["failed", "completed"]


def test_a_close_that_is_heard_before_its_start_is_not_undone_by_it():
    board = heard(settled(1), closed(1), settled(1))
    assert counted(board) == {"completed": 1}


def test_the_newest_fire_time_is_on_top_and_the_oldest_scrolls_away():
    board = heard(*(settled(number) for number in (5, *range(3000))))
    assert [line.fire_time for line in board.lines[:2]] == [
        NOON + timedelta(hours=2999), NOON + timedelta(hours=2998),
    ]  # fmt: skip
    assert 200 <= len(board.lines) <= 400
    assert board.counts["started"] == 3000


def test_windows_without_a_run_are_one_line_and_each_of_them_counts():
    board = heard(decided(1, 16), settled(17), decided(18, 25, "rejected"), decided(43, 1))
    assert counted(board) == {"skipped": 17, "started": 1, "rejected": 25}
    lines = [line for line in shown(board) if "nightly" in line]
    statuses = [next(word for word in line.split() if word in counted(board)) for line in lines]
    assert statuses == ["skipped", "rejected", "started", "skipped"]
    assert "16 windows since 2026-11-21 13:00:00 UTC: as it is" in lines[3]
    assert "2026-11-22 04:00:00 UTC" in lines[3], "its last window"
    assert lines[0].split()[-4:] == ["skipped", "as", "it", "is"], "no run, so no id of one"


def test_what_went_wrong_stays_after_what_went_well_has_scrolled_away():
    board = heard(settled(1), closed(1, "failed", "no paper"), settled(2, "rejected"))
    for number in range(3, 1000):
        board.on_event(settled(number))
        board.on_event(closed(number))
    lines = shown(board, height=30)
    start = next(number for number, line in enumerate(lines) if "earlier problems" in line)
    assert "rejected" in lines[start + 1]
    assert "no paper" in lines[start + 2]
    assert not lines[start + 3].strip()
    assert all("completed" in line for line in lines[2:start])
    assert len(lines) <= 30


def test_why_a_run_failed_is_worth_more_than_its_id():
    reason = "card declined: Elm Electric (on purpose, see docs/tutorial.md)"
    board = heard(settled(1), closed(1, "failed", reason))
    (narrow,) = [line for line in shown(board, width=135) if "nightly" in line]
    assert reason in narrow
    assert "sched:" not in narrow, "a part of an id is of no use"
    (wide,) = [line for line in shown(board, width=170) if "nightly" in line]
    assert f"{reason}  sched:nightly:1" in wide


def test_what_goes_wrong_all_the_time_leaves_room_for_what_is_new():
    failures = (
        event for number in range(500) for event in (settled(number), closed(number, "failed"))
    )
    board = heard(*failures, *(settled(number) for number in range(500, 600)))
    newest, wrong = board.foremost(20)
    assert [line.status for line in newest] == ["started"] * 13
    assert [line.fire_time for line in wrong] == [
        NOON + timedelta(hours=number) for number in range(499, 493, -1)
    ]


def test_what_the_ledger_remembers_is_shown_but_not_counted():
    board = Board()
    fire = Fire(
        key="nightly", series=1, bucket=7, fire_time=NOON, windows=1, last_fire_time=NOON,
        workflow_id="sched:nightly:7", run_id="r", status="failed", reason=None, timing="on_time",
        started_at=NOON, closed_at=NOON, lag_ms=12, error="no paper", replica=None,
        definition_version=1, project="default",
    )  # fmt: skip
    board.remember([fire], {"nightly": "America/Sao_Paulo"})
    assert counted(board) == {}
    (line,) = [line for line in shown(board) if "nightly" in line]
    for part in ("2026-11-21 09:00:00 -03", "12:00:00Z", "0.012 s", "failed", "no paper"):
        assert part in line


def test_a_window_is_shown_in_its_schedules_zone_and_in_utc():
    lines = shown(heard(settled(1, reason="first sight"), closed(1)))
    (line,) = [line for line in lines if "nightly" in line]
    for part in ("2026-11-21 10:00:00 -03", "13:00:00Z", "0.031 s", "completed", "sched:nightly:1",
                 "first sight"):  # fmt: skip
        assert part in line
    assert any("1 completed  since the start" in line for line in lines)


@pytest.mark.parametrize("timing", ["backfill", "rerun"])
def test_a_run_that_was_asked_for_later_shows_no_lag(timing: str):
    event = settled(1)
    event = replace(event, outcome=replace(event.outcome, timing=timing))  # type: ignore[arg-type]
    (line,) = [line for line in shown(heard(event)) if "nightly" in line]
    assert timing in line
    assert "0.031" not in line
    out = StringIO()
    LinePrinter(Console(file=out, width=200))(event)
    assert timing in out.getvalue()
    assert "lag" not in out.getvalue()


def test_the_time_in_utc_is_not_said_twice():
    utc = Schedule(key="nightly", workflow="w", cron="0 * * * *", task_queue="sched")
    lines = shown(heard(settled(1, schedule=utc), settled(2, schedule=utc)), height=20)
    assert "UTC  " not in lines[1], "no column of that name"
    assert "2026-11-21 13:00:00 UTC" in lines[3]
    assert "13:00:00Z" not in lines[3]


def test_a_window_that_was_refused_says_why():
    (line,) = [line for line in shown(heard(settled(1, "rejected"))) if "nightly" in line]
    assert "rejected" in line
    assert "as it is" in line


def remembered(status: str) -> Board:
    board = Board()
    fire = Fire(
        key="nightly", series=1, bucket=1, fire_time=NOON, windows=1, last_fire_time=NOON,
        workflow_id="sched:nightly:1", run_id="r", status=status, reason=None, timing="on_time",  # type: ignore[arg-type]
        started_at=NOON, closed_at=None, lag_ms=12, error=None, replica=None,
        definition_version=1, project="default",
    )  # fmt: skip
    board.remember([fire], {})
    return board


def test_the_close_of_a_run_of_an_earlier_session_is_shown_but_not_counted():
    board = remembered("started")
    board.on_event(closed(1))
    assert counted(board) == {}
    assert board.lines[0].status == "completed"


def test_a_start_that_an_earlier_session_left_unanswered_counts_when_it_is_answered():
    board = remembered("starting")
    board.on_event(settled(1))
    assert counted(board) == {"started": 1}
    board.on_event(closed(1))
    assert counted(board) == {"completed": 1}


def test_a_herd_is_counted_to_its_end_also_where_it_has_scrolled_away():
    board = heard(*(settled(number) for number in range(1000)))
    for number in range(1000):
        board.on_event(closed(number))
    assert counted(board) == {"completed": 1000}


def test_what_is_next_is_told_in_words_and_never_lies_in_the_past():
    board = Board()
    board.upcoming = [
        NextFire("stuck", NOON - timedelta(seconds=77), "UTC"),
        NextFire("due", NOON - timedelta(seconds=1), "UTC"),
        NextFire("nightly", NOON + timedelta(hours=3, minutes=5), "America/Sao_Paulo"),
    ]
    stuck, due, nightly = (line for line in shown(board) if re.search("stuck|due|nightly", line))
    assert "due 1 min 17 s ago  2026-11-21 11:58:43 UTC" in stuck
    assert "now" in due
    assert "in 3 h 5 min" in nightly
    assert "2026-11-21 12:05:00 -03  2026-11-21 15:05:00Z" in nightly


def test_what_has_been_started_is_no_longer_next_before_the_ledger_is_asked_again():
    board = Board()
    board.expect([
        NextFire("nightly", NOON + timedelta(hours=1), "America/Sao_Paulo"),
        NextFire("other", NOON + timedelta(hours=1, minutes=5), "UTC"),
    ])  # fmt: skip
    board.on_event(settled(1))
    assert board.upcoming == [
        NextFire("other", NOON + timedelta(hours=1, minutes=5), "UTC"),
        NextFire("nightly", NOON + timedelta(hours=2), "America/Sao_Paulo"),
    ]
    board.on_event(settled(1))  # an older window, heard late
    assert board.upcoming[1].fire_time == NOON + timedelta(hours=2)


def test_that_nothing_will_fire_is_said_only_once_the_file_is_applied():
    board = Board()
    board.set_file(FileState("s.yaml", None, 4))
    board.expect([])
    assert "nothing will fire" not in "\n".join(shown(board))
    board.set_file(FileState("s.yaml", NOON, 4))
    assert "nothing will fire" not in "\n".join(shown(board)), "not asked since"
    board.expect([])
    assert "nothing will fire" in "\n".join(shown(board))


def test_a_broken_file_is_shown_in_place_with_what_goes_on():
    board = Board()
    assert FileState("s.yaml", NOON, 4, ("w/a.py:3:1: no",)).warning.startswith("w/a.py is broken")
    board.file = FileState("s.yaml", NOON, 4, tuple(f"s.yaml:{n}:1: problem" for n in range(9)))
    text = "\n".join(shown(board))
    assert "s.yaml is broken; the last good definitions stay in force (4 schedules)" in text
    assert text.count("problem") == 6
    assert "and 3 more: sched check s.yaml" in text


def test_what_a_file_could_not_apply_stays_below_the_table():
    board = Board()
    why = "no worker on task queue sched knows it"
    refused = tuple(f"key-{number}: refused: {why}" for number in range(5))
    board.file = FileState("s.yaml", NOON, 4, refused=refused)
    lines = shown(board)
    assert "4 schedules, applied 12:00:00Z" in "\n".join(lines)
    assert [line.strip() for line in lines[-4:]] == [
        *(f"not applied: {each}" for each in refused[:3]), "and 2 more: sched apply s.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(80, 24), (130, 40), (250, 70), (60, 20)])
def test_the_table_fits_the_terminal(width, height):
    long = "a reason that is much longer than any terminal is wide " * 4
    board = heard(*(settled(number, reason=long) for number in range(100)))
    board.upcoming = [NextFire(f"key-{n}", NOON, "Asia/Tokyo") for n in range(5)]
    board.file = FileState("s.yaml", NOON, 4)
    lines = shown(board, width, height)
    # What is taller than the terminal could not be drawn over again.
    assert height * 0.7 < len(lines) < height
    assert max(map(len, lines)) <= width
    # The note is cut, then the id, but neither the time nor the status.
    assert "nightly  2026-11-25 12:00:00 -03" in lines[2]
    assert "0.031 s  started" in lines[2]
