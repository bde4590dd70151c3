"""Replicas, a ledger, a Temporal server and operators, in one time that only tests let pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from engine.errors import EngineError, LedgerError, LedgerUnavailable
from engine.runtime.apply.apply import apply, retire_absent
from engine.runtime.events import Alert, Event
from engine.schedules import load_schedules
from tests.bridge import Bridge
from tests.model import losses, row_laws, run_laws
from tests.model.account import Account, Broken
from tests.model.loop import Loop, elapsing
from tests.model.member import SETTINGS, Member
from tests.model.server import SECOND, Server
from tests.model.wire import Line, Wire

BEGIN = datetime(2026, 11, 18, 9, 58, 3, 250_000, tzinfo=UTC)  # a Wednesday
RETENTION = timedelta(minutes=20)
MANY = 3000
BROKEN = "broken"
"""A schedule whose runs the server never accepts."""
AUDITED = timedelta(seconds=61)
"""How long what Temporal showed may be used."""
_AGREEMENT = 60.0
_SURE = 1.0
"""Seconds that a look at the clock may take, to be one that tells."""


class World:
    """Everything that one example has."""

    def __init__(self, bridge: Bridge, chance: Random) -> None:
        self.loop, self.chance = Loop(), chance
        self.loop.chance = chance
        self.step = timedelta(0)
        self.stepped_at: float | None = None
        self.entries: dict[str, dict[str, Any]] = {}
        self.account = account = Account(
            self.now, self.entries, self.loop.troubles,
            row_laws.of_state, row_laws.of_fires, row_laws.of_writes,
        )  # fmt: skip
        self.course = bridge.course(self.loop, self.now, account)
        self.identity = self.course.run(self.course.direct.identity())
        account.distrusts = self.distrusts
        self.server = account.server = Server(
            self.true_now, chance, RETENTION,
            lambda run: run_laws.began(account, run), lambda info: run_laws.sent(account, info),
        )  # fmt: skip
        self.server.refuses = frozenset({BROKEN})
        self.standby = losses.Standby(self.course, account, self.server)
        self.server.audited_at = BEGIN - AUDITED
        self.line = Line(chance, seen=account.seen)
        self.operator = self.wire()
        self.file: dict[str, dict[str, Any]] = {}
        self.members: list[Member] = []
        self.born = 0
        self._time = elapsing(self.loop)
        self._time.__enter__()

    def true_now(self) -> datetime:
        return BEGIN + timedelta(microseconds=self.loop.micros)

    def now(self) -> datetime:
        """The ledger's clock."""
        return self.true_now() + self.step

    def wire(self) -> Wire:
        return Wire(self.course, self.line)

    # Time and turns.

    def pump(self, handles: int, seconds: float = 0) -> None:
        self.server.go_on()
        self.loop.pump(handles, seconds)
        self.judge()

    def live(self, rounds: int, seconds: float) -> None:
        """Let every replica go on as it does."""
        for _ in range(rounds):
            for member in self.members:
                member.live()
            self.pump(MANY, seconds)

    def sleep(self, length: timedelta) -> None:
        """Let time pass in which nobody did anything."""
        self.loop.micros += length // timedelta(microseconds=1)
        self.server.go_on()

    def judge(self) -> None:
        if self.loop.troubles:
            raise Broken(self.loop.troubles[0])

    def fail_over(self) -> None:
        """Let the standby go on for the ledger."""
        self.standby.take_over(told=self.chance.random() < 0.5)
        if self.true_now() - self.server.audited_at < AUDITED:
            # What Temporal answered is still believed, and the commits that booked it are lost.
            self.account.believed_until = self.account.now() + AUDITED

    def set_clock(self, step: timedelta) -> None:
        """Put the ledger's clock so far from the truth."""
        self.account.now()
        is_felt = abs(step - self.step) > SETTINGS.max_skew + SECOND
        for member in self.members:
            # Who slept through the clock's last way there and back has seen neither.
            since = -1.0 if self.stepped_at is None else self.stepped_at
            seen = [look for look in member.wire.probes if is_felt and look[0] > since]
            member.trusted = seen if len(seen) > 1 else []  # the first one is not the poller's
        self.step, self.stepped_at = step, self.loop.time()
        self.course.opened(self.now())
        self.account.stepped = True
        self.account.seen["clock set"] += 1

    def distrusts(self, replica: str) -> bool:
        """Whether this replica saw the clock before it was set and after, less than a minute ago.

        Looks that took long tell nothing: the clock was read at any moment between.
        """
        for member in self.members:
            if member.name == replica and member.trusted and self.stepped_at is not None:
                looks = [*member.trusted, member.wire.probes[-1]]
                sure = all(answered - asked < _SURE for asked, answered in looks)
                knows = sure and looks[-1][0] > self.stepped_at
                return knows and self.loop.time() < self.stepped_at + _AGREEMENT
        return False

    # Replicas.

    def join(self) -> None:
        self.born += 1
        self.members.append(
            Member(f"r{self.born}", self.loop, self.server, self.wire(), self.identity, self.tell)
        )
        self.members[-1].turn("begin")

    def tell(self, event: Event) -> None:
        if isinstance(event, Alert):
            self.account.seen[f"alert {event.code}"] += 1
            if event.code == "SCHEDULE_SETTLE_FAILED" and not _made(event.text):
                self.loop.troubles.append(event.text)

    def kill(self, member: Member) -> None:
        self.course.drop(member)
        member.die()
        self.members.remove(member)

    def stand_still(self, member: Member, seconds: float) -> None:
        member.still_until = self.loop.time() + seconds
        self.loop.still_until = max(self.loop.still_until, member.still_until)

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
            self.account.declared[schedule.digest] = schedule
        await apply(self.operator, file, by="test")
        if prune:
            await retire_absent(self.operator, file, by="test", absent_for=timedelta(0), force=True)

    def rest(self) -> None:
        """Let nobody do anything any more."""
        for member in self.members:
            member.dead = True
        self.course.drop(None)
        self.course.settle()
        self.loop.kill(None)

    def reread(self) -> None:
        """Compare what was seen of each commit with what there is now.

        Raises:
            Broken: somebody wrote what no law has judged.
        """
        rows = self.course.rows(
            "SELECT id, status, run_id, token FROM sched.fires WHERE namespace = $1",
            self.course.namespace,
        )
        seen = {(fire.fire_id, fire.status, fire.run_id, fire.token)
                for fire in self.account.fires.values()}  # fmt: skip
        if unseen := {tuple(row) for row in rows} ^ seen:
            raise Broken(f"nobody has seen who wrote {unseen}")

    def close(self) -> None:
        try:
            self.rest()
            self.loop.pump(MANY * 10, 0)
            self.course.end()
        finally:
            self.loop.close()
            self._time.__exit__(None, None, None)


def _made(text: str) -> bool:
    """Whether the text of an alert comes from a fault that was made."""
    return any(word in text for word in ("Unavailable", "CommitUnknown", "is away", "was lost"))
