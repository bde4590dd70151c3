"""The first input that is sealed in a ledger, and code of before that migration."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from engine.errors import LedgerTooNew
from engine.ledger import PostgresLedger
from engine.ledger.fires import Outcome
from engine.ledger.postgres.connections import Connections
from engine.ledger.postgres.schema import migrate, migrations, version_of
from engine.ledger.records import Serving
from engine.schedules import load_schedules
from engine.schedules.terms import Sealed
from engine.service import ScheduleService
from tests.conformance.test_sealed_inputs import CONVERTER, FILE

SEALED = version_of("sealed_inputs")
OLDER = [each for each in migrations() if each.version < SEALED]


@pytest.fixture
async def ledger(database_url):
    opened = await PostgresLedger.connect(database_url, namespace="test")
    yield opened
    await opened.close()


@pytest.fixture
async def connections(database_url):
    opened = await Connections.open(database_url, schema="sched", most=2)
    yield opened
    await opened.close()


async def an_older_worker(ledger, connections, version: int | None) -> None:
    """Let a replica of older code live, in another namespace than the team's."""
    await ledger.announce(
        Serving("old", "default", "sched", frozenset()), engine="0", tzdata="0", retention=None
    )
    await connections.fetch("UPDATE replicas SET schema_version = $1, namespace = 'b'", version)


@pytest.mark.parametrize("version", [None, SEALED - 1])
async def test_nothing_is_sealed_while_a_worker_lives_that_could_not_read_it(
    ledger, connections, caplog, version
):
    team = ScheduleService(ledger, actor="team", data_converter=CONVERTER)
    await an_older_worker(ledger, connections, version)
    with caplog.at_level(logging.WARNING, "sched"):
        await team.apply(load_schedules(FILE))
        await team.schedule_at("noop", "2099-01-01T00:00:00Z", input=1)
    told = [each for each in caplog.messages if "a worker of an older version lives" in each]
    assert len(told) == 1
    row = await ScheduleService(ledger, actor="others").schedule("k")
    assert row.schedule is not None
    assert not isinstance(row.schedule.input, Sealed)
    await migrate(connections, known=OLDER)
    await connections.fetch("DELETE FROM replicas")
    assert (await team.apply(load_schedules(FILE))).edits == {"k": ("input is sealed now",)}


async def test_code_that_cannot_read_sealed_inputs_starts_until_something_is_sealed(
    ledger, connections
):
    await migrate(connections, known=OLDER)
    await ScheduleService(ledger, actor="others").apply(load_schedules(FILE))
    await migrate(connections, known=OLDER)
    team = ScheduleService(ledger, actor="team", data_converter=CONVERTER)
    await team.apply(load_schedules(FILE))
    with pytest.raises(LedgerTooNew):
        await migrate(connections, known=OLDER)
    await migrate(connections)


async def test_a_sweep_of_older_code_passes_a_sealed_input_by(ledger, connections):
    await ledger.announce(
        Serving("new", "default", "sched", frozenset({"noop@1"})), engine="0", tzdata="0",
        retention=None,
    )  # fmt: skip
    team = ScheduleService(ledger, actor="team", data_converter=CONVERTER)
    started = await team.start("noop", 1, id="7")
    took = await connections.fetch(
        "UPDATE fires SET status = 'starting', owner = 'old', token = gen_random_uuid(),"
        " lease_until = clock_timestamp(), starting_at = clock_timestamp() RETURNING id"
    )
    assert took == [], "as its take_over.sql would"
    new = Serving("new", "default", "sched", frozenset({"noop@1"}))
    (claim,) = await ledger.take_over(new, limit=9, lease=timedelta(seconds=9))
    assert claim.workflow_id == started.workflow_id
    assert await ledger.renew([claim], timedelta(seconds=9)) == {claim.fire_id}
    later = Outcome(claim.fire_id, claim.token, "starting", retry_after=timedelta(0))
    assert await ledger.settle([later]) == 1
    (again,) = await ledger.take_over(new, limit=9, lease=timedelta(seconds=9))
    assert not again.fresh
