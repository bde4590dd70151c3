"""When the starts of one plan begin: in which order, how fast, and which of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.schedules.catch_up import CatchUp
from engine.schedules.decisions import Decision


def in_order(decisions: Sequence[Decision], policy: CatchUp) -> list[Decision]:
    """Return the decisions with what is caught up in the order that ``policy`` says, and last."""
    if policy.order == "oldest":
        return [*decisions]
    caught_up = [each for each in decisions if each.timing == "caught_up"]
    return [each for each in decisions if each.timing != "caught_up"] + caught_up[::-1]


def in_turn(
    decisions: Iterable[Decision], policy: CatchUp, limit: int, now: datetime
) -> tuple[Decision, ...]:
    """Let starts wait for their turn by ``catchUp.rate``, and those beyond ``limit`` for room.

    Only what does start takes a turn. What waits for room is claimed and not sent: it is for
    whoever has room.
    """
    distance = policy.rate.distance if policy.rate else timedelta(0)
    turn, room = now, limit
    found = []
    for decision in decisions:
        moment = decision.not_before
        if decision.verdict == "claimed":
            if decision.timing == "caught_up":
                moment = max(moment or now, turn)
                turn += distance
            room -= moment is None or moment <= now
            moment = moment if moment is not None and moment > now else None
            if moment is None and room < 0:
                moment = now
        found.append(replace(decision, not_before=moment))
    return tuple(found)
