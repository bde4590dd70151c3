"""A replica that is killed in its first delivery; test_events.py lets another one take over.

Without a file of notes it has no listener, and whoever started it kills it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from engine.events import ScheduleEvent
from engine.events.addresses import Allowed
from engine.events.delivery import Deliverer, DeliveryContext
from engine.events.listeners import Listener
from engine.ledger import Ledger


def listener(note) -> Listener:
    """Return a listener of the same name in every process."""
    return Listener("shop.note", note, ("schedule.changed",))


def report(text: str, good: bool) -> None:  # noqa: FBT001 - a callback
    sys.stderr.write(f"{text} {good}\n")


def context(holder: str) -> DeliveryContext:
    tick = timedelta(milliseconds=20)
    return DeliveryContext(
        holder=holder, namespace="test", project="default", tick=tick, idle=tick,
        report=report, allowed=Allowed.parse("127.0.0.1"),
    )  # fmt: skip


async def main(url: str, notes: Path | None) -> None:
    def killed(event: ScheduleEvent) -> None:
        assert notes
        with notes.open("a", encoding="utf-8") as file:  # other schedules' events come beside
            file.write(f"{event.id}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    ledger = await Ledger.connect(url, namespace="test")
    deliverer = Deliverer(
        ledger.events,
        context("killed"),
        [listener(killed)] if notes else [],
        lease=timedelta(seconds=1),
    )
    while True:
        wait = await deliverer.run_once()
        sys.stdout.write("runs\n")
        sys.stdout.flush()
        await asyncio.sleep(wait.total_seconds())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]) if sys.argv[2:] else None))
