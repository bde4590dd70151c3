"""What a real server says of itself, and what becomes of it where a role may not ask."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from engine.ledger import Ledger
from engine.ledger.records import Lineage, Serving
from engine.runtime.tick.failover import FailoverDetector

SERVING = Serving("one", "default", "sched", frozenset())
FORBIDDEN = ("pg_control_system()", "pg_walfile_name(pg_lsn)")


@pytest.fixture
async def forbidden_url(database_url: str) -> AsyncIterator[str]:
    """The address of a ledger for a role with the rights of a worker, and no other."""
    await (await Ledger.connect(database_url)).close()
    owner = await asyncpg.connect(database_url)
    role = f"worker_{uuid.uuid4().hex}"
    await owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'worker'")
    await owner.execute(f"GRANT USAGE ON SCHEMA sched TO {role}")
    await owner.execute(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sched TO {role}"
    )
    await owner.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sched TO {role}")
    for function in FORBIDDEN:
        await owner.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    place = urlsplit(database_url)
    yield database_url.replace(place.netloc.partition("@")[0], f"{role}:worker")
    await owner.execute(f"DROP OWNED BY {role}")
    await owner.execute(f"DROP ROLE {role}")
    await owner.close()


async def test_a_server_tells_its_system_and_timeline_and_the_ledger_keeps_them(database_url):
    ledger = await Ledger.connect(database_url)
    here, noted = await ledger.lineage()
    assert noted == Lineage()
    assert here.system is not None
    assert here.timeline == 1
    await FailoverDetector(ledger, on_event=print).observe(await ledger.probe(SERVING))
    assert await ledger.lineage() == (here, here)
    await ledger.close()


async def test_a_role_that_may_not_ask_still_sees_that_transactions_are_gone(
    forbidden_url, database_url
):
    told: list[object] = []
    ledger = await Ledger.connect(forbidden_url)
    assert await ledger.lineage() == (Lineage(), Lineage())
    continuity = FailoverDetector(ledger, on_event=told.append)
    probe = await ledger.probe(SERVING)
    assert not await continuity.observe(probe)
    continuity._transactions = probe.transactions + 1_000_000
    assert await continuity.observe(await ledger.probe(SERVING))
    assert "transactions that this replica has seen are missing" in str(told)
    assert (await ledger.probe(SERVING)).suspect_until == continuity.suspect_until
    await ledger.close()


async def test_a_server_numbers_ever_more_transactions(database_url):
    ledger = await Ledger.connect(database_url)
    before = await ledger.probe(SERVING)
    await ledger.note_lineage(Lineage("s", 1), suspect=True)
    after = await ledger.probe(SERVING)
    assert after.transactions > before.transactions
    assert after.server == before.server
    assert after.met == before.met, "as it was found, whatever has been written since"
    assert before.met is not None
    assert before.met <= before.transactions
    await ledger.close()
