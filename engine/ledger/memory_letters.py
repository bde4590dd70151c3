"""Dead letters in the in-memory ledger."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from engine.ledger.letters import DIED, DeadLetter, as_left
from engine.ledger.memory_rows import MemoryRows
from engine.ledger.memory_tables import FireEntry


class MemoryLetters(MemoryRows):
    """See ``engine.ledger.transactions.Transaction``."""

    async def letters(
        self,
        key: str | None = None,
        *,
        workflow_id: str | None = None,
        bucket: int | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """See ``Transaction``."""
        found = [
            self._letter(fire)
            for fire in self._tables.fires.values()
            if fire.status in DIED
            and fire.dealt_at is None
            and key in {None, fire.new.key}
            and workflow_id in {None, fire.new.workflow_id}
            and bucket in {None, fire.new.bucket}
        ]
        found.sort(key=lambda letter: letter.workflow_id)
        found.sort(key=lambda letter: letter.fire_time, reverse=True)
        return found[:limit]

    async def deal(self, workflow_ids: Collection[str]) -> set[str]:
        """See ``Transaction``."""
        dealt = set()
        for name in workflow_ids:
            number = self._tables.runs.get(name)
            fire = self._tables.fires[number] if number else None
            if number and fire and fire.status in DIED and fire.dealt_at is None:
                done = replace(fire, dealt_at=self._clock())
                self._tables.put(self._tables.fires, number, done)
                dealt.add(name)
        return dealt

    def _letter(self, fire: FireEntry) -> DeadLetter:
        new = fire.new
        return DeadLetter(
            key=new.key,
            project=new.project,
            series=new.series,
            bucket=new.bucket,
            fire_time=new.fire_time,
            windows=new.windows,
            last_fire_time=new.last_fire_time,
            kind=fire.kind,
            workflow_id=new.workflow_id,
            run_id=fire.run_id,
            workflow_type=new.workflow_type,
            task_queue=new.task_queue,
            status=fire.status,  # type: ignore[arg-type] # one of DIED
            reason=fire.reason,
            error=fire.error,
            attempts=fire.attempts,
            started_at=fire.started_at,
            died_at=fire.closed_at or fire.decided_at or new.fire_time,
            definition_version=new.definition_version,
            arguments=fire.arguments,
            not_undone=as_left(fire.not_undone),
        )
