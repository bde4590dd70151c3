"""How much one plan decides: at most so many rows, and at most so many starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from engine.schedules.catching_up import COALESCED
from engine.schedules.decisions import Decision

MOST_ROWS: Final = 2000
"""The most decisions of one plan: a transaction of the tick has seconds."""


class Span(NamedTuple):
    """Decisions on every window up to ``until``, in the order of time.

    ``limit`` is how many of them may start; the windows from there on stay due. ``audit``:
    see ``Plan``.
    """

    decisions: Iterable[Decision]
    until: datetime
    limit: int | None = None
    audit: bool = False


def take(spans: Sequence[Span], most: int | None) -> tuple[list[Decision], datetime]:
    """Return the decisions of ``spans``, at most ``most``, and up to where they decide."""
    found: list[Decision] = []
    for span in spans:
        starts = 0
        for decision in span.decisions:
            if len(found) == most:
                found = _before_the_starts(found)
                return found, found[-1].until
            if starts == span.limit:
                return found, found[-1].until
            found.append(decision)
            starts += decision.verdict == "claimed"
    return found, spans[-1].until


def _before_the_starts(found: list[Decision]) -> list[Decision]:
    """Leave what is caught up to the next plan as a whole: its number, its order and its rate.

    Unless that would leave most of the room unused, plan after plan.
    """
    for place, each in enumerate(found):
        if each.verdict == "claimed" or (each.reason or "").startswith(COALESCED):
            return found[:place] if place * 2 > len(found) else found
    return found
