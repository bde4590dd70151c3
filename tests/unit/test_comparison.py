"""Comparing windows with the runs of another scheduler: one run for each, by one of the two."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.audit.comparison import (
    Comparison,
    LoggedStarts,
    NativeState,
    TheirRun,
    TheirRuns,
    TheirSource,
    compare,
    windows_of,
)
from engine.cli.takeover import _print
from engine.errors import TakeoverRefused
from engine.ledger import Fire
from engine.schedules import TICK, Schedule
from engine.service.takeover import _agreeing, native_of

BEGIN = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
NATIVE = TheirSource("temporal_schedule", "k")


def beat(**fields: Any) -> Schedule:
    return Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 60_000, **fields})


def row(minute: int, *, windows: int = 1, ran: bool = False, reason: str = "shadow") -> Fire:
    at = BEGIN + minute * MINUTE
    return Fire(
        project="p", key="k", error=None,
        series=1, bucket=0, fire_time=at, last_fire_time=at + (windows - 1) * MINUTE,
        windows=windows, status="completed" if ran else "skipped", reason=None if ran else reason,
        reason_code=None if ran else reason, timing="on_time" if ran else None, missed=0,  # type: ignore[arg-type] # a code
        missed_from=None, definition_version=1, workflow_id=f"sched:k:{minute}", run_id=None,
        started_at=None, closed_at=None, decided_at=at, attempts=0, replica=None,
    )  # fmt: skip


def run(minute: float, *, open_for: timedelta | None = SECOND, name: str = "") -> TheirRun:
    at = BEGIN + minute * MINUTE
    closed = None if open_for is None else at + open_for
    return TheirRun(at, name or f"native-{minute}", at, closed)


def compared(
    rows: list[Fire], runs: list[TheirRun], *, tolerance: timedelta = SECOND, **fields: Any
) -> Comparison:
    declared = beat(mode="shadow", **fields)
    since, until = BEGIN, BEGIN + 10 * MINUTE
    ours = [*windows_of(rows, {1: declared}, since, until)]
    return compare(declared, "p", NATIVE, ours, TheirRuns(runs), since=since, until=until,
                   tolerance=tolerance)  # fmt: skip


def kinds(found: Comparison) -> list[tuple[str, float]]:
    return [(each.kind, (each.at - BEGIN) / MINUTE) for each in found.differences]


def test_each_window_with_its_run_is_equal_whether_its_row_stands_alone_or_for_many():
    found = compared([row(0), row(1, windows=3)], [run(0), run(1), run(2), run(3)])
    assert (found.is_equal, found.equal) == (True, 4)


def test_a_window_without_a_run_and_a_run_without_a_window_are_found():
    found = compared([row(0), row(1)], [run(1), run(4)])
    assert kinds(found) == [("only_ours", 0), ("only_theirs", 4)]
    assert found.differences[1].what == "no window opens then"


def test_a_run_for_the_window_of_another_schedule_of_the_same_source_is_no_run_too_many():
    ours, since, until = [*windows_of([row(0)], {}, BEGIN, BEGIN)], BEGIN, BEGIN + 10 * MINUTE
    for beside, wanted in (({BEGIN + 2 * MINUTE}, [7.0]), ((), [2.0, 7.0])):
        found = compare(
            beat(mode="shadow"), "p", NATIVE, ours, TheirRuns([run(0), run(2), run(7)]),
            since=since, until=until, tolerance=SECOND, beside=beside,
        )  # fmt: skip
        assert (found.equal, kinds(found)) == (1, [("only_theirs", at) for at in wanted])


def test_a_note_of_several_schedules_is_printed_once_with_their_names(capsys):
    alone = replace(compared([row(0)], [run(0)]), notes=("nothing is known",))
    _print([replace(alone, key=key) for key in "abcdefg"])
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert notes == ["note: a, b, c, d, e and 2 more: nothing is known"]


def test_two_runs_of_one_window_are_found():
    found = compared([row(0)], [run(0), run(0, name="again")])
    assert [each.what for each in found.differences] == ["it is one more run of the same window"]


def test_a_window_that_both_have_run_is_doubled_and_one_that_ran_here_alone_is_ours():
    found = compared([row(0, ran=True), row(1, ran=True)], [run(1)])
    assert (kinds(found), found.ours) == ([("doubled", 1)], 1)


def test_a_run_at_a_window_that_is_skipped_here_names_the_reason():
    (found,) = compared([row(0, reason="excluded")], [run(0)]).differences
    assert (found.kind, found.what) == ("only_theirs", "the window is skipped here: excluded")


def test_a_run_is_of_a_window_within_the_tolerance_and_never_of_two():
    assert compared([row(0), row(1)], [run(0.1), run(1.1)], tolerance=10 * SECOND).is_equal
    late = compared([row(0), row(1)], [run(1), run(2)], tolerance=5 * MINUTE)
    assert kinds(late) == [("only_ours", 0), ("only_theirs", 2)]


def test_a_window_at_which_their_run_was_still_open_is_held_unless_runs_may_overlap():
    runs = [run(0, open_for=MINUTE + SECOND)]
    assert (compared([row(0), row(1)], runs, overlap="skip").held) == 1
    (found,) = compared([row(0), row(1)], runs).differences
    assert "native-0 was still open then" in found.what


def test_what_opened_outside_of_the_stretch_is_not_compared():
    found = compared([row(0)], [run(0), run(11)])
    assert found.is_equal


# --- whether a native schedule can be taken over ---

AT = BEGIN + 5 * MINUTE


def native(*minutes: float, **fields: Any) -> NativeState:
    return NativeState(
        **{
            "ends_at": None, "paused": False, "note": None, "has_jitter": False,
            "is_limited": False, "next_times": [BEGIN + minute * MINUTE for minute in minutes],
            **fields,
        }
    )  # fmt: skip


def agreeing(state: NativeState) -> tuple[str, ...]:
    return _agreeing(beat(mode="shadow"), "k", state, BEGIN + SECOND, AT)


@pytest.mark.parametrize(
    "state",
    [
        native(1, 2, 3, 4, 5, 6),
        native(1, 2, 3, 4, ends_at=AT - TICK),  # the same again
        native(1, 2, 3),  # no more were named
        native(0, 1, 2, 3),  # one of them has passed meanwhile
        native(1, 2, 3, 4, ends_at=AT - SECOND),
    ],
)
def test_a_native_schedule_with_the_same_windows_can_be_taken_over(state):
    assert agreeing(state) == ()


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (native(1, 2, 3, paused=True), "is paused"),
        (native(1, 2, ends_at=BEGIN + 3 * MINUTE), "ends at 2026-11-18 09:03:00Z, before"),
        (native(1, 3, 4, 5, 6), "opens at 2026-11-18 09:02:00Z here, and not in schedule k"),
        (native(1, 1.5, 2, 3, 4, 5), "opens at 2026-11-18 09:01:30Z not here, but in schedule k"),
        (native(7), "opens at 2026-11-18 09:01:00Z here"),
    ],
)
def test_a_native_schedule_with_other_windows_cannot(state, why):
    with pytest.raises(TakeoverRefused, match=why):
        agreeing(state)


def test_what_cannot_be_checked_is_said():
    assert "jitter" in agreeing(native(1.3, 2.4, has_jitter=True))[0]
    assert "number of runs" in agreeing(native(1, 2, 3, 4, 5, is_limited=True))[0]


def test_the_metadata_name_the_native_schedule_and_otherwise_the_key_does():
    assert native_of(beat()) == "k"
    assert native_of(beat(metadata={"temporalSchedule": "Nightly Report"})) == "Nightly Report"


def test_lines_of_a_log_are_runs_and_others_are_counted():
    log = (
        "2026-11-18T10:01:01+01:00 host CRON[1]: (root) CMD (/bin/a)\n\n"
        "2026-11-18T09:02:00,5Z host CRON[2]: (root) CMD (/bin/a)\nNov 18 09:03:01 host CRON[3]\n"
        "2026-11-18 12:00:00+0000 later\n"
    )
    source = TheirSource("log", "cron.log")
    starts = LoggedStarts(log.splitlines())
    read = asyncio.run(starts.read(source, BEGIN, BEGIN + 10 * MINUTE))
    assert [each.at - BEGIN for each in read.runs] == [MINUTE + SECOND, 2 * MINUTE + SECOND / 2]
    assert read.notes == ("lines of cron.log that do not begin like 2026-11-25T02:00:01+01:00: 1",)
    found = compare(
        beat(mode="shadow", overlap="skip"), "p", source,
        [*windows_of([row(1), row(2), row(3)], {}, BEGIN, BEGIN + 10 * MINUTE)], read,
        since=BEGIN, until=BEGIN + 10 * MINUTE, tolerance=2 * SECOND,
    )  # fmt: skip
    assert (found.equal, [each.kind for each in found.differences]) == (2, ["only_ours"])
    assert asyncio.run(LoggedStarts([]).read(source, BEGIN, BEGIN)).is_unknown


def test_windows_without_any_other_scheduler_are_compared_with_nothing():
    unknown = TheirRuns([], notes=("nothing to compare",), is_unknown=True)
    ours = [*windows_of([row(1), row(2)], {}, BEGIN, BEGIN + 10 * MINUTE)]
    found = compare(beat(mode="shadow"), "p", NATIVE, ours, unknown, since=BEGIN,
                    until=BEGIN + 10 * MINUTE, tolerance=SECOND)  # fmt: skip
    assert (found.differences, found.is_equal) == ((), False)
