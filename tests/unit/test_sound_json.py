"""The quick reader of JSON accepts nothing that the careful one refuses, and reads it alike."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, strategies as st

from engine.schedules import load_schedules
from engine.schedules.loader.json_reader import JsonText, read_sound_json
from engine.schedules.loader.nodes import Unreadable
from tests.unit.schedule_files import only

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


@given(
    VALUES.map(json.dumps) | VALUES.map(lambda value: json.dumps(value, ensure_ascii=False)),
    st.integers(0, 60),
    st.sampled_from(["", ",", '"', "}", "]", "0", "-", "e9", "\\u0000", "\\ud800", " ", "\t", "x"]),
)
@example('{"a": 1, "a": 2}', 99, "")
@example("[" * 21 + "]" * 21, 99, "")
@example("[" * 20 + "]" * 20, 99, "")
@example("1" * 301, 999, "")
@example("[1e999, NaN, -Infinity]", 99, "")
@example('["\\ud83d\\ude00"]', 99, "")
def test_whatever_is_read_quickly_is_read_alike_by_the_careful_reader(text, at, inserted):
    text = text[:at] + inserted + text[at:]
    quick = read_sound_json(text)
    if quick is None:
        return
    tree = JsonText(text).read()
    assert not tree.problems
    assert tree.root is not None
    assert json.dumps(quick.plain()) == json.dumps(tree.root.plain())


@pytest.mark.parametrize("depth", [19, 20, 21])
def test_both_readers_end_at_the_same_depth(depth):
    text = "[" * depth + "]" * depth
    try:
        JsonText(text).read()
    except Unreadable:
        assert read_sound_json(text) is None
    else:
        assert read_sound_json(text) is not None


def test_a_mistake_in_json_has_its_place():
    text = '{"schedules": [\n {"key": "a", "workflow": "b", "everyMs": 10}]}'
    found = only(text, "schedules.json")
    assert (found.line, found.column, found.key) == (2, 43, "a")
    assert load_schedules(text.replace("10", "1000"), "schedules.json").schedules[0].key == "a"
