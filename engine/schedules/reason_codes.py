"""Reason codes: the closed list of words that say why a fire became what it is.

A fire's ``reason`` is a sentence for people; its code is for whatever decides, counts or filters.
It stands alone because planner, ledgers and readers share it. The ledger in PostgreSQL derives the
same in a trigger (``reason_code_of`` in migration 0011; a test compares). The list: docs/ledger.md.
"""

from __future__ import annotations

from typing import Final, Literal

ReasonCode = Literal[
    "user", "overlap", "queue_full", "excluded", "coalesced", "dependency",
    "paused", "disabled", "retired", "expired", "first_sight", "caught_up",
    "unknown_workflow", "foreign_run", "refused", "payload_too_large", "may_have_run",
]  # fmt: skip

BEGINNINGS: Final[tuple[tuple[str, ReasonCode], ...]] = (
    ("user", "user"),
    ("overlap: the queue is full", "queue_full"),
    ("overlap", "overlap"),
    ("excluded", "excluded"),
    ("coalesced into", "coalesced"),
    ("dependency", "dependency"),
    ("paused", "paused"),
    ("disabled", "disabled"),
    ("retired", "retired"),
    ("older than the catch-up window", "expired"),
    ("beyond catchUp.max", "expired"),
    ("missed, and catchUp is none", "expired"),
    ("had passed when it was declared", "expired"),
    ("first sight", "first_sight"),
    ("caught up for", "caught_up"),
    ("no worker on task queue", "unknown_workflow"),
    ("foreign run", "foreign_run"),
    ("refused by the server", "refused"),
    ("payload too large", "payload_too_large"),
    ("may have run", "may_have_run"),
)
"""How each sentence begins that a fire's reason can be; the first that fits counts."""


def reason_code(reason: str | None) -> ReasonCode | None:
    """Return the code of a sentence; None where there is none, or it is none of ours."""
    if reason is None:
        return None
    return next((code for begins, code in BEGINNINGS if reason.startswith(begins)), None)
