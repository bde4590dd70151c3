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

from engine.cli.up.file_watch import FileState
from engine.cli.up.live_table import WRONG, LinePrinter, TableContent, picture
from engine.ledger import FailingStep
from engine.ledger.fires import Claim, Fire, FireIdentity, Outcome, common_fields
from engine.ledger.schedule_rows import NextFire
from engine.runtime.events import Settled
from engine.schedules import Schedule
from engine.service import Status

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


def fired(number: int, status: str = "completed", **more: Any) -> Fire:
    """The ledger's row of a window, an hour after the one before."""
    made = claim(number)
    fields: dict[str, Any] = {
        "windows": 1, "last_fire_time": made.fire_time, "run_id": "r", "status": status,
        "reason": None, "timing": "on_time", "started_at": NOON, "closed_at": NOON, "lag_ms": 31,
        "error": None, "replica": None, "definition_version": 1, "decided_at": NOON,
    }  # fmt: skip
    return Fire(**{**common_fields(FireIdentity, made), **fields, **more})


def view(*fires: Fire, **more: Any) -> TableContent:
    """What is read of a ledger with these fires, the newest first."""
    timezones = {"nightly": "America/Sao_Paulo"}
    wrong = [fire for fire in fires if fire.status in WRONG]
    return TableContent(fires=fires[:100], wrong=wrong[:30], **{"timezones": timezones, **more})


def shown(
    view: TableContent, width: int = 130, height: int = 40, now: datetime = NOON
) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, force_terminal=False)
    console.print(picture(view, now, width, height, lambda *_: "http://ui/run"))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def row(view: TableContent, width: int = 130) -> str:
    """The only line of a window."""
    (line,) = [line for line in shown(view, width) if "nightly" in line]
    return line


def test_a_closed_run_shows_how_long_it_took_and_how_often_it_was_tried():
    line = row(view(fired(1, duration_ms=2400, tries=3, step_retries=1)))
    assert line.split("2026-11-21 10:00:00 -03")[1].split() == [
        "13:00:00Z", "0.031", "s", "2.400", "s", "completed", "sched:nightly:1",
        "3", "tries,", "1", "step", "retry",
    ]  # fmt: skip
    opened = view(fired(1, "started", closed_at=None))
    assert not any("TOOK" in line for line in shown(opened)), "nobody knows yet"


def test_a_run_that_cannot_go_on_is_marked_and_says_why():
    stuck = FailingStep(
        step="workflow task", place="", run_id="r", attempts=3, max_attempts=None,
        error_type="X", error="the code differs", since=NOON, next_attempt_at=None,
    )  # fmt: skip
    assert "stuck" in row(view(fired(1, "started", failing=(stuck,))))
    assert "the code differs" in row(view(fired(1, "started", failing=(stuck,))))
    assert "started" in row(view(fired(1, "started")))


def test_windows_are_counted_by_status_and_those_beyond_the_limit_are_not_claimed_to_be_all():
    counts: dict[Status, int] = {"starting": 1, "completed": 2, "failed": 30}
    assert lines_with("since the start", counts) == [
        "2 completed · 30 failed · 1 not answered  since the start"
    ]
    assert lines_with("of late", {"completed": 10_000}) == ["10000 completed  of late"]
    assert lines_with("since the start", {}) == ["no window since the start"]


def lines_with(words: str, counts: dict[Status, int]) -> list[str]:
    return [line.strip() for line in shown(TableContent(counts=counts)) if words in line]


def test_windows_without_a_run_are_one_line_with_their_number_and_reason():
    rows = view(
        fired(2, "skipped", run_id=None, reason="as it is"),
        fired(
            1, "skipped", run_id=None, reason="as it is", windows=16,
            last_fire_time=NOON + timedelta(hours=16),
        ),
    )  # fmt: skip
    one, many = (line for line in shown(rows) if "nightly" in line)
    assert one.split()[-4:] == ["skipped", "as", "it", "is"], "no run, so no id of one"
    assert "16 windows up to 2026-11-22T04:00:00Z: as it is" in many


def test_what_went_wrong_stays_after_what_went_well_has_scrolled_away():
    well = [fired(number) for number in range(1000, 2, -1)]
    lines = shown(
        view(*well, fired(2, "rejected"), fired(1, "failed", error="no paper")), height=30
    )
    start = next(number for number, line in enumerate(lines) if "earlier problems" in line)
    assert "rejected" in lines[start + 1]
    assert "no paper" in lines[start + 2]
    assert not lines[start + 3].strip()
    assert all("completed" in line for line in lines[2:start])
    assert len(lines) <= 30


def test_why_a_run_failed_is_worth_more_than_its_id():
    reason = "card declined: Elm Electric (on purpose, see docs/tutorial.md)"
    failed = view(fired(1, "failed", error=reason))
    narrow = row(failed, width=135)
    assert reason in narrow
    assert "sched:nightly:1" not in narrow
    assert f"{reason}  sched:nightly:1" in row(failed, width=170)


