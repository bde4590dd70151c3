# ruff: noqa: S106 - names of variables, no secrets
"""Each transition is one event, in the transaction that makes it; each subscription gets it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from engine.events.messages import ScheduleEvent
from engine.ledger import Attempt, EventRow, Subscription
from engine.ledger.fires import Evidence, Outcome
from engine.schedules import Hook
from engine.schedules.terms import Reason
from tests.conformance.conftest import NOW
from tests.conformance.past import HOUR, LEASE, MINUTE, backfilled, declare_ago, operator, run_of

HOURLY = "schedules: [{key: hourly, workflow: noop, everyMs: 3600000, topic: bills.due}]"
ALL = Subscription(name="listener:all", kind="listener", events=("schedule.*",))
DAY = timedelta(days=1)
AT_ONCE = timedelta(0)
UNSURE = Reason("may_have_run", "may have run")


async def listened(bench, subscription: Subscription = ALL) -> Subscription:
    await bench.ledger.events.subscribe(subscription, lasts=DAY, by="test")
    return subscription


async def placed(bench):
    """The events that have no position yet, once they have one."""
    book = bench.ledger.events
    before = await book.newest(limit=1)
    number = await book.place(1000)
    events = await book.read(before[0].position if before else 0, 1000)
    assert len(events) == number
    return events


async def types(bench) -> list[str]:
    return [event.type for event in await placed(bench)]


def seen(claim, closed=None, *, run_id="run", error=None) -> Evidence:
    now = NOW
    return Evidence(claim.workflow_id, run_id, now, closed, now if closed else None, error)


async def claimed(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    return claim


# --- transitions ---


async def test_nothing_is_written_while_there_is_no_subscription(bench):
    await run_of(bench, await claimed(bench))
    assert await placed(bench) == []
    await bench.ledger.events.subscribe(ALL, lasts=AT_ONCE, by="test")
    await operator(bench).pause("hourly", reason="x")
    assert await placed(bench) == [], "it has ended"
    assert not (await bench.ledger.events.work("a", [ALL.name])).subscribed


async def test_a_run_arrives_and_ends(bench):
    await listened(bench)
    claim = await claimed(bench)
    await run_of(bench, claim)
    assert await types(bench) == ["created", "arrived"]
    await bench.ledger.record_evidence([seen(claim, "failed", error="no money")])
    (event,) = await placed(bench)
    assert (event.type, event.error, event.run_id) == ("failed", "no money", "run")
    assert event.names == ("schedule.failed", "schedule.dead")
    assert event.event_id == f"{claim.workflow_id}:failed:run"


async def test_a_bad_end_is_an_event_and_has_followers_once_its_reason_is_known(bench):
    await listened(bench)
    claim = await claimed(bench)
    await run_of(bench, claim)
    await placed(bench)
    end = replace(seen(claim, "failed"), unread=True)
    await bench.ledger.record_evidence([end])
    (fire,) = await bench.ledger.fires(key="hourly")
    assert fire.status == "failed", "what waits for the run goes on"
    assert await types(bench) == []
    assert not await bench.ledger.anything_ended()
    (unread,) = await bench.ledger.unread_ends(10)
    assert (unread.evidence.closed, unread.run_id) == ("failed", "run")
    known = replace(end, error="no money", unread=False)
    assert await bench.ledger.note_failures([known]) == {claim.workflow_id}
    assert await bench.ledger.note_failures([known]) == set(), "it is noted once"
    (event,) = await placed(bench)
    assert (event.type, event.error, event.run_id) == ("failed", "no money", "run")
    assert await bench.ledger.anything_ended()
    assert await bench.ledger.unread_ends(10) == []


async def test_of_many_unread_ends_each_schedule_has_its_turn_the_newest_first(bench):
    for key, age in (("a", 9), ("b", 2)):
        await declare_ago(bench, "everyMs: 1000, grace: 1h", timedelta(seconds=age), key=key)
    claims = sorted(await bench.claim(limit=20), key=lambda each: each.fire_time)
    for claim in claims:
        await run_of(bench, claim, run_id=f"run-{claim.bucket}")
        end = replace(seen(claim, "failed", run_id=f"run-{claim.bucket}"), unread=True)
        await bench.ledger.record_evidence([end])
    newest = {claim.key: claim.workflow_id for claim in claims}
    assert [claim.key for claim in claims].count("a") > 5
    first = await bench.ledger.unread_ends(10)
    assert {each.key: each.workflow_id for each in first} == newest
    assert [each.key for each in await bench.ledger.unread_ends(1)] == ["a"]
    assert [each.key for each in await bench.ledger.unread_ends(1, after="a")] == ["b"]


async def test_the_events_of_a_schedule_are_numbered_without_gaps(bench):
    """Seed 000, events: two names for each fire, and stable ids."""
    await listened(bench)
    claim = await claimed(bench)
    await run_of(bench, claim)
    created, arrived = await placed(bench)
    assert [created.sequence, arrived.sequence] == [1, 2]
    assert arrived.position == created.position + 1
    assert arrived.names == ("schedule.arrived", "schedule.bills.due.arrived")
    await bench.declare("schedules: [{key: other, workflow: noop, everyMs: 3600000}]", prune=False)
    await bench.ledger.record_evidence([seen(claim, "completed")])
    rows = {event.type: event for event in await placed(bench)}
    assert (rows["completed"].sequence, rows["created"].sequence) == (3, 1)
    read = await bench.ledger.events.read(created.position, 10)
    assert [event.event_id for event in read][:1] == [arrived.event_id]


async def test_a_run_that_is_seen_only_once_it_has_closed_has_arrived_as_well(bench):
    claim = await claimed(bench)
    await listened(bench)
    await bench.ledger.record_evidence([seen(claim, "completed")])
    assert await types(bench) == ["arrived", "completed"]


async def test_a_run_that_is_reset_has_not_arrived_again_and_ends_again(bench):
    claim = await claimed(bench)
    await listened(bench)
    await bench.ledger.record_evidence([seen(claim, "failed")])
    await bench.ledger.record_evidence([seen(claim, run_id="again")])
    await bench.ledger.record_evidence([seen(claim, "failed", run_id="again")])
    events = await placed(bench)
    assert [event.type for event in events] == ["arrived", "failed", "failed"]
    assert len({event.event_id for event in events}) == 3


async def test_evidence_that_changes_nothing_is_no_event(bench):
    claim = await claimed(bench)
    await listened(bench)
    for _ in range(2):
        await bench.ledger.record_evidence([seen(claim, "completed")])
    await bench.ledger.seen_open([claim.workflow_id], bench.now())
    assert await types(bench) == ["arrived", "completed"]


@pytest.mark.parametrize("status", ["rejected", "unvouched"])
async def test_a_start_that_is_denied_is_an_event(bench, status):
    claim = await claimed(bench)
    await listened(bench)
    outcome = Outcome(claim.fire_id, claim.token, status, reason=UNSURE)
    assert await bench.ledger.settle([outcome]) == 1
    (event,) = await placed(bench)
    assert (event.type, event.reason_code) == (status, "may_have_run")


async def test_windows_that_were_missed_are_one_event_of_as_many_windows(bench):
    first = await declare_ago(bench, "everyMs: 60000, firstFire: next", HOUR)
    await listened(bench)
    await bench.claim()
    (event,) = await placed(bench)
    assert (event.type, event.reason_code) == ("skipped", "coalesced")
    assert event.names == ("schedule.skipped", "schedule.missed")
    assert event.windows >= 58
    assert event.fire_time <= first + 2 * MINUTE


async def test_a_row_that_is_split_is_no_news_and_its_runs_are(bench):
    first = await declare_ago(bench, "everyMs: 60000, firstFire: next", HOUR, paused=True)
    await operator(bench).resume("k")
    await bench.claim()
    await listened(bench)
    bench.wait()
    _, claims = await backfilled(bench, first + 10 * MINUTE, first + 12 * MINUTE)
    assert claims
    assert await types(bench) == []
    await run_of(bench, claims[0])
    assert await types(bench) == ["arrived"]


async def test_a_transaction_that_fails_leaves_no_event(bench):
    await listened(bench)
    await bench.declare(HOURLY)
    await placed(bench)

    async def half_way():
        async with bench.ledger.transaction() as transaction:
            await transaction.retire(["hourly"], bench.now())
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        await half_way()
    assert await placed(bench) == []


async def test_each_change_of_a_schedule_is_an_event(bench):
    await listened(bench)
    ops = operator(bench)
    await bench.declare(HOURLY)
    await bench.declare(HOURLY.replace("3600000", "7200000"))
    await ops.pause("hourly", reason="stocktaking")
    await ops.resume("hourly")
    async with bench.ledger.transaction() as transaction:
        await transaction.retire(["hourly"], bench.now())
    await bench.declare(HOURLY)
    events = await placed(bench)
    changes = [each for each in events if each.workflow_id is None]
    assert [(each.type, each.definition_version) for each in changes] == [
        ("created", 1), ("changed", 2), ("paused", 2), ("resumed", 2), ("retired", 2),
        ("created", 3),
    ]  # fmt: skip
    assert changes[2].reason == "stocktaking"
    assert len({each.event_id for each in events}) == len(events)


async def test_a_started_workflow_is_a_fire_without_a_schedule(bench):
    await listened(bench)
    await operator(bench).start("noop", {"a": 1}, id="order-7")
    assert await placed(bench) == []
    (claim,) = await bench.ledger.take_over(bench.serving, limit=10, lease=LEASE)
    await run_of(bench, claim)
    (event,) = await placed(bench)
    assert (event.key, event.type) == ("@noop", "arrived")
    (read,) = await bench.ledger.events.read((event.position or 0) - 1, 1)
    message = ScheduleEvent.of(read, "schedule.arrived", "test")
    assert message.data["userPayload"] == {"a": 1}


async def test_a_message_has_what_the_seed_asks_for(bench):
    """Seed 000, the event contract."""
    await listened(bench)
    text = "{key: k, workflow: noop, cron: '* * * * *', timezone: America/Lima, topic: a.b, "
    await bench.declare(
        f"schedules: [{text}input: {{n: 1}}, metadata: {{ownerId: o, tenantId: t, x: 1}}}}]"
    )
    ops = operator(bench)
    asked = await ops.trigger("k", request_id="r")
    (claim,) = await bench.ledger.take_over(bench.serving, limit=10, lease=LEASE)
    await run_of(bench, claim)
    event = (await placed(bench))[-1]
    message = ScheduleEvent.of(event, "schedule.a.b.arrived", "test")
    fire = await ops.fire(asked.fire.workflow_id)
    expected = {
        "scheduledJobId": "k",
        "topic": "a.b",
        "userPayload": {"n": 1},
        "metadata": {
            "ownerId": "o", "tenantId": "t", "correlationId": None, "clientRequestId": None
        },
        "timezone": "America/Lima",
        "attempt": 1,
        "maxAttempts": 1,
    }  # fmt: skip
    assert expected.items() <= message.data.items()
    assert datetime.fromisoformat(message.data["firedAt"]) == fire.started_at
    assert datetime.fromisoformat(message.data["originalScheduledAt"]) == fire.fire_time
    assert message.type == "arrived"
    assert message.id == f"{claim.workflow_id}:arrived:run:schedule.a.b.arrived"


# --- subscriptions ---


async def test_a_new_subscription_gets_events_from_then_on(bench):
    await listened(bench)
    await bench.declare(HOURLY)
    (created,) = await placed(bench)
    late = await listened(bench, Subscription(name="listener:b", kind="listener", events=("x*",)))
    await listened(bench)
    by_name = {each.name: each for each in await bench.ledger.events.subscriptions()}
    assert by_name[ALL.name].position < created.position == by_name[late.name].position
    assert by_name[late.name].wanted(created) == ()


async def test_one_holder_at_a_time_delivers(bench):
    await listened(bench)
    await bench.declare(HOURLY)
    await placed(bench)
    book = bench.ledger.events
    assert (await book.work("a", [ALL.name])).due == (ALL.name,)
    assert (await book.work("a", [])).due == (), "it has no such listener"
    assert await book.take(ALL.name, "a", LEASE)
    assert await book.take(ALL.name, "b", LEASE) is None
    assert (await book.work("b", [ALL.name])).due == ()
    assert not await book.settle(ALL.name, "b", position=9, fresh=[], again=[])
    assert await book.settle(ALL.name, "a", position=1, fresh=[], again=[])
    assert (await book.work("a", [ALL.name])).due == ()
    await book.give_back("a")
    taken = await book.take(ALL.name, "b", LEASE)
    assert taken
    assert taken.position == 1


async def test_a_lease_that_has_ended_is_taken_over(bench):
    await listened(bench)
    book = bench.ledger.events
    assert await book.take(ALL.name, "a", AT_ONCE)
    assert await book.take(ALL.name, "b", LEASE)
    assert await book.take(ALL.name, "a", LEASE) is None


async def delivering(bench, *tries: Attempt, holder="a"):
    """Settle attempts of fresh events."""
    book = bench.ledger.events
    assert await book.take(ALL.name, holder, LEASE)
    position = max(each.position for each in tries)
    assert await book.settle(ALL.name, holder, position=position, fresh=tries, again=[])


def attempt(event, attempts, *, wait=AT_ONCE, **more) -> Attempt:
    return Attempt(
        position=event.position, name=event.names[0], key=event.key, attempts=attempts, wait=wait,
        **more,
    )  # fmt: skip


async def test_what_failed_is_due_again_and_blocks_its_schedule_until_its_first_retry(bench):
    await listened(bench)
    await run_of(bench, await claimed(bench))
    created, arrived = await placed(bench)
    book = bench.ledger.events
    await delivering(bench, attempt(created, 1, wait=HOUR, error="503"), attempt(arrived, 0))
    assert await book.blocked(ALL.name) == {"hourly"}
    assert await book.due(ALL.name, 10, retries=10) == []

    again = [attempt(created, 2, wait=HOUR, error="503")]
    assert await book.settle(ALL.name, "a", position=0, fresh=[], again=again)
    assert await book.blocked(ALL.name) == {"hourly"}, "the one that waits is next"
    (due,) = await book.due(ALL.name, 10, retries=10)
    assert (due.event.type, due.attempts) == ("arrived", 0)
    again = [attempt(arrived, 1, done=True)]
    assert await book.settle(ALL.name, "a", position=0, fresh=[], again=again)
    assert await book.blocked(ALL.name) == set()
    assert await book.due(ALL.name, 10, retries=10) == []


async def test_what_was_put_back_takes_no_place_of_a_retry_and_passes_none(bench):
    """However many wait: the retry that is due is read, and nothing behind it."""
    await listened(bench)
    await bench.declare(HOURLY)
    other = "schedules: [{key: other, workflow: noop, everyMs: 3600000}]"
    await bench.declare(other, prune=False)
    for pause in range(3):
        await operator(bench).pause("hourly", reason=str(pause))
        await operator(bench).resume("hourly")
    first, second, *later = await placed(bench)
    assert (first.key, second.key) == ("hourly", "other")
    assert len(later) > 2
    assert {each.key for each in later} == {"hourly"}
    book = bench.ledger.events
    soon = timedelta(milliseconds=1)
    put_back = [attempt(event, 0) for event in later]
    failed = [attempt(first, 1, wait=HOUR, error="503"), attempt(second, 1, wait=soon)]
    await delivering(bench, *failed, *put_back)
    due = await bench.until(partial(book.due, ALL.name, 2, retries=2))
    assert [(each.event.key, each.attempts) for each in due] == [("other", 1)]

    again = [attempt(first, 1, wait=soon), attempt(second, 1, done=True)]
    assert await book.settle(ALL.name, "a", position=0, fresh=[], again=again)
    due = await bench.until(partial(book.due, ALL.name, 2, retries=2))
    assert [(each.event.key, each.attempts) for each in due] == [("hourly", 1)], "its first retry"

    again = [attempt(first, 2, wait=HOUR)]
    assert await book.settle(ALL.name, "a", position=0, fresh=[], again=again)
    due = await book.due(ALL.name, 2, retries=2)
    assert [each.event.event_id for each in due] == [each.event_id for each in later[:2]]


async def test_what_is_under_way_and_later_retries_hide_nothing_that_is_due(bench):
    await listened(bench)
    await bench.declare(HOURLY)
    other = "schedules: [{key: other, workflow: noop, everyMs: 3600000}]"
    await bench.declare(other, prune=False)
    await operator(bench).pause("hourly", reason="x")
    await operator(bench).resume("hourly")
    retried, second, *under_way = await placed(bench)
    await delivering(
        bench, attempt(retried, 2), attempt(second, 0), *(attempt(each, 0) for each in under_way)
    )
    due = partial(bench.ledger.events.due, ALL.name)
    assert [each.attempts for each in await due(2, retries=1)] == [2, 0, 0]
    assert [each.event.key for each in await due(2, retries=0, but=["hourly"])] == ["other"]
    (left,) = await due(0, retries=2, but=["hourly"])
    assert left.event.event_id == retried.event_id, "a later retry waits for nobody"


async def test_a_breaker_is_kept_by_the_subscription_until_an_event_is_accepted(bench):
    await listened(bench)
    await bench.declare(HOURLY)
    (created,) = await placed(bench)
    book = bench.ledger.events
    await delivering(bench, attempt(created, 1))
    settle = partial(book.settle, ALL.name, "a", position=0, fresh=[], again=[])
    assert await settle(failing="503", rest=HOUR)
    (its,) = await book.subscriptions()
    assert (its.failing_error, its.retry_at - its.failing_since) == ("503", HOUR)
    assert (await book.work("a", [ALL.name])).due == (), "it rests"
    taken = await book.take(ALL.name, "a", LEASE)
    assert taken
    assert not taken.may_retry

    assert await settle(failing="504")
    (now,) = await book.subscriptions()
    assert (now.failing_since, now.retry_at) == (its.failing_since, its.retry_at)
    assert now.failing_error == "504"
    assert await settle()
    (closed,) = await book.subscriptions()
    assert (closed.failing_since, closed.failing_error, closed.retry_at) == (None, None, None)
    assert (await book.work("a", [ALL.name])).due == (ALL.name,)


async def test_what_has_waited_for_a_day_is_given_up_with_its_schedule_or_its_receiver(bench):
    await listened(bench)
    await run_of(bench, await claimed(bench))
    created, arrived = await placed(bench)
    book = bench.ledger.events
    await delivering(bench, attempt(created, 1), attempt(arrived, 0))
    assert await book.give_up(ALL.name, "503", keys=["hourly"]) == 0, "it has come just now"
    aged_by = "UPDATE deliveries SET first_at = first_at - $2::interval WHERE namespace = $1"
    await bench.ledger._connections.fetch(aged_by, bench.ledger.namespace, DAY)
    bench.wait()
    assert await book.give_up(ALL.name, "503", keys=["other"]) == 0
    assert await book.give_up(ALL.name, "503", keys=["hourly"]) == 1
    (dead,) = await book.dead()
    assert (dead.event.event_id, dead.error) == (arrived.event_id, "503")
    assert await book.give_up(ALL.name, "504", keys=None) == 1
    assert await book.due(ALL.name, 10, retries=10) == []


async def test_a_dead_delivery_is_kept_and_can_be_made_again(bench):
    await listened(bench)
    await bench.declare(HOURLY)
    (created,) = await placed(bench)
    book = bench.ledger.events
    await delivering(bench, attempt(created, 36, wait=None, error="410"))
    assert await book.due(ALL.name, 10, retries=10) == []
    (dead,) = await book.dead()
    assert (dead.error, dead.subscription, dead.attempts) == ("410", ALL.name, 36)
    assert dead.died_at
    assert await book.redeliver("another") == 0
    assert await book.redeliver(created.event_id) == 1
    assert await book.dead() == []
    (due,) = await book.due(ALL.name, 10, retries=10)
    assert due.event.event_id == created.event_id
    assert (await book.work("a", [ALL.name])).due == (ALL.name,)


async def test_delivered_events_leave_and_others_stay(bench):
    await listened(bench)
    await run_of(bench, await claimed(bench))
    _, arrived = await placed(bench)
    book = bench.ledger.events

    async def forget():
        after: int | None = 0
        while after is not None:
            after = await book.forget(after, keep=AT_ONCE, dead=DAY, limit=1)
        return [event.type for event in await book.newest()]

    bench.wait()
    assert await forget() == ["arrived", "created"], "nobody has got them"
    await delivering(bench, attempt(arrived, 1, wait=HOUR))
    assert await forget() == ["arrived"]
    assert await book.unsubscribe(ALL.name)
    assert await forget() == []
    assert not await book.unsubscribe(ALL.name)


async def test_hints_come_after_events_got_their_positions(bench):
    await listened(bench)
    news = asyncio.Event()
    listening = asyncio.create_task(bench.ledger.events.listen(news.set))
    await asyncio.wait_for(news.wait(), 10)  # one for what came before it listened
    news.clear()
    await bench.declare(HOURLY)
    await placed(bench)
    await asyncio.wait_for(news.wait(), 10)
    listening.cancel()


# --- hooks ---

HOOKS = "hooks: [{url: 'https://a.example/x', secret: '${env:S}', events: [schedule.created]}]\n"


async def hooks(bench):
    return [each for each in await bench.ledger.events.subscriptions() if each.kind == "hook"]


async def test_a_file_declares_hooks_and_takes_them_back(bench):
    report = await bench.declare(HOOKS + HOURLY)
    assert report.hooks == ("hook https://a.example/… gets schedule.created",)
    (hook,) = await hooks(bench)
    assert (hook.url, hook.secret, hook.project) == ("https://a.example/x", "S", "default")
    assert (await placed(bench))[0].type == "created", "those of its own file are its first"

    report = await bench.declare(HOOKS.replace("schedule.created", "schedule.*") + HOURLY)
    assert report.hooks == ("hook https://a.example/… gets schedule.* (changed)",)
    (changed,) = await hooks(bench)
    assert (changed.name, changed.position, changed.events) == (
        hook.name, hook.position, ("schedule.*",)
    )  # fmt: skip
    report = await bench.declare(HOURLY)
    assert "is in no file any more" in report.hooks[0]
    assert await hooks(bench) == []


async def test_a_hook_is_delivered_by_workers_of_its_project(bench):
    """They alone have its secret, and the addresses that it may reach."""
    await bench.declare(HOOKS + HOURLY)
    await placed(bench)
    (hook,) = await hooks(bench)
    book = bench.ledger.events
    assert (await book.work("a", [], project="default")).due == (hook.name,)
    assert (await book.work("b", [ALL.name], project="mail")).due == ()
    assert (await book.work("reader", [])).due == ()


async def aged(bench, age: timedelta) -> None:
    """Let every event be older."""
    statement = "UPDATE events SET at = at - $2::interval WHERE namespace = $1"
    await bench.ledger._connections.fetch(statement, bench.ledger.namespace, age)


async def test_a_hook_of_a_project_without_workers_keeps_events_for_seven_days(bench):
    await bench.declare(HOOKS + HOURLY)
    await placed(bench)
    book = bench.ledger.events

    async def forget(keep):
        after: int | None = 0
        while after is not None:
            after = await book.forget(after, keep=keep, dead=DAY, limit=1)
        return [event.type for event in await book.newest()]

    await bench.ledger.withdraw(bench.serving)
    assert await forget(AT_ONCE) == ["created"], "a worker may come"
    await aged(bench, 8 * DAY)
    await bench.announce()
    assert await forget(AT_ONCE) == ["created"], "its workers will deliver it"
    await bench.ledger.withdraw(bench.serving)
    assert await forget(9 * DAY) == ["created"], "younger than SCHED_EVENTS_KEEP"
    assert await forget(AT_ONCE) == []


async def test_a_file_leaves_the_hooks_of_applications_alone(bench):
    ops = operator(bench)
    made = await ops.declare_hook("https://b.example", secret="${env:S}", keys=["a*"])
    await bench.declare(HOOKS + HOURLY)
    await bench.declare(HOURLY)
    (left,) = await hooks(bench)
    assert (left.name, left.keys, left.origin) == (made.name, ("a*",), "api")
    await ops.declare_hook("https://c.example", secret="${env:S}")
    assert len(await hooks(bench)) == 2
    assert await ops.unsubscribe(made.name)


async def test_events_of_another_project_are_not_a_hooks():
    its = Subscription.of_hook(Hook("https://a.example", "S"), "mine", "file")

    def event(project):
        return EventRow(
            event_id="e", project=project, key="k", type="created", at=NOW,
            definition_version=1,
        )  # fmt: skip

    assert its.wanted(event("mine")) == ("schedule.created",)
    assert its.wanted(event("theirs")) == ()


async def test_only_what_some_subscription_may_want_is_written(bench):
    await listened(bench, Subscription(name="listener:x", kind="listener", events=("*.failed",)))
    claim = await claimed(bench)
    await run_of(bench, claim)
    await operator(bench).pause("hourly", reason="x")
    await bench.ledger.record_evidence([seen(claim, "failed")])
    (event,) = await placed(bench)
    assert (event.type, event.sequence) == ("failed", 1)


@pytest.mark.parametrize(
    ("pattern", "types"),
    [
        ("schedule.arrived", "arrived"),
        ("schedule.bills.due.arrived", "arrived"),
        ("schedule.bills*", "arrived"),
        ("schedule.*.arrived", "arrived"),
        ("*ved", "arrived"),
        ("schedule.dead", "failed timed_out rejected"),
        ("schedule.missed", "skipped expired"),
        ("schedule.failed", "failed"),
        ("schedule.cre*ed", "arrived created"),
    ],
)
async def test_a_pattern_may_match_these_transitions(pattern: str, types: str):
    its = Subscription(name="x", kind="listener", events=(pattern,))
    assert its.types == tuple(types.split())
