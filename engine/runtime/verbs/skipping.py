"""Skips one window before it comes, and takes that back.

A skipped window has its row at once, ahead of the cursor. The planner passes over windows that have
a row, so whichever replica comes to it later leaves it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.errors import MomentInPast, WindowDecided, WindowNotFound
from engine.ledger import Ledger
from engine.ledger.schedule_records import Step
from engine.runtime.verbs.locked import Locked, locked
from engine.schedules.decisions import Decision
from engine.schedules.windows import Window

BY_A_USER = "user"
"""The first word of the reason of every window that a person skipped."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A window that was skipped, or is to start again; ``changed`` is False where it was so."""

    key: str
    fire_time: datetime
    workflow_id: str
    changed: bool


async def skip(
    ledger: Ledger, key: str, at: datetime, *, by: str, reason: str | None = None
) -> Skipped:
    """Skip the window of a schedule that opens at ``at``.

    One that has opened can be skipped as long as nobody has begun to send its run, which a spread
    or a rate may delay.

    Raises:
        WindowNotFound: no window opens then.
        WindowDecided: it was started, or decided otherwise.
        MomentInPast: it lies before the definition, or was decided long ago.
    """
    async with locked(ledger, key, by=by) as schedule:
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
                    f"{at:%Y-%m-%d %H:%M:%S}Z has come already",
                    cure=f"see `sched fires {key}` for what became of it",
                )
            decision = Decision(window, "skipped", why)
            await schedule.transaction.note_ahead(Step(state, (decision,), state.cursor, None))
        await schedule.act(
            "skip", reason=reason, workflow_id=workflow_id,
            before={"status": fire.status} if fire else None,
            after={"status": "skipped", "fire_time": at},
        )  # fmt: skip
        return Skipped(key, at, workflow_id, changed=True)


async def unskip(
    ledger: Ledger, key: str, at: datetime, *, by: str, reason: str | None = None
) -> Skipped:
    """Let a window start that was skipped before it came.

    Raises:
        WindowNotFound: no window opens then.
        MomentInPast: it has come already: `rerun` or `backfill` start it now.
    """
    async with locked(ledger, key, by=by) as schedule:
        window, workflow_id = _window(schedule, at)
        if at <= schedule.state.cursor:
            raise MomentInPast(
                f"{at:%Y-%m-%d %H:%M:%S}Z has come already",
                cure="start it with `sched backfill --include user`",
            )
        changed = await schedule.transaction.unskip(key, window.series, at)
        if changed:
            before = {"status": "skipped", "fire_time": at}
            await schedule.act("unskip", reason=reason, workflow_id=workflow_id, before=before)
        return Skipped(key, at, workflow_id, changed=changed)


def _window(schedule: Locked, at: datetime) -> tuple[Window, str]:
    state = schedule.state
    spec = state.schedule.spec
    if spec.previous(at) != at:
        following = spec.next(at)
        near = f"the next one opens at {following:%Y-%m-%d %H:%M:%S}Z" if following else None
        raise WindowNotFound(f"{state.key} has no window at {at:%Y-%m-%d %H:%M:%S}Z", cure=near)
    window = state.window(at)
    return window, window.workflow_id(state.suffixed)
