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
    if fire.kind in OF_A_WINDOW:
        if fire.status == "starting" and (was is None or was.status != "starting"):
            fire = replace(fire, data_from=_data_from(tables, fire))
        if fire.status in DENIED and was is not None and was.status in {*PENDING, "starting"}:
            place = (fire.new.key, fire.new.fire_time)
            tables.put(tables.gaps, place, (now, fire.new.bucket, False))
    tables.put(tables.fires, number, fire)


def check_gaps(tables: Tables, now: datetime, rest: timedelta, limit: int) -> list[DataGap]:
    """See ``Ledger.check_data_gaps``."""
    old = [place for place, (at, _, told) in tables.gaps.items() if not told and at < now - rest]
    gaps = []
    for key, data_to in sorted(old, reverse=True)[:limit]:
        if (key, data_to) not in tables.gaps:
            continue  # part of a later one
        gap = _gap(tables, key, data_to)
        runs = any(fire.new.fire_time == data_to for _, fire in _counted(tables, key))
        since = _window_before(tables, key, data_to) or NO_RUN_BEFORE
        later = _window_after(tables, key, data_to)
        if later is not None and later < data_to:  # what lies behind that is no gap either
            since = max(since, later)
        at, bucket, _ = tables.gaps[key, data_to]
        for place in old:
            if place[0] == key and since < place[1] <= data_to:
                tables.gaps.pop(place, None)
        if gap and not runs:
            tables.gaps[key, data_to] = (at, bucket, True)
            gaps.append(gap)
    return gaps


def told_gaps(tables: Tables, key: str) -> list[DataGap]:
    """See ``Ledger.data_gaps``."""
    told = [place for place, (_, _, told) in tables.gaps.items() if told and place[0] == key]
    found = [_gap(tables, *place) for place in sorted(told, reverse=True)]
    return [gap for gap in found if gap]


def _gap(tables: Tables, key: str, data_to: datetime) -> DataGap | None:
    """Return what nobody has of the data of a window that was denied; None if somebody has."""
    begun = any(
        fire.new.fire_time == data_to and _has_begun(fire) for _, fire in _counted(tables, key)
    )
    later = _window_after(tables, key, data_to)
    if begun or later is None or later < data_to:
        return None
    _, bucket, _ = tables.gaps[key, data_to]
    return DataGap(key, bucket, _window_before(tables, key, data_to), data_to)


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
        and not (fire.status in PENDING and (fire.kind == "rerun" or fire.timing == "backfill"))
    ]
    first = tables.fires[min(after)[1]] if after else None
    return first.data_from if first and _has_begun(first) else None


def _counted(tables: Tables, key: str) -> Iterator[tuple[int, FireEntry]]:
    for number, fire in tables.fires.items():
        counts = fire.kind in OF_A_WINDOW and fire.data_from != REPEATS
        if fire.new.key == key and counts and fire.status not in DENIED:
            yield number, fire
