"""Which open runs are surely open, and which somebody has to look at first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from engine.schedules.decisions import IN_LINE, READ_AHEAD, STOPS, OpenFire, Overlap, Unread

LOOKS_AT_ONCE: Final = 100
"""Runs of one key to be looked at before it is planned again: each costs a call."""

LOOKS: Final[frozenset[Overlap]] = frozenset({"skip", "queue_one"})
"""The policies with which runs as a rule cost windows their start. Every one of them is looked at
first, within one round of looks: with more rounds than windows come in, none would be decided."""


def is_proven(fire: OpenFire, at: datetime) -> bool:
    """Whether ``fire`` was in the way at ``at``.

    What nobody has begun to send is ours, and surely is. What is being sent proves nothing either
    way: the send may be on its way, and it may be long ago that its owner died and the run closed.
    """
    if fire.status == "started":
        return fire.open_at is not None and fire.open_at >= at
    return fire.status != "starting"


def is_asked(fire: OpenFire) -> bool:
    """Whether ``fire`` waits for a look at what may be in its way, and for nothing else."""
    return fire.status == "queued" and fire.overlap == "skip" and not fire.awaited


def looked_at(fires: Iterable[OpenFire]) -> tuple[OpenFire, ...]:
    """Return each that a look can say something of, once: there is no use in one at a send."""
    return tuple({fire.fire_id: fire for fire in fires if fire.status == "started"}.values())


def ahead(
    fires: Sequence[OpenFire],
    overlap: Overlap,
    places: int,
    *,
    running: int = 0,
    waiting: int = 0,
    pending: int = 0,
) -> tuple[tuple[OpenFire, ...], Unread]:
    """Return what a plan reads of a key's open fires, and how many more there are.

    Args:
        fires: those that were found, in the order in which they were written; not all, perhaps.
        overlap: the policy of the schedule.
        places: how many of its runs may be open at once.
        running: how many run in all, counted up to ``places``.
        waiting: how many are queued for a place alone.
        pending: how many are queued for windows of other schedules.
    """
    most = min(places, READ_AHEAD) + READ_AHEAD
    room = {"running": most, "waiting": most, "pending": len(fires)}
    if overlap in STOPS:
        room["running"] = len(fires)  # all of them are to end
    read = []
    left = {"running": running, "waiting": waiting, "pending": pending}
    for fire in fires:
        kind = "running"
        if fire.status == "queued":
            kind = "pending" if fire.awaited else "waiting"
        in_line = kind != "running" and overlap in IN_LINE
        place = "waiting" if in_line else kind
        if room[place] > 0:
            room[place] -= 1
            left[kind] -= 1
            read.append(fire)
    counted = {kind: max(0, count) for kind, count in left.items()}
    if overlap in IN_LINE:
        return tuple(read), Unread(counted["running"], counted["waiting"] + counted["pending"])
    return tuple(read), Unread(**counted)


def in_turn(looks: Sequence[OpenFire]) -> tuple[OpenFire, ...]:
    """Return those to be looked at now: of many the ones whose last proof is the oldest.

    The next plan asks for the others. Their proofs grow older together, so all have their turn.
    """
    if len(looks) <= LOOKS_AT_ONCE:
        return tuple(looks)
    never = [each for each in looks if each.open_at is None]
    seen = sorted((each.open_at, each.fire_id, each) for each in looks if each.open_at is not None)
    return tuple([*never, *(each for _, _, each in seen)][:LOOKS_AT_ONCE])
