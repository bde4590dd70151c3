"""Which old rows may become ranges, and which may leave. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from engine.ledger.fire_records import OPEN
from engine.ledger.old_fires import KeyChores, OldFire
from engine.runtime.settings import Settings
from engine.schedules.timing import Spec

_FAILED = frozenset({"failed", "timed_out", "terminated", "rejected", "unvouched"})
"""What keeps its details longer, so that somebody can find out why."""


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Up to when the rows of one key are old, each a midnight of UTC.

    Attributes:
        keep: so many of the newest rows keep their details in any case.
        merge: details of what went well end here.
        settle: details of what failed end here.
        remove: rows end here.
        once: whether the key has one window only, which cannot become part of a range.
    """

    keep: int
    merge: datetime
    settle: datetime
    remove: datetime
    once: bool

    @classmethod
    def of(
        cls, chores: KeyChores, settings: Settings, now: datetime, remembered: timedelta
    ) -> Cutoffs:
        """Return those of a key; ``remembered``: how long Temporal may know a closed run."""
        said = chores.schedule.retention if chores.schedule else None
        age = (said and said.age) or settings.retention_age
        failed = max(age, (said and said.failed_age) or settings.retention_failed_age)
        longest = (said and said.max_age) or settings.retention_max_age

        def old(at: timedelta) -> datetime:
            return midnight(now - max(at, remembered))

        return cls(
            keep=(said and said.keep) or settings.retention_keep,
            merge=old(min(age, longest)),
            settle=old(min(failed, longest)),
            remove=old(longest),
            once=chores.schedule is not None and chores.schedule.kind == "at",
        )

    def may_merge(self, row: OldFire, chores: KeyChores, *, archived: bool) -> bool:
        """Whether a row may become part of a range."""
        if row.kind != "window" or row.status in OPEN or row.status == "unvouched" or row.missed:
            return False
        if (row.telling or row.status in _FAILED) and not archived:
            return False
        return self._rests(row, chores) and row.rested_since < self._end(row)

    def may_leave(self, row: OldFire, chores: KeyChores) -> bool:
        """Whether a row may be deleted, once it is archived."""
        if row.status in OPEN or not self._rests(row, chores):
            return False
        alone = self.once or row.kind != "window"
        end = max(self._end(row), self.remove) if alone else self.remove
        return row.rested_since < end

    def _end(self, row: OldFire) -> datetime:
        return self.settle if row.status in _FAILED else self.merge

    @staticmethod
    def _rests(row: OldFire, chores: KeyChores) -> bool:
        """Whether the cursor has passed it, and no backfill is still to come to it.

        Windows to come may be skipped already.
        """
        if chores.is_laying(row.fire_time, row.last_fire_time):
            return False
        return row.series < chores.series or row.last_fire_time <= chores.cursor


def midnight(at: datetime) -> datetime:
    """Return the beginning of the UTC day."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def groups(
    rows: Iterable[OldFire], may_merge: Callable[[OldFire], bool], spec_of: Callable[[int], Spec]
) -> list[list[OldFire]]:
    """Return what becomes one row each: adjacent windows of a day that share class and definition.

    Adjacent is what no window lies between, by the definition the rows were decided under. A range
    stays within one UTC day, so that its day can be counted, archived and removed exactly.

    Args:
        rows: of one key, by fire time.
        may_merge: whether a row may become part of a range.
        spec_of: the when-part of a definition version.
    """
    found: list[list[OldFire]] = []
    current: list[OldFire] = []
    for row in rows:
        if row.kind != "window":
            continue  # no window, so it lies between none
        if not may_merge(row):
            current = []
        elif current and _continues(current[-1], row, spec_of):
            current.append(row)
        else:
            current = [row]
            found.append(current)
    return [group for group in found if len(group) > 1]


def _continues(before: OldFire, row: OldFire, spec_of: Callable[[int], Spec]) -> bool:
    return (
        _class_of(before) == _class_of(row)
        and before.fire_time.date() == row.last_fire_time.date()
        and spec_of(row.definition_version).next(before.last_fire_time) == row.fire_time
    )


def _class_of(row: OldFire) -> Sequence[object]:
    return (
        row.series, row.definition_version, row.project, row.status, row.reason, row.reason_code,
        row.timing, row.workflow_type, row.task_queue,
    )  # fmt: skip
