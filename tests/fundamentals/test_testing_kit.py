"""``engine.testing`` on a real server: schedules, runs, fakes. The examples of docs/testing.md."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine import FatalError
from engine.errors import ScheduleNotFound, WorkflowUnknown
from engine.schedules import load_schedules
from engine.testing import (
    DevServer,
    assert_replayable,
    assert_windows_settled,
    dev_server,
    fail_once,
    fail_times,
    fake,
    fire_for,
    run_schedule,
    run_workflow,
)
from tests.fundamentals.samples.outside import Asked
from tests.fundamentals.samples.parcels import (
    Order,
    Parcels,
    Receipt,
    give_back,
    send_parcel,
    take_money,
)
from tests.fundamentals.samples.stamps import Stamped, WaitsOften, stamp

SCHEDULES = """
schedules:
  - key: nightly-parcel
    workflow: parcels
    cron: "0 2 * * *"
    timezone: Europe/Berlin
    input: {id: A1}
    exclude: [2027-03-02]
"""
# Without these a worker serves all that the tests of this session have imported.
CODE: dict[str, Any] = {"workflows": [Parcels], "steps": [take_money, give_back, send_parcel]}


async def test_the_windows_of_a_schedule_run_as_in_production(server: DevServer):
    fires = await run_schedule(
        SCHEDULES,
        between=("2027-03-01T00:00+01:00", "2027-03-04T00:00+01:00"),
        signals={"packed": [None]},
        server=server,
        **CODE,
    )
    assert [fire.status for fire in fires] == ["completed", "skipped", "completed"]
    assert fires[0].workflow_id == "sched:nightly-parcel:1803862800000"
    assert fires[0].result == "parcel-A1"
    assert fires[1].reason == "excluded: 2027-03-02"


async def test_one_window_can_be_chosen_by_its_fire_time(server: DevServer):
    [fire] = await run_schedule(
        SCHEDULES, at="2027-03-01T02:00+01:00", signals={"packed": [None]}, server=server, **CODE
    )
    assert fire.fire_time == datetime(2027, 3, 1, 1, tzinfo=UTC)
    assert fire.steps == ("take_money", "send_parcel")


async def test_a_moment_without_a_window_names_those_around_it(server: DevServer):
    with pytest.raises(ValueError, match="nightly-parcel has windows at 2027-02-28T01:00:00"):
        await run_schedule(SCHEDULES, at="2027-03-01T00:00Z", server=server, **CODE)


async def test_signals_for_a_run_that_does_not_wait_for_them_are_no_fault(server: DevServer):
    run = await run_workflow(
        Parcels,
        Order("A1"),
        fakes=[fake(take_money, raises=FatalError("no money"))],
        signals={"packed": [None] * 20},
        server=server,
        **CODE,
    )
    assert str(run.error) == "FatalError: no money"


async def test_hours_of_waiting_take_no_time(server: DevServer):
    run = await run_workflow(Parcels, Order("A1"), server=server, **CODE)
    assert run.status == "failed"  # nobody packed it within four hours
    assert run.steps == ("take_money", "give_back")


async def test_a_step_that_fails_twice_is_tried_a_third_time_six_minutes_later(server: DevServer):
    card = fail_times(take_money, 2, ConnectionError("the bank is away"))
    run = await run_workflow(
        Parcels, Order("A1"), fakes=[card], signals={"packed": [None]}, server=server, **CODE
    )
    assert run.result == "parcel-A1"
    assert card.calls == [Order("A1")] * 3


async def test_a_sync_step_can_fail_once_and_then_be_itself(server: DevServer):
    parcel = fail_once(send_parcel, OSError("no paper"))
    run = await run_workflow(
        Parcels, Order("A1"), fakes=[parcel], signals={"packed": [None]}, server=server, **CODE
    )
    assert (run.result, len(parcel.calls)) == ("parcel-A1", 2)


async def test_steps_can_be_replaced_by_values_functions_and_errors(server: DevServer):
    refund = fake(give_back)
    fakes = [
        fake(take_money, lambda order: Receipt(f"{order.cents} cents")),
        fake(send_parcel, raises=FatalError("out of stock")),
        refund,
    ]
    run = await run_workflow(
        Parcels,
        Order("A1", cents=5),
        fakes=fakes,
        signals={"packed": [None]},
        server=server,
        **CODE,
    )
    assert str(run.error) == "FatalError: out of stock"
    assert refund.calls == [Order("A1", cents=5)]


async def test_a_mapping_of_steps_is_the_short_form_of_fakes(server: DevServer):
    run = await run_workflow(
        Parcels,
        Order("A1"),
        fakes={take_money: Receipt("free"), send_parcel: lambda order: order.id},
        signals={"packed": [None]},
        server=server,
        **CODE,
    )
    assert run.result == "A1"


async def test_a_run_is_given_the_window_it_stands_for(server: DevServer):
    fire = fire_for("nightly-parcel", "2027-03-01T02:00+01:00")
    run = await run_workflow(
        Parcels, Order("A1"), fire=fire, signals={"packed": [None]}, server=server, **CODE
    )
    assert run.workflow_id == "sched:nightly-parcel:1803862800000"


async def test_an_input_that_does_not_fit_fails_the_run_and_names_the_field(server: DevServer):
    run = await run_workflow(Parcels, {"id": "A1", "cents": "many"}, server=server, **CODE)
    assert run.status == "failed"
    assert "cents\n  Input should be a valid integer" in str(run.error)


@pytest.mark.parametrize("signals", [{}, {"packed": [None]}])
async def test_a_run_that_hangs_is_ended_and_says_what_it_waits_for(
    server: DevServer, signals: dict[str, list[None]]
):
    with pytest.raises(AssertionError, match="take_money is at attempt 1"):
        await run_workflow(
            Parcels,
            Order("A1"),
            fakes=[fake(take_money, _never)],
            signals=signals,
            patience=1,
            server=server,
            **CODE,
        )


async def test_a_run_with_more_waits_than_there_is_patience_for_says_so(server: DevServer):
    with pytest.raises(AssertionError, match=r"its waits take longer \(\d+ so far, each about a"):
        await run_workflow(WaitsOften, patience=3, server=server, workflows=[WaitsOften])


async def test_a_run_that_hangs_names_the_signal_it_waits_for(server: DevServer):
    with pytest.raises(AssertionError, match=r"it waits for the signal approval$"):
        await run_workflow(Asked, "x", patience=3, server=server, workflows=[Asked], steps=[])


async def test_a_run_has_the_rules_of_its_class(server: DevServer):
    run = await run_workflow(
        Stamped, "slow", fire=fire_for("slow", "2027-03-01T03:00Z"), server=server,
        workflows=[Stamped], steps=[stamp],
    )  # fmt: skip
    assert run.status == "timed_out"


async def test_a_value_in_the_place_of_a_function_is_told_how_it_is_written():
    with pytest.raises(TypeError, match=r"take_money, True.*write returns=True for a value"):
        fake(take_money, True)  # type: ignore[arg-type] # the point


async def _never(_: Order) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        pytest.param(
            "skip", ["completed", "skipped", "completed", "skipped"], marks=pytest.mark.prove
        ),
        pytest.param("queue", ["completed"] * 4, marks=pytest.mark.prove),
        ("skip, maxConcurrentRuns: 2", ["completed"] * 4),
    ],
)
async def test_overlap_rules_see_how_long_runs_take_by_their_own_clocks(
    server: DevServer, overlap: str, expected: list[str]
):
    # Nobody packs it: a run waits for four hours, and fails; a window opens every three.
    fires = await run_schedule(
        f"""
