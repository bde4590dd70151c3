"""Statements about runs: taken over, settled, seen, lost and stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from engine.errors import EngineError
from engine.ledger.failures import (
    FailingNote,
    RetryNote,
    RunCounts,
    RunDetails,
    Uncounted,
    as_details,
)
from engine.ledger.fires import (
    BlockingRun,
    Claim,
    DataGap,
    Evidence,
    KnownRun,
    OpenRun,
    Outcome,
    StopOrder,
    UnreadEnd,
)
from engine.ledger.floors import Floor
from engine.ledger.postgres.rows import LedgerPart, as_claim
from engine.ledger.records import Serving

_SOON = timedelta(seconds=60)


class RunStatements(LedgerPart):
    """Runs, and the starts that lead to them."""

    _unseen: Floor

    async def take_over(
        self, serving: Serving, *, limit: int, lease: timedelta, newest: bool = False
    ) -> list[Claim]:
        """Take fires whose lease has ended; skip ``claimed`` ones of paused or retired keys.

        ``newest``: those whose lease has ended last, if there are more than the limit.
        """
        ours, stale = (serving.project, serving.replica), self.floors.of(serving)[1]
        rows = await self.run("take_over", *ours, limit, lease, stale, self.binding, newest)
        claims = []
        for row in rows:
            try:
                claims.append(as_claim(row))
            except EngineError as error:
                # A replica that can read the definition takes it over later.
                unread = f"its definition cannot be read: {error}"
                later = Outcome(
                    row["id"], row["token"], "starting", error=unread, retry_after=_SOON
                )
                await self.settle([later])
        return claims

    async def renew(self, claims: Sequence[Claim], lease: timedelta) -> set[int]:
        """Give claims a whole lease from now; return the IDs of those that are still their owner's.

        A claim that was taken over or settled, or whose lease has ended, is not renewed. If the
        commit of a claim was not confirmed, its ID is returned exactly when it happened.
        """
        ids, tokens = [claim.fire_id for claim in claims], [claim.token for claim in claims]
        return {row["id"] for row in await self.run("renew", ids, tokens, lease)}

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        """Write the outcomes whose token still holds; return their number."""
        return len(await self._write("settle", outcomes))

    async def record_evidence(self, evidence: Sequence[Evidence]) -> list[str]:
        """Write evidence of runs; return the workflow IDs of the fires that it changed."""
        rows = await self._write("record_evidence", evidence, self.namespace, self.binding)
        return [row["workflow_id"] for row in rows]

    async def seen_open(self, workflow_ids: Sequence[str], at: datetime) -> dict[str, str | None]:
        """Record that these runs were open at ``at``.

        Return the workflow IDs of those that are open by the ledger, each with what was noted last
        of its failing steps; see ``FailingNote``.
        """
        rows = await self.run("seen_open", list(workflow_ids), at)
        return {row["workflow_id"]: row["failing"] for row in rows}

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        """Return started fires not seen closed, longest unseen first."""
        begin, begun = self._unseen.begin(), time.monotonic()
        rows = await self.run("open_runs", limit, started_before, begin, self.binding)
        oldest = [row["unseen_since"] for row in rows]
        # The runs found are seen now, and all others were seen after them.
        self._unseen.learn(max(oldest) if len(rows) == limit else started_before, begun)
        return [OpenRun(row["workflow_id"], row["run_id"], row["started_at"]) for row in rows]

    async def lose(self, workflow_ids: Sequence[str], error: str) -> list[str]:
        """Mark started runs that Temporal does not know as lost; return those not marked before."""
        rows = await self.run("lose", list(workflow_ids), error, self.binding)
        return [row["workflow_id"] for row in rows]

    async def known_runs(self, workflow_ids: Sequence[str]) -> dict[str, KnownRun]:
        """Return what the ledger knows of these runs; those of no single window are left out."""
        rows = await self.run("known_runs", list(workflow_ids))
        return {
            row["workflow_id"]: KnownRun(row["run_id"], row["first_run_id"], row["closed"])
            for row in rows
        }

    async def note_second_run(self, workflow_id: str, run_id: str) -> bool:
        """Note a run of another chain under the id of a fire; return whether it is new."""
        return bool(await self.run("note_second_run", workflow_id, run_id))

    async def in_the_way(
        self, replica: str, *, alive: timedelta, orphans: bool, limit: int
    ) -> list[BlockingRun]:
        """Return runs that queued windows of their key wait for, the oldest line first.

        These are runs that this replica started; with ``orphans`` also those whose replica has not
        announced itself within ``alive``.
        """
        rows = await self.run("in_the_way", replica, alive, orphans, limit, self.binding)
        return [BlockingRun(**row) for row in rows]

    async def take_stops(
        self, serving: Serving, *, limit: int, lease: timedelta
    ) -> list[StopOrder]:
        """Take runs to cancel or terminate now; no other replica takes them for a lease."""
        rows = await self.run("take_stops", serving.project, limit, lease, self.binding)
        return [StopOrder(**row) for row in rows]

    async def stopped(self, orders: Sequence[StopOrder]) -> None:
        """Record that these runs were asked to end, and the first runs of their chains.

        The grace of a cancelled run counts from the first request. They become orders again soon,
        until they are seen to end.
        """
        await self.many("stopped", orders)

    async def anything_ended(self) -> bool:
        """Return whether a fire ended badly whose follow-up runs are not decided yet."""
        return bool(await self.value("anything_ended"))

    async def note_failing(self, notes: Sequence[FailingNote]) -> set[str]:
        """Note which steps of open runs keep failing; return the IDs of the runs it wrote.

        A run of which something else was noted meanwhile, or that has ended, is left as it is.
        """
        rows = await self._write("note_failing", notes, self.namespace)
        return {row["workflow_id"] for row in rows}

    async def unread_ends(self, limit: int, *, after: str = "") -> list[UnreadEnd]:
        """Return bad ends whose reason is to be read: of each key the newest, by keys.

        ``after`` is the key to begin behind.
        """
        rows = await self.run("unread_ends", limit, after, self.binding)
        return [UnreadEnd(**row) for row in rows]

    async def note_failures(self, ends: Sequence[Evidence]) -> set[str]:
        """Note why runs ended badly; return the workflow IDs of the fires that it changed."""
        rows = await self._write("note_failures", ends, self.namespace)
        return {row["workflow_id"] for row in rows}

    async def uncounted(self, limit: int) -> list[Uncounted]:
        """Return closed runs whose tries or step retries are to be read, newest fires first."""
        rows = await self.run("uncounted", limit, self.binding)
        return [Uncounted(**row) for row in rows]

    async def note_counts(self, counts: Sequence[RunCounts]) -> None:
        """Note what was read of closed runs. It counts for the run that was read alone."""
        await self._write("note_counts", counts, self.namespace)

    async def note_retries(self, notes: Sequence[RetryNote]) -> None:
        """Add retries of steps that workers have seen, of open runs and those closed just now."""
        await self._write("note_retries", notes, self.namespace)

    async def run_details(self, workflow_id: str) -> RunDetails:
        """Return why a run failed and its tries, as the ledger keeps them."""
        rows = await self.run("run_details", workflow_id)
        return as_details(*rows[0]) if rows else RunDetails()

    async def check_data_gaps(self, *, rest: timedelta, limit: int) -> list[DataGap]:
        """Find the data that denied windows left without a run; return the new gaps.

        Args:
            rest: what was denied more recently is left for the next time, because a run that counts
                on it may be about to begin.
            limit: number of windows to check, besides those denied in a row with one of them.
        """
        return [DataGap.of(**row) for row in await self.run("check_data_gaps", rest, limit)]
