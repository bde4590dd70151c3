"""What a replica may claim, and what it sees of the ledger itself.

Instants are aware and in UTC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Serving:
    """What one replica may claim: its project's schedules on its task queue, by type.

    ``rules`` are those of its types' runs; see ``engine.flow.run_rules``.
    """

    replica: str
    project: str
    task_queue: str
    types: frozenset[str]
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

    @property
    def lanes(self) -> tuple[str, str]:
        """The lanes of the due query: external schedules, and the replica's own task queue."""
        return ("", self.task_queue)


class Wanted(NamedTuple):
    """Schedules of a project that may fire, and what they need of a worker.

    Attributes:
        lane: the task queue of their workers; "" is external, which any of the project starts.
        workflow: what they start, as they name it.
        workflow_type: what that means today; None while no worker has announced it.
        schedules: how many they are.
    """

    lane: str
    workflow: str
    workflow_type: str | None
    schedules: int


Served = Mapping[tuple[str, str], frozenset[str]]
"""For each project and task queue that a living replica serves, the types that such have."""


def as_served(living: Iterable[tuple[str, str, Collection[str]]]) -> Served:
    """Return what living replicas serve, by the project, task queue and types of each."""
    served: dict[tuple[str, str], frozenset[str]] = {}
    for project, task_queue, types in living:
        place = (project, task_queue)
        served[place] = served.get(place, frozenset()).union(types)
    return served


@dataclass(frozen=True, slots=True)
class Probe:
    """One look at the ledger: all that an idle tick does.

    Attributes:
        now: the database's clock.
        ledger_id: changes when another database answers.
        epoch: counts configuration changes.
        due_at: when to look next at a schedule that this replica could serve, if at any. Of one
            that is late this may be when that was written.
        stale_at: when the oldest lease of a claimed or starting fire ends, if any.
        stop_at: when the next run is to be cancelled or terminated, if any.
        server: when the server process that answers began; None where there is none, or where
            it is a standby, which may be behind.
        transactions: how many transactions the server has ever numbered. It never falls, unless
            some are lost.
        doubted_at: when somebody saw a sign of lost commits last.
        chained: whether schedules of the project wait for windows of others.
        lay_at: when a backfill that this replica could serve has its turn, if any.
    """

    now: datetime
    ledger_id: UUID
    epoch: int
    due_at: datetime | None
    stale_at: datetime | None
    stop_at: datetime | None = None
    server: datetime | None = None
    transactions: int = 0
    doubted_at: datetime | None = None
    chained: bool = False
    lay_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which history of which database system commits belong to; None where it is not told."""

    system: str | None = None
    timeline: int | None = None
