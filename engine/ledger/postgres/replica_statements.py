"""Statements about replicas: bindings, announcements, duties, and what they hold or leave."""

from __future__ import annotations

from datetime import datetime, timedelta

from engine.errors import BoundElsewhere
from engine.ledger.postgres.connections import query, values
from engine.ledger.postgres.rows import InTransaction, LedgerPart
from engine.ledger.records import Binding, Served, Serving, TemporalNamespace, as_served
from engine.schedules import TZDATA_VERSION, Reason, code_of

_COUNTED = 1000

# --- bindings ---

_UNANSWERED = Reason(
    "may_have_run", "may have run: its start was not answered, and its Temporal is asked no more"
)
_CLOSED = "it was open when the ledger was moved for good, so nobody has seen its end"


class BindingStatements(InTransaction):
    """The Temporal namespaces that a ledger belongs, or has belonged, to, as they change."""

    async def bind_to(self, to: TemporalNamespace, *, by: str) -> None:
        """Let the workers of this Temporal namespace claim from this commit on, and no others."""
        await self.connection.execute(
            query("raise_epoch"), timeout=self._patience
        )  # one move at a time: its row is locked
        await self.run("leave_binding", *values("leave_binding", to))
        await self.run("move_here", *values("move_here", to, by=by))

    async def close_bindings(self, limit: int = 1000) -> tuple[int, int, bool]:
        """End fires that are open in Temporal namespaces whose workers do not claim.

        Return how many are unvouched now, how many runs are lost, and whether there may be more.
        """
        reason = _UNANSWERED
        (row,) = await self.run("close_bindings", limit, reason, code_of(reason), _CLOSED)
        return row["unvouched"], row["lost"], row["more"]


# --- replicas ---


class ReplicaStatements(LedgerPart):
    """Replicas: bound, announced, served and on duty."""

    async def bind(self, found: TemporalNamespace, *, by: str) -> Binding:
        """Bind the ledger to the Temporal namespace that answers, unless it belongs to one.

        What is sent and tracked from now on belongs to this binding. Only IDs are compared: behind
        a failover of Temporal the names of cluster and address may change.

        Raises:
            BoundElsewhere: the ledger belongs to another namespace.
        """
        bindings = await self.bindings()
        if not bindings:
            await self.run("bind", found.id, found.place, by)
            bindings = await self.bindings()
        for each in bindings:
            if each.namespace_id == found.id and each.closed_at is None:
                self.binding = each.number
                return each
        (own,) = (each for each in bindings if each.current)
        raise BoundElsewhere(
            f"the ledger belongs to the namespace {self.namespace} of {own.place}, with the ID"
            f" {own.namespace_id}; that of {found.place} has the ID {found.id}",
            hint="check TEMPORAL_ADDRESS and SCHED_DATABASE_URL; `sched move` moves the ledger"
            " here, with --old-is-gone if the other namespace is no more",
        )

    async def bindings(self) -> list[Binding]:
        """Return the Temporal namespaces that the ledger belongs, or has belonged, to."""
        return [Binding(**row) for row in await self.run("bindings", _COUNTED)]

    async def served(self, *, alive: timedelta) -> Served:
        """Return the projects, task queues and types that replicas announced within ``alive``."""
        rows = await self.run("served", alive)
        return as_served((row["project"], row["task_queue"], row["types"]) for row in rows)

    async def replicas(self, *, alive: timedelta) -> int:
        """Return how many replicas of the namespace announced themselves within ``alive``."""
        return await self.value("living", alive) or 0

    async def unvouched_until(self, margin: timedelta | None) -> datetime | None:
        """Return up to when windows without a row may have run, and Temporal has forgotten it.

        ``margin``: as in ``announce``.
        """
        return await self.value("unvouched_until", margin, self.binding)

    async def withdraw(self, serving: Serving) -> None:
        """Remove this replica's announcement."""
        await self.run("withdraw", serving.replica)

    async def other_rules(self, project: str, *, alive: timedelta) -> list[str]:
        """Return the other zone rules of replicas that announced themselves within ``alive``."""
        return await self.column("other_rules", project, TZDATA_VERSION, alive)

    async def hold_duty(self, duty: str, holder: str, lease: timedelta) -> datetime | None:
        """Take or keep a duty; return its watermark (at first the epoch), or None if not ours."""
        return await self.value("hold_duty", duty, holder, lease)

    async def release_duty(self, duty: str, holder: str) -> None:
        """Release the duty, unless it has another holder by now."""
        await self.run("release_duty", duty, holder)

    async def set_watermark(self, duty: str, holder: str, watermark: datetime) -> None:
        """Record how far the duty's work has come."""
        await self.run("set_watermark", duty, holder, watermark)
