"""Replicas, a ledger, a Temporal server and operators, in one time that only tests let pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import engine.runtime.clock
from engine.errors import EngineError, LedgerError, LedgerUnavailable
from engine.ledger import Ledger, MemoryLedger
from engine.runtime.declare import apply, retire_absent
from engine.runtime.events import Alert, Event
from engine.schedules import load_schedules
from tests.model.account import CLOSED, Account, Broken
from tests.model.loop import Loop
from tests.model.member import Member
from tests.model.moments import is_excluded, windows
from tests.model.temporal import Faults, Run, Server
from tests.model.wire import Line, Wire

BEGIN = datetime(2026, 11, 18, 9, 58, 3, 250_000, tzinfo=UTC)  # a Wednesday
RETENTION = timedelta(minutes=20)
MANY = 3000
_SEEN_WITHIN = timedelta(seconds=130)
BROKEN, GHOST = "broken", "ghost"
"""A schedule whose runs the server never accepts, and one whose workflow nobody has."""


class World:
    """Everything that one example has."""

    def __init__(self, chance: Random) -> None:
        self.loop, self.chance = Loop(), chance
        self.loop.chance = chance
        self.step = timedelta(0)
        self.ledger = MemoryLedger(clock=self.now, remembers=True)
        self.entries: dict[str, dict[str, Any]] = {}
        self.account = Account(self.ledger, self.entries)
        self.server = Server(self.true_now, chance, RETENTION, self.account.began)
        self.server.refuses = frozenset({BROKEN})
        self.line = Line(chance)
        self.file: dict[str, dict[str, Any]] = {}
        self.members: list[Member] = []
        self.born = 0
        self.kept: tuple[datetime, Any, Any] | None = None
        stopwatch = SimpleNamespace(CLOCK_BOOTTIME=0, clock_gettime=lambda _: self.loop.time())
        self._patch = patch.object(engine.runtime.clock, "time", stopwatch)
        self._patch.start()

    def true_now(self) -> datetime:
        return BEGIN + timedelta(microseconds=self.loop.micros)

    def now(self) -> datetime:
        """The ledger's clock."""
        return self.true_now() + self.step

    def wire(self) -> Wire:
        return Wire(self.ledger, self.line, self.account.look)

    # Time and turns.

    def pump(self, handles: int, seconds: float = 0) -> None:
        self.server.go_on()
        self.loop.pump(handles, seconds)
        self.judge()

    def live(self, rounds: int, seconds: float) -> None:
        """Let every replica go on as it does."""
        for _ in range(rounds):
            for member in self.members:
                for name in member.loops:
                    member.turn(name)
            self.pump(MANY, seconds)

    def sleep(self, length: timedelta) -> None:
        """Let time pass in which nobody did anything."""
        self.loop.micros += length // timedelta(microseconds=1)
        self.server.go_on()

    def judge(self) -> None:
        self.account.look()
        if self.loop.troubles:
            raise Broken(self.loop.troubles[0])
        self.account.check_runs(self.server.ever)

    # Replicas.

    def join(self) -> None:
        self.born += 1
        self.members.append(Member(f"r{self.born}", self.loop, self.server, self.wire(), self.tell))
        self.members[-1].turn("begin")

    def tell(self, event: Event) -> None:
        if isinstance(event, Alert):
            self.account.seen[f"alert {event.code}"] += 1
            if event.code == "SCHEDULE_SETTLE_FAILED" and not _made(event.text):
                self.loop.troubles.append(event.text)

    def kill(self, member: Member) -> None:
        member.die()
        self.members.remove(member)

    def stand_still(self, member: Member, seconds: float) -> None:
        if not self.ledger._lock.locked():  # a database ends a transaction that stands still
            member.still_until = self.loop.time() + seconds

    # Operators.

    def ask(self, asking: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Let somebody do this, at the same time as everything else."""

        async def act() -> None:
            try:
                await asking()
            except EngineError as error:
                if isinstance(error, LedgerError) and not isinstance(error, LedgerUnavailable):
                    self.loop.troubles.append(repr(error))
                self.account.seen[f"refused {type(error).__name__}"] += 1

        self.loop.create_task(act())

    async def apply(self, *, prune: bool = False) -> None:
        entries = [{"key": key, "workflow": "noop", **entry} for key, entry in self.file.items()]
        file = load_schedules(json.dumps({"version": 1, "schedules": entries}))
        for schedule, entry in zip(file.schedules, entries, strict=True):
            self.entries[schedule.digest] = entry
        ledger = cast("Ledger", self.wire())
        await apply(ledger, file, by="test")
        if prune:
            await retire_absent(ledger, file, by="test", absent_for=timedelta(0), force=True)

    # Losses.

    def keep(self) -> None:
        """Remember the ledger as a standby has it."""
        tables = self.ledger._tables
        if not self.ledger._lock.locked():
            copies = {name: dict(getattr(tables, name)) for name in _TABLES}
            self.kept = (self.now(), copies, copy_of(self.account))

    def lose_commits(self) -> None:
        """Go on with a ledger that lacks the last minutes."""
        if self.kept is None or self.ledger._lock.locked():
            return
        at, copies, account = self.kept
        self.kept = None
        if self.now() - at > timedelta(minutes=3):
            return
        self.account.look()
        for name, rows in copies.items():
            table = getattr(self.ledger._tables, name)
            table.clear()
            table.update(rows)
        self.account.__dict__.update(account)
        self.account.commits_lost = True
        self.account.forgotten |= self.unsure()
        self.account.seen["commits lost"] += 1

    def empty(self) -> None:
        """Go on with a Temporal server that has forgotten every run."""
        self.account.forgotten |= self.unsure()
        self.server.restored_empty()
        self.account.seen["restored empty"] += 1

    def unsure(self) -> set[str]:
        """Ids that ran, of which the ledger does not know it: one memory alone guards them."""
        tables = self.ledger._tables
        known = {fire.new.workflow_id for fire in tables.fires.values() if fire.run_id}
        return {*self.server.ever} - known

    # The end.

    def settle(self) -> None:
        """Let everything come back, and time pass; then everything must be accounted for."""
        self.server.faults, self.line.away, self.line.lost = Faults(), False, 0.0
        for member in self.members:
            member.still_until = 0.0
        self.join()
        last: Broken | None = None
        for number in range(40):
            self.live(1, (0.5, 2, 5, 20)[min(number // 5, 3)])
            self.live(3, 0.3)
            try:
                self.check_the_end()
            except Broken as broken:
                last = broken
            else:
                for key in self.account.states:
                    self.account.check_windows(key)
                return
        raise last or AssertionError

    def check_the_end(self) -> None:
        now, tables = self.now(), self.ledger._tables
        for key, state in self.account.states.items():
            entry = self.account.eras[key][-1].entry
            owed = [at for at in windows(entry, state.cursor, now - timedelta(seconds=3))
                    if not is_excluded(entry, at)]  # fmt: skip
            if owed and state.hold is None and key not in {BROKEN, GHOST}:
                raise Broken(
                    f"{key} has not decided {owed[0]} at {now}: {entry}"
                    f" {tables.schedules[key].error} {tables.schedules[key].next_fire_at}"
                )
        for fire in tables.fires.values():
            self._check_fire(fire, now)
        for run in (runs[-1] for runs in self.server.runs.values() if runs):
            self._check_run(run)

    def _check_fire(self, fire: Any, now: datetime) -> None:
        name, key = fire.new.workflow_id, fire.new.key
        waits = fire.lease_until is not None and fire.lease_until > now
        stays = fire.status == "starting" or (fire.status == "claimed" and not waits)
        if stays and key != BROKEN:
            raise Broken(f"{name} stays {fire.status}: {fire.error}")
        if fire.status == "queued" and key != BROKEN and self.account.states[key].hold is None:
            others = [each for each in self.ledger._tables.fires.values()
                      if each.new.key == key and each.lost_at is None]  # fmt: skip
            if not any(each.status in {"claimed", "starting", "started"} for each in others):
                raise Broken(f"{name} waits for nothing")
        run = self.server.newest(name)
        if fire.status == "started" and fire.lost_at is None:
            if run is None:
                raise Broken(f"{name} is said to run, and does not exist")
            if run.close_time is not None and run.close_time < self.true_now() - _SEEN_WITHIN:
                raise Broken(f"{name} is said to run, and has closed")

    def _check_run(self, run: Run) -> None:
        if self.server.newest(run.id) is None or run.close_time is None:
            return
        if run.close_time >= self.true_now() - _SEEN_WITHIN:
            return
        if self.account.commits_lost and run.start_time < self.true_now() - timedelta(minutes=2):
            return
        fire = self.ledger._tables.fires.get(self.ledger._tables.runs.get(run.id, 0))
        if fire is None or fire.status not in CLOSED:
            raise Broken(f"{run.id} ran, and the ledger says {fire and fire.status}")

    def close(self) -> None:
        for member in self.members:
            member.dead = True
        self.loop.kill(None)
        self.loop.pump(MANY * 10, 0)
        self.loop.close()
        self._patch.stop()


_TABLES = (
    "schedules",
    "fires",
    "windows",
    "runs",
    "projects",
    "definitions",
    "actions",
    "counters",
)


def copy_of(account: Account) -> dict[str, Any]:
    return {
        "eras": {key: [*eras] for key, eras in account.eras.items()},
        "rests": {key: [*rests] for key, rests in account.rests.items()},
        "states": dict(account.states),
        "fires": dict(account.fires),
        "rows": dict(account.rows),
    }


def _made(text: str) -> bool:
    """Whether the text of an alert comes from a fault that was made."""
    return any(word in text for word in ("Unavailable", "CommitUnknown", "is away", "was lost"))
