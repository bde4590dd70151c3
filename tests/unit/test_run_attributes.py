"""Search attributes and memo of a schedule: what a file may say, and what a namespace takes."""

from __future__ import annotations

import pytest

from engine.errors import Code, ScheduleFileError
from engine.runtime.apply.code_check import unfit_attributes
from engine.runtime.apply.source import Source, locate
from engine.schedules import Schedule, load_schedules
from engine.schedules.run_attributes import attribute_fault

KINDS = {
    "SchedKey": "Keyword", "Region": "Keyword", "Note": "Text", "Tries": "Int", "Cents": "Double",
    "Trial": "Bool", "Due": "Datetime", "Teams": "KeywordList",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Region", "eu-west"), ("Note", "two words"), ("Tries", 3), ("Cents", 3), ("Cents", 0.5),
        ("Trial", False), ("Due", "2027-01-01T09:00:00Z"), ("Due", "2027-01-01T09:00:00-03:00"),
        ("Teams", ["a", "b"]), ("Teams", []),
    ],
)  # fmt: skip
def test_a_value_of_the_kind_that_is_registered_fits(name, value):
    assert attribute_fault(name, value, KINDS) is None


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("Regoin", "eu", "no search attribute Regoin", "--name Regoin --type Keyword"),
        ("Count", 3, "no search attribute Count", "--name Count --type Int"),
        ("region", "eu", "no search attribute region", "did you mean Region?"),
        ("Region", 3, "of kind Keyword, and not 3", "correct it"),
        ("Tries", 0.5, "of kind Int, and not 0.5", "correct it"),
        ("Tries", True, "of kind Int, and not true", "correct it"),
        ("Trial", 1, "of kind Bool, and not 1", "correct it"),
        ("Teams", "a", "of kind KeywordList, and not 'a'", "correct it"),
        ("Due", "2027-01-01T09:00:00", "is a moment, and not", "with its offset"),
        ("Due", "soon", "is a moment, and not", "with its offset"),
    ],
)
def test_a_value_that_the_namespace_would_refuse_is_explained(name, value, message, hint):
    found = attribute_fault(name, value, KINDS)
    assert found is not None
    assert message in found[0]
    assert hint in found[1]


def test_a_schedule_keeps_them_and_one_without_them_is_what_it_was():
    plain = Schedule(key="a", workflow="b", every="1h")
    assert plain.to_json() == {"key": "a", "workflow": "b", "everyMs": 3_600_000}
    given = {"search_attributes": {"Teams": ("a", "b")}, "memo": {"Runbook": {"page": 5}}}
    made = Schedule(key="a", workflow="b", every="1h", external=True, **given)
    assert made.to_json()["searchAttributes"] == {"Teams": ["a", "b"]}
    assert Schedule.from_json(made.to_json()) == made


def test_a_file_shares_them_name_by_name():
    text = """
    defaults: {searchAttributes: {Region: eu, Tier: gold}, memo: {runbook: wiki}, timeout: 1h}
    schedules:
    - {key: a, workflow: b, every: 1h, searchAttributes: {Region: us}, timeout: {task: 20s}}
    """
    (made,) = load_schedules(text).schedules
    assert made.search_attributes == {"Region": "us", "Tier": "gold"}
    assert made.memo == {"runbook": "wiki"}
    assert made.to_json()["timeout"] == {"run": "1h", "task": "20s"}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("searchAttributes: eu", "write a mapping"),
        ("searchAttributes: {Region: {a: 1}}", "a text, a number"),
        ("searchAttributes: {Region: [1]}", "write texts"),
        ("searchAttributes: {Region: null}", "a text, a number"),
        ("searchAttributes: {SchedKey: b}", "remove it"),
        ("searchAttributes: {TemporalX: b}", "choose another name"),
        ("searchAttributes: {RunId: b}", "choose another name"),
        ("searchAttributes: {a b: c}", "beginning with a letter"),
        ("searchAttributes: {A: 9223372036854775808}", "64 bits"),
        ("memo: text", "write a mapping"),
        ("memo: {sched: 1}", "choose another name"),
        ("memo: {sched.undo.1: 1}", "choose another name"),
    ],
)
def test_a_mistake_is_one_problem_at_its_line_with_a_hint(line, hint):
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(f"schedules:\n- {{key: a, workflow: b, every: 1h, {line}}}")
    (found,) = caught.value.problems
    assert (found.code, found.key, found.line) == (Code.FIELD_INVALID, "a", 2)
    assert hint in found.hint


@pytest.mark.parametrize(
    "given",
    [
        {"memo": {"a": "x" * 20_000}}, {"memo": {"a": {1, 2}}}, {"memo": {"a": float("nan")}},
        {"memo": {f"a{n}": 1 for n in range(51)}}, {"search_attributes": {"A": "x" * 256}},
        {"search_attributes": {f"a{n}": 1 for n in range(51)}},
        {"search_attributes": {"A": ["x"] * 51}}, {"search_attributes": {"A": float("inf")}},
    ],
)  # fmt: skip
def test_what_temporal_would_not_take_is_refused(given):
    with pytest.raises(ValueError, match=r"memo|searchAttributes|search attribute"):
        Schedule(key="a", workflow="b", every="1h", **given)


def test_what_a_namespace_does_not_take_is_told_at_its_line(tmp_path):
    path = tmp_path / "schedules.yaml"
    path.write_text(
        "schedules:\n- key: a\n  workflow: b\n  every: 1h\n"
        "  searchAttributes:\n    Region: eu\n    Lost: x\n    Tries: 0.5\n"
    )
    source = Source(path)
    found = locate(unfit_attributes(source.read().schedules, KINDS), source)
    assert [(each.code, each.line, each.column, each.key) for each in found] == [
        (Code.SEARCH_ATTRIBUTE_INVALID, 7, 11, "a"),
        (Code.SEARCH_ATTRIBUTE_INVALID, 8, 12, "a"),
    ]
