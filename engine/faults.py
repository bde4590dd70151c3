"""Fault points where a test may kill, stop or break a replica; separate, for every layer uses it.

``SCHED_FAULT=POINT:ACTION[:HIT]`` acts the HIT-th time (default 1) that the point is reached.
Points: ``after_due`` and ``before_commit`` are inside the tick's transaction, ``after_commit`` is
between the claim and the first send, ``after_start`` follows an answered start, and
``before_settle`` precedes the write of the outcome. Without the variable a point costs one ``if``.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, get_args

Point = Literal["after_due", "before_commit", "after_commit", "after_start", "before_settle"]


class InjectedFault(RuntimeError):
    """Error raised by the action ``raise``."""


class _Fault:
    def __init__(self, text: str) -> None:
        point, _, rest = text.partition(":")
        action, _, hit = rest.partition(":")
        if point not in get_args(Point) or action not in {"kill", "stop", "raise"}:
            raise ValueError(f"SCHED_FAULT={text!r} is not POINT:ACTION[:HIT]")
        self.point, self.action, self.remaining = point, action, int(hit or 1)

    def reach(self, point: str) -> None:
        if point != self.point:
            return
        self.remaining -= 1
        if self.remaining:
            return
        if self.action == "raise":
            raise InjectedFault(point)
        os.kill(os.getpid(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)


_fault = _Fault(os.environ["SCHED_FAULT"]) if os.environ.get("SCHED_FAULT") else None


def reach(point: Point) -> None:
    """Run the action that ``SCHED_FAULT`` sets for this point, if any."""
    if _fault is not None:
        _fault.reach(point)
