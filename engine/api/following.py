"""The executions that a stream sends: the newest of a schedule, and each that is new or changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from engine.service import FIRST_MOMENT, OPEN, Fire, ScheduleService

NEWEST: Final = 100
"""Rows that each look reads. Further ones are read only if the last of these is new."""
PAGE: Final = 500
"""Rows of a further page."""
PAGES: Final = 20
"""The most further pages of one look; a ``LeftOut`` stands for what is behind them."""
BEFORE: Final = 1000
"""Rows before its place of which a resumed stream finds the ends."""
_SLACK: Final = timedelta(minutes=10)
"""How long after its end a run may be recorded, so that a resumed stream finds it."""
_FEW: Final = 4
"""Open runs that are read one by one; a list of all that are open takes as many statements."""
_STATUSES: Final = tuple(sorted(OPEN))

FirePlace = tuple[datetime, str]
"""Fire time and run id of an execution."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Executions that are new and too many to send: those between two fire times."""

    since: datetime
    until: datetime


class Following:
    """Memory of a stream: what it has sent of one schedule, and what each look finds to send.

    A look is one statement where nothing is new and no older run is open. It knows what is open,
    and the newest of what has ended.

    Args:
        service: the service.
        key: the schedule's key.
        limit: how many of the newest executions to begin with.
        place: where an earlier stream of the schedule ended, in place of ``limit``.
    """

    def __init__(
        self, service: ScheduleService, key: str, *, limit: int, place: FirePlace | None = None
    ) -> None:
        self._service, self._key, self._limit = service, key, limit
        self._seen: dict[str, Fire] = {}
        self._first = FIRST_MOMENT if place is None else min(place[0], datetime.now(UTC))
        self._begun = self._resumes = place is not None
        self._place = place

    @property
    def place(self) -> FirePlace | None:
        """Where a stream continues that ends now: the newest fire that was sent and is due."""
        return self._place

    async def look(self) -> AsyncIterator[Fire | LeftOut]:
        """Yield what is new or has changed since the last look, the oldest first.

        Raises:
            LedgerUnavailable: the ledger cannot be read; the next look finds what is left.
        """
        newest = await self._page(None, NEWEST if self._begun else self._limit)
        if self._resumes:
            for fire in self._news(await self._changed_before()):
                yield fire
            self._resumes = False
        for fire in self._news(await self._older(newest)):
            yield fire
        if self._begun:
            async for each in self._behind(newest):
                yield each
        for fire in self._news(reversed(newest)):
            yield fire
        if not self._begun and len(newest) == self._limit:
            # What lies before those that the stream began with is not its business.
            self._first = min(newest[-1].fire_time, datetime.now(UTC))
        self._begun = True
        self._forget()

    def _news(self, found: Iterable[Fire]) -> Iterator[Fire]:
        """Yield those that are new or have changed, and note them as sent."""
        now = datetime.now(UTC)
        for fire in found:
            if self._seen.get(fire.workflow_id) == fire:
                continue
            self._seen[fire.workflow_id] = fire
            # A window that is skipped ahead is no place to continue: others are to come before it.
            if fire.fire_time <= now and (not self._place or fire.fire_time >= self._place[0]):
                self._place = fire.fire_time, fire.workflow_id
            yield fire

    async def _page(self, after: FirePlace | None, limit: int) -> list[Fire]:
        return await self._service.fires_page(
            self._key, since=self._first, after=after, limit=limit
        )

    async def _behind(self, newest: list[Fire]) -> AsyncIterator[Fire | LeftOut]:
        """Yield what is new and older than the newest, up to a row that is known.

        The pages are found from the newest on and sent from the oldest on, so that a stream which
        ends in between continues where it ended. One page is held at a time.
        """
        places: list[FirePlace] = []
        page, full = newest, NEWEST
        while len(page) == full and page[-1].workflow_id not in self._seen:
            last = page[-1]
            if len(places) == PAGES:
                yield LeftOut(self._known_before(last.fire_time), last.fire_time)
                break
            places.append((last.fire_time, last.workflow_id))
            page, full = await self._page(places[-1], PAGE), PAGE
        while places:
            for fire in self._news(reversed(page)):
                yield fire
            places.pop()
            page = await self._page(places[-1], PAGE) if places else []

    def _known_before(self, moment: datetime) -> datetime:
        known = (fire.fire_time for fire in self._seen.values())
        return max((at for at in known if at < moment), default=self._first)

    async def _older(self, newest: list[Fire]) -> list[Fire]:
        """Return those that were open at the last look, and are no longer among the newest."""
        names = {fire.workflow_id for fire in newest}
        left = [
            each
            for each in self._seen.values()
            if each.status in OPEN and each.workflow_id not in names
        ]
        left.sort(key=lambda fire: fire.fire_time)
        if len(left) <= _FEW:
            return await self._read(left)
        first, last = left[0].fire_time, left[-1].fire_time
        opened = await self._open(first, last)
        if len(opened) == BEFORE:  # of older ones nothing is known yet
            first = opened[-1].fire_time + timedelta.resolution
        still = {fire.workflow_id for fire in opened}
        gone = [fire for fire in left if fire.workflow_id not in still and fire.fire_time >= first]
        ended = await self._read(gone[:NEWEST])
        known = [fire for fire in reversed(opened) if fire.workflow_id in self._seen]
        return [*ended, *known]

    async def _open(self, since: datetime, until: datetime) -> list[Fire]:
        return await self._service.fires_page(
            self._key, statuses=_STATUSES, since=since, until=until, limit=BEFORE
        )

    async def _read(self, fires: list[Fire]) -> list[Fire]:
        found = []
        for each in fires:
            fire = await self._service.fire(each.workflow_id)
            if fire is None:  # its row has become one of a range
                del self._seen[each.workflow_id]
            else:
                found.append(fire)
        return found

    async def _changed_before(self) -> list[Fire]:
        """Return executions before the place of a resumed stream that may have changed since.

        These are what is open, what has ended since, and of the newest also what never had a run:
        of such a row nothing says when it was written.
        """
        until, since = self._first - timedelta.resolution, self._first - _SLACK
        before = await self._service.fires_page(self._key, until=until, limit=BEFORE)
        changed = [
            fire
            for number, fire in enumerate(before)
            if (number < NEWEST if fire.closed_at is None else fire.closed_at >= since)
        ]
        found = {fire.workflow_id: fire for fire in await self._open(FIRST_MOMENT, until)}
        found |= {fire.workflow_id: fire for fire in changed}
        return sorted(found.values(), key=lambda fire: fire.fire_time)

    def _forget(self) -> None:
        """Keep what is open, and the newest of what has ended."""
        ended = [fire for fire in self._seen.values() if fire.status not in OPEN]
        if len(ended) <= 2 * NEWEST:
            return
        ended.sort(key=lambda fire: fire.fire_time)
        for fire in ended[: -2 * NEWEST]:
            # What was sent and is no longer known must not be found again.
            self._first = max(self._first, fire.fire_time)
            del self._seen[fire.workflow_id]
