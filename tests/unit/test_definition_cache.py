"""Definitions that were parsed are kept by what they take, not by their number."""

from __future__ import annotations

import json

import pytest

from engine.errors import EngineError
from engine.ledger.postgres.rows import LARGE, Parsed, parse_definition


def text(key: str, length: int = 0) -> str:
    return json.dumps({"key": key, "workflow": "w", "everyMs": 60_000, "input": "x" * length})


def test_equal_texts_share_one_schedule():
    assert parse_definition(text("a")) is parse_definition(text("a"))
    assert parse_definition(text("a", LARGE)) is parse_definition(text("a", LARGE))


def test_what_is_kept_is_bounded_by_size_and_the_longest_unused_goes_first():
    kept = Parsed(4 * len(text("a", 1000)))
    first = {key: kept.get(text(key, 1000)) for key in "abcd"}
    assert kept.get(text("a", 1000)) is first["a"]
    kept.get(text("e", 1000))
    assert kept.get(text("a", 1000)) is first["a"], "it was used since"
    assert kept.get(text("b", 1000)) is not first["b"]


def test_one_that_is_larger_than_all_that_is_kept_is_parsed_and_not_kept():
    kept = Parsed(1000)
    assert kept.get(text("a", 5000)) is not kept.get(text("a", 5000))
    assert kept.get(text("b")) is kept.get(text("b"))


def test_large_ones_do_not_push_out_small_ones():
    small = parse_definition(text("small"))
    for number in range(200):
        parse_definition(text(f"large-{number}", 50_000))
    assert parse_definition(text("small")) is small
    first = parse_definition(text("large-0", 50_000))
    assert first.key == "large-0"


def test_what_cannot_be_read_is_not_kept():
    kept = Parsed(1000)
    for _ in range(2):
        with pytest.raises(EngineError):
            kept.get('{"key": "a", "workflow": "w", "everyMs": 60000, "nonsense": 1}')
