"""What one statement carries is bounded, however large the inputs of the schedules are."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from engine.ledger.postgres.schedule_statements import bounded
from engine.ledger.records import NewDefinition
from engine.schedules import Schedule

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def definition(key: str, length: int) -> NewDefinition:
    given = {"key": key, "workflow": "w", "everyMs": 60_000, "input": "x" * length}
    return NewDefinition(
        schedule=Schedule.from_json(given), project="p", version=1, series=1, suffixed=False,
        max_bucket=None, effective_from=NOW, cursor=NOW, next_fire_at=None, workflow_type=None,
        paused=False,
    )  # fmt: skip


def test_large_definitions_go_in_several_statements_in_their_order_and_none_is_left_out():
    lengths = [10, 10, 900, 10, 5000, 10, 10]
    given = [definition(f"k{n}", length) for n, length in enumerate(lengths)]
    parts = [*bounded(given, most=1000)]
    assert [new.schedule.key for part in parts for new, _ in part] == [f"k{n}" for n in range(7)]
    assert all(len(part) == 1 or sum(len(text) for _, text in part) <= 1000 for part in parts)
    assert [len(part) for part in parts] == [2, 1, 1, 1, 2]
    assert json.loads(parts[3][0][1])["input"] == "x" * 5000
    assert [*bounded([])] == []
