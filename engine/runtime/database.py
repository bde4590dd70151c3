"""Which database the environment names for the ledger."""

from __future__ import annotations

import os


def url() -> str | None:
    """Return ``SCHED_DATABASE_URL``, or None when the engine is to run stateless."""
    return os.environ.get("SCHED_DATABASE_URL") or None


def schema() -> str:
    """Return ``SCHED_SCHEMA``."""
    return os.environ.get("SCHED_SCHEMA", "sched")
