"""What is said of a workflow that no worker can run."""

from __future__ import annotations

from collections.abc import Collection

from engine.schedules import Schedule
from engine.schedules.versions import nearest_name, resolve_type


def reason(schedule: Schedule) -> str:
    """Return what the ledger keeps beside each window of it."""
    return f"no worker on task queue {schedule.task_queue} knows {schedule.workflow}"


def explained(schedule: Schedule, announced: Collection[str]) -> str:
    """Return the reason and what may help, for whoever reads it now.

    Args:
        schedule: whose workflow nobody knows.
        announced: every type that a worker of its task queue ever announced.
    """
    if not announced:
        return f"{reason(schedule)}; no worker has ever served that task queue"
    if resolve_type(schedule.workflow, announced):
        return f"{reason(schedule)}; start a worker that has it, one did know it"
    near = nearest_name(schedule.workflow, announced)
    meant = f"did you mean {near}? New" if near else "new"
    code = f"{meant} code is found when `sched up` or the worker starts again"
    return f"{reason(schedule)}; {code}"
