"""A server of the page on a thread of its own, and Debian's Chromium."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from engine.api.app import create_app, listening, serving
from engine.api.requests import ApiOptions
from engine.ledger import Ledger
from engine.service import ScheduleService
from tests.page_story import tell

T = TypeVar("T")

CHROMIUM = shutil.which("chromium")
_LEFT_OUT = CHROMIUM is None and not os.environ.get("REQUIRE_CHROMIUM")
needs_chromium = pytest.mark.skipif(_LEFT_OUT, reason="needs the package chromium")
"""Leave a test out where Debian's package is missing; CI requires it."""


@dataclass
class PageServer:
    """The page, served.

    Attributes:
        address: its address.
        ledger: its ledger, to be used on its loop alone.
    """

    address: str
    ledger: Ledger
    loop: asyncio.AbstractEventLoop

    @property
    def service(self) -> ScheduleService:
        """A service that acts besides."""
        return ScheduleService(self.ledger, actor="bob")

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        """Run on the loop of the server, and return what comes of it."""
        return asyncio.run_coroutine_threadsafe(act, self.loop).result(20)


@contextmanager
def page_server(url: str, namespace: str, **options: Any) -> Iterator[PageServer]:
    """Serve the story on a free port while the block lasts."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    found: list[PageServer] = []
    ended = asyncio.Event()

    async def serve() -> None:
        ledger = await Ledger.connect(url, namespace=namespace, connections=5)
        try:
            await tell(ledger, url)
            place = listening("127.0.0.1", 0)
            app = create_app(ledger, ApiOptions(**{"open_door": True, **options}))
            async with serving(app, place):
                address = f"http://127.0.0.1:{place.getsockname()[1]}"
                found.append(PageServer(address, ledger, loop))
                ready.set()
                await ended.wait()
        finally:
            ready.set()
            await ledger.close()

    def run() -> None:
        loop.run_until_complete(serve())
        left = asyncio.all_tasks(loop)  # sse-starlette waits for the end of the process
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(60)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()


@contextmanager
def chromium() -> Iterator[Any]:
    """Run a headless Chromium."""
    from playwright.sync_api import sync_playwright

    assert CHROMIUM, "apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--in-process-gpu", "--disable-extensions"],
        )
        yield browser
        browser.close()
