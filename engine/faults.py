"""Fault points where a test may kill, stop or break a replica.

Named places where a test may kill, stop or break a replica.

``SCHED_FAULT=POINT:ACTION[:HIT]`` acts at the HIT-th time (default 1) the point is reached.
Points: ``after_due`` and ``before_commit`` lie inside the tick's transaction, ``after_commit``
between the claim and the first send, ``after_start`` behind an answered start, and
``before_settle`` before the outcome is written. Without the variable a point costs one ``if``.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, get_args

Point = Literal["after_due", "before_commit", "after_commit", "after_start", "before_settle"]


class InjectedFault(RuntimeError):
    """Raised by the action ``raise``."""


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
    """Do what ``SCHED_FAULT`` asks for at this point; normally nothing."""
    if _fault is not None:
        _fault.reach(point)
