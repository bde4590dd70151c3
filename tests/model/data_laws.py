"""What must be true of data in the end: each share of a key's data is one run's, or it is told.

By what the runs were told, which stands in their memos. What a failover took is nobody's to judge,
and neither is a run that was found after the ledger had said that there was none.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from engine.ledger.fires import REPEATS
from tests.model.account import Broken
from tests.model.row_laws import CLOSED
from tests.model.rows import FireRow
from tests.model.world import World

_AT_ONCE = timedelta(days=-1)
"""Nobody is about to begin anything, and the clock may have been set."""
_RAN = {*CLOSED, "started", "starting"}
_WAITS = {"claimed", "queued"}


def check(world: World) -> None:
    """Judge the intervals of every key.

    Raises:
        Broken: two runs have the same data, or nobody has them and that is not told.
    """
    course = world.course
    course.run(course.direct.check_data_gaps(rest=_AT_ONCE, limit=1000))
    for key in world.account.states:
        fires = [fire for fire in world.account.fires.values()
                 if fire.key == key and fire.kind in {"window", "rerun"}]  # fmt: skip
        lost = any(fire.workflow_id in world.account.lost for fire in fires)
        found = any(fire.run_id and fire.history and fire.timing != "backfill" for fire in fires)
        if not lost and not found:
            _check(world, key, fires)


def _check(world: World, key: str, fires: list[FireRow]) -> None:
    had: dict[datetime, datetime | None] = {}
    for fire in fires:
        if fire.status not in _RAN or fire.data_from == REPEATS:
            continue
        for run in world.server.ever.get(fire.workflow_id, []):
            if run.fire is not None:
                had[fire.fire_time] = run.fire.data_from
    waits = [fire.fire_time for fire in fires if fire.status in _WAITS]
    gaps = world.course.run(world.course.direct.data_gaps(key, limit=1000))
    told = [(gap.data_from, gap.data_to) for gap in gaps]
    end: datetime | None = None
    for data_to, data_from in sorted(had.items()):
        world.account.seen["data interval"] += 1
        if end is not None and data_from != end:
            if data_from is None or data_from < end:
                raise Broken(f"{key}: the data from {data_from} to {end} are those of two runs")
            left = any(end < at <= data_from for at in waits)
            gap = any((begin is None or begin <= end) and data_from <= to for begin, to in told)
            together = _covered(end, data_from, told)
            if not (left or gap or together):
                raise Broken(f"{key}: nobody has the data from {end} to {data_from}: {told}")
            world.account.seen["data gap"] += gap or together
        elif end is not None and data_to - end > timedelta(seconds=90):
            world.account.seen["data of several windows"] += 1
        end = data_to


def _covered(begin: datetime, end: datetime, told: list[tuple[datetime | None, datetime]]) -> bool:
    """Whether gaps one after another reach from one moment to the other."""
    for first, last in sorted(told, key=lambda each: each[1]):
        if (first is None or first <= begin) and last > begin:
            begin = last
    return begin >= end
