"""Whether every window of a span is accounted for, once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from engine.ledger.fire_records import OPEN, Fire
from engine.schedules.instants import TICK
from engine.testing.clock import instant
from engine.testing.playing import windows_of
from engine.testing.results import FireResult
from engine.testing.schedules import Between, Declared, declared

_NAMED: Final = 20
_BESIDE: Final = {"manual", "rerun", "handler"}
"""Runs besides the windows: they settle none."""


def assert_windows_settled(
    fires: Iterable[FireResult | Fire], schedules: Declared, *, between: Between
) -> None:
    """Assert that every window of a span has one class, and one only.

    A class is final: ``completed``, ``failed``, ``cancelled``, ``terminated``, ``timed_out``,
    ``skipped``, ``expired``, ``rejected`` or ``unvouched``.

    Args:
        fires: what ``run_schedule`` returned, or rows of a ledger (``ScheduleService.fires``).
        schedules: as in ``run_schedule``; only their own fires are looked at.
        between: from the first moment on, and before the second.

    Raises:
        AssertionError: lists the windows that nothing or several things were said of.
        ValueError: a moment has no timezone.
    """
    begin, end = instant(between[0]), instant(between[1])
    found: defaultdict[tuple[str, datetime], list[str]] = defaultdict(list)
    file = declared(schedules)
    by_key = {schedule.key: schedule for schedule in file.schedules}
    for each in fires:
        schedule = by_key.get(each.key)
        if schedule is None or each.timing in _BESIDE:
            continue
        moments = [each.fire_time] if isinstance(each, FireResult) else windows_of(each, schedule)
        for moment in moments:
            found[each.key, moment].append(each.status)
    wrong = []
    for schedule in file.schedules:
        for moment in schedule.spec.fires(begin - TICK, end - TICK):
            said = found.get((schedule.key, moment), [])
            if len(said) != 1 or said[0] in OPEN or said[0] == "starting":
                what = " and ".join(said) if said else "nothing decided"
                wrong.append(f"  {schedule.key} {moment.isoformat()}: {what}")
    if wrong:
        more = [f"  and {len(wrong) - _NAMED} more"] if len(wrong) > _NAMED else []
        listed = "\n".join([*wrong[:_NAMED], *more])
        raise AssertionError(f"{len(wrong)} windows have not exactly one class:\n{listed}")
