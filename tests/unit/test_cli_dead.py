"""What ``sched dead`` reads and says, without any server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from engine.api.page_views import ShownLetter
from engine.cli import dead
from engine.cli.app import run
from engine.cli.run_page import RunReport, details_lines
from engine.cli.target import Session, Target
from engine.cli.temporal import _undo_steps
from engine.errors import LetterNotFound, ScheduleNotFound
from engine.flow import NOTHING
from engine.ledger.fires import DeadLetter, Fire, Status
from engine.runtime.runs.histories import RecordedStep, RunHistory
from engine.schedules.terms import Sealed
from engine.service import Requested
from engine.views.answers import LISTED_LETTER

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
        (["dead", "rerun"], "name a key and a bucket, or a run's id; or write --all"),
        (["dead", "rerun", "k", "7", "--all"], "goes with one window"),
        (["dead", "rerun", "k", "x"], "'x' is no bucket; write the number in the run's id"),
        (["dead", "rerun", "k", "7", "--input", "NaN"], "'NaN' is no JSON"),
        (["dead", "rerun", "", "--all", "--yes"], "it is empty; is a variable not set?"),
        (["dead", "list", ""], "it is empty; is a variable not set?"),
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
    shown = LISTED_LETTER(LETTER, **dead._more(LETTER, WHERE))
    assert (shown["error"], shown["input"], shown["diedAt"]) == (
        "no luck", {"a": 1}, LETTER.died_at,
    )  # fmt: skip
    assert shown["notUndone"] == [{"step": "reserve", "undo": "release", "error": "away"}]
    assert str(shown["link"]).endswith("/r/history")


def test_an_input_that_cannot_be_read_here_is_one_word():
    letter = replace(LETTER, arguments=(Sealed("cipher", "digest"),))
    assert "input      sealed" in dead._page(letter, WHERE)
    shown = LISTED_LETTER(letter, **dead._more(letter, WHERE))
    assert (shown["hasInput"], shown["input"]) == (True, "sealed")
    assert "cipher" not in str(shown)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"given_up": "fatal"}, True),
        ({"given_up": None}, False),  # it timed out, or its failure could not be read
        ({"given_up": "fatal", "workflow_type": "Theirs"}, False),
        ({"given_up": "fatal", "not_undone": LETTER.not_undone}, False),
    ],
)
def test_the_page_says_that_a_run_has_undone_its_work_only_if_that_is_known(changes, says):
    letter = replace(LETTER, **{"not_undone": (), **changes})
    assert ShownLetter(letter, None, None).is_unwound is says


def test_the_page_of_a_run_names_the_undo_steps_that_ran_and_what_became_of_each():
    def call(number: int, step: str, *, ended: bool = True, completed: bool = True, **note):
        return RecordedStep(
            number, f"{step}/1", step, "", replace(NOTHING, **note), timedelta(seconds=10),
            ended=ended, completed=completed,
        )  # fmt: skip

    history = RunHistory("sched:k:7", "run", origin="first")
    for each in (
        call(5, "reserve", undo={"key": "k7/reserve", "step": "release"}),
        call(9, "charge", completed=False),
        call(11, "refund", undoes="first/charge/1"),
        call(13, "release", undoes="k7/reserve"),
        call(17, "refund", completed=False, undoes="k7/pay"),
        call(21, "close", ended=False, completed=False, undoes="k7/open"),
    ):
        history.calls[each.event_id] = each
    report = RunReport((), undo_steps=tuple(_undo_steps(history)))
    assert details_lines(report) == [
        "undo       refund of charge: completed",
        "undo       release of reserve: completed",
        "undo       refund of k7/pay: failed",
        "undo       close of k7/open: running",
    ]


def rerun_of(run_id: str, status: Status) -> Fire:
    """Return the fire of the first rerun of a run."""
    return Fire(
        key="k", project="default", series=1, bucket=7, fire_time=NOON, windows=1,
        last_fire_time=NOON, workflow_id=f"{run_id}:rerun:1", run_id=None, decided_at=NOON,
        status=status,
        reason="overlap: a run is open" if status == "skipped" else None, timing=None,
        started_at=None, closed_at=None, lag_ms=None, error=None, replica=None,
        definition_version=1,
    )  # fmt: skip


class Failed:
    """A service in which two schedules have dead letters, one of which cannot run again."""

    async def dead_letters(self, **_) -> list[DeadLetter]:
        older = replace(LETTER, fire_time=NOON - timedelta(hours=1), workflow_id="sched:k:6")
        other = replace(LETTER, key="other", workflow_id="sched:other:7")
        manual = replace(LETTER, key="fine", kind="manual", workflow_id="sched:fine:manual:1")
        return [LETTER, other, older, manual]

    async def select(self, keys, *, tag: str, **_) -> tuple[SimpleNamespace, ...]:
        assert (keys, tag) == ((), "billing")
        return tuple(SimpleNamespace(key=key) for key in ("fine", "k", "other"))

    async def rerun_dead(self, run_id: str, **_) -> Requested:
        if "other" in run_id:
            raise LetterNotFound("2 windows were rejected together", hint="backfill")
        return Requested(rerun_of(run_id, "claimed"), new=True)


def asked_of(service: object, monkeypatch) -> None:
    """Let commands ask this service in place of a ledger."""
    monkeypatch.setattr(Session, "ask", lambda _, question: asyncio.run(question(service)))


def test_the_dead_letters_of_several_run_again_the_oldest_first(capsys, monkeypatch):
    asked_of(Failed(), monkeypatch)
    assert run(["dead", "rerun", "--tag", "billing", "--yes", "--json"]) == 1, "one is refused"
    told = capsys.readouterr()
    k, other = json.loads(told.out)
    assert k == {"key": "k", "asked": ["sched:k:6:rerun:1", "sched:k:7:rerun:1"], "refused": {}}
    assert other["asked"] == []
    assert "rejected together" in other["refused"]["sched:other:7"]
    assert told.err.splitlines() == [
        "rerun dead letters of 2 schedules: k, other", "without a window to run again: fine",
    ]  # fmt: skip


class Skipping(Failed):
    """A service whose overlap policy leaves the second run of a key out, after a worker's check.

    ``asks``: it decides after the request, when a worker has checked whether a run is open.
    """

    def __init__(self, *, asks: bool) -> None:
        self.asks = asks

    async def rerun_dead(self, run_id: str, **_) -> Requested:
        if run_id == "sched:k:7":
            return Requested(
                rerun_of(run_id, "queued" if self.asks else "skipped"), True, self.asks
            )
        return await super().rerun_dead(run_id)

    async def fire(self, workflow_id: str) -> Fire:
        return rerun_of(workflow_id.removesuffix(":rerun:1"), "skipped")

    async def schedule(self, key: str) -> SimpleNamespace:
        return SimpleNamespace(key=key, state="active")


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_window_whose_run_overlap_prevented_is_named_and_the_exit_code_is_1(
    capsys, monkeypatch, as_json, asks
):
    async def served(*_: object) -> None:
        return None

    monkeypatch.setattr("engine.cli.operate.key_without_worker", served)
    asked_of(Skipping(asks=asks), monkeypatch)
    arguments = ["dead", "rerun", "k", "--all", *(["--json"] if as_json else [])]
    assert run(arguments) == 1
    out = capsys.readouterr().out
    if as_json:
        assert json.loads(out) == {
            "key": "k", "asked": ["sched:k:6:rerun:1"],
            "refused": {"sched:k:7": "overlap: a run is open"},
        }  # fmt: skip
    else:
        assert out.splitlines() == [
            "k: 1 run asked for", "sched:k:7 has no run: overlap: a run is open",
        ]  # fmt: skip


class Many(Failed):
    """A service with more letters of others than a page has, and one older letter of ``k``."""

    def __init__(self) -> None:
        last = LETTER.fire_time - timedelta(days=1)
        others = [
            replace(LETTER, key="noisy", workflow_id=f"sched:noisy:{n:04}") for n in range(2000)
        ]
        self.letters = [*others, replace(LETTER, fire_time=last, workflow_id="sched:k:5")]
        self.pages = 0

    async def dead_letters(self, *, key=None, after=None, limit=50, **_) -> list[DeadLetter]:
        self.pages += 1
        found = [
            each for each in self.letters
            if key in {None, each.key}
            and (after is None or (-each.fire_time.timestamp(), each.workflow_id)
                 > (-after[0].timestamp(), after[1]))
        ]  # fmt: skip
        return found[:limit]

    async def schedule(self, key: str) -> None:
        raise ScheduleNotFound(key)


@pytest.mark.parametrize(("named", "pages"), [(["k", "--all"], 1), (["--tag", "billing"], 3)])
def test_a_letter_runs_again_however_many_newer_ones_others_have(capsys, monkeypatch, named, pages):
    asked_of(service := Many(), monkeypatch)
    assert run(["dead", "rerun", *named, "--yes", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    documents = {each["key"]: each for each in (shown if isinstance(shown, list) else [shown])}
    assert documents["k"]["asked"] == ["sched:k:5:rerun:1"]
    assert service.pages == pages


def test_all_letters_of_a_key_that_is_none_are_refused(capsys, monkeypatch):
    asked_of(Many(), monkeypatch)
    assert run(["dead", "rerun", "nope", "--all"]) == 2
    assert "SCHEDULE_JOB_NOT_FOUND" in capsys.readouterr().err
