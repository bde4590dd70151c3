"""What must be true of a run when it is sent, when it begins to exist, and ever after.

- Whoever sends a start holds the claim of its window at that moment.
- A run has a row, and its row says so.
- No window starts before it opens, before its turn, before its definition took effect, while its
  schedule is paused (unless it was on its way), or in a pause that nobody wants made up for.
- An id has one run.
"""

from __future__ import annotations

from engine.flow.fire import FireInfo
from tests.model.account import Account
from tests.model.moments import is_excluded
from tests.model.rows import FireRow
from tests.model.server import Run


def sent(account: Account, info: FireInfo) -> None:
    """Judge a start at the moment when it leaves."""
    owned = [fire for fire in account.fires.values() if str(fire.token) == info.token]
    window = (info.key, info.series, info.fire_time)
    rows = [
        fire for fire in account.fires.values() if (fire.key, fire.series, fire.fire_time) == window
    ]
    known = any(fire.run_id for fire in rows)  # its run was seen: this one will not become another
    if owned or known or account.stepped or not rows:
        return
    if not any(fire.workflow_id in account.lost for fire in rows):
        name = rows[0].workflow_id
        account.broken(f"{name} is sent by somebody who does not hold it any more")


def began(account: Account, run: Run) -> None:
    """Judge a run at the moment when it begins to exist."""
    # Somebody else's run may have kept the id, until it was forgotten.
    runs = [each for each in account.server.ever[run.id] if each.fire is not None]
    if len(runs) > account.excused.get(run.id, 1):
        account.broken(f"{run.id} ran {len(runs)} times")
    if run.fire is None:
        return
    fire = account.rows.get(run.id)
    account.seen["run"] += 1
    if run.id in account.lost:
        account.seen["run of a lost row"] += 1
        return
    if fire is None:
        account.broken(f"{run.id} runs, and has no row")
        return
    if fire.status in {"claimed", "queued"}:
        account.broken(f"{run.id} runs, and its row says {fire.status}")
    if fire.kind == "window" and fire.timing != "backfill":
        _may_start(account, run, fire)
        _may_start_now(account, run, fire)


def _may_start_now(account: Account, run: Run, fire: FireRow) -> None:
    pause, now = account.states[fire.key].pause, account.now()
    spread = None if run.id in account.promoted else account.turns.get(run.id)
    if max(fire.fire_time, spread or fire.fire_time) > (account.latest or now):
        account.broken(f"{run.id} starts before its time {fire.fire_time}")
    if pause and (pause.until is None or pause.until > now):
        # By the order of the commits: the clock may have been set back between the two.
        if account.sent_in.get(run.id, account.looks) > account.paused_in[fire.key]:
            account.broken(f"{run.id} starts while {fire.key} is paused")
        account.seen["sent before the pause"] += 1


def _may_start(account: Account, run: Run, fire: FireRow) -> None:
    at, era = fire.fire_time, account.era(fire)
    if at <= era.after or at < era.effective_from:
        account.broken(f"{run.id} opened before its definition took effect")
    if is_excluded(era.entry, at):
        account.broken(f"{run.id} is excluded")
    for rest in () if account.stepped else account.rests[fire.key]:
        if not rest.begin < at or (rest.end is not None and at >= rest.end):
            continue
        if fire.timing in {"on_time", "late"} or not rest.made_up:
            account.broken(f"{run.id} of {at} opened in a pause: {rest}")
