"""Text to tree: both readers, and both of PyYAML's parsers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from engine.errors import ScheduleFileError
from engine.schedules import load_schedules
from engine.schedules.loader import yaml_reader
from engine.schedules.loader.json_reader import JsonText
from engine.schedules.loader.nodes import Unreadable
from engine.schedules.loader.yaml_reader import read_yaml
from engine.schedules.terms import MAX_DEPTH


@pytest.fixture(params=["libyaml", "pure"], autouse=True)
def parser(request, monkeypatch):
    """Every test holds with and without libyaml."""
    loader = yaml.CSafeLoader if request.param == "libyaml" else yaml.SafeLoader
    monkeypatch.setattr(yaml_reader, "LOADER", loader)


def root_of(tree) -> Any:
    return tree.root


def value(text) -> Any:
    tree = read_yaml(text)
    assert tree.problems == []
    return root_of(tree).plain()


def problems(text) -> Any:
    return [(problem.line, problem.column, problem.message) for problem in read_yaml(text).problems]


# --- YAML 1.2 ---


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "y", "n", "On", "NO", "Yes", "tRUE"])
def test_the_booleans_of_yaml_1_1_are_texts(word):
    assert value(f"a: {word}") == {"a": word}


@pytest.mark.parametrize("text", ["2027-01-01", "2027-01-01T09:00:00Z", "2027-01-01 09:00:00"])
def test_a_timestamp_stays_a_text(text):
    assert value(f"a: {text}") == {"a": text}


@pytest.mark.parametrize(
    "text", ["1_000", "0b101", "190:20:30", "1:30", "0o9", "1e", "+", ".", "=", "0x"]
)
def test_other_numbers_of_yaml_1_1_are_texts(text):
    assert value(f"a: {text}") == {"a": text}


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("012", 12), ("0o14", 12), ("0xFf", 255), ("-5", -5), ("+5", 5), ("0", 0),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-3", -0.0015),
        ("true", True), ("True", True), ("FALSE", False),
        ("null", None), ("Null", None), ("~", None), ("", None),
        ("'12'", "12"), ('"true"', "true"), ("'~'", "~"), ("'<<'", "<<"),
        ("0 2 * * *", "0 2 * * *"), ("24h", "24h"), ("- 5", None),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema(text, meaning):
    if text == "- 5":
        assert value(f"a:\n  {text}") == {"a": [5]}
    else:
        read = value(f"a: {text}")["a"]
        assert (read, type(read)) == (meaning, type(meaning))


def test_a_number_with_zeros_before_it_is_warned_of():
    [warning] = read_yaml("a: 0042").warnings
    assert (warning.line, warning.column) == (1, 4)
    assert warning.message == "0042 is read as the number 42"


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1e999", "9" * 5000, "0x" + "f" * 5000])
def test_a_number_that_json_cannot_carry_is_refused(text):
    assert problems(f"a: {text}") == [(1, 4, "this is not a number that JSON can carry")]


def test_blocks_and_folds_are_read():
    assert value("a: |\n  x\n  y\nb: >-\n  x\n  y\n") == {"a": "x\ny\n", "b": "x y"}


# --- places ---


def test_every_value_knows_its_line_and_column():
    root = root_of(read_yaml("# c\nschedules:\n  - key: ä\n    input: {a: [1, 'é', x]}\n"))
    name, schedules = root.entries["schedules"]
    assert (name.line, name.column) == (2, 1)
    entry = schedules.items[0]
    assert (entry.line, entry.column) == (3, 5)
    key = entry.entries["key"][1]
    assert (key.line, key.column) == (3, 10)
    last = entry.entries["input"][1].entries["a"][1].items[2]
    assert (last.line, last.column) == (4, 25)


def test_crlf_counts_as_one_line_end():
    root = root_of(read_yaml("a: 1\r\nb:\r\n  c: 2\r\n"))
    assert root.plain() == {"a": 1, "b": {"c": 2}}
    assert root.entries["b"][1].entries["c"][1].line == 3


# --- refusals ---


def test_a_duplicate_name_is_refused_and_the_first_is_named():
    assert problems("a: 1\nb: 2\na: 3\n") == [(3, 1, "a is given twice; the first is on line 1")]


def test_a_duplicate_name_deep_inside_is_refused():
    assert problems("a: [{b: 1, 'b': 2}]") == [(1, 12, "b is given twice; the first is on line 1")]


@pytest.mark.parametrize(
    "text", ["1: a", "~: a", "true: a", "1.5: a", "? [a]\n: b", "{[a]: b}", "{{}: b}"]
)
def test_a_name_is_a_text(text):
    [(line, _, message)] = problems(text)
    assert (line, message) == (1, "a name here is not a text")


def test_on_is_a_name_like_any_other():
    assert value("on: 1\nno: 2") == {"on": 1, "no": 2}


def test_anchors_aliases_and_merge_keys_are_one_problem_with_all_its_lines():
    [(line, column, message)] = problems("a: &x\n  b: 1\nc: *x\nd:\n  <<: *x\n")
    assert (line, column) == (1, 4)
    assert message.endswith("(&, *, <<) are not supported (also on line 3, 5)")


def test_an_alias_bomb_costs_nothing_and_is_one_problem():
    levels = "".join(f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert len(problems(f"l0: &l0 [x, x]\n{levels}")) == 1


@pytest.mark.parametrize("tag", ["!!str", "!mine", "!", "!!python/object/apply:os.system"])
def test_tags_are_refused(tag):
    assert problems(f"a: {tag} x") == [(1, 4, "tags (!) are not supported")]


def test_a_second_document_is_refused():
    assert problems("a: 1\n---\nb: 2\n") == [(2, 1, "a second document begins here")]


@pytest.mark.parametrize(
    "sign", ["\0", "\x07", "\x1b", "\x7f", "\x85", "\u2028", "\ud800", "\ufffe"]
)
def test_characters_that_are_no_text_are_refused_at_their_place(sign):
    with pytest.raises(Unreadable) as caught:
        read_yaml(f"a: 1\nbé: {sign}")
    assert (caught.value.problem.line, caught.value.problem.column) == (2, 5)


def test_an_escaped_nul_is_refused_because_no_database_keeps_it():
    [(line, column, message)] = problems('a: "x\\0"')
    assert (line, column) == (1, 4)
    assert "NUL" in message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_hundred_thousand_levels_stop_at_the_twenty_first(opening):
    with pytest.raises(Unreadable) as caught:
        read_yaml(opening * 100_000)
    assert caught.value.problem.code == "SCHEDULE_FILE_TOO_LARGE"
    assert caught.value.problem.column == len(opening) * MAX_DEPTH + 1


def test_twenty_levels_are_read():
    assert read_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH).problems == []


# --- syntax errors ---


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: b: c", 1, "': ' is not possible here"),
        ("a:\n\tb: 1", 2, "a tab is not possible here"),
        ("a:\n  - b: 1\n\tc: 2", 3, "a tab is not possible here"),
        ("a: [1, 2", 1, "a ',' or ']' is missing"),
        ("a: {b: 1", 1, "a ',' or '}' is missing"),
        ("a:\n  - b\n  c: 1\n", 3, "indicator|item of the list|indentation"),
        ("a: 1\n   b: 2\n", 2, "the indentation of b does not fit"),
        ("a: x # c\n  y: 1", 2, "the indentation of y does not fit"),
        ("a: 'b\n", 1, "a quoted text is not closed"),
        (r'a: "\q"', 1, "this escape is unknown"),
        ("a: `b`", 1, "a value cannot begin with `"),
    ],
)
def test_a_syntax_error_is_a_sentence_with_a_place(text, line, message):
    [(found, _, says)] = problems(text)
    assert any(part in says for part in message.split("|"))
    assert found in {line, line + 1}  # libyaml puts the end of the file on a line of its own


def test_what_was_complete_before_a_syntax_error_is_kept():
    tree = read_yaml("a:\n  - {b: 1}\n  - {b: 2\n")
    assert len(tree.problems) == 1
    assert root_of(tree).partial
    assert root_of(tree).entries["a"][1].items[0].plain() == {"b": 1}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("cron: */5 * * * *", 'write cron: "*/5 * * * *"'),
        ("cron: * * * * *   # each minute", 'write cron: "* * * * *"'),
        ("cron: @daily", 'write cron: "@daily"'),
        ("{key: a, cron: */10 * * * *, workflow: b}", 'write cron: "*/10 * * * *"'),
        ("- cron: *5 * * * *", 'write cron: "*5 * * * *"'),
    ],
)
def test_an_unquoted_cron_has_a_hint_of_its_own(line, hint):
    found = read_yaml(f"x: 1\n{line}\n" if line.startswith("c") else line).problems
    assert hint in [problem.hint for problem in found]


def test_reading_goes_on_behind_an_unquoted_cron():
    tree = read_yaml("- cron: */5 * * * *\n  key: a\n- cron: * * * * *\n- b: 1\n  b: 2\n")
    assert sorted(problem.line for problem in tree.problems) == [1, 3, 5]
    assert root_of(tree).items[0].entries["key"][1].value == "a"


def test_an_unquoted_cron_does_not_move_what_stands_behind_it():
    found = problems("- {cron: */5 * * * *, b: 1, b: 2}\n")
    assert sorted(place[:2] for place in found) == [(1, 10), (1, 29)]


def test_a_file_full_of_them_is_given_up_after_twenty():
    assert len(read_yaml("- *\n" * 1000).problems) == 21


@given(st.text(st.sampled_from("ab:,-?&*!|>'\"%@`#{}[]\\ \n\t0.~<x"), max_size=60))
def test_no_text_raises_anything_unforeseen(text):
    for reader in (read_yaml, lambda text: JsonText(text).read()):
        with contextlib.suppress(Unreadable):
            reader(text)


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("a: 1\n\ufeffb: 2", 2, "a byte order mark (U+FEFF) begins this line", "two files"),
        ("l:\n  - key: a\n   b: 1", 3, "the indentation of b", "column 5, below key"),
        ("l:\n  - key: a\n    b: w\n      c: 1", 4, "the indentation of c", "column 5, below b"),
        ("l:\n  - key: a\n  b: w", 3, "the indentation of b", "column 5, below key"),
        ("c: @every 5m", 1, "a value cannot begin with @", "write every: 5m"),
        ("c: @team", 1, "a value cannot begin with @", "put the value in quotes"),
        ("cron: @every 5m", 1, "a value cannot begin with @", "write every: 5m"),
        ("l: {every: @hourly}", 1, "a value cannot begin with @", 'write cron: "@hourly"'),
    ],
)
def test_a_slip_has_the_hint_that_fits_it(text, line, message, hint):
    try:
        (found,) = read_yaml(text).problems
    except Unreadable as stop:
        found = stop.problem
    assert found.line == line
    assert message.replace("a value cannot", "value cannot") in found.message
    assert hint in found.hint


def test_wrong_indentation_is_one_problem_and_no_missing_fields():
    with pytest.raises(ScheduleFileError) as told:
        load_schedules("schedules:\n  - key: a\n   workflow: w\n    every: 1h\n")
    (found,) = told.value.problems
    assert found.hint == "begin it in column 5, below key"
