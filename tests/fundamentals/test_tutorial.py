"""docs/tutorial.md and docs/testing.md: their code is that of files which run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from engine.schedules import load_schedules
from engine.testing import DevServer, run_workflow
from tests.fundamentals.samples.book_trip import BookTrip, Trip

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text()
TESTING = (ROOT / "docs/testing.md").read_text()
WORKFLOWS = (ROOT / "docs/workflows.md").read_text()
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SOURCES = [
    path.read_text()
    for folder in ("workflows", "activities", "tests/fundamentals")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__)
]


def blocks(language: str, page: str = TUTORIAL) -> list[str]:
    return [text for _, found, text in BLOCK.findall(page) if found == language]


@pytest.mark.parametrize(("page", "most"), [(TUTORIAL, 10), (TESTING, 7)])
def test_every_block_of_python_is_an_excerpt_of_a_shipped_file(page: str, most: int):
    found = blocks("python", page)
    assert len(found) >= most
    for block in found:
        inside = any(excerpt(block, source) for source in SOURCES)
        assert inside, f"in no shipped file:\n{block}"


def test_the_translated_class_of_the_page_of_workflows_is_a_sample_that_runs():
    [block] = [each for each in blocks("python", WORKFLOWS) if "class Reports" in each]
    assert any(excerpt(block, source) for source in SOURCES)


def excerpt(block: str, source: str) -> bool:
    """Whether whole lines of the source read like the block, however far they are indented."""
    lines, wanted = source.splitlines(), textwrap.dedent(block).splitlines()
    return any(
        textwrap.dedent("\n".join(lines[n : n + len(wanted)])).splitlines() == wanted
        for n in range(len(lines) - len(wanted) + 1)
    )


def test_its_saga_is_there_as_a_whole():
    assert (ROOT / "tests/fundamentals/samples/book_trip.py").read_text() in blocks("python")


def test_every_block_of_yaml_is_shipped_or_adds_to_what_is_shipped():
    shipped = (ROOT / "schedules.yaml").read_text()
    *excerpts, added = blocks("yaml")
    for block in excerpts:
        assert excerpt(block, shipped), f"not in schedules.yaml:\n{block}"
    schedules = load_schedules(shipped + added).schedules
    assert [(each.key, each.workflow) for each in schedules[-2:]] == [
        ("trip-to-lisbon", "book-trip"), ("trip-to-atlantis", "book-trip"),
    ]  # fmt: skip


@pytest.mark.parametrize("to", ["Lisbon", "Atlantis"])
async def test_its_saga_books_a_flight_and_a_hotel_or_neither(
    server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
):
    monkeypatch.chdir(tmp_path)
    trip = await run_workflow(
        BookTrip, Trip(to), workflow_id="trip-1", server=server, workflows=[BookTrip]
    )
    if to == "Atlantis":
        assert str(trip.error) == "there is no hotel in Atlantis"
    else:
        assert trip.result == "booked: Lisbon"
    assert kept(tmp_path) == ([] if to == "Atlantis" else ["trip-1.flight", "trip-1.hotel"])


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".sched/bookings").iterdir())
