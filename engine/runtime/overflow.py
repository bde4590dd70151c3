"""Tells when the queue of a schedule is full: once each time, and not for each window."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import Code
from engine.ledger import Transaction
from engine.ledger.schedule_records import Step
from engine.runtime.events import Alert
from engine.schedules.decisions import Decision
from engine.schedules.instants import TICK

_CURE = "`sched show` counts them; raise maxQueued, start fewer, or see why its runs take so long"


async def turned_full(transaction: Transaction, steps: Sequence[Step]) -> list[Alert]:
    """Return what to tell of queues that these steps found full, and nobody did just before.

    The ledger says whether it is news, so that replicas tell it once. With ``queue_one`` nothing
    is told: that one waits is what was asked for.
    """
    alerts = []
    for step in steps:
        excess = [each for each in step.decisions if each.overflows]
        if excess and step.state.schedule.overlap == "queue":
            first = min(excess, key=lambda each: each.window.fire_time)
            if await _is_news(transaction, step, first):
                alerts.append(_alert(step, sum(each.windows for each in excess)))
    return alerts


async def _is_news(transaction: Transaction, step: Step, first: Decision) -> bool:
    """Whether the window before it still had room."""
    at = first.window.fire_time
    if any(each.verdict == "queued" and each.window.fire_time < at for each in step.decisions):
        return True
    before = step.state.schedule.spec.previous(at - TICK)
    row = None if before is None else await transaction.covering(step.state.key, before)
    return row is None or not row.overflowed


def _alert(step: Step, windows: int) -> Alert:
    noun = "window was" if windows == 1 else "windows were"
    most = step.state.schedule.max_queued
    text = f"{step.state.key}: its queue is full ({most}), {windows} {noun} skipped"
    return Alert(Code.QUEUE_FULL, f"{text}, and more will be until a run of it ends; {_CURE}")
