"""Health: a worker is live while its loops turn, and ready while its servers answer."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest

from engine.errors import LedgerUnavailable
from engine.runtime.loop import Loop
from engine.telemetry import health as health_module
from engine.telemetry.health import Health, ReplicaHealth
from engine.telemetry.http import serving
from tests.pages import ask, got
from tests.waiting import eventually


@dataclass
class Turns:
    """A loop as its health is judged."""

    name: str = "poller"
    crashed: bool = False
    patience: float | None = 300.0
    age: float | None = None

    def turn_age(self) -> float | None:
        return self.age


@contextmanager
def watched(
    *loops: Turns | Loop, ledger: float | None = 0.0, temporal: float | None = 0.0,
    leaving: bool = False, answers_within: float = 30.0, not_applied: str | None = None,
) -> Iterator[Health]:  # fmt: skip
    health = Health()
    pulse = ReplicaHealth(
        loops, lambda: ledger, lambda: temporal, answers_within, lambda: leaving, not_applied
    )
    with health.watching(pulse):
        yield health


def test_a_worker_whose_servers_have_been_away_for_ten_minutes_is_live_and_not_ready():
    with watched(Turns(age=5.0), ledger=600.0, temporal=600.0) as health:
        assert health.live() == (True, "the loops turn")
        assert health.ready() == (False, "the ledger has not answered for 600 s")


def test_ready_names_the_server_that_has_not_answered():
    with watched(Turns(), temporal=31.0) as health:
        assert health.ready() == (False, "Temporal has not answered for 31 s")
    with watched(Turns(), temporal=None) as health:
        assert health.ready() == (False, "Temporal has not answered")
    with watched(Turns(), temporal=31.0, answers_within=60.0) as health:
        assert health.ready() == (True, "ready")


def test_a_worker_that_starts_or_drains_is_live_and_not_ready():
    assert Health().ready().text.startswith("starting")
    assert Health().live().good
    with watched(Turns(), leaving=True) as health:
        assert health.ready() == (False, "draining: nothing new is claimed")
        assert health.live().good


def test_a_worker_that_has_lost_its_file_works_and_is_not_ready():
    lost = "s.yaml is not applied to project shop: the last good definitions stay in force"
    with watched(Turns(), not_applied=lost) as health:
        assert health.ready() == (False, lost)
        assert health.live().good
    with watched(Turns(), not_applied=lost, ledger=600.0) as health:
        assert health.ready().text.startswith("the ledger has not answered")


def test_a_loop_that_ended_or_stands_in_one_turn_is_not_live():
    with watched(Turns(), Turns("leases", crashed=True)) as health:
        assert health.live() == (False, "the loop leases has ended")
        assert not health.ready().good
    with watched(Turns(age=301.0)) as health:
        assert health.live() == (False, "the loop poller has been in one turn for 301 s")
    with watched(Turns("tracker", age=9000.0, patience=None)) as health:
        assert health.live().good


def test_a_replica_that_has_ended_is_judged_no_more():
    with watched(Turns(crashed=True)) as health:
        assert not health.live().good
    assert health.live().good


async def test_a_loop_whose_server_is_away_turns_and_one_that_dies_has_fallen():
    async def away() -> timedelta:
        raise LedgerUnavailable("gone")

    async def dies() -> timedelta:
        raise asyncio.CancelledError

    loops = [Loop(name, turn, on_event=lambda _: None) for name, turn in (("a", away), ("b", dies))]
    tasks = [asyncio.create_task(loop.run()) for loop in loops]
    with watched(*loops) as health:
        await eventually(tasks[1].done)
        assert health.live() == (False, "the loop b has ended")
    with watched(loops[0]) as health:
        assert health.live().good
        loops[0].stop()
        await tasks[0]
        assert health.live().good  # it was asked to


async def test_a_turn_that_does_not_end_is_seen_while_it_lasts():
    begun, ends = asyncio.Event(), asyncio.Event()

    async def turn() -> timedelta:
        begun.set()
        await ends.wait()
        return timedelta(hours=1)

    loop = Loop("slow", turn, on_event=lambda _: None, patience=0.0)
    task = asyncio.create_task(loop.run())
    with watched(loop) as health:
        await begun.wait()
        await eventually(lambda: not health.live().good)
        ends.set()
        await eventually(lambda: health.live().good)
    loop.stop()
    await task


# --- over HTTP ---


async def test_each_page_answers_and_others_are_named():
    with watched(Turns(crashed=True)) as health:
        async with serving(health, port=0) as port:
            assert await ask(port, "/healthz") == (503, "the loop poller has ended\n")
            missing = "there are /metrics, /healthz and /readyz\n"
            assert await ask(port, "/other") == (404, missing)
            assert await ask(port, "/metrics") == (404, missing)
            assert (await ask(port, "/healthz", "POST"))[0] == 405
    with watched(Turns()) as health:
        async with serving(health, port=0) as port:
            assert await ask(port, "/healthz") == (200, "the loops turn\n")
            assert await ask(port, "/readyz") == (200, "ready\n")


async def test_an_event_loop_that_stands_still_is_reported_while_it_does(monkeypatch):
    monkeypatch.setattr(health_module, "_STUCK_AFTER", 0.2)
    answers: list[tuple[int, str]] = []
    async with serving(Health(), port=0) as port:
        await ask(port, "/healthz")  # the first beat has been
        with ExitStack() as stack:
            asking = threading.Thread(target=lambda: answers.append(waited(port)))
            asking.start()
            stack.callback(asking.join)  # here, in the event loop: it stands still
    (answer,) = answers
    assert answer[0] == 503
    assert "the event loop has stood still" in answer[1]


def waited(port: int) -> tuple[int, str]:
    """Ask until the answer is no more 200."""
    while (answer := got(port, "/healthz"))[0] == 200:
        time.sleep(0.02)
    return answer


async def test_a_port_that_is_taken_is_an_error_and_takes_nothing_over():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        async with serving(Health(), port=taken.getsockname()[1]):
            pass
