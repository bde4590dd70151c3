"""Statements about replicas: bindings, announcements, duties, and slots of step queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from engine.errors import BoundElsewhere
from engine.ledger.floors import Floors
from engine.ledger.postgres.rows import LedgerPart
from engine.ledger.records import (
    Binding,
    PolledQueue,
    Served,
    Serving,
    SlotAsk,
    TemporalNamespace,
    Wanted,
    as_served,
)
from engine.schedules import TZDATA_VERSION
from engine.schedules.planner import TIME_RULES

_COUNTED = 1000


class Replicas(LedgerPart):
    """Replicas: bound, announced, served, on duty, and holding slots.

    No more slots of a lane are held than its queue's concurrency, except while steps that began
    before the queue was made smaller still run.
    """

    _floors: Floors

    async def bind(self, found: TemporalNamespace, *, by: str) -> Binding:
        """Bind the ledger to the Temporal namespace that answers, unless it belongs to one.

        What is sent and tracked from now on belongs to this binding. Only IDs are compared: behind
        a failover of Temporal the names of cluster and address may change.

        Raises:
            BoundElsewhere: the ledger belongs to another namespace.
        """
        bindings = await self.bindings()
        if not bindings:
            await self._run("bind", found.id, found.place, by)
            bindings = await self.bindings()
        for each in bindings:
            if each.namespace_id == found.id and each.closed_at is None:
                self.binding = each.number
                return each
        (own,) = (each for each in bindings if each.current)
        raise BoundElsewhere(
            f"the ledger belongs to the namespace {self._namespace} of {own.place}, with the ID"
            f" {own.namespace_id}; that of {found.place} has the ID {found.id}",
            cure="check TEMPORAL_ADDRESS and SCHED_DATABASE_URL; `sched move` moves the ledger"
            " here, with --old-is-gone if the other namespace is no more",
        )

    async def bindings(self) -> list[Binding]:
        """Return the Temporal namespaces that the ledger belongs, or has belonged, to."""
        return [Binding(**row) for row in await self._run("bindings", _COUNTED)]

    async def served(self, *, alive: timedelta) -> Served:
        """Return the projects, task queues and types that replicas announced within ``alive``."""
        rows = await self._run("served", alive)
        return as_served((row["project"], row["task_queue"], row["types"]) for row in rows)

    async def replicas(self, *, alive: timedelta) -> int:
        """Return how many replicas of the namespace announced themselves within ``alive``."""
        (row,) = await self._run("living", alive)
        return int(row["replicas"])

    async def withdraw(self, serving: Serving) -> None:
        """Remove this replica's announcement."""
        await self._run("withdraw", serving.replica)

    async def newer_rules(self, project: str) -> tuple[int, str]:
        """Return how many schedules newer rules computed, and the newest rules; it scans all."""
        (row,) = await self._run("newer_rules", project, TIME_RULES)
        return row["schedules"], row["rules"] or TIME_RULES

    async def other_rules(self, project: str, *, alive: timedelta) -> list[str]:
        """Return the other zone rules of replicas that announced themselves within ``alive``."""
        rows = await self._run("other_rules", project, TZDATA_VERSION, alive)
        return [row["tzdata"] for row in rows]

    async def wanted(self, project: str) -> list[Wanted]:
        """Return what the project's schedules that may fire need of its workers."""
        return [Wanted(*row) for row in await self._run("wanted", project)]

    async def external_queues(self) -> list[str]:
        """Return the task queues on which external schedules start workflows, in order."""
        return [row["task_queue"] for row in await self._run("external_queues")]

    async def note_polls(
        self, seen: Mapping[str, tuple[datetime | None, int]], *, of: Sequence[str]
    ) -> list[PolledQueue]:
        """Record when task queues were last polled and how many runs wait there; return them.

        Queues that are not ``of`` those of external schedules are removed.
        """
        polled, waiting = [at for at, _ in seen.values()], [number for _, number in seen.values()]
        rows = await self._run("note_polls", list(seen), polled, waiting, list(of))
        return [PolledQueue(**row) for row in rows]

    async def polled_queues(self, *, within: timedelta) -> list[PolledQueue]:
        """Return the task queues of external schedules that were looked at ``within`` this time."""
        return [PolledQueue(**row) for row in await self._run("polled_queues", within)]

    async def hold_duty(self, duty: str, holder: str, lease: timedelta) -> datetime | None:
        """Take or keep a duty; return its watermark (at first the epoch), or None if not ours."""
        rows = await self._run("hold_duty", duty, holder, lease)
        return rows[0]["watermark"] if rows else None

    async def release_duty(self, duty: str, holder: str) -> None:
        """Release the duty, unless it has another holder by now."""
        await self._run("release_duty", duty, holder)

    async def set_watermark(self, duty: str, holder: str, watermark: datetime) -> None:
        """Record how far the duty's work has come."""
        await self._run("set_watermark", duty, holder, watermark)

    async def hold_slots(
        self,
        holder: str,
        asks: Sequence[SlotAsk],
        lease: timedelta,
        *,
        take_over: bool,
        number: int,
    ) -> dict[str, int]:
        """Renew, give back and take slots; return the number of usable slots by lane.

        Slots beyond a reduced concurrency on which steps still run are not counted. Slots of lanes
        that the holder does not ask for are given back. A lane has no slots if its queue is not
        declared or has no concurrency.

        Args:
            holder: name of a replica, never used by another one.
            asks: one for each lane.
            lease: how long they are held from now.
            take_over: whether to also take slots whose lease has ended. A holder that was out of
                touch with the ledger for a whole lease lets the other holders renew theirs first.
            number: grows with each call of this holder. A call that arrives after a later one
                neither gives back nor renews what the later one has kept.
        """
        columns = [
            [getattr(ask, field) for ask in asks]
            for field in ("lane", "queue", "running", "wanted", "of_key")
        ]
        *lanes, of_keys = columns
        rows = await self._run("hold_slots", holder, *lanes, lease, take_over, number, of_keys)
        return {row["lane"]: row["usable"] for row in rows}

    async def give_back_slots(self, holder: str) -> None:
        """Give back all slots of a holder."""
        await self._run("give_back_slots", holder)
