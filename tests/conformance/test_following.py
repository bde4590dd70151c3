"""What a stream of executions sends, look by look."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from engine.api import following
from engine.api.following import Following, LeftOut
from engine.errors import LedgerUnavailable
from engine.service import Fire, ScheduleService
from tests.conformance.past import HOUR, declare_ago, operator, run_of
from tests.conformance.test_dead_letters import end

EACH_MINUTE = "everyMs: 60000, overlap: allow, catchUp: {policy: all, max: 1000}"


@pytest.fixture
def looks(bench, monkeypatch) -> Looks:
    """A service with small pages, which counts what is read of them."""
    for name, number in {"NEWEST": 10, "PAGE": 20, "PAGES": 3, "BEFORE": 50}.items():
        monkeypatch.setattr(following, name, number)
    return Looks(bench.ledger)


class Looks(ScheduleService):
    """A service that counts its reads, and fails once as many are done as a test says."""

    def __init__(self, ledger) -> None:
        super().__init__(ledger, actor="ops")
        self.reads, self.left = 0, 1_000_000

    async def fires_page(self, *arguments, **options):
        self.reads, self.left = self.reads + 1, self.left - 1
        if self.left < 0:
            raise LedgerUnavailable("it is away")
        return await super().fires_page(*arguments, **options)

    async def fire(self, workflow_id):
        self.reads += 1
        return await super().fire(workflow_id)


async def sent(of: Following) -> list[tuple[str, str]]:
    """Take one look; return the run and the status of each event."""
    return [(each.workflow_id, each.status) async for each in of.look()]  # type: ignore[union-attr]


async def begun(looks: Looks, limit: int = 10) -> Following:
    made = Following(looks, "k", limit=limit)
    await sent(made)
    return made


async def runs(bench) -> list[str]:
    """Return the runs of all fires, the oldest first."""
    fires = await operator(bench).fires(key="k", limit=10_000)
    return [fire.workflow_id for fire in sorted(fires, key=lambda fire: fire.fire_time)]


async def test_a_look_at_which_nothing_is_new_is_one_statement(bench, looks):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    for claim in await bench.claim():
        await run_of(bench, claim)
        await end(bench, claim.workflow_id, "completed")
    of = await begun(looks)
    looks.reads = 0
    assert (await sent(of), looks.reads) == ([], 1)


async def test_it_begins_with_the_newest_the_oldest_of_them_first(bench, looks):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    await bench.claim()
    every = await runs(bench)
    of = Following(looks, "k", limit=3)
    assert await sent(of) == [(run, "starting") for run in every[-3:]]
    assert await sent(of) == []


async def test_one_tick_that_writes_more_rows_than_a_look_reads_loses_none(bench, looks):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    of = await begun(looks)
    await bench.claim()
    every = await runs(bench)
    assert len(every) >= 60 > following.NEWEST
    assert [run for run, _ in await sent(of)] == every, "each once, the oldest first"
    assert await sent(of) == []


async def test_rows_that_come_below_one_that_is_known_are_sent_once(bench, looks):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    of = await begun(looks)
    ahead = bench.now().replace(second=0, microsecond=0) + timedelta(hours=3)
    await operator(bench).skip("k", ahead)
    got = await sent(of)
    await bench.claim()
    got += await sent(of)
    assert sorted(run for run, _ in got) == sorted(await runs(bench))
    assert len(got) > 60


async def test_the_end_of_every_run_comes_however_many_are_open(bench, looks):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    of = await begun(looks)
    claims = await bench.claim()
    await sent(of)
    for claim in claims:
        await run_of(bench, claim)
    assert {status for _, status in await sent(of)} == {"started"}
    ended = []
    for claim in claims:
        await end(bench, claim.workflow_id, "completed")
    for _ in range(10):
        ended += await sent(of)
    assert sorted(ended) == sorted((claim.workflow_id, "completed") for claim in claims)


async def test_a_resumed_stream_sends_all_that_came_since_the_oldest_first(bench, looks):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    await bench.claim()
    every = await runs(bench)
    fire = await operator(bench).fire(every[5])
    of = Following(looks, "k", limit=3, place=(fire.fire_time, fire.workflow_id))
    assert [run for run, _ in await sent(of)] == every
    assert await sent(of) == []


async def test_a_resumed_stream_sends_the_ends_of_runs_that_were_open_before_its_place(
    bench, looks
):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    claims = sorted(await bench.claim(), key=lambda claim: claim.fire_time)
    for claim in claims:
        await run_of(bench, claim)
    of = await begun(looks)
    first, second = claims[20], claims[30]
    await end(bench, first.workflow_id, "completed")
    resumed = Following(looks, "k", limit=10, place=of.place)
    assert (first.workflow_id, "completed") in await sent(resumed)
    await end(bench, second.workflow_id, "failed")
    assert await sent(resumed) == [(second.workflow_id, "failed")], "it was open at the first look"


async def test_what_is_too_much_for_one_look_is_a_gap_with_its_two_ends(bench, looks):
    await declare_ago(bench, EACH_MINUTE, 2 * HOUR)
    await bench.claim(limit=1000)
    every = await runs(bench)
    first = await operator(bench).fire(every[0])
    of = Following(looks, "k", limit=10, place=(first.fire_time, first.workflow_id))
    gap, *found = [each async for each in of.look()]
    assert isinstance(gap, LeftOut)
    assert [each.workflow_id for each in found if isinstance(each, Fire)] == every[-70:]
    page = await operator(bench).fires_page("k", since=gap.since, until=gap.until, limit=1000)
    assert {*every[:-70]} <= {fire.workflow_id for fire in page}, "pages have what was left out"
    assert await sent(of) == []


async def test_a_ledger_that_is_away_in_between_loses_nothing(bench, looks):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    of = await begun(looks)
    await bench.claim()
    got: list[str] = []
    for left in (1, 2, 3, 4, 1_000_000):
        looks.left = left
        with suppress(LedgerUnavailable):
            async for each in of.look():
                assert not isinstance(each, LeftOut)
                got += [each.workflow_id]
    assert sorted(got) == sorted(await runs(bench))


async def test_a_window_that_is_skipped_ahead_is_no_place_to_continue(bench, looks, clock):
    # What is ahead is said by the clock of the API's machine.
    clock.move_to((datetime.now(UTC) - timedelta(minutes=1)).replace(second=30))
    await declare_ago(bench, EACH_MINUTE, HOUR)
    await bench.claim()
    ahead = bench.now().replace(second=0, microsecond=0) + timedelta(hours=3)
    skipped = (await operator(bench).skip("k", ahead)).workflow_id
    of = Following(looks, "k", limit=5)
    assert (await sent(of))[-1] == (skipped, "skipped")
    assert of.place is not None
    assert of.place[0] <= datetime.now(UTC) < ahead
    resumed = Following(looks, "k", limit=5, place=of.place)
    await operator(bench).trigger("k", request_id="later")
    assert {"sched:k:manual:later", skipped} <= {run for run, _ in await sent(resumed)}


async def test_what_was_sent_and_is_forgotten_is_not_sent_again(bench, looks):
    await declare_ago(bench, EACH_MINUTE, HOUR)
    of = await begun(looks)
    for claim in await bench.claim():
        await run_of(bench, claim)
        await end(bench, claim.workflow_id, "completed")
    assert len(await sent(of)) >= 60
    assert len(of._seen) == 2 * following.NEWEST
    for number in range(following.NEWEST):
        await operator(bench).trigger("k", request_id=f"{number}")
    assert len(await sent(of)) == following.NEWEST
