"""The audit finds nothing where nothing is wrong: whatever has happened, in whichever order.

A ledger whose clock was set, or that has lost commits, has something wrong; the other laws judge
those. So has one whose starts were never answered: such windows are named as unvouched.
"""

from __future__ import annotations

from datetime import timedelta

from engine.service import AuditFault, ScheduleService
from tests.model.account import Broken
from tests.model.row_laws import GHOST
from tests.model.world import World

_EVER = timedelta(days=60)
_FAILED_OVER = ("commits lost", "restored empty")


def check(world: World) -> None:
    """Audit the ledger.

    Raises:
        Broken: the audit calls something wrong.
    """
    seen = world.account.seen
    if world.account.stepped or any(seen[name] for name in _FAILED_OVER):
        return
    service = ScheduleService(world.course.direct, actor="audit")
    report = world.course.run(service.audit(_EVER))
    for audit in report.schedules:
        for fault in audit.faults:
            if not _is_right(audit.key, fault):
                raise Broken(f"the audit calls {audit.key} {fault.kind}: {fault}")
        seen[f"audited {audit.verdict}"] += 1


def _is_right(key: str, fault: AuditFault) -> bool:
    """Whether a fault is one: nobody can vouch for a window, or nobody has its workflow."""
    undecided = fault.kind == "missing" and "not decided yet" in fault.what
    return fault.kind == "unvouched" or (key == GHOST and undecided)
