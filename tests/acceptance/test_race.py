"""Three replicas race on every window, and one of them dies."""

from __future__ import annotations

import signal

from engine.schedules import load_schedules
from tests.acceptance.fleet import Books
from tests.waiting import eventually

SCHEDULES = 4
WINDOWS = 6
FILE = "schedules:\n" + "\n".join(
    f"  - {{key: race-{n:02}, workflow: noop, everyMs: 1000, offsetMs: {n * 240}}}"
    for n in range(SCHEDULES)
)


async def test_each_window_has_one_run_and_one_row_while_replicas_race_and_die(fleet, books):
    file = load_schedules(FILE)
    keys = [schedule.key for schedule in file.schedules]
    first, *others = [await fleet.start(FILE, SCHED_LEASE="3s") for _ in range(3)]
    await books.until_fired(keys, 3, timeout=60)
    await _shared(books, 3)
    first.send(signal.SIGKILL)
    await first.gone()
    replacement = await fleet.start(FILE, SCHED_LEASE="3s")
    await books.until_fired(keys, WINDOWS, timeout=90)
    await _shared(books, 4)
    until = await books.until_owed_settled(keys)
    for replica in (*others, replacement):
        replica.send(signal.SIGTERM)
        assert await replica.gone() == 0
    await books.agree(file, until=until)
    rows = await books.fires()
    # Replicas share the windows before they send: only what was taken over may have been sent.
    taken_over = {row["workflow_id"] for row in rows if row["attempts"] > 1}
    assert fleet.already_started() <= taken_over


async def _shared(books: Books, replicas: int) -> None:
    """Wait until so many replicas have claimed a window."""

    async def done() -> bool:
        return len({row["replica"] for row in await books.fires()}) == replicas

    await eventually(done, timeout=60, every=0.2)
