"""Which schedules of a file are not applied, because no worker has their workflow.

A misspelt name, or a version that is not deployed yet, would otherwise take the place of what
works, and be found out when its windows are rejected: docs/adr/0023-what-an-apply-refuses.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from engine.ledger import Transaction
from engine.runtime import unknown
from engine.schedules import Schedule
from engine.schedules.diff import Diff

_GOES_ON = "its last good definition goes on"

Types = Mapping[tuple[str, str], str | None]
"""For a task queue and a ``workflow:`` the Temporal type, None where nobody announced one."""


async def refused(
    transaction: Transaction, schedules: Sequence[Schedule], compared: Diff, types: Types
) -> dict[str, str]:
    """Return the keys that are not to be applied, each with the reason.

    Refused is what would be written, were it enabled, and names a workflow that nobody announced,
    although somebody serves its task queue. And so is all that would be written of those that it
    is linked with by ``after`` and ``needs``: half of a chain would wait for the wrong windows.

    Args:
        transaction: knows what was announced.
        schedules: all of the file.
        compared: the file with the ledger.
        types: what the file's workflows are.
    """
    written = {*compared.added, *compared.changed, *compared.returned}
    nameless = [each for each in schedules if each.key in written and _is_unknown(each, types)]
    if not nameless:
        return {}
    announced = await transaction.announced({each.task_queue for each in nameless})
    reasons = {
        each.key: unknown.explained(each, announced[each.task_queue])
        for each in nameless
        if announced.get(each.task_queue)
    }
    for key, cause in kin(schedules, reasons).items():
        if key in written:
            reasons[key] = f"after or needs links it with {cause}, which is refused"
    return {
        key: f"refused: {reasons[key]}" + (f"; {_GOES_ON}" if key in compared.changed else "")
        for key in (each.key for each in schedules)
        if key in reasons
    }


def _is_unknown(schedule: Schedule, types: Types) -> bool:
    if schedule.external or not schedule.enabled:
        return False
    return types[schedule.task_queue, schedule.workflow] is None


def kin(schedules: Iterable[Schedule], keys: Collection[str]) -> dict[str, str]:
    """Return whoever is linked with one of these keys, however far, each with one that it is.

    The keys themselves are not among them.
    """
    links: dict[str, list[str]] = defaultdict(list)
    for schedule in schedules:
        for rule in schedule.follows:
            links[schedule.key].append(rule.parent)
            links[rule.parent].append(schedule.key)
    found = {key: key for key in keys}
    new = list(found)
    while new:
        key = new.pop()
        for other in links.get(key, ()):
            if other not in found:
                found[other] = found[key]
                new.append(other)
    return {key: cause for key, cause in found.items() if key not in keys}
