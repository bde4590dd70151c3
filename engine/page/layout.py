"""Layout of the page: Jinja templates that escape every value, and the files they need.

Separate because it alone needs Jinja2.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from engine.page.charts import SHADES
from engine.page.text import (
    clock,
    counted,
    fire_lag,
    relative,
    shadow_mode,
    shown_state,
    shown_status,
    took,
    why,
)
from engine.schedules import instant_text

_FOLDER: Final = Path(__file__).parent
_RELATIVE: Final = re.compile(r"(<time [^>]*data-ago[^>]*>)[^<]*")

ASSETS: Final[Mapping[str, str]] = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""Files that the page loads, with their types."""


@cache
def asset(name: str) -> bytes:
    """Return the content of a file of ``ASSETS``."""
    return (_FOLDER / "assets" / name).read_bytes()


@cache
def asset_version(name: str) -> str:
    """Return a word that changes with the file."""
    return hashlib.sha256(asset(name)).hexdigest()[:12]


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.globals |= {
        "SHADES": SHADES,
        "asset_version": asset_version,
        "counted": counted,
        "ago": _ago,
    }
    found.filters |= {
        "clock": clock,
        "instant": instant_text,
        "lag": fire_lag,
        "shadow_mode": shadow_mode,
        "state": shown_state,
        "status": shown_status,
        "took": took,
        "why": why,
    }
    return found


def _ago(moment: datetime | None, now: datetime) -> Markup | str:
    """Return how far a moment is away, which the browser keeps up to date."""
    if moment is None:
        return "never"
    at, words = instant_text(moment), relative(moment, now)
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(at, at, words)


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Return a page, or with ``base`` ``part.html`` only the part of it that changes."""
    return _environment().get_template(template).render({"base": "page.html", **values})


def style() -> Markup:
    """Return the style sheet, for a page that is one file."""
    return Markup(asset("page.css").decode())  # noqa: S704 - our own file


def digest(part: str) -> bytes:
    """Return a digest of a part of the page; that time passes changes nothing."""
    return hashlib.sha256(_RELATIVE.sub(r"\1", part).encode()).digest()
