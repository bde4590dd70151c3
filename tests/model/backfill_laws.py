"""What must be true of backfills, whenever the ledger has committed something.

- The cursor of one goes forward only, and only while it is laid.
- Every window that its cursor passes is counted once: as laid, and then it has a row that says so,
  or as left alone for a reason.
- A window that was left out by somebody's word, by its schedule or for other schedules, or whose
  data another run has had, is laid only where the request names that cause.
- One that is laid to its end has counted all of its windows; one that goes on does so in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from engine.ledger.records import Backfill
from tests.model.moments import windows

if TYPE_CHECKING:
    from tests.model.account import Account

_LAID_WITHIN = timedelta(seconds=60)
_IN_LINE = 10
_TO_BE_NAMED = {"user", "excluded", "dependency", "coalesced"}


def check(account: Account, found: Sequence[Backfill]) -> None:
    """Judge what is new of every backfill."""
    for after in found:
        before = account.backfills.get(after.id)
        if after == before:
            continue
        account.backfills[after.id] = after
        if before is not None:
            _moved(account, before, after)
        if after.state != "laying":
            account.seen[f"backfill {after.state}"] += 1


def _moved(account: Account, before: Backfill, after: Backfill) -> None:
    name = f"backfill {after.id} of {after.key}"
    if after.cursor < before.cursor:
        account.broken(f"the cursor of {name} goes back")
    if before.state != "laying":
        account.broken(f"{name} changes after its end")
    passed = _windows(account, before.cursor, after)
    if after.done - before.done != len(passed):
        counted = after.done - before.done
        account.broken(f"{name} counts {counted} of {len(passed)} windows up to {after.cursor}")
    rows = [
        fire
        for fire in account.fires.values()
        if fire.key == after.key and fire.kind == "window" and fire.fire_time in passed
        and fire.timing == "backfill" and fire.windows == 1
    ]  # fmt: skip
    if len(rows) < after.laid - before.laid:
        account.broken(f"{name} says that it laid {after.laid - before.laid}, and {len(rows)} are")
    named = {why for each in account.backfills.values() if each.key == after.key
             for why in each.include}  # fmt: skip
    for fire in rows:
        why = fire.history[-1].get("reason_code") if fire.history else None
        if why in _TO_BE_NAMED - named:
            account.broken(f"{name} starts {fire.workflow_id}, which is {why}")
    if after.state == "done" and after.done != after.windows:
        account.broken(f"{name} has counted {after.done} of its {after.windows} windows")


def _windows(account: Account, since: datetime, of: Backfill) -> set[datetime]:
    (entry,) = {
        id(era.entry): era.entry
        for era in account.eras[of.key]
        if era.version == of.definition_version
    }.values()
    return set(windows(entry, since, of.cursor))


def stays(account: Account) -> str | None:
    """Name a backfill that nobody goes on with, though somebody could."""
    now = account.now()
    for each in account.backfills.values():
        state = account.states[each.key]
        if each.state != "laying" or each.is_halted(state) or each.next_at > now - _LAID_WITHIN:
            continue
        fires = account.fires.values()
        line = sum(fire.key == each.key and fire.status == "queued" for fire in fires)
        if line < _IN_LINE:
            return f"backfill {each.id} of {each.key} stays at {each.cursor}: {each.error}"
    return None
