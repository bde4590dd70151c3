"""Says that nobody would start what comes due, before it does. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from engine.cli.output import counted, problem_of
from engine.ledger.schedule_records import ScheduleRow

_CURE = "start a worker (`sched up` or `sched worker`)"


def unserved(rows: Iterable[ScheduleRow], served: frozenset[tuple[str, str]]) -> str:
    """Return where schedules wait for a worker that is not there; empty when all is well.

    Args:
        rows: the schedules. One that fires no more, or has a problem of its own, waits for none.
        served: the projects and task queues for which a worker has announced itself lately.
    """
    projects = {project for project, _ in served}
    waiting: dict[str, int] = {}
    for row in rows:
        if row.next_fire_at is None or row.schedule is None or problem_of(row):
            continue
        place = f"project {row.project}"
        if row.schedule.external:  # any replica of its project starts it
            missing = row.project not in projects
        else:
            missing = (row.project, row.schedule.task_queue) not in served
            place += f", task queue {row.schedule.task_queue}"
        if missing and row.state == "active":
            waiting[place] = waiting.get(place, 0) + 1
    if not waiting:
        return ""
    named = "; ".join(
        f"{place} ({counted(count, 'schedule')})" for place, count in sorted(waiting.items())
    )
    return f"no worker lives that starts what comes due of {named}: {_CURE}"
