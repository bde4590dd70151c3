"""How the cron evaluators are measured and set side by side: one clock, one shape of a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchmarks.report import Row


def seconds(work: Callable[[], object]) -> float:
    """Return what the work takes of this thread's CPU: what other processes take is not in it."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def row(what: str, unit: str, ours: float, rivals: Sequence[float], digits: int) -> Row:
    """Return a row with both rivals, croniter first, and how many times ours each is.

    Args:
        what: is measured.
        unit: of all three.
        ours: the evaluator's.
        rivals: both, infinite for what never ended; none where the evaluator is alone.
        digits: of ours; the rivals get one at most.
    """
    shown: list[str | float] = [_shown(rival, min(digits, 1)) for rival in rivals] or ["", ""]
    ratios: list[str | float] = [_shown(rival / ours, 1) for rival in rivals] or ["", ""]
    return {
        "what": what,
        "unit": unit,
        "sched-engine": _shown(ours, digits),
        "croniter": shown[0],
        "cronsim": shown[1],
        "croniter /": ratios[0],
        "cronsim /": ratios[1],
    }


def _shown(value: float, digits: int) -> str | float:
    if value == float("inf"):
        return "never ended"
    return round(value, digits) if digits else round(value)
