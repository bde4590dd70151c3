"""Reads schedule files beside an event loop, and ends that as soon as nobody waits for it."""

from __future__ import annotations

import asyncio

from engine.runtime.parsing import Stopper
from engine.runtime.source import Source
from engine.schedules import ScheduleFile


async def read_aside(source: Source) -> ScheduleFile:
    """Return what the source holds. Cancelled, it ends the child that reads a large one.

    Raises:
        ScheduleFileError: with every problem.
    """
    stopper = Stopper()
    reading = asyncio.create_task(asyncio.to_thread(source.read, stopper=stopper))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        stopper.stop()
        await asyncio.wait([reading])
        reading.exception()  # that it was stopped is known
        raise


async def read_unless(stopping: asyncio.Event, source: Source) -> ScheduleFile | None:
    """Return what the source holds, or None as soon as ``stopping`` is set.

    Raises:
        ScheduleFileError: with every problem.
    """
    reading = asyncio.create_task(read_aside(source))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([reading, stopped], return_when=asyncio.FIRST_COMPLETED)
        return None if stopping.is_set() else await reading
    finally:
        stopped.cancel()
        reading.cancel()
        await asyncio.wait([reading])
