"""Rows that stand for many windows: how one window is taken out of them. Pure."""

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


def without(spec: Spec, first: Window, last: datetime, at: datetime) -> list[Piece]:
    """Divide a range into what is before ``at``, the window at ``at`` alone, and what is after.

    Args:
        spec: when the range's windows open.
        first: its first window.
        last: the fire time of its last.
        at: the fire time of the one to be taken out.

    Raises:
        ValueError: the range has no window at ``at``.
    """
    if not first.fire_time <= at <= last or spec.previous(at) != at:
        raise ValueError(f"no window at {at} from {first.fire_time} to {last}")
    spans = [
        (first.fire_time, at - TICK),
        (at, at),
        (at + TICK, last),
    ]
    return [piece for begin, end in spans if (piece := _piece(spec, first, begin, end))]


def _piece(spec: Spec, of: Window, begin: datetime, end: datetime) -> Piece | None:
    opened, closed = spec.next(begin - TICK), spec.previous(end)
    if opened is None or closed is None or opened > end:
        return None
    window = Window(of.key, of.series, spec.bucket(opened), opened)
    return Piece(window, spec.count(begin - TICK, end), closed)
