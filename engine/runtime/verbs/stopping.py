"""Cancels runs, and schedules of applications.

For a run the wish is written down, and a replica carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.errors import NotCancellable
from engine.ledger import Ledger
from engine.ledger.operating_records import Action
from engine.runtime.verbs.backfilling import end_backfill
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
        backfills: those that were being laid, and end with it, in sentences.
    """

    key: str
    asked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    retired: bool = False
    was_retired: bool = False
    backfills: tuple[str, ...] = ()


async def cancel(
    ledger: Ledger,
    name: str,
    *,
    by: str,
    reason: str | None = None,
    terminate: bool = False,
) -> Cancelled:
    """Cancel one run by its id, or every open run of a schedule by its key.

    With the key every backfill that is still being laid ends. A schedule that an application asked
    for is retired besides, when its key is given: it never
    fires again.

    Raises:
        ScheduleNotFound: there is no such schedule.
        NotCancellable: nothing of it is open; of an application's schedule, nor is to come.
    """
    parsed = parse_workflow_id(name)
    key = parsed.key if parsed else name
    async with locked(ledger, key, by=by, all_open=True, retired=True) as schedule:
        own = parsed is None and schedule.state.origin == "api"
        was_retired = own and schedule.state.retired_at is not None
        retires = own and not was_retired and await _is_to_come(schedule)
        fires = [
            fire for fire in schedule.state.open_fires if parsed is None or fire.workflow_id == name
        ]
        laying = await schedule.transaction.backfills(key, laying=True) if parsed is None else []
        if not fires and not laying and not retires and not was_retired:
            raise NotCancellable(f"no run of {name} is open", cure=f"see `sched fires {key}`")
        done = await _ended(schedule, fires, "terminate" if terminate else "cancel", reason)
        why = f"{BY_A_USER}: {reason or f'cancelled by {by}'}"
        ends = [
            await end_backfill(schedule.transaction, each, why, schedule.now, by=by)
            for each in laying
        ]
        if own and not was_retired:
            await schedule.transaction.retire([key], schedule.now)
            await schedule.act("cancel", reason=reason)
    return replace(
        done, retired=own and not was_retired, was_retired=was_retired,
        backfills=tuple(alert.text for alert in ends),
    )  # fmt: skip


async def _ended(
    schedule: Locked, fires: list[OpenFire], stop: Stop, reason: str | None
) -> Cancelled:
    """Skip what nobody has begun to send, ask the other runs to end, and note each.

    All at once: under the lock of the schedule nothing of it starts, and a backfill may have left
    thousands.
    """
    why = f"{BY_A_USER}: {reason or f'cancelled by {schedule.by}'}"
    state, transaction = schedule.state, schedule.transaction
    given_up = await transaction.give_up([fire.workflow_id for fire in fires], why)
    left = [fire for fire in fires if fire.workflow_id not in given_up]
    asked = [fire for fire in left if not _is_asked(fire, stop)]
    await transaction.stop([fire.fire_id for fire in asked], stop, reason=why)
    noted = [fire for fire in fires if fire.workflow_id in given_up] + asked
    actions = [
        Action(
            state.project, state.key, "cancel", reason, fire.workflow_id,
            before={"status": fire.status, "stop": fire.stop},
            after={"status": "skipped"} if fire.workflow_id in given_up else {"stop": stop},
        )
        for fire in noted
    ]  # fmt: skip
    await transaction.act(actions, by=schedule.by)
    return Cancelled(
        state.key,
        asked=tuple(fire.workflow_id for fire in asked),
        skipped=tuple(fire.workflow_id for fire in fires if fire.workflow_id in given_up),
        already=tuple(fire.workflow_id for fire in left if _is_asked(fire, stop)),
    )


async def _is_to_come(schedule: Locked) -> bool:
    """Decide what has come, so that it can be given up; whether windows are still to come."""
    await schedule.decide(then="retired")
    (schedule.state,) = await schedule.transaction.read([schedule.state.key], all_open=True)
    return schedule.state.schedule.spec.next(schedule.now) is not None


def _is_asked(fire: OpenFire, stop: Stop) -> bool:
    return fire.stop in {stop, "terminate"}
