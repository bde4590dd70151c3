"""The end of a definition, or of what holds it: first everything it owes is decided (rule L3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from engine.ledger import Ledger, Transaction
from engine.ledger.schedule_records import ScheduleState, Step
from engine.runtime.planning import decided_in_part, holding, holds, owes_many

_log = logging.getLogger(__name__)


async def end(
    transaction: Transaction,
    states: Sequence[ScheduleState],
    decided: Callable[[ScheduleState], Step],
) -> list[Step]:
    """Record what ``decided`` says of these locked schedules.

    What a step gives up may be on its way meanwhile. Such a schedule is read and decided again.
    """
    steps = {state.key: decided(state) for state in states}
    while True:
        held = {step.state.key for step in await holding(transaction, [*steps.values()])}
        if not (sent := steps.keys() - held):
            break
        for state in await transaction.read(sorted(sent), all_open=True):
            steps[state.key] = decided(state)
    await transaction.record([*steps.values()], strict=True)
    return [*steps.values()]


async def decide_ahead(ledger: Ledger, key: str) -> None:
    """Decide what a schedule owes in parts, where that is too much for the transaction of an edit.

    Each part is decided as a tick decides it, and workers begin to start it. Where nothing can be
    decided before somebody has looked, the edit decides it after all.
    """
    told = False
    while True:
        async with ledger.transaction(long=True) as transaction:
            await transaction.lock([key])
            now = await transaction.now()
            found = await transaction.read([key])
            state = next((each for each in found if owes_many(each, now)), None)
            if state is None:
                return
            step = decided_in_part(state, now)
            if step.cursor <= state.cursor or not await holds(transaction, step.moves):
                return
            await transaction.record([step], strict=True)
        if not told:
            _log.warning(
                "%s owes very many windows by its old definition; they are decided first", key
            )
            told = True
        await asyncio.sleep(0)
