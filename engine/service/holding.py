"""The verbs that let a schedule rest, or one window of it."""

from __future__ import annotations

from datetime import datetime

from engine.runtime.verbs.pausing import Paused, Resumed, pause, resume
from engine.runtime.verbs.skipping import Skipped, skip, unskip
from engine.schedules.catch_up import CatchUp
from engine.service.reading import Reading


class Holding(Reading):
    """What keeps windows to come from starting, and takes that back."""

    async def pause(self, key: str, *, reason: str | None, until: datetime | None = None) -> Paused:
        """Let a schedule rest; see ``pausing.pause``."""
        async with self._near():
            return await pause(self._ledger, key, by=self._actor, reason=reason, until=until)

    async def resume(
        self, key: str, *, reason: str | None = None, make_up: CatchUp | None = None
    ) -> Resumed:
        """Let a paused schedule fire again; see ``pausing.resume``."""
        async with self._near():
            return await resume(self._ledger, key, by=self._actor, reason=reason, make_up=make_up)

    async def skip(self, key: str, at: datetime, *, reason: str | None = None) -> Skipped:
        """Skip one window that is to come; see ``skipping.skip``."""
        async with self._near():
            return await skip(self._ledger, key, at, by=self._actor, reason=reason)

    async def unskip(self, key: str, at: datetime, *, reason: str | None = None) -> Skipped:
        """Take a skip back; see ``skipping.unskip``."""
        async with self._near():
            return await unskip(self._ledger, key, at, by=self._actor, reason=reason)
