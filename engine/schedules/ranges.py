"""Rows that stand for many windows: how some windows are taken out of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.schedules.instants import TICK
from engine.schedules.timing import Spec
from engine.schedules.windows import Window


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a range: its first window, how many windows it has, and the last's fire time."""

    window: Window
    windows: int
    last: datetime


def without(spec: Spec, first: Window, last: datetime, *taken: datetime) -> list[Piece]:
    """Divide a range into each taken window alone, and what is before, between and after them.

    Args:
        spec: when the range's windows open.
        first: its first window.
        last: the fire time of its last.
        taken: the fire times of those to be taken out, in order.

    Raises:
        ValueError: the range has no window at one of them.
    """
    spans = []
    begin = first.fire_time
    for at in taken:
        if not begin <= at <= last or spec.previous(at) != at:
            raise ValueError(f"no window at {at} from {begin} to {last}")
        spans += [(begin, at - TICK), (at, at)]
        begin = at + TICK
    spans.append((begin, last))
    return [piece for begin, end in spans if (piece := _piece(spec, first, begin, end))]


def _piece(spec: Spec, of: Window, begin: datetime, end: datetime) -> Piece | None:
    opened, closed = spec.next(begin - TICK), spec.previous(end)
    if opened is None or closed is None or opened > end:
        return None
    window = Window(of.key, of.series, spec.bucket(opened), opened)
    return Piece(window, spec.count(begin - TICK, end), closed)
