"""The two pictures of the README, of real runs: ``python -m tests.pictures`` makes them anew.

``sched up`` runs the example with short intervals, until an invoice could not be charged and was
taken back. The page shows its schedule, Temporal's Web UI its run.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.acceptance.browser import CHROMIUM
from tests.acceptance.fleet import ROOT
from tests.acceptance.home import Home
from tests.servers import shared_folder
from tests.waiting import eventually

if TYPE_CHECKING:
    from playwright.async_api import Page

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 150_000
INTERVALS = {10000: 2000, 300000: 5000, 120000: 2000}
"""Milliseconds between windows: in the example, and here."""
WINDOWS, WITHIN = 40, 240


async def main() -> None:
    """Make both pictures."""
    from playwright.async_api import async_playwright

    IMAGES.mkdir(exist_ok=True)
    with shared_folder() as folder:
        home = Home(folder)
        text = home.schedules.read_text()
        for long, short in INTERVALS.items():
            text = text.replace(f"everyMs: {long}", f"everyMs: {short}")
        home.schedules.write_text(text)
        await home.up()
        try:
            failed = await eventually(partial(_failed, home), timeout=WITHIN, every=5)
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=CHROMIUM, args=["--no-sandbox"]
                )
                page = await browser.new_page(viewport={"width": 1240, "height": 740})
                await _of_page(page, home)
                await _of_run(page, home, failed)
                await browser.close()
        finally:
            await home.stop()


async def _failed(home: Home) -> dict[str, object] | None:
    """Return the newest run that failed, once there are enough of them."""
    fires = [fire for fire in await home.fires() if fire["key"] == "invoice-run"]
    bad = [fire for fire in fires if fire["status"] == "failed"]
    return bad[0] if bad and len(fires) >= WINDOWS else None


async def _of_page(page: Page, home: Home) -> None:
    found = re.search(r"Page +(\S+/enter/\S+)", home.log)
    assert found, home.log
    await page.goto(found[1])
    await page.get_by_role("link", name="invoice-run").click()
    await page.get_by_text("live", exact=True).wait_for()
    await _shot(page, IMAGES / "page.png")


async def _of_run(page: Page, home: Home, failed: dict[str, object]) -> None:
    ui = re.search(r"Web UI +(\S+)", home.log)
    assert ui, home.log
    name = str(failed["workflowId"]).replace(":", "%3A")
    address = f"{ui[1]}/namespaces/default/workflows/{name}/{failed['runId']}/timeline"
    await page.goto(address)
    await page.get_by_text("Failed", exact=True).first.wait_for()

    async def is_drawn() -> bool:
        return await page.get_by_text("charge_card").count() > 0

    await eventually(is_drawn, timeout=30, every=0.2)
    await page.get_by_text("release_credit").first.evaluate(
        "node => node.scrollIntoView({block: 'center'})"
    )
    # The result above it has the folder of this machine in its stack trace.
    box = await page.get_by_text("Timeline", exact=True).last.bounding_box()
    assert box
    top = box["y"] - 16
    clip = {"x": 270, "y": top, "width": 960, "height": min(740 - top, 310)}
    await _shot(page, IMAGES / "run.png", clip=clip)


async def _shot(page: Page, path: Path, **options: Any) -> None:
    size = len(await page.screenshot(path=path, **options))
    assert size <= MOST_BYTES, f"{path} has {size} bytes"


if __name__ == "__main__":
    asyncio.run(main())
