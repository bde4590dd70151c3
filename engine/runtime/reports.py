"""What applying a file did, and what pruning did: values that others put into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.errors import WorkflowUnknown


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What applying a file did.

    Attributes:
        edits: for each changed key what is another than in the ledger before, a few words a field.
        refused: for each key that was not applied the reason; see ``refusing``.
        waiting: for each new definition whose task queue nobody ever served, that this is so.
        unskipped: for each key the moments that somebody had skipped and at which no window opens
            any more.
        queues: what changed of the queues of steps, a sentence each.
        already_applied: nothing was written, this text was the last one applied.

    The others but ``project`` hold keys.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    edits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    unskipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    project: str = "default"
    already_applied: bool = False

    def __str__(self) -> str:
        if self.already_applied:
            return f"project {self.project}: nothing changed since the last apply"
        named = ("added", "changed", "returned", "unchanged", "refused")
        counts = [f"{len(getattr(self, name))} {name}" for name in named if getattr(self, name)]
        if self.absent:
            counts.append(f"{len(self.absent)} not in the file and still firing")
        return f"project {self.project}: {', '.join(counts)}"

    @property
    def unknown(self) -> dict[str, str]:
        """For each key whose workflow nobody can run what is known of it, refused or not."""
        return {**self.refused, **self.waiting}

    @property
    def remarks(self) -> list[str]:
        """What somebody should hear of single keys, a sentence each."""
        return [
            *(f"{key}: its moment had passed, booked as expired" for key in self.expired),
            *(
                f"{key}: owed windows were rejected, no worker knew the workflow it had before"
                for key in self.rejected
            ),
            *(f"{WorkflowUnknown.code}: {key}: {what}" for key, what in self.unknown.items()),
            *(
                f"{key}: no window opens at {', '.join(moments)} any more, which was to be skipped"
                for key, moments in self.unskipped.items()
            ),
        ]


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What pruning did: keys that were retired, and keys that are not absent for long enough."""

    retired: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
