"""The slots of queues, in memory: the rules of ``hold_slots.sql``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from engine.ledger.memory_tables import Tables
from engine.ledger.queue_rows import SlotAsk, SlotsHeld


class MemorySlots:
    """See ``Slots``. Nothing here waits, so that no two calls get in each other's way."""

    _tables: Tables
    clock: Callable[[], datetime]
    _slots: dict[tuple[str, int], tuple[str, str, datetime]]
    """(lane, slot) → queue, holder and end of the lease."""
    _last_asks: dict[str, int]
    """Holder → the number of what it asked last."""

    async def hold_slots(
        self,
        holder: str,
        asks: Sequence[SlotAsk],
        lease: timedelta,
        *,
        take_over: bool,
        number: int,
    ) -> dict[str, int]:
        """See ``Slots``."""
        if number < self._last_asks.get(holder, 0):
            return {}
        self._last_asks[holder] = number
        held: Counter[str] = Counter()
        beyond: Counter[str] = Counter()
        now = self.clock()
        asked = {ask.lane: ask for ask in asks}
        places: Counter[str] = Counter()
        for lane, slot in self._of(holder):
            places[lane] += 1
            ask = asked.get(lane)
            most = self._concurrency(ask.queue) if ask else 0
            if ask and (
                places[lane] <= ask.running or (places[lane] <= ask.wanted and slot < most)
            ):
                self._hold(lane, slot, ask.queue, holder, now + lease)
                held[lane] += 1
                beyond[lane] += slot >= most
            else:
                del self._slots[lane, slot]
        for ask in asks:
            most = self._concurrency(ask.queue)
            taken = {
                slot
                for (lane, slot), (_, other, until) in self._slots.items()
                if lane == ask.lane and (other == holder or not take_over or until > now)
            }
            room = min(ask.wanted - held[ask.lane], most - len(taken))
            for slot in [slot for slot in range(most) if slot not in taken][: max(room, 0)]:
                self._slots.pop((ask.lane, slot), None)
                self._hold(ask.lane, slot, ask.queue, holder, now + lease)
                held[ask.lane] += 1
        usable = held - beyond
        return dict(usable)

    async def give_back_slots(self, holder: str) -> None:
        """See ``Slots``."""
        for place in self._of(holder):
            del self._slots[place]

    async def slots_held(self) -> list[SlotsHeld]:
        """See ``Slots``."""
        now = self.clock()
        counted = Counter(
            (lane, queue, holder)
            for (lane, _), (queue, holder, until) in self._slots.items()
            if until > now
        )
        return [SlotsHeld(*found, slots) for found, slots in sorted(counted.items())]

    def _of(self, holder: str) -> list[tuple[str, int]]:
        return sorted(place for place, (_, owner, _) in self._slots.items() if owner == holder)

    def _hold(self, lane: str, slot: int, queue: str, holder: str, until: datetime) -> None:
        _, _, before = self._slots.get((lane, slot), ("", "", until))
        self._slots[lane, slot] = (queue, holder, max(before, until))

    def _concurrency(self, queue: str) -> int:
        row = self._tables.queues.get(queue)
        return row.limits.concurrency or 0 if row else 0
