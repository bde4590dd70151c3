"""Plain ``pytest`` imports every test into one process, where a name is taken once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APART = {"tests/typing/flow.py", "tests/nemesis/application.py"}
"""No test imports these: one is for the type checker, one runs in workers of its own."""


def decorated(path: Path, decorator: str) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if f"@{decorator}" not in text:
        return
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for each in node.decorator_list:
            given = {}
            if isinstance(each, ast.Call):
                given = {
                    keyword.arg: keyword.value.value
                    for keyword in each.keywords
                    if isinstance(keyword.value, ast.Constant)
                }
                each = each.func  # noqa: PLW2901
            if isinstance(each, ast.Name) and each.id == decorator:
                yield "@".join(
                    str(given.get(*each)) for each in (("name", node.name), ("version", "1"))
                )


@pytest.mark.parametrize("decorator", ["step", "workflow"])
def test_no_two_samples_of_the_tests_have_the_same_name(decorator):
    paths = [
        path
        for folder in ("tests", "activities", "workflows")
        for path in (ROOT / folder).rglob("*.py")
        if path.relative_to(ROOT).as_posix() not in APART
    ]
    names = Counter(name for path in paths for name in decorated(path, decorator))
    assert names
    assert [name for name, count in names.items() if count > 1] == []
