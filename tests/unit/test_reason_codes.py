"""A reason has a code: a word of a closed list."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from engine.schedules import load_schedules
from engine.schedules.planner import unresolved_workflow
from engine.schedules.planner.decisions import Dependencies, Hold
from engine.schedules.planner.planner import _NOT_WANTED, _TOO_OLD, FIRST_SIGHT
from engine.schedules.terms import ReasonCode, Rule
from tests.reasons import BEGINNINGS, code_of_sentence

PAGE = Path(__file__).resolve().parents[2] / "docs/ledger.md"
(NOOP,) = load_schedules("schedules: [{key: k, workflow: noop, everyMs: 1000}]").schedules


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (None, None),
        ("user", "user"),
        ("user: overlap", "user"),
        ("overlap: the queue is full (100)", "queue_full"),
        ("overlap: sched:k:1 is still running", "overlap"),
        ("overlap: sched:k:1 took its place", "overlap"),
        ("excluded", "excluded"),
        ("excluded: retired people's day", "excluded"),
        ("coalesced into 7", "coalesced"),
        ("overload: coalesced into 7", "overload"),
        (Dependencies((Rule("parent"),)).waiting_reason, "dependency"),
        ("dependency: the queue is full (100)", "dependency"),
        *((hold, hold) for hold in get_args(Hold)),
        (_TOO_OLD, "expired"),
        (_NOT_WANTED, "expired"),
        ("beyond catchUp.max 3", "expired"),
        ("had passed when it was declared", "expired"),
        (FIRST_SIGHT, "first_sight"),
        ("caught up for 3 missed windows", "caught_up"),
        (unresolved_workflow(NOOP), "unknown_workflow"),
        ("foreign run", "foreign_run"),
        ("payload too large", "payload_too_large"),
        ("refused by the server", "refused"),
        (
            "may have run: no answer to its start is known, and the retention has passed",
            "may_have_run",
        ),
        ("whatever a later version says", None),
    ],
)
def test_every_sentence_has_its_code(reason: str | None, code: str | None):
    assert code_of_sentence(reason) == code
    assert getattr(reason, "code", code) == code


def test_every_code_is_documented():
    table = PAGE.read_text().partition("### Reason codes")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(get_args(ReasonCode))
    assert {code for _, code in BEGINNINGS} == {*get_args(ReasonCode)}
