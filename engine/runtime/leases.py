"""The leases on what a replica has claimed and not yet settled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from engine.ledger import Ledger
from engine.ledger.fire_records import Claim
from engine.runtime.clock import boottime

_RENEWALS = 3
"""In each lease, so that two may fail."""


@dataclass(slots=True)
class Lease:
    """A claim in hand. Times are of ``boottime``; ``sent_at`` is that of the first send."""

    claim: Claim
    ends: float
    sent_at: float | None = None

    @property
    def lasts(self) -> bool:
        """Whether the claim is still ours, by a clock that counts time spent stopped."""
        return boottime() < self.ends


class Leases:
    """Renews the leases of what is in hand, so that nobody sweeps what its owner still has."""

    def __init__(self, ledger: Ledger, length: timedelta) -> None:
        self._ledger, self._length = ledger, length
        self._leases: dict[int, Lease] = {}

    @contextmanager
    def keeping(self, claim: Claim, ends: float) -> Iterator[Lease]:
        """Keep a claim's lease alive while the block lasts."""
        lease = self._leases[claim.fire_id] = Lease(claim, ends)
        try:
            yield lease
        finally:
            # A fire that was taken over by this same replica has another lease by now.
            if self._leases.get(claim.fire_id) is lease:
                del self._leases[claim.fire_id]

    async def turn(self) -> timedelta:
        """Renew; returns the wait until the next time."""
        await self.renew()
        return self._length / _RENEWALS

    async def renew(self) -> None:
        """Renew every lease that has not ended, by one statement.

        A renewal counts from before it was asked for, so that this side ends the lease first,
        and only when the ledger confirms it: without a word from it the old end stands.
        """
        lasting = [lease for lease in self._leases.values() if lease.lasts]
        if not lasting:
            return
        ends = boottime() + self._length.total_seconds()
        renewed = await self._ledger.renew([lease.claim for lease in lasting], self._length)
        for lease in lasting:
            if lease.claim.fire_id in renewed:
                lease.ends = max(lease.ends, ends)
