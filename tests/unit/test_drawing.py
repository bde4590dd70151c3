"""The drawing of docs/ledger.md: complete, and each arrow with a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (
    (ROOT / "docs/ledger.md").read_text().partition("## Statuses")[2].partition("## The rules")[0]
)
DRAWN = re.findall(r"^ {4}(\S+) --> (\S+): (.+)$", PAGE, re.MULTILINE)
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if "→" in line and line.startswith("|")
]


def listed(cell: str) -> list[str]:
    return [word.strip().strip("`") for word in cell.split(",") if word.strip()]


def states(cell: str) -> list[str]:
    """The states of one side of an arrow; nothing, or gone, is the dot of the drawing."""
    return ["[*]" if name == "gone" else name for name in listed(cell)] or ["[*]"]


def test_the_drawing_and_its_table_have_the_same_arrows() -> None:
    drawn = {(one, two, query) for one, two, queries in DRAWN for query in listed(queries)}
    told = set()
    for arrow, _, queries, _ in ROWS:
        before, _, after = arrow.partition("→")
        told |= {(one, two, query) for one in states(before) for two in states(after)
                 for query in listed(queries)}  # fmt: skip
    assert drawn == told


@pytest.mark.parametrize("named", sorted({row[3].strip("`") for row in ROWS}))
def test_the_test_that_an_arrow_names_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert re.search(rf"def {name}\(", (ROOT / "tests" / path).read_text())


def test_no_query_moves_a_fire_without_being_told_of() -> None:
    moving = re.compile(r"INSERT INTO fires|DELETE FROM fires|SET status =")
    folder = ROOT / "engine/ledger/postgres/queries"
    moves = {path.stem for path in folder.glob("*.sql") if moving.search(path.read_text())}
    assert {name for name in moves if f"`{name}`" not in PAGE} == set()
