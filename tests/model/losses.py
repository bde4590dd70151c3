"""What a failover of either server takes, and which promises that suspends: for which ids alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.bridge import Course
from tests.model.account import Account
from tests.model.server import Server

_LONGEST = timedelta(minutes=3)


class Standby:
    """A copy of the ledger that may have to take over."""

    def __init__(self, course: Course, account: Account, server: Server) -> None:
        self._course, self._account, self._server = course, account, server
        self._kept: tuple[datetime, int, dict[str, Any]] | None = None

    def keep(self) -> None:
        """Remember the ledger as a standby has it."""
        self._kept = self._account.now(), self._course.keep(), _copy_of(self._account)

    def take_over(self, *, told: bool) -> None:
        """Go on with a ledger that lacks the last minutes; see ``Course.restore``."""
        account = self._account
        if self._kept is None:
            return
        at, transactions, noted = self._kept
        self._kept = None
        if account.now() - at > _LONGEST:
            return
        self._course.restore(transactions, told=told)
        lost = {
            fire.workflow_id: fire
            for number, fire in account.fires.items()
            if noted["fires"].get(number) != fire
        }
        account.lost |= lost.keys()
        account.__dict__.update(noted)
        # What ran, and is not known to have run any more, is guarded by the id alone: for as long
        # as Temporal remembers it. So is what runs soon, because its send is on its way.
        excuse(account, self._server, account.lost & self._server.ever.keys())
        for name, fire in lost.items():
            if fire.status == "starting" and not self._server.ever.get(name):
                account.excused[name] = 2
        account.seen["commits lost"] += 1


def empty(account: Account, server: Server) -> None:
    """Let the Temporal server forget every run: what nobody answered for is the ledger's guess."""
    sure = {fire.workflow_id for fire in account.fires.values() if fire.run_id}
    excuse(account, server, server.ever.keys() - sure)
    server.restored_empty()
    account.seen["restored empty"] += 1


def excuse(account: Account, server: Server, names: set[str]) -> None:
    """Let these ids run once more than they have by now."""
    for name in names:
        account.excused[name] = len(server.ever[name]) + 1


def _copy_of(account: Account) -> dict[str, Any]:
    return {
        "eras": {key: [*eras] for key, eras in account.eras.items()},
        "rests": {key: [*rests] for key, rests in account.rests.items()},
        "states": dict(account.states),
        "fires": dict(account.fires),
        "rows": dict(account.rows),
        "backfills": dict(account.backfills),
        "shown_to_run": dict(account.shown_to_run),
    }
