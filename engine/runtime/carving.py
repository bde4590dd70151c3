"""Windows that are taken out of a row that stands for many."""

from __future__ import annotations

from datetime import datetime

from engine.ledger import Transaction
from engine.ledger.fire_records import Fire
from engine.schedules.ranges import without
from engine.schedules.windows import Window, is_suffixed


async def take_out(transaction: Transaction, row: Fire, *moments: datetime) -> list[Window]:
    """Give each window that opened at one of these moments a row of its own; returns them.

    What is left of the row says what it said, of fewer windows. One statement, however many.

    Args:
        transaction: in which it happens.
        row: as it was read.
        moments: in order.

    Raises:
        ValueError: the row has no window at one of them.
    """
    definition = await transaction.definition(row.key, row.definition_version)
    first = Window(row.key, row.series, row.bucket, row.fire_time)
    pieces = without(definition.spec, first, row.last_fire_time, *moments)
    await transaction.carve(row, pieces, suffixed=is_suffixed(row.workflow_id))
    return [Window(row.key, row.series, definition.spec.bucket(at), at) for at in moments]
