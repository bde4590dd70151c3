"""What is said of a workflow that no worker can run, or that none lives to run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from engine.ledger.queue_rows import PolledQueue
from engine.ledger.replica_records import Served
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


def unserved_at(project: str, lane: str, workflow: str, served: Served) -> str | None:
    """Return where no worker lives that would start what comes due; None when one does.

    Args:
        project: whose workers start it.
        lane: the task queue of its workers; "" is external, which any of the project starts.
        workflow: its type or, while no worker has announced one, its name.
        served: what living workers serve.
    """
    if not lane:
        return None if any(project == other for other, _ in served) else f"project {project}"
    place, types = f"project {project}, task queue {lane}", served.get((project, lane))
    if types is not None and workflow not in types:
        return f"{place}, workflow {workflow}"
    return place if types is None else None


def no_worker_lives(places: Mapping[str, int]) -> str:
    """Return what is told of places, and of how many schedules each; empty where there are none."""
    if not places:
        return ""
    named = "; ".join(
        f"{place} ({count} schedule{'' if count == 1 else 's'})"
        for place, count in sorted(places.items())
    )
    cure = "start a worker (`sched up` or `sched worker`)"
    return f"no worker lives that starts what comes due of {named}: {cure}"


def nobody_polls(row: PolledQueue) -> str:
    """Return what is told of a task queue that is left alone."""
    since = f" since {row.polled_at:%Y-%m-%d %H:%M:%S}Z" if row.polled_at else ""
    runs = "1 run waits" if row.waiting == 1 else f"{row.waiting} runs wait"
    what = f"nobody has polled the task queue {row.task_queue}{since}"
    return f"{what}, and {runs} there; start its worker"


def left_alone(rows: Iterable[PolledQueue], queues: Collection[str]) -> list[str]:
    """Return what is to be told of these task queues, where nobody polls them."""
    return [nobody_polls(row) for row in rows if row.is_left_alone and row.task_queue in queues]
