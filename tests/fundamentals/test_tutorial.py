"""docs/tutorial.md: its code is that of the shipped files, and its own example works."""

from __future__ import annotations

import re
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from engine.schedules import load_schedules
from tests.fundamentals.samples import book_trip
from tests.fundamentals.samples.book_trip import BookTrip, Trip

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text()
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SOURCES = [
    path.read_text()
    for folder in ("workflows", "activities", "tests/fundamentals")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__)
]


def blocks(language: str) -> list[str]:
    return [text for _, found, text in BLOCK.findall(TUTORIAL) if found == language]


def test_every_block_of_python_is_an_excerpt_of_a_shipped_file():
    found = blocks("python")
    assert len(found) >= 10
    for block in found:
        inside = any(excerpt(block, source) for source in SOURCES)
        assert inside, f"in no shipped file:\n{block}"


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
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
):
    monkeypatch.chdir(tmp_path)
    steps = [
        book_trip.book_flight, book_trip.cancel_flight,
        book_trip.book_hotel, book_trip.cancel_hotel,
    ]  # fmt: skip
    with ThreadPoolExecutor(4) as threads:
        async with Worker(
            client, task_queue="trips", workflows=[BookTrip], activities=steps,
            activity_executor=threads,
        ):  # fmt: skip
            handle = await client.start_workflow(
                "book-trip@1", Trip(to), id="trip-1", task_queue="trips"
            )
            if to == "Atlantis":
                with pytest.raises(WorkflowFailureError):
                    await handle.result()
            else:
                assert await handle.result() == "booked: Lisbon"
    assert kept(tmp_path) == ([] if to == "Atlantis" else ["trip-1.flight", "trip-1.hotel"])


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".sched/bookings").iterdir())
