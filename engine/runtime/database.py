"""Which database the environment names for the ledger."""

from __future__ import annotations

import os

from engine.ledger.address import checked_address


def url() -> str | None:
    """Return ``SCHED_DATABASE_URL``, or None when the engine is to run stateless.

    Raises:
        LedgerError: when it is no address of a PostgreSQL database.
    """
    given = os.environ.get("SCHED_DATABASE_URL")
    return checked_address(given) if given else None


def schema() -> str:
    """Return ``SCHED_SCHEMA``."""
    return os.environ.get("SCHED_SCHEMA", "sched")
