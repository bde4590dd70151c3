"""Receivers of webhooks: a healthy one, which notes when windows arrive, and nine bad ones."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from benchmarks import innocent
from benchmarks.innocent import Lags
from tests.links import accepting
from tests.receiver import Request
from tests.waiting import eventually

HEALTHY: Final = "healthy"
BAD: Final = (
    "hangs", "drips", "bomb", "redirects", "gone", "busy", "broken", "picky", "closed",
)  # fmt: skip
ENVIRONMENT: Final = {"HOOK": "whsec_" + "c2VjcmV0" * 4, "SCHED_HOOKS_ALLOW": "127.0.0.1"}
_PATIENCE: Final = 10.0
_BOMB: Final = gzip.compress(bytes(50_000_000))
_STATUS: Final = {
    HEALTHY: "204 Taken",
    "redirects": "307 There\r\nLocation: http://127.0.0.1/",
    "gone": "410 Gone",
    "busy": "429 Busy\r\nRetry-After: 300",
    "broken": "500 Broken",
}


@dataclass
class Receivers:
    """The receivers, all of which get every event of the innocent.

    Attributes:
        ports: by kind.
        arrivals: when the healthy one got the ``arrived`` event of a fire time, in Unix seconds.
        posts: how many requests each of the others got.
    """

    ports: dict[str, int] = field(default_factory=dict)
    arrivals: dict[float, float] = field(default_factory=dict)
    posts: dict[str, int] = field(default_factory=dict)

    def head(self, kinds: Sequence[str]) -> str:
        """Return the part of a schedule file that declares them."""
        return "hooks:\n" + "".join(
            f"  - {{url: 'http://127.0.0.1:{self.ports[kind]}/', secret: '${{env:HOOK}}',"
            f" keys: [{innocent.KEY}]}}\n"
            for kind in kinds
        )

    async def answer(
        self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the requests of one connection."""
        while True:
            event = json.loads((await Request.read(reader)).body)
            self.posts[kind] = self.posts.get(kind, 0) + 1
            if kind == HEALTHY and event["type"] == "schedule.arrived":
                at = datetime.fromisoformat(event["data"]["originalScheduledAt"]).timestamp()
                self.arrivals.setdefault(at, time.time())
            if kind == "hangs":
                await asyncio.Event().wait()
            elif kind == "drips":
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    writer.write(b"1\r\nx\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.5)
            elif kind == "bomb":
                size = f"Content-Encoding: gzip\r\nContent-Length: {len(_BOMB)}"
                writer.write(f"HTTP/1.1 200 OK\r\n{size}\r\n\r\n".encode() + _BOMB)
            else:
                refuses = kind == "picky" and event["type"] == "schedule.completed"
                status = "500 Broken" if refuses else _STATUS.get(kind, "200 OK")
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()

    async def lags(self, count: int) -> Lags:
        """Watch the next windows: from each fire time to the arrival at the healthy receiver."""
        first = math.ceil(time.time()) + innocent.OFFSET
        wanted = [first + number for number in range(count)]
        await asyncio.sleep(wanted[-1] - time.time() + 1)
        with contextlib.suppress(AssertionError):
            await eventually(lambda: self.arrivals.keys() >= {*wanted}, timeout=_PATIENCE)
        now = time.time()
        values = [(self.arrivals.get(at, now) - at) * 1000 for at in wanted]
        missing = sum(at not in self.arrivals for at in wanted)
        return Lags([round(value, 1) for value in values], missing)


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receivers]:
    """Open all receivers; ``closed`` is the port of one that has gone."""
    receivers = Receivers()
    async with contextlib.AsyncExitStack() as stack:
        for kind in (HEALTHY, *BAD):
            port = accepting(partial(receivers.answer, kind))
            if kind == "closed":
                async with port as receivers.ports[kind]:
                    continue
            receivers.ports[kind] = await stack.enter_async_context(port)
        yield receivers
