# ruff: noqa: DTZ005, DTZ011, PLW0108, PTH123, SIM115 - the mistakes are what is shown here
"""Workflows that call what a run must not call."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import temporalio.workflow

from engine import Context, workflow

WAYS: Final[dict[str, Callable[[], Any]]] = {
    "datetime.now()": lambda: datetime.now(),
    "date.today()": lambda: date.today(),
    "time.time()": lambda: time.time(),
    "time.sleep()": lambda: time.sleep(1),
    "uuid.uuid4()": lambda: uuid.uuid4(),
    "random.choice()": lambda: random.choice([1, 2]),
    "secrets.token_hex()": lambda: secrets.token_hex(),
    "open()": lambda: open("/dev/null"),
    "pathlib.Path.read_text()": lambda: Path("/dev/null").read_text(encoding="utf-8"),
    "os.environ": lambda: os.environ["HOME"],
    "threading.Thread()": lambda: threading.Thread(target=print),
    "asyncio.to_thread()": lambda: asyncio.to_thread(print),
}


@workflow(name="refused-calls", version="1")
class Refused:
    async def run(self, ctx: Context, way: str) -> None:
        found = WAYS[way]()
        if asyncio.iscoroutine(found):
            await found


@workflow(name="asked-the-time", version="1")
class AskedTheTime:
    def __init__(self) -> None:
        self._done = False

    async def run(self, ctx: Context) -> None:
        await temporalio.workflow.wait_condition(lambda: self._done)

    @temporalio.workflow.query
    def time(self) -> str:
        return str(datetime.now())

    @temporalio.workflow.signal
    def end(self) -> None:
        self._done = True
