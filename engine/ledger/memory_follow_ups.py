"""What follows fires that ended badly, in the in-memory ledger."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from engine.ledger.follow_ups import ENDED_BADLY, Ended, FollowUp
from engine.ledger.letters import as_left
from engine.ledger.memory_rows import MemoryRows
from engine.ledger.memory_tables import FireEntry


class MemoryFollowUps(MemoryRows):
    """See ``engine.ledger.transactions.Transaction``."""

    async def ended(self, limit: int) -> list[Ended]:
        """See ``Transaction``."""
        found = [(n, fire) for n, fire in self._tables.fires.items() if is_to_follow(fire)]
        return [self._ended(number, fire) for number, fire in found[:limit]]

    async def follow(self, looked_at: Collection[int], news: Sequence[FollowUp]) -> set[str]:
        """See ``Transaction``."""
        written = set()
        for each in news:
            if each.workflow_id not in self._tables.runs:
                self._add(self._following(each))
                written.add(each.workflow_id)
        for number in looked_at:
            fire = self._tables.fires[number]
            self._tables.put(self._tables.fires, number, replace(fire, followed=True))
        return written

    def _following(self, each: FollowUp) -> FireEntry:
        followed = self._tables.fires[each.fire_id]
        of = followed.new
        new = replace(
            of,
            windows=1,
            last_fire_time=of.fire_time,
            workflow_id=each.workflow_id,
            workflow_type=each.workflow_type,
            status="rejected" if each.reason else "claimed",
            reason=each.reason,
            timing="manual",
            missed=0,
            missed_from=None,
            not_before=None,
            token=None,
        )
        fire = FireEntry.of(new)
        due = None if each.reason else self._clock()
        return replace(fire, kind="handler", own_input=(dict(each.argument),), lease_until=due,
                       data_from=followed.data_from)  # fmt: skip

    def _ended(self, number: int, fire: FireEntry) -> Ended:
        new, schedule = fire.new, fire.new.schedule
        return Ended(
            fire_id=number,
            key=new.key,
            project=new.project,
            series=new.series,
            bucket=new.bucket,
            fire_time=new.fire_time,
            windows=new.windows,
            workflow_id=new.workflow_id,
            run_id=fire.run_id,
            workflow_type=new.workflow_type,
            workflow=schedule.workflow,
            task_queue=new.task_queue,
            status=fire.status,  # type: ignore[arg-type] # one of those
            error=fire.error or fire.reason,
            attempts=fire.attempts,
            arguments=fire.arguments,
            not_undone=as_left(fire.not_undone),
            on_dead=schedule.on_dead,
            rules=None if schedule.external else self._tables.rules_of(new),
        )


def is_to_follow(fire: FireEntry) -> bool:
    """Whether it ended badly, and nobody has looked yet what follows it."""
    return fire.status in ENDED_BADLY and not fire.followed and fire.kind != "handler"
