"""Events on a real ledger: at least once, whatever is killed, restarted or away meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import get_args

import asyncpg
import pytest

from engine.embedded import PostgresServer
from engine.errors import LedgerUnavailable
from engine.events import ScheduleEvent
from engine.events.delivery import Deliverer
from engine.ledger import DENIED, ClosedStatus, Ledger, Status, Subscription
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.killed_listener import context, listener
from tests.links import accepting
from tests.receiver import Request
from tests.servers import shared_folder
from tests.waiting import eventually

TICK = timedelta(milliseconds=20)
KEYS = ("a", "b", "c")


class Shop:
    """Replicas that deliver, and what the function of all of them got, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.got: list[tuple[str, ScheduleEvent]] = []
        self.version = 0
        self.opened: list[Ledger] = []

    async def ledger(self) -> Ledger:
        self.opened.append(await Ledger.connect(self.url, namespace="test"))
        return self.opened[-1]

    async def close(self) -> None:
        for ledger in self.opened:
            await ledger.close()

    def listener(self, holder: str):
        async def note(event: ScheduleEvent) -> None:
            self.got.append((holder, event))

        return listener(note)

    @asynccontextmanager
    async def delivering(self, *holders: str, **options) -> AsyncIterator[None]:
        options.setdefault("pause", lambda attempts: TICK * attempts)
        options.setdefault("lease", timedelta(seconds=1))
        replicas = [
            Deliverer((await self.ledger()).events, context(holder), [self.listener(holder)],
                      **options)
            for holder in holders
        ]  # fmt: skip
        running = [asyncio.create_task(_deliver(each)) for each in replicas]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            for each in replicas:
                await each.end()

    async def change(self, ledger: Ledger, *, head: str = "") -> None:
        self.version += 1
        every = 1000 * (self.version + 1)
        listed = ", ".join(f"{{key: {key}, workflow: w, everyMs: {every}}}" for key in KEYS)
        await apply(ledger, load_schedules(f"{head}schedules: [{listed}]"), by="test")

    def ids(self, key: str) -> list[str]:
        return [event.id for _, event in self.got if event.key == key]

    def expected(self, key: str) -> list[str]:
        """Every change, after the first definition."""
        return [f"{key}:changed:{number}" for number in range(2, self.version + 1)]

    def has_all(self) -> bool:
        return all(set(self.expected(key)) <= set(self.ids(key)) for key in KEYS)


async def _deliver(deliverer: Deliverer) -> None:
    while True:
        try:
            wait = await deliverer.run_once()
        except LedgerUnavailable:
            wait = TICK
        await asyncio.sleep(wait.total_seconds())


@pytest.fixture
async def shop(database_url: str) -> AsyncIterator[Shop]:
    made = Shop(database_url)
    yield made
    await made.close()


async def test_several_replicas_share_the_deliveries_and_keep_the_order(shop: Shop):
    ledger = await shop.ledger()
    await shop.change(ledger)
    async with shop.delivering("one", "two", "three", "four", lease=timedelta(seconds=30)):
        subscribed = ledger.events.subscriptions
        await eventually(subscribed)
        for _ in range(10):
            await shop.change(ledger)
        await eventually(shop.has_all)
    for key in KEYS:
        assert shop.ids(key) == shop.expected(key), "each once, and in order"
    sequences = [event.sequence for _, event in shop.got if event.key == "a"]
    assert sequences == sorted(set(sequences))


async def test_a_replica_that_is_killed_in_a_delivery_leaves_it_to_another(
    shop: Shop, tmp_path: Path
):
    ledger, notes = await shop.ledger(), tmp_path / "notes"
    await shop.change(ledger)
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.killed_listener", shop.url, notes,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert doomed.stdout
    assert await doomed.stdout.readline() == b"runs\n"
    await shop.change(ledger)
    assert await doomed.wait() == -9
    first = notes.read_text(encoding="utf-8").split()[0]
    async with shop.delivering("another"):
        await eventually(shop.has_all)
    assert first in shop.ids(first.partition(":")[0]), "it comes again, under the same id"
    for key in KEYS:
        assert shop.ids(key) == shop.expected(key)


