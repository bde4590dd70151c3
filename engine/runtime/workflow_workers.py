"""Workers of a schedule's workflow: its type, and what is said where no worker can run it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from engine.errors import WorkflowUnknown, question
from engine.ledger import PolledQueue, SeenReplica, Served
from engine.schedules import Schedule, first_of, nearest_name, resolve_type, utc_text
from engine.schedules.planner import ScheduleState, unresolved_workflow

if TYPE_CHECKING:
    from engine.ledger import Transaction

_NAMED = 3


async def type_of(transaction: Transaction, schedule: Schedule) -> str | None:
    """Return the Temporal type of a schedule's workflow; None while no worker has announced it."""
    if schedule.external:
        return schedule.workflow
    wanted = (schedule.task_queue, schedule.workflow)
    return (await transaction.resolve([wanted])).get(wanted)


def require_type(state: ScheduleState) -> None:
    """Check that the workflow's type is known.

    Raises:
        WorkflowUnknown: no worker has ever announced the workflow.
    """
    if state.workflow_type is None:
        hint = "start a worker that has it"
        raise WorkflowUnknown(unresolved_workflow(state.schedule), hint=hint)


def unresolved_workflow_hint(schedule: Schedule, by_queue: Mapping[str, Collection[str]]) -> str:
    """Return the reason and a possible remedy, for display.

    Args:
        schedule: the schedule whose workflow is unknown.
        by_queue: every type that a worker ever announced, by task queue.
    """
    announced = by_queue.get(schedule.task_queue)
    if not announced:
        return f"{unresolved_workflow(schedule)}; no worker has ever served that task queue"
    if resolve_type(schedule.workflow, announced):
        return f"{unresolved_workflow(schedule)}; start a worker that has it, as an earlier one had"
    meant = question(nearest_name(schedule.workflow, announced))
    code = f"{meant} New" if meant else "new"
    code += " code is found when the worker starts again"
    return f"{unresolved_workflow(schedule)}; {code}; `sched up --reload` does so on each save"


def missing_worker_at(project: str, lane: str, workflow: str, served: Served) -> str | None:
    """Return where a living worker is missing to start due windows; None if there is one.

    Args:
        project: the project whose workers start them.
        lane: the task queue of these workers; "" is any worker of it, which external schedules
            need, and those in shadow mode.
        workflow: the workflow's type or, while no worker has announced one, its name.
        served: projects, task queues and types of living workers.
    """
    if not lane:
        return None if any(project == other for other, _ in served) else f"project {project}"
    place, types = f"project {project}, task queue {lane}", served.get((project, lane))
    if types is not None and workflow not in types:
        return f"{place}, workflow {workflow}"
    return place if types is None else None


@dataclass(frozen=True, slots=True)
class MixedQueue:
    """A task queue whose workers do not have the same workflows.

    Temporal gives a run's task to any worker of its queue. One that does not have the workflow
    cannot do it, and the run waits until the task has come to another.

    Attributes:
        since: when the first worker joined that differs from those before.
        text: which workers these are, and the hint.
    """

    task_queue: str
    since: datetime
    text: str


def mixed_queues(living: Iterable[SeenReplica]) -> Iterator[MixedQueue]:
    """Yield the task queues whose living workers do not have the same workflows."""
    by_queue: defaultdict[str, list[SeenReplica]] = defaultdict(list)
    for each in living:
        if each.types:  # one with steps alone takes no task of a run
            by_queue[each.task_queue].append(each)
    for queue, workers in by_queue.items():
        groups: dict[frozenset[str], datetime] = {}
        for each in workers:
            groups[each.types] = min(each.started_at, groups.get(each.types, each.started_at))
        if len(groups) > 1:
            yield MixedQueue(queue, sorted(groups.values())[1], _mixed_text(queue, workers))


def _mixed_text(queue: str, workers: Sequence[SeenReplica]) -> str:
    every = frozenset[str]().union(*(each.types for each in workers))
    lacking = max(workers, key=lambda each: len(every - each.types))
    lacks = first_of(sorted(every - lacking.types), _NAMED)
    projects = sorted({each.project for each in workers})
    whose = f"projects {' and '.join(projects)}" if projects[1:] else f"project {projects[0]}"
    hint = (
        "give each project a task queue of its own (SCHED_TASK_QUEUE)"
        if projects[1:]
        else "a deploy ends it; else give all workers the same code"
    )
    return (
        f"workers of {whose} on task queue {queue} have different workflows: {lacking.replica}"
        f" does not have {lacks}, and their tasks that it takes wait for another; {hint}"
    )


def no_worker_lives(places: Mapping[str, int]) -> str:
    """Return a warning about places with the number of their schedules; empty without places."""
    if not places:
        return ""
    named = "; ".join(
        f"{place} ({count} schedule{'' if count == 1 else 's'})"
        for place, count in sorted(places.items())
    )
    hint = "start a worker (`sched up` or `sched worker`)"
    return f"no worker lives that starts what comes due of {named}: {hint}"


def no_worker_polls(row: PolledQueue) -> str:
    """Return a warning about a task queue without pollers."""
    since = f" since {utc_text(row.polled_at)}" if row.polled_at else ""
    runs = "1 run waits" if row.waiting == 1 else f"{row.waiting} runs wait"
    what = f"no worker has polled the task queue {row.task_queue}{since}"
    return f"{what}, and {runs} there; start its worker"


def left_alone(rows: Iterable[PolledQueue], queues: Collection[str]) -> list[str]:
    """Return warnings about those of these task queues that have no pollers."""
    return [no_worker_polls(row) for row in rows if row.is_left_alone and row.task_queue in queues]
