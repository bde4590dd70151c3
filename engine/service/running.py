"""The verbs that start runs, and those that end them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from datetime import datetime
from typing import Any

from engine.ledger.backfill_records import Backfill, Included, InLine
from engine.ledger.fire_records import Fire
from engine.runtime.past_windows import Considered
from engine.runtime.verbs.backfilling import BackfillRequested, backfill, preview, windows_of
from engine.runtime.verbs.requesting import Requested, rerun, trigger
from engine.runtime.verbs.stopping import Cancelled, cancel
from engine.schedules.decisions import Overlap
from engine.service.reading import Reading


class Running(Reading):
    """What is done to runs: to start one, to start it again, to end it."""

    async def trigger(
        self,
        key: str,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Start a run besides the schedule's windows; see ``requesting.trigger``."""
        async with self._near():
            return await trigger(
                self._ledger, key, by=self._actor, reason=reason, request_id=request_id,
                overlap=overlap, own_input=own_input,
            )  # fmt: skip

    async def rerun(
        self,
        key: str,
        bucket: int,
        *,
        reason: str | None = None,
        series: int | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Start one more run of a decided window; see ``requesting.rerun``."""
        async with self._near():
            return await rerun(
                self._ledger, key, bucket, by=self._actor, reason=reason, series=series,
                overlap=overlap, own_input=own_input,
            )  # fmt: skip

    async def cancel(
        self, name: str, *, reason: str | None = None, terminate: bool = False
    ) -> Cancelled:
        """Cancel a run, or all of a schedule that an application asked for; see ``stopping``."""
        async with self._near():
            return await cancel(
                self._ledger, name, by=self._actor, reason=reason, terminate=terminate
            )

    async def backfill(
        self,
        key: str,
        begin: datetime,
        end: datetime,
        *,
        reason: str | None = None,
        overlap: InLine | None = None,
        include: Collection[Included] = (),
    ) -> BackfillRequested:
        """Ask for runs of windows of the past that have none; see ``backfilling.backfill``."""
        async with self._near():
            return await backfill(
                self._ledger, key, begin, end, by=self._actor, reason=reason, overlap=overlap,
                include=include,
            )  # fmt: skip

    async def preview_backfill(
        self,
        key: str,
        begin: datetime,
        end: datetime,
        *,
        overlap: InLine | None = None,
        include: Collection[Included] = (),
    ) -> BackfillRequested:
        """Say what ``backfill`` would come to, and ask for nothing. Refuses what it refuses."""
        async with self._near():
            return await preview(
                self._ledger, key, begin, end, by=self._actor, overlap=overlap, include=include
            )

    def windows_of(self, previewed: Backfill) -> AsyncIterator[Considered]:
        """Return each window of a backfill in order: whether it starts, and why or why not."""
        return windows_of(self._ledger, previewed)

    async def laid(self, of: Backfill) -> list[Fire]:
        """Return the fires that a backfill has laid, and that nobody had begun before it."""
        async with self._ledger.transaction(long=True) as transaction:
            rows = await transaction.between(of.key, of.first, of.last)
        return [
            row
            for row in rows
            if row.timing == "backfill"
            and row.fire_time <= of.cursor
            and (row.started_at is None or row.started_at >= of.requested_at)
        ]
