"""Takes over schedules that older rules of time computed."""

from __future__ import annotations

from engine.ledger import Ledger
from engine.ledger.replica_records import Serving
from engine.runtime.planning import holding, planned

_BATCH = 1000
_ROWS = 20
"""Rows of one schedule at most; what else an outage left is the tick's, as at any other time."""


async def adopt(ledger: Ledger, serving: Serving) -> int:
    """Decide by our rules what schedules of our lanes owe, where older rules computed them.

    As with an edit, runs that are owed are left to the sweepers. Returns how many were adopted.
    A local time that has fired by the older rules does not fire again; see ``planned``.
    """
    adopted, after = 0, ""
    while True:
        async with ledger.transaction(long=True) as transaction:
            keys = await transaction.lock_outdated(serving, after, _BATCH)
            now = await transaction.now()
            steps = []
            for state in await transaction.read(keys):
                try:
                    steps.append(planned(state, now, rows=_ROWS))
                except Exception as error:  # noqa: BLE001 - one bad schedule never stops the others
                    await transaction.back_off(state.key, f"{type(error).__name__}: {error}")
            # What is being sent meanwhile is not given up: a tick decides it by our rules as well.
            steps = await holding(transaction, steps)
            await transaction.record(steps)
        if not keys:
            return adopted
        adopted, after = adopted + len(steps), keys[-1]
