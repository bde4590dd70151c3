"""Native Temporal Schedules, and ours in shadow mode beside them, on real servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.common import SearchAttributeKey

from engine.audit.comparison import Comparison
from engine.audit.native import NativeSchedules, NativeStarts
from engine.ledger import Ledger
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.waiting import eventually

SECOND = timedelta(seconds=1)
QUEUE = "sched"
NOMINAL = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")


def file_of(keys: Sequence[str], fields: str = "mode: shadow") -> str:
    listed = "".join(
        f"\n  - {{key: {key}, workflow: PlainWorkflow, everyMs: 1000, {fields}}}" for key in keys
    )
    return f"schedules:{listed}\n"


@dataclass
class Beside:
    """Schedules of one second: natively in Temporal, and under the same names in the ledger."""

    client: Client
    ledger: Ledger
    keys: Sequence[str]

    def __post_init__(self) -> None:
        self.service = ScheduleService(self.ledger, actor="mover")
        self.begun = datetime.now(UTC)
        self.text = file_of(self.keys)

    async def start_native(self) -> None:
        """Create the native schedules, and wait until each has started a run."""
        for key in self.keys:
            await self.client.create_schedule(
                key,
                Schedule(
                    action=ScheduleActionStartWorkflow(
                        "PlainWorkflow", "native", id=f"native-{key}", task_queue=QUEUE
                    ),
                    spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=SECOND)]),
                    policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.ALLOW_ALL),
                ),
            )

        async def all_run() -> bool:
            found = await self.runs()
            return all(found[key] for key in self.keys)

        await eventually(all_run, timeout=60, every=0.2)

    async def delete_native(self) -> None:
        for key in self.keys:
            await self.client.get_schedule_handle(key).delete()

    async def runs(self) -> dict[str, dict[datetime, list[str]]]:
        """Return every run that Temporal has, by key and moment, whoever has started it."""
        found: dict[str, dict[datetime, list[str]]] = defaultdict(lambda: defaultdict(list))
        async for run in self.client.list_workflows("WorkflowType = 'PlainWorkflow'"):
            moment = run.typed_search_attributes[NOMINAL]
            key = run.id.split(":")[1] if run.id.startswith("sched:") else run.id.split("-")[1]
            found[key][moment].append(run.id)
        return found

    async def compared(self, *, lag: timedelta = 2 * SECOND) -> dict[str, Comparison]:
        found = await self.service.compare(
            self.begun + SECOND, NativeStarts(self.client), lag=lag, tolerance=SECOND
        )
        return {each.key: each for each in found}

    async def passed(self, moment: datetime) -> None:
        """Wait until every schedule has decided its windows up to a moment."""

        async def decided() -> bool:
            return all(each.cursor >= moment for each in await self.ledger.standings(self.keys))

        patience = (moment - datetime.now(UTC)).total_seconds() + 30
        await eventually(decided, timeout=patience, every=0.2)

    async def hand_over(self, ahead: timedelta) -> datetime:
        """Let the shadow mode end so far ahead, and take every schedule over then."""
        at = datetime.now(UTC).replace(microsecond=0) + ahead
        self.text = file_of(self.keys, f'mode: shadow, shadowUntil: "{at:%Y-%m-%dT%H:%M:%SZ}"')
        await self.service.apply(load_schedules(self.text))
        for key in self.keys:
            await self.service.take_over(key, NativeSchedules(self.client))
        return at


async def assert_each_window_ran_once(
    beside: Beside, first: datetime, at: datetime, last: datetime
) -> None:
    """Each window in ``first <= t <= last`` has one run: natively before ``at``, then ours."""
    runs = await beside.runs()
    for key in beside.keys:
        moment = first
        while moment <= last:
            by = "native-" if moment < at else "sched:"
            found = runs[key].get(moment, [])
            assert len(found) == 1, f"{key} at {moment}: {found}, taken over at {at}"
            assert found[0].startswith(by), f"{key} at {moment}: {found}, taken over at {at}"
            moment += SECOND
