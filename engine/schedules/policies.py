"""Policy words, reason codes and value limits shared by schedules, planner and ledgers.

A fire's ``reason`` is a sentence for people; its reason code, from a closed list, is for code that
decides, counts or filters. For writers of older versions, which give a sentence alone, PostgreSQL
derives the code (``reason_code_of`` in migrations 0011 and 0023). The list is in docs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal, Self

When = Literal["success", "failure", "always"]
"""Required outcome of the parent's run: it completed, it did not, or either."""

Which = Literal["same", "latest"]
"""Awaited window of the parent: of the same fire time, or the newest not skipped or expired."""

MAX_DEPTH: Final = 20
"""Levels of nesting: file, list, schedule, ``input`` and sixteen more."""

MAX_DIGITS: Final = 300
"""Digits of a number. More exceed every double, and Python refuses to print thousands."""

UNSTORABLE: Final = "the text holds a NUL or half a character, which no database keeps"


class _Broken:
    """The type of ``BROKEN``."""

    def __repr__(self) -> str:
        return "BROKEN"


BROKEN: Final = _Broken()
"""Placeholder for a value whose problem has been reported; it is not checked again."""


def is_storable(text: str) -> bool:
    """Return whether PostgreSQL can store the text: no NUL, no lone surrogate."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


FirstFire = Literal["now", "next"]

CatchUpPolicy = Literal["latest", "all", "none"]

CatchUpOrder = Literal["oldest", "newest"]

Overlap = Literal["allow", "skip", "queue", "queue_one", "cancel_previous", "terminate_previous"]

Stop = Literal["cancel", "terminate"]

STOPS: Final[Mapping[Overlap, Stop]] = {
    "cancel_previous": "cancel",
    "terminate_previous": "terminate",
}
"""Policies by which a window takes the place of a run, and the stop requested of that run."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One parent that a window waits for, and the required outcome of the parent's window."""

    parent: str
    when: When = "success"
    window: Which = "same"

    def to_json(self) -> dict[str, str]:
        """Return the rule as the ledger stores it."""
        return asdict(self)


LOOKS_AT_ONCE: Final = 100
"""Most runs of one key to look at before the key is planned again; each look costs a call."""

LOOKS: Final[frozenset[Overlap]] = frozenset({"skip", "queue_one"})
"""Policies under which open runs usually cost windows their start. All open runs are looked at
first, in one round: if looks took longer than windows take to come in, none would be decided."""


ReasonCode = Literal[
    "user", "overlap", "queue_full", "excluded", "coalesced", "dependency",
    "paused", "disabled", "retired", "expired", "first_sight", "caught_up",
    "unknown_workflow", "foreign_run", "refused", "payload_too_large", "may_have_run",
]  # fmt: skip


class Reason(str):
    """Why a fire became what it is: a sentence for people, and the code that logic reads.

    Two reasons are equal when their sentences are.
    """

    __slots__ = ("code",)

    code: ReasonCode

    def __new__(cls, code: ReasonCode, text: str) -> Self:
        """Return a sentence with its code."""
        reason = super().__new__(cls, text)
        reason.code = code
        return reason

    def __getnewargs__(self) -> tuple[ReasonCode, str]:  # type: ignore[override] # for copies
        return self.code, str(self)


def code_of(reason: Reason | None) -> ReasonCode | None:
    """Return the code of a reason; None of an ordinary start."""
    return reason.code if reason is not None else None
