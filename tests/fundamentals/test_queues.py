"""Queues: so many steps at once, so many in a minute, all replicas together; the others wait."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

import asyncpg
import pytest
from temporalio.api.enums.v1 import PendingActivityState, RateLimitSource, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.runtime.apply.apply import apply
from engine.runtime.events import Alert, Event
from engine.runtime.settings import Settings
from engine.runtime.steps.queues import limit_rate
from engine.schedules import load_schedules
from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.samples import queues
from tests.fundamentals.samples.queues import Seen
from tests.links import link_to
from tests.postgres import Postgres
from tests.slots import held_slots
from tests.waiting import eventually

QUICK = Settings(tick=timedelta(milliseconds=100), lease=timedelta(seconds=3))
SLOW = Settings(tick=timedelta(milliseconds=100), lease=timedelta(seconds=12))
FILE = """
queues: {%s}
schedules: [{key: mail, workflow: sends-one, cron: "0 0 1 1 *", input: a}]
"""


@pytest.fixture
def seen() -> Seen:
    return queues.fresh()


class Office:
    """Replicas that share a ledger, and the runs they work on."""

    def __init__(self, client: Client, ledger: Ledger, database_url: str) -> None:
        self.client, self.ledger, self._url = client, ledger, database_url
        self.events: list[Event] = []

    async def declare(self, limits: str) -> None:
        await apply(self.ledger, load_schedules(FILE % limits), by="test")

    @asynccontextmanager
    async def replicas(
        self, count: int = 1, *, url: str | None = None, settings: Settings = QUICK, name: str = ""
    ) -> AsyncIterator[None]:
        """Run so many workers; every second has the plugin itself, the others by their client."""
        address = self.client.service_client.config.target_host
        async with AsyncExitStack() as stack:
            for number in range(count):
                plugins = [
                    SchedulePlugin(
                        None,
                        database_url=url or self._url,
                        settings=settings,
                        on_event=self.events.append,
                    )
                ]
                mine = number % 2
                client = await Client.connect(
                    address, namespace=self.client.namespace, identity=name or None,
                    plugins=[] if mine else plugins,
                )  # fmt: skip
                worker = Worker(
                    client, task_queue="office", workflows=queues.ALL,
                    activities=queues.STEPS, plugins=plugins if mine else [],
                    graceful_shutdown_timeout=timedelta(seconds=5),
                )  # fmt: skip
                await stack.enter_async_context(worker)
            yield

    async def start(self, workflow: str, given: object) -> WorkflowHandle:
        return await self.client.start_workflow(
            workflow, given, id=uuid.uuid4().hex, task_queue="office"
        )

    async def running_at(self, worker: str, handle: WorkflowHandle) -> int:
        """How many steps of a run have begun at the workers of this name."""
        pending = (await handle.describe()).raw_description.pending_activities
        begun = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        return sum(each.state == begun and each.last_worker_identity == worker for each in pending)

    async def backlog(self) -> int:
        """How many steps wait in the queue; a run knows of its step before the queue does."""
        asked = DescribeTaskQueueRequest(
            namespace=self.client.namespace,
            task_queue=TaskQueue(name="office/emails"),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            report_stats=True,
        )
        found = await self.client.workflow_service.describe_task_queue(asked)
        return found.stats.approximate_backlog_count

    async def waiting(self, steps: int) -> None:
        """Wait until so many steps wait in the queue."""

        async def all_wait() -> bool:
            return await self.backlog() == steps

        await eventually(all_wait, every=0.05)

    async def start_running(self, workflow: str, given: object) -> WorkflowHandle:
        """Start a run and wait until its step has come to a worker."""
        handle = await self.start(workflow, given)
        await eventually(partial(is_at_a_worker, handle), every=0.05)
        return handle

    async def start_waiting(self, workflow: str, given: object, *, behind: int) -> WorkflowHandle:
        """Start a run and wait until its step is in the queue, behind so many."""
        handle = await self.start(workflow, given)
        await self.waiting(behind + 1)
        return handle


@pytest.fixture
async def office(client: Client, shared_database_url: str) -> AsyncIterator[Office]:
    async with office_of(client, shared_database_url) as found:
        yield found


@asynccontextmanager
async def office_of(client: Client, database_url: str) -> AsyncIterator[Office]:
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    yield Office(client, ledger, database_url)
    await ledger.close()


async def test_no_more_steps_run_at_once_than_the_queue_allows_all_replicas_together(
    office: Office, seen: Seen
):
    await office.declare("emails: {concurrency: 3}")
    names = [f"letter {number}" for number in range(12)]
    async with office.replicas(3):
        run = await office.start("sends@1", names)
        await eventually(lambda: seen.running == 3)
        seen.go_on.set()
        runs = Runs(office.client, "office", queues)
        assert await runs.end(run) == names, "and its history is replayed"
    assert seen.most == 3


@pytest.mark.prove
async def test_a_queue_never_runs_more_than_its_limit_over_a_slow_link(
    office: Office, seen: Seen, shared_database_url: str, postgres: Postgres
):
    await office.declare("emails: {concurrency: 10}")
    async with (
        link_to(postgres.port) as link,
        office.replicas(url=link.way(shared_database_url), settings=SLOW, name="far"),
    ):
        before = await office.start("sends@1", [f"before {number}" for number in range(10)])
        await eventually(lambda: seen.running == 10)
        link.late = b"office/emails"
        earlier, seen.go_on = seen.go_on, asyncio.Event()
        earlier.set()
        await before.result()

        async def few_are_kept() -> int:
            (kept,) = (await held_slots(office.ledger)).values()
            return kept if kept < 5 else 0

        kept = await eventually(
            few_are_kept, every=0.1
        )  # to poll with; the far worker does not know yet
        async with office.replicas(settings=SLOW, name="near"):
            run = await office.start("sends@1", [f"burst {number}" for number in range(40)])

            async def near_runs_what_it_may() -> bool:
                return await office.running_at("near", run) == 10 - kept

            await eventually(near_runs_what_it_may, every=0.1)
            assert seen.most == 10
            link.late = None
            seen.go_on.set()
            await run.result()
    assert seen.most == 10


async def test_steps_of_one_priority_run_in_the_order_in_which_they_came(
    office: Office, seen: Seen
):
    await office.declare("emails: {concurrency: 1}")
    async with office.replicas():
        first = await office.start_running("sends-one@1", "a")
        others = [
            await office.start_waiting("sends-one@1", name, behind=number)
            for number, name in enumerate("bcde")
        ]
        seen.go_on.set()
        await asyncio.gather(*(run.result() for run in (first, *others)))
    assert seen.order == list("abcde")


async def test_a_step_with_a_better_priority_goes_first(office: Office, seen: Seen):
    await office.declare("emails: {concurrency: 1}")
    async with office.replicas():
        first = await office.start_running("sends-one@1", "runs already")
        a = await office.start_waiting("sends-one@1", "a", behind=0)
        b = await office.start_waiting("sends-one@1", "b", behind=1)
        urgent = await office.start_waiting("sends-urgently@1", "urgent", behind=2)
        seen.go_on.set()
        await asyncio.gather(*(run.result() for run in (first, a, b, urgent)))
    assert seen.order == ["runs already", "urgent", "a", "b"]


async def test_one_who_fills_the_queue_does_not_hold_up_another(office: Office, seen: Seen):
    await office.declare("emails: {concurrency: 1}")
    async with office.replicas():
        crowd = await office.start("sends@1", [f"crowd {number}" for number in range(20)])
        await office.waiting(19)
        single = await office.start_waiting("sends-one@1", "single", behind=19)
        seen.go_on.set()
        await asyncio.gather(crowd.result(), single.result())
    assert seen.order.index("single") <= 3


async def test_with_a_limit_for_each_key_nobody_waits_behind_the_crowd_of_another(
    office: Office, seen: Seen
):
    await office.declare("emails: {concurrency: 5, perKey: 1}")
    async with office.replicas():
        crowd = [await office.start("sends-for-tenants@1", [f"a {n}"]) for n in range(40)]
        await asyncio.gather(
            *(eventually(partial(is_at_a_worker, run), every=0.5) for run in crowd)
        )
        others = [await office.start_running("sends-for-tenants@1", [f"b {n}"]) for n in range(4)]
        seen.go_on.set()
        await asyncio.gather(*(run.result() for run in others))
        before = seen.done[: seen.done.index("b 3")]
        assert sum(name.startswith("a ") for name in before) < 6
        await asyncio.gather(*(run.result() for run in crowd))
    assert seen.most_of_tenant == 1
    assert len(seen.done) == 44


async def test_a_limit_for_each_key_holds_for_all_replicas_together_and_only_for_that_key(
    office: Office, seen: Seen
):
    await office.declare("emails: {concurrency: 10, perKey: 2}")
    names = [f"{tenant} {number}" for number in range(8) for tenant in "abc"]
    async with office.replicas(3):
        run = await office.start("sends-for-tenants@1", names)
        await eventually(lambda: seen.running == 6)
        seen.go_on.set()
        runs = Runs(office.client, "office", queues)
        assert await runs.end(run) == names, "and its history is replayed"
    assert (seen.most_of_tenant, seen.most) == (2, 6)


async def has_more_time(run: WorkflowHandle) -> bool:
    pending = (await run.describe()).raw_description.pending_activities
    return any(each.activity_options.start_to_close_timeout.seconds >= 4 for each in pending)


@pytest.mark.parametrize(
    "workflow", ["sends-briefly@1", pytest.param("prints@1", marks=pytest.mark.prove)]
)
async def test_the_time_in_which_a_step_waits_for_its_key_is_not_its_own(
    office: Office, seen: Seen, workflow: str
):
    await office.declare("emails: {concurrency: 5, perKey: 1}")
    async with office.replicas():
        first = await office.start("sends-for-tenants@1", ["a long"])
        await eventually(lambda: seen.running == 1)
        brief = await office.start(workflow, "a brief")
        await eventually(partial(has_more_time, brief), timeout=30)
        seen.go_on.set()
        assert await brief.result() == "a brief"
        await first.result()


@pytest.mark.parametrize(
    "workflow", ["sends-briefly@1", pytest.param("prints@1", marks=pytest.mark.prove)]
)
async def test_a_step_that_is_cancelled_while_it_waits_for_its_key_does_nothing(
    office: Office, seen: Seen, workflow: str
):
    await office.declare("emails: {concurrency: 5, perKey: 1}")
    async with office.replicas():
        first = await office.start("sends-for-tenants@1", ["a long"])
        await eventually(lambda: seen.running == 1)
        second = await office.start(workflow, "a cancelled")
        await eventually(partial(is_at_a_worker, second))
        await second.cancel()
        with pytest.raises(WorkflowFailureError):
            await second.result()
        seen.go_on.set()
        await first.result()
    assert seen.done == ["a long"]


async def is_at_a_worker(run: WorkflowHandle) -> bool:
    pending = (await run.describe()).raw_description.pending_activities
    return any(each.HasField("last_started_time") for each in pending)


async def test_a_step_that_waits_for_its_key_loses_no_attempt_when_its_worker_stops(
    office: Office, seen: Seen
):
    async def left() -> bool:
        (pending,) = (await second.describe()).raw_description.pending_activities
        return "this worker stops" in pending.last_failure.message

    async def go_on_when_it_has_left() -> None:
        await eventually(left)
        seen.go_on.set()

    await office.declare("emails: {concurrency: 5, perKey: 1}")
    async with office.replicas(name="first"):
        first = await office.start("sends-for-tenants@1", ["a long"])
        await eventually(lambda: seen.running == 1)
        second = await office.start("sends-briefly@1", "a second")  # it has one attempt
        await eventually(partial(is_at_a_worker, second))
        going_on = asyncio.create_task(go_on_when_it_has_left())
    await going_on
    async with office.replicas(name="second"):
        assert await second.result() == "a second"
    await first.result()


async def test_a_limit_for_each_key_comes_and_goes_with_the_file(office: Office, seen: Seen):
    await office.declare("emails: {concurrency: 5, perKey: 1}")
    async with office.replicas():
        run = await office.start("sends-for-tenants@1", ["a 1", "a 2", "a 3", "b 1"])
        await eventually(lambda: seen.running == 2)
        await office.declare("emails: {concurrency: 5, perKey: 3}")
        await eventually(lambda: seen.running == 4)
        await office.declare("emails: {concurrency: 5}")
        seen.go_on.set()
        await run.result()
    assert seen.most_of_tenant == 3


async def test_a_step_whose_queue_nobody_declared_waits_until_somebody_does(
    office: Office, seen: Seen
):
    seen.go_on.set()
    await office.declare("text: {concurrency: 1}")
    async with office.replicas():
        run = await office.start("sends-elsewhere@1", "hello")

        def told() -> bool:
            alerts = [event for event in office.events if isinstance(event, Alert)]
            return any(
                "step queued-send names queue texts" in alert.text
                and "declares (did you mean text?); run " in alert.text
                and run.id in alert.text
                for alert in alerts
                if alert.code == "SCHEDULE_QUEUE_UNKNOWN"
            )

        await eventually(told)
        assert seen.order == []
        await office.declare("texts: {concurrency: 1}")
        assert await run.result() == "hello"


async def test_a_worker_says_at_its_start_which_queue_of_its_steps_nobody_declared(
    office: Office, seen: Seen
):
    async with office.replicas():
        await eventually(
            lambda: any(
                isinstance(event, Alert) and "its calls wait until one does" in event.text
                for event in office.events
            )
        )


async def test_a_queue_that_is_made_larger_runs_more_at_once(office: Office, seen: Seen):
    await office.declare("emails: {concurrency: 1}")
    async with office.replicas():
        run = await office.start("sends@1", ["a", "b", "c"])
        await eventually(lambda: seen.running == 1)
        await office.declare("emails: {concurrency: 3}")
        await eventually(lambda: seen.running == 3)
        seen.go_on.set()
        await run.result()


async def test_a_queue_that_is_made_smaller_lets_what_runs_end_first(office: Office, seen: Seen):
    await office.declare("emails: {concurrency: 5}")
    async with office.replicas():
        before = await office.start("sends@1", ["a", "b", "c"])
        # It polls with the others, and gives those back when it hears of the smaller queue.
        await eventually(lambda: held(office, 5), every=0.1)
        await eventually(lambda: seen.running == 3)
        await office.declare("emails: {concurrency: 1}")
        await eventually(lambda: held(office, 3), every=0.1)
        after = await office.start("sends@1", ["d", "e", "f"])
        earlier, seen.go_on, seen.most = seen.go_on, asyncio.Event(), 0
        earlier.set()
        await before.result()
        await eventually(lambda: seen.running == 1)
        seen.go_on.set()
        await after.result()
    assert seen.most == 1


async def test_a_queue_whose_kind_of_limit_changes_does_not_disturb_the_others(
    office: Office, seen: Seen
):
    await office.declare("emails: {concurrency: 1}, texts: {concurrency: 1}")
    async with office.replicas():
        a = await office.start("sends-one@1", "a")
        b = await office.start("sends-elsewhere@1", "b")
        await eventually(lambda: seen.running == 2)
        await office.declare("emails: {rate: 100/1s}, texts: {concurrency: 1}")
        # Its lane closes for as long as a worker may take to drain, which is longer than a lease.
        await eventually(lambda: seen.order.count("a") == 2, timeout=30)
        seen.go_on.set()
        assert [await a.result(), await b.result()] == ["a", "b"]
    assert seen.order.count("b") == 1


async def test_a_rate_holds_from_the_first_poll_and_until_the_file_has_no_more_rate(
    office: Office, seen: Seen
):
    async def by_the_server() -> tuple[float, int]:
        request = DescribeTaskQueueRequest(
            namespace=office.client.namespace,
            task_queue=TaskQueue(name="office/emails"),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            report_stats=True,
        )
        described = await office.client.workflow_service.describe_task_queue(request)
        limit = described.effective_rate_limit
        return limit.requests_per_second, limit.rate_limit_source

    async def limited(to: float, by: str) -> bool:
        rate, source = await by_the_server()
        return abs(rate - to) < 0.01 and source == RateLimitSource.Value(f"RATE_LIMIT_SOURCE_{by}")

    async def unlimited() -> bool:
        return (await by_the_server())[1] == RateLimitSource.RATE_LIMIT_SOURCE_SYSTEM

    await office.declare("emails: {concurrency: 2, rate: 120/1m}")
    async with office.replicas():
        await eventually(lambda: limited(2, "API"))
        # A limit that the server was told of, and has forgotten: the polls repeat it.
        await limit_rate(office.client, "office/emails", None, patience=timedelta(seconds=5))
        await eventually(lambda: limited(2, "WORKER"))
        await office.declare("emails: {concurrency: 2, rate: 600/1m}")
        await eventually(lambda: limited(10, "API"))
        await office.declare("emails: {concurrency: 2}")
        await eventually(unlimited)


async def held(office: Office, slots: int) -> bool:
    return sum((await held_slots(office.ledger)).values()) == slots


async def test_a_replica_that_leaves_gives_back_its_slots_at_once(office: Office, seen: Seen):
    await office.declare("emails: {concurrency: 2}")
    async with office.replicas():
        await eventually(lambda: held(office, 2), every=0.1)
    assert await held(office, 0)


async def test_a_replica_that_leaves_lets_the_steps_of_its_queues_end(
    office: Office, seen: Seen, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "temporalio")
    await office.declare("emails: {concurrency: 1}")

    async def go_on_when_both_workers_drain() -> None:
        await eventually(lambda: caplog.text.count("Beginning worker shutdown") == 2)
        assert await held(office, 1), "what still runs keeps its slot"
        seen.go_on.set()

    async with office.replicas():
        run = await office.start("sends-one@1", "a")
        await eventually(lambda: seen.running == 1)
        going_on = asyncio.create_task(go_on_when_both_workers_drain())
    await going_on
    async with office.replicas():
        assert await run.result() == "a"
    assert seen.order == ["a"], "it was not begun again"


async def test_steps_end_when_their_replica_cannot_reach_the_ledger_and_are_tried_again(
    client: Client, seen: Seen, database_url: str
):
    database = await asyncpg.connect(database_url)
    async with office_of(client, database_url) as office:
        await office.declare("emails: {concurrency: 1}")
        async with office.replicas():
            run = await office.start("sends-one@1", "a")
            await eventually(lambda: seen.running == 1)
            await database.execute("ALTER TABLE sched.queue_slots RENAME TO away")
            await eventually(lambda: seen.running == 0)
            await database.execute("ALTER TABLE sched.away RENAME TO queue_slots")
            seen.go_on.set()
            assert await run.result() == "a"
    assert seen.order == ["a", "a"]
    await database.close()
