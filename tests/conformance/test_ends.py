"""A definition, or what holds it, ends while very many windows are still to start."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

import pytest

from engine.runtime import schedule_lock
from engine.runtime.apply.apply import retire_absent
from engine.schedules import load_schedules
from engine.schedules.planner import planner
from tests.conformance.past import HOUR, declare_ago, operator

DUE = timedelta(hours=20)
FIELDS = "everyMs: 3600000, firstFire: next, grace: 1d, overlap: {}"
NAMED = "schedules: [{{key: k, workflow: noop, {}, description: edited}}]"


@pytest.fixture(autouse=True)
def sizes():
    """What each plan decided; five windows are very many, and four a part of them."""
    decided: list[int] = []

    def plan(*given, **named):
        made = planner.plan(*given, **named)
        decided.append(len(made.decisions))
        return made

    with (
        patch.object(schedule_lock, "MOST_OWED", 5),
        patch.object(schedule_lock, "MOST_ROWS", 4),
        patch.object(schedule_lock, "plan", plan),
    ):
        yield decided


async def counted(bench) -> dict[tuple[str, str | None], int]:
    found: dict[tuple[str, str | None], int] = {}
    for fire in await bench.ledger.fires(key="k", limit=100):
        kind = fire.status, fire.reason
        found[kind] = found.get(kind, 0) + fire.windows
    return found


@pytest.mark.parametrize(
    ("overlap", "becomes"),
    [
        ("allow", {("claimed", None): 20}),
        ("queue", {("claimed", None): 1, ("queued", None): 19}),
    ],
)
async def test_an_edit_decides_very_many_windows_in_parts_and_loses_none(
    bench, sizes, overlap, becomes
):
    first = await declare_ago(bench, FIELDS.format(overlap), DUE)
    report = await bench.declare(NAMED.format(FIELDS.format(overlap)))
    assert report.changed == ("k",)
    assert await counted(bench) == becomes
    fires = await bench.ledger.fires(key="k", limit=100)
    opened = first.replace(minute=0, second=0)
    assert {fire.fire_time for fire in fires} == {opened + n * HOUR for n in range(1, 21)}
    assert {fire.definition_version for fire in fires} == {1}
    assert max(sizes) <= 5


async def test_a_pause_speaks_of_very_many_windows_at_once(bench, sizes):
    await declare_ago(bench, FIELDS.format("allow"), DUE)
    await operator(bench).pause("k", reason="too many")
    assert await counted(bench) == {("skipped", "paused"): 20}
    assert max(sizes) == 1


async def test_a_retirement_speaks_of_very_many_windows_at_once(bench, sizes):
    await declare_ago(bench, FIELDS.format("allow"), DUE)
    other = "schedules: [{key: other, workflow: noop, everyMs: 3600000}]"
    await bench.declare(other)
    file = load_schedules(other)
    report = await retire_absent(bench.ledger, file, by="test", absent_for=timedelta(0), force=True)
    assert report.retired == ("k",)
    assert await counted(bench) == {("skipped", "retired"): 20}
    assert max(sizes) == 1


async def test_an_edit_decides_at_once_what_waits_for_a_look(bench):
    await declare_ago(bench, FIELDS.format("skip"), DUE)
    await bench.declare(NAMED.format(FIELDS.format("skip")))
    assert sum((await counted(bench)).values()) == 20
