"""Opens a page in the browser of whoever sits at this machine."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser


async def open_page(url: str) -> str:
    """Open the page and return a sentence that says whether that worked."""
    # Without a display Python would choose a text browser, which takes the terminal.
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    seen = sys.platform == "darwin" or any(os.environ.get(name) for name in names)
    if seen and await asyncio.to_thread(webbrowser.open, url):
        return f"opened {url}"
    return f"no browser to open here (BROWSER names one): {url}"
