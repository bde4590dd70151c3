"""What ``make prove-upgrade`` compares: tampering with the ledger or Temporal is found out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.acceptance.prove_upgrade import QUIET, differences

BEGIN = datetime(2026, 11, 22, tzinfo=UTC)
RACERS = ["race-00"]


def row(key: str, second: int, **fields: Any) -> dict[str, Any]:
    at = BEGIN + timedelta(seconds=second)
    name = f"sched:{key}:{int(at.timestamp())}"
    return {"key": key, "fire_time": at, "windows": 1, "workflow_id": name, "run_id": "r",
            "status": "completed", "reason": None, **fields}  # fmt: skip


def books() -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Ten windows that ran, and two of another schedule of which the second was skipped."""
    rows = [row(RACERS[0], second) for second in range(10)]
    rows += [row(QUIET, 0), row(QUIET, 1, run_id=None, status="skipped", windows=9)]
    return rows, {each["workflow_id"]: 1 for each in rows if each["run_id"]}


def test_books_in_order_have_no_differences():
    assert [*differences(*books(), RACERS)] == []


@pytest.mark.parametrize(
    ("tampered", "said"),
    [
        (lambda rows, _: rows.pop(4), "has no row for 2026-11-22 00:00:04"),
        (lambda rows, _: rows.append(row(RACERS[0], 4)), "two rows"),
        (lambda rows, runs: runs.update({rows[4]["workflow_id"]: 2}), "has 2 runs"),
        (lambda rows, runs: runs.pop(rows[4]["workflow_id"]), "no run in Temporal"),
        (lambda rows, _: rows[4].update(status="skipped"), "is skipped"),
        (lambda rows, _: rows[4].update(run_id=None), "the ledger has no run"),
        (lambda _, runs: runs.update({f"sched:{QUIET}:7": 1}), "the ledger has no run"),
        (lambda rows, _: rows[11].update(windows=3), None),
        (lambda rows, _: rows.pop(0) and rows.clear(), "race-00 has no rows"),
    ],
)
def test_what_was_tampered_with_is_found(tampered, said):
    rows, runs = books()
    tampered(rows, runs)
    found = [*differences(rows, runs, RACERS)]
    if said is None:  # the newest row may end anywhere
        assert found == []
    else:
        assert any(said in each for each in found), found
