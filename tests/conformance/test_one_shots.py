"""Schedules that applications ask for: scheduled, found, moved and cancelled."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from engine.errors import (
    CronInvalid,
    IntervalTooShort,
    KeyForeign,
    KeyInUse,
    MomentInPast,
    NotCancellable,
    OwnedByFile,
    RequestInUse,
    RequestInvalid,
    ScheduleError,
    ScheduleNotFound,
    ScheduleRetired,
    TimezoneInvalid,
    VersionOutdated,
)
from engine.ledger.fires import Evidence, Outcome
from engine.ledger.records import Serving
from engine.runtime.apply.edits import PruneReport
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.conformance.conftest import NOW, SHORTLY
from tests.conformance.past import taken
from tests.sample_workflows import Noop, Warns

HOUR, LEASE = timedelta(hours=1), timedelta(seconds=30)
FILE = "schedules: [{key: nightly, workflow: noop, cron: '0 2 * * *'}]"


@pytest.fixture
def service(bench) -> ScheduleService:
    return ScheduleService(bench.ledger, actor="shop")


def soon() -> datetime:
    return NOW + HOUR


async def due_now(bench, service, **fields):
    """A one-shot whose moment is now, and its claim."""
    asked = await service.schedule_at("noop", bench.now() + SHORTLY, **fields)
    (claim,) = await bench.until(bench.claim)
    return asked, claim


def run_of(claim, **more) -> Evidence:
    return Evidence(claim.workflow_id, "run-1", NOW, **more)


async def test_a_workflow_starts_once_at_the_moment_an_application_named(bench, service):
    asked, claim = await due_now(bench, service, input={"invoice": 7})
    assert (claim.key, claim.arguments, claim.workflow_type) == (
        asked.key,
        ({"invoice": 7},),
        "noop@1",
    )
    assert claim.fire_time == asked.next_fire_at == asked.schedule.spec.instant
    (row,) = await service.schedules(origin="api")
    assert (row.key, row.next_fire_at, row.last_fire_at) == (asked.key, None, claim.fire_time)
    (action,) = await service.actions()
    assert (action.verb, action.by, action.after) == ("schedule", "shop", asked.schedule.to_json())


@dataclass
class Bill:
    number: int


async def test_a_class_and_a_model_say_what_a_name_and_json_would(bench, service):
    asked = await service.schedule_at(Noop, bench.now() + SHORTLY, input=Bill(7))
    (claim,) = await bench.until(bench.claim)
    assert (claim.arguments, claim.workflow_type) == (({"number": 7},), "noop@1")
    assert asked.schedule.workflow == "noop@1"
    again = await service.schedule_repeat(Noop, every="1h", input=Bill(8))
    assert again.schedule.input == {"number": 8}
    await service.trigger(again.key, own_input=(Bill(9),))
    (by_hand,) = [each for each in await taken(bench) if each.kind == "manual"]
    assert by_hand.arguments == ({"number": 9},)


async def test_a_class_that_takes_no_such_input_is_refused_before_it_is_due(service):
    with pytest.raises(TypeError, match="the workflow 'warns' takes no input"):
        await service.schedule_at(Warns, soon(), input=Bill(7))
    with pytest.raises(ScheduleError, match="JSON cannot carry the input"):
        await service.schedule_at(Noop, soon(), input=object())
    assert await service.schedules() == []


async def test_without_a_key_each_gets_one_of_its_own_in_the_order_of_time(bench, service):
    one = await service.schedule_at("noop", soon())
    two = await service.schedule_repeat("noop", everyMs=60_000)
    uuid7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert re.fullmatch(f"at-{uuid7}", one.key)
    assert re.fullmatch(f"repeat-{uuid7}", two.key)
    assert one.key[3:16] <= two.key[7:20]


async def test_a_moment_is_local_where_a_zone_is_named(bench, service):
    asked = await service.schedule_at("noop", "2031-07-01T09:00", timezone="America/Sao_Paulo")
    assert asked.next_fire_at == datetime(2031, 7, 1, 12, tzinfo=UTC)


async def test_one_that_repeats_owes_its_current_window_and_goes_on(bench, service):
    asked = await service.schedule_repeat("noop", key="pulse", everyMs=3_600_000)
    (claim,) = await bench.claim()
    assert (claim.key, asked.key) == ("pulse", "pulse")
    assert (await service.find("pulse")).next_fire_at == claim.fire_time + HOUR


async def test_a_past_moment_is_refused_and_leaves_nothing(bench, service):
    with pytest.raises(MomentInPast, match="has passed"):
        await service.schedule_at("noop", bench.now() - timedelta(seconds=1), key="late")
    assert await service.find("late") is None
    assert await service.actions() == []


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (CronInvalid, {"cron": "61 * * * *"}),
        (TimezoneInvalid, {"cron": "0 2 * * *", "timezone": "Mars/Olympus"}),
        (IntervalTooShort, {"everyMs": 999}),
    ],
)
async def test_what_is_wrong_with_a_spec_has_the_code_that_a_file_would_get(service, error, fields):
    with pytest.raises(error):
        await service.schedule_repeat("noop", **fields)


async def test_a_request_id_is_used_once_whatever_became_of_it(bench, service):
    first = await service.schedule_at("noop", soon(), request_id="order-7")
    for cancelled in (False, True):
        with pytest.raises(RequestInUse, match=f"order-7 was used before, for {first.key}"):
            await service.schedule_at("noop", soon(), request_id="order-7")
        if not cancelled:
            await service.cancel(first.key)
    assert len(await service.schedules()) == 1
    with pytest.raises(RequestInvalid):
        await service.schedule_at("noop", soon(), request_id="order 7")


async def test_of_many_equal_requests_at_once_one_is_granted(bench, service):
    asked = [service.schedule_at("noop", soon(), request_id="once") for _ in range(5)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    refused = [result for result in results if isinstance(result, RequestInUse)]
    assert (len(refused), len(await service.schedules())) == (4, 1)


async def test_a_request_id_stays_used_when_a_file_takes_over_the_key(bench, service):
    await service.schedule_at("noop", soon(), key="nightly", request_id="once")
    await service.cancel("nightly")
    assert (await bench.declare(FILE)).returned == ("nightly",)
    assert (await service.find("nightly")).origin == "file"
    with pytest.raises(RequestInUse):
        await service.schedule_at("noop", soon(), request_id="once")


async def test_a_key_is_used_once(bench, service):
    await bench.declare(FILE)
    await service.schedule_at("noop", soon(), key="mine")
    for key in ("nightly", "mine"):
        with pytest.raises(KeyInUse):
            await service.schedule_at("noop", soon(), key=key)
    await bench.declare(FILE.replace("nightly", "other"), force=True)
    await service.retire("nightly")
    with pytest.raises(KeyInUse, match="belongs to a file of default"):
        await service.schedule_at("noop", soon(), key="nightly")


async def test_a_key_that_an_application_has_retired_returns_in_a_new_series(bench, service):
    moment = soon()
    await service.schedule_repeat("noop", key="mine", every="1h", request_id="first")
    (claim,) = await bench.claim()
    await service.cancel("mine")
    asked = await service.schedule_at("noop", moment, key="mine", request_id="second")
    assert asked.next_fire_at == moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    bench.wait(moment + timedelta(seconds=1) - bench.now())
    (again,) = await bench.claim()
    assert (claim.series, again.series) == (1, 2)
    assert (await service.schedule("mine")).request_id == "second"
    await service.cancel("mine")
    with pytest.raises(KeyInUse, match="belongs to an application of default"):
        await service.schedule_at("noop", soon() + HOUR, key="mine", project="shop")


async def test_no_file_changes_or_retires_what_an_application_asked_for(bench, service):
    await service.schedule_at("noop", soon(), key="mine")
    report = await bench.declare(FILE)
    assert report.absent == ()
    await bench.declare(FILE.replace("nightly", "other"), force=True)
    assert (await bench.ledger.schedules(key="mine"))[0].state == "active"
    with pytest.raises(KeyForeign):
        await bench.declare(FILE.replace("nightly", "mine"))


async def test_what_a_file_declares_cannot_be_moved(bench, service):
    await bench.declare(FILE)
    with pytest.raises(OwnedByFile):
        await service.reschedule("nightly", at=soon())
    with pytest.raises(ScheduleNotFound):
        await service.reschedule("nobody", at=soon())


async def test_a_moved_one_shot_starts_at_its_new_moment_alone(bench, service):
    asked = await service.schedule_at("noop", soon(), key="mine", input=1, request_id="r")
    later = soon() + HOUR
    moved = await service.reschedule("mine", at=later, reason="asked by phone")
    assert moved.next_fire_at == later.replace(microsecond=later.microsecond // 1000 * 1000)
    assert (moved.schedule.input, moved.schedule.workflow) == (1, "noop")
    action = (await service.actions())[0]
    assert (action.verb, action.reason) == ("reschedule", "asked by phone")
    assert (action.before["at"], action.after["at"]) == (asked.schedule.at, moved.schedule.at)
    with pytest.raises(MomentInPast):
        await service.reschedule("mine", at=bench.now() - HOUR)
    with pytest.raises(RequestInUse):
        await service.schedule_at("noop", soon(), request_id="r")


async def test_a_one_shot_can_become_one_that_repeats(bench, service):
    await service.schedule_at("noop", soon(), key="mine")
    moved = await service.reschedule("mine", everyMs=3_600_000)
    assert moved.schedule.kind == "interval"
    assert moved.next_fire_at > bench.now()
    assert await bench.claim() == []  # an edit fires no past window


async def test_what_has_come_or_was_cancelled_cannot_be_moved(bench, service):
    asked, _ = await due_now(bench, service)
    with pytest.raises(NotCancellable, match="has passed"):
        await service.reschedule(asked.key, at=soon())
    other = await service.schedule_at("noop", soon())
    await service.cancel(other.key)
    with pytest.raises(NotCancellable, match="was cancelled"):
        await service.reschedule(other.key, at=soon())


async def test_a_cancelled_one_shot_never_starts_and_cancelling_again_is_no_error(bench, service):
    asked = await service.schedule_at("noop", soon(), key="mine")
    first = await service.cancel("mine", reason="sold out")
    again = await service.cancel("mine")
    assert (first.retired, first.was_retired) == (True, False)
    assert (again.retired, again.was_retired) == (False, True)
    row = await service.find(asked.key)
    assert (row.state, row.next_fire_at) == ("retired", None)
    assert [each.verb for each in await service.actions()] == ["cancel", "schedule"]
    with pytest.raises(ScheduleRetired):
        await service.trigger("mine")


async def test_one_that_is_due_and_not_begun_is_given_up(bench, service):
    asked = await service.schedule_at("noop", bench.now() + SHORTLY)
    bench.wait(2 * SHORTLY)
    cancelled = await service.cancel(asked.key, reason="too late")
    (fire,) = await service.fires()
    assert cancelled.skipped == (fire.workflow_id,)
    assert (fire.status, fire.reason) == ("skipped", "user: too late")
    assert await bench.claim() == []
    assert await bench.ledger.take_over(bench.serving, limit=9, lease=LEASE) == []


async def test_the_runs_of_a_schedule_can_be_cancelled_while_it_goes_on(bench, service):
    await service.schedule_repeat("noop", every="1h", key="mine")
    (claim,) = await bench.claim()
    cancelled = await service.cancel("mine", goes_on=True)
    assert (len(cancelled.asked) + len(cancelled.skipped), cancelled.retired) == (1, False)
    assert claim.workflow_id in (*cancelled.asked, *cancelled.skipped)
    assert (await service.schedule("mine")).state == "active"


async def test_an_open_run_of_a_cancelled_one_shot_is_asked_to_end(bench, service):
    asked, claim = await due_now(bench, service)
    await bench.ledger.settle([Outcome(claim.fire_id, claim.token, "started", "on_time", "run-1",
                                       started_at=bench.now())])  # fmt: skip
    cancelled = await service.cancel(asked.key)
    assert (cancelled.asked, cancelled.retired) == ((claim.workflow_id,), True)
    (order,) = await bench.ledger.take_stops(bench.serving, limit=9, lease=LEASE)
    assert (order.workflow_id, order.stop) == (claim.workflow_id, "cancel")


async def test_one_that_has_run_cannot_be_cancelled(bench, service):
    asked, claim = await due_now(bench, service)
    await bench.ledger.record_evidence([run_of(claim, closed="completed", closed_at=bench.now())])
    with pytest.raises(NotCancellable):
        await service.cancel(asked.key)
    assert (await service.find(asked.key)).state == "ended"


async def test_a_schedule_of_a_file_survives_the_cancel_of_its_runs(bench, service):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 3600000}]")
    (claim,) = await bench.claim()
    await bench.ledger.record_evidence([run_of(claim)])
    assert not (await service.cancel("k")).retired
    assert (await service.find("k")).state == "active"


async def test_a_worker_that_learns_the_workflow_later_can_start_it(bench, service):
    asked = await service.schedule_at("brand-new", soon())
    assert "knows brand-new" in asked.waiting
    newer = Serving("replica-b", "default", "sched", frozenset({"noop@1", "brand-new@1"}))
    await bench.announce(newer)
    assert (await service.find(asked.key)).workflow_type == "brand-new@1"


async def test_shadow_mode_waits_for_no_workflow_until_it_is_to_end(bench, service):
    shadow = {"everyMs": 3600000, "mode": "shadow"}
    assert (await service.schedule_repeat("brand-new", **shadow)).waiting is None
    ends = await service.schedule_repeat("brand-new", **shadow, shadowUntil="2100-01-01T00:00:00Z")
    assert "knows brand-new" in ends.waiting
    elsewhere = await service.schedule_repeat("brand-new", **shadow, project="elsewhere")
    assert elsewhere.waiting.startswith("no worker lives that starts what comes due of project")


async def test_they_are_listed_by_who_asked_for_them_and_by_what_their_metadata_say(bench, service):
    await bench.declare(FILE)
    for key, owner in (("a", "ann"), ("b", "bob"), ("c", "bob")):
        await service.schedule_at("noop", soon(), key=key, metadata={"owner": owner, "n": 1})
    await service.cancel("c")
    assert [row.key for row in await service.schedules(origin="api")] == ["a", "b", "c"]
    assert [row.key for row in await service.schedules(metadata={"owner": "bob"})] == ["b", "c"]
    (row,) = await service.schedules(metadata={"owner": "bob"}, state="active")
    assert (row.key, await service.find("nobody")) == ("b", None)


async def test_pruning_a_file_leaves_them_alone(bench, service):
    await bench.declare(FILE)
    await service.schedule_at("noop", soon(), key="mine")
    file = load_schedules(FILE)
    pruned = await service.prune(file, absent_for=timedelta(0))
    assert pruned == PruneReport()
    assert (await service.find("mine")).state == "active"


# --- declared by key ---

NIGHTLY = {"key": "nightly", "cron": "0 2 * * *", "input": {"format": "pdf"}}


async def definition_of(service, key: str = "nightly"):
    row = await service.schedule(key)
    return row.definition_version, row.series, row.schedule.shown


async def test_a_key_is_created_replaced_whole_and_an_equal_definition_is_no_version(
    bench, service
):
    made = await service.declare("noop", **NIGHTLY, overlap="skip")
    assert (made.outcome, made.row.definition_version) == ("created", 1)
    for again in ({"overlap": "skip"}, {"overlap": "skip", "catchUp": {"policy": "latest"}}):
        bench.wait(HOUR)
        same = await service.declare("noop", **NIGHTLY, **again)
        assert (same.outcome, same.row) == ("unchanged", made.row)
    changed = await service.declare("noop", **{**NIGHTLY, "cron": "0 3 * * *"})
    assert changed.outcome == "changed"
    version, series, shown = await definition_of(service)
    assert (version, series) == (2, 1)
    assert shown == {"workflow": "noop", **NIGHTLY, "cron": "0 3 * * *"}, "overlap has its default"
    assert [each.verb for each in await bench.actions()] == ["edit", "schedule"]


async def test_100_processes_that_declare_one_key_at_once_make_one_version(service):
    asked = [service.declare("noop", **NIGHTLY) for _ in range(100)]
    done = await asyncio.gather(*asked)
    assert sorted(each.outcome for each in done) == ["created", *["unchanged"] * 99]
    asked = [service.declare("noop", **NIGHTLY, overlap="skip") for _ in range(20)]
    done = await asyncio.gather(*asked)
    assert sorted(each.outcome for each in done) == ["changed", *["unchanged"] * 19]
    assert (await definition_of(service))[:2] == (2, 1)


async def test_only_a_created_one_fires_at_first_sight_and_another_kind_is_a_new_series(
    bench, service
):
    made = await service.declare("noop", key="k", everyMs=3_600_000, firstFire="now")
    assert made.row.next_fire_at is not None
    assert made.row.next_fire_at <= bench.now()
    (first,) = await bench.claim()
    bench.wait(LEASE)
    await service.declare("noop", key="k", everyMs=3_600_000, firstFire="now", overlap="skip")
    assert await bench.claim() == [], "it fires no past window"
    again = (await service.declare("noop", key="k", cron="0 * * * *")).row
    assert (again.series, again.definition_version) == (first.series + 1, 3)
    await service.pause("k", reason="an operator holds it")
    held = await service.declare("noop", key="k", cron="0 * * * *", paused=False, tags=["a"])
    assert held.row.state == "paused", "a deploy does not resume it"


async def test_a_retired_key_returns_in_a_new_series_and_a_file_s_stays_its_own(bench, service):
    await service.declare("noop", **NIGHTLY)
    await service.cancel("nightly")
    back = await service.declare("noop", **NIGHTLY)
    assert (back.outcome, back.row.series, back.row.state) == ("created", 2, "active")
    await bench.declare("schedules: [{key: filed, workflow: noop, everyMs: 60000}]")
    with pytest.raises(OwnedByFile):
        await service.declare("noop", key="filed", everyMs=60000)
    with pytest.raises(KeyInUse, match="of project default"):
        await service.declare("noop", **NIGHTLY, project="other")
    for key in ("old", "new"):
        with pytest.raises(VersionOutdated):
            await service.declare("noop", **{**NIGHTLY, "key": key}, version=1)
    with pytest.raises(VersionOutdated):
        await service.declare("noop", **NIGHTLY, version=back.row.definition_version - 1)
    with pytest.raises(ScheduleError, match="the key makes the request safe to repeat"):
        await service.declare("noop", **NIGHTLY, metadata={"clientRequestId": "one"})


async def test_a_moment_that_has_come_may_be_declared_again_but_not_moved_into_the_past(
    bench, service
):
    moment = (bench.now() + HOUR).isoformat()
    await service.declare("noop", key="once", at=moment)
    bench.wait(2 * HOUR)
    assert (await service.declare("noop", key="once", at=moment)).outcome == "unchanged"
    with pytest.raises(MomentInPast):
        await service.declare("noop", key="once", at=NOW.isoformat())
    with pytest.raises(MomentInPast):
        await service.declare("noop", key="late", at=NOW.isoformat())
