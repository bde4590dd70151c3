"""What a poller sees Temporal by, for tests in which there is nothing to see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

BLIND: Final[dict[str, Any]] = {
    "looker": None,
    "stopper": None,
    "auditor": SimpleNamespace(is_audited=lambda _: True),
}
"""Keyword arguments: no run is open, none is to be ended, and none was lost."""
