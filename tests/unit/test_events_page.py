"""docs/events.md and the code have the same events and the same fields."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from engine.events import ScheduleEvent
from engine.flow import IDENTITIES
from engine.ledger import EventRow
from engine.schedules import EVENT_TYPES, load_schedules

PAGE = (Path(__file__).parents[2] / "docs/events.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[str]:
    """The first cells of the table below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_the_table_has_every_type_in_order():
    """Seed 000, and the last line of the audit: events in one table."""
    assert rows("Types") == list(EVENT_TYPES)


def test_the_page_has_every_field_of_a_message():
    (schedule,) = load_schedules("schedules: [{key: a, workflow: w, everyMs: 1000}]").schedules
    row = EventRow(
        event_id="e", project="default", key="a", type="created", at=datetime.now(UTC),
        definition_version=1, schedule=schedule,
    )  # fmt: skip
    message = ScheduleEvent.of(row, "schedule.created", "test")
    named = rows("Fields")
    identities = set(IDENTITIES)
    assert set(message.data) - set(named) - {"payloadOmitted"} == set()
    assert set(named) - set(message.data) - identities == set()
    assert set(message.data["metadata"]) == identities
    assert all(f"`{name}`" in PAGE for name in (*identities, "payloadOmitted"))
