"""Takes one window out of a row that stands for many."""

from __future__ import annotations

from datetime import datetime

from engine.ledger import Transaction
from engine.ledger.fire_records import Fire
from engine.schedules.ranges import without
from engine.schedules.windows import Window, is_suffixed


async def take_out(transaction: Transaction, row: Fire, at: datetime) -> str:
    """Give the window that opened at ``at`` a row of its own; returns the id of its run.

    What is left of the row says what it said, of fewer windows.

    Raises:
        ValueError: the row has no window at ``at``.
    """
    definition = await transaction.definition(row.key, row.definition_version)
    first = Window(row.key, row.series, row.bucket, row.fire_time)
    pieces = without(definition.spec, first, row.last_fire_time, at)
    suffixed = is_suffixed(row.workflow_id)
    await transaction.carve(row, pieces, suffixed=suffixed)
    window = Window(row.key, row.series, definition.spec.bucket(at), at)
    return window.workflow_id(suffixed)
