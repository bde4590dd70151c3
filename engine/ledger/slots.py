"""The part of the ledger that shares the slots of a queue among replicas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from engine.ledger.queue_rows import SlotAsk, SlotsHeld


class Slots(Protocol):
    """Never more slots of a lane are held than its queue's concurrency.

    Except while a queue that was made smaller still runs what had begun.
    """

    async def hold_slots(
        self,
        holder: str,
        asks: Sequence[SlotAsk],
        lease: timedelta,
        *,
        take_over: bool,
        number: int,
    ) -> dict[str, int]:
        """Renew, give back and take slots; return on how many of each lane steps may begin.

        Those on which steps go on though their queue has been made smaller are not counted.

        What the holder has of lanes it does not ask for is given back. A lane of a queue that
        nobody has declared, or that has no concurrency, has no slots.

        Args:
            holder: a replica; its name is nobody else's, ever.
            asks: one for each lane.
            lease: how long they are held from now.
            take_over: whether to take slots whose lease has ended, too. Who has not been in
                touch with the ledger for a whole lease lets their holders renew them first.
            number: grows with each call of this holder. A call that arrives late, after a later
                one, neither gives back nor renews what that one has kept.
        """
        ...

    async def give_back_slots(self, holder: str) -> None:
        """Hold nothing any more."""
        ...

    async def slots_held(self) -> list[SlotsHeld]:
        """Return who holds how many slots, by lane."""
        ...
