"""Pause and resume: the operator's own hold on a schedule, which no deploy lifts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from engine.errors import MomentInPast
from engine.ledger import Ledger
from engine.ledger.schedule_records import Pause
from engine.runtime.definitions import looked_at_next
from engine.runtime.verbs.locked import Locked, locked
from engine.schedules.catch_up import CatchUp


@dataclass(frozen=True, slots=True)
class Paused:
    """What pausing came to; ``before`` is the pause that it replaced."""

    key: str
    pause: Pause
    before: Pause | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """What resuming came to; without ``before`` it was not paused.

    Attributes:
        next_fire_at: when its next window opens.
        caught_up: windows of the pause that start after all, or wait in the queue.
    """

    key: str
    before: Pause | None
    next_fire_at: datetime | None
    caught_up: int = 0


async def pause(
    ledger: Ledger, key: str, *, by: str, reason: str | None, until: datetime | None = None
) -> Paused:
    """Let a schedule rest, from now on.

    Windows that opened before are decided as ever; what nobody has begun to send is skipped.
    Runs that are open go on. Pausing again replaces reason and end.

    Raises:
        MomentInPast: ``until`` has passed.
    """
    async with locked(ledger, key, by=by) as schedule:
        if until is not None and until <= schedule.now:
            raise MomentInPast(f"until is {until:%Y-%m-%d %H:%M:%S}Z, which has passed")
        before = schedule.state.pause
        if before is None:
            await schedule.decide(then="paused")
        after = Pause(before.at if before else schedule.now, reason, by, until)
        await schedule.transaction.pause(key, after)
        await schedule.act("pause", reason=reason, before=_shown(before), after=_shown(after))
        return Paused(key, after, before)


async def resume(
    ledger: Ledger,
    key: str,
    *,
    by: str,
    reason: str | None = None,
    make_up: CatchUp | None = None,
) -> Resumed:
    """Let a schedule fire again, from its next window on.

    Args:
        ledger: the memory that has it.
        key: of the schedule.
        by: who acts.
        reason: why.
        make_up: what becomes of the windows of the pause, this once; without it what the
            schedule's ``catchUp.pause`` says, which by default is nothing.
    """
    async with locked(ledger, key, by=by, all_open=make_up is not None) as schedule:
        state = schedule.state
        if state.pause is None:
            return Resumed(key, None, _next_window(schedule))
        caught_up = 0
        if state.schedule.enabled:  # otherwise the file holds it still, and its windows are its own
            step = await schedule.decide(make_up or state.schedule.catch_up.after("pause"))
            caught_up = sum(each.verdict in {"claimed", "queued"} for each in step.decisions)
        await schedule.transaction.resume(key, _next_look(schedule))
        await schedule.act("resume", reason=reason, before=_shown(state.pause))
        return Resumed(key, state.pause, _next_window(schedule), caught_up)


def _next_look(schedule: Locked) -> datetime | None:
    state = replace(schedule.state, pause=None)
    return looked_at_next(state, state.schedule, state.cursor, schedule.now)


def _next_window(schedule: Locked) -> datetime | None:
    """Return when it fires next: what waits in its queue is looked at sooner, and fires nothing."""
    state = replace(schedule.state, pause=None, open_fires=())
    return looked_at_next(state, state.schedule, state.cursor, schedule.now)


def _shown(pause: Pause | None) -> dict[str, Any] | None:
    return None if pause is None else {"paused": asdict(pause)}
