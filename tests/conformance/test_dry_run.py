"""What `sched plan` tells is what an apply does, and telling it changes nothing."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from engine.errors import KeyForeign, PruneRefused, RevisionTooLow
from engine.runtime.apply.apply import dry_run
from engine.schedules import load_schedules
from engine.schedules.diff import Moved
from engine.service import ScheduleService

DAY = timedelta(days=1)
CRON = "{key: report, workflow: noop, cron: '0 2 * * *', timezone: %s}"
HOURLY = "{key: hourly, workflow: noop, everyMs: 3600000%s}"


def text(*entries: str, head: str = "") -> str:
    return f"{head}schedules: [{', '.join(entries)}]"


@pytest.fixture
def service(bench) -> ScheduleService:
    return ScheduleService(bench.ledger, actor="ops")


async def told(bench, declared: str, **options):
    return await dry_run(bench.ledger, load_schedules(declared), by="ops", **options)


async def everything(bench):
    return (
        await bench.ledger.schedules(),
        await bench.ledger.fires(),
        (await bench.ledger.probe(bench.serving)).epoch,
    )


async def test_where_only_a_timezone_changes_every_fire_that_moves_is_named(bench):
    await bench.declare(text(CRON % "America/Sao_Paulo", HOURLY % ""))
    found = await told(bench, text(CRON % "Europe/Berlin", HOURLY % ""))
    (change,) = found.changes
    assert (change.key, change.kind) == ("report", "changed")
    assert change.edits == ("timezone America/Sao_Paulo → Europe/Berlin",)
    for starts, zone in (
        (change.moved.vanish, "America/Sao_Paulo"),
        (change.moved.appear, "Europe/Berlin"),
    ):
        local = [at.astimezone(ZoneInfo(zone)) for at in starts.first]
        assert starts.count == len(local) == 7
        assert {(at.hour, at.minute) for at in local} == {(2, 0)}
        assert len({at.date() for at in local}) == 7
    assert (found.fires, found.unchanged) == (0, ("hourly",))


async def test_windows_of_shadow_mode_and_beyond_a_limit_are_no_starts(bench):
    (change,) = (await told(bench, text(HOURLY % ", limit: 3"))).changes
    assert (change.moved.appear.count, len(change.fires)) == (2, 1), "three in all"
    await bench.declare(text(HOURLY % ""))
    (change,) = (await told(bench, text(HOURLY % ", mode: shadow"))).changes
    assert (change.moved.appear.count, change.moved.vanish.count) == (0, 7 * 24)


async def test_telling_it_changes_nothing(bench):
    await bench.declare(text(HOURLY % "", CRON % "UTC"))
    before = await everything(bench)
    found = await told(
        bench, text(HOURLY % ", input: 1", "{key: new, workflow: noop, everyMs: 1000}")
    )
    assert [(change.key, change.kind) for change in found.changes] == [
        ("hourly", "changed"),
        ("new", "added"),
    ]
    assert found.absent == ("report",)
    assert await everything(bench) == before


async def test_a_first_apply_fires_the_open_windows_of_intervals_and_no_past_cron(bench):
    found = await told(bench, text(HOURLY % "", CRON % "UTC"))
    report, hourly = sorted(found.changes, key=lambda change: change.key, reverse=True)
    (current,) = hourly.fires
    assert current <= found.now < current + timedelta(hours=1)
    assert (report.fires, found.fires, found.last) == ((), 1, None)
    await bench.declare(text(HOURLY % "", CRON % "UTC"))
    assert [claim.fire_time for claim in await bench.claim()] == [current]


@pytest.mark.parametrize("edited", [", input: 7", ", offsetMs: 60000", ", grace: 5m"])
async def test_an_edit_fires_nothing_even_while_a_window_is_due(bench, edited):
    await bench.declare(text(HOURLY % ""))  # its first window is due, and nobody has claimed it yet
    found = await told(bench, text(HOURLY % edited))
    assert (found.fires, found.changes[0].fires) == (0, ())
    await bench.declare(text(HOURLY % edited))
    owed = await bench.ledger.take_over(bench.serving, limit=9, lease=DAY)
    assert [claim.definition_version for claim in owed] == [1]
    assert await bench.claim() == []


async def test_an_everyms_edit_names_what_vanishes_and_counts_the_rest(bench):
    await bench.declare(text("{key: tick, workflow: noop, everyMs: 1000}"))
    found = await told(bench, text("{key: tick, workflow: noop, everyMs: 2000}"))
    (change,) = found.changes
    assert change.edits == ("every 1s → 2s",)
    assert (change.moved.vanish.count, len(change.moved.vanish.first)) == (302_400, 20)
    assert change.moved.appear.count == 0


async def test_enabling_a_schedule_that_makes_up_for_the_time_fires_on_apply(bench):
    off = text("{key: tick, workflow: noop, everyMs: 1000, enabled: false, firstFire: next}")
    on = off.replace("enabled: false", "catchUp: {deploy: latest}")
    await bench.declare(off)

    async def owes():
        found = await told(bench, on)
        return found if found.fires else None

    found = await bench.until(owes)
    assert found.fires == len(found.changes[0].fires) == 1
    assert found.changes[0].moved.appear.count == 604_800


async def test_disabling_lets_its_starts_vanish(bench):
    await bench.declare(text(HOURLY % ""))
    (change,) = (await told(bench, text(HOURLY % ", enabled: false"))).changes
    assert (change.moved.vanish.count, change.moved.appear.count, change.fires) == (168, 0, ())


async def test_a_paused_schedule_moves_no_start_whatever_the_edit(bench, service):
    await bench.declare(text(HOURLY % ""))
    await service.pause("hourly", reason="maintenance")
    found = await told(bench, text(HOURLY % ", offsetMs: 60000"))
    assert (found.changes[0].moved, found.fires) == (Moved(), 0)
    (row,) = found.drift
    assert (row.key, row.pause.reason, row.pause.by) == ("hourly", "maintenance", "ops")


async def test_a_skip_survives_a_new_series_while_a_window_opens_then_and_the_plan_says_so(
    bench, service
):
    await bench.declare(text(HOURLY % ""))
    await bench.claim()
    coming = (await service.schedule("hourly")).next_fire_at
    await service.skip("hourly", coming)
    same = await told(bench, text(HOURLY % ", input: 1"))
    assert same.changes[0].moved == Moved()
    assert same.drift[0].skipped == (coming,)
    other = await told(bench, text(HOURLY % "").replace("3600000", "1800000"))
    assert coming not in other.changes[0].moved.appear.first


async def test_the_file_that_was_applied_last_changes_nothing(bench):
    declared = text(HOURLY % "", head="revision: 7\n")
    await bench.declare(declared)
    found = await told(bench, declared)
    assert (found.changes, found.same, found.unchanged) == ((), True, ("hourly",))
    assert (found.last.revision, found.last.applied_by) == (7, "test")


async def test_what_the_file_lacks_is_retired_by_a_prune_alone(bench):
    await bench.declare(text(HOURLY % "", CRON % "UTC"))
    found = await told(bench, text(HOURLY % ""))
    assert (found.changes, found.absent) == ((), ("report",))
    pruned = await told(bench, text(HOURLY % ""), prune=True)
    (change,) = pruned.changes
    assert (change.kind, change.moved.vanish.count) == ("retired", 7)
    refused = (
        await told(bench, text("{key: x, workflow: noop, everyMs: 1000}"), prune=True)
    ).refused
    assert isinstance(refused, PruneRefused)


async def test_what_an_apply_would_refuse_is_refused_and_says_whose_keys_they_are(bench, service):
    await bench.declare(text(HOURLY % "", head="revision: 2\n"))
    assert isinstance(
        (await told(bench, text(HOURLY % "", head="revision: 1\n"))).refused, RevisionTooLow
    )
    await service.schedule_at("noop", bench.now() + DAY, key="mine")
    found = await told(bench, text("{key: mine, workflow: noop, everyMs: 1000}"))
    assert isinstance(found.refused, KeyForeign)
    assert found.foreign == {"mine": "an application"}
    other = await told(bench, text(HOURLY % "", head="project: other\n"))
    assert other.foreign == {"hourly": "project default"}


async def test_drift_is_what_somebody_changed_since_the_apply(bench, service):
    declared = text(HOURLY % ", paused: true", CRON % "UTC")
    await bench.declare(declared)
    await service.resume("hourly")
    await service.pause("report", reason="audit", until=bench.now() + DAY)
    await service.schedule_at("noop", bench.now() + DAY, key="mine")
    found = await told(bench, declared)
    assert [(row.key, row.origin, bool(row.pause)) for row in found.drift] == [
        ("mine", "api", False), ("report", "file", True),
    ]  # fmt: skip
    assert (found.resumed, found.changes) == (("hourly",), ())


async def test_a_returning_key_waits_for_its_next_fire(bench, service):
    await bench.declare(text(HOURLY % "", CRON % "UTC"))
    alone = load_schedules(text(CRON % "UTC"))
    await service.apply(alone)
    await service.prune(alone, absent_for=timedelta(0))
    found = await told(bench, text(HOURLY % "", CRON % "UTC"))
    (change,) = found.changes
    assert (change.kind, change.moved.appear.count, change.fires) == ("returned", 168, ())
