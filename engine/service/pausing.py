"""Pause, resume, skip and unskip."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from engine.errors import MomentInPast, WindowDecided, WindowNotFound
from engine.runtime.apply.definitions import looked_at_next
from engine.runtime.planning import Locked
from engine.schedules.ids import Window
from engine.schedules.model import CatchUp
from engine.schedules.planner.decisions import Decision, Pause, Plan
from engine.schedules.units import utc_text
from engine.service.base import ReadOperations

# Applying a file never lifts a pause. The row of a skipped window is written at once, ahead of the
# cursor: the planner passes over windows that have a row, so every replica leaves it alone.


@dataclass(frozen=True, slots=True)
class Paused:
    """Result of a pause; ``before`` is the pause that it replaced."""

    key: str
    pause: Pause
    before: Pause | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Result of a resume; without ``before`` the schedule was not paused.

    Attributes:
        next_fire_at: when its next window opens.
        caught_up: number of windows of the pause that start after all or wait in the queue.
    """

    key: str
    before: Pause | None
    next_fire_at: datetime | None
    caught_up: int = 0


BY_A_USER = "user"
"""First word of the reason of every window that a user skipped."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Result of a skip or unskip; ``changed`` is False if there was nothing to change."""

    key: str
    fire_time: datetime
    workflow_id: str
    changed: bool


class Holding(ReadOperations):
    """Operations that hold back coming windows and release them."""

    async def pause(self, key: str, *, reason: str | None, until: datetime | None = None) -> Paused:
        """Pause a schedule from now on.

        Windows that opened before are decided as usual. Starts that are not yet being sent are
        skipped, and open runs continue. Pausing again replaces the reason and the end.

        Raises:
            MomentInPast: ``until`` has passed.
        """
        async with self._locked(key) as schedule:
            if until is not None and until <= schedule.now:
                raise MomentInPast(f"until is {utc_text(until)}, which has passed")
            before = schedule.state.pause
            if before is None:
                await schedule.decide(then="paused")
            after = Pause(before.at if before else schedule.now, reason, self._actor, until)
            await schedule.transaction.pause(key, after)
            await schedule.act("pause", reason=reason, before=_shown(before), after=_shown(after))
            return Paused(key, after, before)

    async def resume(
        self, key: str, *, reason: str | None = None, make_up: CatchUp | None = None
    ) -> Resumed:
        """Resume a schedule from its next window on.

        Args:
            key: the schedule's key.
            reason: the reason, for the audit log.
            make_up: catch-up of the windows of this pause; the default is the schedule's
                ``catchUp.pause``, which by default starts none of them.
        """
        async with self._locked(key, all_open=make_up is not None) as schedule:
            state = schedule.state
            if state.pause is None:
                return Resumed(key, None, _next_window(schedule))
            caught_up = 0
            if state.schedule.enabled:  # else the file still disables it and decides on its windows
                step = await schedule.decide(make_up or state.schedule.catch_up.after("pause"))
                caught_up = sum(each.verdict in {"claimed", "queued"} for each in step.decisions)
            await schedule.transaction.resume(key, _next_look(schedule))
            await schedule.act("resume", reason=reason, before=_shown(state.pause))
            return Resumed(key, state.pause, _next_window(schedule), caught_up)

    async def skip(self, key: str, at: datetime, *, reason: str | None = None) -> Skipped:
        """Skip the window of a schedule that opens at ``at``.

        A window that has opened can be skipped until its start is being sent, which a spread or a
        rate may delay.

        Raises:
            WindowNotFound: no window opens then.
            WindowDecided: it was started, or decided otherwise.
            MomentInPast: it lies before the definition, or was decided long ago.
        """
        async with self._locked(key) as schedule:
            window, workflow_id = _window(schedule, at)
            why = f"{BY_A_USER}: {reason}" if reason else BY_A_USER
            fire = await schedule.transaction.fire(workflow_id)
            if fire and fire.status == "skipped" and (fire.reason or "").startswith(BY_A_USER):
                return Skipped(key, at, workflow_id, changed=False)
            if fire and not await schedule.transaction.give_up([workflow_id], why):
                raise WindowDecided(f"{workflow_id} is {fire.status} already")
            if fire is None:
                state = schedule.state
                if at <= state.cursor:
                    raise MomentInPast(
                        f"{utc_text(at)} has come already",
                        cure=f"see `sched fires {key}` for what became of it",
                    )
                decision = Decision(window, "skipped", why)
                await schedule.transaction.note_ahead(Plan(state, (decision,), state.cursor, None))
            await schedule.act(
                "skip", reason=reason, workflow_id=workflow_id,
                before={"status": fire.status} if fire else None,
                after={"status": "skipped", "fire_time": at},
            )  # fmt: skip
            return Skipped(key, at, workflow_id, changed=True)

    async def unskip(self, key: str, at: datetime, *, reason: str | None = None) -> Skipped:
        """Undo the skip of a window that has not opened yet.

        Raises:
            WindowNotFound: no window opens then.
            MomentInPast: it has opened already; a `rerun` or a `backfill` can start it.
        """
        async with self._locked(key) as schedule:
            window, workflow_id = _window(schedule, at)
            if at <= schedule.state.cursor:
                raise MomentInPast(
                    f"{utc_text(at)} has come already",
                    cure="start it with `sched backfill --include user`",
                )
            changed = await schedule.transaction.unskip(key, window.series, at)
            if changed:
                before = {"status": "skipped", "fire_time": at}
                await schedule.act("unskip", reason=reason, workflow_id=workflow_id, before=before)
            return Skipped(key, at, workflow_id, changed=changed)


def _next_look(schedule: Locked) -> datetime | None:
    state = replace(schedule.state, pause=None)
    return looked_at_next(state, state.schedule, state.cursor, schedule.now)


def _next_window(schedule: Locked) -> datetime | None:
    """Return when the next window opens, regardless of fires that wait in the queue."""
    state = replace(schedule.state, pause=None, open_fires=())
    return looked_at_next(state, state.schedule, state.cursor, schedule.now)


def _shown(pause: Pause | None) -> dict[str, Any] | None:
    return None if pause is None else {"paused": asdict(pause)}


def _window(schedule: Locked, at: datetime) -> tuple[Window, str]:
    state = schedule.state
    spec = state.schedule.spec
    if spec.previous(at) != at:
        following = spec.next(at)
        near = f"the next one opens at {utc_text(following)}" if following else None
        raise WindowNotFound(f"{state.key} has no window at {utc_text(at)}", cure=near)
    window = state.window(at)
    return window, window.workflow_id(state.suffixed)
