"""Which open runs are surely open, and which somebody has to look at first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from engine.schedules.decisions import OpenFire, Overlap

LOOKS_AT_ONCE: Final = 100
"""Runs of one key to be looked at before it is planned again: each costs a call."""

LOOKS: Final[frozenset[Overlap]] = frozenset({"skip", "queue_one"})
"""The policies with which runs as a rule cost windows their start. Every one of them is looked at
first, within one round of looks: with more rounds than windows come in, none would be decided."""


def is_proven(fire: OpenFire, at: datetime) -> bool:
    """Whether ``fire`` was in the way at ``at``: what has not begun yet is ours, and surely is."""
    return fire.status != "started" or (fire.open_at is not None and fire.open_at >= at)


def in_turn(looks: Sequence[OpenFire]) -> tuple[OpenFire, ...]:
    """Return those to be looked at now: of many the ones whose last proof is the oldest.

    The next plan asks for the others. Their proofs grow older together, so all have their turn.
    """
    if len(looks) <= LOOKS_AT_ONCE:
        return tuple(looks)
    never = [each for each in looks if each.open_at is None]
    seen = sorted((each.open_at, each.fire_id, each) for each in looks if each.open_at is not None)
    return tuple([*never, *(each for _, _, each in seen)][:LOOKS_AT_ONCE])
