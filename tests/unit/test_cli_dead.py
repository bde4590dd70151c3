"""What ``sched dead`` reads and says, without any server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine.cli import dead
from engine.cli.app import run
from engine.cli.target import Target
from engine.ledger.fires import DeadLetter
from engine.schedules.terms import Sealed

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LETTER = DeadLetter(
    key="k", project="default", series=1, bucket=7, fire_time=NOON, windows=1,
    last_fire_time=NOON, kind="window", workflow_id="sched:k:7", run_id="r",
    workflow_type="noop@1", task_queue="sched", status="failed", reason=None, error="no luck",
    attempts=1, started_at=NOON, died_at=NOON + timedelta(seconds=2), definition_version=1,
    arguments=({"a": 1},), not_undone=({"step": "reserve", "undo": "release", "error": "away"},),
)  # fmt: skip
WHERE = Target("", "default", "http://ui")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dead", "drop"], "name a key and a bucket, or a run's id; or write --all"),
        (["dead", "drop", "--all", "k", "7"], "it drops every letter; leave BUCKET out"),
        (["dead", "rerun", "k", "x"], "'x' is no bucket; write the number in the run's id"),
        (["dead", "rerun", "k", "7", "--input", "NaN"], "'NaN' is no JSON"),
        (["dead", "lst"], "Did you mean 'list'?"),
    ],
)
def test_a_slip_is_answered_before_anything_is_asked_of_a_ledger(capsys, arguments, said):
    assert run(arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["list", "show", "rerun", "drop"])
def test_the_help_of_each_ends_with_its_own_examples(capsys, command):
    assert run(["dead", command, "--help"]) == 0
    examples = capsys.readouterr().out.partition("Examples:")[2].strip().splitlines()
    assert all(line.strip().startswith(f"sched dead {command}") for line in examples)


def test_a_letter_says_why_with_what_and_what_is_left():
    assert dead._page(LETTER, WHERE) == [
        "sched:k:7: failed, 2026-11-21T12:00:02Z",
        "why        no luck",
        "window     k 7, fire time 2026-11-21T12:00:00Z",
        "workflow   noop@1",
        "start      sent once",
        "cause      failed: the workflow's own code did, not a step",
        'input      {"a": 1}',
        "not undone reserve, by release: away",
        "run        http://ui/namespaces/default/workflows/sched%3Ak%3A7/r/history",
    ]


def test_its_json_has_the_documented_fields():
    shown = dead.letter_json(LETTER, WHERE)
    assert (shown["error"], shown["input"], shown["died_at"]) == (
        "no luck", {"a": 1}, "2026-11-21T12:00:02Z",
    )  # fmt: skip
    assert shown["not_undone"] == [{"step": "reserve", "undo": "release", "error": "away"}]
    assert str(shown["link"]).endswith("/r/history")


def test_an_input_that_cannot_be_read_here_is_one_word():
    letter = replace(LETTER, arguments=(Sealed("cipher", "digest"),))
    assert "input      sealed" in dead._page(letter, WHERE)
    shown = dead.letter_json(letter, WHERE)
    assert (shown["has_input"], shown["input"]) == (True, "sealed")
    assert "cipher" not in str(shown)
