"""Past windows: which of them a backfill starts, and the end of a backfill.

A separate module: commands need it without Temporal's SDK, which laying loads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from engine.errors import Code
from engine.ledger import UNDECLARED, Action, Backfill, Fire, cause_of
from engine.runtime.events import Alert
from engine.schedules import TICK, Schedule, Spec, Window, is_suffixed, utc_text
from engine.schedules.planner import ScheduleState, without

if TYPE_CHECKING:
    from engine.ledger import Transaction

# ``consider`` judges single windows in the transaction that lays them. ``count`` judges a whole
# range at once, at a bounded cost. A window that has, had or may have had a run is left alone. If
# it certainly has none, its cause decides: see the table in docs/operating.md.

UNDECIDED = "undecided"
FORGOTTEN = "forgotten, see the archive"
"""Why windows without a row are left alone; for the others it is their cause or status."""
FORMER_KEY = "former_key"
"""Why windows that have a row under a former key are left alone: a rerun starts one of them."""


@dataclass(frozen=True, slots=True)
class Considered:
    """One window of a backfill.

    Attributes:
        at: its fire time.
        row: the row that covers it; None where there is none.
        why: the cause for which it has no run, otherwise its status.
        starts: whether the backfill starts it.
    """

    at: datetime
    row: Fire | None
    why: str
    starts: bool


async def consider(
    transaction: Transaction, each: Backfill, state: ScheduleState, fires: Sequence[datetime]
) -> list[Considered]:
    """Decide for each of these windows, in order, whether a backfill starts it.

    Args:
        transaction: the transaction that lays them.
        each: the backfill.
        state: its schedule, with the definition of the request.
        fires: the fire times; at least one.
    """
    rows = await transaction.between(each.key, fires[0], fires[-1])
    forgotten = await transaction.forgotten_until(each.key)
    found = []
    for at, row in await _with_rows(transaction, each, fires, rows):
        why: str = UNDECLARED
        surely = True
        if row is not None:
            cause = None if row.run_id is not None or row.key != each.key else row.cause
            why = (cause or row.status) if row.key == each.key else FORMER_KEY
            surely = cause is not None
        elif at > state.cursor:
            why, surely = UNDECIDED, False
        elif forgotten is not None and at <= forgotten:
            why, surely = FORGOTTEN, False
        if surely and state.schedule.exclusions and state.schedule.exclusions.reason(at):
            why = "excluded"
        found.append(Considered(at, row, why, surely and why in each.include))
    return found


async def _with_rows(
    transaction: Transaction, each: Backfill, fires: Sequence[datetime], rows: Sequence[Fire]
) -> Iterator[tuple[datetime, Fire | None]]:
    """Return each window with its row: of several, one that is left alone, then the newest."""

    def rank(row: Fire) -> tuple[bool, int]:
        return row.cause not in each.include, row.series

    ranges = deque(row for row in rows if row.windows > 1)
    specs = await _specs(transaction, each.key, ranges)
    alone = {row.fire_time: row for row in sorted(rows, key=rank) if row.windows == 1}

    def pairs() -> Iterator[tuple[datetime, Fire | None]]:
        around: list[Fire] = []
        for at in fires:
            while ranges and ranges[0].fire_time <= at:
                around.append(ranges.popleft())
            around[:] = [row for row in around if row.last_fire_time >= at]
            # A range of an older definition may span moments at which it had no window.
            those = [row for row in around if specs[row.definition_version].previous(at) == at]
            those += [alone[at]] if at in alone else []
            yield at, max(those, key=rank, default=None)

    return pairs()


async def _specs(transaction: Transaction, key: str, rows: Iterable[Fire]) -> dict[int, Spec]:
    """Return the spec of each definition that decided one of these rows, by version."""
    return {
        version: (await transaction.definition(key, version)).spec
        for version in {row.definition_version for row in rows}
    }


async def count(
    transaction: Transaction, state: ScheduleState, after: datetime, until: datetime
) -> Counter[str]:
    """Count the windows of ``after < t <= until`` by ``Considered.why``.

    The database counts rows of single windows; the specs of their definitions count ranges.
    """
    key, spec = state.key, state.schedule.spec
    forgotten = await transaction.forgotten_until(key)
    spans = [*_spans(state.schedule, after, until, forgotten, state.cursor)]
    counted = await transaction.count_windows(key, [(begin, end) for begin, end, _ in spans])
    begins, ends = [begin for begin, *_ in spans], [end for _, end, _ in spans]
    ranges = await transaction.ranges_between(key, after, until)
    specs = await _specs(transaction, key, ranges)
    for row in ranges:
        reached = range(
            bisect_right(ends, row.fire_time - TICK), bisect_left(begins, row.last_fire_time)
        )
        for number in reached:
            low, high = (
                max(begins[number], row.fire_time - TICK),
                min(ends[number], row.last_fire_time),
            )
            of = specs[row.definition_version]
            mine = row.key == key
            about: Any = (row.status, row.reason_code) if mine else (FORMER_KEY, None)
            counted[number][about] += of.count(low, high)
    counts = Counter[str]()
    for (begin, end, excluded), found in zip(spans, counted, strict=True):
        for (status, code), number in found.items():
            cause = cause_of(status, code)
            counts["excluded" if cause and excluded else cause or status] += number
        without: str = "excluded" if excluded else UNDECLARED
        if begin >= state.cursor:
            without = UNDECIDED
        elif forgotten is not None and end <= forgotten:
            without = FORGOTTEN
        counts[without] += max(spec.count(begin, end) - found.total(), 0)
    return +counts


def _spans(
    schedule: Schedule, after: datetime, until: datetime, *edges: datetime | None
) -> Iterator[tuple[datetime, datetime, bool]]:
    """Divide ``after < t <= until`` at the edges, and by whether the schedule excludes it."""
    inner = {edge for edge in edges if edge is not None and after < edge < until}
    for begin, end in pairwise(sorted({after, *inner, until})):
        if schedule.exclusions is None:
            yield begin, end, False
        else:
            for first, last, reason in schedule.exclusions.divide(begin, end):
                yield first, last, reason is not None


async def end_backfill(
    transaction: Transaction, each: Backfill, why: str, now: datetime, *, by: str
) -> Alert:
    """End a backfill, so that nothing more of it is laid; return the alert to emit."""
    ended = replace(each, state="ended", ended_reason=why, ended_at=now)
    await transaction.move_backfill(ended)
    await note_end(transaction, ended, by=by)
    left = each.windows - each.done
    text = (
        f"the backfill of {each.key} from {utc_text(each.first)} to"
        f" {utc_text(each.last)} has ended: {why}; {left} of its {each.windows} windows"
        " were not laid"
    )
    return Alert(Code.BACKFILL_ENDED, text)


async def note_end(transaction: Transaction, each: Backfill, *, by: str) -> None:
    """Record the result of a backfill that is done or ended."""
    after = {
        "id": each.id,
        "state": each.state,
        "laid": each.laid,
        "leftAlone": dict(each.left_alone),
        "notLaid": max(each.windows - each.done, 0),
    }
    action = Action(each.project, each.key, "backfill", each.ended_reason, after=after)
    await transaction.act([action], by=by)


# --- rows of many windows ---


async def split_range(transaction: Transaction, row: Fire, *moments: datetime) -> list[Window]:
    """Give each window that opened at one of these moments a row of its own; return the windows.

    The rest of the row keeps its content, for fewer windows. One statement, however many.

    Args:
        transaction: the transaction to write in.
        row: the row as it was read.
        moments: the fire times, in order.

    Raises:
        ValueError: the row has no window at one of them.
    """
    definition = await transaction.definition(row.key, row.definition_version)
    pieces = without(definition.spec, row.window, row.last_fire_time, *moments)
    await transaction.split_range(row, pieces, suffixed=is_suffixed(row.workflow_id))
    return [Window(row.key, row.series, definition.spec.bucket(at), at) for at in moments]


async def has_window(transaction: Transaction, row: Fire, at: datetime) -> bool:
    """Return whether a row stands for a window at ``at``.

    A range of an older definition may span moments at which it had no window.
    """
    if row.windows == 1:
        return row.fire_time == at
    definition = await transaction.definition(row.key, row.definition_version)
    return row.fire_time <= at <= row.last_fire_time and definition.spec.previous(at) == at
