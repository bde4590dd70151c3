"""``sched doctor``: each line is good, or has a hint that says what to do."""

from __future__ import annotations

import json
import os
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from temporalio.client import Client

from engine.cli.app import run
from engine.ledger import Ledger, SeenReplica, Serving
from engine.runtime.apply.apply import apply
from engine.runtime.temporal_client import describe_namespace, register_keyword
from engine.schedules import KEY_ATTRIBUTE, load_schedules
from engine.schedules.timing.zones import TZDATA_VERSION
from engine.service.doctor import _of_clock, _of_queues, _of_retention, _of_tzdata
from engine.testing.server import register_namespace, run_apart
from tests.servers import Temporal
from tests.unit.test_cli_listing import row

FILE = """
hooks: [{url: "https://hooks.example/x", secret: "${env:HOOK}", events: [schedule.changed]}]
schedules:
  - {key: a, workflow: noop, every: 1h}
  - {key: b, workflow: noop, every: 1h, taskQueue: mail}
"""
SERVING = Serving("host:7:abc", "default", "sched", frozenset({"noop@1"}))


@pytest.fixture
def installation(
    shared_database_url: str, temporal: Temporal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A ledger with a living worker of one of two task queues, in a namespace of its own."""
    name = f"doctor-{uuid.uuid4().hex}"
    for variable in [each for each in os.environ if each.startswith(("SCHED_", "TEMPORAL_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHED_DATABASE_URL", shared_database_url)
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", name)
    Path("schedules.yaml").write_text(FILE)
    run_apart(prepare(shared_database_url, temporal.address, name))
    return name


async def prepare(url: str, address: str, name: str) -> None:
    await register_namespace(await Client.connect(address), name)
    client = await Client.connect(address, namespace=name)
    assert await register_keyword(client, KEY_ATTRIBUTE) is None
    ledger = await Ledger.connect(url, namespace=name)
    await ledger.bind(await describe_namespace(client, timedelta(seconds=5)), by="test")
    await ledger.announce(SERVING, engine="0", tzdata=TZDATA_VERSION, retention=timedelta(days=1))
    await apply(ledger, load_schedules(FILE), by="test")
    await ledger.close()


def findings(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    code = run(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["good"] is (code == 0)
    return code, {each["name"]: each for each in told["findings"]}


def test_every_part_is_looked_at_and_what_is_wrong_has_a_hint(installation, capsys):
    code, found = findings(capsys)
    assert code == 1
    assert {name for name, each in found.items() if not each["good"]} == {"role", "task queue mail"}
    assert list(found) == [
        "postgresql", "role", "connections", "migrations", "clock", "namespace", "retention",
        "search attributes", "task queue mail", "task queue sched", "tzdata", "webhooks", "file",
    ]  # fmt: skip
    assert all(each["hint"] for each in found.values() if not each["good"])
    assert found["task queue sched"]["text"] == "polled by host:7:abc, for 1 schedule"
    assert found["task queue mail"]["hint"] == "start a worker: `sched worker --task-queue mail`"
    assert found["webhooks"]["text"] == "1 declared, none fails"

    Path("schedules.yaml").write_text(FILE.replace("1h", "2h", 1))
    run(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok     postgresql         PostgreSQL 1")
    assert "wrong  file               1 schedule differs from the ledger's" in lines
    assert lines[-1].strip() == "`sched plan schedules.yaml` shows what an apply would change"


def test_a_namespace_that_the_ledger_does_not_belong_to_is_named(
    installation, capsys, monkeypatch, temporal
):
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    _, found = findings(capsys)
    assert found["temporal"]["good"] is None
    assert found["temporal"]["text"].startswith("not asked: no Temporal server answers")
    assert found["task queue sched"]["good"], "the ledger knows its worker"

    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.address)
    run_apart(bound_elsewhere(installation))
    _, found = findings(capsys)
    assert not found["namespace"]["good"]
    assert "`sched move`" in found["namespace"]["hint"]

    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://127.0.0.1:1/nowhere")
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.address)
    code, found = findings(capsys)
    assert (code, found["postgresql"]["good"]) == (1, False)


def seen(tzdata: str = "2026f", replica: str = "r") -> SeenReplica:
    now = datetime.now(UTC)
    return SeenReplica(
        replica=replica, project="default", task_queue="sched", types=frozenset(), engine="0",
        tzdata=tzdata, started_at=now, seen_at=now, heartbeat=timedelta(seconds=1),
    )  # fmt: skip


def test_a_ledger_that_is_not_there_is_named_and_not_made(installation, capsys, monkeypatch):
    monkeypatch.setenv("SCHED_SCHEMA", "nowhere")
    code, found = findings(capsys)
    assert (code, found["migrations"]["good"], found["temporal"]["good"]) == (1, False, True)
    assert found["migrations"]["hint"].startswith("`sched migrate` brings it up to date")
    assert not run_apart(has_schema("nowhere"))


async def has_schema(name: str) -> bool:
    admin = await asyncpg.connect(os.environ["SCHED_DATABASE_URL"])
    found = await admin.fetchval("SELECT to_regnamespace($1)", name)
    await admin.close()
    return found is not None


async def bound_elsewhere(name: str) -> None:
    admin = await asyncpg.connect(os.environ["SCHED_DATABASE_URL"])
    await admin.execute(
        "UPDATE sched.bindings SET namespace_id = 'another' WHERE namespace = $1", name
    )
    await admin.close()


def test_a_worker_is_named_once_though_the_sdk_polls_by_another_name():
    living = [seen(replica="me:7:abc"), seen(replica="mine")]
    (found,) = _of_queues([row("a", 60)], living, {"sched": ["7@me", "8@me", "mine"]})
    assert found.text == "polled by 8@me, me:7:abc, mine, for 1 schedule"


def test_clocks_retention_and_zone_rules_are_judged():
    second, most = timedelta(seconds=1), timedelta(seconds=5)
    assert _of_clock(second, most).good
    assert not _of_clock(-8 * second, most).good
    assert _of_retention(timedelta(hours=1), [], timedelta(seconds=30)).good
    short = _of_retention(timedelta(seconds=60), [], timedelta(seconds=30))
    assert (short.good, short.hint) == (
        False, "raise it to 4 leases of 30 s or more, or lower SCHED_LEASE",
    )  # fmt: skip
    assert _of_tzdata([]).good is None
    assert _of_tzdata([seen("2026f"), seen("2026f")]).good
    assert not _of_tzdata([seen("2026f"), seen("2025b")]).good
