"""The mutants of ``make prove-mutants`` fit the code, and break each promise of docs/proofs.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_fits_the_code_and_its_tests_are_there(mutant: Mutant):
    text = (ROOT / mutant.file).read_text("utf-8")
    broken = mutant.broken(text)
    assert broken != text
    if mutant.file.endswith(".py"):
        ast.parse(broken)
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text("utf-8"), test


def test_each_promise_has_mutants_and_no_name_is_given_twice():
    page = (ROOT / "docs/proofs.md").read_text("utf-8").partition("## Promises")[2]
    promises = set(re.findall(r"^\| ([\w ]+) \|", page, re.MULTILINE)) - {"ring"}
    assert {each.ring for each in MUTANTS} == promises
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