schedules:
  - {{key: parcel, workflow: parcels, everyMs: 10800000, overlap: {overlap}, input: {{id: A1}}}}
""",
        between=("2027-03-01T00:00Z", "2027-03-01T12:00Z"),
        server=server,
        **CODE,
    )
    assert [fire.status.replace("failed", "completed") for fire in fires] == expected


async def test_schedules_that_wait_for_each_other_do_so_in_a_test(server: DevServer):
    # Nobody packs it, so the parent fails.
    fires = await run_schedule(
        """
schedules:
  - {key: parent, workflow: parcels, cron: "0 2 * * *", input: {id: A1}}
  - {key: then, workflow: parcels, cron: "0 2 * * *", input: {id: A2},
     after: {schedule: parent, when: success, window: same}}
  - {key: alarm, workflow: parcels, cron: "0 2 * * *", input: {id: A3},
     after: {schedule: parent, when: failure, window: same}}
""",
        at="2027-03-01T02:00Z",
        server=server,
        **CODE,
    )
    became = {fire.key: (fire.status, fire.reason) for fire in fires}
    assert became == {
        "parent": ("failed", None),
        "then": ("skipped", "dependency: parent failed"),
        "alarm": ("failed", None),
    }


async def test_steps_in_queues_and_the_rules_of_a_workflow_are_those_of_production(
    server: DevServer,
):
    fires = await run_schedule(
        """
