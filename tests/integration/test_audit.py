"""The audit's own proof: what is wrong in a ledger or in Temporal is found and named."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.worker import Worker

from engine.audit.visibility import TemporalRuns
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.service import KeyAudit, ScheduleService
from tests.sample_workflows import Noop
from tests.servers import register_namespace, run_apart
from tests.waiting import eventually

KEYS = ("good", "cron", "dropped", "doubled", "early", "shifted", "held", "off")
FILE = """
schedules:
  - {key: good, workflow: noop, everyMs: 1000, firstFire: next}
  - {key: cron, workflow: noop, cron: "* * * * * *", timezone: Asia/Kathmandu}
  - {key: dropped, workflow: noop, everyMs: 1000, firstFire: next}
  - {key: doubled, workflow: noop, everyMs: 1000, firstFire: next}
  - {key: early, workflow: noop, everyMs: 1000, firstFire: next}
  - {key: shifted, workflow: noop, everyMs: 2000, firstFire: next}
  - {key: held, workflow: noop, everyMs: 1000, firstFire: next}
  - {key: off, workflow: noop, everyMs: 1000, exclude: ["2000-01-01"]}
"""
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


class Audited:
    """A ledger and a namespace with a few windows of each schedule, and ways to spoil them."""

    def __init__(self, ledger, client, connection) -> None:
        self.ledger, self.client, self.sql = ledger, client, connection
        self.service = ScheduleService(ledger, actor="test")
        self.runs = TemporalRuns(client)

    async def verdicts(self, **options) -> dict[str, KeyAudit]:
        report = await self.service.audit(HOUR, **options)
        return {each.key: each for each in report.schedules}

    async def third(self, key: str):
        """A window in the middle that has run."""
        (row,) = await self.sql.fetch(
            "SELECT * FROM fires WHERE key = $1 AND status = 'completed'"
            " ORDER BY fire_time OFFSET 2 LIMIT 1", key,
        )  # fmt: skip
        return row


@asynccontextmanager
async def worker(client, database_url, file=FILE) -> AsyncIterator[None]:
    plugin = SchedulePlugin(load_schedules(file), database_url=database_url)
    async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):
        yield


async def until_completed(ledger, least: dict[str, int]) -> None:
    async def enough() -> bool:
        for key, count in least.items():
            if len(await ledger.fires(key=key, status="completed", limit=9)) < count:
                return False
        return True

    await eventually(enough, timeout=60, every=0.2)


async def until_settled(ledger, keys) -> None:
    """Pause the schedules, and wait until nothing of theirs is open."""
    service = ScheduleService(ledger, actor="test")
    for key in keys:
        await service.pause(key, reason="nothing is due when the worker is gone")

    async def settled() -> bool:
        return not any([await ledger.fires(status=each) for each in ("started", "starting")])

    await eventually(settled, timeout=60, every=0.2)


@pytest.fixture(scope="module")
def sound(postgres, migrated, temporal) -> Iterator[tuple[str, str]]:
    """A database and a namespace in which a worker has run every schedule, and rests."""
    name = f"test_{uuid.uuid4().hex}"

    async def make() -> None:
        url = await postgres.create_database(name, migrated)
        await register_namespace(await Client.connect(temporal.address), name)
        client = await Client.connect(temporal.address, namespace=name)
        ledger = await Ledger.connect(url, namespace=name)
        async with worker(client, url):
            await until_completed(ledger, {key: 3 if key == "shifted" else 4 for key in KEYS})
            await until_settled(ledger, KEYS)
        await ledger.close()

    run_apart(make())
    yield name, name
    run_apart(postgres.drop_database(name))


@asynccontextmanager
async def opened(client, url) -> AsyncIterator[Audited]:
    ledger = await Ledger.connect(url, namespace=client.namespace)
    connection = await asyncpg.connect(url, server_settings={"search_path": "sched"})
    yield Audited(ledger, client, connection)
    await connection.close()
    await ledger.close()


@pytest.fixture
async def audited(sound, postgres, temporal) -> AsyncIterator[Audited]:
    """A copy of that database, to be spoilt; the namespace is the same."""
    database, namespace = sound
    name = f"test_{uuid.uuid4().hex}"
    url = await postgres.create_database(name, database)
    async with opened(await Client.connect(temporal.address, namespace=namespace), url) as made:
        yield made
    await postgres.drop_database(name)


async def test_each_window_that_is_wrong_in_the_ledger_is_found_and_named(audited):
    """Dropped, doubled, early, shifted, fired in a pause or on a day off, given up too soon."""
    rows = {key: await audited.third(key) for key in KEYS}
    run = audited.sql.execute
    await run("DELETE FROM fires WHERE id = $1", rows["dropped"]["id"])
    await run(
        "INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,"
        " definition_version, workflow_id, workflow_type, task_queue, status, timing, run_id,"
        " started_at, closed_at) SELECT namespace, project, key, 2, bucket, fire_time,"
        " last_fire_time, 1, workflow_id || ':s2', workflow_type, task_queue, status, timing,"
        " 'another', started_at, closed_at FROM fires WHERE id = $1", rows["doubled"]["id"],
    )  # fmt: skip
    await run("UPDATE fires SET started_at = fire_time - interval '30 s' WHERE id = $1",
              rows["early"]["id"])  # fmt: skip
    await run("UPDATE fires SET fire_time = fire_time - interval '700 ms',"
              " last_fire_time = fire_time - interval '700 ms' WHERE id = $1",
              rows["shifted"]["id"])  # fmt: skip
    at = rows["held"]["fire_time"]
    await run(
        "INSERT INTO actions (namespace, project, key, verb, by, at, before, after)"
        " SELECT $1, 'default', 'held', v.verb, 'ana', v.at, v.before, v.after FROM (VALUES"
        " ('pause', $2::timestamptz, NULL::jsonb, jsonb_build_object('paused', jsonb_build_object("
        "  'at', $2::timestamptz, 'until', NULL))),"
        " ('resume', $3::timestamptz, jsonb_build_object('paused', jsonb_build_object("
        "  'at', $2::timestamptz)), NULL)) AS v (verb, at, before, after)",
        audited.client.namespace, at - SECOND / 2, at + 20 * SECOND,
    )  # fmt: skip
    day = f'["{at:%Y-%m-%d}"]'
    await run("UPDATE definitions SET definition = definition || jsonb_build_object('exclude',"
              " $1::jsonb) WHERE key = 'off'", day)  # fmt: skip
    await run("UPDATE fires SET status = 'expired', reason = 'older than the catch-up window',"
              " reason_code = 'expired', run_id = NULL, started_at = NULL, closed_at = NULL,"
              " timing = NULL WHERE id = $1", rows["cron"]["id"])  # fmt: skip
    found = await audited.verdicts()

    def faults(key: str) -> list[tuple]:
        return [(fault.kind, fault.fire_time) for fault in found[key].faults]

    assert found["good"].verdict == "complete"
    assert faults("dropped") == [("missing", rows["dropped"]["fire_time"])]
    assert faults("doubled") == [("doubled", rows["doubled"]["fire_time"])]
    assert faults("early") == [("early", rows["early"]["fire_time"])]
    shifted = rows["shifted"]["fire_time"]
    assert faults("shifted") == [
        ("phantom", shifted - timedelta(milliseconds=700)),
        ("missing", shifted),
    ]
    assert "seems shifted by -0.7 s" in found["shifted"].faults[0].what
    assert found["held"].verdict == "phantom"
    assert ("phantom", at) in faults("held")
    assert "although its schedule was paused" in found["held"].faults[0].what
    assert found["off"].verdict == "phantom"
    assert "although it is excluded: " in found["off"].faults[0].what
    assert faults("cron") == [("missing", rows["cron"]["fire_time"])]
    assert "within its grace" in found["cron"].faults[0].what


async def test_what_is_complete_stays_so_until_something_is_wrong_in_temporal(audited):
    """A run that is gone, a second one, one that the ledger denies, one that it does not have."""
    for runs in (None, audited.runs):
        found = await audited.verdicts(runs=runs)
        assert {key: each.faults for key, each in found.items() if each.faults} == {}
        assert {each.verdict for each in found.values()} == {"complete"}
        assert all(each.statuses["completed"] >= 3 for each in found.values())
        assert found.keys() == set(KEYS)
    rows = {key: await audited.third(key) for key in KEYS}
    client, run = audited.client, audited.sql.execute
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=rows["dropped"]["workflow_id"]),
        )
    )
    again = await client.get_workflow_handle(rows["doubled"]["workflow_id"]).describe()
    await client.start_workflow(
        "noop@1", id=again.id, task_queue="nowhere", memo=await again.memo(),
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    )  # fmt: skip
    await run("UPDATE fires SET status = 'skipped', reason = 'user', reason_code = 'user',"
              " run_id = NULL, started_at = NULL, closed_at = NULL, timing = NULL WHERE id = $1",
              rows["held"]["id"])  # fmt: skip
    between = f"{rows['off']['fire_time']:%Y-%m-%dT%H:%M:%S}.500Z"
    of_nothing = {"key": "off", "bucket": 7, "fire_time": between}
    memo = {"sched": {**(await again.memo())["sched"], **of_nothing}}
    await client.start_workflow("noop@1", id="sched:off:7", task_queue="nowhere", memo=memo)
    await client.start_workflow(
        "noop@1", id="sched:good:7", task_queue="nowhere",
        memo={"sched": {**memo["sched"], "key": "good", "ledger": "another"}},
    )  # fmt: skip
    assert {each.verdict for each in (await audited.verdicts()).values()} == {"complete"}

    async def seen():
        found = await audited.verdicts(runs=audited.runs)
        verdicts = {key: each.verdict for key, each in found.items()}
        assert verdicts == {
            "good": "complete", "cron": "complete", "early": "complete", "shifted": "complete",
            "dropped": "missing", "doubled": "doubled", "held": "phantom", "off": "phantom",
        }, verdicts  # fmt: skip
        return found

    found = await eventually(seen, timeout=60, every=0.3)  # visibility is eventual
    assert "Temporal does not know it" in found["dropped"].faults[0].what
    assert "Temporal has 2 runs of it" in found["doubled"].faults[0].what
    assert "the ledger has it as skipped" in found["held"].faults[0].what
    assert "the ledger has no row of it" in found["off"].faults[0].what
    assert [len(each.faults) for each in found.values()].count(1) == 4
    report = await audited.service.audit(HOUR, runs=audited.runs)
    assert any("runs are of another ledger" in note for note in report.notes)


async def test_runs_of_a_schedule_that_the_ledger_has_lost_are_told(audited):
    client, rows = audited.client, [await audited.third(key) for key in ("good", "cron")]
    memos = [
        await (await client.get_workflow_handle(row["workflow_id"]).describe()).memo()
        for row in rows
    ]
    for number, memo in enumerate(memos):
        lost = {**memo["sched"], "key": "lost", "bucket": number}
        await client.start_workflow(
            "noop@1", id=f"sched:lost:{number}", task_queue="nowhere", memo={"sched": lost}
        )

    async def seen() -> bool:
        report = await audited.service.audit(HOUR, runs=audited.runs)
        return (report.unknown, report.is_clean) == ({"lost": 2}, False)

    await eventually(seen, timeout=60, every=0.3)  # visibility is eventual
    (only,) = (await audited.service.audit(HOUR, key="good", runs=audited.runs)).schedules
    assert only.key == "good"
    project = await audited.service.audit(HOUR, project="default", runs=audited.runs)
    assert project.unknown == {}


CHANGED = """
schedules:
  - {key: edited, workflow: noop, everyMs: %s, firstFire: next}
  - {key: held, workflow: noop, everyMs: 1000, enabled: %s}
  - {key: off, workflow: noop, everyMs: 1000, exclude: [%s]}
