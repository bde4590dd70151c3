"""The queries, one per file, by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def query(name: str) -> str:
    """Return the text of ``queries/<name>.sql``."""
    return (files("engine.ledger") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
