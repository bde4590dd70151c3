"""How much of a property is tried: a part in ``make test``, all of it in ``make prove-tests``."""

from __future__ import annotations

import os

PROVING = "SCHED_PROVE_PROPERTIES" in os.environ
"""Environment variable: try each property with all of its examples."""


def examples(number: int) -> int:
    """Return how many of so many examples this run tries: an eighth, or all."""
    return number if PROVING else max(number // 8, 1)
