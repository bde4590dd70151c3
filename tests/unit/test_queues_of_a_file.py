"""``queues:`` of a schedule file: what it says, and what is wrong with it, at its place."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.errors import ScheduleFileError
from engine.schedules import load_schedules
from engine.schedules.loader.loader import NamedText, load_several
from engine.schedules.model import Queue
from engine.schedules.terms import Rate

SCHEDULES = "schedules: [{key: a, workflow: b, everyMs: 1000}]\n"


def queues(text: str):
    return dict(load_schedules(f"queues: {text}\n{SCHEDULES}").queues)


def test_a_queue_has_a_concurrency_a_rate_or_both():
    minute = Rate(100, timedelta(minutes=1))
    assert queues(
        "{a: {concurrency: 5}, b: {rate: 100/1m}, c: {concurrency: 1, rate: 100/1m},"
        " d: {concurrency: 5, perKey: 1}}"
    ) == {
        "a": Queue(5),
        "b": Queue(rate=minute),
        "c": Queue(1, rate=minute),
        "d": Queue(5, 1),
    }
    assert queues("{}") == queues("") == {}


@pytest.mark.parametrize(
    ("text", "place", "code", "message"),
    [
        ("5", (1, 9), "SCHEDULE_FIELD_INVALID", "queues is 5; write {emails: "),
        ("{a: 5}", (1, 13), "SCHEDULE_FIELD_INVALID", "queue a is 5; write {concurrency: 5"),
        ("{a: {}}", (1, 13), "SCHEDULE_FIELD_INVALID", "queue a has no limit; write"),
        ("{Bad Name: {concurrency: 1}}", (1, 10), "SCHEDULE_KEY_INVALID", "for example bad-name"),
        (
            "{a: {concurrency: 0}}", (1, 27), "SCHEDULE_FIELD_INVALID",
            "concurrency of queue a is 0; write a whole number from 1",
        ),
        ("{a: {concurrency: true}}", (1, 27), "SCHEDULE_FIELD_INVALID", "is true; write a whole"),
        (
            "{a: {rate: fast}}", (1, 20), "SCHEDULE_FIELD_INVALID",
            "rate of queue a is 'fast'; write a number and a duration, for example 5/1m",
        ),
        (
            "{a: {concurency: 5}}", (1, 14), "SCHEDULE_FIELD_UNKNOWN",
            "concurency is not a field of queue a; did you mean concurrency?",
        ),
        (
            "{a: {perKey: 1}}", (1, 22), "SCHEDULE_FIELD_INVALID",
            "queue a has perKey, which shares out the places of a concurrency; write {concurrency",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_queue_is_named_at_its_place(text, place, code, message):
    with pytest.raises(ScheduleFileError) as refused:
        queues(text)
    (problem,) = refused.value.problems
    assert (problem.line, problem.column) == place
    assert problem.code == code
    assert message in f"{problem.message}; {problem.hint}"


def test_a_queue_that_two_files_declare_is_named_in_the_second():
    texts = [
        NamedText("a.yaml", f"queues: {{emails: {{concurrency: 1}}}}\n{SCHEDULES}"),
        NamedText(
            "b.yaml",
            "queues:\n  emails: {concurrency: 2}\n" + SCHEDULES.replace("key: a", "key: c"),
        ),
    ]
    with pytest.raises(ScheduleFileError) as refused:
        load_several(texts, "folder", open_ics=lambda _: str)
    (problem,) = refused.value.problems
    assert problem.file == "b.yaml"
    assert problem.line == 2
    assert "queue emails is declared in a.yaml, too" in problem.message
