"""Projects that are no more, selectors, and windows by every name that they have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.errors import (
    OwnedByFile,
    PruneRefused,
    ScheduleError,
    ScheduleNotFound,
    ScheduleRetired,
    WindowNotFound,
)
from engine.ledger.fires import Evidence
from engine.service import ScheduleService
from tests.conformance.past import declare_ago, run_of

FILE = """
project: {project}
schedules:
  - {{key: {project}.hourly, workflow: noop, everyMs: 3600000, tags: [money]}}
  - {{key: {project}.daily, workflow: noop, cron: "0 2 * * *"}}
"""
OLD, NEW = (FILE.format(project=name) for name in ("old", "new"))


@pytest.fixture
def service(ledger):
    return ScheduleService(ledger, actor="test")


async def keys_in(service: ScheduleService) -> list[str]:
    return [row.key for row in await service.schedules()]


async def test_a_project_that_is_no_more_is_retired_and_its_keys_return_in_new_series(
    service, bench
):
    for text in (OLD, NEW):
        await bench.declare(text)
    first = {claim.workflow_id for claim in await bench.claim()}
    assert await service.retire_project("old", reason="moved") == ("old.daily", "old.hourly")
    states = {row.key: row.state for row in await service.schedules()}
    assert states == {
        "new.daily": "active", "new.hourly": "active", "old.daily": "retired",
        "old.hourly": "retired",
    }  # fmt: skip
    assert [act.reason for act in await service.actions(key="old.daily", limit=1)] == ["moved"]
    assert await service.retire_project("old") == ()

    report = await bench.declare(OLD)
    assert sorted(report.returned) == ["old.daily", "old.hourly"], "the same file, applied again"
    assert (await service.schedule("old.daily")).series == 2
    again = {claim.workflow_id for claim in await bench.claim()}
    assert not first & again


async def test_a_forgotten_project_leaves_the_lists_and_nothing_else(service, bench):
    for text in (OLD, NEW):
        await bench.declare(text)
    await service.retire_project("old", forget=True)
    assert await keys_in(service) == ["new.daily", "new.hourly"]
    page = await service.list("old")
    assert page.schedules == ()
    row = await service.schedule("old.daily")
    assert (row.state, row.series) == ("retired", 1), "the row and its series are kept"
    with pytest.raises(ScheduleNotFound, match="no schedule of project old"):
        await service.retire_project("old")
    part = OLD.replace("  - {key: old.daily", "#")
    await bench.declare(part)
    assert await keys_in(service) == ["new.daily", "new.hourly", "old.daily", "old.hourly"]


async def test_a_project_that_a_worker_serves_is_not_retired_unless_forced(service, bench):
    text = OLD.replace("project: old", "project: default")
    await bench.declare(text)
    await bench.announce()
    with pytest.raises(PruneRefused, match="a worker serves project default"):
        await service.retire_project("default")
    assert len(await service.retire_project("default", force=True)) == 2
    with pytest.raises(ScheduleNotFound, match="did you mean default"):
        await service.retire_project("defalt")


async def test_a_key_that_its_file_lacks_is_retired_by_hand_and_a_declared_one_is_not(
    service, bench
):
    await bench.declare(OLD)
    with pytest.raises(OwnedByFile, match="bring it back") as told:
        await service.retire("old.daily")
    assert "sched retire --project old" in str(told.value.hint)
    await bench.declare(OLD.partition("  - {key: old.daily")[0])
    assert (await service.retire("old.daily")).changed
    assert not (await service.retire("old.daily")).changed


async def test_a_selector_names_schedules_by_key_pattern_tag_and_project(service, bench):
    for text in (OLD, NEW):
        await bench.declare(text)

    async def of(*keys: str, **more) -> list[str]:
        return [row.key for row in await service.select(keys, **more)]

    assert await of("new.*") == ["new.daily", "new.hourly"]
    assert await of("*.daily", "new.hourly") == ["new.daily", "new.hourly", "old.daily"]
    assert await of(tag="money") == ["new.hourly", "old.hourly"]
    assert await of("*", project="old", tag="money") == ["old.hourly"]
    assert len(await of(every=True)) == 4
    await service.retire_project("old")
    assert await of(every=True) == ["new.daily", "new.hourly"]
    for keys, more, said in (
        ((), {}, "no schedule is named"),
        (("a",), {"every": True}, "all and others are named"),
        ((), {"every": True, "tag": ""}, "all and others are named"),
        (("new.dialy",), {}, "new.dialy; did you mean new.daily"),
        (("new.daily", "neu.*"), {}, "there is no schedule neu.*"),
        ((), {"tag": "mony"}, "with tag mony; did you mean money"),
        ((), {"project": "now"}, "of project now; did you mean new"),
    ):
        with pytest.raises((ScheduleError, ScheduleNotFound)) as told:
            await of(*keys, **more)
        assert said in str(told.value)
    with pytest.raises(ScheduleRetired):
        await of("old.daily", "new.*")


async def test_a_window_is_found_by_bucket_by_time_and_by_the_id_of_a_run(service, bench):
    await declare_ago(
        bench, "everyMs: 60000, firstFire: next, grace: 1h", timedelta(minutes=3), key="k"
    )
    await bench.announce()
    claims = await bench.claim()
    for claim in claims:
        await run_of(bench, claim)
    claim = claims[-1]
    names = (
        await service.window("k", claim.bucket),
        await service.window("k", at=claim.fire_time),
        await service.window(claim.workflow_id),
    )
    for named in names:
        assert (named.key, named.bucket, named.at) == ("k", claim.bucket, claim.fire_time)
        assert named.fire is not None
        assert named.fire.workflow_id == claim.workflow_id
    coming = claim.fire_time + timedelta(days=1)
    assert (await service.window("k", at=coming)).fire is None
    fire = named.fire
    failed = Evidence(
        fire.workflow_id, fire.run_id, fire.started_at, "failed", bench.now(), last=True
    )
    await bench.ledger.record_evidence([failed])
    (letter,) = await service.dead_letters_of("k", at=claim.fire_time)
    assert letter.workflow_id == claim.workflow_id
    again = await service.rerun_dead("k", at=claim.fire_time)
    assert again.fire.workflow_id == f"{claim.workflow_id}:rerun:1"
    assert (await service.window(again.fire.workflow_id)).bucket == claim.bucket


async def test_what_names_no_window_is_refused(service, bench):
    await bench.declare(OLD)
    for names, more, error in (
        (("old.hourly",), {}, ScheduleError),
        (("old.hourly", 3), {"at": bench.now()}, ScheduleError),
        (("sched:old.hourly:manual:x",), {}, WindowNotFound),
        (("sched:old.hourly:9999999:s2",), {}, WindowNotFound),
        (("old.daily",), {"at": datetime(2026, 11, 21, 3, tzinfo=UTC)}, WindowNotFound),
        (("old.hourly", 2**62), {}, WindowNotFound),
        (("old.hurly", 3), {}, ScheduleNotFound),
    ):
        with pytest.raises(error):
            await service.window(*names, **more)