async def test_a_hook_that_is_down_gets_everything_once_it_is_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    """Compressed: the pauses between attempts are those of `pause`."""
    monkeypatch.setenv("HOOK_SECRET", "whsec_" + "c2VjcmV0" * 4)
    taken: list[dict] = []
    is_down = True

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = json.loads((await Request.read(reader)).body)
        if not is_down:
            taken.append(body)
        status = b"503 Down" if is_down else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()

    def open_hook(hook: Subscription, _: object):
        from engine.events.addresses import Allowed
        from engine.events.webhooks import HookSender

        return HookSender(hook, Allowed.parse("127.0.0.1"))

    async with accepting(answer) as port:
        hook = f"{{url: 'http://127.0.0.1:{port}/x', secret: '${{env:HOOK_SECRET}}'"
        head = f"hooks: [{hook}, events: [schedule.changed]}}]\n"
        ledger = await shop.ledger()
        await shop.change(ledger, head=head)
        async with shop.delivering("one", "two", open_hook=open_hook):
            for _ in range(5):
                await shop.change(ledger, head=head)
            await eventually(shop.has_all)  # a hook that is down delays no listener
            assert taken == []
            is_down = False
            await eventually(lambda: len({each["id"] for each in taken}) == 15)
    for key in KEYS:
        its = [each["id"] for each in taken if each["source"].endswith(f"/{key}")]
        assert sorted(set(its)) == sorted(shop.expected(key))


async def test_a_request_that_hangs_delays_no_other_schedule_and_survives_a_kill(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    """The replica that is killed leaves the request; the next one sends the event again."""
    monkeypatch.setenv("HOOK_SECRET", "whsec_" + "c2VjcmV0" * 4)
    got: list[str] = []
    hanging, release = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = json.loads((await Request.read(reader)).body)
        if body["source"].endswith("/a"):
            hanging.set()
            await release.wait()
        got.append(body["id"])
        writer.write(b"HTTP/1.1 204 Taken\r\nconnection: close\r\n\r\n")
        await writer.drain()

    def taken(key: str) -> list[str]:
        return [each for each in got if each.startswith(f"{key}:changed:")]

    async with accepting(answer) as port:
        hook = f"{{url: 'http://127.0.0.1:{port}/x', secret: '${{env:HOOK_SECRET}}'"
        head = f"hooks: [{hook}, events: [schedule.changed]}}]\n"
        ledger = await shop.ledger()
        await shop.change(ledger, head=head)
        doomed = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.killed_listener", shop.url,
            stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(3):
            await shop.change(ledger, head=head)
        await eventually(lambda: [*map(taken, "bc")] == [*map(shop.expected, "bc")])
        assert hanging.is_set()

        async def is_settled() -> bool:
            ((hook, *_), (newest,)) = (
                await ledger.events.subscriptions(),
                await ledger.events.newest(limit=1),
            )
            return hook.position == newest.position

        await eventually(is_settled)
        doomed.kill()
        await doomed.wait()
        assert taken("a") == []
        release.set()
        async with shop.delivering("another"):
            await eventually(lambda: set(taken("a")) == {*shop.expected("a")})
    assert list(dict.fromkeys(taken("a"))) == shop.expected("a"), (
        "in order, the first perhaps twice"
    )
    for key in "bc":
        assert taken(key) == shop.expected(key), "none of the others comes twice"


@pytest.mark.slow
async def test_postgresql_restarts_in_a_delivery():
    with shared_folder() as folder:
        postgres = PostgresServer(folder / "pg", durable=False)
        await postgres.start()
        shop = Shop(postgres.url)
        begun, restarted = asyncio.Event(), asyncio.Event()
        ledger = await shop.ledger()
        await shop.change(ledger)
        get = shop.listener

        def listener_of(holder: str):
            async def note(event: ScheduleEvent) -> None:
                begun.set()
                await restarted.wait()
                await get(holder).function(event)

            return listener(note)

        shop.listener = listener_of  # type: ignore[method-assign]
        async with shop.delivering("one", "two"):
            await eventually(ledger.events.subscriptions)
            await shop.change(ledger)
            await asyncio.wait_for(begun.wait(), 10)
            await postgres.stop()
            await postgres.start()
            restarted.set()
            changed = shop.version

            async def again() -> bool:
                try:
                    await shop.change(ledger)
                except LedgerUnavailable:
                    shop.version = changed
                    return False
                return True

            await eventually(again)
            await eventually(shop.has_all)
        for key in KEYS:
            ids = shop.ids(key)
            assert list(dict.fromkeys(ids)) == shop.expected(key), "in order, some perhaps twice"
        await shop.close()
        await postgres.stop()


async def test_an_event_is_written_of_a_statement_by_hand(shop: Shop, database_url: str):
    """The trigger runs in the database: it covers whoever changes a row."""
    ledger = await shop.ledger()
    await shop.change(ledger)
    service = ScheduleService(ledger, actor="ops")
    following = service.follow_events(key="a", tick=TICK)
    first = asyncio.ensure_future(anext(following))
    await eventually(ledger.events.subscriptions)
    operator = await asyncpg.connect(database_url)
    await operator.execute(
        "UPDATE sched.schedules SET paused_at = now(), paused_reason = 'by hand' WHERE key = 'a'"
    )
    await operator.close()
    event = await asyncio.wait_for(first, 10)
    assert (event.name, event.data["reason"]) == ("schedule.paused", "by hand")
    await following.aclose()
    assert await ledger.events.subscriptions() == [], "a follower leaves nothing behind"


async def test_a_terminal_follows_events_until_it_is_interrupted(shop: Shop, tmp_path: Path):
    ledger = await shop.ledger()
    await shop.change(ledger)
    terminal = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("sched"), "events", "a", "--name", "schedule.changed",
        "--follow", "--json",
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "SCHED_DATABASE_URL": shop.url, "TEMPORAL_NAMESPACE": "test"},
    )  # fmt: skip
    assert terminal.stdout
    assert terminal.stderr
    assert await terminal.stderr.readline() == b"following events\n"
    await shop.change(ledger)
    event = json.loads(await asyncio.wait_for(terminal.stdout.readline(), 10))
    assert (event["id"], event["name"]) == ("a:changed:2", "schedule.changed")
    terminal.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(terminal.wait(), 10) == 130
    assert await ledger.events.subscriptions() == []


