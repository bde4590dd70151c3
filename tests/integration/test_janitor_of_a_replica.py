"""The janitor inside a whole replica: it tidies by itself, and firing goes on beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.events import Alert, Event
from engine.schedules import load_schedules
from tests.integration.old_rows import TODAY, Past, hours
from tests.sample_workflows import Noop
from tests.waiting import eventually

FILE = load_schedules("""
schedules:
  - {key: quick, workflow: noop, everyMs: 1000}
  - {key: old, workflow: noop, everyMs: 300000, enabled: false}
""")
SECOND = timedelta(seconds=1)
DAYS, A_DAY = 3, 288
OLD = TODAY - timedelta(days=100)


@pytest.fixture
async def past(client: Client, database_url: str, tmp_path: Path) -> AsyncIterator[Past]:
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    await apply(ledger, FILE, by="test")
    made = Past(ledger, database_url, tmp_path / "archive", client.namespace)
    await made.had("old", hours(OLD, DAYS * A_DAY, every=timedelta(minutes=5)))
    yield made
    await ledger.close()


def replica(client: Client, past: Past, told: list[Event]) -> Worker:
    settings = Settings(
        janitor=SECOND, archive=past.archive, retention_keep=1, track=timedelta(milliseconds=500)
    )
    plugin = SchedulePlugin(FILE, database_url=past.url, settings=settings, on_event=told.append)
    return Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin])


async def fired(past: Past, since: datetime, count: int) -> list[datetime]:
    """Wait for so many completed windows of the quick schedule since then."""

    async def windows() -> list[datetime]:
        fires = await past.ledger.fires(key="quick", status="completed")
        found = sorted(fire.fire_time for fire in fires if fire.fire_time >= since)
        return found if len(found) >= count else []

    return await eventually(windows, timeout=30)


async def test_a_replica_tidies_by_itself_and_every_window_fires_meanwhile(client, past):
    past.archive.mkdir()
    begun = datetime.now(UTC)
    async with replica(client, past, []):

        async def tidied() -> bool:  # the newest row keeps its details
            days = [row["windows"] for row in await past.rows("old")]
            return days == [*[A_DAY] * (DAYS - 1), A_DAY - 1, 1]

        await eventually(tidied, timeout=90)
        windows = await fired(past, begun, 3)
        windows = await fired(past, windows[-1] + SECOND, 2)
    assert len(past.lines()) == DAYS * A_DAY - 1
    fires = [fire for fire in await past.ledger.fires(key="quick") if fire.status == "completed"]
    moments = sorted(fire.fire_time for fire in fires)
    assert {after - before for before, after in pairwise(moments)} == {SECOND}


@pytest.mark.prove
@pytest.mark.parametrize("place", ["missing", "read-only", "below a file"])
async def test_where_the_archive_cannot_be_written_nothing_is_deleted_and_firing_goes_on(
    client, past, place, tmp_path
):
    if place == "read-only":
        past.archive = Path("/sys")  # not even root makes a folder there
    elif place == "below a file":
        past.archive = tmp_path / "file" / "archive"
        past.archive.parent.write_text("in the way")
    before = await past.rows("old")
    told: list[Event] = []
    async with replica(client, past, told):

        def alerts() -> list[Alert]:
            return [event for event in told if isinstance(event, Alert)]

        await eventually(alerts, timeout=30)
        windows = await fired(past, datetime.now(UTC), 3)
        assert [row["id"] for row in await past.rows("old")] == [row["id"] for row in before]
        (alert,) = alerts()
    assert alert.code == "SCHEDULE_ARCHIVE_FAILED"
    assert str(past.archive) in alert.text
    assert "see that the folder exists, may be written and has room" in alert.text
    assert windows
