"""Text that means harm: one clear problem each, and nothing else ever raised."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, strategies as st

from engine.errors import Problem, ScheduleFileError
from engine.schedules import load_schedules
from engine.schedules.loader.nodes import MAX_BYTES
from tests.unit.schedule_files import GOOD, TEN_MISTAKES, entry, only, problems

_LEVELS = "".join(f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 20))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 100_000, "SCHEDULE_FILE_TOO_LARGE"),
        ("schedules: " + "{a: " * 100_000, "SCHEDULE_FILE_TOO_LARGE"),
        ("- " * 100_000, "SCHEDULE_FILE_TOO_LARGE"),
        ("x" * (MAX_BYTES + 1), "SCHEDULE_FILE_TOO_LARGE"),
        ("é" * (MAX_BYTES // 2 + 1), "SCHEDULE_FILE_TOO_LARGE"),
        (f"l0: &l0 [x, x]\n{_LEVELS}", "SCHEDULE_YAML_INVALID"),
        (bytes(range(256)), "SCHEDULE_YAML_INVALID"),
        (bytes(range(256)).decode("latin-1"), "SCHEDULE_YAML_INVALID"),
        (GOOD.encode("utf-16"), "SCHEDULE_YAML_INVALID"),
        (GOOD[:-12] + "\0" + GOOD[-12:], "SCHEDULE_YAML_INVALID"),
        (GOOD[: GOOD.index("daily")], "SCHEDULE_YAML_INVALID"),
        (GOOD.encode()[:-2] + b"\xc3", "SCHEDULE_YAML_INVALID"),
        ("schedules: [\ud800]", "SCHEDULE_YAML_INVALID"),
        (GOOD + "version: 1\n", "SCHEDULE_YAML_INVALID"),
        (GOOD + "---\na: 1\n", "SCHEDULE_YAML_INVALID"),
        (entry("everyMs: " + "9" * 1_000_000), "SCHEDULE_YAML_INVALID"),
        (entry("everyMs: " + "x" * 9_000_000), "SCHEDULE_FIELD_INVALID"),
        (
            entry("everyMs: 1000, description: !!python/object/apply:os.getcwd []"),
            "SCHEDULE_YAML_INVALID",
        ),
    ],
    ids=lambda part: part[:24] if isinstance(part, str) and part.isascii() else "bytes",
)
def test_hostile_input_is_one_clear_problem_and_quick(text, code):
    began = time.process_time()
    found = only(text)
    assert found.code == code
    assert len(found.message) < 200
    assert time.process_time() - began < 10


def test_a_name_that_cannot_be_printed_is_not_shown_as_it_is():
    text = """
    calendars: {holi\ufeffdays: [SAT]}
    schedules:
    - {key: extr\ufeffact, workflow: w, everyMs: 1000, exclude: [holidays]}
    - {key: b, workflow: w, needs: [extract]}
    - {key: c, workflow: w, everyMs: 1000, every﻿Ms: 1, every﻿Ms: 2}
    """
    shown = [problem.located("a.yaml") for problem in problems(text)]
    assert sum("did you mean" in line for line in shown) == 3
    assert any("given twice" in line for line in shown)
    assert all(line.isprintable() for line in shown), shown


def test_a_million_problems_are_cut_to_a_list_that_can_be_read():
    found = problems_unsorted("- x\n" * 5000)
    assert len(found) == 1001
    assert found[-1].message == "4,000 more problems are not listed"


def problems_unsorted(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(text)
    return caught.value.problems


@given(st.text(max_size=200) | st.binary(max_size=200), st.sampled_from(["a.yaml", "a.json"]))
def test_no_text_raises_anything_but_a_schedule_file_error(text, name):
    try:
        load_schedules(text, name)
    except ScheduleFileError as error:
        assert error.problems  # noqa: PT017 - a good text raises nothing


NAMES = st.sampled_from(
    ["key", "workflow", "everyMs", "every_ms", "offsetMs", "cron", "timezone", "at", "input",
     "grace",
     "catchUp", "metadata", "overlap", "enabled", "external", "description", "version", "defaults",
     "schedules", "project", "revision", "queues", "policy", "window", "<<", ""]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["a", "a@x", "* * * * *", "UTC", "Mars", "5m", "2027-01-01T09:00"]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(NAMES, children, max_size=6),
    max_leaves=25,
)  # fmt: skip


@given(
    st.dictionaries(NAMES, VALUES, max_size=6), st.lists(st.dictionaries(NAMES, VALUES, max_size=6))
)
def test_no_value_in_any_field_raises_anything_but_a_schedule_file_error(top, schedules):
    try:
        load_schedules(json.dumps({**top, "schedules": schedules}))
    except ScheduleFileError as error:
        assert error.problems  # noqa: PT017 - a good file raises nothing


@given(
    st.integers(0, len(TEN_MISTAKES)),
    st.integers(0, 30),
    st.text("*&!:-{}[]'\"|>%@#\t\n a0", max_size=4),
)
def test_no_edit_of_a_file_raises_anything_but_a_schedule_file_error(at, length, inserted):
    for whole in (TEN_MISTAKES, GOOD):
        try:
            load_schedules(whole[:at] + inserted + whole[at + length :])
        except ScheduleFileError as error:
            assert error.problems  # noqa: PT017 - some edits are harmless


@pytest.mark.prove
def test_twenty_thousand_schedules_load_in_seconds():
    """About three seconds of processor time here; the limit leaves room for a slow machine."""
    rows = "".join(
        f"  - {{key: k{n}, workflow: cache-sync, cron: '{n % 60} 2 * * *', input: {{n: {n}}}}}\n"
        for n in range(20_000)
    )
    began = time.process_time()
    assert len(load_schedules(f"schedules:\n{rows}").schedules) == 20_000
    assert time.process_time() - began < 15
