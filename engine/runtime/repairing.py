"""Derives next fire times anew: the column is a cache, and a wrong one would be silence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from engine.errors import Code
from engine.ledger.schedule_records import ScheduleState
from engine.ledger.upkeep import Upkeep
from engine.runtime.events import Alert, Listener
from engine.runtime.planning import LONGEST_WAIT, planned

_AT_ONCE = 100


class Tended(Protocol):
    """A ledger that a janitor can look after."""

    def upkeep(self) -> AbstractAsyncContextManager[Upkeep]:
        """Begin a transaction of the janitor."""
        ...


async def repair(ledger: Tended, project: str, tell: Listener) -> AsyncIterator[int]:
    """Look at every schedule of a project, in batches; yields how many each batch mended.

    A next fire time that is too early costs a look, and is corrected by it. One that is too late
    or missing is what nobody else would find. Nothing is locked unless it looks wrong.
    """
    after = ""
    while True:
        async with ledger.upkeep() as upkeep:
            cached = await upkeep.next_fires(project, after, _AT_ONCE)
            now = await upkeep.now()
            states = await upkeep.transaction.read([*cached])
        if not cached:
            return
        wrong = [state.key for state in states if _due(state, now, cached[state.key])]
        yield await _mend(ledger, wrong, tell) if wrong else 0
        after = max(cached)


async def _mend(ledger: Tended, keys: list[str], tell: Listener) -> int:
    mended = []
    async with ledger.upkeep() as upkeep:
        cached = await upkeep.lock_free(keys)
        now = await upkeep.now()
        for state in await upkeep.transaction.read([*cached]):
            right = _due(state, now, cached[state.key])
            if right is not None:
                await upkeep.correct_next(state.key, right)
                mended.append((state.key, cached[state.key], right))
    for key, was, right in mended:
        text = f"{key} would have fired next at {_shown(was)}; it is {_shown(right)} now"
        tell(Alert(Code.NEXT_FIRE_REPAIRED, text))
    return len(mended)


def _due(state: ScheduleState, now: datetime, cached: datetime | None) -> datetime | None:
    """Return when the schedule is to be looked at, where the cache says later or never."""
    if cached is not None and cached <= now + LONGEST_WAIT:
        return None  # it corrects itself, and may wait for an answer
    if state.hold is not None:  # its windows stay undecided until it goes on
        due = state.pause.until if state.hold == "paused" and state.pause else None
    else:
        try:
            step = planned(state, now, limit=1, rows=1)
        except Exception:  # noqa: BLE001 - a schedule that fails is the tick's to tell of
            return None
        busy = step.decisions or step.moves or step.looks or step.audit
        due = now if busy else step.next_fire_at
    if due is None or (cached is not None and cached <= due):
        return None
    return due


def _shown(at: datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"
