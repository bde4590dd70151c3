"""What a window waits for, and what has become of it so far.

The ledger says of each parent what became of the window that is meant; whether that is what the
schedule asks for is decided here. The table: docs/chains.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal

from engine.schedules.chain_fields import When, Which
from engine.schedules.fields import shorten

REASON: Final = "dependency"
"""The first word of the reason of whatever waits for a parent, or is skipped for one."""

Became = Literal[
    "pending",
    "completed", "failed", "timed_out", "terminated", "cancelled", "rejected", "unvouched", "lost",
    "skipped", "expired", "nothing", "paused", "disabled", "retired", "absent",
]  # fmt: skip
"""What became of a parent's window; ``pending`` may still become anything."""

FAILED: Final[frozenset[Became]] = frozenset(
    {"failed", "timed_out", "terminated", "cancelled", "rejected", "unvouched", "lost"}
)
"""It ended, or never can, and did not complete."""

_SAYS_WHY: Final[frozenset[Became]] = frozenset({"skipped", "expired", "rejected", "unvouched"})
"""Of these the reason is why there was no run; of others it is why there was one."""

_WORDS: Final[dict[Became, str]] = {
    "timed_out": "timed out",
    "terminated": "was terminated",
    "cancelled": "was cancelled",
    "rejected": "was rejected",
    "unvouched": "is unvouched",
    "lost": "was lost",
    "skipped": "was skipped",
    "nothing": "has no run then",
    "paused": "is paused",
    "disabled": "is disabled",
    "retired": "was retired",
    "absent": "is not in the ledger",
}

_NAMED: Final = 3
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Rule:
    """One parent that a window waits for, and what its window has to come to."""

    parent: str
    when: When = "success"
    window: Which = "same"

    def to_json(self) -> dict[str, str]:
        """Return it as the ledger keeps it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Awaits:
    """What a fire waits for before anything else is asked of it.

    Attributes:
        rules: its parents, and what each has to come to.
        reason: what the fire says for itself once it does not wait any more.
    """

    rules: tuple[Rule, ...]
    reason: str | None = None

    @property
    def said(self) -> str:
        """The reason of the fire while it waits."""
        names = [rule.parent for rule in self.rules]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{REASON}: waits for {', '.join(names[:_NAMED])}{more}"

    def to_json(self) -> dict[str, Any]:
        """Return it as the ledger keeps it."""
        return {"reason": self.reason, "rules": [rule.to_json() for rule in self.rules]}


@dataclass(frozen=True, slots=True)
class Awaited:
    """What became of one window that a fire waits for.

    Attributes:
        parent: the key of the schedule it belongs to.
        when: what it has to come to.
        became: what it came to.
        reason: why, where the ledger says so.
        since: when it was learnt that its run had closed, if it had one.
    """

    parent: str
    when: When
    became: Became
    reason: str | None = None
    since: datetime | None = None

    @property
    def is_met(self) -> bool:
        """Whether it is what was asked for."""
        completed, failed = self.became == "completed", self.became in FAILED
        return {"success": completed, "failure": failed, "always": completed or failed}[self.when]

    @property
    def unmet(self) -> str | None:
        """Why it never will be what was asked for; None while it may."""
        if self.became == "pending" or self.is_met:
            return None
        why = f": {self.reason}" if self.reason and self.became in _SAYS_WHY else ""
        said = f"{self.parent} {_WORDS.get(self.became, self.became)}{why}"
        return shorten(f"{REASON}: {said}", _LONGEST)


def unmet(awaited: Sequence[Awaited]) -> str | None:
    """Return why a fire that waits for all of these can never start; None while it may."""
    return next((why for each in awaited if (why := each.unmet)), None)


def is_pending(awaited: Sequence[Awaited]) -> bool:
    """Whether something may still come of one of these."""
    return any(each.became == "pending" for each in awaited)


def ready_at(awaited: Sequence[Awaited], fire_time: datetime) -> datetime:
    """Return since when a fire does not wait any more."""
    return max((fire_time, *(each.since for each in awaited if each.since)))