def test_what_goes_wrong_all_the_time_leaves_room_for_what_is_new():
    new = [fired(number, "started") for number in range(600, 500, -1)]
    bad = [fired(number, "failed") for number in range(500, 0, -1)]
    newest, wrong = view(*new, *bad).foremost(20)
    assert newest == tuple(new[:13])
    assert wrong == bad[:6]
    newest, wrong = view(*bad).foremost(20)
    assert [*newest, *wrong] == bad[: len(newest) + len(wrong)], "nothing twice"


def test_a_window_is_shown_in_its_schedules_zone_and_in_utc():
    line = row(view(fired(1, reason="first sight")))
    for part in ("2026-11-21 10:00:00 -03", "13:00:00Z", "0.031 s", "completed", "sched:nightly:1",
                 "first sight"):  # fmt: skip
        assert part in line
    assert "on time" not in line


@pytest.mark.parametrize("timing", ["backfill", "rerun"])
def test_a_run_that_was_asked_for_later_shows_no_lag(timing: str):
    line = row(view(fired(1, timing=timing)))
    assert timing in line
    assert "0.031" not in line
    event = settled(1)
    event = replace(event, outcome=replace(event.outcome, timing=timing))  # type: ignore[arg-type]
    out = StringIO()
    LinePrinter(Console(file=out, width=200))(event)
    assert timing in out.getvalue()
    assert "lag" not in out.getvalue()


def test_the_time_in_utc_is_not_said_twice():
    lines = shown(view(fired(2), fired(1), timezones={}), height=20)
    assert "UTC  " not in lines[1], "no column of that name"
    assert "2026-11-21 13:00:00 UTC" in lines[3]
    assert "13:00:00Z" not in lines[3]


def test_a_window_that_was_refused_says_why():
    assert "rejected  as it is" in row(view(fired(1, "rejected", reason="as it is")))


def test_what_is_next_is_told_in_words_and_never_lies_in_the_past():
    made = TableContent()
    made.upcoming = [
        NextFire("stuck", NOON - timedelta(seconds=77), "UTC"),
        NextFire("due", NOON - timedelta(seconds=1), "UTC"),
        NextFire("nightly", NOON + timedelta(hours=3, minutes=5), "America/Sao_Paulo"),
    ]
    stuck, due, nightly = (line for line in shown(made) if re.search("stuck|due|nightly", line))
    assert "due 1 min 17 s ago  2026-11-21 11:58:43 UTC" in stuck
    assert "now" in due
    assert "in 3 h 5 min" in nightly
    assert "2026-11-21 12:05:00 -03  2026-11-21 15:05:00Z" in nightly


def test_that_nothing_will_fire_is_said_only_once_the_file_is_applied():
    made = TableContent()
    made.set_file(FileState("s.yaml", None, 4))
    made.expect([])
    assert "nothing will fire" not in "\n".join(shown(made))
    made.set_file(FileState("s.yaml", NOON, 4))
    assert "nothing will fire" not in "\n".join(shown(made)), "not asked since"
    made.expect([])
    assert "nothing will fire" in "\n".join(shown(made))


def test_a_broken_file_is_shown_in_place_with_what_goes_on():
    made = TableContent()
    assert FileState("s.yaml", NOON, 4, ("w/a.py:3:1: no",)).warning.startswith("w/a.py is broken")
    made.file = FileState("s.yaml", NOON, 4, tuple(f"s.yaml:{n}:1: problem" for n in range(9)))
    text = "\n".join(shown(made))
    assert "s.yaml is broken; the last good definitions stay in force (4 schedules)" in text
    assert text.count("problem") == 6
    assert "and 3 more: sched check s.yaml" in text


def test_what_a_file_could_not_apply_stays_below_the_table():
    made = TableContent()
    why = "no worker on task queue sched knows it"
    refused = tuple(f"key-{number}: refused: {why}" for number in range(5))
    made.file = FileState("s.yaml", NOON, 4, refused=refused)
    lines = shown(made)
    assert "4 schedules, applied 12:00:00Z" in "\n".join(lines)
    assert [line.strip() for line in lines[-4:]] == [
        *(f"not applied: {each}" for each in refused[:3]), "and 2 more: sched apply s.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(80, 24), (130, 40), (250, 70), (60, 20)])
def test_the_table_fits_the_terminal(width, height):
    long = "a reason that is much longer than any terminal is wide " * 4
    fires = [fired(number, reason=long, duration_ms=9) for number in range(99, -1, -1)]
    made = view(*fires, file=FileState("s.yaml", NOON, 4))
    made.upcoming = [NextFire(f"key-{n}", NOON, "Asia/Tokyo") for n in range(5)]
    lines = shown(made, width, height)
    # What is taller than the terminal could not be drawn over again.
    assert height * 0.7 < len(lines) < height
    assert max(map(len, lines)) <= width
    # The note is cut, then the id, but neither the time nor the status.
    assert "nightly  2026-11-25 12:00:00 -03" in lines[2]
    assert "0.031 s  completed" in lines[2] or "0.009 s  completed" in lines[2]
    assert ("completed  sched" in lines[2]) == ("0.009 s" in lines[2]) == (width > 60)
