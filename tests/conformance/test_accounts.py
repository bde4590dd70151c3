"""What the audit reads of a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine.schedules.planner.decisions import Decision, Plan
from engine.schedules.terms import Reason, Window

FILE = "schedules: [{key: beat, workflow: noop, everyMs: 1000, offsetMs: %d, maxQueued: 5}]"
SECOND = timedelta(seconds=1)
LATER = datetime(2090, 1, 1, tzinfo=UTC)


async def note(bench, *decisions: tuple[int, int]) -> None:
    """Write rows of windows to come: the second, and how many windows each covers."""
    async with bench.ledger.transaction() as transaction:
        await transaction.lock(["beat"])
        (state,) = await transaction.read(["beat"])
        made = tuple(
            Decision(
                Window("beat", state.series, number, LATER + number * SECOND), "skipped",
                Reason("user", "user: test"), windows=windows,
                last=LATER + (number + windows - 1) * SECOND,
            )
            for number, windows in decisions
        )  # fmt: skip
        await transaction.note_ahead(Plan(state, made, state.cursor, None))


async def test_rows_come_in_pages_in_the_order_of_their_fire_times(bench):
    await bench.declare(FILE % 0)
    await note(bench, (0, 30), (30, 1), (31, 4), (35, 1), (36, 1), (37, 100))
    first, last, after, pages = LATER + 20 * SECOND, LATER + 37 * SECOND, None, []
    while page := await bench.ledger.between("beat", first, last, after=after, limit=2):
        pages.append([(row.bucket, row.windows) for row in page])
        after = page[-1].fire_time, page[-1].series
    assert pages == [[(0, 30), (30, 1)], [(31, 4), (35, 1)], [(36, 1), (37, 100)]]
    (row,) = await bench.ledger.between("beat", last, last, limit=9)
    assert (row.bucket, row.status, row.reason_code, row.timing) == (37, "skipped", "user", None)
    assert row.last_fire_time == LATER + 136 * SECOND
    assert row.history == ()
    assert await bench.ledger.between("nothing", first, last, limit=9) == []


async def test_every_version_of_a_definition_is_kept_with_when_it_took_effect(bench):
    await bench.declare(FILE % 0)
    await bench.declare(FILE % 500)
    newest, oldest = await bench.ledger.definition_versions("beat", limit=10)
    assert [(each.version, each.series) for each in (oldest, newest)] == [(1, 1), (2, 2)]
    assert oldest.definition["everyMs"] == 1000
    assert newest.definition["offsetMs"] == 500
    assert oldest.effective_from < newest.effective_from <= newest.applied_at
    assert newest.applied_by == "test"
    assert await bench.ledger.definition_versions("beat", limit=1) == [newest]


async def test_the_standing_of_a_schedule_names_its_cursor_and_its_hold(bench):
    await bench.declare(FILE % 0)
    async with bench.ledger.transaction() as transaction:
        await transaction.lock(["beat"])
        (state,) = await transaction.read(["beat"])
        now = await transaction.now()
        await transaction.retire(["beat"], now)
    (standing,) = await bench.ledger.standings(["beat", "nothing"])
    assert (standing.key, standing.series, standing.enabled) == ("beat", 1, True)
    assert standing.cursor == state.cursor
    assert standing.retired_at == now <= standing.now
    assert (standing.rules, standing.pause, standing.forgotten_until) == (state.rules, None, None)
