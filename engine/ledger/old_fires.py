"""What the janitor sees of a ledger: keys, and old rows of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from engine.ledger.fire_records import Status
from engine.schedules.model import Schedule


@dataclass(frozen=True, slots=True)
class KeyChores:
    """A key, and how far the janitor has come with it.

    Attributes:
        schedule: the newest definition; None when this version cannot read it.
        oldest: the fire time of its oldest row, if it has any.
            summarised_until, merged_until, settled_until: see the columns of table ``chores``.
        laying_after, laying_until: of each backfill the part that is still to be laid.
    """

    key: str
    series: int
    cursor: datetime
    schedule: Schedule | None
    summarised_until: datetime | None
    merged_until: datetime | None
    settled_until: datetime | None
    oldest: datetime | None
    laying_after: Sequence[datetime] | None = None
    laying_until: Sequence[datetime] | None = None

    def is_laying(self, first: datetime, last: datetime) -> bool:
        """Whether a backfill may still lay windows between the two moments."""
        parts = zip(self.laying_after or (), self.laying_until or (), strict=True)
        return any(after < last and first <= until for after, until in parts)


@dataclass(frozen=True, slots=True)
class OldFire:
    """A row of ``fires`` that may leave.

    Attributes:
        version: changes with every write to the row.
        telling: whether it has more to say than a range can: an error, a history, an own input.
        rested_since: when it was decided, its run closed, or its last window opened, whichever
            came last.
        detail: the row as JSON.
    """

    id: int
    version: str
    project: str
    series: int
    bucket: int
    fire_time: datetime
    last_fire_time: datetime
    windows: int
    kind: str
    definition_version: int
    workflow_type: str | None
    task_queue: str
    status: Status
    reason: str | None
    timing: str | None
    missed: int
    merged_at: datetime | None
    telling: bool
    rested_since: datetime
    detail: str
    reason_code: str | None = None


@dataclass(frozen=True, slots=True)
class LongRow:
    """A row whose windows belong to several days."""

    project: str
    status: Status
    series: int
    fire_time: datetime
    last_fire_time: datetime
    windows: int
    definition_version: int


@dataclass(frozen=True, slots=True)
class DayPart:
    """So many windows of a long row are of this day."""

    project: str
    day: datetime
    windows: int
    status: Status


@dataclass(frozen=True, slots=True)
class OldSnapshot:
    """What keeps the database from removing dead rows.

    Attributes:
        kind: which of the four it is.
        name: the pid of a session, the id of a prepared transaction, the name of a slot; None where
            the role may not see it.
        application: what the session calls itself, who prepared the transaction, the slot's type.
        age: how long it has done so, where that is known.
        dead_rows: how many rows of ``positions`` wait to be removed, about.
    """

    kind: Literal["session", "prepared transaction", "replication slot", "hidden session"]
    name: str | None
    application: str | None
    age: timedelta | None
    dead_rows: int

    def __str__(self) -> str:
        rows = f"keeps PostgreSQL from removing about {self.dead_rows} dead rows"
        since = f" for {timedelta(seconds=int(self.age.total_seconds()))}" if self.age else ""
        who = f" ({self.application})" if self.application else ""
        if self.kind == "hidden session":
            cure = "GRANT pg_monitor to the role of the workers to see which"
            return f"a session or a replication slot {rows}; {cure}"
        if self.kind == "session":
            cure = f"end its transaction, or: SELECT pg_terminate_backend({self.name})"
        elif self.kind == "prepared transaction":
            cure = f"COMMIT PREPARED or ROLLBACK PREPARED '{self.name}'"
        else:
            cure = "let its standby catch up, or drop it"
        return f"the {self.kind} {self.name}{who} {rows}{since}; {cure}"
