"""What follows a fire that ended badly: a durable outbox, by looking at each such end once.

The fires that follow and the note that somebody has looked are one transaction. They are claims
like any other then: whichever replica is there sends them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from engine.errors import Code
from engine.flow.run_rules import RunRules
from engine.flow.undoing import UNDO_TYPE
from engine.ledger import Ledger
from engine.ledger.follow_ups import Ended, FollowUp
from engine.ledger.letters import DIED
from engine.runtime.events import Alert, Listener
from engine.schedules.versions import resolve_type

_AT_ONCE = 200
_CUT_OFF = frozenset({"terminated", "timed_out"})
"""How a run ends that cannot undo anything itself."""


async def follow(ledger: Ledger, *, tell: Listener) -> int:
    """Write what follows some of the fires that ended badly; returns how many were looked at."""
    if not await ledger.anything_ended():
        return 0
    async with ledger.transaction() as transaction:
        ended = await transaction.ended(_AT_ONCE)
        announced = await transaction.announced({each.task_queue for each in ended})
        news = [
            each for fire in ended for each in follow_ups(fire, announced.get(fire.task_queue, ()))
        ]
        written = await transaction.follow([each.fire_id for each in ended], news)
    for each in news:
        if each.reason and each.workflow_id in written:
            tell(Alert(Code.HANDLER_UNKNOWN, f"{each.workflow_id}: {each.reason}"))
    return len(ended)


def follow_ups(fire: Ended, announced: Collection[str]) -> Iterator[FollowUp]:
    """Return what follows the end of a fire.

    Args:
        fire: what ended badly.
        announced: every type that a worker of its task queue ever announced.
    """
    if fire.on_dead is not None and fire.status in DIED:
        found = resolve_type(fire.on_dead, announced)
        reason = f"no worker on task queue {fire.task_queue} knows {fire.on_dead}"
        yield FollowUp(
            fire.fire_id, f"{fire.workflow_id}:dead", found, told(fire),
            reason=None if found else reason,
        )  # fmt: skip

    undone_for_it = RunRules.from_json(fire.rules).compensate_on_terminate
    if undone_for_it and fire.run_id and fire.status in _CUT_OFF:
        dead = {
            "workflow_id": fire.workflow_id,
            "run_id": fire.run_id,
            "workflow": fire.workflow_type,
        }
        yield FollowUp(fire.fire_id, f"{fire.workflow_id}:undo", UNDO_TYPE, dead)


def told(fire: Ended) -> dict[str, object]:
    """Return the input of a handler: what became of the fire."""
    return {
        "key": fire.key,
        "bucket": fire.bucket,
        "fire_time": fire.fire_time.isoformat().replace("+00:00", "Z"),
        "windows": fire.windows,
        "workflow_id": fire.workflow_id,
        "run_id": fire.run_id,
        "workflow": fire.workflow_type or fire.workflow,
        "status": fire.status,
        "error": fire.error,
        "attempts": fire.attempts,
        "input": fire.arguments[0] if fire.arguments else None,
        "not_undone": [dict(left) for left in fire.not_undone],
    }
