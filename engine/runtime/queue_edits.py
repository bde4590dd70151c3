"""What a file changes of its project's queues of steps."""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import KeyForeign
from engine.ledger import Transaction
from engine.ledger.queue_rows import QueueRow
from engine.schedules import ScheduleFile


async def write_queues(transaction: Transaction, file: ScheduleFile, *, by: str) -> tuple[str, ...]:
    """Make the file's queues those of its project; return what changes, a sentence each.

    Raises:
        KeyForeign: another project has a queue of this name; nothing is written then.
    """
    rows = await transaction.queues()
    edits = queue_edits(file, rows)
    if edits:
        await transaction.declare_queues(file.project, file.queues, by=by)
    return edits


def queue_edits(file: ScheduleFile, rows: Mapping[str, QueueRow]) -> tuple[str, ...]:
    """Return what the file changes of the queues that the ledger has, a sentence each.

    Raises:
        KeyForeign: another project has a queue of this name.
    """
    foreign = [
        f"{name} (of {rows[name].project})"
        for name in file.queues
        if name in rows and rows[name].project != file.project
    ]
    if foreign:
        raise KeyForeign(
            f"{file.name} declares queues of others: {', '.join(foreign)}",
            cure="rename them; the name of a queue is, as a key, one project's in a namespace",
        )
    edits = []
    for name, queue in file.queues.items():
        row = rows.get(name)
        if row is None:
            edits.append(f"queue {name}: {queue}")
        elif row.dropped_at is not None:
            edits.append(f"queue {name} is back: {queue}")
        elif row.limits != queue:
            edits.append(f"queue {name}: {queue} (was {row.limits})")
    edits += [
        f"queue {name} is in no file any more; its limits go on holding: {row.limits}"
        for name, row in rows.items()
        if row.project == file.project and row.dropped_at is None and name not in file.queues
    ]
    return tuple(edits)