CLOSED = frozenset(get_args(ClosedStatus))


def transitions_of(
    was: Status | None, was_run: str | None, status: Status, run: str | None
) -> tuple[str, ...]:
    """Return the events of a fire that moves to a status, in order, by the rule of docs/events.md.

    A run that is seen only once it has closed has arrived as well. One that was reset after its
    end has not arrived again, and its next end is another one.
    """
    if status in CLOSED:
        if was in CLOSED:
            again = was != status or (was_run is not None and run is not None and was_run != run)
            return (status,) if again else ()
        return (status,) if was == "started" else ("arrived", status)
    if status == "started":
        return () if was == "started" or was in CLOSED else ("arrived",)
    if status in DENIED and was != status:
        return (status,)
    return ()


async def test_a_move_of_a_fire_is_the_events_that_its_status_says(shop: Shop):
    await shop.ledger()
    connection = await asyncpg.connect(shop.url, server_settings={"search_path": "sched"})
    rows = await connection.fetch(
        "SELECT was, was_run, now_is, now_run,"
        " transitions_of(was, was_run, now_is, now_run) AS found"
        " FROM unnest($1::text[]) AS was, unnest($2::text[]) AS now_is,"
        " unnest('{a,NULL}'::text[]) AS was_run, unnest('{a,b,NULL}'::text[]) AS now_run",
        [None, *get_args(Status)], list(get_args(Status)),
    )  # fmt: skip
    await connection.close()
    assert len(rows) == 14 * 13 * 6
    for was, was_run, status, run, found in rows:
        assert transitions_of(was, was_run, status, run) == tuple(found or ())


async def test_two_that_place_at_once_give_no_position_twice(shop: Shop):
    ledger, other = await shop.ledger(), await shop.ledger()
    its = Subscription(name="listener:x", kind="listener", events=("schedule.*",))
    await ledger.events.subscribe(its, lasts=timedelta(days=1), by="test")
    await shop.change(ledger)

    async def place(each: Ledger) -> int:
        return sum([await each.events.place(3) for _ in range(40)])

    changing = asyncio.create_task(_change_often(shop, ledger))
    number = sum(await asyncio.gather(place(ledger), place(other)))
    await changing
    number += await ledger.events.place(1000)
    placed = await ledger.events.read(0, 1000)
    assert [row.position for row in placed] == list(range(1, number + 1))
    for key in KEYS:
        sequences = [row.sequence for row in placed if row.key == key]
        assert sequences == list(range(1, len(sequences) + 1))


async def _change_often(shop: Shop, ledger: Ledger) -> None:
    for _ in range(10):
        await shop.change(ledger)