"""


@pytest.mark.prove
async def test_edits_pauses_and_days_off_leave_every_window_accounted_for(client, database_url):
    """A pause and its end, another series, disabled and back, every day off."""
    day = timedelta(days=1)
    now = datetime.now(UTC)
    these = f"{now - day:%Y-%m-%d}..{now + day:%Y-%m-%d}"
    before, after = CHANGED % (1000, "true", "2000-01-01"), CHANGED % (1500, "false", these)
    async with opened(client, database_url) as audited:
        async with worker(client, database_url, before):
            await until_completed(audited.ledger, {"edited": 2, "held": 2})
            await audited.service.pause("edited", reason="a while")
        async with worker(client, database_url, after):

            async def skipped() -> bool:
                return bool(await audited.ledger.fires(key="held", reason_code="disabled"))

            # A window has to pass in the pause, however fast the worker has started.
            passed = datetime.now(UTC) + timedelta(seconds=2)
            await eventually(lambda: datetime.now(UTC) > passed, every=0.1)
            await audited.service.resume("edited")
            count = len(await audited.ledger.fires(key="edited", status="completed"))
            await until_completed(audited.ledger, {"edited": count + 2})
            await apply(audited.ledger, load_schedules(before), by="test")
            await eventually(skipped, timeout=30, every=0.2)
            await until_settled(audited.ledger, ["edited", "held", "off"])
        found = await audited.verdicts(runs=audited.runs)
        assert {key: each.faults for key, each in found.items() if each.faults} == {}
        assert found["edited"].statuses["skipped"] >= 1
        assert found["edited"].statuses["completed"] >= 4
        codes = {row["reason_code"] for row in await audited.sql.fetch("SELECT * FROM fires")}
        assert {"paused", "disabled", "excluded"} <= codes
        rows = await audited.sql.fetch("SELECT DISTINCT series FROM fires WHERE key = 'edited'")
        assert {row["series"] for row in rows} >= {1, 2}


async def test_a_window_is_explained_with_its_rule_and_what_the_planner_says_again(audited):
    row = await audited.third("cron")
    found = await audited.service.explain("cron", row["fire_time"])
    assert found.replay is not None
    assert found.replay.agrees, found.text
    for said in ("in Asia/Kathmandu", "definition 1 (* * * * * *)",
                 "claimed, because every", "It is completed now.", row["replica"], row["run_id"],
                 "zone rules 20", "decides the same"):  # fmt: skip
        assert said in found.text
    (skipped,) = await audited.sql.fetch(
        "SELECT last_fire_time FROM fires WHERE key = 'good' ORDER BY fire_time DESC LIMIT 1"
    )
    between = await audited.service.explain("good", row["fire_time"] + SECOND / 2)
    assert not between.is_window
    assert "the next one is" in between.text
    to_come = await audited.service.explain("good", skipped["last_fire_time"] + HOUR)
    assert "It is still to come." in to_come.text
    await audited.sql.execute("DELETE FROM fires WHERE id = $1", row["id"])
    gone = await audited.service.explain("cron", row["fire_time"])
    assert gone.is_fault
    assert gone.text.endswith("decided beyond it: it is missing.")


async def test_a_window_that_was_decided_otherwise_than_planned_is_told(audited):
    row = await audited.third("cron")
    await audited.sql.execute(
        "UPDATE fires SET status = 'skipped', reason = 'coalesced into 1', reason_code ="
        " 'coalesced', run_id = NULL, started_at = NULL, closed_at = NULL, timing = NULL"
        " WHERE id = $1", row["id"],
    )  # fmt: skip
    found = await audited.service.explain("cron", row["fire_time"])
    assert found.replay is not None
    assert found.replay.agrees is False
    assert "decides otherwise: claimed, on_time" in found.text
