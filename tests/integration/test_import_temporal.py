"""Schedules of a real Temporal server become schedules that fire at the times it lists."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.common import Priority, RetryPolicy

from engine.imports.entries import Import, Options
from engine.imports.schedule_file import as_yaml_file
from engine.imports.temporal_schedules import read_schedules
from engine.schedules import load_schedules
from engine.service.takeover import native_of
from tests.servers import Temporal
from tests.waiting import eventually

START = datetime(2026, 11, 20, 10, 7, tzinfo=UTC)
END = START + timedelta(days=400)
RANGE = ScheduleRange
EVERY_TIME: dict[str, Any] = {
    "second": [RANGE(0, 59)],
    "minute": [RANGE(0, 59)],
    "hour": [RANGE(0, 23)],
}
AT_SIX: dict[str, Any] = {"hour": [RANGE(6)]}

SPECS = {
    "night": ScheduleSpec(cron_expressions=["30 1,2 * * *"], time_zone_name="America/New_York"),
    "repeated": ScheduleSpec(cron_expressions=["CRON_TZ=Europe/Berlin 15 2 * * *"]),
    "hourly": ScheduleSpec(cron_expressions=["20 * * * 0"], time_zone_name="Europe/Berlin"),
    "every-20m": ScheduleSpec(
        cron_expressions=["*/20 * * OCT SUN"], time_zone_name="Europe/Berlin"
    ),
    "two-hours": ScheduleSpec(
        cron_expressions=["0 */2 * * SUN"], time_zone_name="America/New_York"
    ),
    "both-days": ScheduleSpec(cron_expressions=["0 9 10-20 * TUE,THU"]),
    "first-monday": ScheduleSpec(cron_expressions=["0 9 1-7 * MON"]),
    "odd-fridays": ScheduleSpec(cron_expressions=["0 9 */2 * FRI"]),
    "yearly": ScheduleSpec(cron_expressions=["@yearly"], time_zone_name="Australia/Sydney"),
    "seconds": ScheduleSpec(cron_expressions=["30 0 12 * * * *"]),
    "of-2027": ScheduleSpec(cron_expressions=["0 12 1 * * 2027"]),
    "every-7h": ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(hours=7))]),
    "offset": ScheduleSpec(
        intervals=[ScheduleIntervalSpec(timedelta(days=2), offset=timedelta(hours=5, seconds=3))]
    ),
    "at-every": ScheduleSpec(cron_expressions=["@every 36h/90m"]),
    "calendar": ScheduleSpec(
        calendars=[
            ScheduleCalendarSpec(
                hour=[RANGE(8, 18, 5)], minute=[RANGE(15), RANGE(45)], day_of_week=[RANGE(1, 5)]
            )
        ],
        time_zone_name="America/Sao_Paulo",
    ),
    "months": ScheduleSpec(
        calendars=[ScheduleCalendarSpec(month=[RANGE(1, 12, 3)], day_of_month=[RANGE(15)])]
    ),
    "merged": ScheduleSpec(cron_expressions=["0 6 * * *", "0 18 * * *"]),
    "weekends-off": ScheduleSpec(
        calendars=[ScheduleCalendarSpec(**AT_SIX)],
        skip=[ScheduleCalendarSpec(**EVERY_TIME, day_of_week=[RANGE(0), RANGE(6)])],
    ),
    "holidays-off": ScheduleSpec(
        calendars=[ScheduleCalendarSpec(**AT_SIX)],
        skip=[ScheduleCalendarSpec(**AT_SIX, month=[RANGE(12)], day_of_month=[RANGE(24, 26)])],
        time_zone_name="Europe/Berlin",
    ),
    "skips-nothing": ScheduleSpec(
        calendars=[ScheduleCalendarSpec(**AT_SIX)],
        skip=[ScheduleCalendarSpec(day_of_week=[RANGE(0)])],
    ),
    "bounded": ScheduleSpec(
        cron_expressions=["0 0 * * *"],
        start_at=datetime(2027, 1, 5, tzinfo=UTC),
        end_at=datetime(2027, 3, 5, 12, tzinfo=UTC),
    ),
}


def action(*args: object, **more: Any) -> ScheduleActionStartWorkflow:
    return ScheduleActionStartWorkflow("Report", args=args, id="run", task_queue="jobs", **more)


async def matching(client: Client, name: str) -> set[datetime]:
    """The times that the server lists for a schedule, a thousand at most at once."""
    found: set[datetime] = set()
    begin = START
    while True:
        first, last = Timestamp(), Timestamp()
        first.FromDatetime(begin)
        last.FromDatetime(END)
        asked = ListScheduleMatchingTimesRequest(
            namespace=client.namespace, schedule_id=name, start_time=first, end_time=last
        )
        answer = await client.workflow_service.list_schedule_matching_times(asked)
        times = [each.ToDatetime(UTC) for each in answer.start_time]
        if not times or set(times) <= found:
            return {at for at in found if START < at <= END}
        found.update(times)
        begin = max(times)


async def imported(client: Client) -> Import:
    return await read_schedules(client, Options(now=START))


def remarks(found: Import, key: str, kind: str) -> list[str]:
    entry = next(each for each in found.entries if each.key == key)
    return [f"{each.aspect}: {each.sentence}" for each in entry.remarks if each.kind == kind]


@pytest.fixture
def temporal(native_temporal: Temporal) -> Temporal:
    return native_temporal


@pytest.fixture
async def client(temporal: Temporal, namespace: str) -> Client:
    return await Client.connect(temporal.address, namespace=namespace)


@pytest.fixture
async def listed(client: Client):
    """Create schedules, and wait until the server lists them."""

    async def create(schedules: dict[str, Schedule]) -> None:
        for name, each in schedules.items():
            each.state.paused = True  # it stays so, and starts nothing
            await client.create_schedule(name, each)

        async def all_listed() -> bool:
            return len([each async for each in await client.list_schedules()]) == len(schedules)

        await eventually(all_listed, timeout=30)

    return create


async def test_schedules_of_temporal_fire_when_the_server_says(client, listed):
    await listed({name: Schedule(action(), spec) for name, spec in SPECS.items()})
    found = await imported(client)
    assert found.refused == ()
    schedules = {each.key: each for each in load_schedules(as_yaml_file(found)).schedules}
    assert schedules.keys() == SPECS.keys()
    differing = {}
    for name, schedule in schedules.items():
        theirs, ours = await matching(client, name), set(schedule.starts(START, END))
        assert ours
        named = [each for each in remarks(found, name, "difference") if each.startswith("dst: ")]
        assert bool(named) == (ours != theirs), (name, named, sorted(ours ^ theirs)[:5])
        if named:
            differing[name] = named[0], ours ^ theirs
    # East of Greenwich the server loses the second of two repeated hours of a frequent schedule.
    assert differing.keys() == {"hourly", "every-20m"}
    for sentence, apart in differing.values():
        assert "Europe/Berlin" in sentence
        assert "as on 2027-10-31" in sentence
        assert {at.date().isoformat() for at in apart} == {"2027-10-31"}
    assert schedules["repeated"].to_json()["dst"] == {"gap": "skip", "fold": "last"}
    assert schedules["night"].to_json()["dst"] == {"gap": "skip", "fold": "both"}
    assert "until 2031-11" in " ".join(remarks(found, "holidays-off", "difference"))


async def test_everything_about_a_schedule_is_kept_or_named(client, listed):
    everything = action(
        {"day": "today"},
        run_timeout=timedelta(hours=1),
        execution_timeout=timedelta(hours=3),
        retry_policy=RetryPolicy(maximum_attempts=4, non_retryable_error_types=["Bad"]),
        memo={"team": "billing"},
        priority=Priority(priority_key=2),
        static_summary="the report",
    )
    await listed(
        {
            "Full": Schedule(
                everything,
                ScheduleSpec(cron_expressions=["0 5 * * *"], jitter=timedelta(minutes=10)),
                SchedulePolicy(
                    overlap=ScheduleOverlapPolicy.BUFFER_ONE,
                    catchup_window=timedelta(hours=6),
                    pause_on_failure=True,
                ),
                ScheduleState(note="until the move", limited_actions=True, remaining_actions=3),
            ),
            "several": Schedule(
                action(), ScheduleSpec(cron_expressions=["0 6 * * *", "5 7 * * *"])
            ),
            "two-arguments": Schedule(action(1, 2), ScheduleSpec(cron_expressions=["0 6 * * *"])),
            "some-hours": Schedule(
                action(),
                ScheduleSpec(
                    calendars=[ScheduleCalendarSpec(hour=[RANGE(0, 23)])],
                    skip=[ScheduleCalendarSpec(hour=[RANGE(0, 5)])],
                ),
            ),
            "never": Schedule(action(), ScheduleSpec()),
        }
    )
    found = await imported(client)
    fields = next(each.fields for each in found.entries if each.key == "full")
    expected = {
        "workflow": "Report", "external": True, "taskQueue": "jobs", "cron": "0 5 * * *",
        "input": {"day": "today"}, "overlap": "queue_one", "spread": "10m", "priority": 2,
        "catchUp": {"policy": "all", "window": "6h"}, "paused": True,
    }  # fmt: skip
    assert {name: fields[name] for name in expected} == expected
    assert fields["retry"]["attempts"] == 4
    assert fields["timeout"]["run"] == "1h"
    # A field that this version of the file does not have is named.
    missing = "\n".join(remarks(found, "full", "missing"))
    for name, given in (
        ("timeout.execution", "execution_timeout"), ("pauseAfterFailures", "pause_on_failure"),
        ("limit", "remaining_actions"), ("memo", "the memo (team)"),
    ):  # fmt: skip
        outer, _, inner = name.partition(".")
        kept = inner in fields[outer] if inner else outer in fields
        assert kept != (given in missing), name
    assert "Bad" in missing
    assert "static_summary" in missing
    assert any("until the move" in each for each in remarks(found, "full", "note"))
    assert [each.key for each in found.entries if each.place == "schedule several"] == [
        "several", "several-2",
    ]  # fmt: skip
    assert {each.place: each.sentence for each in found.refused} == {
        "schedule two-arguments": "its workflow takes 2 arguments; input is one",
        "schedule some-hours": "it skips some times of a day and fires at others; exclude has days",
        "schedule never": "it has no calendar and no interval: it never fires by itself",
    }
    assert not found.is_complete
    read_back = load_schedules(as_yaml_file(found)).schedules
    # So that `sched compare` and `sched takeover` look at the right one.
    assert {each.key: native_of(each) for each in read_back} == {
        "full": "Full", "several": "several", "several-2": "several",
    }  # fmt: skip
    json.dumps([dict(each.fields) for each in found.entries])
