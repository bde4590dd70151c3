"""A run is its whole chain: its first run names it, and a wish to end it lasts to its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from engine.errors import Code
from engine.ledger.fires import Evidence, KnownRun, Outcome
from engine.runtime.events import Alert, Event
from engine.runtime.tracking.runs import reconcile_runs
from tests.conformance.conftest import NOW
from tests.conformance.past import LEASE, operator, run_of, taken

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000}]"
REPLACED = (
    "schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: cancel_previous,"
    " cancelGrace: 2s}]"
)
QUEUE = (
    "schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: queue},"
    " {key: alone, workflow: noop, everyMs: 3600000}]"
)
ALIVE = timedelta(seconds=30)


async def started(bench, claim, run_id: str, first: str | None) -> None:
    now = bench.now()
    outcome = Outcome(claim.fire_id, claim.token, "started", "on_time", run_id, now,
                      first_run_id=first)  # fmt: skip
    assert await bench.ledger.settle([outcome]) == 1


def seen(claim, run_id: str, first: str | None, closed=None) -> Evidence:
    now = NOW
    return Evidence(claim.workflow_id, run_id, now, closed, now if closed else None,
                    last=True, first_run_id=first)  # fmt: skip


async def first_run(bench, name: str) -> str | None:
    known: KnownRun | None = (await bench.ledger.known_runs([name])).get(name)
    return known.first_run_id if known else None


async def orders(bench):
    return await bench.ledger.take_stops(bench.serving, limit=10, lease=LEASE)


async def in_the_way(bench, replica="replica-a", *, orphans=False, limit=10) -> list[str]:
    runs = await bench.ledger.in_the_way(replica, alive=ALIVE, orphans=orphans, limit=limit)
    return [run.workflow_id for run in runs]


async def test_the_first_run_of_a_chain_is_noted_once_and_stays(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    assert await first_run(bench, claim.workflow_id) is None
    await started(bench, claim, "one", "one")
    await bench.ledger.record_evidence([seen(claim, "two", "one", "failed")])
    assert await first_run(bench, claim.workflow_id) == "one"
    assert await bench.ledger.record_evidence([seen(claim, "three", "three", "completed")]) == []
    assert await first_run(bench, claim.workflow_id) == "one"
    fire = await bench.ledger.fire(claim.workflow_id)
    assert (fire.run_id, fire.status) == ("two", "failed")


async def test_of_a_row_that_names_no_first_run_the_run_that_was_started_is_it(bench):
    """As replicas write it that know nothing of chains."""
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await run_of(bench, claim, "one")
    assert await first_run(bench, claim.workflow_id) == "one"
    assert await first_run(bench, "sched:k:unheard-of") is None


async def test_the_first_run_is_learned_from_whoever_sees_the_run(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await run_of(bench, claim, "two")
    await operator(bench).cancel("k")
    (order,) = await orders(bench)
    assert order.first_run_id is None
    await bench.ledger.stopped([replace(order, first_run_id="one")])
    assert await first_run(bench, claim.workflow_id) == "one"


async def test_a_wish_is_looked_at_again_soon_until_its_run_has_ended(bench):
    """What was asked may continue as new, or be retried, and never hear of it."""
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await started(bench, claim, "one", "one")
    await operator(bench).cancel("k")
    (order,) = await orders(bench)
    assert (order.stop, order.asked, order.first_run_id) == ("cancel", False, "one")
    assert await orders(bench) == [], "another has it"
    await bench.ledger.stopped([order])

    async def again():
        return await orders(bench)

    (order,) = await bench.until(again)
    assert (order.stop, order.asked) == ("cancel", True)
    await bench.ledger.stopped([order])
    await bench.ledger.record_evidence([seen(claim, "two", "one", "cancelled")])
    assert (await bench.ledger.probe(bench.serving)).stop_at is None


async def test_the_grace_of_a_cancel_counts_from_the_first_time_it_was_asked(bench):
    await bench.declare(REPLACED)
    (claim,) = await bench.claim()
    await started(bench, claim, "one", "one")
    await operator(bench).trigger("k")
    begun = bench.now()
    said: list[str] = []

    async def terminated() -> bool:
        for order in await orders(bench):
            said.append(order.stop)
            await bench.ledger.stopped([order])
        return "terminate" in said

    await bench.until(terminated)
    assert said[:-1] == ["cancel"] * (len(said) - 1)
    assert len(said) > 2, "it was looked at meanwhile"
    took = bench.now() - begun
    assert timedelta(seconds=1.9) < took < timedelta(seconds=6)


async def test_a_run_that_begins_again_after_its_end_is_not_ended_by_the_old_wish(bench):
    """A reset of what was cancelled is somebody's newer wish."""
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await started(bench, claim, "one", "one")
    await operator(bench).cancel("k")
    await bench.ledger.record_evidence([seen(claim, "one", "one", "cancelled")])
    await bench.ledger.record_evidence([seen(claim, "reset", "one")])
    assert (await bench.ledger.fire(claim.workflow_id)).status == "started"
    assert await orders(bench) == []
    assert (await bench.ledger.probe(bench.serving)).stop_at is None