queues: {stamps: {concurrency: 1}}
schedules:
  - {key: letter, workflow: stamped, cron: "0 2 * * *", input: letter}
  - {key: slow, workflow: stamped, cron: "0 3 * * *", input: slow}
""",
        between=("2027-03-01T00:00Z", "2027-03-02T00:00Z"),
        server=server,
        workflows=[Stamped],
        steps=[stamp],
    )
    assert [fire.status for fire in fires] == ["completed", "timed_out"]
    assert fires[0].result == "letter, stamped"


async def test_every_window_of_a_span_is_accounted_for(server: DevServer):
    span = ("2027-03-01T00:00+01:00", "2027-03-04T00:00+01:00")
    fires = await run_schedule(
        SCHEDULES, between=span, signals={"packed": [None]}, server=server, **CODE
    )
    assert_windows_settled(fires, SCHEDULES, between=span)
    with pytest.raises(
        AssertionError, match=r"nightly-parcel 2027-03-02T01:00:00.*nothing decided"
    ):
        assert_windows_settled([fires[0], fires[2]], SCHEDULES, between=span)
    with pytest.raises(AssertionError, match=r"2027-03-01T01:00:00.*completed and completed"):
        assert_windows_settled([*fires, fires[0]], SCHEDULES, between=span)


async def test_an_unknown_workflow_is_named_before_anything_runs(server: DevServer):
    text = "schedules:\n  - {key: x, workflow: parcel, everyMs: 1000}\n"
    with pytest.raises(WorkflowUnknown, match=r"did you mean parcels\?"):
        await run_schedule(text, at="2027-03-01T00:00Z", server=server, **CODE)


async def test_an_unknown_key_is_named_before_anything_runs(server: DevServer):
    with pytest.raises(ScheduleNotFound, match=r"did you mean nightly-parcel\?"):
        await run_schedule(
            SCHEDULES, key="nightly-parcels", at="2027-03-01T01:00Z", server=server, **CODE
        )


async def test_a_file_and_schedules_are_taken_as_well(server: DevServer, tmp_path: Path):
    path = tmp_path / "schedules.yaml"
    path.write_text(SCHEDULES)
    signals = {"packed": [None]}
    [fire] = await run_schedule(
        path, at="2027-03-01T01:00Z", signals=signals, server=server, **CODE
    )
    assert fire.status == "completed"
    for given in (str(path), load_schedules(SCHEDULES).schedules[0]):
        with pytest.raises(ValueError, match="nightly-parcel has windows at 2027-02-28T01:00:00"):
            await run_schedule(given, at="2027-03-01T00:00Z", server=server, **CODE)


async def test_a_run_of_a_window_to_come_can_be_in_its_time(server: DevServer):
    [fire] = await run_schedule(
        "schedules:\n  - {key: a, workflow: parcels, at: 2031-03-01T00:00:00Z, input: {id: A1}}\n",
        at="2031-03-01T00:00Z",
        in_its_time=True,
        server=server,
        **CODE,
    )
    assert fire.run
    closed = fire.run.history.events[-1].event_time.ToDatetime(UTC)
    assert timedelta(hours=4) < closed - fire.fire_time < timedelta(hours=4, minutes=1)


@pytest.mark.prove
async def test_without_a_server_one_is_started_for_the_call():
    run = await run_workflow(Parcels, Order("A1"), signals={"packed": [None]}, **CODE)
    assert run.result == "parcel-A1"


async def test_a_server_can_be_had_for_as_long_as_a_block():
    async with dev_server() as server:
        run = await run_workflow(
            Parcels, Order("A1"), signals={"packed": [None]}, server=server, **CODE
        )
        assert await assert_replayable(run.history, workflows=[Parcels]) == 1
        [fire] = await run_schedule(
            SCHEDULES,
            at="2027-03-01T02:00+01:00",
            signals={"packed": [None]},
            server=server,
            **CODE,
        )
        assert fire.status == "completed"
