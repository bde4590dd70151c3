"""Learns what became of started runs: closes, and runs the ledger did not know of.

One replica at a time performs this duty, so that a fleet does not multiply the calls; two at
once would do no harm, because evidence only ever moves a fire forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError

from engine.ledger import Ledger
from engine.ledger.fire_records import Evidence
from engine.runtime.booking import book
from engine.runtime.clock import LedgerClock
from engine.runtime.events import Closed, Listener, logger
from engine.runtime.following import follow
from engine.runtime.looking import Looker, Seen
from engine.runtime.settings import Settings
from engine.runtime.starter import evidence_of

_VISIBILITY_LAG = timedelta(seconds=60)
"""Visibility is eventual; a close that appears later than this is found by ``describe``."""
_NEAR = timedelta(seconds=5)
"""How much of the time before its last look a turn looks at again."""
_SWEEP_EVERY = 10
_PAGE = 500
_DESCRIBED = 20
_PUT_OFF = 5
"""Turns in a row that may be left to starts."""
_DOUBTED = timedelta(minutes=5)
"""How far back it looks at least when the ledger lost commits: the watermark may have moved on
before that was noticed."""
_REMEMBERED = 20_000
_DUTY = "tracker"


class Tracker:
    """Settles closed runs behind a watermark, and looks at long-open ones in turn.

    Args:
        busy: whether windows wait to be started. They come first: a close that is learned a few
            seconds later hurts nobody.
        doubted_at: when a sign was seen that the ledger lost commits. What was booked before has to
            be booked again.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        clock: LedgerClock,
        settings: Settings,
        *,
        looker: Looker,
        replica: str,
        busy: Callable[[], bool] = lambda: False,
        doubted_at: Callable[[], datetime | None] = lambda: None,
        tell: Listener,
    ) -> None:
        self._client, self._ledger, self._clock = client, ledger, clock
        self._settings, self._tell = settings, tell
        self._looker, self._replica = looker, replica
        self._seen: dict[str, None] = {}
        self._turns = 0
        self._busy, self._put_off = busy, 0
        self._doubted_at, self._knows_of = doubted_at, doubted_at()

    async def turn(self) -> timedelta:
        """Look once; returns the wait until the next look."""
        if self._busy() and self._put_off < _PUT_OFF:
            self._put_off += 1
            return self._settings.track
        near = _NEAR + self._settings.track * (self._put_off + 1)
        self._put_off = 0
        if doubts := (doubted_at := self._doubted_at()) != self._knows_of:
            self._seen.clear()
            near = max(near, _DOUBTED)
        lease = max(self._settings.lease, self._settings.track * 3)
        watermark = await self._ledger.hold_duty(_DUTY, self._replica, lease)
        if watermark is None:
            return self._settings.track
        now = self._clock.now()
        if watermark == datetime.fromtimestamp(0, UTC):
            watermark = now - _VISIBILITY_LAG
        # The near past at every turn, all that visibility may still owe us now and then.
        sweep = doubts or self._turns % _SWEEP_EVERY == 0
        self._turns += 1
        closed = await self._closed_since((min if sweep else max)(watermark, now - near))
        await self._look_at_long_open(now)
        changed = await self._book([*filter(None, closed.values())])
        # Only now: what could not be written must be found again.
        self._remember(closed)
        self._knows_of = doubted_at
        if changed or sweep:
            await self._ledger.wake()  # a close may be what the next in a queue has waited for
        await follow(self._ledger, tell=self._tell)
        if sweep:
            await self._ledger.set_watermark(_DUTY, self._replica, now - _VISIBILITY_LAG)
        return self._settings.track

    async def _book(self, found: Sequence[Seen]) -> set[str]:
        changed = set(await book(self._ledger, found, by=self._replica, tell=self._tell))
        # Visibility answers the newest first; whoever listens hears them as they came.
        for seen in sorted((seen for seen, _ in found), key=_closed_at):
            if seen.closed and seen.workflow_id in changed:
                self._tell(Closed(seen))
        return changed

    async def _closed_since(self, since: datetime) -> dict[str, Seen | None]:
        """Closed runs not seen before, by run id; None is a run that is not ours to settle."""
        query = f'WorkflowId STARTS_WITH "sched:" AND CloseTime >= "{since.isoformat()}"'
        found = {}
        runs = self._client.list_workflows(
            query, page_size=_PAGE, rpc_timeout=self._settings.rpc_timeout
        )
        async for run in runs:
            if run.run_id not in self._seen:
                try:
                    found[run.run_id] = await self._evidence(run)
                except Exception as error:  # noqa: BLE001 - one run never hides the others
                    logger.warning("%s: %s", run.id, error)
        return found

    async def _evidence(self, run: WorkflowExecution) -> Seen | None:
        """A closed run of ours, or None: foreign, or continued under the same id."""
        info = await self._looker.fire_of(run)
        if info is None or run.status == WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return None
        if run.status == WorkflowExecutionStatus.COMPLETED:
            return evidence_of(run), info
        # A failed run may have been retried or reset under the same id: ask for the last one.
        return await self._looker.find(run.id)

    async def _look_at_long_open(self, now: datetime) -> None:
        runs = await self._ledger.open_runs(_DESCRIBED, started_before=now - _VISIBILITY_LAG)
        with suppress(RPCError):  # what was seen of the others is written
            await self._looker.look([run.workflow_id for run in runs])

    def _remember(self, run_ids: Iterable[str]) -> None:
        self._seen.update(dict.fromkeys(run_ids))
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]


def _closed_at(evidence: Evidence) -> datetime:
    return evidence.closed_at or evidence.started_at