async def test_what_a_line_waits_for_is_waited_for_by_whoever_started_it(bench):
    await bench.declare(QUEUE)
    await bench.announce(bench.other)
    for claim in await bench.claim():
        await run_of(bench, claim, claim.workflow_id)
    assert await in_the_way(bench) == [], "nobody waits"
    ops = operator(bench)
    await ops.trigger("k")
    await ops.trigger("alone")
    (run,) = await in_the_way(bench)
    assert run.startswith("sched:k:")
    assert await in_the_way(bench, "replica-b", orphans=True) == []
    await bench.ledger.record_evidence([Evidence(run, "late", bench.now(), "completed")])
    assert await in_the_way(bench) == []


async def test_the_runs_of_a_replica_that_has_gone_are_waited_for_by_one_other(bench):
    await bench.declare(QUEUE)
    await bench.announce(bench.other)
    for claim in await bench.claim():
        await run_of(bench, claim, claim.workflow_id)
    await operator(bench).trigger("k")
    await bench.announce(heartbeat=timedelta(minutes=1))
    gone = timedelta(0)
    assert await bench.ledger.in_the_way("replica-b", alive=gone, orphans=True, limit=9) == []
    await bench.ledger.withdraw(bench.serving)
    assert await in_the_way(bench, "replica-b") == []
    (run,) = await in_the_way(bench, "replica-b", orphans=True)
    assert run.startswith("sched:k:")


async def test_the_oldest_line_is_waited_for_first(bench):
    names = ["c", "a", "b"]
    entries = [f"{{key: {n}, workflow: noop, everyMs: 3600000, overlap: queue}}" for n in names]
    await bench.declare(f"schedules: [{', '.join(entries)}]")
    for claim in await bench.claim():
        await run_of(bench, claim, claim.workflow_id)
    ops = operator(bench)
    for name in names:
        await ops.trigger(name)
    await ops.trigger("a")
    found = [run.split(":")[1] for run in await in_the_way(bench)]
    assert found == names
    assert [run.split(":")[1] for run in await in_the_way(bench, limit=2)] == names[:2]
    assert await taken(bench) == []


async def test_a_second_run_of_a_window_that_is_not_of_its_chain_is_reported(bench):
    """Both did their work, which the ledger and Temporal together should have prevented."""
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await started(bench, claim, "one", "one")
    alerts: list[Event] = []
    chains: dict[str, str] = {}

    async def chain_of(run: Evidence) -> str | None:
        return chains.get(run.run_id)

    async def reconcile(run_id: str, first: str | None, closed="failed") -> list[str]:
        alerts.clear()
        found = [(seen(claim, run_id, first, closed), None)]
        await reconcile_runs(
            bench.ledger, found, by="me", on_event=alerts.append, chain_of=chain_of
        )
        return [each.code for each in alerts if isinstance(each, Alert)]

    assert await reconcile("one", "one") == []
    assert await reconcile("reset", "one") == []
    assert await reconcile("other", "other", None) == [Code.RUN_DOUBLED], "although it is open"
    assert "run other is not of the chain of run one" in str(alerts[0])
    assert await reconcile("other", "other") == [], "once"
    assert await reconcile("third", None, "completed") == [], "nobody says of which chain it is"
    chains["third"] = "third"
    assert await reconcile("third", None, "completed") == [Code.RUN_DOUBLED]
    fire = await bench.ledger.fire(claim.workflow_id)
    assert (fire.run_id, fire.status) == ("reset", "failed")
    details = await bench.ledger.run_details(claim.workflow_id)
    assert details.second_runs == ("other", "third")
    explained = await operator(bench).explain("k", claim.fire_time)
    assert "somebody has started other, third under its id" in explained.text
    audit = await operator(bench).audit(timedelta(hours=1))
    assert {each.kind for each in audit.schedules[0].faults} == {"doubled"}
