"""Events: what a webhook that gets every arrival costs the schedules themselves.

**Contestants.** The engine as shipped, *without* a subscription, so that no event is written, and
*with* one hook for ``schedule.arrived``, whose receiver is a server in the process of the
benchmark that answers at once.

**What is measured.** *steady*: the windows a second of two replicas whose starts cost nothing (see
``steady``), and the CPU time of PostgreSQL for a thousand of them; the two cores are full, so that
whatever events cost is missing. *herd*: schedules due at one instant and one worker, as in
``herd``: the start of the last run after the instant. *posts*: what the hook had got when a sample
ended; starts come first, so that it may be little.

**Fairness.** Contestants take turns, and each begins every other round. Each sample has a fresh
database. Ratios are of medians. Targets: *steady* at least 0.8, *herd* at most 1.05.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass

from benchmarks import steady
from benchmarks.arena import arena, postgres
from benchmarks.contestants import NotReadyError, engine
from benchmarks.report import Measured, Row
from benchmarks.runs import Herd
from benchmarks.spread import in_turn, kept, median
from engine.embedded import PostgresServer
from tests.links import accepting
from tests.receiver import Request

ROUNDS, ROUNDS_QUICK = 5, 1
_STRETCH, _STRETCH_QUICK = 30.0, 10.0
_RUNS, _RUNS_QUICK = 500, 200
_WITHOUT, _WITH = "without", "with"
_MOST_LEAD = 4
_HERE = "127.0.0.1"
_SECRET = "whsec_" + "c2VjcmV0" * 4


@dataclass
class Receiver:
    """A server that answers every post at once, and counts them."""

    head: str = ""
    posts: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the posts of one connection."""
        while True:
            await Request.read(reader)
            self.posts += 1
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()


@contextlib.asynccontextmanager
async def _receiving(who: str) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    if who == _WITHOUT:
        yield receiver
        return
    async with accepting(receiver.answer) as port:
        hook = f"url: 'http://{_HERE}:{port}/', secret: '${{env:HOOK}}'"
        receiver.head = f"hooks: [{{{hook}, events: [schedule.arrived]}}]\n"
        yield receiver


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes about twenty minutes, or about two when quick."""
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with postgres() as server:
        for number in range(ROUNDS_QUICK if quick else ROUNDS):
            for who in in_turn(number, [_WITHOUT, _WITH]):
                for what, value in (await _sample(server, who, quick=quick)).items():
                    found[what][who].append(value)
    return Measured("events", [_row(what, both) for what, both in found.items()], kept(found))


def _row(what: str, both: dict[str, list[float]]) -> Row:
    without, with_it = median(both[_WITHOUT]), median(both[_WITH])
    return {
        "what": what,
        "without a hook": round(without, 3),
        "with one": round(with_it, 3),
        "with / without": round(with_it / without, 2) if without else "",
    }


async def _sample(server: PostgresServer, who: str, *, quick: bool) -> dict[str, float]:
    stretch = _STRETCH_QUICK if quick else _STRETCH
    async with _receiving(who) as receiver:
        carried = await steady.sample(
            server, "sched-engine", 0, stretch, receiver.head, HOOK=_SECRET, SCHED_HOOKS_ALLOW=_HERE
        )
        posts = receiver.posts
    runs = _RUNS_QUICK if quick else _RUNS
    async with _receiving(who) as receiver:
        herd = await _herd(server, receiver, runs)
        return {
            "steady, windows / s": carried.per_second,
            "steady, PostgreSQL CPU s / 1,000": carried.server,
            "steady, posts": float(posts),
            "herd, all started s": herd.started,
            "herd, posts / runs": receiver.posts / runs,
        }


async def _herd(server: PostgresServer, receiver: Receiver, runs: int) -> Herd:
    lead = 1.0
    while True:
        try:
            async with arena(server) as place:
                return await engine(
                    place, runs, 1, lead, head=receiver.head,
                    HOOK=_SECRET, SCHED_HOOKS_ALLOW=_HERE,
                )  # fmt: skip
        except NotReadyError:
            lead *= 2
            if lead > _MOST_LEAD:
                raise
