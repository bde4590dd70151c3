"""``maxConcurrentRuns`` in a file: what it means, where it contradicts, and what is kept of it."""

from __future__ import annotations

import pytest

from engine.errors import ScheduleFileError
from engine.schedules import Schedule, load_schedules

EVERY = "everyMs: 60000"


def read(fields: str, defaults: str = "") -> Schedule:
    text = f"defaults: {{{defaults}}}\nschedules:\n- {{key: k, workflow: w, {EVERY}, {fields}}}"
    return load_schedules(text).schedules[0]


def refused(fields: str, defaults: str = "") -> str:
    with pytest.raises(ScheduleFileError) as found:
        read(fields, defaults)
    assert len(found.value.problems) == 1
    return str(found.value)


@pytest.mark.parametrize(
    ("fields", "defaults", "policy", "most"),
    [
        ("maxConcurrentRuns: 3", "", "queue", 3),
        ("maxConcurrentRuns: 1", "", "queue", 1),
        ("maxConcurrentRuns: 3, overlap: skip", "", "skip", 3),
        ("maxConcurrentRuns: 3, overlap: queue_one", "", "queue_one", 3),
        ("maxConcurrentRuns: 100, overlap: skip", "", "skip", 100),
        ("maxConcurrentRuns: 101", "overlap: skip", "queue", 101),
        ("maxConcurrentRuns: 1, overlap: cancel_previous", "", "cancel_previous", 1),
        ("overlap: skip", "", "skip", 1),
        # A default is no word of the schedule's own: what it says itself wins.
        ("maxConcurrentRuns: 3", "overlap: allow", "queue", 3),
        ("maxConcurrentRuns: 3", "overlap: skip", "skip", 3),
        ("maxConcurrentRuns: 3", "overlap: cancel_previous", "queue", 3),
        ("maxConcurrentRuns: 1", "overlap: cancel_previous", "cancel_previous", 1),
        ("overlap: allow", "maxConcurrentRuns: 3", "allow", 1),
        ("overlap: terminate_previous", "maxConcurrentRuns: 3", "terminate_previous", 1),
        ("overlap: skip", "maxConcurrentRuns: 3", "skip", 3),
        ("grace: 5m", "maxConcurrentRuns: 3", "queue", 3),
        ("grace: 5m", "maxConcurrentRuns: 3, overlap: skip", "skip", 3),
        ("maxConcurrentRuns: 2", "maxConcurrentRuns: 3, overlap: skip", "skip", 2),
    ],
)
def test_a_limit_lets_windows_wait_unless_the_schedule_says_otherwise(
    fields, defaults, policy, most
):
    found = read(fields, defaults)
    assert (found.overlap, found.max_concurrent_runs) == (policy, most)
    again = Schedule.from_json(found.to_json())
    assert (again, again.digest, again.to_json()) == (found, found.digest, found.to_json())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("overlap: allow, maxConcurrentRuns: 3",
         "maxConcurrentRuns is 3, and overlap allow sets no limit; remove one of them"),
        ("overlap: allow, maxConcurrentRuns: 1",
         "maxConcurrentRuns is 1, and overlap allow sets no limit; remove one of them"),
        ("overlap: cancel_previous, maxConcurrentRuns: 3",
         "and with overlap cancel_previous it is not known which of 3 runs is the previous one;"),
        ("overlap: cancel_previous, maxConcurrentRuns: 2", "; write overlap: queue, queue_one or"),
        ("overlap: terminate_previous, maxConcurrentRuns: 2", "which of 2 runs is the previous"),
        ("overlap: skip, maxConcurrentRuns: 101",
         "and overlap skip looks at each of them first; write 100 or less, or overlap: queue"),
        ("overlap: queue_one, maxConcurrentRuns: 101", "write 100 or less, or overlap: queue"),
        ("maxConcurrentRuns: 0", "maxConcurrentRuns is 0; write a whole number from 1 to 10000"),
        ("maxConcurrentRuns: 10001", "write a whole number from 1 to 10000"),
        ("maxConcurrentRuns: true", "write a whole number from 1 to 10000"),
        ("maxConcurrentRuns: 2.5", "write a whole number from 1 to 10000"),
        ("maxConcurrentRuns: many", "write a whole number from 1 to 10000"),
        ("max_active_runs: 3", "did you mean maxConcurrentRuns?"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_where_it_stands(fields, said):
    problem = refused(fields)
    assert said in problem
    column = 3 + f"{{key: k, workflow: w, {EVERY}, {fields}".index("max")
    value = column if "max_active" in fields else column + len("maxConcurrentRuns: ")
    assert problem.startswith(f"schedules.yaml:3:{value}: SCHEDULE_FIELD_"), problem


def test_defaults_that_contradict_themselves_are_refused_once():
    problem = refused("grace: 5m", "overlap: allow, maxConcurrentRuns: 3")
    assert problem.startswith("schedules.yaml:1:")
    assert "remove one of them" in problem


def test_a_definition_without_the_field_has_the_digest_it_always_had():
    plain = Schedule.from_json({"key": "k", "workflow": "w", "everyMs": 60_000, "overlap": "queue"})
    assert "maxConcurrentRuns" not in plain.to_json()
    limited = Schedule.from_json(
        {"key": "k", "workflow": "w", "everyMs": 60_000, "maxConcurrentRuns": 1}
    )
    assert limited.digest == plain.digest, "one at a time is what a queue always was"


def test_in_python_too_a_limit_without_a_policy_is_that_of_a_queue():
    made = Schedule(key="k", workflow="w", every_ms=60_000, max_concurrent_runs=4)
    assert (made.overlap, made.max_concurrent_runs) == ("queue", 4)
    assert made.model_copy(update={"max_concurrent_runs": 2}).max_concurrent_runs == 2
