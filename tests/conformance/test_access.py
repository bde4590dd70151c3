"""Access to the API, pages of fires and edits of schedules."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from engine.errors import NotCancellable, OwnedByFile, ScheduleError, VersionOutdated
from engine.ledger import RequestKey
from engine.service import ScheduleService
from engine.service.tokens import keys_match

DAY, MINUTE, NOTHING = timedelta(days=1), timedelta(minutes=1), timedelta(0)
FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
OF = RequestKey("bot", "POST /x", "one")


@pytest.fixture
def service(ledger):
    return ScheduleService(ledger, actor="test")


# --- tokens ---


async def test_a_token_is_known_by_its_secret_until_it_is_revoked(service):
    made = await service.create_token("bot", scope="operate", keys=["billing.*", "a"])
    found = await service.token_of(made.secret)
    assert (found.name, found.scope, found.keys) == ("bot", "operate", ("billing.*", "a"))
    assert await service.token_of(made.secret[:-1] + "~") is None
    assert await service.token_of(made.secret.replace(made.row.id, "0" * 16)) is None
    await service.revoke_token("bot")
    assert await service.token_of(made.secret) is None
    again = await service.create_token("bot", scope="read")
    listed = [(row.id, row.in_force) for row in await service.tokens()]
    assert listed == [(again.row.id, True), (made.row.id, False)]


PATTERNS = [
    ("billing.*", "billing.nightly", True),
    ("billing.*", "billing", False),
    ("billing.*", "xbilling.nightly", False),
    ("billing.*", "billingx", False),
    ("a?c", "abc", True),
    ("a?c", "ac", False),
    ("a_c", "abc", False),
    ("*", "anything", True),
    ("*.daily", "a.b.daily", True),
]


async def test_a_pattern_stands_for_whole_keys_here_and_in_the_ledger(service):
    for key in {key for _, key, _ in PATTERNS}:
        await service.schedule_repeat("noop", key=key, everyMs=60000)
    for pattern, key, matches in PATTERNS:
        assert keys_match([pattern], key) is matches
        page = await service.list(keys=("no.such.key", pattern))
        assert (key in {row.key for row in page.schedules}) is matches, (pattern, key)


# --- requests that may be repeated ---


async def claimed(ledger, digest="d", *, lease=MINUTE, kept=DAY):
    return await ledger.access.claim(OF, digest, lease=lease, kept=kept)


async def test_a_request_is_taken_by_one_and_answered_to_all(ledger):
    rows = await asyncio.gather(*(claimed(ledger) for _ in range(20)))
    (mine,) = [row for row, is_mine in rows if is_mine]
    await ledger.access.answer(OF, mine.claim, "done")
    row, is_mine = await claimed(ledger)
    assert (row.answer, row.attempts, is_mine) == ("done", 1, False)
    other, is_mine = await claimed(ledger, "another")
    assert (other.digest, is_mine) == ("d", False)


async def test_a_request_without_an_end_is_taken_over_and_keeps_its_first_moment(ledger):
    first, _ = await claimed(ledger)
    assert (await claimed(ledger))[1] is False, "its lease has not ended"
    await ledger.access.release(OF, first.claim)
    assert (await claimed(ledger, "another"))[1] is False
    second, is_mine = await claimed(ledger)
    assert (is_mine, second.attempts, second.first_at) == (True, 2, first.first_at)
    await ledger.access.answer(OF, first.claim, "too late")
    await ledger.access.drop(OF, first.claim)
    assert (await claimed(ledger))[0].answer is None, "it is not the first one's any more"


async def test_a_refused_request_and_one_of_yesterday_count_for_nothing(ledger, clock):
    first, _ = await claimed(ledger)
    await ledger.access.drop(OF, first.claim)
    second, is_mine = await claimed(ledger, "another")
    assert (is_mine, second.attempts) == (True, 1)
    await ledger.access.answer(OF, second.claim, "done")
    clock.advance(MINUTE)
    third, is_mine = await claimed(ledger, "third", kept=NOTHING)
    assert (is_mine, third.attempts, third.answer) == (True, 1, None)
    clock.advance(MINUTE)
    await ledger.access.forget(requests=NOTHING, sessions=NOTHING)
    assert (await claimed(ledger, "fourth"))[1] is True


# --- pages of fires ---


async def test_pages_of_fires_have_each_fire_once(ledger, service, bench):
    await bench.declare("schedules: [{key: busy, workflow: noop, everyMs: 60000, overlap: skip}]")
    for n in range(5):
        await service.trigger("busy", request_id=f"r{n}")
    await service.cancel("busy")
    await service.trigger("busy", request_id="last")
    every = await service.fires(key="busy", limit=100)
    for statuses in ((), ("skipped",), ("claimed", "queued"), ("completed",)):
        wanted = [fire for fire in every if not statuses or fire.status in statuses]
        seen, after = [], None
        while page := await service.fires_page("busy", statuses=statuses, after=after, limit=2):
            seen += page
            after = page[-1].fire_time, page[-1].workflow_id
        assert sorted(each.workflow_id for each in seen) == sorted(
            each.workflow_id for each in wanted
        )
        assert [each.fire_time for each in seen] == sorted(
            (each.fire_time for each in seen), reverse=True
        )
    (found,) = await service.fires_page("busy", reason_code="user", limit=10)
    assert found.reason_code == "user"
    at = every[0].fire_time
    assert await service.fires_page("busy", since=at + MINUTE) == []
    assert await service.fires_page("busy", after=(at + MINUTE, ""), until=FIRST) == []
    assert await service.fires_page("busy", until=FIRST) == []
    assert len(await service.fires_page("busy", since=FIRST, until=LAST, limit=100)) == len(every)


async def test_pages_up_to_the_moment_of_a_fire_end(service, bench):
    await bench.declare("schedules: [{key: busy, workflow: noop, everyMs: 60000, overlap: skip}]")
    for n in range(3):
        await service.trigger("busy", request_id=f"r{n}")
        bench.wait()
    every = await service.fires(key="busy", limit=100)
    for newest in every:
        until = newest.fire_time
        wanted = [fire for fire in every if fire.fire_time <= until]
        seen, after = [], None
        for _ in range(len(every) + 1):
            page = await service.fires_page("busy", until=until, after=after, limit=1)
            seen += [fire.workflow_id for fire in page]
            after = (page[-1].fire_time, page[-1].workflow_id) if page else after
        assert seen == [fire.workflow_id for fire in wanted]


# --- edits ---


async def test_an_edit_changes_what_it_names_and_fails_on_another_version(ledger, service):
    await service.schedule_repeat("noop", key="mine", everyMs=60000, input={"a": 1})
    row = await service.edit("mine", {"cron": "0 2 * * *", "overlap": "skip"}, version=1)
    assert (row.definition_version, row.schedule.when) == (2, "0 2 * * *")
    assert row.schedule.input == {"a": 1}
    with pytest.raises(VersionOutdated, match="mine has version 2, not 1"):
        await service.edit("mine", {"overlap": "allow"}, version=1)
    row = await service.edit("mine", {"input": {"b": 2}, "overlap": None})
    assert (row.schedule.input, row.schedule.overlap) == ({"b": 2}, "allow")
    assert not (await service.edit("mine", {"input": None})).schedule.has_input
    assert (await service.edit("mine", {"every": "2m"})).schedule.when == "every 2m"
    with pytest.raises(ScheduleError, match="key cannot be edited"):
        await service.edit("mine", {"key": "other"})
    with pytest.raises(VersionOutdated):
        await service.retire("mine", version=1)
    assert (await service.retire("mine", version=5, reason="over")).changed
    assert not (await service.retire("mine")).changed
    with pytest.raises(NotCancellable, match="mine was retired at"):
        await service.edit("mine", {"overlap": "skip"})


async def test_a_retired_schedule_leaves_its_open_runs_alone(service, bench):
    await service.schedule_repeat("noop", key="mine", everyMs=60000)
    await service.trigger("mine", request_id="waits")
    await service.retire("mine")
    (fire,) = [each for each in await service.fires(key="mine") if each.timing == "manual"]
    assert fire.status == "skipped", "its start was not being sent"
    assert (await service.schedule("mine")).state == "retired"


async def test_a_schedule_of_a_file_is_edited_in_its_file(service, bench):
    await bench.declare("schedules: [{key: filed, workflow: noop, everyMs: 60000}]")
    for edit in (service.edit("filed", {"overlap": "skip"}), service.retire("filed")):
        with pytest.raises(OwnedByFile):
            await edit
