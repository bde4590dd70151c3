"""Statements about queues: slots of step queues, and task queues of external schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from engine.ledger.postgres.connections import columns
from engine.ledger.postgres.rows import Statements
from engine.ledger.records import PolledQueue, QueueRow, QueueUse, SlotAsk
from engine.schedules import Queue


class QueueStatements(Statements):
    """Queues of steps, and the task queues on which external schedules start workflows.

    No more slots of a lane are held than its queue's concurrency, except while steps that began
    before the queue was made smaller still run.
    """

    async def queues(self) -> dict[str, QueueRow]:
        """Return every queue of the namespace by name, including dropped ones."""
        return {row["queue"]: QueueRow.of(**dict(row)) for row in await self.run("read_queues")}

    async def declare_queues(self, project: str, queues: Mapping[str, Queue], *, by: str) -> None:
        """Make these the project's queues; drop its others, whose limits stay in force."""
        names = list(queues)
        most = [queue.concurrency for queue in queues.values()]
        each = [queue.per_key for queue in queues.values()]
        rates = [str(queue.rate) if queue.rate else None for queue in queues.values()]
        await self.run("declare_queues", project, by, names, most, each, rates)
        await self.run("drop_queues", project, names)

    async def queue_use(self) -> list[QueueUse]:
        """Return the steps that run now in each step queue, by task queue."""
        return [QueueUse(**row) for row in await self.run("queue_use")]

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
        asked = columns("hold_slots", asks)
        rows = await self.run("hold_slots", holder, lease, take_over, number, *asked)
        return {row["lane"]: row["usable"] for row in rows}

    async def give_back_slots(self, holder: str) -> None:
        """Give back all slots of a holder."""
        await self.run("give_back_slots", holder)

    async def external_queues(self) -> list[str]:
        """Return the task queues on which external schedules start workflows, in order."""
        return [row["task_queue"] for row in await self.run("external_queues")]

    async def note_polls(
        self, seen: Mapping[str, tuple[datetime | None, int]], *, of: Sequence[str]
    ) -> list[PolledQueue]:
        """Record when task queues were last polled and how many runs wait there; return them.

        Queues that are not ``of`` those of external schedules are removed.
        """
        polled, waiting = [at for at, _ in seen.values()], [number for _, number in seen.values()]
        rows = await self.run("note_polls", list(seen), polled, waiting, list(of))
        return [PolledQueue(**row) for row in rows]

    async def polled_queues(self, *, within: timedelta) -> list[PolledQueue]:
        """Return the task queues of external schedules that were looked at ``within`` this time."""
        return [PolledQueue(**row) for row in await self.run("polled_queues", within)]
