"""AlertStore: each problem is told once, by one process, and so is its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from engine.errors import Code
from engine.ledger.alerts import Condition
from engine.ledger.postgres.stored_alerts import AlertStore
from tests.conformance.conftest import Bench

SINCE = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATE = Condition(
    name="not-fired:pay", code=Code.NOT_FIRED, text="pay has not fired", since=SINCE,
    project="default", key="pay", cause="no_replica",
)  # fmt: skip
GONE = Condition(name="replica:a", code=Code.REPLICA_VANISHED, text="a has vanished", since=SINCE)
ALL = {LATE.code, GONE.code}
LEASE = timedelta(seconds=30)
AT_ONCE = timedelta(0)


def names(alerts) -> list[str]:
    return sorted(alert.name for alert in alerts)


async def deliver(book: AlertStore) -> list[tuple[str, bool]]:
    """Tell the receiver of everything that is due; return what it heard."""
    heard = []
    for alert in await book.take(10, lease=LEASE):
        heard.append((alert.name, alert.is_open))
        await book.confirm(alert)
    return sorted(heard)


async def test_a_problem_is_told_once_for_as_long_as_it_lasts_and_once_more_when_it_ends(
    bench: Bench,
):
    book = bench.ledger.alerts
    changes = await book.note([LATE, GONE], of=ALL)
    assert names(changes.opened) == [LATE.name, GONE.name]
    assert not changes.resolved
    assert await deliver(book) == [(LATE.name, True), (GONE.name, True)]

    # The next looks find it again, in other words; the receiver knows of it.
    bench.wait()
    changes = await book.note(
        [replace(LATE, text="pay is late", since=SINCE + LEASE), GONE], of=ALL
    )
    assert not changes.opened
    assert not changes.resolved
    assert await deliver(book) == []
    (first, _) = sorted(await book.open(), key=lambda each: each.name)
    assert (first.text, first.since, first.cause) == ("pay is late", SINCE, "no_replica")

    changes = await book.note([GONE], of=ALL)
    assert names(changes.resolved) == [LATE.name]
    assert changes.resolved[0].resolved_at
    assert await deliver(book) == [(LATE.name, False)]
    assert await deliver(book) == []
    assert names(await book.open()) == [GONE.name]

    # It comes again: that is a new alert.
    assert names((await book.note([LATE, GONE], of=ALL)).opened) == [LATE.name]
    assert await deliver(book) == [(LATE.name, True)]


async def test_a_look_that_could_not_judge_a_kind_of_problem_resolves_none_of_it(bench: Bench):
    book = bench.ledger.alerts
    await book.note([LATE, GONE], of=ALL)
    assert not (await book.note([], of={Code.FIRED_LATE})).resolved
    assert names((await book.note([], of={GONE.code})).resolved) == [GONE.name]


async def test_one_process_tells_an_alert_and_another_when_its_time_is_over(bench: Bench):
    book = bench.ledger.alerts
    await book.note([LATE], of=ALL)
    taken = await asyncio.gather(*(book.take(10, lease=timedelta(seconds=3)) for _ in range(4)))
    assert sum(map(len, taken)) == 1
    bench.wait(timedelta(seconds=4))
    assert len(await book.take(10, lease=LEASE)) == 1


async def test_an_attempt_that_failed_is_made_again_and_is_counted(bench: Bench):
    book = bench.ledger.alerts
    await book.note([LATE], of=ALL)
    (alert,) = await book.take(10, lease=LEASE)
    await book.put_off(alert, "503", wait=AT_ONCE)
    (again,) = await book.take(10, lease=LEASE)
    assert (again.attempts, again.error) == (2, "503")
    await book.put_off(again, "503", wait=LEASE)
    assert await book.take(10, lease=LEASE) == []


async def test_what_ends_before_the_receiver_was_told_of_it_is_not_told(bench: Bench):
    book = bench.ledger.alerts
    await book.note([LATE], of=ALL)
    assert names((await book.note([], of=ALL)).resolved) == [LATE.name]
    assert await deliver(book) == []


async def test_what_changes_while_the_receiver_is_told_is_told_too(bench: Bench):
    book = bench.ledger.alerts
    await book.note([LATE], of=ALL)
    (opened,) = await book.take(10, lease=LEASE)
    await book.note([], of=ALL)  # it ends while the message is on its way
    await book.confirm(opened)
    (resolved,) = await book.take(10, lease=LEASE)
    assert not resolved.is_open
    await book.note([LATE], of=ALL)  # and comes again while that one is
    await book.confirm(resolved)
    assert await deliver(book) == [(LATE.name, True)]
    assert await deliver(book) == []


async def test_the_receiver_hears_the_end_of_what_came_again_in_between(bench: Bench):
    book = bench.ledger.alerts
    await book.note([LATE], of=ALL)
    assert await deliver(book) == [(LATE.name, True)]
    for found in ([], [LATE], []):  # faster than any message
        await book.note(found, of=ALL)
    assert await deliver(book) == [(LATE.name, False)]


async def test_what_may_have_been_heard_without_an_answer_is_ended_also_if_it_came_again(
    bench: Bench,
):
    book = bench.ledger.alerts
    await book.note([LATE], of=ALL)
    (attempt,) = await book.take(10, lease=LEASE)
    await book.put_off(attempt, "timeout", wait=LEASE)
    for found in ([], [LATE], []):
        await book.note(found, of=ALL)
    assert await deliver(book) == [(LATE.name, False)]
