"""What a failover of either server takes, and which promises that suspends: for which ids alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.model.account import Account
from tests.model.server import Server

_LONGEST = timedelta(minutes=3)
_TABLES = (
    "schedules", "fires", "windows", "runs", "projects", "definitions", "actions", "counters",
    "backfills", "gaps",
)  # fmt: skip


class Standby:
    """A copy of the ledger that may have to take over."""

    def __init__(self, account: Account, server: Server) -> None:
        self._account, self._server = account, server
        self._kept: tuple[datetime, Any, Any] | None = None

    def keep(self) -> None:
        """Remember the ledger as a standby has it."""
        ledger = self._account.ledger
        if not ledger._lock.locked():
            self._account.look()
            copies = {name: dict(getattr(ledger._tables, name)) for name in _TABLES}
            self._kept = (self._account.now(), copies, _copy_of(self._account))

    def take_over(self) -> None:
        """Go on with a ledger that lacks the last minutes."""
        account, ledger = self._account, self._account.ledger
        if self._kept is None or ledger._lock.locked():
            return
        at, copies, noted = self._kept
        self._kept = None
        if account.now() - at > _LONGEST:
            return
        account.look()
        account.lost |= {
            fire.workflow_id
            for number, fire in ledger._tables.fires.items()
            if copies["fires"].get(number) is not fire
        }
        for name, rows in copies.items():
            table = getattr(ledger._tables, name)
            table.clear()
            table.update(rows)
        account.__dict__.update(noted)
        account.fires_table.touched.clear()
        # What ran, and is not known to have run any more, is guarded by the id alone.
        excuse(account, self._server, account.lost & self._server.ever.keys())
        account.seen["commits lost"] += 1


def empty(account: Account, server: Server) -> None:
    """Let the Temporal server forget every run: what nobody answered for is the ledger's guess."""
    sure = {fire.workflow_id for fire in account.ledger._tables.fires.values() if fire.run_id}
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
    }
