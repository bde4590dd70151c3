"""Policy words, reason codes and value limits shared by all of schedules.

Reason codes: the closed list of words that say why a fire became what it is.

A fire's ``reason`` is a sentence for people; its code is for whatever decides, counts or filters.
It stands alone because planner, ledgers and readers share it. The ledger in PostgreSQL derives the
same in a trigger (``reason_code_of`` in migration 0011; a test compares). The list: docs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

When = Literal["success", "failure", "always"]
"""What the parent's run has to come to: it completed, it did not, or either."""

Which = Literal["same", "latest"]
"""Which window of the parent is meant: the one of the same fire time, or the newest that ran."""

MAX_DEPTH: Final = 20
"""Levels of nesting: file, list, schedule, ``input`` and sixteen more."""

MAX_DIGITS: Final = 300
"""Digits of a number: more are beyond every double, and Python refuses to print thousands."""

UNSTORABLE: Final = "the text holds a NUL or half a character, which no database keeps"


class _Broken:
    """The type of ``BROKEN``."""

    def __repr__(self) -> str:
        return "BROKEN"


BROKEN: Final = _Broken()
"""Stands for a value that has been complained about already: nobody judges it again."""


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can keep the text: no NUL, no lone surrogate."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Overlap = Literal["allow", "skip", "queue", "queue_one", "cancel_previous", "terminate_previous"]

Stop = Literal["cancel", "terminate"]

STOPS: Final[Mapping[Overlap, Stop]] = {
    "cancel_previous": "cancel",
    "terminate_previous": "terminate",
}
"""The policies with which a window takes the place of a run, and what that run is asked to do."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One parent that a window waits for, and what its window has to come to."""

    parent: str
    when: When = "success"
    window: Which = "same"

    def to_json(self) -> dict[str, str]:
        """Return it as the ledger keeps it."""
        return asdict(self)


LOOKS_AT_ONCE: Final = 100
"""Runs of one key to be looked at before it is planned again: each costs a call."""

LOOKS: Final[frozenset[Overlap]] = frozenset({"skip", "queue_one"})
"""The policies with which runs as a rule cost windows their start. Every one of them is looked at
first, within one round of looks: with more rounds than windows come in, none would be decided."""


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
