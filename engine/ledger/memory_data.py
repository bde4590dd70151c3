"""Where the data of runs begin, in the in-memory ledger; see migration 0022 for the other one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from engine.ledger.data_gaps import DENIED, NO_RUN_BEFORE, PENDING, REPEATS, DataGap
from engine.ledger.letters import OF_A_WINDOW
from engine.ledger.memory_tables import FireEntry, Tables


def write_fire(tables: Tables, number: int, fire: FireEntry, now: datetime) -> None:
    """Write the row of a fire that may have begun with it, or been denied."""
    was = tables.fires.get(number)
    of_a_window = fire.kind in OF_A_WINDOW
    if of_a_window and fire.status == "starting" and (was is None or was.status != "starting"):
        fire = replace(fire, data_from=_data_from(tables, fire))
    tables.put(tables.fires, number, fire)
    if not of_a_window:
        return
    if _has_begun(fire) and (was is None or not _has_begun(was)):
        _close_gaps(tables, fire)
    if fire.status in DENIED and was is not None and was.status in {*PENDING, "starting"}:
        place = (fire.new.key, fire.new.fire_time)
        if place not in tables.gaps:
            tables.put(tables.denied, place, (now, fire.new.bucket))


def check_gaps(tables: Tables, now: datetime, rest: timedelta, limit: int) -> list[DataGap]:
    """See ``Ledger.check_data_gaps``."""
    old = {place: bucket for place, (at, bucket) in tables.denied.items() if at < now - rest}
    newest = {key: max(moment for other, moment in old if other == key) for key, _ in old}
    gaps = []
    for key, data_to in sorted(newest.items())[:limit]:
        data_from = _window_before(tables, key, data_to)
        runs = any(fire.new.fire_time == data_to for _, fire in _counted(tables, key))
        later = _window_after(tables, key, data_to)
        for place in old:
            if place[0] == key and (data_from or NO_RUN_BEFORE) < place[1] <= data_to:
                del tables.denied[place]
        if not runs and later is not None and later >= data_to:
            gap = DataGap(key, old[key, data_to], data_from, data_to)
            tables.gaps[key, data_to] = gap
            gaps.append(gap)
    return gaps


def _has_begun(fire: FireEntry) -> bool:
    return fire.status not in PENDING and fire.status not in DENIED


def _data_from(tables: Tables, fire: FireEntry) -> datetime | None:
    new = fire.new
    number = tables.windows.get((new.key, new.series, new.fire_time))
    if fire.kind == "rerun" and number is not None and _has_begun(tables.fires[number]):
        return tables.fires[number].data_from
    later = _window_after(tables, new.key, new.fire_time)
    if later is not None and later < new.fire_time:
        return REPEATS
    unknown = new.key in tables.forgotten or not tables.remembers
    before = _window_before(tables, new.key, new.fire_time)
    return before or (None if unknown else NO_RUN_BEFORE)


def _close_gaps(tables: Tables, fire: FireEntry) -> None:
    key, moment, data_from = fire.new.key, fire.new.fire_time, fire.data_from
    for place in {place for place in (*tables.denied, *tables.gaps) if place[0] == key}:
        gap = tables.gaps.get(place)
        begins = (gap and gap.data_from) or NO_RUN_BEFORE
        if place[1] == moment or (data_from and data_from < place[1] < moment):
            if place in tables.denied:
                tables.drop(tables.denied, place)
            if gap:
                tables.drop(tables.gaps, place)
        elif gap and data_from and data_from <= begins < moment < gap.data_to:
            tables.put(tables.gaps, place, replace(gap, data_from=moment))


def _window_before(tables: Tables, key: str, moment: datetime) -> datetime | None:
    """Return where the last window before it ended that has begun, or is still to begin."""
    before = [
        (fire.new.fire_time, number, fire.new.last_fire_time)
        for number, fire in _counted(tables, key)
        if fire.new.fire_time < moment
    ]
    return min(max(before)[2], moment) if before else None


def _window_after(tables: Tables, key: str, moment: datetime) -> datetime | None:
    """Return where the data of the first window after it begin; None where it is pending."""
    after = [
        (fire.new.fire_time, number)
        for number, fire in _counted(tables, key)
        if fire.new.fire_time > moment
    ]
    first = tables.fires[min(after)[1]] if after else None
    return first.data_from if first and _has_begun(first) else None


def _counted(tables: Tables, key: str) -> Iterator[tuple[int, FireEntry]]:
    for number, fire in tables.fires.items():
        counts = fire.kind in OF_A_WINDOW and fire.data_from != REPEATS
        if fire.new.key == key and counts and fire.status not in DENIED:
            yield number, fire
