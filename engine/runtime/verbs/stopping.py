"""Cancels runs, and schedules of applications.

For a run the wish is written down, and a replica carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import NotCancellable
from engine.ledger import Ledger
from engine.runtime.verbs.locked import Locked, locked
from engine.runtime.verbs.skipping import BY_A_USER
from engine.schedules.decisions import OpenFire, Stop
from engine.schedules.windows import parse_workflow_id


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel came to.

    Attributes:
        asked: runs that will be asked to end; they may take their time to undo what they did.
        skipped: runs that nobody had begun to start.
        already: runs that had been asked before.
        retired: whether the schedule ends with it; only one of an application does.
        was_retired: it had been cancelled before. That is no error.
    """

    key: str
    asked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    retired: bool = False
    was_retired: bool = False


async def cancel(
    ledger: Ledger,
    name: str,
    *,
    by: str,
    reason: str | None = None,
    terminate: bool = False,
) -> Cancelled:
    """Cancel one run by its id, or every open run of a schedule by its key.

    A schedule that an application asked for is retired besides, when its key is given: it never
    fires again.

    Raises:
        ScheduleNotFound: there is no such schedule.
        NotCancellable: nothing of it is open; of an application's schedule, nor is to come.
    """
    parsed = parse_workflow_id(name)
    key = parsed.key if parsed else name
    why = f"{BY_A_USER}: {reason}" if reason else f"{BY_A_USER}: cancelled by {by}"
    stop: Stop = "terminate" if terminate else "cancel"
    asked, skipped, already = [], [], []
    async with locked(ledger, key, by=by, all_open=True, retired=True) as schedule:
        own = parsed is None and schedule.state.origin == "api"
        was_retired = own and schedule.state.retired_at is not None
        retires = own and not was_retired and await _is_to_come(schedule)
        fires = [
            fire for fire in schedule.state.open_fires if parsed is None or fire.workflow_id == name
        ]
        if not fires and not retires and not was_retired:
            raise NotCancellable(f"no run of {name} is open", cure=f"see `sched fires {key}`")
        for fire in fires:
            after: dict[str, str] = {"stop": stop}
            if await schedule.transaction.give_up(fire.workflow_id, why):
                skipped.append(fire.workflow_id)
                after = {"status": "skipped"}
            elif _is_asked(fire, stop):
                already.append(fire.workflow_id)
                continue
            else:
                await schedule.transaction.stop(fire.fire_id, stop, grace=None, reason=why)
                asked.append(fire.workflow_id)
            before = {"status": fire.status, "stop": fire.stop}
            await schedule.act(
                "cancel", reason=reason, workflow_id=fire.workflow_id, before=before, after=after
            )
        if own and not was_retired:
            await schedule.transaction.retire([key], schedule.now)
            await schedule.act("cancel", reason=reason)
    return Cancelled(
        key, tuple(asked), tuple(skipped), tuple(already),
        retired=own and not was_retired, was_retired=was_retired,
    )  # fmt: skip


async def _is_to_come(schedule: Locked) -> bool:
    """Decide what has come, so that it can be given up; whether windows are still to come."""
    await schedule.decide()
    (schedule.state,) = await schedule.transaction.read([schedule.state.key], all_open=True)
    return schedule.state.schedule.spec.next(schedule.now) is not None


def _is_asked(fire: OpenFire, stop: Stop) -> bool:
    return fire.stop in {stop, "terminate"}
