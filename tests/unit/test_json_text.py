"""JSON to tree: what the standard library reads, with places."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.schedules import load_schedules
from engine.schedules.loader.json_reader import JsonText
from engine.schedules.loader.nodes import Unreadable
from tests.unit.schedule_files import only


def root_of(tree) -> Any:
    return tree.root


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        lambda children: st.lists(children) | st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), children),
        max_leaves=10,
    ),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)  # fmt: skip
def test_json_is_read_as_the_standard_library_reads_it(written, indent, ascii_only):
    text = json.dumps(written, indent=indent, ensure_ascii=ascii_only)
    assert root_of(JsonText(text).read()).plain() == written


def test_json_values_know_their_place():
    root = root_of(JsonText('{\n\t"a": 1,\r\n\t"b": [true, "x"]\n}').read())
    found = root.entries["b"][1].items[1]
    assert (found.line, found.column) == (3, 14)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1,}', (1, 9)), ("[1,]", (1, 4)), ("{a: 1}", (1, 2)), ('{"a" 1}', (1, 6)),
        ("[1 2]", (1, 4)), ('["a', (1, 2)), ("[NaN]", (1, 2)), ("[01]", (1, 3)), ("[1] x", (1, 5)),
        ('{"a": "\\q"}', (1, 8)), ("[", (1, 2)), ("[\n'a']", (2, 1)), ("[1.]", (1, 3)),
        ('["\t"]', (1, 2)),
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused_at_its_place(text, place):
    with pytest.raises(Unreadable) as caught:
        JsonText(text).read()
    assert (caught.value.problem.line, caught.value.problem.column) == place


@pytest.mark.parametrize("text", ["[1e999]", "[" + "9" * 5000 + "]", '["\\u0000"]', '["\\ud800"]'])
def test_json_that_nobody_can_store_is_refused(text):
    [problem] = JsonText(text).read().problems
    assert (problem.line, problem.column) == (1, 2)


def test_json_is_refused_its_twenty_first_level_and_its_duplicate_names():
    with pytest.raises(Unreadable):
        JsonText("[" * 100_000).read()
    assert "given twice" in JsonText('{"a": 1, "a": 2}').read().problems[0].message


def test_a_mistake_in_json_has_its_place():
    text = '{"schedules": [\n {"key": "a", "workflow": "b", "everyMs": 10}]}'
    found = only(text, "schedules.json")
    assert (found.line, found.column, found.key) == (2, 43, "a")
    assert load_schedules(text.replace("10", "1000"), "schedules.json").schedules[0].key == "a"
