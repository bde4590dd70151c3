"""Every code is in one place of the code, and in one table of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from engine import errors
from engine.errors import Code, EngineError

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"\bSCHEDULE_[A-Z]+(?:_[A-Z]+)*\b")


def every_error(of: type[EngineError] = EngineError) -> list[type[EngineError]]:
    return [of, *(each for below in of.__subclasses__() for each in every_error(below))]


def table() -> dict[str, list[str]]:
    """What docs/codes.md says of each code."""
    page = (ROOT / "docs/codes.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line[:3] == "| `"]
    found = {name.strip("`"): cells for name, *cells in rows}
    assert len(found) == len(rows), "a code is told once"
    return found


def test_the_table_of_the_documentation_has_every_code_and_no_other():
    found = table()
    assert set(found) == set(Code)
    assert all(len(cells) == len(("where", "when", "what to do")) for cells in found.values())


def test_the_documentation_names_no_code_that_nothing_has():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {(page.name, code) for page in pages for code in CODE.findall(page.read_text("utf-8"))}
    assert {(page, code) for page, code in named if code not in set(Code)} == set()


def test_each_exception_is_in_the_tree_with_a_code_of_its_own():
    tree, every = (
        errors.__doc__ or "",
        [each for each in every_error() if each.__module__ == errors.__name__],
    )
    assert {each.__name__ for each in every} == set(
        re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", tree)
    )
    codes = [each.code for each in every]
    assert len(set(codes)) == len(codes)
    assert {code for code, cells in table().items() if "exception" in cells[0]} == set(codes)


def test_a_code_is_written_in_one_place_and_each_is_used():
    texts = {path: path.read_text("utf-8") for path in (ROOT / "engine").rglob("*.py")}
    written = {path.name for path, text in texts.items() if CODE.search(text)}
    assert written == {"errors.py"}
    everything = "\n".join(texts.values())
    assert [code for code in Code if f"Code.{code.name}" not in everything] == []
