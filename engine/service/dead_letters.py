"""The verbs of dead letters."""

from __future__ import annotations

from typing import Any

from engine.ledger.letters import DeadLetter
from engine.runtime.verbs.letters import drop, drop_all, letters, letters_of, rerun_letter
from engine.runtime.verbs.requesting import Requested
from engine.schedules.decisions import Overlap
from engine.service.reading import Reading


class DeadLetters(Reading):
    """What ended badly and nobody has dealt with: to read it, run it again, let it rest."""

    async def dead_letters(self, *, key: str | None = None, limit: int = 50) -> list[DeadLetter]:
        """Return what ended badly and nobody has dealt with, newest fire time first."""
        return await letters(self._ledger, key=key, limit=limit)

    async def dead_letters_of(self, name: str, bucket: int | None = None) -> list[DeadLetter]:
        """Return the letter of a run id, or those of a window; see ``letters.letters_of``."""
        async with self._naming():
            return await letters_of(self._ledger, name, bucket)

    async def rerun_dead(
        self,
        name: str,
        bucket: int | None = None,
        *,
        reason: str | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Run a window again that ended badly; see ``letters.rerun_letter``."""
        async with self._near():
            return await rerun_letter(
                self._ledger, name, bucket, by=self._actor, reason=reason, overlap=overlap,
                own_input=own_input,
            )  # fmt: skip

    async def drop_dead(
        self, name: str, bucket: int | None = None, *, reason: str | None = None
    ) -> list[DeadLetter]:
        """Let the letter of a run id rest, or those of a window; see ``letters.drop``."""
        async with self._naming():
            return await drop(self._ledger, name, bucket, by=self._actor, reason=reason)

    async def drop_all_dead(self, *, key: str | None = None, reason: str | None = None) -> int:
        """Let every letter rest, of one schedule or of all; returns how many there were."""
        return await drop_all(self._ledger, by=self._actor, key=key, reason=reason)
