"""Cancels runs: the wish is written down, and a replica carries it out."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import NotCancellable
from engine.ledger import Ledger
from engine.runtime.verbs.locked import locked
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
    """

    key: str
    asked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    already: tuple[str, ...] = ()


async def cancel(
    ledger: Ledger,
    name: str,
    *,
    by: str,
    reason: str | None = None,
    terminate: bool = False,
) -> Cancelled:
    """Cancel one run by its id, or every open run of a schedule by its key.

    Raises:
        ScheduleNotFound: there is no such schedule.
        NotCancellable: nothing of it is open.
    """
    parsed = parse_workflow_id(name)
    key = parsed.key if parsed else name
    why = f"{BY_A_USER}: {reason}" if reason else f"{BY_A_USER}: cancelled by {by}"
    stop: Stop = "terminate" if terminate else "cancel"
    asked, skipped, already = [], [], []
    async with locked(ledger, key, by=by, all_open=True, retired=True) as schedule:
        fires = [
            fire for fire in schedule.state.open_fires if parsed is None or fire.workflow_id == name
        ]
        if not fires:
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
    return Cancelled(key, tuple(asked), tuple(skipped), tuple(already))


def _is_asked(fire: OpenFire, stop: Stop) -> bool:
    return fire.stop in {stop, "terminate"}
