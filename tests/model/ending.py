"""The end of an example: everything comes back, time passes, and all must be accounted for.

- Every key has decided what it owes, up to now.
- No claim stays, nothing waits in a queue beside a free place for long.
- What is said to run exists and runs; what has closed is known to have.
- Every backfill is laid, or says why not.
- Every window has its one row (``window_laws``), and each share of data one run (``data_laws``).
- `sched audit` finds nothing that is wrong (``audit_laws``).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.model import audit_laws, backfill_laws, data_laws, window_laws
from tests.model.account import Broken
from tests.model.moments import is_excluded, windows
from tests.model.row_laws import CLOSED, GHOST, RUNNING
from tests.model.rows import FireRow
from tests.model.server import Faults, Run
from tests.model.world import BROKEN, RETENTION, World

_SEEN_WITHIN = timedelta(seconds=130)
_LET_GO_WITHIN = timedelta(seconds=30)


def settle(world: World) -> None:
    """Let everything come back, and time pass; then everything must be accounted for.

    Raises:
        Broken: something is not, however long one waits.
    """
    world.server.faults, world.line.away, world.line.lost = Faults(), False, 0.0
    world.server.retention = RETENTION
    for member in world.members:
        member.still_until = 0.0
    if world.account.stepped:
        _set_right(world)
    world.join()
    last: Broken | None = None
    since: dict[str, datetime] = {}
    for number in range(60):
        world.live(1, (0.5, 2, 5, 8)[min(number // 3, 3)])
        world.live(3, 0.3)
        check_places(world, since)
        try:
            _check(world)
        except Broken as broken:
            last = broken
        else:
            world.rest()
            world.reread()
            for key in world.account.states:
                window_laws.check(world.account, key)
            data_laws.check(world)
            audit_laws.check(world)
            return
    raise last or AssertionError


def check_places(world: World, since: dict[str, datetime]) -> None:
    """Whoever waits beside a free place is let go soon, not when all runs have ended at last."""
    free = {
        fire.workflow_id
        for fire in world.account.fires.values()
        if fire.status == "queued" and _is_free(world, fire.key)
    }
    for name in [*since]:
        if name not in free:
            del since[name]
    for name in free:
        if world.true_now() - since.setdefault(name, world.true_now()) > _LET_GO_WITHIN:
            raise Broken(f"{name} waits beside a free place since {since[name]}")


def _is_free(world: World, key: str) -> bool:
    """Whether a run of a key could begin, and nothing else is wrong with it."""
    state = world.account.states[key]
    if state.hold is not None or key == BROKEN or state.failures or world.account.stepped:
        return False
    return _open_runs(world, key) < world.account.limit(state)


def _open_runs(world: World, key: str) -> int:
    fires = world.account.fires.values()
    return sum(
        fire.key == key and fire.lost_at is None and fire.status in RUNNING for fire in fires
    )


def _set_right(world: World) -> None:
    """Let the clock be right again, and come to where it was at its furthest: then all is due."""
    if world.step:
        world.set_clock(timedelta(0))
    ahead = (world.account.latest or world.now()) - world.now()
    world.live(3, 25)
    world.sleep(max(ahead, timedelta(0)))


def _check(world: World) -> None:
    account, now = world.account, world.now()
    for key, state in account.states.items():
        if state.hold is not None or key == BROKEN:
            continue
        entry = account.eras[key][-1].entry
        until = now - timedelta(seconds=180 if key == GHOST else 3)
        owed = [at for at in windows(entry, state.cursor, until) if not is_excluded(entry, at)]
        if owed:
            error = account.errors[key]
            raise Broken(f"{key} has not decided {owed[0]} at {now}: {entry} {error}")
    if (stays := backfill_laws.stays(account)) and not account.stepped:
        raise Broken(stays)
    for fire in world.account.fires.values():
        _check_fire(world, fire)
    for run in [runs[-1] for runs in world.server.runs.values() if runs]:
        _check_run(world, run)


def _check_fire(world: World, fire: FireRow) -> None:
    name, key = fire.workflow_id, fire.key
    waits = fire.lease_until is not None and fire.lease_until > world.now()
    stays = fire.status == "starting" or (fire.status == "claimed" and not waits)
    if stays and key != BROKEN:
        raise Broken(f"{name} stays {fire.status}: {fire.error}")
    if fire.status == "queued" and key != BROKEN and world.account.states[key].hold is None:
        open_runs = _open_runs(world, key)
        if open_runs < (most := world.account.limit(world.account.states[key])):
            raise Broken(f"{name} waits, and {open_runs} of {most} runs are open")
    run = world.server.newest(name)
    if fire.status == "started" and fire.lost_at is None:
        if run is None:
            raise Broken(f"{name} is said to run, and does not exist")
        if run.close_time is not None and run.close_time < world.true_now() - _SEEN_WITHIN:
            raise Broken(f"{name} is said to run, and has closed")


def _check_run(world: World, run: Run) -> None:
    if world.server.newest(run.id) is None or run.close_time is None or run.fire is None:
        return
    if run.close_time >= world.true_now() - _SEEN_WITHIN or run.id in world.account.lost:
        return
    fire = world.account.rows.get(run.id)
    if fire is None or fire.status not in CLOSED:
        raise Broken(f"{run.id} ran, and the ledger says {fire and fire.status}")
