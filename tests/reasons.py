"""The beginnings of all reasons, by code."""

from __future__ import annotations

from typing import Final

from engine.schedules.terms import ReasonCode

BEGINNINGS: Final[tuple[tuple[str, ReasonCode], ...]] = (
    ("user", "user"),
    ("overlap: the queue is full", "queue_full"),
    ("overlap", "overlap"),
    ("excluded", "excluded"),
    ("coalesced into", "coalesced"),
    ("overload: coalesced into", "overload"),
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
    ("shadow", "shadow"),
    ("limit", "limit"),
)
"""The first that fits counts."""


def code_of_sentence(reason: str | None) -> ReasonCode | None:
    """Return the code that a writer of this reason gives with it."""
    if reason is None:
        return None
    return next((code for begins, code in BEGINNINGS if reason.startswith(begins)), None)
