"""The live table of ``sched up`` reads what it shows from the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

from rich.console import Console

from engine.cli.target import LazyService, Target
from engine.cli.up.file_watch import FileState
from engine.cli.up.live_table import LinePrinter, Screen
from engine.schedules import load_schedules

FILE = """schedules:
- {key: nightly, workflow: w, cron: "0 2 * * *", timezone: America/Sao_Paulo}
- {key: often, workflow: w, everyMs: 3600000}
"""


async def test_it_knows_zones_next_fires_and_counts_and_no_window_that_is_only_skipped_in_advance(
    database_url: str,
):
    lines = LinePrinter(Console(file=StringIO()))
    async with LazyService(database_url, "test") as lazy:
        screen = Screen(Target(database_url, "test"), lazy, "default", after=lines)
        view = screen._view
        screen.show(FileState("s.yaml", None, 0))
        await screen._read(datetime.now(UTC))
        assert (view.upcoming, view.timezones) == (None, {}), "nothing is applied yet"
        async with lazy.service() as service:
            await service.apply(load_schedules(FILE))
            day = timedelta(days=1)
            tonight = load_schedules(FILE).schedules[0].spec.next(datetime.now(UTC) + day)
            assert tonight
            await service.skip("nightly", tonight)
            assert [fire.fire_time for fire in await service.fires()] == [tonight]
        screen.show(FileState("s.yaml", datetime.now(UTC), 2))
        await screen._read(datetime.now(UTC))
        assert view.timezones == {"nightly": "America/Sao_Paulo", "often": "UTC"}
        assert (view.fires, view.wrong, view.counts) == ([], [], {})
        assert {each.key for each in view.upcoming or ()} == {"nightly", "often"}
        await screen._read(tonight + day)
        assert ([fire.status for fire in view.fires], view.counts) == (["skipped"], {"skipped": 1})
